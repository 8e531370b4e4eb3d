"""Sets in memory and on disk hand out the same batches; images are decoded whole, upright and in one size."""

import multiprocessing.process
import os
import struct
import threading
import zlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fake_data import write_image, write_tree
from PIL import Image

from vit_tutorial.data import Dataset, images
from vit_tutorial.data.folders import find_images
from vit_tutorial.data.images import WORKERS, ImageFiles, decode, decode_all

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]


@pytest.fixture
def files(tmp_path):
    write_tree(tmp_path, ("ape", "bee"), 4)
    return ImageFiles(*find_images(tmp_path), "test")


def in_memory(files: ImageFiles) -> Dataset:
    return Dataset(decode_all(files.files, files.img_size), files.labels, files.classes, files.variant)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("where", [in_memory, lambda files: files])
def test_batches_hold_the_images_asked_for(files, where, device):
    dataset = where(files).to(device)
    numbers = [torch.tensor([6, 0, 3]), torch.tensor([1]), torch.tensor([7, 7])]
    batches = list(dataset.batches(numbers, device))
    assert [images[:, 2, 5, 7].tolist() for images, _ in batches] == [[22, 0, 3], [1], [23, 23]]
    assert [labels.tolist() for _, labels in batches] == [[1, 0, 0], [0], [1, 1]]
    assert {(images.dtype, images.device.type, labels.device.type) for images, labels in batches} == {
        (torch.uint8, device, device)
    }


@pytest.mark.parametrize("where", [in_memory, lambda files: files])
def test_a_part_of_a_set(files, where):
    dataset = where(files)
    assert dataset.image_shape == (3, 6, 8)
    for index in (torch.tensor([5, 2]), slice(2, 4)):
        part = dataset[index]
        assert len(part) == 2
        assert part.labels.tolist() == files.labels[index].tolist()
        ((images, _),) = part.batches([torch.arange(2)])
        assert torch.equal(images, in_memory(files).images[index])


@pytest.mark.parametrize("where", [in_memory, lambda files: files])
@pytest.mark.parametrize("index", [-1, 0, 3, torch.tensor(3), True, None, torch.tensor([[1, 2]])], ids=repr)
def test_an_index_that_is_no_part_of_a_set_is_refused(files, where, index):
    with pytest.raises(ValueError, match=r"index must be a slice or a row of indices, as in .*, got "):
        where(files)[index]


@pytest.mark.parametrize("where", [in_memory, lambda files: files])
def test_one_image_and_every_other_kind_of_row(files, where):
    dataset = where(files)
    odd = torch.arange(8) % 2 == 1
    for index, expected in (
        (slice(-1, None), [7]),
        ([-1], [7]),
        (odd, [1, 3, 5, 7]),
        (slice(5, 5), []),
        ([2, 2], [2, 2]),
    ):
        part = dataset[index]
        assert part.labels.tolist() == files.labels[expected].tolist() and len(part) == len(expected)
        if expected:
            ((images, _),) = part.batches([torch.arange(len(part))])
            assert torch.equal(images, in_memory(files).images[expected])


def test_a_set_is_of_bytes_and_has_a_label_for_each(no_shape_checks):
    """Pixels in 0..1 would be divided by 255 once more, and NaN would pass for a pixel."""
    images, labels = torch.zeros(3, 1, 4, 4, dtype=torch.uint8), torch.zeros(3).long()
    with pytest.raises(ValueError, match=r"images must be bytes, torch\.uint8 in 0..255, got torch\.float32"):
        Dataset(images / 255, labels, ("a",), "test")
    with pytest.raises(ValueError, match="3 images need as many labels, got 2"):
        Dataset(images, labels[:2], ("a",), "test")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            torch.tensor([1, 2, 3]),
            r"label 3 of image 2: 3 classes have the indices 0 to 2; if they count from 1, labels - 1",
        ),
        (
            torch.tensor([0, -1, -1]),
            r"label -1 of image 1 and 1 more: .* 0 to 2; leave out the images whose class is unk",
        ),
        (
            torch.tensor([0, 7, 1]),
            r"label 7 of image 1: 3 classes have the indices 0 to 2; name a class for each index",
        ),
        (
            torch.eye(3).long(),
            r"torch\.int64 of shape \(3,\), got torch\.int64 of shape \(3, 3\); .* labels\.argmax\(dim=1\)",
        ),
        (torch.zeros(3, 1).long(), r"got torch\.int64 of shape \(3, 1\); labels\.flatten\(\) makes it a row"),
        (torch.tensor([0.0, 1.0, 2.0]), r"got torch\.float32 of shape \(3,\); labels\.long\(\) converts them"),
        (torch.tensor([0.0, 0.5, 2.0]), r"got torch\.float32 of shape \(3,\)$"),
        (torch.zeros(3, dtype=torch.uint8), r"got torch\.uint8 of shape \(3,\); labels\.long\(\)"),
        (torch.tensor(1), r"got torch\.int64 of shape \(\)$"),
        ([0, 1, 2], r"got a list; torch\.as_tensor\(labels\)"),
        (np.array([0, 1, 2]), r"got a ndarray; torch\.as_tensor\(labels\)"),
    ],
    ids=repr,
)
def test_labels_that_are_no_class_indices_are_refused_at_the_door(no_shape_checks, labels, message):
    """In a training they would end in an index error of PyTorch's, or train in silence."""
    with pytest.raises(ValueError, match=message):
        Dataset(torch.zeros(3, 1, 4, 4, dtype=torch.uint8), labels, ("a", "b", "c"), "test")
    with pytest.raises(ValueError, match=message):
        ImageFiles(("1.png", "2.png", "3.png"), labels, ("a", "b", "c"), "test")


