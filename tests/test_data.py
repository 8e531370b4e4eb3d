"""Data sets by name: what lies in the root is used, what is missing is fetched, what is damaged is named."""

import hashlib
import socket
from pathlib import Path

import pytest
import torch
import torchvision
from fake_data import mnist_file, packed_cifar, packed_mnist, write_cifar_batches, write_mnist, write_tree
from local_host import local_host
from sklearn.datasets import load_digits

from vit_tutorial.data import data_root, downloads, folders, load_dataset, sources
from vit_tutorial.data.images import decode_all
from vit_tutorial.data.shapes import draw_shapes
from vit_tutorial.data.sources import CIFAR_CLASSES, fingerprint

SPLITS = ("train", "val", "test")


@pytest.fixture(autouse=True)
def small_val(monkeypatch):
    monkeypatch.setattr(sources, "VAL_IMAGES", 5)
    monkeypatch.setattr(downloads, "PAUSE", 0.0)


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def visible(root: Path) -> list[str]:
    """All files but locks, and downloads that can be resumed."""
    files = (path for path in root.rglob("*") if path.is_file() and path.suffix not in (".lock", ".part"))
    return sorted(str(path.relative_to(root)) for path in files)


@pytest.fixture
def root(tmp_path):
    write_mnist(tmp_path / "MNIST/raw")
    return tmp_path


def test_mnist(root):
    parts = {split: load_dataset("mnist", split, root=root) for split in SPLITS}
    assert {split: len(part) for split, part in parts.items()} == {"train": 25, "val": 5, "test": 12}
    for part in parts.values():
        assert part.image_shape == (1, 28, 28)
        assert part.variant == "MNIST"
        assert part.classes == tuple("0123456789")
        assert torch.equal(part.labels, part.images[:, 0, 3, 17].long() % 10)
    assert parts["test"].images[:, 0, 0, 0].tolist() == list(range(12))
    trained_on, validated_on = (set(parts[split].images[:, 0, 0, 0].tolist()) for split in ("train", "val"))
    assert trained_on | validated_on == set(range(30))
    assert not trained_on & validated_on


def test_mnist_equals_torchvision(root):
    theirs = torchvision.datasets.MNIST(root, train=False)
    ours = load_dataset("mnist", "test", root=root)
    assert torch.equal(ours.images[:, 0], theirs.data)
    assert torch.equal(ours.labels, theirs.targets)


def test_the_validation_split_is_fixed(root):
    first = load_dataset("mnist", "val", root=root).images
    torch.manual_seed(99)
    assert torch.equal(load_dataset("mnist", "val", root=root).images, first)


@pytest.fixture
def mnist_host(monkeypatch):
    """MNIST's second mirror is on this machine; its first has nothing."""
    with local_host({f"mirror/{name}": content for name, content in packed_mnist(monkeypatch).items()}) as host:
        monkeypatch.setattr(torchvision.datasets.MNIST, "mirrors", [host.url("empty/"), host.url("mirror/")])
        yield host


def test_mnist_is_downloaded_once(tmp_path, mnist_host):
    for split in SPLITS:
        load_dataset("mnist", split, root=tmp_path)
    packed = [f"{place}/{name}.gz" for name in sources.MNIST_FILES for place in ("empty", "mirror")]
    assert sorted(mnist_host.requests) == sorted(packed)
    assert visible(tmp_path) == sorted(f"MNIST/raw/{name}" for name in sources.MNIST_FILES)
    assert len(torchvision.datasets.MNIST(tmp_path)) == 30  # torchvision finds them, too


