"""The checks of chapter 12 accept the reference and name each mistake in a test."""

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from hints import assert_hints
from torch import nn

from vit_tutorial.exercises import CheckFailed, exercise
from vit_tutorial.exercises.clinic import (
    CONFIG,
    StrictClassToken,
    any_batch_size,
    chosen_without_the_test_set,
    dead_norms,
    embed_matches_conv,
    ends_with_norm,
    heads_see_everything,
    images_are_independent,
    outputs_are_probabilities,
    patches_stay_together,
    scale_is_right,
)


def _always(answer):
    return lambda *args: answer


def _spoils_the_model(reference):
    def fn(model, images):
        answer = reference(model, images)
        with torch.no_grad():
            next(model.parameters()).add_(1)
        return answer

    return fn


def _spoils_the_images(reference):
    def fn(model, images):
        answer = reference(model, images)
        images[1:] = 0
        return answer

    return fn


def test_outputs_are_probabilities():
    right = outputs_are_probabilities

    def by(test):
        return lambda model, images: bool(test(model(images).detach()))

    def sums(out, dim=-1):
        return torch.allclose(out.sum(dim=dim), torch.ones(()))

    assert_hints(
        "outputs_are_probabilities",
        right,
        {
            "answer is True for all": _always(True),
            "answer is False for all": _always(False),
            "turned round": lambda model, images: not right(model, images),
            "expected True or False": lambda model, images: model(images).sum(dim=-1),
            "in place": _spoils_the_images(right),
            "up to rounding": by(lambda out: (out >= 0).all() and (out.sum(dim=-1) == 1).all()),
            "exact 0 and 1": by(lambda out: (out > 0).all() and sums(out)),
            "do not sum to 1": by(lambda out: (out >= 0).all()),
            "sigmoids": by(lambda out: (out >= 0).all() and (out <= 1).all()),
            "are negative": by(sums),
            "over the images of the batch": by(lambda out: (out >= 0).all() and abs(out.sum() - len(out)) < 1e-3),
            "logits were taken": lambda model, images: right(model, images) or type(model).__name__ == "ViT",
        },
    )


def _rows(exchange, same=None, mode=lambda model: model.eval()):
    same = same or (lambda a, b: torch.allclose(a, b, rtol=1e-4, atol=1e-5))

    def fn(model, images):
        mode(model)
        others = exchange(images.clone())
        with torch.no_grad():
            return same(model(images)[0], model(others)[0])

    return fn


def _all_others(images):
    images[1:] = torch.randn_like(images[1:])
    return images


def _row_one(images):
    images[1] = torch.randn_like(images[1])
    return images


def _last_row(images):
    images[-1] = torch.randn_like(images[-1])
    return images


def _alone(same):
    def fn(model, images):
        model.eval()
        with torch.no_grad():
            return same(model(images)[0], model(images[:1])[0])

    return fn


def test_images_are_independent():
    assert_hints(
        "images_are_independent",
        images_are_independent,
        {
            "answer is True for all": _always(True),
            "answer is False for all": _rows(lambda images: torch.randn_like(images)),
            "turned round": _rows(_all_others, same=lambda a, b: not torch.allclose(a, b, rtol=1e-4, atol=1e-5)),
            "in place": _spoils_the_images(images_are_independent),
            "model.eval() first": _rows(_all_others, mode=lambda model: None),
            "not by another order": _rows(lambda images: torch.cat([images[:1], images[1:].roll(1, dims=0)])),
            "image 0 by the last": _rows(_row_one),
            "image 0 by image 1": _rows(_last_row),
            "overlooked": _rows(_all_others, same=lambda a, b: torch.allclose(a, b, atol=5e-3)),
            "rounding was taken": _alone(lambda a, b: torch.allclose(a, b, rtol=0, atol=2e-6)),
            "None. Is a": lambda model, images: None,
        },
    )
    other = _alone(lambda a, b: torch.allclose(a, b, rtol=1e-4, atol=2e-5))
    assert exercise("images_are_independent", other) is other


def _norms(dead, kind=nn.LayerNorm):
    def fn(model, images):
        return [name for name, part in model.named_modules() if isinstance(part, kind) and dead(name, part, model)]

    return fn


