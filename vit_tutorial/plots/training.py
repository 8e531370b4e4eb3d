"""Training curves, and a figure of them that is redrawn during the training (chapters 6 and 7)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import nn
from tqdm import tqdm

from vit_tutorial.plots.basics import subplots
from vit_tutorial.plots.colours import COLOURS
from vit_tutorial.validate import check_fields, check_int, checked

if TYPE_CHECKING:
    from matplotlib.figure import Figure


WHAT = ("loss", "accuracy")


@checked
def training_curves(history: Sequence[dict[str, float]], epochs: int | None = None) -> "Figure":
    """Loss on the left, accuracy on the right, after each epoch.

    Args:
        history: what ``training.fit`` returns.
        epochs: how far the axes reach; as far as the history by default.

    Raises:
        ValueError: if the history is empty.
    """
    if not history:
        raise ValueError("the history must have at least one epoch, got none")
    check_int("epochs", len(history) if epochs is None else epochs, 1)
    for entry in history:
        check_fields("history", entry, {f"{part}_{what}": float for part in ("train", "val") for what in WHAT})
    ticks = range(1, len(history) + 1)
    fig, axes = subplots(1, 2, figsize=(6, 2.8))
    for ax, what, factor in zip(axes, WHAT, (1, 100), strict=True):
        for part, colour in (("train", COLOURS["other"]), ("val", COLOURS["ours"])):
            values = [factor * entry[f"{part}_{what}"] for entry in history]
            ax.plot(ticks, values, ".-", color=colour, label={"train": "training", "val": "validation"}[part])
        end = max(2, epochs or len(history))
        ax.set(xlabel="epoch", ylabel="accuracy in %" if factor == 100 else "loss", xlim=(1 - 0.02 * end, 1.02 * end))
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0].legend()
    return fig


class LiveCurves:
    """Draws :func:`training_curves` after each epoch, in place, with the time that is left; give it to
    ``training.fit`` as ``after_epoch``. Outside a notebook it prints a table, a row after each epoch.

    Args:
        epochs: of the whole run.
    """

    def __init__(self, epochs: int):
        self.epochs = epochs
        self._display, self._begun = None, False

    def __call__(self, model: nn.Module, history: list[dict[str, float]]) -> None:
        last, left = history[-1], self.epochs - len(history)
        # The fastest epoch tells more than the mean: the first one warms up, and the machine may have been busy.
        wait = tqdm.format_interval(left * min(entry["seconds"] for entry in history))
        if not _in_notebook():
            if not self._begun:
                tqdm.write(f"{'epoch':>{max(5, 2 * len(str(self.epochs)) + 1)}}   loss  validation  seconds   left")
            self._begun = True
            count = f"{len(history):>{len(str(self.epochs))}}/{self.epochs}".rjust(5)
            row = f"{count}  {last['train_loss']:5.3f}  {last['val_accuracy']:10.1%}  {last['seconds']:7.1f}"
            tqdm.write(f"{row}  {wait}")
            return
        text = (
            f"epoch {len(history)} of {self.epochs}: loss {last['train_loss']:.3f}, "
            f"validation {100 * last['val_accuracy']:.1f} %, {last['seconds']:.1f} s"
            + (f", about {wait} left" if left > 0 else "")
        )
        from IPython.display import display

        fig = training_curves(history, self.epochs)
        fig.suptitle(text, fontsize=12)
        if self._display is None:
            self._display = display(fig, display_id=True)
        else:
            self._display.update(fig)


def _in_notebook() -> bool:
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return getattr(get_ipython(), "kernel", None) is not None
