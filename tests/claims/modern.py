"""What chapter 13 says in numbers, held to what its cells computed.

What is told about the sweep is held to its recorded rows.
"""

import torch
from claiming import after, claim

from vit_tutorial.recipes import RECIPES, make_model
from vit_tutorial.runs import load_seeds
from vit_tutorial.what_matters import SWEEPS, load_sweep
from vit_tutorial.what_matters.effects import gains


def mistakes(name):
    """The fraction of the test images that the recipe's recorded runs get wrong, on average."""
    wrong = [1 - run["test"]["accuracy"] for run in load_seeds(name)]
    return sum(wrong) / len(wrong)


@after("rope")
def one_pattern_travels(scores, trained, larger):
    claim("on all 64 patches of an 8 × 8 grid. That's 4,096 scores", scores[trained].numel() == 4096)
    claim("the larger grid shows more of it", larger > trained)


@after("offsets")
def offsets_decide(index, apart_by_offset, pairs):
    claim("at most 225 for 15 · 15 offsets", len(index.unique()) == 225 == 15**2)
    by_size = pairs.flatten().sort().values
    claim("left and right, up and down score the same, and 64 are left", int((by_size.diff() > 1e-4).sum()) + 1 == 64)
    claim("Scores of equal offsets are the same up to rounding", apart_by_offset(pairs) < 1e-4 * pairs.max().item())


@after("pairing")
def the_other_pairing_passes_too(other, apart_by_offset, pairs, difference):
    claim("scores depend on the offset just as well", apart_by_offset(other) < 1e-4 * pairs.max().item())
    claim("They're merely other scores", difference > 0.05)


@after("left-run")
def on_larger_grids(named, grids, seeds):
    claim("Trained on 6 × 6 patches, asked on larger grids; three seeds each", grids[0] == 6 and len(seeds) == 3)
    ends = {kind: [run[-1] for run in runs] for kind, runs in named.items()}
    claim("All four learn the task on 6 × 6 patches", all(run[0] > 0.85 for runs in named.values() for run in runs))
    counts_steps = min(ends["RoPE"] + ends["clipped"])
    claim("RoPE and clipped offsets still name more than 95 % of the left neighbour's colours", counts_steps > 0.95)
    claim("a stretched learned table does worse than guessing the mean", max(ends["learned table"]) < 0)


@after("left-padded")
def a_table_that_is_padded(named, padded):
    claim(
        "a bias table names less than 20 % when it's stretched and more than 40 % when it's padded",
        max(run[-1] for run in named["bias table"]) < 0.2 and min(padded) > 0.4,
    )


@after("outliers")
def no_outliers_but_plain_patches(long, is_long, contrast, test, run, number):
    fine = test.variant.startswith("CIFAR-10") and (run, number) == ("cifar10-small", 300)
    claim(
        "among these 600 images, the longest token is about 3 times as long", 2.3 < long.max().item() < 3.5, when=fine
    )
    plain, others = contrast[is_long].median(), contrast[~is_long].median()
    claim("Half of their patches have less than half of the usual contrast", bool(plain < 0.5 * others), when=fine)


@after("test-time")
def one_empty_token_takes_over(long, new, long_with, limit, logits, logits_with, labels, test, run, number, count):
    fine = test.variant.startswith("CIFAR-10") and (run, number, count) == ("cifar10-small", 300, 40)
    before, after = int((long[-1, new] > limit).sum()), int((long_with[-1] > limit).sum())
    claim("among 300 new images, the long tokens fall to less than a third", after < before / 3, when=fine)
    right = [(each.argmax(dim=1) == labels).double().mean().item() for each in (logits[new], logits_with)]
    claim("the accuracy changes by less than 2 points", abs(right[0] - right[1]) < 0.02, when=fine)