def test_a_mnist_download_that_breaks_off_can_be_repeated(tmp_path, mnist_host, monkeypatch):
    unpack = torchvision.datasets.utils.extract_archive

    def breaks_off(packed, folder):
        if packed.name.startswith("t10k"):
            packed.with_suffix("").write_bytes(b"ha")
            raise KeyboardInterrupt
        unpack(packed, folder)

    with monkeypatch.context() as patch:
        patch.setattr(torchvision.datasets.utils, "extract_archive", breaks_off)
        with pytest.raises(KeyboardInterrupt):
            load_dataset("mnist", root=tmp_path)
    assert visible(tmp_path) == []
    mnist_host.broken = True
    with pytest.raises(
        FileNotFoundError, match=r"empty/train.*: 404 .*mirror/train.*: IncompleteRead.*VIT_TUTORIAL_DATA"
    ):
        load_dataset("mnist", root=tmp_path)
    assert visible(tmp_path) == []
    mnist_host.broken = False
    assert len(load_dataset("mnist", root=tmp_path)) == 25


def test_another_file_in_mnist_s_place_is_named(tmp_path, mnist_host):
    mnist_host.files["mirror/t10k-labels-idx1-ubyte.gz"] = b"another"
    with pytest.raises(
        FileNotFoundError, match=r"mirror/t10k-labels-idx1-ubyte.gz: it sent .*: its md5 is \w{32}, not \w{32}"
    ):
        load_dataset("mnist", root=tmp_path)
    assert visible(tmp_path) == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda data: data[:-7],
            r"t10k-images-idx3-ubyte is damaged: 9417 bytes, 9424 wanted; move it elsewhere and load again",
        ),
        (lambda data: b"\x1f\x8b\x08\x08" + data, "it starts with 1f 8b 08 08, not with 00 00 08"),
        (lambda data: mnist_file("train-images-idx3-ubyte"), r"images \(30, 28, 28\) and labels \(12,\), which do not"),
    ],
)
def test_damaged_mnist(root, damage, message):
    file = root / "MNIST/raw/t10k-images-idx3-ubyte"
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match=message):
        load_dataset("mnist", "test", root=root)
    assert len(load_dataset("mnist", "train", root=root)) == 25


def test_a_label_that_is_no_digit(root):
    file = root / "MNIST/raw/t10k-labels-idx1-ubyte"
    file.write_bytes(file.read_bytes()[:-1] + b"\x0a")
    with pytest.raises(ValueError, match="t10k-labels-idx1-ubyte has a label 10; digits are 0 to 9; move it"):
        load_dataset("mnist", "test", root=root)


def test_cifar10_batches(tmp_path, monkeypatch):
    write_cifar_batches(tmp_path, monkeypatch)
    parts = {split: load_dataset("cifar10", split, root=tmp_path) for split in SPLITS}
    assert {split: len(part) for split, part in parts.items()} == {"train": 45, "val": 5, "test": 10}
    assert {(part.variant, part.classes, part.image_shape) for part in parts.values()} == {
        ("CIFAR-10", CIFAR_CLASSES, (3, 32, 32))
    }
    theirs = torchvision.datasets.CIFAR10(tmp_path, train=False)
    for number, (image, label) in enumerate(theirs):
        ours = parts["test"].images[number]
        assert torch.equal(ours, torchvision.transforms.functional.pil_to_tensor(image))
        assert parts["test"].labels[number] == label


def test_damaged_cifar10_batch(tmp_path, monkeypatch):
    write_cifar_batches(tmp_path, monkeypatch)
    with open(tmp_path / "cifar-10-batches-py/data_batch_3", "ab") as file:
        file.write(b"!")
    with pytest.raises(ValueError, match=r"data_batch_3 is damaged: its checksum is wrong; move it elsewhere"):
        load_dataset("cifar10", root=tmp_path)


