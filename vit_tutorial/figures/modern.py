"""Chapter 13: TODO."""

from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from vit_tutorial import plots


def bars(values: Float[Tensor, "d"]) -> Figure:
    """TODO: what one sees."""
    fig, ax = plots.subplots(figsize=(6, 2.5))
    ax.bar(range(len(values)), values.tolist(), color=plots.COLOURS["ours"])
    ax.set(xlabel="TODO: what, and its unit", ylabel="TODO")
    return fig
