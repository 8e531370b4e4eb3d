"""The optimizers of the recipes: PyTorch's Adam and AdamW, and Muon for the matrices inside the blocks."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vit_tutorial.validate import check_int, check_number, checked

# Looked up or added, not multiplied: positions of every kind, and tokens that are learned.
NO_MATRICES = (
    "pos_embed", "cls_token", "reg_token", "latent", "freqs", "rel_k", "rel_v", "relative_position_bias_table",
)  # fmt: skip


@checked
def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Two groups for the optimizer: matrices with decay; norms, biases, positions and learned tokens without."""
    check_number("weight_decay", weight_decay, 0)
    decay, rest = [], []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim >= 2 and name.split(".")[-1] not in NO_MATRICES
        (decay if is_matrix else rest).append(parameter)
    return [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]


class Muon(torch.optim.Optimizer):
    """An optimizer for weight matrices that treats each as a whole, while Adam scales every number by itself.

    It replaces the averaged gradient by a matrix near it whose singular values are all about 1, so that no direction is
    learned much faster than another. Its steps are scaled to about the size of AdamW's, so a learning rate found for
    AdamW is a place to start from.

    PyTorch's own ``torch.optim.Muon`` takes the same steps, but computes them in bf16 on every device; many CPUs have
    no bf16 units and are several times slower at it. This one does so only inside ``torch.autocast``.

    Args:
        matrices: the parameters, each with two dimensions.
        lr: learning rate, as AdamW's.
        weight_decay: of all of them, decoupled from the gradient.
        momentum: fraction of the averaged gradient that a step keeps.

    Raises:
        ValueError: if a parameter is not a matrix.

    Source: Jordan et al. 2024, `Muon <https://kellerjordan.github.io/posts/muon/>`_; for the scaling Liu et al. 2025,
    arXiv:2502.16982.
    """

    def __init__(self, matrices: list[nn.Parameter], lr: float, weight_decay: float = 0.1, momentum: float = 0.95):
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})
        for matrix in (matrix for group in self.param_groups for matrix in group["params"]):
            if matrix.ndim != 2:
                raise ValueError(f"Muon takes matrices, (rows, columns); got a parameter of {tuple(matrix.shape)}")

    @torch.no_grad()
    def step(self) -> None:
        """Move each matrix that has a gradient; those of one shape together, which saves a GPU many small products."""
        for group in self.param_groups:
            by_shape = {}
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(matrix)
                by_shape.setdefault(matrix.shape, []).append((matrix, matrix.grad, state["momentum_buffer"]))
            for shape, found in by_shape.items():
                matrices, gradients, averages = zip(*found, strict=True)
                torch._foreach_lerp_(averages, gradients, 1 - group["momentum"])
                ahead = torch._foreach_lerp(gradients, averages, group["momentum"])  # Nesterov
                torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
                # Singular values of 1 make the entries of a step about 1 / √(the longer side); AdamW's are about 0.2.
                scale = 0.2 * math.sqrt(max(shape)) * group["lr"]
                torch._foreach_add_(matrices, orthogonalize(torch.stack(ahead)).unbind(), alpha=-scale)


@checked
def orthogonalize(matrices: Float[Tensor, "*n rows cols"], steps: int = 5) -> Float[Tensor, "*n rows cols"]:
    """Bring all singular values of each matrix near 1 without computing them.

    ``(a + b XXᵀ + c (XXᵀ)²) X`` has X's singular vectors and, for each singular value s, ``a s + b s³ + c s⁵``. With
    these three coefficients, repeated steps carry any s in 0..1 that is not tiny to 0.7..1.2: near enough, and fast.

    Args:
        matrices: zeros stay zeros; otherwise a matrix's scale does not matter, unless its norm is below 1e-7.
        steps: of the iteration.
    """
    check_int("steps", steps, 0)
    if matrices.shape[-2] > matrices.shape[-1]:
        return orthogonalize(matrices.mT, steps).mT  # the smaller products
    a, b, c = 3.4445, -4.7750, 2.0315
    # Divided by its norm, a matrix has no singular value above 1.
    x = matrices / matrices.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


class MuonWithAdamW:
    """:class:`Muon` for the weight matrices of the blocks, AdamW for everything else; used like one optimizer.

    Args:
        model: whose ``blocks`` hold the matrices for Muon; ``qkv`` counts as one.
        groups: the model's parameters as :func:`parameter_groups` gives them, matrices first.
        lr: of both.
        betas: of AdamW.

    Raises:
        ValueError: if the model has no matrices in ``blocks``.
    """

    def __init__(self, model: nn.Module, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float]):
        decay, rest = groups
        inside = {id(parameter) for name, parameter in model.named_parameters() if "blocks." in name}
        matrices = [parameter for parameter in decay["params"] if id(parameter) in inside]
        outside = [parameter for parameter in decay["params"] if id(parameter) not in inside]
        if not matrices:
            raise ValueError(
                f"optimizer 'muon' is for the matrices in a model's blocks, and {type(model).__name__} has none there: "
                "take 'adamw'"
            )
        self.parts = (
            Muon(matrices, lr, decay["weight_decay"]),
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
