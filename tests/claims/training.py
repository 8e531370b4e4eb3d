"""What chapter 6 says in numbers, held to what its cells computed."""

import itertools
import math

import torch
import torch.nn.functional as F
from claiming import after, claim

from vit_tutorial import training
from vit_tutorial.metrics import recipe_from_dict
from vit_tutorial.recipes import RECIPES, load_split
from vit_tutorial.runs import load_metrics, load_recorded, load_seeds
from vit_tutorial.what_matters import SWEEPS, effect, effect_interval, load_sweep


def real(data, budget_is_fine=True):
    """Whether the whole of MNIST is there."""
    return data == "mnist" and budget_is_fine


def accuracy_of(run):
    return load_metrics(run)["test"]["accuracy"]


def confusion_of(run):
    return torch.tensor(load_metrics(run)["test"]["confusion"]).float()


@after("never-five")
def seed_0_never_says_five(data, said, silent, train, val, digit):
    unlucky = confusion_of("mnist-published")
    claim("5,689 parameters", sum(p.numel() for p in silent.parameters()) == 5_689)
    claim("for five epochs", RECIPES["mnist-published"].epochs == 5)
    shares = [run["test"]["accuracy"] for run in load_seeds("mnist-published")]
    claim("promises about 92 %", 0.92 < max(shares) < 0.93)  # and one run keeps it
    claim("with 91.3 % and 92.1 %", [round(100 * share, 1) for share in shares[1:]] == [91.3, 92.1])
    claim("all 892 fives", unlucky[5].sum() == 892 and unlucky[5, 5] == 0)
    claim('It never says "five" at all', unlucky[:, 5].sum() == 0)
    never = [(confusion.sum(dim=0) == 0).any().item() for confusion in confusions("mnist-published")]
    claim("The third, the run with seed 0", never == [True, False, False])
    claim(None, (said != 5).all(), when=real(data))
    claim("The model learns from 55,000", len(train) == 55_000, when=real(data))
    claim("And 5,000, the validation images, are set apart", len(val) == 5_000, when=real(data))


@after("best-of-twenty")
def the_best_of_twenty_was_lucky(scores, truth, images_read):
    lucky = 100 * (scores.amax(dim=1) - truth).mean()
    claim(
        "Half a point, by luck alone",
        0.4 < lucky < 0.6,
        when=(scores.shape[1], truth, images_read) == (20, 0.92, 10_000),
    )


@after("adam-step")
def the_first_step_has_full_length(first, lr, gradients):
    claim("Each moves by the full learning rate", torch.allclose(first, -lr * gradients.sign(), rtol=1e-3))


@after("watch")
def it_reads_soon(data, history, small, model):
    reads = [entry["val_accuracy"] for entry in history]
    fine = real(data, small == small_of_the_page(small) and len(reads) == 2)
    claim("19,658 parameters", sum(p.numel() for p in model.parameters()) == 19_658, when=fine)
    claim("more than 85 of 100 validation images after one epoch", reads[0] > 0.85, when=fine)
    claim("about 95 after two", 0.935 < reads[-1] < 0.97, when=fine)


def small_of_the_page(small):
    """The recipe, if its numbers are the page's."""
    return small if (small.lr, small.model.embed_dim, small.seed) == (1.5e-2, 32, 0) else None


@after("watch")
def nothing_is_known_by_heart(data, asked, model, small):
    shares = [training.evaluate(model, part, small)["accuracy"] for part in asked.values()]
    claim("hardly better than new ones", shares[0] - shares[1] < 0.025, when=real(data))


@after("far-above")
def a_first_loss_far_above(clueless, few):
    claim("2.30 for ten digits", round(math.log(10), 2) == 2.3)
    losses = [F.cross_entropy(scale * clueless, few.labels).item() for scale in (0, 1, 10)]
    claim("costs $\\ln k$", math.isclose(losses[0], math.log(10), rel_tol=1e-4))
    claim("confidence without knowledge", losses[1] < 3.5 < 7 < losses[2])


