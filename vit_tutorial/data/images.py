"""Sets of images, in memory or on disk, that hand out batches in the same way (chapter 6)."""

import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int64, UInt8
from PIL import Image, ImageOps
from torch import Tensor
from tqdm import tqdm

from vit_tutorial.data.headers import WORKERS, decoded, faults_of, state_of, stop_if_unreadable
from vit_tutorial.validate import check_fields, check_option, to_pair


def _check_labels(labels: Tensor, num: int, classes: Sequence[str]) -> None:
    """Raise a ValueError unless there is a class index for each of ``num`` images."""
    if isinstance(classes, str) or not isinstance(classes, Sequence):
        raise ValueError(f"classes must be a tuple with a name for each class, got {classes!r}")
    wanted = f"labels must be a tensor of {num} class indices, torch.int64 of shape ({num},)"
    if not isinstance(labels, Tensor):
        raise ValueError(
            f"{wanted}, got a {type(labels).__name__}; torch.as_tensor(labels) makes one of a list or array"
        )
    got = f"{wanted}, got {labels.dtype} of shape {tuple(labels.shape)}"
    if labels.ndim == 2 and labels.shape == (num, len(classes)):
        raise ValueError(f"{got}; if each row has a 1 at its class, labels.argmax(dim=1) has the indices")
    if labels.ndim != 1:
        raise ValueError(got + "; labels.flatten() makes it a row" * (labels.numel() == num))
    if len(labels) != num:
        raise ValueError(f"{num} images need as many labels, got {len(labels)}")
    if labels.dtype != torch.int64:
        whole = not labels.is_complex() and bool((labels == labels.long()).all())
        raise ValueError(got + "; labels.long() converts them" * whole)
    bad = ((labels < 0) | (labels >= len(classes))).nonzero().flatten().tolist()
    if bad:
        where = f"label {labels[bad[0]]} of image {bad[0]}" + f" and {len(bad) - 1} more" * (len(bad) > 1)
        if labels.min() > 0 and labels.max() == len(classes):
            hint = "if they count from 1, labels - 1 are indices"
        elif labels.max() < len(classes):
            hint = "leave out the images whose class is unknown"
        else:
            hint = "name a class for each index"
        raise ValueError(f"{where}: {len(classes)} classes have the indices 0 to {len(classes) - 1}; {hint}")


def _labels_at(labels: Tensor, index) -> Tensor:
    """The labels at ``index``, which must choose a part of the set, not a single image."""
    chosen = labels[index]
    if chosen.ndim != 1:
        raise ValueError(
            f"index must be a slice or a row of indices, as in [3:4] or [[3]] for one image, got {index!r}"
        )
    return chosen


