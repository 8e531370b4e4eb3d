"""EMA, an exponential moving average of a model's weights over the steps of a training."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


class EMA:
    """An exponential moving average of a model's weights.

    Args:
        model: the model that is trained; it must already be on its device.
        decay: fraction of the old average that a step keeps; the average looks back about 1 / (1 − decay) steps.

    Attributes:
        state: the averaged weights, as a state dict. Change its tensors in place only: ``update`` keeps them.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.model, self.decay = model, decay
        self.live = model.state_dict()
        self.state = {name: value.clone() for name, value in self.live.items()}
        # Counts, such as a batch norm's number of batches, are not averaged.
        names = [name for name, value in self.live.items() if value.is_floating_point()]
        self._pairs = [self.state[name] for name in names], [self.live[name] for name in names]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Move towards the model; faster in the first steps, so that the EMA forgets the initialization."""
        decay = min(self.decay, (step + 1) / (step + 10))
        torch._foreach_lerp_(*self._pairs, 1 - decay)

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, torch.Tensor] | None) -> None:
        """Take over an average that was stored.

        Raises:
            ValueError: if there is none, or it is of another model.
        """
        shapes, wanted = ({name: value.shape for name, value in each.items()} for each in (state or {}, self.state))
        if shapes != wanted:
            raise ValueError("its average has other weights than the model")
        for name, value in state.items():
            self.state[name].copy_(value)

    @contextmanager
    def weights(self) -> Iterator[None]:
        """The EMA in the model, within a ``with`` block."""
        kept = {name: value.clone() for name, value in self.live.items()}
        self.model.load_state_dict(self.state)
        try:
            yield
        finally:
            self.model.load_state_dict(kept)