def test_cifar10_is_downloaded(tmp_path, monkeypatch):
    with local_host(packed_cifar(tmp_path / "made", monkeypatch)) as host:
        monkeypatch.setattr(sources, "CIFAR_MIRRORS", (host.url("nowhere/cifar-10-python.tar.gz"),))
        monkeypatch.setattr(torchvision.datasets.CIFAR10, "url", host.url("cifar-10-python.tar.gz"))
        assert len(load_dataset("cifar10", "test", root=tmp_path / "root")) == 10
        assert len(load_dataset("cifar10", "train", root=tmp_path / "root")) == 45
    assert host.requests == ["nowhere/cifar-10-python.tar.gz", "cifar-10-python.tar.gz"]
    assert {Path(file).parent.name for file in visible(tmp_path / "root")} == {"cifar-10-batches-py"}


def test_cifar10_images(tmp_path):
    write_tree(tmp_path / "cifar10/train", CIFAR_CLASSES, 2, "jpg")
    write_tree(tmp_path / "cifar10/test", CIFAR_CLASSES, 1, "jpg")
    parts = {split: load_dataset("cifar10", split, root=tmp_path) for split in SPLITS}
    assert {split: len(part) for split, part in parts.items()} == {"train": 15, "val": 5, "test": 10}
    assert parts["test"].labels.tolist() == list(range(10))
    assert parts["test"].images[:, 0, 0, 0].tolist() == [20 * label for label in range(10)]
    assert {(part.variant, part.classes) for part in parts.values()} == {("CIFAR-10 (JPEG copy)", CIFAR_CLASSES)}
    assert (tmp_path / "cifar10/.test.npz").exists()


# Fingerprints of splits ----------------------------------------------------------------------------------------------


def test_a_fingerprint_by_hand():
    found = fingerprint(torch.tensor([3, 1]), lambda i: [b"first", b"second"][i])
    assert found == hashlib.sha256(b"\x03\x01firstsecond").hexdigest()[:16]


def test_a_fingerprint_is_of_the_images_as_stored_in_their_order(tmp_path, monkeypatch):
    tree = tmp_path / "cifar10/train"
    write_tree(tree, CIFAR_CLASSES, 2, "jpg")

    def of_each_split():
        return {split: load_dataset("cifar10", split, root=tmp_path).fingerprint for split in ("train", "val")}

    before = of_each_split()
    assert before["train"] != before["val"]
    (tmp_path / "cifar10/.train.npz").unlink()
    with monkeypatch.context() as patch:  # another version of libjpeg
        patch.setattr(folders, "decode_all", lambda *args, **options: decode_all(*args, **options) + 1)
        assert of_each_split() == before
    assert load_dataset("cifar10", "val", root=tmp_path, img_size=16)[:2].fingerprint == before["val"]
    for name in CIFAR_CLASSES:  # as many of each class, in the same order: the labels don't tell
        first, second = tree / name / "000.jpg", tree / name / "001.jpg"
        first.rename(tree / name / "002.jpg")
        second.rename(first)
    after = of_each_split()
    assert after["train"] != before["train"] and after["val"] != before["val"]


def test_incomplete_cifar10_images(tmp_path):
    write_tree(tmp_path / "cifar10/train", CIFAR_CLASSES[:9], 2)
    with pytest.raises(ValueError, match="train has no folder truck"):
        load_dataset("cifar10", root=tmp_path)
    with pytest.raises(ValueError, match=r"cifar10 has no folder test\. Add it, or move"):
        load_dataset("cifar10", "test", root=tmp_path)


def test_digits_are_scikit_learns():
    parts = [load_dataset("digits", split) for split in SPLITS]
    assert [len(part) for part in parts] == [1257, 180, 360]
    images, labels = torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts])
    assert (images.amin(), images.amax()) == (0, 255)
    bunch = load_digits()
    ours = sorted((*image.flatten().tolist(), label) for image, label in zip(images, labels.tolist(), strict=True))
    theirs = sorted(
        (*(torch.from_numpy(image).flatten() * 255 / 16).round().int().tolist(), int(label))
        for image, label in zip(bunch.images, bunch.target, strict=True)
    )
    assert ours == theirs


