"""Which of the published bugs a model has: tests that ask a Vision Transformer's parts, or any model's outputs."""

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from torch import Tensor, nn

from vit_tutorial.archs.patients import History
from vit_tutorial.clinic import heads, parts, probes
from vit_tutorial.clinic.anatomy import Anatomy, known_parts
from vit_tutorial.clinic.examined import ExaminedModel, WithoutDropout, device_of, prepared
from vit_tutorial.clinic.inputs import check_images, guess_patch_size, is_channels_last, make_images
from vit_tutorial.clinic.report import Diagnosis, Finding
from vit_tutorial.clinic.symptoms import CannotTell
from vit_tutorial.clinic.trace import DoesNotRun, first_not_finite
from vit_tutorial.validate import check_differentiable, checked

# Each probe returns its evidence, or "" if it sees nothing, or raises CannotTell.
TESTS: dict[str, tuple[Callable[[Anatomy], str], str]] = {
    "softmax before cross-entropy": (
        probes.outputs_are_probabilities,
        "Return logits; take the softmax where probabilities are shown, or in a loss that expects them.",
    ),
    "attention across the batch": (
        parts.rows_depend_on_each_other,
        "Give nn.MultiheadAttention batch_first=True; attention runs over axis 1 of (b, n, d).",
    ),
    "dead residual norm": (
        parts.norms_without_gradient,
        "Compute the branch from the normalised tokens: x + branch(norm(x)).",
    ),
    "reshape without permute": (
        probes.patches_are_scrambled,
        "Move the axes (gh, gw) in front of (c, ph, pw) before the last reshape, or use a Conv2d.",
    ),
    "colours last": (
        parts.weights_are_read_in_another_order,
        "Flatten patches as (c ph pw), or reorder the weights once.",
    ),
    "no final norm": (
        parts.stream_reaches_the_head,
        "Put a LayerNorm between the last block and the head.",
    ),
    "per-head slices": (
        parts.heads_see_a_slice,
        "Let each head project the whole token, and mix the heads with an output projection.",
    ),
    "scale by √dim": (
        heads.explained(heads.SCALE),
        "Divide the scores by the root of head_dim.",
    ),
    "batch-sized class token": (
        parts.rows_have_tokens_of_their_own,
        "Keep one class token and one table, (1, …), and expand them to the batch.",
    ),
    "head on all tokens": (
        parts.head_depends_on_all_tokens,
        "Choose before the head: the class token, or the mean of the patch tokens alone.",
    ),
    "no position on the class token": (
        parts.class_position_is_unused,
        "Add the positions after the class token has joined, or drop row 0 of the table; both learn the same.",
    ),
    "softmax over the wrong axis": (
        heads.explained(heads.AXIS),
        "Take the softmax over the keys, the last axis of the scores: dim=-1.",
    ),
}
# What else makes attention differ from what its weights say.
TESTS_OF_ATTENTION: dict[str, tuple[Callable[[Anatomy], str], str]] = {
    heads.TRANSPOSE: (
        heads.explained(heads.TRANSPOSE),
        "Split with reshape(b, n, h, hd).transpose(1, 2), and glue with transpose(1, 2).reshape(b, n, d).",
    ),
    heads.MASKED: (
        heads.explained(heads.MASKED),
        "Let every token read all: patches have no past and no future, so an image needs no mask.",
    ),
    heads.NO_SOFTMAX: (
        heads.explained(heads.NO_SOFTMAX),
        "Take the softmax of the scores over the keys, dim=-1, before they weigh the values.",
    ),
    heads.UNEXPLAINED: (
        heads.explained(heads.UNEXPLAINED),
        "Compare it with scaled_dot_product_attention, step by step, on the same queries, keys and values.",
    ),
}
ROW = "row or size of the batch matters"
# The tests that any model from images to logits can take.
TESTS_OF_OUTPUTS: dict[str, tuple[Callable[[ExaminedModel], str], str]] = {
    "softmax before cross-entropy": TESTS["softmax before cross-entropy"],
    "attention across the batch": (probes.outputs_depend_on_each_other, TESTS["attention across the batch"][1]),
    ROW: (
        probes.row_or_size_matters,
        "Keep one class token and one table, (1, …), expand them to the batch, and never squeeze the batch axis.",
    ),
    "no backward pass": (
        probes.backward_pass_fails,
        "Write x = x + y for x += y where x is still needed: behind an activation, or in a residual.",
    ),
    "parameters that aren't registered": (
        probes.parameters_are_not_registered,
        "Keep modules in an nn.ModuleList, numbers to train in an nn.Parameter, and make both in __init__.",
    ),
    "dead parameters": (
        probes.parameters_without_gradient,
        "Use what they compute, or leave them out; a norm's output is what its branch should read.",
    ),
    "reshape without permute": TESTS["reshape without permute"],
    "blind to the order of patches": (
        probes.order_does_not_matter,
        "Add positions to the tokens before the first block.",
    ),
    "head on all tokens": (probes.output_for_each_token, TESTS["head on all tokens"][1]),
    "no residual connection": (
        parts.blocks_have_no_residual,
        "Add what a branch returns to the stream: x = x + branch(norm(x)), for attention and for the MLP.",
    ),
    "residual that skips attention": (
        parts.stream_loses_attention,
        "Let the MLP's residual add to the sum that it reads: x = x + attn(norm1(x)), then x = x + mlp(norm2(x)).",
    ),
    "one block many times": (
        parts.blocks_are_one,
        "Make each block anew: nn.ModuleList(Block() for _ in range(depth)), not [Block()] * depth.",
    ),
    "head reads a patch": (
        parts.head_reads_a_patch,
        "Read the class token where it was put, x[:, 0] in front and x[:, -1] behind; without one, take the mean.",
    ),
}
COVERED = ("dead residual norm", "batch-sized class token")  # by dead parameters, and row or size of the batch
SELECTION = "selection on the test set"
NOT_FINITE = "not finite"
RANDOM = "random while evaluating"


