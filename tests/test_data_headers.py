"""The first look at image files names every one that can't be read, its cause, and a remedy that destroys nothing."""

import os
import struct

import pytest
from fake_data import write_image
from PIL import Image

from vit_tutorial.data.headers import NAMED, check_headers, stop_if_unreadable
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
    with pytest.raises(ValueError, match="is not a file that can be opened"):
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
