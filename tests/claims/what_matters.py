"""What chapter 10 says in numbers, held to what its cells computed.

Claims about recorded runs rest once a reader adds their own.
"""

import math

import torch
from claiming import after, claim
from scipy import stats

from vit_tutorial import training
from vit_tutorial.metrics import recipe_from_dict
from vit_tutorial.runs import FOLDER
from vit_tutorial.speed import training_flops
from vit_tutorial.what_matters import SWEEPS, read_rows


def as_shipped(recorded):
    """Whether these are the runs that come with the package."""
    names = {"MNIST": "mnist", "shapes": "shapes", "CIFAR-10": "cifar10"}
    shipped = {
        label: [row for row in read_rows(FOLDER / f"sweeps/{name}.jsonl", SWEEPS[name]) if "broke" not in row]
        for label, name in names.items()
    }
    return recorded == shipped


def mean(rows, variant):
    return 100 * sum(row["val_accuracy"] for row in rows if row["variant"] == variant) / counted(rows, variant)


def counted(rows, variant):
    return sum(row["variant"] == variant for row in rows)


def contains_0(effect):
    return effect[1] < 0 < effect[2]


@after("every-pair")
def one_run_misleads(recorded, base_runs, changed_runs, pairs):
    fine = as_shipped(recorded)
    rounded = [round(x, 1) for x in base_runs.tolist()]
    claim("92.9, 87.6, 92.2, 84.1, 87.6 and 87.8 %", rounded == [92.9, 87.6, 92.2, 84.1, 87.6, 87.8], when=fine)
    behind = round((changed_runs.mean() - base_runs.mean()).item(), 1)
    claim("the learned one is 1.9 points behind", behind == -1.9, when=fine)
    claim(
        "gains 6.8 points; in the worst, it loses 9.8", abs(pairs.max() - 6.8) < 0.05 and pairs.min() < -9.7, when=fine
    )
    claim("one of 18 possible pairs", pairs.numel() == 18, when=fine)
    claim("Five of the 18", int((pairs > 0).sum()) == 5, when=fine)


@after("first-interval")
def the_first_interval(effect_interval, base_runs, changed_runs, recorded):
    ends = [round(end, 1) for end in effect_interval(base_runs, changed_runs)[1:]]
    claim("From −9.6 to +5.8 points", ends == [-9.6, 5.8], when=as_shipped(recorded))
    for degrees, t in ((10, 2.2), (2, 4.3)):
        claim(None, round(float(stats.t.ppf(0.975, degrees)), 1) == t)


@after("promises")
def what_intervals_keep(kept):
    naive = {runs: float(2 * stats.t.cdf(1.96, 2 * runs - 2) - 1) for runs in (2, 10)}  # with ever more worlds
    claim("miss the truth one time in five", 0.15 < 1 - naive[2] < 0.25)
    torch.manual_seed(1)
    by_1_96, by_t = kept(2)
    claim("Student's t keeps its word", by_t > 0.93 and abs(by_1_96 - naive[2]) < 0.06)


@after("plan")
def what_runs_can_show(stands_out, detectable, recorded, spread):
    claim("With three runs of each, a measured effect stands out above 2.3", round(stands_out(3, 3), 1) == 2.3)
    claim("to be seen in four sweeps out of five it needs 3.1", round(detectable(3, 3), 1) == 3.1)
    claim(
        "enough for effects of about eight points",
        7 < spread["shapes"] * detectable(6, 3) < 9,
        when=as_shipped(recorded),
    )
    torch.manual_seed(0)  # and by trying it
    found = stats.ttest_ind(torch.randn(4000, 3).numpy() + detectable(3, 3), torch.randn(4000, 3).numpy(), axis=1)
    claim("missed about every other time", 0.4 < 1 - stats.nct.sf(2.776, 4, stands_out(3, 3) * math.sqrt(1.5)) < 0.6)
    claim(None, 0.77 < (found.pvalue < 0.05).mean() < 0.83)


@after("digits-effects")
def on_the_digits(found):
    claim("Without positions the model loses, and that interval excludes 0", found["no positions"][2] < 0)


@after("bases")
def the_sweeps(recorded):
    fine = as_shipped(recorded)
    spent = sum(row["seconds"] for rows in recorded.values() for row in rows)
    claim("took one core most of a day", 14 < spent / 3600 < 30, when=fine)
    counts = {(counted(rows, "base"), counted(rows, "wide")) for rows in recorded.values()}
    claim("six runs of the base and three of each change", counts == {(6, 3)}, when=fine)
    claim("all trained with Muon", {rows[0]["recipe"]["optimizer"] for rows in recorded.values()} == {"muon"})


