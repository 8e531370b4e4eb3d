"""What the chapters say of the recorded runs in words is what was recorded."""

import re
from functools import cache

import torch

from vit_tutorial.runs import FOLDER, load_metrics, recorded_runs
from vit_tutorial.what_matters import SWEEPS, effect_interval, read_rows

FRACTIONS = ("fraction-1", "fraction-3", "fraction-10", "fraction-30")
INGREDIENTS = (  # of chapter 7's ablation
    *("constant-lr", "no-warmup", "adamw", "adamw-quarter-lr", "decay-all", "no-clipping", "no-average"),
    *("no-final-norm", "torch-init", "no-augment", "rand-augment", "label-smoothing", "mixup", "cutmix"),
)


@cache
def rows_of(sweep: str) -> list[dict]:
    """All recorded runs of a sweep."""
    return read_rows(FOLDER / f"sweeps/{sweep}.jsonl", SWEEPS[sweep])


def recorded(sweep: str, key: str) -> dict[str, list[float]]:
    """One column of a sweep's recorded runs, by recipe: a value for each seed. Runs that broke are left out."""
    values = {}
    for row in rows_of(sweep):
        if "broke" not in row:
            values.setdefault(row["variant"], []).append(row[key])
    return values


def points(sweep: str, key: str = "test_accuracy") -> dict[str, list[float]]:
    """One column of accuracies in per cent."""
    return {name: [100 * share for share in shares] for name, shares in recorded(sweep, key).items()}


def single_changes(values: dict) -> dict:
    """Those of the ViT with one thing changed, and the base: without the ResNet, fractions and shuffled images."""
    return {name: v for name, v in values.items() if not any(w in name for w in ("resnet", "shuffled", "fraction"))}


def effect_of(values: dict[str, list[float]], variant: str, base: str) -> tuple[float, float, float]:
    """How far a recipe's mean is from that of its base, and the two ends of the 95 % interval."""
    return effect_interval(*(torch.tensor(values[name]).double() for name in (base, variant)))


def runs_of(name: str) -> list[dict]:
    """The recorded runs of a name, one for each seed."""
    return [load_metrics(run) for run in recorded_runs() if re.fullmatch(rf"{name}(-\d)?", run)]


def test_what_chapter_10_says_of_mnist_is_what_was_recorded():
    accuracies = points("mnist")
    mean = {variant: sum(found) / len(found) for variant, found in accuracies.items()}
    spent = {variant: min(found) for variant, found in recorded("mnist", "seconds").items()}

    def effect(variant: str, base: str = "base") -> tuple[float, float, float]:
        return effect_of(accuracies, variant, base)

    others = single_changes(mean)
    costly = {"adamw", "softmax-head", "wide", "no-positions"}
    for variant in others:
        middle, low, high = effect(variant)
        assert (middle < -2) == (variant in costly), variant
        if variant in {*costly, "post-norm", "decay-0", "one-head", "no-augment"}:
            assert high < 0, variant
        if variant in ("patch-14", "decay-1"):
            assert low > 0, variant
    tenths = ("post-norm", "no-final-norm", "torch-init", "mean-pool", "positions-1d", "positions-learned", "deep")
    assert all(abs(effect(variant)[0]) < 0.7 for variant in (*tenths, "decay-all", "many-heads", "patch-4"))
    for variant in ("adamw-quarter-lr", "constant-lr"):  # "both intervals contain 0, if barely"
        middle, low, high = effect(variant)
        assert -1.5 < middle < -0.7 and low < 0 < high < 0.2
    assert effect("decay-all")[1] > 0 and effect("mean-pool")[1] < 0 < effect("mean-pool")[2]
    assert effect("rand-augment")[2] < 0 and effect("cutmix")[2] < 0
    unseen = ("raw-pixels", "mixup", "label-smoothing", "no-clipping", "patch-4", "many-heads", "positions-learned")
    assert all(effect(variant)[1] < 0 < effect(variant)[2] for variant in unseen)
    assert all(effect(variant)[2] > 0 for variant in ("no-final-norm", "torch-init", "deep"))
    middle, low, high = effect("no-average")
    assert -0.25 < middle < -0.15 and -0.02 < high < 0  # "two tenths", "barely leaves 0 out"
    found = [effect(variant) for variant in others if variant != "base"]
    assert sum(abs(middle) < 1 for middle, _, _ in found) > 0.6 * len(found)  # "most"
    assert 0.4 < sum(low < 0 < high for _, low, high in found) / len(found) < 0.5  # "nearly half"
    assert all(0.2 < middle < 0.5 for middle, low, _ in found if low > 0)  # "a quarter to half of a point"
    assert 0.4 < spent["patch-14"] / spent["base"] < 0.6 and spent["patch-4"] > 3 * spent["base"]
    times = recorded("mnist", "seconds")
    assert 1.5 < min(times["deep"]) / max(times["base"]) < max(times["deep"]) / min(times["base"]) < 2.1

    best = max(max(accuracies[variant]) for variant in others)
    assert min(accuracies["resnet"]) > best  # "ahead of every ViT of the sweep"
    for variant in ("resnet", "resnet-equal-time"):
        assert effect(variant)[1] > 0 and 100 - mean[variant] < (100 - mean["base"]) / 2
    assert spent["resnet-equal-time"] < spent["base"] < spent["resnet"]
    assert all(mean[f"resnet-{share}"] > mean[share] for share in FRACTIONS)
    assert abs(effect("resnet-fraction-1")[0]) < 0.5

    for order in ("shuffled-patches", "shuffled-pixels"):
        lost = effect(f"resnet-{order}", "resnet-no-augment")[0]
        assert lost < 0 and lost < effect(order, "no-augment")[0]
    assert mean["resnet-shuffled-pixels"] > mean["shuffled-pixels"]
    assert effect("shuffled-patches", "no-augment")[1] > 0 and effect("positions-learned")[2] > 0