def test_a_stream_starts_no_process_and_leaves_no_thread_however_it_ends(files, monkeypatch):
    started, before = [], set(threading.enumerate())
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", started.append)
    batches = torch.arange(8).split(2)
    for _ in range(3):
        assert len(list(files.batches(batches))) == 4
    stream = files.batches(batches)
    next(stream)
    assert set(threading.enumerate()) > before
    stream.close()
    with pytest.raises(KeyboardInterrupt):
        for _ in files.batches(batches):
            raise KeyboardInterrupt
    assert set(threading.enumerate()) == before and not started


def test_a_stream_decodes_only_so_far_ahead_and_not_after_its_end(files, monkeypatch):
    decoded = []
    monkeypatch.setattr(images, "decode_all", lambda *args: decoded.append(args) or decode_all(*args))
    stream = files.batches([torch.tensor([0])] * 100)
    next(stream)
    stream.close()
    assert 1 <= len(decoded) <= 2 * WORKERS + 1


def test_a_damaged_image_stops_the_stream_with_a_short_message(files):
    with open(files.files[5], "r+b") as file:
        file.truncate(40)
    with pytest.raises(
        ValueError, match=r"^\S+bee/001.png is not a whole image, .*: copy or download it again, or convert it"
    ):
        list(files.batches(torch.arange(8).split(2)))


def test_resize_equals_interpolate_and_takes_the_masks_along():
    images = (torch.rand(3, 2, 8, 6) * 255).byte()
    masks = torch.zeros(3, 8, 6, dtype=torch.bool)
    masks[:, :4, 2:4] = True
    dataset = Dataset(images, torch.arange(3), ("a", "b", "c"), "test", masks)
    half = dataset.resize((4, 3))
    assert half.masks.int().tolist() == [[[0, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0]]] * 3
    expected = F.interpolate(images.double(), (4, 3), mode="bilinear", antialias=True)
    torch.testing.assert_close(half.images.double(), expected, rtol=0, atol=0.51)
    assert dataset.resize((8, 6)) is dataset
    even = Dataset(torch.full((1, 1, 4, 4), 77, dtype=torch.uint8), torch.zeros(1).long(), ("a",), "test").resize(
        (7, 9)
    )
    assert even.images.unique().tolist() == [77]


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK", "1"])
def test_every_kind_of_image_becomes_rgb(tmp_path, mode):
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    Image.new("RGB", (5, 4), "white").convert(mode).save(path)
    assert torch.equal(decode(str(path)), torch.full((3, 4, 5), 255, dtype=torch.uint8))


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_sixteen_bits_are_scaled(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    Image.fromarray(np.array([[0, 257, 300], [32896, 65278, 65535]], dtype=np.uint16)).save(path)
    assert decode(str(path)).tolist() == [[[0, 1, 1], [128, 254, 255]]] * 3
    assert decode(str(path), (2, 3)).tolist() == [[[0, 1, 1], [128, 254, 255]]] * 3


@pytest.mark.parametrize("bits", [8, 10, 12, 14])
def test_fewer_bits_in_a_file_of_sixteen_keep_their_grey_levels(tmp_path, bits):
    """Scaled as 16 bits, 12 of them would leave 17 grey levels, all of them nearly black."""
    ramp = np.linspace(0, 2**bits - 1, 256).round().astype(np.uint16)[None]
    for name in ("a.png", "a.tif"):
        Image.fromarray(ramp).save(tmp_path / name)
        with pytest.warns(
            UserWarning, match=rf"no value above {2**bits - 1:,} is taken to hold {bits} bits, so .* white"
        ):
            grey = decode(str(tmp_path / name))
        assert grey[0, 0].tolist() == list(range(256))


def deep_png(values: np.ndarray) -> bytes:
    """An RGB image of 16 bits, which PIL does not write."""
    raw = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    size = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], 16, 2, 0, 0, 0)
    parts = {b"IHDR": size, b"IDAT": zlib.compress(raw), b"IEND": b""}
    chunks = (struct.pack(">I", len(v)) + k + v + struct.pack(">I", zlib.crc32(k + v)) for k, v in parts.items())
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize("bits", [10, 12, 14, 16])
def test_colours_of_which_only_the_upper_bits_are_read(tmp_path, recwarn, bits):
    """12 bits in a file of 16 leave 16 levels, all of them nearly black: that can't be mended here, but told."""
    values = np.linspace(0, 2**bits - 1, 300).round().astype(np.uint16).reshape(10, 10, 3)
    (tmp_path / "a.png").write_bytes(deep_png(values))
    assert decode(str(tmp_path / "a.png")).permute(1, 2, 0).tolist() == (values // 256).tolist()
    told = [str(warning.message) for warning in recwarn]
    assert len(told) == (bits < 16)
    assert all(f"has no value above {2**bits - 1:,}, and only the upper 8 bits are read" in line for line in told)


def test_where_the_header_says_which_value_is_white_a_dark_image_stays_dark(tmp_path):
    """A .pgm says it; PIL scales its values to 65,535."""
    (tmp_path / "a.pgm").write_bytes(b"P5 2 1 4095\n" + np.array([100, 200], dtype=">u2").tobytes())
    assert decode(str(tmp_path / "a.pgm"))[0].tolist() == [[6, 12]]


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_pixels_without_a_known_white_are_refused(tmp_path, kind):
    Image.fromarray(np.ones((4, 5), dtype=kind)).save(tmp_path / "a.tif")
    mode = "F" if kind is np.float32 else "I"
    with pytest.raises(ValueError, match=rf"a\.tif has pixels of PIL's mode '{mode}'; .* Save it with 8 or 16 bits"):
        decode(str(tmp_path / "a.tif"))


def test_a_pipe_is_not_waited_for(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "a.png")
    monkeypatch.setattr(Image, "open", lambda *_: pytest.fail("it was opened, which waits for a writer"))
    with pytest.raises(ValueError, match=r"a\.png is not a file that can be opened"):
        decode(str(tmp_path / "a.png"))


def test_a_file_that_may_not_be_read_is_named_with_the_reason(tmp_path, monkeypatch):
    write_image(tmp_path / "a.png", 1)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Image, "open", refuse)
    with pytest.raises(ValueError, match=r"a\.png cannot be opened: Permission denied$"):
        decode(str(tmp_path / "a.png"))