def _after_backward(dead, reset=True):
    def fn(model, images):
        if reset:
            model.zero_grad()
        model(images).sum().backward()
        return [name for name, part in model.named_modules() if isinstance(part, nn.LayerNorm) and dead(part)]

    return fn


def test_dead_norms():
    right = dead_norms

    def perturbed(model, images):
        model.eval()
        found = []
        with torch.no_grad():
            before = model(images)
            for name, part in model.named_modules():
                if isinstance(part, nn.LayerNorm):
                    kept = part.weight.clone()
                    part.weight.zero_()
                    if torch.allclose(model(images), before):
                        found.append(name)
                    part.weight.copy_(kept)
        return found

    def once_one_all(model, images):
        found = right(model, images)
        return [name for name, part in model.named_modules() if isinstance(part, nn.LayerNorm)][:4] if found else []

    assert_hints(
        "dead_norms",
        right,
        {
            "no dead norm was found": _always([]),
            "expected a list of names": lambda model, images: bool(right(model, images)),
            "those are parameters": lambda model, images: [f"{name}.weight" for name in right(model, images)],
            "only LayerNorms": _norms(lambda name, part, model: True, kind=nn.Module),
            "called dead as well": _norms(lambda name, part, model: True),
            "the one norm that is alive": lambda model, images: ["norm"],
            "you found blocks.0.norm1, blocks.0.norm2": lambda model, images: right(model, images)[:2],
            "healthy model has no dead norms": _norms(lambda name, part, model: name != "norm"),
            "block 1 alone": once_one_all,
            "all zeros, passed for alive": _after_backward(lambda part: part.weight.grad is None, reset=False),
            " of the ViT was changed": _spoils_the_model(right),
            "raised NameError": lambda model, images: undefined,
        },
    )
    for other in (
        perturbed,
        _after_backward(lambda part: part.weight.grad is None),
        _after_backward(lambda part: part.weight.grad is None or not part.weight.grad.any()),
    ):
        assert exercise("dead_norms", other) is other


def _patches(corners, moved=lambda counts: all(count == 1 for count in counts), channels=slice(None)):
    def fn(embed, images):
        ph, pw = embed.patch_size
        counts = []
        with torch.no_grad():
            before = embed(images)
            for top, left, tall, wide in corners(images, ph, pw):
                changed = images.clone()
                changed[:, channels, top : top + tall, left : left + wide] += 1
                counts.append(int(((embed(changed) - before).abs().amax(dim=(0, 2)) > 1e-4).sum()))
        return moved(counts)

    return fn


def _every(images, ph, pw):
    return [(y, x, ph, pw) for y in range(0, images.shape[2], ph) for x in range(0, images.shape[3], pw)]


def _in_place(embed, images):
    ph, pw = embed.patch_size
    with torch.no_grad():
        before = embed(images)
        for i, (top, left, tall, wide) in enumerate(_every(images, ph, pw)):
            changed = images.clone()
            changed[:, :, top : top + tall, left : left + wide] += 1
            moved = (embed(changed) - before).abs().amax(dim=(0, 2)) > 1e-4
            if moved.nonzero().flatten().tolist() != [i]:
                return False
    return True


def test_patches_stay_together():
    right = patches_stay_together

    def first_channel(embed, images):
        return _patches(_every, channels=slice(1))(embed, images)

    def like_the_convolution(embed, images):
        with torch.no_grad():
            expected = rearrange(embed.proj(images), "b d gh gw -> b (gh gw) d").sum(dim=1)
            return torch.allclose(embed(images).sum(dim=1), expected, rtol=1e-4, atol=1e-4)

    assert_hints(
        "patches_stay_together",
        right,
        {
            "answer is True for all": lambda embed, images: (
                embed(images).shape[1] == images[0, 0].numel() // embed.proj.weight[0, 0].numel()
                if embed.proj.weight.ndim == 4
                else True
            ),
            "answer is False for all": _always(False),
            "turned round": lambda embed, images: not right(embed, images),
            "in place": _spoils_the_images(right),
            "(height, width)": lambda embed, images: right(embed, images) and embed.patch_size != (2, 4),
            "one alone always moves": lambda embed, images: (
                right(embed, images) or (type(embed).__name__ == "ReshapedPatches" and images.shape[1] == 3)
            ),
            "with one channel": lambda embed, images: (
                right(embed, images) or (type(embed).__name__ == "ReshapedPatches" and images.shape[1] == 1)
            ),
            "*every* patch": _patches(lambda images, ph, pw: [(0, 0, ph, pw)]),
            "in *all* channels": first_channel,
            "not which": _in_place,
            "raised": like_the_convolution,
            "another question": lambda embed, images: (
                right(embed, images) and type(embed).__name__ != "ColoursLastPatches"
            ),
            "not what it is made of": lambda embed, images: right(embed, images) and embed.proj.weight.ndim == 4,
        },
    )


