"""What a function takes is what its signature says, and an error tells both."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from vit_tutorial.validate import check_divisible, check_fields, check_finite, check_kind, check_option, checked


def _function():
    """Made by a call, so that the shape checks of the tests leave it alone."""

    @checked
    def together(
        images: Float[Tensor, "b c H W"],
        any_kind: Shaped[Tensor, "*n k"] | None = None,
        *,
        classes: Int64[Tensor, " b"] | float = 0.0,
        maps: Sequence[Float[Tensor, "n n"]] = (),
    ) -> Float[Tensor, "b"]:
        """What it does."""
        return images.sum(dim=(1, 2, 3))

    return together


together, images = _function(), torch.rand(2, 3, 4, 5)


def test_what_fits_passes():
    assert together.__name__ == "together" and together.__doc__ == "What it does."
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        torch.testing.assert_close(together(images.to(dtype)), images.to(dtype).sum(dim=(1, 2, 3)))
    together(images, None, classes=torch.tensor([1, 2]), maps=[torch.rand(3, 3)] * 2)
    together(images=images, any_kind=torch.zeros(7, dtype=torch.bool), classes=1, maps=(torch.rand(1, 1),))
    together(images, classes=torch.tensor([1, 2, 3]))  # how long the axes are is the function's own matter


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((images.byte(),), r"images must be \(b, c, H, W\) in floating point, got torch.uint8 of \(2, 3, 4, 5\)$"),
        ((images[0],), r"got torch.float32 of \(3, 4, 5\); images\[None\] is a batch of 1$"),
        ((images[0, 0],), r"got torch.float32 of \(4, 5\)$"),
        ((images.numpy(),), "got a ndarray$"),
        ((None,), "got None$"),
        ((images, torch.tensor(1.0)), r"any_kind must be \(\*n, k\), got torch.float32 of \(\)$"),
    ],
)
def test_what_does_not_is_refused_with_both(arguments, message):
    with pytest.raises(ValueError, match=message):
        together(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"classes": torch.tensor([1.0])},
            r"\(b\), torch.int64 or a float, got torch.float32 of \(1,\)$",
        ),
        ({"classes": "two"}, r"classes must be \(b\), torch.int64 or a float, got 'two'$"),
        ({"maps": [torch.rand(2, 2), torch.rand(2, 3)]}, r"maps must be a list of \(n, n\) in .* of \(2, 3\)$"),
        ({"maps": [np.zeros((2, 2))]}, "got a ndarray$"),
        ({"maps": 3}, "got 3$"),
    ],
)
def test_options_are_looked_at_as_well(options, message):
    with pytest.raises(ValueError, match=message):
        together(images, **options)


def _drawing():
    """As ``_function``, with what isn't a tensor."""

    @checked
    def draw(
        titles: list[str],
        columns: int = 4,
        size: float = 1.5,
        limits: tuple[float, float] | None = None,
        attend: Callable[[Tensor], Tensor] | None = None,
        options: dict[str, int] | None = None,
        ax: "Axes | None" = None,
        counts: Sequence[Sequence[int]] = (),
        **others,
    ) -> None:
        """It only takes."""

    return draw


def test_words_numbers_and_functions_are_looked_at_as_well():
    draw = _drawing()
    draw(["a"], np.int64(3), 2, [0, np.float32(1)], len, {"a": 1}, object(), [[1, 2], []], other=print)
    for name, (value, message) in {
        "titles": ("a", "titles must be a list of a str, got 'a'$"),
        "columns": (2.0, "columns must be an int, got 2.0$"),
        "size": (True, "size must be a float, got True$"),
        "limits": ((0.0, None), r"limits must be \(float, float\), got \(0.0, None\)$"),
        "attend": (3, "attend must be a Callable, got 3$"),
        "options": ([1], r"options must be a dict, got \[1\]$"),
        "counts": ([[1], [2, "b"]], r"counts must be a list of a list of an int, got \[2, 'b'\]$"),
    }.items():
        with pytest.raises(ValueError, match=message):
            draw(**{"titles": [], name: value})


def test_an_entry_has_its_fields():
    kinds = {"seed": int, "loss": float, "broke": str | None}
    check_fields("a row", {"seed": 1, "loss": 2, "more": None}, kinds)
    with pytest.raises(ValueError, match=r"a row must have loss, a float; got only \['seed'\]"):
        check_fields("a row", {"seed": 1}, kinds)
    with pytest.raises(ValueError, match="a row must have broke, a str; got 3"):
        check_fields("a row", {"seed": 1, "loss": 0.5, "broke": 3}, kinds)


def test_what_must_be_finite_is():
    check_finite("x", torch.tensor([1, -2]))
    with pytest.raises(ValueError, match="x must be finite, got NaN or infinity in 2 of 3 places"):
        check_finite("x", torch.tensor([1.0, torch.nan, -torch.inf]))


@pytest.mark.parametrize("value", [None, 1.5, "8", True, torch.ones(2), np.float64(8)], ids=repr)
def test_what_is_no_whole_number_is_divided_by_nothing(value, no_shape_checks):
    check_divisible("dim", np.int64(8), "four", 4)
    with pytest.raises(ValueError, match="is not divisible by four 4"):
        check_divisible("dim", value, "four", 4)


@pytest.mark.parametrize("value", [None, [], {}, 3], ids=repr)
def test_an_option_is_a_word(value, no_shape_checks):
    with pytest.raises(ValueError, match="name must be one of a, b; got"):
        check_option("name", value, {"a": 1, "b": 2})
    with pytest.raises(ValueError, match="name must be a str, got"):
        check_kind("name", value, str)