@checked
def diagnose(
    model: nn.Module | None = None,
    images: Tensor | None = None,
    *,
    patch_size: int | tuple[int, int] | None = None,
    select: Callable[[History], int] | None = None,
) -> Diagnosis:
    """Which of fifteen published bugs a model has.

    It takes *any* module from images to logits, for example one that you have written, and makes random images of a
    size and number that the model takes if you pass none. The outputs tell whether they are probabilities, whether an
    image depends on its neighbours, on its row or on the size of the batch, whether there are parameters that do
    nothing, or numbers to train that are no parameters, and whether a backward pass runs; with a patch size, passed or
    guessed, also whether the order of the patches matters. What is inside is asked as far as it is found: by name in
    this package's, timm's, torchvision's and Hugging Face's Vision Transformers, in others by what ran. The blocks
    must be different ones and have residuals, which keep what attention gave, the head must read the class token, and
    each attention is computed a second time from its own weights: where it returned something else, the wrong scales,
    axes, reshapes and masks that explain it are named.

    First of all the same batch is run several times. If the model is random while evaluating, the other tests run
    without dropout, or with the same random numbers in each pass.

    The model is left as it was: weights, gradients, modes, hooks and the state of the random number generators. It is
    run in evaluation mode, about forty times on four images, in float32 if it is in half precision, and where only
    outputs are asked with a little noise on its weights, so that a head or a table that starts at 0 hides nothing.

    What it cannot see: bugs of the data, the loss and the recipe; a bug that shows in training mode only; attention
    whose queries, keys and values are no linear layers, or have unusual names, or that has parameters of its own beside
    them; what runs in modules that aren't registered; a head on all tokens side by side, ``head(x.flatten(1))``, or on
    their maximum; a dead norm that is not PyTorch's LayerNorm or RMSNorm; any bug that chance or training has
    cancelled. Colours last in a convolution that was trained so, a mean over all tokens (timm's
    ``pool_include_prefix``), probabilities for a loss that takes their logarithm, and an auxiliary head of your own
    that rests while evaluating are designs that it takes for bugs. A clean report doesn't prove that the model is
    sound.

    Args:
        model: any module from images to logits, or to a tuple, a dict or an object that has them.
        images: floating point, ``(b, c, H, W)`` or ``(b, H, W, c)`` with b at least 2, as the model takes them; 4 are
            enough.
        patch_size: pixels, an int or an (height, width) pair; by default what a part of the model says.
        select: how the epoch that counts is chosen: from a history, a list with a dict for each epoch that has
            ``train_loss``, ``val_loss``, ``val_accuracy``, ``test_loss`` and ``test_accuracy``, the index of an epoch.

    Returns:
        the findings, in the order of the tests; none for a healthy model. Its ``not_run`` says which tests did not
        apply or could not tell, and why, its ``passed`` which bugs were looked for and not found. If a weight or an
        output is NaN or infinite, that is all it says of the model, with the first part that made one.

    Raises:
        ValueError: if the model is compiled, or takes no random images of a usual size; if ``images`` or ``patch_size``
            do not fit, or the model returns something other than logits for them.
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
    check_differentiable(model)
    by_outputs = images is not None or not known_parts(model)
    tests = [*(TESTS_OF_OUTPUTS if by_outputs else ()), *TESTS, *TESTS_OF_ATTENTION]
    tests = [bug for bug in dict.fromkeys(tests) if not (by_outputs and bug in COVERED)]
    if finding := _weights_not_finite(model):
        return _only(finding, tests)
    made, device = images is None, device_of(model)
    if made:
        if patch_size is not None and not by_outputs:
            raise ValueError(f"patch_size {patch_size} is for a model with images; without, the model says its own")
        with prepared(model, device):
            images, channels_last = make_images(model)
    else:
        check_images(images)
        if channels_last := is_channels_last(model, images):
            images = images.movedim(-1, 1)
    if patch_size is None:
        patch_size = guess_patch_size(model, images)
    context = partial(prepared, model, images.device, channels_last=channels_last)
    found = Diagnosis()
    with context():
        examined = ExaminedModel.of(model, images, patch_size)
        if not examined.logits.isfinite().all():
            return _only(_outputs_not_finite(examined), tests)
        if len(images) == 1:
            found.append(
                Finding(ROW, probes.takes_one_image(examined), TESTS_OF_OUTPUTS[ROW][1], "probes.takes_one_image")
            )
        still = nullcontext()
        if moved := examined.moved_by_chance():
            with WithoutDropout() as without:
                by_dropout = not replace(examined).moved_by_chance()
            still = without if by_dropout else still
            found.append(_random(moved, dropout=by_dropout))
    asked = [(False, {bug: test for bug, test in (TESTS | TESTS_OF_ATTENTION).items() if bug in tests})]
    with still:
        for shaken, each in [(True, TESTS_OF_OUTPUTS), *asked] if by_outputs else asked:
            with context(shaken=shaken):
                _ask(found, each, Anatomy.find(replace(examined)))
    found.advice = _advice(examined, made and by_outputs, found.not_run)
    return found


def _ask(found: Diagnosis, tests: dict[str, tuple[Callable, str]], examined: ExaminedModel) -> None:
    """Run tests, and note what each says; what an earlier one has found or told stays."""
    for bug, (probe, remedy) in tests.items():
        if bug in {finding.bug for finding in found}:
            continue
        try:
            evidence = probe(examined)
        except (CannotTell, RuntimeError) as error:
            if not isinstance(error, CannotTell) and not examined.no_gradient:
                raise  # not the model's fault
            ran = isinstance(error, CannotTell) and not isinstance(error, DoesNotRun)
            if bug not in found.passed:
                found.not_run[bug] = str(error) if ran else f"the model did not run as this test needs it: {error}"
            continue
        found.not_run.pop(bug, None)
        if evidence:
            found.append(Finding(bug, evidence, remedy, f"{probe.__module__.rpartition('.')[2]}.{probe.__name__}"))
        if evidence and bug in found.passed:
            found.passed.remove(bug)
        if not evidence and bug not in found.passed:
            found.passed.append(bug)


def _advice(examined: ExaminedModel, made: bool, not_run: dict[str, str]) -> str:
    """What to pass so that more is tested."""
    advice = []
    if made:
        shape = "×".join(map(str, examined.images.shape))
        advice.append(f"The images were random, {shape}: pass diagnose(model, images) for others.")
    if examined.patch_size is None and any(why == probes.NEEDS_PATCH_SIZE for why in not_run.values()):
        advice.append("Pass patch_size, in pixels, if the model cuts images into patches.")
    return " ".join(advice)


def _random(moved: float, *, dropout: bool) -> Finding:
    """The finding of a model that gives the same batch other outputs each time."""
    what = "without dropout they are the same" if dropout else "and they do so without dropout, too"
    evidence = (
        f"the same batch twice, while evaluating, gives outputs that differ by {moved:.1%} of their length; {what}"
    )
    remedy = (
        "Pass training=self.training to F.dropout, or make nn.Dropout in __init__."
        if dropout
        else "Let what is random rest while evaluating: ask self.training before DropPath, noise or random masks, and "
        "make parameters in __init__."
    )
    return Finding(RANDOM, evidence, remedy, "examined.moved_by_chance")


def _weights_not_finite(model: nn.Module) -> Finding | None:
    """The parameter that has a NaN or an infinity, or the buffer that has a NaN: infinities may be a mask."""
    wrong = {name: int((~parameter.isfinite()).sum()) for name, parameter in model.named_parameters()}
    wrong |= {name: int(buffer.isnan().sum()) for name, buffer in model.named_buffers()}
    wrong = {name: count for name, count in wrong.items() if count}
    if not wrong:
        return None
    (name, count), *others = wrong.items()
    numbers = f"{count} NaN or infinite number{'s' * (count > 1)}"
    more = f", and so do {len(others)} more" if others else ""
    remedy = "Go back to the last weights that are finite; a lower rate, a warmup or clipped gradients keep them so."
    return Finding(NOT_FINITE, f"{name} has {numbers}{more}", remedy, "diagnosis.weights")


def _outputs_not_finite(examined: ExaminedModel) -> Finding:
    """The first part that makes numbers that are not finite of numbers that are."""
    name, part = first_not_finite(examined.model, examined.images)
    where = f"{name} ({type(part).__name__})" if name else f"{type(part).__name__} itself, outside of its parts"
    evidence = (
        f"the outputs of {len(examined.images)} images have NaN or infinite numbers, and no weight has; the first come "
        f"from {where}, whose own input is finite"
    )
    remedy = (
        f"Look into {name or 'forward'}: at a mask that leaves a query without a key, a division by 0, a logarithm or "
        "a root, or numbers that overflow."
    )
    return Finding(NOT_FINITE, evidence, remedy, "trace.first_not_finite")


def _only(finding: Finding, tests: Iterable[str]) -> Diagnosis:
    return Diagnosis([finding], dict.fromkeys(tests, "with numbers that are not finite it would mean nothing"))
