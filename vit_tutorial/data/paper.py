"""A digit on paper, photographed or drawn, brought into the form of the digits that a model was trained on."""

from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from vit_tutorial.data.images import decode


@dataclass(frozen=True)
class Form:
    """How a set's digits are placed in their images, white on black.

    Attributes:
        side: of an image, in pixels.
        box: the longer side of a digit, in pixels.
        centre: where the centre of mass lies on both axes, within half a pixel; the first pixel's middle is 0.
        description: whose form it is, in words.
    """

    side: int
    box: int
    centre: float
    description: str


FORMS = {"mnist": Form(28, 20, 14, "as MNIST does"), "digits": Form(8, 8, 3.5, "as scikit-learn's digits are")}
LONGEST = 600  # pixels of a picture's longer side in which ink is looked for
CONTRAST = 16  # grey levels, of 255, by which ink differs from its paper at least
NOISE = 4  # standard deviations of the paper by which it does, too
SPECK = 0.05  # of the ink of the largest piece: a piece with less is dirt
SMALLEST = 6  # pixels of a digit's longer side
THIN, PEN = 0.075, 0.12  # widths of a stroke, as fractions of the longer side: MNIST's 5th percentile, and its median


def read_digit(file: str, dataset: str) -> tuple[UInt8[Tensor, "1 side side"], str]:
    """A picture of one digit, in the form of a data set.

    A picture that has the form, or has it once it is inverted, is taken as it is. From any other, the brightness of the
    paper is subtracted, which may change slowly from place to place. What is left is ink. Its bounding box is scaled,
    antialiased, until its longer side fits, and moved by whole pixels until its centre of mass is in the middle.
    Strokes that are thinner than nearly all of MNIST's are thickened first, since a ballpoint's would fade.

    Args:
        file: of any kind that PIL reads, with paper on all sides of the digit. Transparent pixels are paper.
        dataset: one of ``FORMS``.

    Returns:
        ``(1, side, side)``, 255 is ink; and what was done, in words, or "".

    Raises:
        ValueError: if the file is not a whole image, or there is no ink on it.

    Source: LeCun et al. 1998, section III.A, for box and centre.
    """
    form, grey = FORMS[dataset], decode(file, paper=True).numpy().mean(0, dtype=np.float32)
    for image, done in ((grey, ""), (255 - grey, "dark on light, so inverted")):
        if _has_form(image, form):
            return torch.from_numpy(image.astype(np.uint8))[None], done
    if max(grey.shape) > LONGEST:
        height, width = (max(1, round(n * LONGEST / max(grey.shape))) for n in grey.shape)
        grey = np.asarray(Image.fromarray(grey).resize((width, height), Image.Resampling.BOX))
    ink, dark = _ink_of(grey, Path(file).name)
    thicker = _thickened(ink)
    done = ["dark on light, so inverted" if dark else "light on dark"]
    done += ["strokes thickened"] if thicker is not ink else []
    done += [f"ink scaled to {form.box} pixels and centred {form.description}"]
    return torch.from_numpy(_placed(thicker, form))[None], "; ".join(done)


def _has_form(image: np.ndarray, form: Form) -> bool:
    ink = image >= 255 / 2
    if image.shape != (form.side, form.side) or np.median(image[_border(image.shape)]) > CONTRAST or not ink.any():
        return False
    extents = (np.ptp(at) + 1 for at in np.nonzero(ink))
    return max(extents) <= form.box and all(abs(at - form.centre) < 1.5 for at in _centre_of_mass(image))


def _border(shape: tuple[int, int]) -> np.ndarray:
    """True on the outermost pixels."""
    border = np.ones(shape, bool)
    border[1:-1, 1:-1] = False
    return border


def _centre_of_mass(image: np.ndarray) -> list[float]:
    """In pixels down and to the right of the first one's middle."""
    return [image.sum(1 - axis) @ np.arange(image.shape[axis]) / image.sum() for axis in (0, 1)]