@after("rates")
def rates_too_low_and_too_high(by_rate, data, sick_steps):
    low, right, high = (by_rate.get(f"rate {rate}") for rate in ("0.0003", "0.01", "0.3"))
    if low is not None and right is not None and high is not None:
        fine = real(data, sick_steps >= 100)
        claim("the loss falls, but slowly", right[-30:].mean() + 0.4 < low[-30:].mean() < low[:10].mean(), when=fine)
        claim("leaps far above $\\ln k$", high.max() > 4 * math.log(10), when=fine)


@after("misread")
def mistakes_have_a_pattern(data, answers, test, counts, small):
    fine = real(data, small == small_of_the_page(small) and small.epochs == 2)
    claim("Some 4 in 100 are misread", 0.025 < (answers != test.labels).float().mean() < 0.065, when=fine)
    pairs = counts + counts.T
    worst = pairs.triu(1).flatten().topk(6).indices.tolist()
    claim("such as fours and nines, far more often than most", 49 in worst, when=fine)
    claim("seed 0 still scores 85 %", 0.84 < accuracy_of("mnist-published") < 0.855)


@after("rare")
def rare_fives_flatter():
    whole = confusion_of("mnist-published")
    fewer = whole.clone()
    fewer[5] *= 0.1
    blind = [(matrix.diag() / matrix.sum(dim=1)).mean() for matrix in (whole, fewer)]
    claim("now scores 92 %", 0.915 < fewer.diag().sum() / fewer.sum() < 0.925)
    claim("doesn't move", torch.isclose(*blind))
    claim("The zero in the five's row", whole[5, 5] == 0)


@after("recipes")
def the_rungs_are_those_that_were_recorded(LADDER):
    made = dict(LADDER.values())
    fixed = made["mnist-fixed"]
    for name, recipe in made.items():
        for run in load_seeds(name):
            kept = recipe_from_dict(run["recipe"])
            claim(None, kept.model == recipe.model and kept.lr == recipe.lr, when=recipe == RECIPES.get(name, recipe))
    claim("the last with one", [len(load_seeds(name)) for name in made] == [3] * 6 + [1])
    untouched = fixed == RECIPES["mnist-fixed"]
    claim("at a third of the rate", math.isclose(made["mnist-wide"].lr, fixed.lr / 3), when=untouched)


@after("ladder")
def the_ladder_climbs():
    names = ["mnist-published", "mnist-logits", "mnist-fixed", "mnist-wide", "mnist-patch14", "mnist", "mnist-patch4"]
    wrong = {name: [100 * (1 - run["test"]["accuracy"]) for run in load_seeds(name)] for name in names}
    mean = {name: sum(runs) / len(runs) for name, runs in wrong.items()}
    rounded = [round(value, 1) for value in mean.values()]
    claim("from 10.6 % to 4.8 %", rounded[:2] == [10.6, 4.8])
    claim("from 3.4 % to 1.6 %", rounded[2:4] == [3.4, 1.6])
    claim("down to 0.8 %", rounded[4] == 0.8)
    claim("from the published result to over 99 %", max(rounded[4:]) < 1)
    third = mean["mnist-fixed"] / mean["mnist-published"]
    claim("Two thirds of the mistakes are gone before the model grows", 0.63 < 1 - third < 0.7)
    claim(None, {load_seeds(name)[0]["parameters"] for name in names[:3]} == {5_689})
    fewer = 1 - mean["mnist-logits"] / (sum(wrong["mnist-published"][1:]) / 2)
    claim("remove only four mistakes in ten", 0.35 < fewer < 0.45)
    halved = [later < 0.52 * former for former, later in itertools.pairwise(mean.values())]
    claim("Three of the six steps about halve", halved == [True, False, True, True, False, False])
    claim("about 0.2 points", 0.15 < 196 * (0.992 * 0.008 / 10_000) ** 0.5 < 0.25)
    hardest = {name: [min(c.diag() / c.sum(dim=1)) for c in confusions(name)] for name in names[1:]}
    lowest = [math.floor(100 * min(shares)) for shares in hardest.values()]
    claim("each reads at least 88 % of its hardest digit", min(lowest) == 88)
    top = [100 - share for name in names[4:] for share in wrong[name]]
    claim("99.1 % to 99.3 % of the test images", (round(min(top), 1), round(max(top), 1)) == (99.1, 99.3))
    claim("loses to two at 14 × 14", sum(s < max(wrong["mnist"]) for s in wrong["mnist-patch14"]) == 2)
    claim("a result of 99.2 %", 99.1 < 100 - mean["mnist"] < 99.3)