@after("sizes")
def equal_sizes(sizes):
    claim(None, all(size["yours"] == size["the sweep's"] for size in sizes.values()))


@after("thirty-changes")
def thirty_changes(recorded, effects):
    fine, shapes, cifar10 = as_shipped(recorded), effects["shapes"], effects["CIFAR-10"]
    four = {variant: shapes[variant][0] for variant in ("no-positions", "no-warmup", "wide", "post-norm")}
    claim(
        "post-norm costs most on the shapes: 62 points, against 46",
        min(four, key=four.get) == "post-norm" and -62.5 < four["post-norm"] < -61.5 and -47 < four["wide"] < -46,
        when=fine,
    )
    claim("On CIFAR-10 it gains about 4", 3.5 < cifar10["post-norm"][0] < 4.5, when=fine)
    excluding = [sum(not contains_0(each) for each in found.values()) for found in effects.values()]
    claim(
        "Of 29 intervals, 13 exclude 0 on MNIST, and 17 on each of the others",
        excluding == [13, 17, 17] and {len(found) for found in effects.values()} == {29},
        when=fine,
    )


@after("all-luck")
def only_luck(alarms, corrected):
    claim("One or two on average", 1.2 < alarms.mean() < 1.8)
    claim("now and then six", 0.02 < (alarms >= 6).mean() < 0.07)
    claim(None, (corrected > 0).mean() < 0.1 < 0.5 < (alarms > 0).mean())


@after("corrected")
def after_the_correction(recorded, effects, passed):
    fine = as_shipped(recorded)
    claim("On MNIST, nearly half of them go", [len(each) for each in passed.values()] == [7, 16, 15], when=fine)
    gone = [x for v, (x, low, _) in effects["MNIST"].items() if low > 0 and v not in passed["MNIST"]]
    claim(
        "Four of these are unrelated changes that each gain 0.4 points",
        len(gone) == 4 and {round(x, 1) for x in gone} == {0.4},
        when=fine,
    )


@after("lucky-seeds")
def the_same_seeds(recorded, lucky_seeds):
    fine = as_shipped(recorded)
    (first, second, _), p = lucky_seeds(recorded["shapes"])
    claim("seed 0 is a good one for most recipes and seed 1 a bad one", first > 0.4 and second < -0.4, when=fine)
    claim("less than once in a hundred times", p < 0.01, when=fine)
    others = [lucky_seeds(recorded[label])[1] for label in ("MNIST", "CIFAR-10")]
    claim("Elsewhere nothing of the kind shows", min(others) > 0.2, when=fine)
    losses = {
        (label, row["variant"], row["seed"]): row["train_losses"] for label, rows in recorded.items() for row in rows
    }
    same = [losses[label, "no-ema", seed] == losses[label, "base", seed] for label in recorded for seed in range(3)]
    claim("its runs are the base's", all(same), when=fine)


@after("lessons")
def five_lessons(recorded, effects, told, names, words, LESSONS):
    fine = as_shipped(recorded)

    def clear(variant):
        """On which data sets a change is clear."""
        return {label for label in recorded if variant in effects[label] and "*" in told(label, words[variant])}

    gains = {
        (label, v) for label, found in effects.items() for v in found if v in clear_gains(label, effects, told, words)
    }
    three = {("CIFAR-10", "post-norm"), ("CIFAR-10", "no-final-norm"), ("CIFAR-10", "positions-2d")}
    claim(
        "Three survive both: post-norm, no final norm and a fixed 2-D table, all on CIFAR-10", gains == three, when=fine
    )
    order = [sorted(found, key=lambda v, found=found: found[v][0]).index("softmax-head") for found in effects.values()]
    claim("It's among the three costliest changes on every data set", max(order) < 3, when=fine)
    everywhere = set(recorded)
    claim(
        "At Muon's rate, AdamW loses everywhere", clear("adamw") == clear("adamw-quarter-lr") == everywhere, when=fine
    )
    claim(None, clear("softmax-head") == clear("wide") == everywhere, when=fine)
    better = [found["adamw-quarter-lr"][0] - found["adamw"][0] for found in effects.values()]
    claim("A quarter of it is better", min(better) > 1, when=fine)
    claim("On MNIST, 14 × 14 cost nothing measurable", clear("patch-14") == set(), when=fine)
    claim(None, clear("patch-16") == {"shapes", "CIFAR-10"}, when=fine)
    strong = LESSONS["Lesson 4: augmentation"]
    claim("All nine means fall", all(found[v][0] < 0 for found in effects.values() for v in strong), when=fine)
    lose = clear("mixup") == clear("cutmix") == {"shapes", "CIFAR-10"} and not clear("rand-augment")
    claim("mixup and CutMix lose clearly on two data sets", lose, when=fine)
    claim("Post-norm ruins the shapes and gains on CIFAR-10", clear("post-norm") == {"shapes", "CIFAR-10"}, when=fine)
    claim("No warm-up costs only the shapes", clear("no-warmup") == {"shapes"}, when=fine)
    without = clear("no-positions") == {"MNIST", "CIFAR-10"} and effects["shapes"]["no-positions"][0] < -2
    claim("No positions at all costs on all three, on two clearly", without, when=fine)
    tables = ("positions-1d", "positions-learned")
    unclear = all(contains_0(effects[label][v]) for label in ("MNIST", "shapes") for v in tables)
    claim("No kind of table clearly differs from another on MNIST or the shapes", unclear, when=fine)
    worst = [effects["shapes"][v][1] for v in tables]
    claim("on the shapes a loss of 8 points can't be excluded", max(worst) < -8, when=fine)