def test_what_chapter_10_says_of_the_shapes_is_what_was_recorded():
    accuracies = points("shapes")
    mean = {variant: sum(found) / len(found) for variant, found in accuracies.items()}
    spent = {variant: min(found) for variant, found in recorded("shapes", "seconds").items()}

    def effect(variant: str, base: str = "base") -> tuple[float, float, float]:
        return effect_of(accuracies, variant, base)

    assert 87 < mean["base"] < 93 and 1.5 < torch.tensor(accuracies["base"]).std() < 5  # "nine in ten", "some points"
    dear = {"adamw", "post-norm", "softmax-head", "cutmix", "wide", "raw-pixels", "constant-lr", "no-warmup"}
    dear |= {"patch-16", "adamw-quarter-lr"}
    assert all(effect(variant)[0] < -15 for variant in dear) and effect("patch-16")[0] < -20
    assert all(effect(variant)[2] < 0 for variant in dear)
    on_mnist = points("mnist")
    slight = [variant for variant in dear - {"patch-16"} if effect_of(on_mnist, variant, "base")[0] > -1.1]
    assert len(slight) >= 5  # "also changes that on MNIST are worth a point or less"
    middle, low, high = effect("deep")
    assert -13 < middle < -7 and low < 0 < high and torch.tensor(accuracies["deep"]).std() > 5
    assert -8 < effect("patch-4")[0] < effect("patch-4")[2] < 0 and spent["patch-4"] > 2.5 * spent["base"]
    times = recorded("shapes", "seconds")
    assert min(times["deep"]) > 2 * min(times["base"])  # "more than twice"
    assert effect("raw-pixels")[0] < -30  # "more than thirty points"
    assert min(run["test"]["accuracy"] for run in runs_of("shapes")) > 0.98
    assert mean["wide"] < 50 and mean["post-norm"] < 35
    assert effect("one-head")[2] < 0 and -14 < effect("decay-0")[0] < -6  # "some points", "about ten"
    assert -14 < effect("no-positions")[1] < -7 and effect("no-positions")[2] > 0  # "may be ten points"
    assert all(effect(v)[1] > 0 for v in ("no-final-norm", "many-heads", "mean-pool", "decay-all"))
    assert effect("torch-init")[0] > 2 and effect("torch-init")[1] < 0  # "may be"
    assert all(abs(effect(variant)[0]) < 3 for variant in ("no-clipping", "no-average"))
    assert effect("decay-1")[1] < 0 and effect("decay-1")[0] < 2  # "more than the base has brings nothing"
    assert effect("cutmix")[0] < effect("mixup")[0] < effect("rand-augment")[0]
    assert all(effect(variant)[2] < 0 for variant in ("rand-augment", "mixup", "cutmix"))
    assert effect("no-augment")[1] < 0 < effect("no-augment")[2]

    assert min(mean["resnet"], mean["resnet-equal-time"], mean["resnet-fraction-10"]) > 99.5
    assert spent["resnet-equal-time"] < 1.2 * spent["base"] and spent["base"] < spent["resnet"]
    assert all(mean[f"resnet-{share}"] > mean[share] for share in FRACTIONS)
    assert mean["fraction-10"] < mean["base"] - 10 and mean["fraction-3"] < 40
    assert 12 < mean["fraction-1"] < 17 and 22 < mean["resnet-fraction-1"] < 30  # "one in seven", "about one in four"
    middle, low, high = effect("shuffled-patches", "no-augment")
    assert low < 0 < high and high - low > 4  # "too wide to tell"
    middle, low, high = effect("resnet-shuffled-patches", "resnet-no-augment")
    assert low > -1.5 and high < 0 and middle > -1  # "less than a point"
    lost = [effect(f"{prefix}shuffled-pixels", f"{prefix}no-augment")[0] for prefix in ("", "resnet-")]
    assert lost[0] < lost[1] < -20