@dataclass(frozen=True)
class Dataset:
    """A set of images that fits in memory.

    Attributes:
        images: ``(num, c, H, W)``, bytes.
        labels: ``(num,)``, class indices.
        classes: a name for each class index.
        variant: where the images come from, in words that belong beside every result on them.
        masks: ``(num, H, W)``, true on the object; only ``shapes`` knows it.
        split: of a folder, which images are in which split; see ``vit_tutorial.data.folders.folder_changes``.
        trained_on: ``(num,)``, true for a test or validation image that is a training image, too; of a folder whose
            splits were given.
        fingerprint: of a named set, of the whole split that the images come from; see
            ``vit_tutorial.data.sources.fingerprint``.

    Raises:
        ValueError: if images are not bytes (a training divides them by 255), or labels are not one class index for
            each, 0 to the number of classes − 1; the message says which label is at fault.
    """

    images: UInt8[Tensor, "num c H W"]
    labels: Int64[Tensor, " num"]
    classes: tuple[str, ...]
    variant: str
    masks: Bool[Tensor, "num H W"] | None = None
    split: dict[str, str] | None = field(default=None, repr=False)
    trained_on: Bool[Tensor, " num"] | None = field(default=None, repr=False)
    fingerprint: str | None = None

    def __post_init__(self):
        if not isinstance(self.images, Tensor) or self.images.dtype != torch.uint8 or self.images.ndim != 4:
            got = getattr(self.images, "dtype", type(self.images).__name__)
            shape = tuple(getattr(self.images, "shape", ()))
            raise ValueError(f"images must be bytes, torch.uint8 in 0..255, got {got} of {shape}, not (num, c, H, W)")
        _check_labels(self.labels, len(self.images), self.classes)
        check_fields("a Dataset", vars(self), Dataset.__annotations__)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index) -> "Dataset":
        """The images at ``index``: a slice, or a row of indices or of booleans.

        Raises:
            ValueError: if it is a single index, which would leave no set of images.
        """
        labels = _labels_at(self.labels, index)
        masks, seen = (None if part is None else part[index] for part in (self.masks, self.trained_on))
        return replace(self, images=self.images[index], labels=labels, masks=masks, trained_on=seen)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of every image."""
        return tuple(self.images.shape[1:])

    def to(self, device: torch.device | str) -> "Dataset":
        masks, seen = (None if part is None else part.to(device) for part in (self.masks, self.trained_on))
        images, labels = self.images.to(device), self.labels.to(device)
        return replace(self, images=images, labels=labels, masks=masks, trained_on=seen)

    def batches(
        self, indices: Sequence[Int64[Tensor, " _"]], device: torch.device | str = "cpu"
    ) -> Iterator[tuple[UInt8[Tensor, "_ c H W"], Int64[Tensor, " _"]]]:
        """For each tensor of indices the images ``(b, c, H, W)``, as bytes, and their labels, on ``device``.

        If the images are on that device already, as after ``to``, nothing is copied during an epoch. A training loop
        takes the batches of an :class:`ImageFiles` in the same way.
        """
        order = torch.cat(list(indices)).to(self.images.device)
        for group in order.split([len(group) for group in indices]):
            yield self.images[group].to(device), self.labels[group].to(device)

    def resize(self, img_size: tuple[int, int]) -> "Dataset":
        """In another (height, width); bilinear, each new pixel an average of all that it covers."""
        if self.image_shape[1:] == tuple(img_size):
            return self
        parts = [_resize(part.float(), img_size).round().clamp(0, 255).byte() for part in self.images.split(1000)]
        masks = None if self.masks is None else _resize(self.masks[:, None].float(), img_size)[:, 0] >= 0.5
        return replace(self, images=torch.cat(parts), masks=masks)


def _resize(images: Tensor, img_size: tuple[int, int]) -> Tensor:
    return F.interpolate(images, size=img_size, mode="bilinear", antialias=True)


@dataclass(frozen=True)
class ImageFiles:
    """A set of images that stays on disk; each batch is decoded when it is needed.

    It offers what :class:`Dataset` does, except ``images``, ``masks`` and ``fingerprint``: ``len``, ``[...]``, ``to``,
    ``image_shape``, ``classes``, ``labels``, ``variant`` and, above all, ``batches``.

    Attributes:
        files: paths of the images.
        labels: ``(num,)``, class indices.
        classes: a name for each class index.
        variant: where the images come from.
        img_size: (height, width); an image of another size is resized until its shorter side fits, and the middle is
            cut out. None takes them as they are, which then have to be of one size.
        split: see :class:`Dataset`.
        trained_on: see :class:`Dataset`.

    Raises:
        ValueError: as of :class:`Dataset`, about labels.
    """

    files: tuple[str, ...]
    labels: Int64[Tensor, " num"]
    classes: tuple[str, ...]
    variant: str
    img_size: tuple[int, int] | None = None
    split: dict[str, str] | None = field(default=None, repr=False)
    trained_on: Bool[Tensor, " num"] | None = field(default=None, repr=False)

    def __post_init__(self):
        if isinstance(self.files, str) or not isinstance(self.files, Sequence):
            raise ValueError(f"files must be a tuple with the path of each image, got {self.files!r}")
        _check_labels(self.labels, len(self.files), self.classes)
        check_fields("ImageFiles", vars(self), ImageFiles.__annotations__)
        if self.img_size is not None:
            to_pair("img_size", self.img_size)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index) -> "ImageFiles":
        """The images at ``index``; see :class:`Dataset`."""
        labels, indices = _labels_at(self.labels, index), torch.arange(len(self))[index].tolist()
        seen = None if self.trained_on is None else self.trained_on[index]
        return replace(self, files=tuple(self.files[i] for i in indices), labels=labels, trained_on=seen)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of every image."""
        return (3, *(self.img_size or decode(self.files[0]).shape[1:]))

    def to(self, device: torch.device | str) -> "ImageFiles":
        """Returns itself: only batches go to a device."""
        return self

    def batches(
        self, indices: Sequence[Int64[Tensor, " _"]], device: torch.device | str = "cpu"
    ) -> Iterator[tuple[UInt8[Tensor, "_ 3 H W"], Int64[Tensor, " _"]]]:
        """For each tensor of indices the images ``(b, 3, H, W)``, as bytes, and their labels, on ``device``.

        Threads decode the next batches while the model works on this one. Unlike worker processes they start at once,
        in every epoch, and PIL decodes without holding Python's lock.

        Raises:
            ValueError: if images of a batch are damaged; the message names the files.
        """
        groups, ahead, pool = iter(indices), deque(), ThreadPoolExecutor(WORKERS)

        def decode_more(count: int) -> None:
            ahead.extend(pool.submit(self._decoded, group) for group in islice(groups, count))

        try:
            decode_more(2 * WORKERS)
            while ahead:
                images, labels = ahead.popleft().result()
                decode_more(1)
                yield images.to(device), labels.to(device)
        finally:  # also if the loop stops in the middle
            pool.shutdown(cancel_futures=True)

    def _decoded(self, group: Int64[Tensor, " _"]) -> tuple[UInt8[Tensor, "_ 3 H W"], Int64[Tensor, " _"]]:
        return decode_all([self.files[i] for i in group.tolist()], self.img_size), self.labels[group]