def clear_gains(label, effects, told, words):
    return {v for v, (x, _, _) in effects[label].items() if x > 0 and "*" in told(label, words[v])}


@after("by-seed")
def gains_seed_by_seed(recorded, effects, effect, passed):
    fine = as_shipped(recorded)
    middle, low, high = effect(recorded["shapes"], "mean-pool", by_seed=True)
    claim("2.7 ± 4.3 seed by seed", (round(middle, 1), round(middle - low, 1)) == (2.7, 4.3) and high > 0, when=fine)
    claim("gains 4.9 points on the shapes with all runs", round(effects["shapes"]["mean-pool"][0], 1) == 4.9, when=fine)
    left = [v for v, e in effects["shapes"].items() if e[1] > 0 and effect(recorded["shapes"], v, by_seed=True)[1] > 0]
    claim("On the shapes, no gain is left seed by seed", left == [], when=fine)
    gone = all(v not in passed["MNIST"] for v, e in effects["MNIST"].items() if e[1] > 0)
    claim("on MNIST, none passes the correction", gone, when=fine)
    claim("unclear on all three", not any(passed[label] >= {"mean-pool"} for label in ("MNIST", "CIFAR-10")), when=fine)


@after("fewer-images")
def a_resnet_beside_it(recorded, curves, per_cent):
    fine = as_shipped(recorded)
    lead = {
        (label, model, part): (others.mean() - ours.mean()).item()
        for label, models in curves.items()
        for model in list(models)[1:]
        for part, others, ours in zip(per_cent, models[model], models["ViT"], strict=True)
    }
    claim("The ResNet is ahead everywhere", min(lead.values()) > 0, when=fine)
    of_all, of_few = (lead["CIFAR-10", "ResNet, equal steps", part] for part in (100, 1))
    claim("by 9 points with all images", 8.5 < of_all < 9.6, when=fine)
    claim("by about as many with 1 % of them", 8 < of_few < 10.5, when=fine)


@after("equal-time")
def of_equal_size(recorded):
    for rows in recorded.values():
        of = {row["variant"]: row["parameters"] for row in rows}
        claim("It has no more parameters than the ViT", of["resnet"] <= of["base"])


@after("enough")
def images_that_are_enough(recorded, enough, effect):
    fine = as_shipped(recorded)
    few = [enough["MNIST"] == 0.01, round(100 * enough["shapes"]) == 6, 0.06 < enough["CIFAR-10"] < 0.075]
    claim("With 1 % of MNIST (we tried no less), 6 % of the shapes or about 7 % of CIFAR-10", all(few), when=fine)
    lost = [effect(rows, "fraction-30") for rows in recorded.values()]
    claim("with 30 % of them it loses nothing measurable", all(contains_0(each) for each in lost), when=fine)


@after("twins")
def twins(original, twin, images, mixed, learns):
    with torch.no_grad():
        same, not_the_same = ((each(mixed) - original(images)).abs().max() for each in (twin, original))
    claim("the same outputs on shuffled ones", same < 1e-4 and not_the_same > 0.01)