def _conv(compare, images_of=lambda images: images):
    def fn(embed, images):
        images = images_of(images)
        with torch.no_grad():
            return bool(compare(embed(images), rearrange(embed.proj(images), "b d gh gw -> b (gh gw) d")))

    return fn


def test_embed_matches_conv():
    right = embed_matches_conv

    def close(a, b):
        return torch.allclose(a, b, rtol=1e-4, atol=1e-5)

    assert_hints(
        "embed_matches_conv",
        right,
        {
            "answer is True for all": _conv(lambda a, b: a.shape == b.shape),
            "answer is False for all": _conv(lambda a, b: a is b),
            "turned round": _conv(lambda a, b: not close(a, b)),
            "in place": _spoils_the_images(right),
            "(ph pw c)": _conv(close, torch.ones_like),
            "scrambled patches were": lambda embed, images: (
                right(embed, images) or type(embed).__name__ == "ReshapedPatches"
            ),
            "column by column, and": _conv(lambda a, b: close(a.sum(dim=1), b.sum(dim=1))),
            "the bias is missing": _conv(lambda a, b: close(a - a.mean(dim=(0, 1)), b - b.mean(dim=(0, 1)))),
            "Compare all tokens": _conv(lambda a, b: close(a[:, 1:-2], b[:, 1:-2])),
            "Compare all numbers": _conv(lambda a, b: close(a[..., :-1], b[..., :-1])),
            "rows and columns within": lambda embed, images: (
                right(embed, images) or embed.patch_size[0] == embed.patch_size[1]
            ),
            "differ from itself": lambda embed, images: right(embed, images) and embed.patch_size != (2, 4),
        },
    )


def _scaled_stream(compare, module=lambda model: model.blocks[-1], remove=True, mode=lambda model: model.eval()):
    def fn(model, images):
        mode(model)
        with torch.no_grad():
            before = model(images)
            hook = module(model).register_forward_hook(lambda part, inputs, out: 10 * out)
            after = model(images)
        if remove:
            hook.remove()
        return bool(compare(before, after))

    return fn


def test_ends_with_norm():
    def same(a, b):
        return torch.allclose(a, b, rtol=1e-3, atol=1e-3)

    assert_hints(
        "ends_with_norm",
        ends_with_norm,
        {
            "answer is True for all": _always(True),
            "answer is False for all": _scaled_stream(same, module=lambda model: model),
            "turned round": _scaled_stream(lambda a, b: not same(a, b)),
            "a hook was left": _scaled_stream(same, remove=False),
            " of the ViT was changed": _spoils_the_model(ends_with_norm),
            "never runs it": lambda model, images: any(
                isinstance(part, nn.LayerNorm) for part in [model.norm, *model.head.modules()]
            ),
            "part of the head": lambda model, images: (
                isinstance(model.norm, nn.LayerNorm) and type(model).__name__ == "ViT"
            ),
            "hid the missing norm": _scaled_stream(lambda a, b: not torch.allclose(10 * a, b, rtol=1e-3, atol=1e-4)),
            "model.eval() first": _scaled_stream(same, mode=lambda model: None),
            "mean pooling": lambda model, images: ends_with_norm(model, images) and model.config.pool == "cls",
        },
    )


def _influence(decide, x_of=lambda x: x):
    def fn(attention, x):
        x = x.clone().requires_grad_()
        out = attention(x)
        rows = [
            torch.autograd.grad(out[..., i].sum(), x, retain_graph=True)[0].abs().amax(dim=(0, 1))
            for i in range(out.shape[-1])
        ]
        return bool(decide(torch.stack(rows)))

    return fn


