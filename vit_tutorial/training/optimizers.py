"""The optimizers of the recipes: Adam and AdamW as they are, and Muon for the matrices inside the blocks."""

from typing import Any

import torch
from torch import nn


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups for the optimizer: matrices with decay; norms, biases, positions and class token without."""
    decay, rest = [], []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim >= 2 and name.split(".")[-1] not in ("pos_embed", "cls_token")
        (decay if is_matrix else rest).append(parameter)
    return [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


class MuonWithAdamW:
    """Muon for the weight matrices of the blocks, AdamW for everything else; used like one optimizer.

    Where Adam scales each number of a gradient by itself, Muon takes the matrix as a whole: it replaces the averaged
    gradient by the nearest matrix whose singular values are all alike, so that no direction is learned much faster than
    another. Its steps are scaled to the size of AdamW's, so one learning rate fits both.

    Args:
        model: whose ``blocks`` hold the matrices for Muon; ``qkv`` counts as one.
        groups: the model's parameters as :func:`parameter_groups` gives them, matrices first.
        lr: of both.
        betas: of AdamW.

    Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/; for the scaling Liu et al. 2025,
    arXiv:2502.16982.
    """

    def __init__(self, model: nn.Module, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float]):
        decay, rest = groups
        inside = {id(parameter) for name, parameter in model.named_parameters() if "blocks." in name}
        matrices = [parameter for parameter in decay["params"] if id(parameter) in inside]
        outside = [parameter for parameter in decay["params"] if id(parameter) not in inside]
        self.parts = (
            torch.optim.Muon(matrices, lr=lr, weight_decay=decay["weight_decay"], adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW([{**decay, "params": outside}, rest], lr=lr, betas=betas, fused=True),
        )

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for part in self.parts for group in part.param_groups]

    def zero_grad(self) -> None:
        for part in self.parts:
            part.zero_grad()

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for part, kept in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(kept)
