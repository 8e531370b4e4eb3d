"""How a wrong result differs from the right one, if no known mistake explains it."""

from collections.abc import Callable
from itertools import permutations

import torch
from torch import Tensor


def difference(got: Tensor, want: Tensor, tolerance: float) -> str:
    """The most striking difference of ``got`` from ``want``, of one shape, and the first place where they differ."""
    if _is_odd(got, want) or not want.numel():
        return ""
    if (got.dtype == torch.bool) != (want.dtype == torch.bool):
        return f"the result has dtype {got.dtype}, expected {want.dtype}"
    got, want = got.detach().double(), want.detach().double()

    def close(a: Tensor, b: Tensor) -> Tensor:
        return torch.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)

    wrong = ~close(got, want)
    if not wrong.any():
        return ""
    place = tuple(wrong.nonzero()[0].tolist())
    where = f" at {list(place)}" if place else ""
    seen = _seen(got, want, wrong, close)
    return f"{seen}{', ' if seen else ''}e.g.{where}: expected {want[place].item():.5g}, got {got[place].item():.5g}"


def _is_odd(got: Tensor, want: Tensor) -> bool:
    return got.dtype.is_complex or got.is_quantized or (got.layout, got.device) != (want.layout, want.device)


def _seen(got: Tensor, want: Tensor, wrong: Tensor, close: Callable[[Tensor, Tensor], Tensor]) -> str:
    for name, test in (("NaN", torch.isnan), ("infinite", torch.isinf)):
        if (test(got) & ~test(want)).any():
            return f"some numbers are {name}"
    finite = want.isfinite()
    if not finite.all():
        return "" if (wrong & finite).any() else "some values should be NaN or infinite"
    if close(got, -want).all():
        return "the sign is flipped"
    if want.abs().max() > 0:
        factor = float((got * want).sum() / want.square().sum())
        if factor and close(got, factor * want).all():
            return f"yours is {factor:.4g} times the right result"
    offset = (got - want).flatten()[0]
    if want.numel() > 1 and close(got - want, offset.expand_as(want)).all():
        return f"yours is off by {float(offset):+.4g} everywhere"
    for axis, size in enumerate(want.shape):
        bad = wrong.movedim(axis, 0).flatten(1).any(dim=1) if want.ndim > 1 else wrong
        if size > 1 and int(bad.sum()) == 1:
            return f"only index {int(bad.nonzero()[0])} of axis {axis} is wrong"
        if size > 2 and not bad[0] and bad[1:].all():
            return f"only index 0 of axis {axis} is right"
        if size > 1 and close(got.flip(axis), want).all():
            return f"yours is reversed along axis {axis}"
        for step in (1, -1):
            if size > 2 and close(got.roll(step, axis), want).all():
                return f"yours is shifted by one along axis {axis}"
        totals = want.sum(axis, keepdim=True), got.sum(axis, keepdim=True)
        if size > 1 and (totals[1].abs() > 1e-9).all() and close(got * totals[0] / totals[1], want).all():
            return f"along axis {axis} yours is right up to a factor: is a division missing, or by the wrong sum?"
    largest = float(want.abs().max())
    if largest and (off := float((got - want).abs().max())) < 1e-3 * largest:  # as a lost digit makes it
        return (
            f"nearly right, off by at most {off:.2g}: is a constant added, a number rounded, or the precision too low?"
        )
    if want.numel() > 3 and close(got.flatten().sort().values, want.flatten().sort().values).all():
        return "the values are right, but in the wrong places: is an axis split, merged or swapped the other way?"
    return ""


def wrong_shape(got: Tensor, want: Tensor, tolerance: float) -> str:
    """What can be seen in a result of another shape."""
    if _is_odd(got, want):
        return ""
    got, want = got.detach().double(), want.detach().double()
    for axes in permutations(range(got.ndim)) if got.ndim == want.ndim <= 4 else ():
        turned = got.permute(axes)
        if turned.shape == want.shape and torch.allclose(turned, want, tolerance, tolerance, equal_nan=True):
            return "the values are right, but the axes are in another order"
    same_size = got.numel() == want.numel() > 0
    alike = same_size and torch.allclose(got.flatten(), want.flatten(), tolerance, tolerance, equal_nan=True)
    return "the values are right, but the axes are split differently" if alike else ""