def only_classes(dataset: Dataset | ImageFiles, classes: tuple[str, ...]) -> Dataset | ImageFiles:
    """The images of these classes, which get the indices 0, 1, … in this order.

    Raises:
        ValueError: if there is no class of that name, or one is named twice.
    """
    for name in classes:
        check_option("classes", name, dataset.classes)
    if len(set(classes)) < len(classes):
        raise ValueError(f"classes must be named once each, got {', '.join(classes)}")
    indices = torch.full((len(dataset.classes),), -1)
    indices[[dataset.classes.index(name) for name in classes]] = torch.arange(len(classes))
    labels = indices[dataset.labels]
    return replace(dataset[labels >= 0], labels=labels[labels >= 0], classes=tuple(classes))


def decode(path: str, img_size: tuple[int, int] | None = None, *, paper: bool = False) -> UInt8[Tensor, "3 H W"]:
    """One image as RGB bytes, upright; resized by its shorter side and cut to ``img_size`` from the middle.

    Grey images of 16 bits are scaled: 65,535 is white, or 1,023, 4,095 or 16,383 if no value is above that, as a
    warning says. Of colours with 16 bits the upper 8 are read; a warning says so if they are hardly used.

    Args:
        paper: put a background behind transparent pixels, white under dark ink and black under light, instead of
            showing the colour that they happen to have.

    Raises:
        ValueError: if the file can't be read as an image; see :func:`~vit_tutorial.data.headers.decoded`.
    """
    # A large photograph need not be decoded in full: JPEG knows how to give ½, ¼ and ⅛.
    with decoded(path, 2 * max(img_size) if img_size else 0) as (image, cut):
        if image.mode[0] == "I":  # convert would make all above 255 white
            scaled = image.format == "PPM"  # whose header says which value is white
            image = Image.fromarray(_as_bytes(np.asarray(image), scaled))
        if cut:
            _warn_if_nearly_black(np.asarray(image.convert("RGB")))
        with faults_of(path):  # a palette may be damaged
            image = _on_paper(image) if paper and image.has_transparency_data else image
            image = image if image.mode == "RGB" else image.convert("RGB")
        if img_size and image.size != img_size[::-1]:
            image = ImageOps.fit(image, img_size[::-1], Image.Resampling.BILINEAR)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def _as_bytes(values: np.ndarray, scaled: bool) -> np.ndarray:
    """Grey values of up to 16 bits as bytes; unless ``scaled`` to 16 bits, they may have fewer."""
    bits = 16 if scaled else next(bits for bits in (8, 10, 12, 14, 16) if values.max() < 2**bits)
    if bits < 16:
        rule = f"an image file of 16 bits with no value above {2**bits - 1:,} is taken to hold {bits} bits"
        warnings.warn(f"{rule}, so {2**bits - 1:,} is white; each is judged by itself", stacklevel=2)
    table = (np.arange(2**bits) * (255 / (2**bits - 1))).round().astype(np.uint8)
    return np.stack([table[row] for row in values])  # row by row, since an index takes 8 bytes