@after("dropout-time")
def fewer_patches_take_less_time(times, patches):
    least = {kept: min(each) for kept, each in times.items()}
    claim("Half of the patches take about half of the time", least[patches // 2] < 0.8 * least[patches])


@after("needle-run")
def the_needle(found, patches):
    claim("The plain mean dilutes the needle 64-fold and is right about one time in four", patches == 64)
    claim(None, all(0.15 < each < 0.35 for each in found["mean"]))
    claim("the pool finds the mark, in all three seeds", min(found["sequence pool"]) > 0.95)


@after("stem")
def what_a_token_reads(reads):
    claim("49 pixels instead of 16", (reads["ConvStem"]["pixels"], reads["PatchEmbed"]["pixels"]) == (49, 16))


@after("rms-run")
def swapped_norms(before, after, fraction):
    claim("The model is right on 99 % of the images", round(before, 2) == 0.99)
    claim("It's still right on 94 %", round(after, 2) == 0.94)
    claim(
        "At the first two norms the mean has 23 and 15 % of a token's mean square",
        [round(100 * each) for each in fraction[:2]] == [23, 15],
    )
    claim("from the third on it has less than 2 %", max(fraction[2:]) < 0.02)


@after("qk-run")
def scores_that_explode(grown, rate):
    claim("A learning rate of 0.03 is thirty times AdamW's default", rate == 30 * 1e-3)
    plain, normed = (torch.stack(grown[name]).amax(dim=1) for name in ("plain", "QK-norm"))
    claim("the largest score of plain attention passes 50", plain.min().item() > 50)
    claim("with QK-norm no score passes 15, with each of three seeds", normed.max().item() < 15 and len(normed) == 3)


@after("deep")
def a_deep_stack_begins(columns, depth):
    moved = [float(each.rstrip("%")) for each in columns["moved by"]]
    claim("48 fresh blocks move the tokens by more than four times their own length", moved[0] > 400 and depth == 48)
    claim("With 0.0001, they move by less than 0.1 %", moved[-1] < 0.1)
    differ = [float(each.rstrip("%")) for each in columns["tokens differ by"]]
    claim("tokens differ by about half as much as before", 0.4 < differ[0] / 99 < 0.6)


@after("swiglu-run")
def a_gate_multiplies(products):
    claim("the gate explains more than 90 % of a product's variance", min(products["SwiGLU"]) > 0.9)
    claim("the plain MLP about 80 % or a little more", 0.75 < min(products["MLP"]) <= max(products["MLP"]) < 0.88)


@after("two-blocks")
def three_models(made):
    sizes = [sum(p.numel() for p in each.parameters()) for each in made.values()]
    claim("All three have about the same size", max(sizes) < 1.05 * min(sizes))
    claim("a ViT of 0.12 million parameters", round(sizes[0] / 1e6, 2) == 0.12)


@after("rows")
def every_part_of_the_sweep_is_named(PARTS):
    base, *variants = SWEEPS["modern"].recipes
    claim("Each variant changes one part", set(variants) == set(PARTS))
    told = SWEEPS["modern"].recipes[base]
    claim(
        "trained for 5 epochs with Muon, here in bfloat16",
        (told.epochs, told.optimizer, told.precision, told.model.pos_embed) == (5, "muon", "bf16", "learned"),
    )


@after("effects")
def what_each_part_is_worth(PARTS):
    rows = load_sweep("modern")
    by_seed = {part: gains(rows, part) for part in PARTS}
    least = {part: each.min().item() for part, each in by_seed.items()}
    most = {part: each.max().item() for part, each in by_seed.items()}
    mean = {part: each.mean().item() for part, each in by_seed.items()}
    claim("each gained more than 2 points", min(least[part] for part in ("layer-scale", "rope", "rope-mixed")) > 2)
    claim("With learned directions it gains alike", abs(mean["rope-mixed"] - mean["rope"]) < 1)
    claim("lost more than 2 points with every seed", most["bias-table"] < -2)
    claim("Leaving out half the patches lost as much", most["patch-dropout"] < -2)
    learned = max(mean["sequence-pool"], mean["attention-pool"])
    claim("Neither learned pool clearly beat the plain mean", learned < mean["mean-pool"])
    claim("The largest gain of all crosses the border of plain", max(mean, key=mean.get) == "conv-stem")
    claim("gained more than 6 points with every seed, both blocks of today more than 3", least["conv-stem"] > 6)
    claim(None, min(least["dinov3"], least["vit5"]) > 3)
    small = ("registers", "rms-norm", "qk-norm", "swiglu", "relative")
    claim("moved it by less than a point on average", all(abs(mean[part]) < 1 for part in small))
    claim("RoPE brings LayerScale less than 1 point more", gains(rows, "rope-layer-scale", "layer-scale").max() < 1)
    beside = gains(rows, "swiglu-layer-scale", "layer-scale")
    claim(
        "SwiGLU, which alone gained with no seed, brings it more than 1 with every seed",
        beside.min() > 1 and most["swiglu"] < 0,
    )


@after("effects")
def what_is_left_in_equal_time(PARTS):
    rows = [row for row in load_sweep("modern") if row["variant"] == "base"] + load_sweep("modern-equal-time")
    by_seed = {part: gains(rows, part) for part in SWEEPS["modern-equal-time"].recipes}
    assert all(len(each) == 3 for each in by_seed.values()), "three seeds of each part"
    claim("RoPE also in equal time", by_seed["rope"].min().item() > 2)
    claim("none of it is left", by_seed["rope-mixed"].max().item() < 0)
    claim("in equal time it gained more than 1 point with every seed", by_seed["patch-dropout"].min().item() > 1)
    kept = [round(by_seed[part].mean().item()) for part in ("vit5", "dinov3", "relative")]
    claim("ViT-5's keeps 1 point, DINOv3's loses 1, and clipped offsets lose 5", kept == [1, -1, -5])


@after("longer")
def what_lasts_twice_as_long(lasting):
    rows = load_sweep("modern-longer") + [x for x in load_sweep("cifar10") if x["variant"] == "resnet-equal-time"]
    claim("for ten epochs; and a ResNet", {row["recipe"]["epochs"] for row in rows} == {10})
    ahead = {part: gains(rows, part) for part in (*lasting, "resnet-equal-time")}
    claim("each gains more than 4 points with every seed", min(ahead[part].min().item() for part in lasting) > 4)
    claim("The ResNet gains more than 8", ahead["resnet-equal-time"].min().item() > 8)
    fractions = ahead["vit5"] / ahead["resnet-equal-time"]
    claim("ViT-5's block closes more than half", fractions.min().item() > 0.5)


@after("spent")
def the_smallest_model(spent):
    parameters, tokens = spent["parameters"], spent["tokens"]
    claim("a tutorial's 5,689 parameters", parameters == [5_689, 5_689, 5_686])
    claim("49 tokens", tokens == [5, 5, 49])
    projection = make_model(RECIPES["mnist-fixed"]).patch_embed.proj.weight.numel()
    claim("Two fifths of them are one matrix", 0.38 < projection / parameters[1] < 0.42)
    block = dict(make_model(RECIPES["mnist-tiny"]).blocks[0].named_parameters())
    offsets = sum(block[name].numel() for name in block if "rel" in name)
    claim("only 48 numbers a block", offsets == 48)
    left = mistakes("mnist-tiny") / mistakes("mnist-fixed")
    claim("About half of the mended tutorial's mistakes are gone", 0.4 < left < 0.6)


@after("stems")
def recipes_with_a_stem(stems):
    claim("makes about two fifths fewer mistakes", 0.55 < mistakes("mnist-stem") / mistakes("mnist") < 0.65)
    plain, stem = RECIPES["cifar10-tiny"], RECIPES["cifar10-tiny-stem"]
    read = [round(100 * (1 - mistakes(name))) for name in ("cifar10-tiny-stem", "cifar10-tiny")]
    claim("reads 85 % instead of 79 (one seed each)", read == [85, 79])
    claim("the epochs or the start changed, too", stem.init != plain.init and stems["epochs"] == [9, 13, 100, 100])