def test_shapes_splits_differ_and_have_masks(monkeypatch):
    drawn = []

    def draw_few(num, seed, size):
        drawn.append((num, seed, size))
        return draw_shapes(20, seed, size)

    monkeypatch.setattr(sources, "draw_shapes", draw_few)
    parts = [load_dataset("shapes", split) for split in SPLITS]
    assert drawn == [(20_000, 0, 32), (1_000, 1, 32), (2_000, 2, 32)]
    assert sources.shapes("val", 1500, 48).masks.shape == (20, 48, 48) and drawn[3] == (1_500, 1, 48)
    assert all(part.masks.shape == (20, 32, 32) for part in parts)
    assert not torch.equal(parts[0].images, parts[1].images)
    assert not torch.equal(parts[0].images, parts[2].images)


def test_img_size(root):
    dataset = load_dataset("mnist", "test", root=root, img_size=(7, 14))
    assert dataset.image_shape == (1, 7, 14)
    assert dataset.images[:, 0, 3, 3].tolist() == list(range(12))
    with pytest.raises(ValueError, match=r"img_size must be a positive int or a pair .*, got 0"):
        load_dataset("mnist", "test", root=root, img_size=0)


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_without_data_and_network(tmp_path, no_network, name):
    title = {"mnist": "MNIST", "cifar10": "CIFAR-10"}[name]
    message = rf"{title} is missing: .* its download failed: .*refused.*VIT_TUTORIAL_DATA\.$"
    with pytest.raises(FileNotFoundError, match=message):
        load_dataset(name, root=tmp_path / "new")
    assert visible(tmp_path) == []


def test_fallback_warns(tmp_path, no_network):
    with pytest.warns(UserWarning, match=r"MNIST is missing.*refused.* Going on with 'digits' instead"):
        dataset = load_dataset("mnist", "val", root=tmp_path, fallback="digits")
    assert dataset.variant == "scikit-learn's digits"
    with pytest.warns(UserWarning, match="download is off"):
        resized = load_dataset("mnist", "val", root=tmp_path, fallback="digits", download=False, img_size=(28, 28))
    assert resized.image_shape == (1, 28, 28)


def test_nothing_stands_in_where_the_book_is_published(monkeypatch, tmp_path, no_network):
    monkeypatch.setenv("VIT_TUTORIAL_STRICT", "1")
    with pytest.raises(FileNotFoundError, match=r"MNIST is missing.*VIT_TUTORIAL_STRICT is set, so 'digits' may"):
        load_dataset("mnist", "val", root=tmp_path, fallback="digits")


def test_damaged_data_is_not_covered_up_by_a_fallback(root):
    (root / "MNIST/raw/train-images-idx3-ubyte").write_bytes(b"")
    with pytest.raises(ValueError, match="is damaged"):
        load_dataset("mnist", root=root, fallback="digits")


def test_unknown_names():
    with pytest.raises(ValueError, match="one of mnist, cifar10, digits, shapes or folder:PATH; got 'minst'"):
        load_dataset("minst")
    with pytest.raises(ValueError, match="split must be one of train, val, test; got 'dev'"):
        load_dataset("digits", "dev")


def test_data_root(monkeypatch):
    monkeypatch.setenv("VIT_TUTORIAL_DATA", "~/sets")
    assert data_root() == Path.home() / "sets"
    monkeypatch.setenv("VIT_TUTORIAL_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert data_root() == Path("/cache/vit-tutorial")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert data_root() == Path.home() / ".cache/vit-tutorial"


def test_real_mnist_and_cifar10_where_they_are():
    """The classes' counts in the test sets, as published."""
    counts = {"mnist": [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009], "cifar10": [1000] * 10}
    found = 0
    for name, expected in counts.items():
        try:
            dataset = load_dataset(name, "test", download=False)
        except FileNotFoundError:
            continue
        assert dataset.labels.bincount().tolist() == expected
        found += 1
    if not found:
        pytest.skip("neither is in the data root")