@after("shuffles-cost")
def what_shuffles_cost(recorded, ahead):
    fine, rows = as_shipped(recorded), recorded["CIFAR-10"]
    low, high = ahead["CIFAR-10"]["patches shuffled"][1:]
    claim("shuffled patches take all of the lead, as far as three runs can tell", low < 0 < high < 1, when=fine)
    moved = mean(rows, "shuffled-patches") - mean(rows, "no-augment")
    claim("the ViT's mean hardly moves, as proved", abs(moved) < 1, when=fine)
    lost = mean(rows, "resnet-no-augment") - mean(rows, "resnet-shuffled-patches")
    claim("the ResNet loses about 11 points", 10 < lost < 12, when=fine)
    left = [leads["pixels shuffled"][1] for leads in ahead.values()]
    claim("the ResNet stays ahead even on shuffled pixels", min(left) > 0, when=fine)


@after("shift-test")
def shifted_images(shifted, strides, dataset, budget, trained, recipes, shift, judges, device):
    told = dataset == "mnist" and budget == "quick"
    bag, ordinary, resnet = (shifted[name] for name in ("ViT, no positions", "ViT, fixed table", "ResNet"))
    back = all(each[7] > min(each[by] for by in range(1, 7)) + 8 for each in (bag, ordinary))
    claim("A whole patch brings both ViTs back up", back, when=told)
    first = {name: each[0] - each[1] for name, each in shifted.items()}
    claim("One pixel costs the ResNet least", min(first, key=first.get) == "ResNet", when=told)
    valleys = [min(range(8), key=each.get) for each in (bag, ordinary, resnet)]
    claim("The bag does worst around half a patch", 2 <= valleys[0] <= 5, when=told)
    claim("has the same valley and the same way back", 2 <= valleys[1] <= 5, when=told)
    claim("around 5 pixels", 4 <= valleys[2] <= 6 and resnet[8] > resnet[valleys[2]] + 3, when=told)
    claim("Its strides multiply to 8", math.prod(strides) == 8)
    # With room all round, a shift by 8 leaves the ResNet's logits alone.
    roomy, net = torch.nn.functional.pad(judges.images[:20], (64,) * 4), trained["ResNet"].eval()
    with torch.no_grad():
        there, by_4, by_8 = (
            net(training.to_input(shift(roomy, by, 0).to(device), recipes["ResNet"])) for by in (0, 4, 8)
        )
    change_4, change_8 = ((there - moved).abs().max() for moved in (by_4, by_8))
    claim("only such a shift moves its features unchanged", change_8 < 1e-3 and change_4 > 10 * change_8)


@after("table-used")
def the_table_is_hardly_used(in_order, without_order, dataset, budget):
    lost = in_order - sum(without_order) / len(without_order)
    claim("this ViT hardly uses its positions yet", lost < 5, when=dataset == "mnist" and budget == "quick")


@after("misled")
def single_runs_mislead(recorded, misled):
    part = {kind: torch.cat(wrong).mean().item() for kind, wrong in misled.items()}
    claim(
        "29 % of our pairs of single runs contradict the means where an interval includes 0, 2 % elsewhere",
        0.27 < part["includes 0"] < 0.31 and 0.01 < part["excludes 0"] < 0.03,
        when=as_shipped(recorded),
    )


@after("best-of")
def out_of_thin_air(recorded, best_of, spread_of):
    claim("One and a half", 1.45 < best_of[10] < 1.65)
    claim("that's 5 points out of thin air", 4.5 < best_of[10] * spread_of["shapes"] < 5.5, when=as_shipped(recorded))


@after("three-more")
def three_more_ways(recorded, whole, rates):
    work = {
        name: training_flops(recipe_from_dict(run["recipe"]).model) * run["samples_seen"] for name, run in whole.items()
    }
    claim("with six times the work", 5.5 < work["cifar10-small"] / work["cifar10-tiny"] < 6.5)
    right = {name: run["test"]["accuracy"] for name, run in whole.items()}
    claim(
        "chapter 7's `cifar10-small` is ahead of `cifar10-tiny`", right["cifar10-small"] > right["cifar10-tiny"] + 0.04
    )
    of = {lr: 100 * right for lr, right in rates}
    claim(
        "at four times its searched rate, our ViT loses 28 points",
        round(of[0.01] - of[0.04]) == 28,
        when=as_shipped(recorded),
    )
    claim("the best looks 2.4 points better than it is", round(154 * math.sqrt(0.6 * 0.4 / 1000), 1) == 2.4)