def test_what_chapters_7_and_10_say_of_the_ablation_on_cifar10_is_what_was_recorded():
    for key in ("val_accuracy", "test_accuracy"):
        found = {name: v for name, v in points("cifar10", key).items() if name in ("base", *INGREDIENTS)}
        mean = {name: sum(values) / len(values) for name, values in found.items()}
        assert all(len(values) == 2 for values in found.values()) and len(found) == 15  # "two seeds"
        intervals = {name: effect_of(found, name, "base") for name in found if name != "base"}
        if key == "val_accuracy":
            scatter = {name: (torch.tensor(values).var() / 2).item() for name, values in found.items()}
            times = {n: (mean[n] - mean["base"]) / (scatter[n] + scatter["base"]) ** 0.5 for n in intervals}
            assert {n for n, many in times.items() if many < -5} == {
                "adamw", "adamw-quarter-lr", "cutmix", "mixup", "rand-augment",
            }  # fmt: skip
            assert round(times["no-final-norm"]) == 5 and round(times["torch-init"]) == 4
            assert sum(abs(many) > 3 for many in times.values()) == 7  # "every other change within three times its ±"
        worst = sorted(mean, key=mean.get)
        assert worst[0] == "adamw" and set(worst[1:3]) == {"adamw-quarter-lr", "cutmix"}
        assert mean["cutmix"] < mean["mixup"] < mean["rand-augment"] < mean["base"] - 1
        behind, ahead = ("adamw", "adamw-quarter-lr", "cutmix", "mixup"), ("no-final-norm", "torch-init")
        assert all(max(found[name]) < min(found["base"]) for name in behind)
        assert all(min(found[name]) > max(found["base"]) for name in ahead)
        lost = {name for name, (_, _, high) in intervals.items() if high < 0}
        gained = {name for name, (_, low, _) in intervals.items() if low > 0}
        if key == "val_accuracy":
            assert lost == {"adamw", "adamw-quarter-lr", "cutmix"} and not gained
        if key == "test_accuracy":
            assert lost == {"adamw", "adamw-quarter-lr", "mixup", "label-smoothing"} and gained == {"torch-init"}
            assert intervals["label-smoothing"][2] > -0.1  # "barely"
            assert max(found["base"]) - min(found["base"]) < 0.1  # "happen to lie close together"
            assert -6 < intervals["cutmix"][0] < -5 and intervals["cutmix"][2] > 0
            assert all(abs(intervals[name][0]) < 0.5 for name in ("constant-lr", "no-warmup"))
            assert -6 < intervals["constant-lr"][1] < -4 and 4 < intervals["constant-lr"][2] < 6
            assert intervals["no-augment"][1] < 0 < intervals["no-augment"][2]
        others = set(found) - {"base", "rand-augment", *behind, *ahead}
        assert len(others) == 7 and all(abs(mean[name] - mean["base"]) < 2 for name in others)
        assert all(abs(mean[name] - mean["base"]) < 1.1 for name in ("constant-lr", "no-warmup"))