def test_heads_see_everything():
    right = heads_see_everything

    def tokens(attention, x):
        x = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(attention(x)[0, 0].sum(), x)
        return bool((gradient[0].abs().sum(dim=-1) > 0).all())

    assert_hints(
        "heads_see_everything",
        right,
        {
            "answer is True for all": tokens,
            "answer is False for all": _influence(lambda matrix: (matrix == 0).all()),
            "turned round": _influence(lambda matrix: (matrix == 0).any()),
            "in place": _spoils_the_images(right),
            "A loop is no bug": lambda attention, x: right(attention, x) and not hasattr(attention, "heads"),
            "the first half of the output sees": _influence(lambda matrix: (matrix[0] > 0).all()),
            "the second half of the output sees": _influence(lambda matrix: (matrix[-1] > 0).all()),
            "one head": lambda attention, x: right(attention, x) and getattr(attention, "num_heads", 2) > 1,
            "A small influence": _influence(lambda matrix: (matrix > 1e-5).all()),
            "raised": lambda attention, x: attention.qkv.weight.shape[0] == 36,
            "which numbers of a token matter": lambda attention, x: type(attention).__name__ != "HalfSliced",
        },
    )


def test_scale_is_right():
    def test_with(shape=(3, 2, 3, 5, 8), size=1.0, same=lambda a, b: torch.allclose(a, b, rtol=1e-3, atol=1e-4)):
        def fn(attend):
            q, k, v = size * torch.randn(shape)
            return same(attend(q, k, v), F.scaled_dot_product_attention(q, k, v))

        return fn

    def against_formula(same):
        def fn(attend):
            q, k, v = torch.randn(3, 2, 3, 5, 8)
            return same(attend(q, k, v), (q @ k.mT * 8**-0.5).softmax(dim=-1) @ v)

        return fn

    def square(attend):
        return test_with((3, 2, 3, 8, 8))(attend)

    def wrong_truth(scale):
        def fn(attend):
            q, k, v = torch.randn(3, 2, 3, 5, 8)
            return torch.allclose(
                attend(q, k, v), F.scaled_dot_product_attention(q, k, v, scale=scale), rtol=1e-3, atol=1e-4
            )

        return fn

    assert_hints(
        "scale_is_right",
        scale_is_right,
        {
            "answer is True for all": test_with((3, 2, 3, 1, 8)),
            "answer is False for all": wrong_truth(0.1),
            "turned round": lambda attend: not scale_is_right(attend),
            "formula of chapter 3": wrong_truth(1 / 8),
            "It rounds otherwise": against_formula(torch.equal),
            "With one head": test_with((3, 2, 1, 5, 8)),
            "number of *tokens*": square,
            "off by a twentieth": test_with(same=lambda a, b: torch.allclose(a, b, atol=0.2)),
            "not scaled at all": lambda attend: scale_is_right(attend) or wrong_truth(1.0)(attend),
            "instead of its root": lambda attend: scale_is_right(attend) or wrong_truth(1 / 8)(attend),
        },
    )


def test_any_batch_size():
    def same(a, b):
        return a.shape == b.shape and torch.allclose(a, b, rtol=1e-3, atol=1e-4)

    def closer(a, b):
        return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=2e-6)

    def rows_alone(model, images, close=same, mode=lambda model: model.eval()):
        mode(model)
        with torch.no_grad():
            together = model(images)
            alone = torch.stack([model(image[None])[0] for image in images])
        return close(together, alone)

    def in_pairs(model, images):
        """The batch of one image is never tried."""
        model.eval()
        with torch.no_grad():
            pairs = torch.cat([model(images[i : i + 2]) for i in (0, 2)])
            return same(model(images)[:4], pairs)

    def caught(fn):
        def answer(model, images):
            try:
                return fn(model, images)
            except RuntimeError:
                return False

        return answer

    def same_image_everywhere(model, images):
        model.eval()
        with torch.no_grad():
            out = model(images[:1].expand_as(images))
        return same(out, out[:1].expand_as(out))

    def first_row(model, images):
        model.eval()
        with torch.no_grad():
            return same(model(images)[:1], model(images[:1]))

    def last_row(model, images):
        model.eval()
        with torch.no_grad():
            return same(model(images)[-1:], model(images[-1:]))

    assert_hints(
        "any_batch_size",
        any_batch_size,
        {
            "answer is True for all": _always(True),
            "answer is False for all": caught(lambda model, images: rows_alone(model, images) and None is model),
            "turned round": lambda model, images: not any_batch_size(model, images),
            "in place": _spoils_the_images(any_batch_size),
            "raised RuntimeError": rows_alone,
            "It runs with every size": caught(first_row),
            "an axis is lost": caught(in_pairs),
            "let the exception be the answer": same_image_everywhere,
            "row 2 alone": caught(last_row),
            "positions that number": lambda model, images: (
                any_batch_size(model, images) or type(model).__name__ == "PositionsByRow"
            ),
            "model.eval() first": caught(lambda model, images: rows_alone(model, images, mode=lambda model: None)),
            "rounding was taken": caught(lambda model, images: rows_alone(model, images, close=closer)),
        },
    )


