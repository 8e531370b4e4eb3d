"""A digit on paper comes into MNIST's form, and the recorded model reads it as it reads the original."""

import numpy as np
import pytest
import torch
from PIL import Image

from vit_tutorial.data import Dataset, load_dataset
from vit_tutorial.data.paper import read_digit
from vit_tutorial.runs import load_recorded
from vit_tutorial.training import predict

SCALED = "ink scaled to 20 pixels and centred as MNIST does"
NOISE = np.random.default_rng(0)


def write(path, pixels) -> str:
    Image.fromarray(np.asarray(pixels).clip(0, 255).round().astype(np.uint8)).save(path)
    return str(path)


def letter_l() -> np.ndarray:
    """20 pixels high and 12 wide; its centre of mass is 11.8 pixels down and 3.2 to the right."""
    ink = np.zeros((20, 12))
    ink[:, :4] = ink[16:] = 1
    return ink


@pytest.mark.parametrize("scale", [1, 25])
@pytest.mark.parametrize(
    ("paper", "ink", "told"), [(200, 30, "dark on light, so inverted"), (60, 250, "light on dark")]
)
def test_a_case_by_hand(tmp_path, scale, paper, ink, told):
    big = letter_l().repeat(scale, 0).repeat(scale, 1)
    picture = np.pad(big, ((5 * scale, 12 * scale), (30 * scale, 9 * scale)))
    found, done = read_digit(write(tmp_path / "a.png", paper + (ink - paper) * picture), "mnist")
    expected = torch.zeros(1, 28, 28, dtype=torch.uint8)
    expected[0, 2:22, 11:23] = torch.from_numpy(255 * letter_l()).byte()  # 14 − 12 down, 14 − 3 to the right
    torch.testing.assert_close(found, expected, rtol=0, atol=0 if scale < 25 else 60)  # shrunk to 600 pixels first
    assert done == f"{told}; {SCALED}"


def paper_of(digit: np.ndarray, paper, ink: float, noise: float = 4) -> np.ndarray:
    """The digit four times as large, off the middle of a sheet."""
    big = np.asarray(Image.fromarray(digit).resize((4 * digit.shape[1], 4 * digit.shape[0]), Image.Resampling.BICUBIC))
    big = np.pad(big / 255, ((20, 60), (70, 30)))
    y, x = np.mgrid[: big.shape[0], : big.shape[1]] / np.array(big.shape)[:, None, None]
    sheet = paper(y, x) if callable(paper) else paper
    return sheet * (1 - big) + ink * big + NOISE.normal(0, noise, big.shape)


def in_colour(digit: np.ndarray) -> np.ndarray:
    return np.stack([paper_of(digit, sheet, ink) for sheet, ink in ((235, 30), (230, 40), (200, 160))], -1)


def transparent(digit: np.ndarray) -> np.ndarray:
    return np.pad(np.stack([0 * digit, 0 * digit, 0 * digit, digit], -1), ((9, 2), (3, 15), (0, 0)))


PAPERS = {
    "as it is": lambda digit: digit,
    "off the middle": lambda digit: np.pad(255 - digit, ((1, 30), (18, 3)), constant_values=255),
    "noisy": lambda digit: paper_of(digit, 200, 60, noise=20),
    "pencil": lambda digit: paper_of(digit, 200, 150),
    "chalk": lambda digit: paper_of(digit, 50, 220, noise=8),
    "under a lamp": lambda digit: paper_of(
        digit, lambda y, x: 150 + 70 * np.exp(-8 * ((y - 0.5) ** 2 + (x - 0.5) ** 2)), 30
    ),
    "in colour": in_colour,
    "transparent": transparent,
}


def answers(name: str, images) -> torch.Tensor:
    model, recipe = load_recorded(name)
    dataset = Dataset(torch.stack(list(images)), torch.zeros(len(images)).long(), tuple("0123456789"), "test")
    return predict(model, dataset.resize(recipe.model.img_size), recipe).argmax(1)


@pytest.fixture(scope="module")
def digits() -> torch.Tensor:
    """20 of MNIST's test images."""
    try:
        return load_dataset("mnist", "test", download=False)[:20].images
    except FileNotFoundError as error:
        pytest.skip(f"no data: {error}")


@pytest.mark.parametrize("paper", PAPERS)
def test_the_recorded_model_reads_digits_on_paper_as_it_reads_the_originals(digits, tmp_path, paper):
    found, done = zip(
        *(read_digit(write(tmp_path / "a.png", PAPERS[paper](digit[0].numpy())), "mnist") for digit in digits),
        strict=True,
    )
    assert (answers("mnist", found) == answers("mnist", digits)).sum() >= 19
    told = {text.replace("strokes thickened; ", "") for text in done}
    ground = "light on dark" if paper == "chalk" else "dark on light, so inverted"
    assert told == ({""} if paper == "as it is" else {f"{ground}; {SCALED}"})
    assert paper != "as it is" or torch.equal(torch.stack(found), digits)


def test_scikit_learn_s_digits_have_a_form_of_their_own(tmp_path):
    for image in load_dataset("digits", "test")[:20].images:
        assert torch.equal(read_digit(write(tmp_path / "a.png", image[0]), "digits")[0], image)
    sheet = write(tmp_path / "a.png", paper_of(image[0].numpy(), 210, 40))
    assert read_digit(sheet, "digits")[1].endswith("scaled to 8 pixels and centred as scikit-learn's digits are")


def test_thin_strokes_are_thickened_to_a_pen_s_width(tmp_path):
    picture = np.full((300, 200), 230)
    picture[50:250, 99:102] = 20
    found, done = read_digit(write(tmp_path / "a.png", picture), "mnist")
    assert done == f"dark on light, so inverted; strokes thickened; {SCALED}"
    width = found.sum() / 255 / 20
    assert 0.8 * 2.4 < width < 2.4  # of the 20 pixels, which hold the thickened ends, too
    picture[50:250, 80:120] = 20
    assert "thickened" not in read_digit(write(tmp_path / "b.png", picture), "mnist")[1]


def test_dirt_does_not_count(tmp_path):
    clean = np.pad(255 - 255 * letter_l().repeat(4, 0).repeat(4, 1), 40, constant_values=255)
    dirty = clean.copy()
    dirty[3:8, 10:15] = dirty[-9:-5, -20:-15] = 0
    both = [read_digit(write(tmp_path / "a.png", picture), "mnist")[0] for picture in (clean, dirty)]
    torch.testing.assert_close(*both, rtol=0, atol=3)


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (np.full((300, 200), 255), "nothing differs from the paper by 16 of 255 grey levels"),
        (np.linspace(60, 240, 200) * np.ones((100, 1)), "nothing differs from the paper"),
        (np.random.default_rng(0).normal(200, 30, (200, 300)), r"specks, the largest \d×\d of 300×200 pixels"),
    ],
    ids=["white", "lit from the right", "noise"],
)
def test_a_page_without_ink_is_refused(tmp_path, page, why):
    with pytest.raises(ValueError, match=rf"^a\.png: no ink was found.* {why}"):
        read_digit(write(tmp_path / "a.png", page), "mnist")