def test_what_chapter_10_says_of_the_model_on_cifar10_is_what_was_recorded():
    found = single_changes(points("cifar10"))
    away = {name: effect_of(found, name, "base") for name in found}
    by = {name: middle for name, (middle, _, _) in away.items()}
    assert [round(by[name]) for name in ("patch-8", "patch-16", "wide", "softmax-head")] == [-4, -10, -6, -13]
    assert round(abs(max(found["deep"]) - min(found["deep"]))) == 2 and by["deep"] < 0
    assert round(by["no-positions"]) == -7 and round(by["mean-pool"]) == 1 and round(by["raw-pixels"]) == -2
    assert round(by["post-norm"]) == 4 and 1 < by["positions-2d"] < by["positions-1d"] < 2
    seen = {"patch-8", "patch-16", "wide", "softmax-head", "no-positions", "post-norm"}
    unseen = {"deep", "one-head", "many-heads", "positions-1d", "positions-2d", "mean-pool", "raw-pixels"}
    assert all(low > 0 or high < 0 for low, high in (away[name][1:] for name in seen))
    assert all(low < 0 < high for low, high in (away[name][1:] for name in unseen | {"decay-0", "decay-1"}))
    on_val = single_changes(points("cifar10", "val_accuracy"))
    for name in ("positions-1d", "positions-2d"):
        middle, low, high = effect_of(on_val, name, "base")
        assert 0 < middle < 1.1 and low < 0 < high  # "one or less"
    middle, low, high = effect_of(on_val, "post-norm", "base")
    assert round(middle) == 3 and low < 0 < high
    spent = recorded("cifar10", "seconds")
    assert pace("cifar10", "base") > 3 * min(spent["patch-8"]) > 3 * min(spent["patch-16"])  # "several times"


def test_what_chapter_10_says_of_all_changes_on_cifar10_is_what_was_recorded():
    clear, far = {}, {}  # by the intervals; by the pooled scatter
    for key in ("test_accuracy", "val_accuracy"):
        found = single_changes(points("cifar10", key))
        assert {len(values) for values in found.values()} == {2} and len(found) - 1 == 29
        away = {name: effect_of(found, name, "base") for name in found if name != "base"}
        clear[key] = {name for name, (_, low, high) in away.items() if low > 0 or high < 0}
        scatter = (sum(torch.tensor(values).var().item() for values in found.values()) / len(found)) ** 0.5
        reach = 2.0423 * scatter  # Student's t of 30 degrees of freedom; the root of 1/2 + 1/2 is 1
        far[key] = {name for name, (middle, _, _) in away.items() if abs(middle) > reach}
        shorter = [name for name, (_, low, high) in away.items() if high - low > 3 * reach]
        assert len(shorter) > 29 / 2  # "mostly much shorter": by a third at least
    losses = {"softmax-head", "patch-16", "patch-8", "no-positions", "wide", "adamw", "adamw-quarter-lr", "mixup"}
    gains = {"post-norm", "torch-init"}
    on_test, on_val = clear.values()
    assert on_test == losses | gains | {"label-smoothing"} and min(points("cifar10")["adamw"]) > 55
    assert on_test - on_val == {"no-positions", "mixup", "label-smoothing"} | gains and on_val - on_test == {"cutmix"}
    on_both = far["test_accuracy"] & far["val_accuracy"]
    assert on_both == losses | gains | {"cutmix", "rand-augment", "deep", "raw-pixels", "no-final-norm"}