def test_shorter_side_is_resized_and_the_middle_cut_out(tmp_path):
    """60×20 pixels: red, green and blue thirds. A square of any size shows the green one, and nothing else."""
    image = Image.new("RGB", (60, 20))
    for third, colour in enumerate(((255, 0, 0), (0, 255, 0), (0, 0, 255))):
        image.paste(colour, (20 * third, 0, 20 * third + 20, 20))
    image.save(tmp_path / "wide.png")
    image.transpose(Image.Transpose.TRANSPOSE).save(tmp_path / "tall.png")
    for name in ("wide.png", "tall.png"):
        for size in (10, 20):
            square = decode(str(tmp_path / name), (size, size))
            assert square.shape == (3, size, size)
            assert square[:, 2:-2, 2:-2].float().mean((1, 2)).tolist() == [0, 255, 0]
    wide = decode(str(tmp_path / "wide.png"), (10, 30))  # here nothing is cut
    assert [wide[:, 5, column].tolist() for column in (3, 15, 26)] == [[255, 0, 0], [0, 255, 0], [0, 0, 255]]


def test_photographs_are_turned_upright(tmp_path):
    image = Image.new("RGB", (6, 4))
    image.paste("white", (0, 0, 6, 1))  # the top row
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise by 90° for display
    image.save(tmp_path / "a.png", exif=exif)
    upright = decode(str(tmp_path / "a.png"))
    assert upright.shape == (3, 6, 4)
    assert (upright == 255).nonzero()[:, 2].unique().tolist() == [3]  # the right column


def test_a_large_jpeg_is_read_in_small_to_almost_the_same(tmp_path):
    ramp = Image.linear_gradient("L").resize((1600, 1200))
    ramp.save(tmp_path / "a.jpg", quality=95)
    small = decode(str(tmp_path / "a.jpg"), (100, 100)).float()
    expected = (torch.arange(100) + 0.5) / 100 * 255
    assert (small[0].mean(1) - expected).abs().max() < 3


def test_truncated_jpeg(tmp_path):
    write_image(tmp_path / "a.jpg", 100, (64, 64))
    content = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(content[: len(content) - 60])
    with pytest.raises(
        ValueError, match=r"a.jpg is not a whole image: image file is truncated.*\. Copy or download it again"
    ):
        decode(str(tmp_path / "a.jpg"))


def test_decoding_in_threads_keeps_the_order(tmp_path):
    write_tree(tmp_path, ("ape", "bee", "cat"), 15)
    files = find_images(tmp_path)[0]
    images = decode_all(files, progress=True)
    assert images[:, 1, 0, 0].tolist() == [20 * label + number for label in range(3) for number in range(15)]
    assert torch.equal(images, decode_all(files))
