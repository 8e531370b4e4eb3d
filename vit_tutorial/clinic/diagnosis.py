"""Eleven tests for any ViT, and one for the choice of the pass: each names one published bug (chapter 12)."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from vit_tutorial.archs.patients import History
from vit_tutorial.clinic import probes
from vit_tutorial.clinic.anatomy import Anatomy


@dataclass(frozen=True)
class Finding:
    """A bug that a model has.

    Attributes:
        bug: its name, a key of ``vit_tutorial.archs.patients.PATIENTS``.
        evidence: what was seen, with numbers.
        remedy: what to change.
    """

    bug: str
    evidence: str
    remedy: str


# Each test takes the model laid open and returns its evidence, or "" where it sees nothing or does not apply.
TESTS: dict[str, tuple[Callable[[Anatomy], str], str]] = {
    "softmax before cross-entropy": (
        probes.outputs_are_probabilities,
        "Return logits; take the softmax where probabilities are shown.",
    ),
    "attention across the batch": (
        probes.rows_depend_on_each_other,
        "Give nn.MultiheadAttention batch_first=True; attention runs over axis 1 of (b, n, d).",
    ),
    "dead residual norm": (
        probes.norms_without_gradient,
        "Compute the branch from the normalised tokens: x + branch(norm(x)).",
    ),
    "reshape without permute": (
        probes.patches_are_scrambled,
        "Move the axes (gh, gw) in front of (c, ph, pw) before the last reshape, or use a Conv2d.",
    ),
    "colours last": (
        probes.weights_are_read_in_another_order,
        "Flatten patches as (c ph pw), or reorder the weights once.",
    ),
    "no final norm": (
        probes.stream_reaches_the_head,
        "Put a LayerNorm between the last block and the head.",
    ),
    "per-head slices": (
        probes.heads_see_a_slice,
        "Let each head project the whole token, and mix the heads with an output projection.",
    ),
    "scale by √dim": (
        probes.scores_are_scaled_otherwise,
        "Divide the scores by the root of head_dim.",
    ),
    "batch-sized class token": (
        probes.rows_have_tokens_of_their_own,
        "Keep one class token and one table, (1, …), and expand them to the batch.",
    ),
    "head on all tokens": (
        probes.head_hears_all_tokens,
        "Choose before the head: the class token, or the mean of the patch tokens alone.",
    ),
    "no position on the class token": (
        probes.class_position_is_unused,
        "Add the positions after the class token has joined, or drop row 0 of the table; both learn the same.",
    ),
}
SELECTION = "selection on the test set"


def diagnose(model: nn.Module | None = None, *, select: Callable[[History], int] | None = None) -> list[Finding]:
    """Which of the twelve published bugs a model has.

    The model is asked with random images and left as it was: weights, gradients, modes, hooks and the state of the
    random number generators. It is run in evaluation mode, about twenty times on four images.

    What it cannot see: bugs of the data and the recipe; a bug that shows in training mode only; sliced heads with an
    output projection behind them; a scale that is neither head_dim's nor one of the usual mistakes, or in an attention
    whose layers have unusual names; a head on all tokens side by side, ``head(x.flatten(1))``, or on their maximum; a
    dead norm that is not PyTorch's LayerNorm or RMSNorm; any bug that chance or training has cancelled. A test that
    does not apply, such as those of the class token where there is none, finds nothing. A projection of overlapping
    patches, post-norm blocks, colours last in a convolution that was trained so and a mean over all tokens (timm's
    ``pool_include_prefix``) are designs that it takes for bugs. No finding is no proof.

    Args:
        model: this package's ``ViT``, timm's or torchvision's ``VisionTransformer``, or one made of the same parts.
        select: how the pass that counts is chosen: from a history, a list with a dict for each pass that has
            ``train_loss``, ``val_loss``, ``val_accuracy``, ``test_loss`` and ``test_accuracy``, the number of a pass.

    Returns:
        the findings, in the order of ``vit_tutorial.archs.patients.PATIENTS``; none for a healthy model.

    Raises:
        ValueError: when the model is of another kind, made of other parts (the message says which), or compiled.
    """
    findings = []
    if model is not None:
        with Anatomy.of(model) as anatomy:
            found = [(bug, test(anatomy), remedy) for bug, (test, remedy) in TESTS.items()]
        findings = [Finding(*one) for one in found if one[1]]
    if select is not None and (evidence := probes.selection_follows_the_test_set(select)):
        findings.append(Finding(SELECTION, evidence, "Report the last pass, or choose by validation images."))
    return findings