def confusions(name):
    return [torch.tensor(run["test"]["confusion"]).float() for run in load_seeds(name)]


@after("ladder")
def smaller_patches_on_rung_3():
    on_val = {
        size: torch.tensor([100 * (1 - run["history"][-1]["val_accuracy"]) for run in load_seeds(f"mnist-fixed{size}")])
        for size in ("", "-patch7", "-patch4")
    }
    claim("make more mistakes than those of 16 × 16 with every seed", on_val["-patch7"].min() > on_val[""].max())
    _, low, high = effect_interval(on_val[""].double(), on_val["-patch4"].double())
    claim("between 4 × 4 and 16 × 16 there's no significant difference", low < 0 < high)
    narrow = [run["test"]["accuracy"] for run in load_seeds("mnist-tiny")]
    claim("as few parameters read more than 98 % at 4 × 4", len(narrow) == 3 and min(narrow) > 0.98)


@after("pull")
def two_softmaxes_pull_weakly(pull):
    uneven = torch.randn(10_000, 10) * torch.linspace(0, 12, 10_000)[:, None]
    chance = uneven.softmax(dim=1)[:, 0]
    claim("up by $1 - p$", torch.allclose(pull(uneven, False), 1 - chance, rtol=1e-3, atol=1e-5))
    inside = (chance > 0.01) & (chance < 0.99)  # outside, rounding spoils the ratio
    ratio = (pull(uneven, True) / (chance * (1 - chance)))[inside]
    claim("about that much arrives", ratio.min() > 0.8 and ratio.max() < 1.2)


@after("softmaxes")
def the_runs_stay_above_their_floor():
    ends = {n: [run["history"][-1]["train_loss"] for run in load_seeds(n)] for n in ("mnist-published", "mnist-logits")}
    floor = math.log(1 + 9 / math.e)
    claim("$\\ln(1 + 9/e) = 1.461$", round(floor, 3) == 1.461)
    claim("flattens out just above 1.461", all(floor < end < 1.7 for end in ends["mnist-published"]))
    claim("seed 0, dashed, stays highest", ends["mnist-published"][0] > max(ends["mnist-published"][1:]))
    claim(None, max(ends["mnist-logits"]) < 0.2)


@after("train-on")
def the_five_comes_back(data, read):
    _, recipe = load_recorded("mnist-published-15-epochs")
    claim("for ten epochs more", recipe.epochs == RECIPES["mnist-published"].epochs + 10)
    claim("nothing for eleven epochs", all(read[epoch] == 0 for epoch in range(5, 12)), when=real(data))
    claim("then most fives within one", read[12] > 0.7, when=real(data))
    if real(data):
        silent, old = load_recorded("mnist-published")
        fives = load_split(old, "test")
        typical = training.predict(silent, fives[fives.labels == 5], old)[:, 5].median()
        claim("about one in a billion", 3e-10 < typical < 3e-9)


@after("fresh-adam")
def a_fresh_adam_finds_it(data, went_on):
    fine = real(data)
    two, one = went_on["two softmaxes"], went_on["one softmax"]
    claim("With one softmax, most fives are back within 100 steps", one.get(100, 0) > 0.5, when=fine)
    claim("With two it takes longer", two.get(50, 1) < one.get(50, 0), when=fine)
    claim("yet less than an epoch", two.get(200, 0) > 0.2, when=fine)


