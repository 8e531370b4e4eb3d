"""The first look at image files names every one that can't be read, its cause, and a remedy that destroys nothing."""

import ast
import os
import pickle
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
from fake_data import write_image
from PIL import EpsImagePlugin, Image, ImageFile

import vit_tutorial
from vit_tutorial.data import headers
from vit_tutorial.data.headers import FORMATS, NAMED, check_headers, decoded, stop_if_unreadable
from vit_tutorial.data.images import decode, decode_all


def box(brand: bytes) -> bytes:
    """The start of a file of the ISO's family: HEIC, AVIF, MP4."""
    return struct.pack(">I", 24) + b"ftyp" + brand + bytes(4) + b"mif1" + brand + os.urandom(500)


OTHERS = {
    "page.jpg": (b"\n<!DOCTYPE html>\n<html><body>403", r"is a web page \(HTML\): download the image itself$"),
    "note.png": (b"<!-- saved from x --><html>", r"is a web page \(HTML\)"),
    "drawing.png": (b'<?xml version="1.0"?><svg>', r"is a drawing .*\(SVG\): convert it to JPEG or PNG$"),
    "phone.jpg": (box(b"heic"), r"is a photograph in HEIC, which isn't read here: convert it to JPEG or PNG$"),
    "burst.heic": (box(b"msf1"), r"in HEIC"),
    "film.jpg": (box(b"isom"), r"is a film \(MP4"),
    "pointer.png": (b"version https://git-lfs.github.com/spec/v1\n", r"is a Git LFS pointer, .*: run git lfs pull$"),
    "paper.jpg": (b"%PDF-1.7", r"is a PDF: save its pages"),
    "script.png": (b"%!PS-Adobe-3.0 EPSF-3.0\n", r"is a program in PostScript, .* convert it to JPEG or PNG$"),
    "preview.jpg": (b"\xc5\xd0\xd3\xc6" + bytes(40), "is a program in PostScript"),
    "pack.png": (b"PK\x03\x04" + bytes(50), r"is a zip file: unpack it$"),
    "answer.png": (b'{"error": "not found"}', r"\(JSON\): download the image itself$"),
    "empty.png": (b"", r"is empty, 0 bytes: copy or download it again$"),
    "noise.jpg": (b"\x07" * 300, r"is not a whole image, or of a kind that isn't read here: copy or download it again"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_goes_by_an_image_s_name_is_called_what_it_is(tmp_path, name):
    content, message = OTHERS[name]
    (tmp_path / name).write_bytes(content)
    for read in (decode, lambda file: check_headers([file]), lambda file: decode_all([file])):
        with pytest.raises(ValueError, match=message) as error:
            read(str(tmp_path / name))
        said = str(error.value).replace(str(tmp_path), "")
        assert said.startswith(f"/{name} ") and "delete" not in said and "remove" not in said.lower()


def test_all_of_them_are_named_at_once_by_the_first_look_and_by_the_second(tmp_path):
    files = [str(tmp_path / f"{number}.png") for number in range(6)]
    for number, file in enumerate(files):
        write_image(tmp_path / file, number)
    for number, content in ((0, b""), (2, b"<html>"), (5, b"%PDF")):
        (tmp_path / files[number]).write_bytes(content)
    for read in (check_headers, decode_all, lambda files: decode_all(files, progress=True)):
        with pytest.raises(
            ValueError, match=r"^3 files can't be read as images: \S+/0.png is .*; \S+/2.png is .*5.png is"
        ):
            read(files)
    assert check_headers(files[3:5]) == [(8, 6)] * 2


def test_a_header_may_be_whole_and_the_image_not(tmp_path):
    for number in range(3):
        write_image(tmp_path / f"{number}.jpg", number, (64, 64))
    files = [str(tmp_path / f"{number}.jpg") for number in range(3)]
    for number in (0, 2):
        content = (tmp_path / f"{number}.jpg").read_bytes()
        (tmp_path / f"{number}.jpg").write_bytes(content[:-60])
    assert check_headers(files) == [(64, 64)] * 3
    with pytest.raises(
        ValueError, match=r"^2 files can't be read as images: \S+/0.jpg is not a whole .*2.jpg is not a whole"
    ):
        decode_all(files, (32, 32))


def test_a_file_that_was_mended_is_looked_at_again(tmp_path):
    file = tmp_path / "a.png"
    file.touch()
    with pytest.raises(ValueError, match="is empty"):
        check_headers([str(file)])
    write_image(file, 3)
    assert check_headers([str(file)]) == [(8, 6)]
    file.unlink()
    with pytest.raises(ValueError, match=r"^there is no file \S+a\.png$"):
        check_headers([str(file)])
    file.mkdir()
    with pytest.raises(ValueError, match=r"a\.png is a folder, not an image$"):
        check_headers([str(file)])


def test_too_many_pixels_are_refused_before_they_are_decoded(tmp_path, monkeypatch):
    Image.new("1", (60, 40)).save(tmp_path / "scan.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    for read in (decode, lambda file: check_headers([file])):
        with pytest.raises(
            ValueError, match=r"scan\.png has 2,400 pixels, more than the 2,000 that are read: save it sma"
        ):
            read(str(tmp_path / "scan.png"))


def test_a_very_long_list_is_cut():
    with pytest.raises(ValueError, match=r"^60 files .*49.png is empty; and 10 more$"):
        stop_if_unreadable([f"{number}.png is empty" for number in range(NAMED + 10)])


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"


def test_a_picture_starts_no_other_program(tmp_path, monkeypatch):
    """PIL gives PostScript to Ghostscript, whatever the file is called."""
    started = []

    def start(command, *_, **__):
        started.append(command)
        raise OSError

    for name in ("Popen", "check_call"):
        monkeypatch.setattr(subprocess, name, start)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", "gs")
    (tmp_path / "x.png").write_bytes(EPS)
    with pytest.raises(OSError), Image.open(tmp_path / "x.png") as image:
        image.load()
    assert len(started) == 1  # so it would be seen
    for read in (decode, lambda file: check_headers([file]), lambda file: decode_all([file], progress=True)):
        with pytest.raises(ValueError, match=r"x\.png is a program in PostScript"):
            read(str(tmp_path / "x.png"))
    assert len(started) == 1


KINDS = "JPEG PNG PPM BMP TIFF WEBP GIF MPO DIB ICO TGA PCX"


@pytest.mark.parametrize("kind", KINDS.split())
def test_formats_are_told_by_content_and_there_are_no_others(tmp_path, kind):
    """Whatever a file is called; MPO is what some cameras make, a JPEG with another one behind it."""
    file = tmp_path / "a.jpg"
    Image.new("RGB", (16, 16), "teal").save(file, kind)
    if kind in FORMATS or kind == "MPO":
        assert check_headers([str(file)]) == [(16, 16)]
        assert decode(str(file)).float().mean((1, 2)).tolist() == pytest.approx([0, 128, 128], abs=3)
    else:
        with pytest.raises(ValueError, match=r"of a kind that isn't read here: .* convert it to JPEG or PNG$"):
            decode(str(file))


READERS = ("Image.open", "imread", "read_image", "decode_image", "default_loader", "ImageFolder")


def readers(code: str) -> list[str]:
    """Calls that open images of any format."""
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    named = [(f".{ast.unparse(call.func)}", {keyword.arg for keyword in call.keywords}) for call in calls]
    return [name for name, given in named if name.endswith(tuple(f".{each}" for each in READERS)) and not given]


def test_no_other_place_of_the_package_opens_images():
    assert readers("from PIL import Image\nImage.open(x)\nplt.imread(x)") == [".Image.open", ".plt.imread"]
    assert readers("PIL.Image.open(x)\nread_image(x)") == [".PIL.Image.open", ".read_image"]
    assert readers("Image.open(x, formats=('PNG',))\nopen(x)\nself.open(x)") == []
    files = sorted(Path(vit_tutorial.__file__).parent.rglob("*.py"))
    assert len(files) > 50
    assert [(file.name, found) for file in files if (found := readers(file.read_text("utf-8")))] == []


ERRORS = [
    *(KeyError(5), IndexError("index"), AttributeError("no attribute"), ZeroDivisionError("zero"), TypeError("type")),
    *(struct.error("unpack"), zlib.error("Error -3"), RecursionError("depth"), NotImplementedError()),
    *(AssertionError(), OverflowError("large"), EOFError("end"), SyntaxError("broken"), pickle.UnpicklingError("any")),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("place", ["open", "load"])
def test_whatever_comes_out_of_the_library_is_that_file_s_fault(tmp_path, monkeypatch, error, place):
    def fails(*_, **__):
        raise error

    files = [str(tmp_path / f"{number}.png") for number in range(2)]
    for file in files:
        write_image(Path(file), 7)
    monkeypatch.setattr(*((Image, "open") if place == "open" else (ImageFile.ImageFile, "load")), fails)
    message = rf"{files[0]} is not a whole image: \S.*\. Copy or download it again"
    with pytest.raises(ValueError, match=f"^{message}") as said:
        decode(files[0])
    assert said.value.__cause__ is error
    with pytest.raises(ValueError, match=rf"^2 files can't be read as images: {files[0]} .*; {files[1]} "):
        decode_all(files)


def test_memory_that_does_not_suffice_is_no_damage(tmp_path, monkeypatch):
    def fails(*_):
        raise MemoryError

    write_image(tmp_path / "a.png", 7)
    monkeypatch.setattr(ImageFile.ImageFile, "load", fails)
    with pytest.raises(ValueError, match=r"a\.png has more pixels than there is memory for: save it smaller$"):
        decode(str(tmp_path / "a.png"))


def test_large_images_are_decoded_one_at_a_time(tmp_path, monkeypatch):
    """Eight threads with an image of 179 million pixels each would take 4 GB and more."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    for name in ("a.png", "a.jpg"):
        Image.fromarray(pixels).save(tmp_path / name)
    for large, side, name, alone in ((4096, 0, "a.png", False), (4095, 0, "a.png", True), (1000, 8, "a.jpg", False)):
        monkeypatch.setattr(headers, "LARGE", large)
        with decoded(str(tmp_path / name), side):
            assert headers._one_at_a_time.locked() == alone
        assert not headers._one_at_a_time.locked()
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes()[:3000])
    with pytest.raises(ValueError, match="is not a whole image"):
        decode(str(tmp_path / "a.png"))
    assert not headers._one_at_a_time.locked()
