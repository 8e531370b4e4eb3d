"""Which of the published bugs a model has: tests that ask a Vision Transformer's parts, or any model's outputs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from vit_tutorial.archs.patients import History
from vit_tutorial.clinic import probes
from vit_tutorial.clinic.anatomy import Anatomy, ExaminedModel
from vit_tutorial.clinic.symptoms import CannotTell
from vit_tutorial.validate import check_differentiable


@dataclass(frozen=True)
class Finding:
    """A bug that a model has.

    Attributes:
        bug: its name; a key of ``vit_tutorial.archs.patients.PATIENTS`` if it is one of those.
        evidence: what was seen, with numbers.
        remedy: what to change.
    """

    bug: str
    evidence: str
    remedy: str


class Diagnosis(list[Finding]):
    """A list of findings that also knows which tests said nothing.

    Attributes:
        not_run: bug → why the test for it does not apply to this model, or could not tell.
    """

    def __init__(self, findings: Iterable[Finding] = (), not_run: dict[str, str] | None = None):
        super().__init__(findings)
        self.not_run = not_run or {}


# Each probe returns its evidence, or "" if it sees nothing, or raises CannotTell.
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
        probes.head_depends_on_all_tokens,
        "Choose before the head: the class token, or the mean of the patch tokens alone.",
    ),
    "no position on the class token": (
        probes.class_position_is_unused,
        "Add the positions after the class token has joined, or drop row 0 of the table; both learn the same.",
    ),
    "softmax over the wrong axis": (
        probes.softmax_runs_over_another_axis,
        "Take the softmax over the keys, the last axis of the scores: dim=-1.",
    ),
}
# The tests that any model from images to logits can take.
TESTS_OF_OUTPUTS: dict[str, tuple[Callable[[ExaminedModel], str], str]] = {
    "softmax before cross-entropy": TESTS["softmax before cross-entropy"],
    "attention across the batch": (probes.outputs_depend_on_each_other, TESTS["attention across the batch"][1]),
    "row or size of the batch matters": (
        probes.row_or_size_matters,
        "Keep one class token and one table, (1, …), expand them to the batch, and never squeeze the batch axis.",
    ),
    "dead parameters": (
        probes.parameters_without_gradient,
        "Use what they compute, or delete them; a norm's output is what its branch should read.",
    ),
    "reshape without permute": TESTS["reshape without permute"],
    "blind to the order of patches": (
        probes.order_does_not_matter,
        "Add positions to the tokens before the first block.",
    ),
    "head on all tokens": (probes.output_for_each_token, TESTS["head on all tokens"][1]),
}
COVERED = ("dead residual norm", "batch-sized class token")  # by dead parameters, and row or size of the batch
SELECTION = "selection on the test set"
NOT_FINITE = "not finite"


def diagnose(
    model: nn.Module | None = None,
    images: Tensor | None = None,
    *,
    patch_size: int | tuple[int, int] | None = None,
    select: Callable[[History], int] | None = None,
) -> Diagnosis:
    """Which of thirteen published bugs a model has.

    There are two ways. ``diagnose(model)`` knows the parts of this package's, timm's and torchvision's Vision
    Transformers and of Hugging Face's ``ViTForImageClassification``, and runs all tests on random images.

    ``diagnose(model, images)`` takes *any* module from images to logits, for example one that you have written, and
    runs the tests that need only its outputs: whether they are probabilities, whether an image depends on its
    neighbours, on its row or on the size of the batch, and whether there are parameters that do nothing. With
    ``patch_size``, it also asks whether the order of the patches matters, and whether each patch goes into one token.

    The model is left as it was: weights, gradients, modes, hooks and the state of the random number generators. It is
    run in evaluation mode, about twenty times on four images, in float32 if it is in half precision, and in the second
    way with a little noise on its weights, so that a head or a table that starts at 0 hides nothing.

    What it cannot see: bugs of the data and the recipe; a bug that shows in training mode only; sliced heads with an
    output projection behind them; a scale that is neither head_dim's nor one of the usual mistakes, or in an attention
    whose layers have unusual names; a head on all tokens side by side, ``head(x.flatten(1))``, or on their maximum; a
    dead norm that is not PyTorch's LayerNorm or RMSNorm; any bug that chance or training has cancelled. A projection of
    overlapping patches, post-norm blocks, colours last in a convolution that was trained so, a mean over all tokens
    (timm's ``pool_include_prefix``) and, with ``images``, an auxiliary head that rests while evaluating are designs
    that it takes for bugs. A clean report doesn't prove that the model is sound.

    Args:
        model: a Vision Transformer of one of the four kinds or made of the same parts; with ``images``, any module.
        images: floating point, ``(b, c, H, W)`` with b at least 2, as the model takes them; 4 are enough.
        patch_size: pixels, an int or an (height, width) pair; with ``images``, if the model cuts them into patches.
        select: how the epoch that counts is chosen: from a history, a list with a dict for each epoch that has
            ``train_loss``, ``val_loss``, ``val_accuracy``, ``test_loss`` and ``test_accuracy``, the index of an epoch.

    Returns:
        the findings, in the order of the tests; none for a healthy model. Its ``not_run`` says which tests did not
        apply or could not tell, and why. If a weight or an output is NaN or infinite, that is all it says of the model.

    Raises:
        ValueError: if the model is of another kind, made of other parts (the message says which) or compiled; if
            ``images`` or ``patch_size`` do not fit, or the model returns something other than logits for them.
    """
    found = Diagnosis()
    if model is not None:
        found = _diagnose(model, images, patch_size)
    elif images is not None:
        raise ValueError("images are given, and no model to run on them")
    if select is not None and (evidence := probes.selection_follows_the_test_set(select)):
        found.append(Finding(SELECTION, evidence, "Report the last epoch, or choose by validation images."))
    return found


def _diagnose(model: nn.Module, images: Tensor | None, patch_size: int | tuple[int, int] | None) -> Diagnosis:
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be an nn.Module, got {type(model).__name__}")
    check_differentiable(model)
    if images is None and patch_size is not None:
        raise ValueError(f"patch_size {patch_size} is for a model with images; without, the model says its own")
    tests = TESTS if images is None else TESTS_OF_OUTPUTS
    if evidence := _weights_not_finite(model):
        return _only_not_finite(evidence, tests)
    found = Diagnosis()
    with Anatomy.of(model) if images is None else ExaminedModel.of(model, images, patch_size) as examined:
        if not examined.logits.isfinite().all():
            evidence = f"the outputs of {len(examined.images)} images have NaN or infinite numbers, and no weight has"
            return _only_not_finite(evidence, tests)
        for bug, (probe, remedy) in tests.items():
            try:
                evidence = probe(examined)
            except CannotTell as error:
                found.not_run[bug] = str(error)
                continue
            if evidence:
                found.append(Finding(bug, evidence, remedy))
    for bug in TESTS:
        if bug not in tests and bug not in COVERED:
            found.not_run[bug] = "it asks the parts of a Vision Transformer: try diagnose(model) without images"
    return found


def _weights_not_finite(model: nn.Module) -> str:
    """Which parameter has a NaN or an infinity, or which buffer a NaN: infinities may be a mask."""
    wrong = {name: int((~parameter.isfinite()).sum()) for name, parameter in model.named_parameters()}
    wrong |= {name: int(buffer.isnan().sum()) for name, buffer in model.named_buffers()}
    wrong = {name: count for name, count in wrong.items() if count}
    if not wrong:
        return ""
    (name, count), *others = wrong.items()
    numbers = f"{count} NaN or infinite number{'s' * (count > 1)}"
    more = f", and so do {len(others)} more" if others else ""
    return f"{name} has {numbers}{more}"


def _only_not_finite(evidence: str, tests: Iterable[str]) -> Diagnosis:
    remedy = "Go back to the last weights that are finite; a lower rate, a warmup or clipped gradients keep them so."
    not_run = dict.fromkeys(tests, "with numbers that are not finite it would mean nothing")
    return Diagnosis([Finding(NOT_FINITE, evidence, remedy)], not_run)