def _warn_if_nearly_black(upper: np.ndarray) -> None:
    """Of colours with fewer than 16 bits in a file of 16, the upper 8 bits leave few grey levels."""
    bits = next((bits for bits in (10, 12, 14) if upper.max() < 2 ** (bits - 8)), 16)
    if bits < 16:
        what = f"an image file with colours of 16 bits has no value above {2**bits - 1:,}"
        warnings.warn(
            f"{what}, and only the upper 8 bits are read, so it is nearly black: save it with 8 bits", stacklevel=2
        )


def _on_paper(image: Image.Image) -> Image.Image:
    image = image.convert("RGBA")
    grey, alpha = np.asarray(image.convert("L")), np.asarray(image.getchannel("A"))
    dark = np.einsum("hw,hw", grey, alpha, dtype=np.int64) < 255 / 2 * alpha.sum(dtype=np.int64)
    return Image.alpha_composite(Image.new("RGBA", image.size, "white" if dark else "black"), image)


def find_faults(files: Sequence[str]) -> list[str]:
    """What is wrong with those of the images that can't be decoded; one that has not changed is decoded only once."""
    with ThreadPoolExecutor(WORKERS) as pool:
        said = tqdm(pool.map(_fault, files), "looking", len(files), unit=" images", delay=1, disable=None)
        return [each for each in said if each]


def _fault(file: str) -> str:
    return _fault_once(file, state_of(file))


@cache
def _fault_once(file: str, state: tuple | None) -> str:
    """Why it can't be decoded, or nothing; ``state`` tells whether the file has changed."""
    try:
        decode(file, (64, 64))
    except ValueError as error:
        return str(error)
    return ""


def decode_all(
    files: Sequence[str], img_size: tuple[int, int] | None = None, progress: bool = False
) -> UInt8[Tensor, "num 3 H W"]:
    """All images as one tensor.

    Args:
        progress: decode in several threads and show a bar, once it takes longer than a second.

    Raises:
        ValueError: if files can't be read as images, which the message names, all of them; or sizes differ and no
            ``img_size`` is given.
    """
    faults: dict[str, str] = {}

    def read(file: str) -> UInt8[Tensor, "3 H W"] | None:
        try:
            return decode(file, img_size)
        except ValueError as error:
            faults[file] = str(error)

    first, size = next(((file, image.shape) for file in files if (image := read(file)) is not None), ("", (3, 0, 0)))
    images = torch.empty(len(files), *size, dtype=torch.uint8)

    def put(i: int) -> None:
        if (image := read(files[i])) is None:
            return
        if image.shape != size:
            sizes = [f"{size[2]}×{size[1]} pixels" for size in (image.shape, size)]
            raise ValueError(f"{files[i]} has {sizes[0]}, {first} {sizes[1]}: name the img_size for all")
        images[i] = image

    if progress:
        with ThreadPoolExecutor(WORKERS) as pool:
            try:
                done = pool.map(put, range(len(files)))
                for _ in tqdm(done, "decoding", len(files), unit=" images", delay=1, disable=None):  # in a terminal
                    pass
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    else:
        for i in range(len(files)):
            put(i)
    stop_if_unreadable([faults[file] for file in dict.fromkeys(files) if file in faults])
    return images