@after("one-matrix")
def one_matrix_does_as_well(data, one_matrix, test, plain):
    claim("with 7,850 parameters", sum(p.numel() for p in one_matrix.parameters()) == 7_850)
    share = training.evaluate(one_matrix, test, plain)["accuracy"]
    claim("It reads about 92 % too", 0.905 < share < 0.93, when=real(data, plain.epochs == 1 and plain.lr == 3e-3))
    claim("prints 9,299 of 10,000 as 92 %", 100 * 9_299 // 10_000 == 92)


@after("ingredients")
def what_the_ingredients_are_worth(rows):
    recorded = [row for row in load_sweep("mnist") if row["seed"] < 6]
    tried = SWEEPS["mnist"].recipes
    names = ["no-warmup", "constant-lr", "decay-0", "no-augment", "no-ema", "no-clipping", "adamw-quarter-lr"]
    names += ["label-smoothing", "mixup", "decay-all", "softmax-head"]
    found = {name: effect(recorded, name) for name in names}
    points = {name: round(middle, 1) for name, (middle, _, _) in found.items()}
    clear = {name for name, (_, low, high) in found.items() if low > 0 or high < 0}
    helps = {"constant-lr", "decay-0", "no-augment", "adamw-quarter-lr"}
    claim(None, clear == helps | {"decay-all", "softmax-head"})
    base = sum(row["val_accuracy"] for row in recorded if row["variant"] == "base")
    base = 100 * base / sum(row["variant"] == "base" for row in recorded)
    claim("it then reads 97.5 % of the validation images", round(base, 1) == 97.5)
    ends = [abs(end) for name in ("no-warmup", "no-clipping") for end in found[name][1:]]
    claim("accuracy changes by 0.0 ± 0.3 points", max(ends) < 0.35)
    claim("Weight decay and Muon are worth 1.3 points each", points["decay-0"] == points["adamw-quarter-lr"] == -1.3)
    more = [-found[name][0] / (100 - base) for name in ("decay-0", "adamw-quarter-lr")]
    claim("mistakes rise by about half", all(0.45 < share < 0.55 for share in more))
    claim("Augmentation is worth 0.8 points", points["no-augment"] == -0.8)
    claim("the schedule 0.9, though", points["constant-lr"] == -0.9)
    claim("its interval barely excludes zero", -0.1 < found["constant-lr"][2] < 0)
    claim("The extra softmax costs 7.6", points["softmax-head"] == -7.6)
    wide = [found[name][2] - found[name][1] for name in ("label-smoothing", "mixup")]
    claim("the intervals span two points", all(1.8 < width < 2.5 for width in wide))
    claim("decaying them too gained 0.4 points", points["decay-all"] == 0.4)
    claim("Weight decay brought 1.3 points", points["decay-0"] == -1.3)
    claim("augmentation was worth 0.8 points", points["no-augment"] == -0.8)
    claim("Without the falling rate, 0.9 points are gone", points["constant-lr"] == -0.9)
    claim(None, tried["adamw-quarter-lr"].lr == tried["base"].lr / 4)
    claim("in two epochs of rung 6", tried["base"].epochs == 2)
    shapes = effect(load_sweep("shapes"), "no-warmup")
    claim("leaving it out costs 6 to 32 points", (round(-shapes[2]), round(-shapes[1])) == (6, 32))


@after("by-heart")
def unchanged_images_are_known_by_heart():
    ends = [run["history"][-1] for run in load_seeds("mnist")]
    end = load_metrics("mnist-plain")["history"][-1]
    claim("reads 99.8 % of them", round(end["train_accuracy"], 3) == 0.998)
    claim("only 98.7 % of new ones", round(end["val_accuracy"], 3) == 0.987)
    claim("fewer than any run above", min(e["val_accuracy"] for e in ends) > end["val_accuracy"])


@after("soft-labels")
def soft_labels_have_a_floor(smooth_labels):
    target = smooth_labels(torch.tensor([0]), 10, 0.1)
    entropy = F.cross_entropy(target.log(), target).item()
    claim("0.500 for ten classes and a smoothing of 0.1", round(entropy, 3) == 0.5)
    claim("0.91 to the true class", round(target.max().item(), 2) == 0.91)


@after("whose-fault")
def the_worst_moments(data, truths, guesses, wrongly):
    claim("only 71 of the 10,000", abs(wrongly - 71) < 4, when=real(data))
    claim("The label of d is a five", truths[3] == 5, when=real(data))
    claim("the model reads a six", guesses[3] == 6, when=real(data))
