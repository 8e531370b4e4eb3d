"""Faults and designs that public code by students has, each in a small model of our own without a known name."""

import pytest
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import nn

from vit_tutorial import diagnose
from vit_tutorial.clinic import probes
from vit_tutorial.clinic.examined import prepared
from vit_tutorial.clinic.inputs import make_images

pytestmark = pytest.mark.usefixtures("no_shape_checks")  # as a reader runs it, in half the time

ROW = "row or size of the batch matters"


class Norm(nn.Module):
    """A LayerNorm of one's own."""

    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.gain * (x - x.mean(dim=-1, keepdim=True)) / (x.std(dim=-1, keepdim=True) + 1e-6)


class Mixer(nn.Module):
    """Attention with 3 heads of width 8."""

    def __init__(self, bug=""):
        super().__init__()
        self.bug = bug
        self.w_q, self.w_k, self.w_v, self.w_o = (nn.Linear(24, 24) for _ in range(4))

    def forward(self, x):
        q, k, v = (rearrange(w(x), "b n (h hd) -> b h n hd", h=3) for w in (self.w_q, self.w_k, self.w_v))
        scores = q @ k.mT * (24 if "scale" in self.bug else 8) ** -0.5
        out = scores.softmax(dim=1 if "heads" in self.bug else 0 if "images" in self.bug else -1) @ v
        return self.w_o(out.reshape(x.shape) if "glue" in self.bug else rearrange(out, "b h n hd -> b n (h hd)"))


class Slices(nn.Module):
    """Three heads, each for a third of the token, with an output projection behind them."""

    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(nn.ModuleDict({name: nn.Linear(8, 8) for name in "qkv"}) for _ in range(3))
        self.w_o = nn.Linear(24, 24)

    def forward(self, x):
        out = []
        for head, part in zip(self.heads, x.chunk(3, dim=-1), strict=True):
            weights = (head["q"](part) @ head["k"](part).mT * 8**-0.5).softmax(dim=-1)
            out.append(weights @ head["v"](part))
        return self.w_o(torch.cat(out, dim=-1))


class Layer(nn.Module):
    """A pre-norm block."""

    def __init__(self, mixer, norm=nn.LayerNorm, bug=""):
        super().__init__()
        self.one, self.mixer, self.two, self.bug = norm(24), mixer, norm(24), bug
        self.hidden, self.back = nn.Linear(24, 48), nn.Linear(48, 24)

    def forward(self, x):
        if self.bug == "stream of norms":
            x = self.one(x)
            x = x + self.mixer(x)
            x = self.two(x)
            return x + self.back(self.hidden(x).relu())
        x = x + self.mixer(self.one(x))
        y = self.back(self.hidden(self.two(x)).relu())
        if self.bug == "in place":
            y = y.relu()
            y += x
            return y
        return x + y