def test_what_chapter_10_says_of_the_resnet_on_cifar10_is_what_was_recorded():
    accuracies = points("cifar10")
    mean = {variant: sum(found) / len(found) for variant, found in accuracies.items()}
    vits = [name for name in mean if "resnet" not in name]
    assert min(accuracies["resnet"]) > max(max(accuracies[name]) for name in vits)
    assert round(mean["resnet"] - mean["base"]) == 10 and round(mean["resnet-equal-time"] - mean["base"]) == 15
    spent = recorded("cifar10", "seconds")
    assert max(spent["resnet"]) < max(spent["resnet-equal-time"]) < min(spent["base"])
    ahead = [mean[f"resnet-{share}"] - mean[share] for share in FRACTIONS] + [mean["resnet"] - mean["base"]]
    assert 8 < min(ahead) < max(ahead) < 14  # "by eight to fourteen points at every share"
    tenth, low, high = effect_of(accuracies, "resnet-fraction-10", "base")
    assert round(tenth) == 4 and low < 0 < high and min(accuracies["resnet-fraction-10"]) > max(accuracies["base"])

    def lost(order: str, prefix: str = "") -> float:
        return mean[f"{prefix}no-augment"] - mean[f"{prefix}shuffled-{order}"]

    assert abs(lost("patches")) < 0.5 and lost("patches", "resnet-") > 10
    assert 11 < lost("pixels") < 12 and 18 < lost("pixels", "resnet-") < 19  # "more than eleven", "… eighteen"
    assert min(accuracies["shuffled-patches"]) > max(accuracies["resnet-shuffled-patches"])  # "for once"
    assert 0 < mean["resnet-shuffled-pixels"] - mean["shuffled-pixels"] < 4  # "a little ahead"


def pace(sweep: str, variant: str) -> float:
    """Seconds of the fastest run, on all images or a share, on the base's machine that has most runs (chapter 10)."""
    seconds, devices = recorded(sweep, "seconds"), recorded(sweep, "device")
    everywhere = [device for found in devices.values() for device in found]
    common = max(sorted(set(devices["base"])), key=everywhere.count)
    runs = [pair for name in over_shares(variant) for pair in zip(seconds[name], devices[name], strict=True)]
    return min(spent for spent, device in runs if device == common)


def over_shares(variant: str) -> list[str]:
    """The names of a variant's runs on 1, 3, 10, 30 and 100 per cent of the images."""
    return [*(share if variant == "base" else f"{variant}-{share}" for share in FRACTIONS), variant]


def test_what_chapter_10_says_of_equal_time_is_what_was_recorded():
    ahead, against = {}, {}  # of the ViT; of the ResNet with equal passes: at each share
    for sweep in ("mnist", "shapes", "cifar10"):
        accuracies = points(sweep)
        vit, equal_passes, equal_time = map(over_shares, ("base", "resnet", "resnet-equal-time"))
        for resnet in (equal_passes, equal_time):
            ahead[sweep] = [effect_of(accuracies, *pair) for pair in zip(resnet, vit, strict=True)]
            assert all(low > 0 for _, low, _ in ahead[sweep])  # "it leaves 0 out at every share", on either side
        if sweep == "shapes":  # on all of them neither makes a mistake, so there is nothing to compare
            assert min(accuracies[equal_passes.pop()] + accuracies[equal_time.pop()]) == 100
        against[sweep] = [effect_of(accuracies, *pair) for pair in zip(equal_time, equal_passes, strict=True)]
    assert all(-0.25 < middle < -0.05 for middle, _, _ in against["mnist"])  # "one or two tenths of a point lower"
    assert all(low < 0 < high for _, low, high in against["shapes"])  # "no difference can be seen"
    assert min(min(points("shapes")[name]) for name in over_shares("resnet-equal-time")[2:]) > 99  # "too near 100 %"
    assert [round(middle) for middle, _, _ in against["cifar10"][1:]] == [1, 2, 4, 5] and against["cifar10"][0][0] < 0
    assert [low > 0 for _, low, _ in against["cifar10"]] == [False, False, False, True, True]  # "the last two"
    gaps = [round(middle) for middle, _, _ in ahead["cifar10"]]
    assert min(gaps) == 8 and max(gaps) == 15

    names = ("base", "resnet", "resnet-equal-time")
    passes = {sweep: [SWEEPS[sweep].recipes[name].epochs for name in names] for sweep in ahead}
    assert passes == {"mnist": [2, 2, 1], "shapes": [5, 5, 3], "cifar10": [5, 5, 10]}
    times = {sweep: [pace(sweep, name) / pace(sweep, "base") for name in names[1:]] for sweep in ahead}
    assert 1.2 < times["mnist"][0] < 1.3 and 0.6 < times["mnist"][1] < 0.7  # "a quarter more", "two thirds"
    assert 1.15 < times["shapes"][1] < 1.25 and 0.75 < times["cifar10"][1] < 0.85  # "a fifth more", "four fifths"
    assert times["shapes"][0] > 1 > times["cifar10"][0]  # whose step takes longer