def _ink_of(grey: np.ndarray, name: str) -> tuple[np.ndarray, bool]:
    """The ink, 0..1, cut out along its bounding box; and whether it is darker than its paper."""
    from scipy import ndimage  # takes a while to import, and nothing else here needs it

    # Noise is what neighbours differ by: for a normal distribution, a quarter of them by less than 0.3186 · √2 of it.
    steps = np.abs(np.concatenate([np.diff(grey, axis=axis).ravel() for axis in (0, 1)] + [[0]]))
    least = max(CONTRAST, NOISE * np.quantile(steps, 0.25) / (0.3186 * 2**0.5))
    above, width = grey - _paper_by_its_border(grey), max(grey.shape) / 8
    # Strokes are narrow, and light changes slowly; so what differs most from its surroundings is ink.
    narrow = above - ndimage.gaussian_filter(above, width, truncate=2)
    dark = bool((narrow**3).sum() < 0)
    paper = (-narrow if dark else narrow) <= least
    weights = ndimage.gaussian_filter(paper.astype(np.float32), width, truncate=2).clip(1e-6)
    above = above - ndimage.gaussian_filter(np.where(paper, above, 0), width, truncate=2) / weights
    ink = np.maximum(-above if dark else above, 0)
    pieces, count = ndimage.label(ink > least, np.ones((3, 3)))
    masses = ndimage.sum(ink, pieces, range(1, count + 1))
    if not count:
        raise ValueError(f"{name}: no ink was found; nothing differs from the paper by {least:.0f} of 255 grey levels")
    size = [part.stop - part.start for part in ndimage.find_objects(pieces)[masses.argmax()]]
    if max(size) < SMALLEST:
        found = f"{size[1]}×{size[0]} of {grey.shape[1]}×{grey.shape[0]} pixels"
        raise ValueError(f"{name}: no ink was found but specks, the largest {found}; a digit needs {SMALLEST}")
    ink = np.where(np.append(False, masses >= SPECK * masses.max())[pieces], ink, 0)
    ink = np.minimum(ink / np.median(ink[ink > ink.max() / 2]), 1)
    rows, columns = np.nonzero(ink >= 0.5)
    return ink[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1], dark


def _paper_by_its_border(grey: np.ndarray) -> np.ndarray:
    """How bright the paper is everywhere: the quadratic function nearest to the border, by absolute differences."""
    y, x = np.meshgrid(*(np.linspace(-1, 1, n, dtype=np.float32) for n in grey.shape), indexing="ij")
    terms, border = np.stack([np.ones_like(x), x, y, x * y, x * x, y * y], -1), _border(grey.shape)
    edge, values, weights = terms[border], grey[border], np.float32(1)
    for _ in range(20):  # least squares, in which what is far away, as ink is, counts less and less
        found = np.linalg.lstsq(edge * weights, values * np.ravel(weights), rcond=None)[0]
        weights = np.abs(values - edge @ found).clip(1)[:, None] ** -0.5
    return terms @ found


def _thickened(ink: np.ndarray) -> np.ndarray:
    """Thicken thin strokes to the usual width."""
    from scipy import ndimage

    depth = ndimage.distance_transform_edt(np.pad(ink >= 0.5, 1))
    width = 4 * depth[depth > 0].mean() - 2  # a stroke w pixels wide has a mean depth of w/4 + 1/2
    if width >= THIN * max(ink.shape):
        return ink
    more = (PEN * max(ink.shape) - width) / 2
    ink = np.pad(ink, ceil(more))
    return np.where(ndimage.distance_transform_edt(ink < 0.5) <= more, 1, ink)


def _placed(ink: np.ndarray, form: Form) -> np.ndarray:
    size = [max(1, round(n * form.box / max(ink.shape))) for n in ink.shape]
    way = Image.Resampling.BOX if max(ink.shape) > form.box else Image.Resampling.BILINEAR  # BOX adds the ink up
    ink = np.asarray(Image.fromarray(ink.astype(np.float32)).resize(size[::-1], way))
    ink, image = (255 * ink / ink.max()).round(), np.zeros((form.side, form.side), np.uint8)
    wanted = [floor(form.centre - at + 0.5) for at in _centre_of_mass(ink)]
    top, left = (min(max(at, 0), form.side - n) for at, n in zip(wanted, size, strict=True))
    image[top : top + size[0], left : left + size[1]] = ink
    return image