class Stranger(nn.Module):
    """From images to logits, in the words of nobody's library; each bug is one that was found in public."""

    def __init__(self, bug="", mixer=Mixer, norm=nn.LayerNorm, side=32):
        super().__init__()
        self.bug = bug
        self.cut = nn.Linear(192, 24) if bug == "shifted" else nn.Conv2d(3, 24, 8, 8)
        self.start = nn.Parameter(torch.randn(1, 1, 24))
        number = (side // 8) ** 2
        self.where = nn.Parameter(torch.randn(1, 1 if bug in ("one place", "flat") else number + 1, 24))
        layers = [Layer(mixer(), norm, bug) for _ in range(2)]
        self.layers = layers if bug == "a list" else nn.ModuleList(layers)
        self.end = nn.Identity() if bug == "no norm" else norm(24)
        self.classes = nn.Linear((number + 1) * 24 if bug == "flat" else 24, 5)

    def forward(self, images):
        if self.bug == "a batch of 8":
            images = images.view(8, 3, *images.shape[2:])
        if self.bug == "one image":
            images = images.squeeze(0)[None]
            assert len(images.shape) == 4 and len(images) == 1
        if self.bug == "shifted":
            images = images + F.pad(images, (1, -1, 0, 0)) + F.pad(images, (0, 0, 1, -1))
            x = self.cut(rearrange(images, "b c (h p) (w q) -> b (h w) (p q c)", p=8, q=8))
        else:
            x = self.cut(images).flatten(2).mT
        start = self.start.expand(len(x), -1, -1)
        x = torch.cat([x, start] if self.bug == "behind" else [start, x], dim=1) + self.where
        for layer in self.layers:
            x = layer.forward(x) if self.bug == "forward" else layer(x)
        x = self.end(x)
        return self.classes(x.flatten(1) if self.bug == "flat" else x[:, 0])


def bugs(model, **options) -> list[str]:
    return [finding.bug for finding in diagnose(model, **options)]


def mixers(bug):
    return lambda: Mixer(bug)


FAULTS = {
    "a batch of 8": [ROW],
    "one image": [ROW],
    "in place": ["no backward pass"],
    "a list": ["parameters that aren't registered"],
    "behind": ["head reads a patch"],
    "one place": ["blind to the order of patches"],
    "flat": ["blind to the order of patches"],
    "no norm": ["no final norm"],
}


@pytest.mark.parametrize("bug", FAULTS)
def test_a_fault_is_found_and_no_other(bug):
    assert bugs(Stranger(bug)) == FAULTS[bug]


HEALTHY = {
    "plain": lambda: Stranger(),
    "a norm of its own": lambda: Stranger(norm=Norm),
    "forward called directly": lambda: Stranger("forward"),
    "patches that are shifted by a pixel": lambda: Stranger("shifted"),
    "a stream of norms": lambda: nn.Sequential(Stranger("stream of norms", norm=Norm)),
}


@pytest.mark.parametrize("design", HEALTHY)
def test_a_design_is_no_fault(design):
    found = diagnose(HEALTHY[design]())
    assert found == [] and "scale by √dim" in found.passed


def test_what_a_batch_has_to_be_is_said():
    (eight,) = diagnose(Stranger("a batch of 8"))
    assert eight.evidence == "a batch of 8 images runs, one of 1 raises RuntimeError"
    one = diagnose(Stranger("one image"))
    assert one[0].evidence == "a batch of 1 image runs, one of 4 raises AssertionError"
    assert one.not_run["attention across the batch"] == "the model takes only one image at a time"
    assert "scale by √dim" in one.passed and one.advice.startswith("The images were random, 1×3×32×32")


def test_the_evidence_of_a_head_that_reads_a_patch_and_of_tokens_without_a_place():
    (reads,) = diagnose(Stranger("behind"))
    assert reads.evidence == "of 17 tokens the head reads number 0 alone, which is made of 6% of the pixels"
    assert "x[:, -1]" in reads.remedy
    (blind,) = diagnose(Stranger("flat"))
    assert blind.evidence == "in another order the 16 patches leave the last block as the same tokens, in that order"
    fresh = Stranger()
    nn.init.zeros_(fresh.where)  # trainable, and only 0 at the start
    assert bugs(fresh) == []


def test_what_no_optimizer_sees_is_counted():
    model = Stranger("a list")
    (finding,) = diagnose(model)
    expected = sum(1 for layer in model.layers for _ in layer.parameters())
    assert f"for {expected} that model.parameters() does not have" in finding.evidence
    assert "nn.ModuleList" in finding.remedy and not any("layers" in name for name, _ in model.named_parameters())


def test_a_model_without_a_backward_pass_is_asked_what_needs_none():
    found = diagnose(Stranger("in place"))
    assert "inplace operation" in found[0].evidence and "x = x + y" in found[0].remedy
    assert "softmax before cross-entropy" in found.passed and "scale by √dim" in found.passed
    assert found.not_run["dead parameters"].startswith("the model did not run as this test needs it: ")


@pytest.mark.parametrize(
    ("bug", "expected"),
    [
        ("scale", ["scale by √dim"]),
        ("glue", ["heads without a transpose"]),
        ("scale heads", ["scale by √dim", "softmax over the wrong axis"]),
        ("scale glue", ["scale by √dim", "heads without a transpose"]),
    ],
)
@pytest.mark.parametrize("called", ["", "forward"])
def test_two_mistakes_of_one_attention_are_two_findings(bug, expected, called):
    found = diagnose(Stranger(called, mixer=mixers(bug)))
    assert [finding.bug for finding in found] == expected
    assert all("layers.0.mixer" in finding.evidence for finding in found)
    assert ("with what else is wrong in it" in found[0].evidence) == (len(expected) > 1)


def test_over_the_images_of_a_batch_it_is_not_its_size_that_is_blamed():
    found = diagnose(Stranger(mixer=mixers("images")))
    assert [finding.bug for finding in found] == ["attention across the batch", "softmax over the wrong axis"]
    assert found.not_run[ROW] == "the images of a batch depend on each other"


def test_slices_with_a_projection_behind_them():
    (finding,) = diagnose(Stranger(mixer=Slices))
    assert finding.bug == "per-head slices"
    assert finding.evidence == "in block 0, the queries of a head are made of only 8 of a token's 24 numbers"


class Clones(nn.Module):
    """Four layers without a name each, as the Annotated Transformer has them."""

    def __init__(self, scale=8):
        super().__init__()
        self.layers, self.scale = nn.ModuleList(nn.Linear(24, 24) for _ in range(4)), scale

    def forward(self, x):
        q, k, v = (rearrange(layer(x), "b n (h hd) -> b h n hd", h=3) for layer in self.layers[:3])
        weights = (q @ k.mT * self.scale**-0.5).softmax(dim=-1)
        return self.layers[3](rearrange(weights @ v, "b h n hd -> b n (h hd)"))


class CloneAttention(Clones):
    pass


def test_layers_without_a_name_are_known_by_what_they_take():
    found = diagnose(Stranger(mixer=CloneAttention))
    assert found == [] and "scale by √dim" in found.passed
    assert bugs(Stranger(mixer=lambda: CloneAttention(24))) == ["scale by √dim"]
    unknown = diagnose(Stranger(mixer=lambda: Clones(24)))
    assert unknown == [] and "usual names" in unknown.not_run["scale by √dim"]


class Raw(nn.Module):
    """Weights that are no layers, and a softmax in one of its spellings."""

    def __init__(self, softmax):
        super().__init__()
        self.a, self.b, self.c = (nn.Parameter(0.2 * torch.randn(24, 24)) for _ in range(3))
        self.softmax = softmax

    def forward(self, x):
        return self.softmax(x @ self.a @ (x @ self.b).mT * 24**-0.5) @ (x @ self.c)


@pytest.mark.parametrize(
    ("softmax", "axis"),
    [
        (lambda scores: scores.softmax(-1), None),
        (lambda scores: F.softmax(scores, dim=2), None),
        (lambda scores: scores.softmax(dim=1), 1),
        (lambda scores: torch.softmax(scores, -2), 1),
        (lambda scores: F.softmax(scores, dim=1), 1),
        (nn.Softmax(dim=1), 1),
    ],
)
def test_the_axis_of_a_softmax_in_attention_without_layers(softmax, axis):
    found = diagnose(Stranger(mixer=lambda: Raw(softmax)))
    assert [finding.bug for finding in found] == (["softmax over the wrong axis"] if axis else [])
    assert not axis or f"of shape (4, 17, 17) runs over axis {axis}, not over the keys" in found[0].evidence
    assert "usual names" in found.not_run["scale by √dim"] and "masked attention" in found.not_run


def test_an_axis_that_pytorch_guesses():
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        found = diagnose(Stranger(mixer=lambda: Raw(nn.Softmax())))  # over the batch, for three axes
    assert [finding.bug for finding in found] == ["attention across the batch", "softmax over the wrong axis"]


class NoSkip(nn.Module):
    """A block that forgets its stream, before attention or before the MLP."""

    def __init__(self, mixer, where):
        super().__init__()
        self.layer, self.where = Layer(mixer), where

    def forward(self, x):
        one, mixer, two = self.layer.one, self.layer.mixer, self.layer.two
        x = mixer(one(x)) + (0 if self.where == "attention" else x)
        return self.layer.back(self.layer.hidden(two(x)).relu()) + (0 if self.where == "mlp" else x)


@pytest.mark.parametrize("where", ["attention", "mlp", ""])
def test_a_block_without_a_residual(where):
    model = Stranger()
    model.layers = nn.ModuleList(NoSkip(Mixer(), where) for _ in range(3))
    before = [parameter.clone() for parameter in model.parameters()]
    found = diagnose(model)
    assert [finding.bug for finding in found] == (["no residual connection"] if where else [])
    assert not where or found[0].evidence == (
        "with 12 weights and biases at 0, all but those of norms, layers.0 passes nothing on"
    )
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


STREAMS = {  # ways to add up what attention, a, and the MLP, m, give; with the block's norms
    "pre-norm": lambda x, a, m, one, two: (y := x + a(one(x))) + m(two(y)),
    "post-norm": lambda x, a, m, one, two: two((y := one(x + a(x))) + m(y)),
    "norms behind the branches": lambda x, a, m, one, two: (y := x + one(a(x))) + two(m(y)),
    "norms in the stream": lambda x, a, m, one, two: (y := two((z := one(x)) + a(z))) + m(y),
    "parallel": lambda x, a, m, one, two: x + a(y := one(x)) + two(m(y)),
    "parallel, two norms": lambda x, a, m, one, two: x + a(one(x)) + m(two(x)),
    "one branch": lambda x, a, m, one, two: x + m(two(a(one(x)))),
    "skips attention": lambda x, a, m, one, two: x + m(two(x + a(one(x)))),
    "skips attention, post-norm": lambda x, a, m, one, two: two(x + m(one(x + a(x)))),
}


class StreamsLayer(Layer):
    """A block that adds up its branches in one of these ways."""

    def forward(self, x):
        return STREAMS[self.bug](x, self.mixer, lambda y: self.back(self.hidden(y).relu()), self.one, self.two)


@pytest.mark.parametrize("way", STREAMS)
def test_the_second_residual_adds_to_what_the_first_one_gave(way):
    """A parallel block, and residuals that add to what a norm gave, are designs."""
    model = Stranger()
    model.layers = nn.ModuleList(StreamsLayer(Mixer(), bug=way) for _ in range(3))
    before = [parameter.clone() for parameter in model.parameters()]
    found, bug = diagnose(model), "residual that skips attention"
    assert [finding.bug for finding in found] == ([bug] if "skips" in way else [])
    assert not found or found[0].evidence == (
        "with the weights of layers.0.back at 0, what layers.0 returns doesn't depend on its attention"
    )
    silent = "parallel" in way or way == "one branch"
    assert (bug in found.not_run, bug in found.passed) == (silent, not silent and not found)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


class Outside(nn.Module):
    """Residuals are added where the branches are called."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(nn.Sequential(nn.LayerNorm(24), Mixer()) for _ in range(4))

    def forward(self, x):
        for branch in self.branches:
            x = x + branch(x)
        return x


def test_residuals_that_are_added_outside():
    model = Stranger()
    model.layers = nn.ModuleList([Outside()])
    assert bugs(model) == []


def test_one_block_many_times():
    model = Stranger()
    model.layers = nn.ModuleList([Layer(Mixer())] * 3)
    (finding,) = diagnose(model)
    assert finding.bug == "one block many times"
    assert finding.evidence == "layers holds 3 blocks, and 1 of them are different"


class SequenceFirst(nn.Module):
    """Turned for an attention that takes (n, b, d), and back."""

    def __init__(self, turned=True):
        super().__init__()
        self.mha, self.turned = nn.MultiheadAttention(24, 3), turned

    def forward(self, x):
        x = x.transpose(0, 1) if self.turned else x
        out = self.mha(x, x, x)[0]
        return out.transpose(0, 1) if self.turned else out


def test_attention_over_axis_0_is_computed_so():
    found = diagnose(Stranger(mixer=SequenceFirst))
    assert found == [] and {"scale by √dim", "softmax over the wrong axis"} <= set(found.passed)
    assert bugs(Stranger(mixer=lambda: SequenceFirst(turned=False))) == ["attention across the batch"]


def test_no_norm_of_ones_own_behind_the_blocks():
    assert bugs(Stranger("no norm", norm=Norm)) == ["no final norm"]


class AnySize(nn.Module):
    """Positions are made for the tokens that come."""

    def __init__(self, patch_size):
        super().__init__()
        self.cut, self.classes = nn.Conv2d(3, 24, patch_size, patch_size), nn.Linear(24, 5)

    def forward(self, images):
        x = self.cut(images).flatten(2).mT
        return self.classes((x * torch.arange(x.shape[1])[:, None]).mean(dim=1))


@pytest.mark.parametrize(("patch_size", "side"), [(8, 28), (4, 16), (16, 48), (7, 28)])
def test_images_are_no_larger_than_needed(patch_size, side):
    model = AnySize(patch_size)
    with prepared(model, torch.device("cpu")):
        images, _ = make_images(model)
    grid = images.shape[2] // patch_size
    assert 3 <= grid <= 4 and images.shape[2] % patch_size == 0


def test_a_fault_of_ours_is_no_reason(monkeypatch):
    def broken(examined):
        raise RuntimeError("our own")

    monkeypatch.setattr(probes.symptoms, "images_are_independent", lambda model, images: broken(model))
    with pytest.raises(RuntimeError, match="our own"):
        diagnose(Stranger())


def test_the_model_is_as_it_was():
    model = Stranger("forward").train()
    model.end.forward = lambda x: F.layer_norm(x, (24,))  # somebody's patch stays
    patched, names = model.end.forward, [*model.layers[0].__dict__]
    diagnose(model)
    assert model.end.forward is patched and [*model.layers[0].__dict__] == names and model.training
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())


class TokensFirst(Stranger):
    """All blocks work on (n, b, d), and the head reads their mean; healthy, unless attention is turned."""

    def __init__(self, turned=False):
        super().__init__(mixer=lambda: SequenceFirst(turned))

    def forward(self, images):
        x = self.cut(images).flatten(2).mT
        x = torch.cat([self.start.expand(len(x), -1, -1), x], dim=1) + self.where
        x = x.transpose(0, 1)
        for layer in self.layers:
            x = layer(x)
        return self.classes(self.end(x).mean(dim=0))


def test_a_token_s_row_is_no_image_s():
    assert bugs(TokensFirst(), images=torch.randn(8, 3, 32, 32)) == [] == bugs(TokensFirst())
    assert "attention across the batch" in bugs(TokensFirst(turned=True))


class Windows(Mixer):
    """Attention among four tokens in a row: the 17th, the class token's in front of the others, has all of its own."""

    def forward(self, x):
        q, k, v = (rearrange(w(x), "b n (h hd) -> b h n hd", h=3) for w in (self.w_q, self.w_k, self.w_v))
        place = torch.arange(x.shape[1]) // 4
        scores = (q @ k.mT * 8**-0.5).masked_fill(place[:, None] != place, -torch.inf)
        return self.w_o(rearrange(scores.softmax(dim=-1) @ v, "b h n hd -> b n (h hd)"))


def test_windows_in_attention_are_a_design():
    found = diagnose(Stranger(mixer=Windows))
    assert "masked attention" not in [finding.bug for finding in found]
    assert "tokens read those of their window alone" in found.not_run["masked attention"]


class Twice(nn.Module):
    """One norm that two paths lead to."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(192, 4), self.norm)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.norm(self.body(x)))


def test_a_part_with_two_paths_keeps_its_weights():
    model = Twice()
    before, weight = {name: value.clone() for name, value in model.state_dict().items()}, model.norm.weight
    diagnose(model, torch.randn(4, 3, 8, 8), patch_size=4)
    assert model.norm.weight is weight and isinstance(weight, nn.Parameter)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("wrap", [nn.DataParallel, torch.jit.script])
def test_what_copies_or_compiles_a_model_is_named(wrap):
    with pytest.raises(ValueError, match=r"a model: diagnose the model itself"):
        diagnose(wrap(Twice()), torch.randn(4, 3, 8, 8))