def _history(test, val=(0.6, 0.9, 0.7, 0.8, 0.5, 0.4)):
    return [
        {"train_loss": 1 - i / 10, "val_loss": 1 - v, "val_accuracy": v, "test_loss": 1 - t, "test_accuracy": t}
        for i, (v, t) in enumerate(zip(val, test, strict=True))
    ]


def test_chosen_without_the_test_set():
    right = chosen_without_the_test_set
    val = (0.6, 0.9, 0.7, 0.8, 0.5, 0.4)

    # Validation accuracy is best in pass 1, validation loss in pass 2.
    apart = [{**entry, "val_loss": abs(i - 2)} for i, entry in enumerate(_history(val))]

    def spike(place):
        return [0.95 if i == place else 0.3 for i in range(6)]

    def moves(*tests):
        return lambda select: len({select(_history(test)) for test in tests}) == 1

    def drop_keys(select):
        try:
            select([{key: entry[key] for key in entry if not key.startswith("test")} for entry in _history(val)])
        except KeyError:
            return False
        return True

    def accuracies_only(select):
        first, second = _history(spike(0)), _history(spike(5))
        for a, b in zip(first, second, strict=True):
            b["test_loss"] = a["test_loss"]
        return select(first) == select(second)

    assert_hints(
        "chosen_without_the_test_set",
        right,
        {
            "answer is True for all": moves(val, val),
            "answer is False for all": _always(False),
            "turned round": lambda select: not right(select),
            "no choice, and": lambda select: right(select) and select(apart) != 5,
            "validation accuracy is fine": lambda select: right(select) and select(apart) != 1,
            "validation *loss*": lambda select: right(select) and select(apart) != 2,
            "pass 0, settled": lambda select: right(select) and select(apart) != 0,
            "pass 4, settled": lambda select: select(_history(spike(4))) != 4,
            "choice by test *loss*": accuracies_only,
            "validation and test together": moves([v / 10 for v in val], [0.31, 0.31, 0.3, 0.32, 0.3, 0.3]),
            "Do not leave them out": drop_keys,
            "best of the last three": moves(spike(0), spike(1)),
            "never the first or the last": moves(spike(0), spike(5)),
            "must disagree": lambda select: right(select) or select(_history(val, val)) == 1,
        },
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_tolerance_that_is_too_narrow_is_named(seed):
    torch.manual_seed(seed)

    def scale_is_right(attend):
        q, k, v = torch.randn(3, 2, 3, 5, 8)
        return torch.allclose(attend(q, k, v), F.scaled_dot_product_attention(q, k, v), rtol=1e-7, atol=1e-9)

    with pytest.raises(CheckFailed, match="Two right ways round differently: give allclose an atol of 1e-5"):
        exercise("scale_is_right", scale_is_right)
    with pytest.raises(CheckFailed, match="your tolerance is too narrow for ε and rounding"):
        exercise("ends_with_norm", _scaled_stream(torch.allclose))


@pytest.mark.parametrize("seed", range(3))
def test_the_tolerances_that_the_hints_name_will_do(seed):
    torch.manual_seed(seed)

    def scale_is_right(attend):
        q, k, v = torch.randn(3, 2, 3, 5, 8)
        return torch.allclose(attend(q, k, v), F.scaled_dot_product_attention(q, k, v), atol=1e-5)

    exercise("scale_is_right", scale_is_right)
    exercise("ends_with_norm", _scaled_stream(lambda a, b: torch.allclose(a, b, rtol=1e-3, atol=1e-3)))


def test_a_model_that_refuses_the_whole_batch_depends_on_its_size():
    assert not any_batch_size(StrictClassToken(CONFIG), torch.randn(4, 3, 12, 8))
