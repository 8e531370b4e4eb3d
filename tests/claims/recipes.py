"""What chapter 7 says in numbers, held to what its cells computed."""

from itertools import pairwise

import torch
from claiming import after, claim


@after("recorded-run")
def the_headline(small_run):
    from vit_tutorial.metrics import recipe_from_dict
    from vit_tutorial.recipes import RECIPES

    guides, test = RECIPES["cifar10-small-published"], 100 * small_run["test"]["accuracy"]
    same = recipe_from_dict(small_run["recipe"]).model == guides.model
    claim("We train the same model for 30 epochs", same and guides.epochs == len(small_run["history"]) == 30)
    claim("on a JPEG copy of CIFAR-10, and end at 84.7 %", "JPEG" in small_run["data"] and round(test, 1) == 84.7)
    claim("Where do the 25 points come from", round(test - 60) == 25)
    claim("reports about 60 % right", round(test - 25) == 60)
    counts = torch.tensor(small_run["test"]["confusion"])
    claim("10,000 kept aside", counts.sum() == 10_000 and abs(counts.trace() / 10_000 - test / 100) < 1e-6)
    claim("45,000 photographs", small_run["samples_seen"] == 45_000 * 30)
    claim("5,000 others", small_run["images"]["val"] == 5_000)
    claim("2.7 million parameters", round(small_run["parameters"], -5) == 2_700_000)
    first, last = small_run["history"][0], small_run["history"][-1]
    claim("The training curve starts lower", first["train_accuracy"] < first["val_accuracy"])
    claim("It ends higher", last["train_accuracy"] > last["val_accuracy"])


@after("recorded-run")
def a_convolutional_network():
    from vit_tutorial.what_matters import load_sweep

    rows = load_sweep("cifar10")
    ends = {
        name: torch.tensor([row["val_accuracy"] for row in rows if row["variant"] == name]).mean().item()
        for name in ("base", "resnet")
    }
    claim("is 9 points ahead", round(100 * (ends["resnet"] - ends["base"])) == 9)
    vit, resnet = (next(row["parameters"] for row in rows if row["variant"] == name) for name in ("base", "resnet"))
    claim("as small as our smallest ViT", 0.9 < resnet / vit < 1.1)


@after("differences")
def eight_places(guides, ours, differ):
    places = {name.partition(".")[0].replace("decay_all", "weight_decay") for name in differ}
    claim("Eleven settings in eight places", len(differ) == 11 and len(places) == 8)
    claim("weight decay takes two rows and augmentation three", sum("augment" in name for name in differ) == 3)
    same = all(getattr(guides, name) == getattr(ours, name) for name in ("model", "epochs", "schedule"))
    claim("the cosine schedule", same and ours.schedule == "cosine")
    claim("batches of 128", ours.batch_size == guides.batch_size == 128)
    claim(
        "0.001 is PyTorch's default for AdamW", torch.optim.AdamW([torch.zeros(1)]).defaults["lr"] == ours.lr == 0.001
    )
    claim("15° are our guesses", guides.augment.degrees == 15 and guides.lr == ours.lr)
    claim("shortens a gradient longer than 1", ours.clip_grad == 1)


@after("on-test")
def ten_epochs_each(metrics, histories):
    theirs, short, long = (100 * run["test"]["accuracy"] for run in metrics.values())
    claim("ends at 59 % on the test photographs and ours at 78 %", (round(theirs), round(short)) == (59, 78))
    claim("19 points", round(short - theirs) == 19)
    assert round(long, 1) == 84.7
    val = [[100 * entry["val_accuracy"] for entry in history] for history in histories.values()]
    claim(
        "What the guide's reaches in ten epochs, ours passes in two",
        max(val[1][0], val[2][0]) < max(val[0]) < min(val[1][1], val[2][1]),
    )
    claim("half a point behind the short one", 0.4 < val[1][9] - val[2][9] < 0.6)
    rate = [run["history"][9]["lr"] / run["recipe"]["lr"] for run in list(metrics.values())[1:]]
    claim(
        "its rate is still 84 % of its peak, where the short one's is 0", round(100 * rate[1]) == 84 and rate[0] < 1e-5
    )
    strengths = [run["recipe"]["augment"]["rand_magnitude"] for run in list(metrics.values())[1:]]
    claim("RandAugment up to 0.5, not 0.3", strengths == [0.3, 0.5])
    recipes = [run["recipe"] for run in list(metrics.values())[1:]]
    claim(
        None,
        {key for key in recipes[0] if recipes[0][key] != recipes[1].get(key)} <= {"epochs", "augment"},
    )


@after("on-test")
def other_runs():
    from vit_tutorial.runs import load_metrics

    runs = {
        name: load_metrics(name)
        for name in (
            "cifar10-small-glorot-20-epochs",
            "cifar10-tiny-published",
            "cifar10-tiny",
            "cifar10-small",
        )
    }
    test = {name: 100 * run["test"]["accuracy"] for name, run in runs.items()}
    glorot, small = runs["cifar10-small-glorot-20-epochs"]["recipe"], runs["cifar10-small"]["recipe"]
    differs = {key for key, value in glorot.items() if small[key] != value}
    assert differs == {"epochs", "lr", "init", "label_smoothing", "augment"}
    claim("four times the rate", glorot["lr"] == 4 * small["lr"])
    claim("it reached only 69 % in 20 epochs", round(test["cifar10-small-glorot-20-epochs"]) == 69)
    claim("reaches 73 % after 100 epochs", round(test["cifar10-tiny-published"]) == 73)
    claim("reports 75.5 %", test["cifar10-tiny-published"] < 75.5)
    claim("the same size reaches 79 %", round(test["cifar10-tiny"]) == 79)


@after("my-test")
def a_short_run(my_run, recipe, budget, real_data):
    from vit_tutorial.recipes import RECIPES

    asked = recipe.images, recipe.epochs, recipe.lr, recipe.batch_size, recipe.init, recipe.seed
    as_written = real_data and budget == "quick" and asked == (2000, 2, 4e-3, 50, "mimetic", 0)
    claim(
        "0.12 million parameters",
        round(my_run["parameters"], -4) == 120_000,
        when=budget == "quick" and recipe.model == RECIPES["cifar10-tiny"].model,
    )
    claim("about three in ten of its test photographs", 0.25 < my_run["test"]["accuracy"] < 0.37, when=as_written)
    claim("where guessing gets one", len(my_run["classes"]) == 10)


@after("0f0edaa9")
def the_best_rate(by_rate):
    from vit_tutorial.recipes import RECIPES
    from vit_tutorial.what_matters import load_sweep

    best = max(by_rate, key=by_rate.get)
    points = {rate: 100 * accuracy for rate, accuracy in by_rate.items()}
    claim("six recorded runs", len(by_rate) == 6 and best == 0.01)
    claim("a tenth of the best rate costs 5 points", round(points[best] - points[0.001]) == 5)
    claim("four times the best rate costs 28", round(points[best] - points[0.04]) == 28)
    claim("For the tiny model from Glorot's noise it's 0.01", RECIPES["cifar10-tiny"].lr == best)
    found = {
        row["recipe"]["lr"]: row["val_accuracy"]
        for row in load_sweep("cifar10-small")
        if row["recipe"]["init"] == "mimetic"
    }
    claim("0.001 was the best of the four rates we tried", len(found) == 4 and max(found, key=found.get) == 0.001)
    widths = [RECIPES[f"cifar10-{size}"].model.embed_dim for size in ("tiny", "small")]
    claim("four times as wide", widths[1] == 4 * widths[0])
    claim("with five values each has 125 runs", 5**3 == 125)


@after("worth")
def what_parts_are_worth(worth, once, rows):
    seeds = {name: sum(row["variant"] == name for row in rows) for name in ("base", "torch-init", "adamw-quarter-lr")}
    claim("six runs of the base and three of each change", list(seeds.values()) == [6, 3, 3])
    claim("the mimetic start earns nearly 10 points in two epochs", 9.5 < once["mimetic start"] < 10)
    muon, low, high = worth["Muon"]
    claim("and Muon about 5 (4 to 6)", (round(muon), round(low), round(high)) == (5, 4, 6))
    start = [round(x, 1) for x in worth["PyTorch's start (not ours)"]]
    claim("earns about 3 over Glorot's (0.7 to 5.5)", start[1:] == [0.7, 5.5] and round(start[0]) == 3)
    nothing = [worth[part] for part in ("clipping", "warm-up", "decay of matrices only")]
    claim("change nothing measurable", all(low < 0 < high for _, low, high in nothing))
    claim("the intervals allow a point or so either way", all(low < -0.9 and high > 0.9 for _, low, high in nothing))
    claim("RandAugment cost 1.5 points", round(worth["RandAugment"][0], 1) == -1.5)
    claim("In five epochs RandAugment costs points", worth["RandAugment"][2] < 0)
    claim("In five epochs of the tiny model it costs about 6 points", round(worth["CutMix (not ours)"][0]) == -6)
    gains = [effect[0] for name, effect in worth.items() if name != "Muon" and "not ours" not in name]
    claim("no other part gained even half a point", max(gains) < 0.5)


@after("average")
def an_average(read, beta, epochs, images, real_data):
    weights, average = (ends[-1] for ends in read.values())
    as_written = real_data and (beta, epochs, images) == (0.98, 2, 2000)
    claim("their average does better", average > weights, when=as_written)
    claim("98 % of it is still the random start", round(100 * 0.998**10) == 98)
    claim("covers about the last 500 steps", round(1 / (1 - 0.998)) == 500)


@after("average")
def at_the_end_it_changes_nothing():
    from vit_tutorial.what_matters import load_sweep

    ends = {(row["variant"], row["seed"]): row for row in load_sweep("cifar10") if row["variant"] in ("base", "no-ema")}
    seeds = [seed for variant, seed in ends if variant == "no-ema"]
    pairs = [(ends["base", seed], ends["no-ema", seed]) for seed in seeds]
    assert all(averaged["train_losses"] == plain["train_losses"] for averaged, plain in pairs)  # the same runs
    gained = [100 * (averaged["val_accuracy"] - plain["val_accuracy"]) for averaged, plain in pairs]
    claim("in our sweep, the average then changes nothing", len(pairs) == 3 and max(map(abs, gained)) < 0.15)


@after("by-heart")
def learnt_by_heart(long_runs):
    (mild, learned), (strong, _) = (
        [[entry[f"{part}_accuracy"] for entry in history] for part in ("val", "train")]
        for history in long_runs.values()
    )
    best, its_best = mild.index(max(mild)), strong.index(max(strong))
    claim("peaks before halfway, at 80 %", 40 < best < 50 and round(100 * max(mild)) == 80)
    claim("and then falls", mild[-1] < max(mild) - 0.01)
    claim("the training accuracy climbs to 98 %", round(100 * learned[-1]) == 98)
    claim("peaks later, above 81 %", its_best > best and 0.81 < max(strong) < 0.82)
    claim("falls less", max(strong) - strong[-1] < max(mild) - mild[-1])
    claim("ends nearly 3 points higher", 2.5 < 100 * (strong[-1] - mild[-1]) < 3)


@after("by-heart")
def two_runs_that_differ_in_augmentation_alone():
    from vit_tutorial.recipes import RECIPES
    from vit_tutorial.runs import load_metrics

    mild, strong = (load_metrics(f"cifar10-tiny{end}") for end in ("-mild", ""))
    same = {key: value for key, value in mild["recipe"].items() if key != "augment"}
    claim("differ in their augmentation alone", all(strong["recipe"][key] == value for key, value in same.items()))
    claim("shifts by up to 2 pixels", mild["recipe"]["augment"]["crop"] == 2)
    claim("shifts by up to 4 and RandAugment up to 0.3", strong["recipe"]["augment"]["rand_magnitude"] == 0.3)
    claim("even 0.12 million parameters", round(mild["parameters"], -4) == 120_000)
    claim("up to 0.5 of the full range", RECIPES["cifar10-small"].augment.rand_magnitude == 0.5)


@after("a0920c10")
def one_draw(crops, copies, padding):
    one, many = (len(batch.flatten(1).unique(dim=0)) for batch in crops.values())
    claim("One. The transform draws once", one == 1)
    claim("about 45 come out", 36 < many < 54, when=(copies, padding) == (64, 4))
    claim("9 × 9 = 81 possible shifts", (2 * padding + 1) ** 2 == 81, when=padding == 4)


@after("cut")
def mixed_long_runs():
    from vit_tutorial.runs import load_metrics, recorded_runs

    mixed, small = load_metrics("cifar10-mixed"), load_metrics("cifar10-small")
    plain = [load_metrics(run) for run in recorded_runs() if run.startswith("cifar10-speedrun")]
    claim("ends at 85.8 %", round(100 * mixed["test"]["accuracy"], 1) == 85.8)
    claim(
        "an even smaller model with 45 epochs",
        mixed["parameters"] < small["parameters"] and len(mixed["history"]) == 45,
    )
    ends = [100 * run["test"]["accuracy"] for run in plain]
    claim("Without mixing it got 84.1 %, but in 25 epochs", round(sum(ends) / len(ends), 1) == 84.1)
    strengths = [run["recipe"]["augment"]["rand_magnitude"] for run in (mixed, plain[0])]
    claim("with stronger RandAugment", strengths[0] < strengths[1] and len(plain[0]["history"]) == 25)


@after("diagonals")
def what_training_grew(pairs, models):
    noise, trained, mimetic = (pair.diagonal(dim1=1, dim2=2).mean(dim=1) for pair in pairs.values())
    claim("a clearly negative diagonal", trained[1] < -0.5 < 0.3 > noise[1].abs())
    claim("shows hardly a trace", trained[0].abs() < 0.5)
    claim(None, mimetic[0] > 1 and mimetic[1] < -1)
    for block in models["noise, trained"].blocks:
        product = block.attn.proj.weight @ block.attn.qkv.weight.chunk(3)[2]
        claim("a clearly negative diagonal", (product.diagonal() < 0).float().mean() > 0.6)
    config = models["noise"].config
    sizes = config.embed_dim // config.num_heads, config.embed_dim
    claim("have only 12 rows, so their product acts along 12 of 48 directions", sizes == (12, 48))


@after("nearby")
def it_looks_at_its_neighbours(seen, patch, block, real_data):
    near = {label: (found[2:5, 2:5].sum() / found.sum()).item() for label, found in seen.items()}
    as_written = real_data and (patch, block) == ((3, 3), 1)
    claim("9 of 64, about 14 %", round(100 * 9 / 64) == 14)
    claim("Noise looks evenly", 0.1 < near["noise"] < 0.2, when=as_written)
    claim("the imitation at its neighbourhood", near["mimetic"] > near["noise"] + 0.05, when=as_written)
    claim("grew such a window by itself", near["noise, trained"] > near["noise"] + 0.05, when=as_written)


@after("starts")
def a_better_start(ends, images, epochs, starts, real_data):
    as_written = real_data and {"xavier", "mimetic"} <= {*starts} and (epochs, images) == (2, 2000)
    best = {start: max((end for (name, _), end in ends.items() if name == start), default=0) for start in starts}
    lead = best.get("mimetic", 1) - best.get("xavier", 0)
    claim("the mimetic start is several points ahead", lead > 0.01, when=as_written)


@after("starts")
def the_small_model():
    from vit_tutorial.what_matters import SWEEPS, load_sweep

    ends = {row["variant"]: 100 * row["val_accuracy"] for row in load_sweep("cifar10-small")}
    mimetic = [end for name, end in ends.items() if name.startswith("mimetic")]
    claim("of two for the noise, of four for the other", len(mimetic) == 4)
    claim("58 % from Glorot's noise and 68 %", (round(ends["lr-0.0015"]), round(max(mimetic))) == (58, 68))
    claim("At 0.004 for both, Glorot's ends at 57 %", round(ends["base"]) == 57)
    claim("only 6 points higher", round(ends["mimetic-init"] - ends["base"]) == 6)
    claim("bring 2 of the 6 points", round(ends["positions-2d"] - ends["base"]) == 2)
    recipes = SWEEPS["cifar10-small"].recipes
    assert recipes["base"].lr == recipes["mimetic-init"].lr == recipes["positions-2d"].lr == 0.004


@after("gains")
def the_sum(reached):
    from vit_tutorial.runs import load_metrics

    first, second, third = reached.values()
    steps = [round(high - low, 1) for low, high in pairwise(reached.values())]
    claim("The first step, 19.3 points", steps[0] == 19.3)
    claim("The second, 6.4 points", steps[1] == 6.4)
    claim("ten epochs give 59 %", round(first) == 59)
    claim("The 25 compares our 30 epochs", round(third - 60) == 25 and second < third)
    low, middle, high = 9.7 - 5.5, 9.7 - 3.1, 9.7 - 0.7
    claim("perhaps 4 to 9 points", (round(low), round(high)) == (4, 9) and low < middle < high)
    claim("it earns 9.7 over Glorot's noise", load_metrics("cifar10-small")["recipe"]["init"] == "mimetic")
    claim("is worth about 3 itself (0.7 to 5.5, tiny model)", round(9.7 - middle) == 3)
    claim("Muon: about 5", True)


@after("worst-pairs")
def cats_and_dogs(confusion, run, real_data):
    shipped = real_data and run == "cifar10-small"
    mistakes = confusion.clone().fill_diagonal_(0)
    share = (mistakes[3, 5] + mistakes[5, 3]) / mistakes.sum()
    claim("Cats and dogs lead, with 17 of a hundred mistakes", round(100 * share.item()) == 17, when=shipped)
    claim("over all 45 pairs of classes, it would be two", round(100 / (10 * 9 / 2)) == 2)


@after("2542f128")
def too_sure(logits, labels, temperature, error_before, error_after, run, per_half, real_data):
    shipped = real_data and (run, per_half) == ("cifar10-small", 1000)
    sure, said = logits.softmax(dim=1).max(dim=1)
    near, right = (sure > 0.8) & (sure <= 0.9), (said == labels).float()
    claim("85 % sure on average", 0.84 < sure[near].mean() < 0.865, when=shipped)
    claim("right about 70 % of the time", 0.6 < right[near].mean() < 0.8, when=shipped)
    claim("calibration error is about 6 %", 0.035 < error_before < 0.09, when=shipped)
    claim("a temperature of about 1.5", 1.3 < temperature < 1.75, when=shipped)
    claim("brings that down to about 2 %", 0.003 < error_after < 0.04, when=shipped)


@after("2542f128")
def chance_leaves_a_gap(after, expected_calibration_error, run, per_half, real_data):
    as_said = torch.distributions.Categorical(after)  # right as often as it says
    gaps = [float(expected_calibration_error(after, as_said.sample(), 10)) for _ in range(50)]
    shipped = real_data and (run, per_half) == ("cifar10-small", 1000)
    claim("chance alone leaves some 2 %", 0.01 < sum(gaps) / len(gaps) < 0.03, when=shipped)


@after("cost")
def what_it_costs(work, busy, listed, long_run):
    claim("Two CPU cores worked 139 minutes", round(long_run["seconds"] / 60) == 139)
    assert long_run["device"].endswith("2 threads")
    minutes = work / busy / listed.get("T4, fp32", 8.1e12) / 60
    claim("the estimate is about 10 minutes", 9 < minutes < 11, when=busy == 0.3)


@after("shards")
def weighted_shards(off):
    claim("Weighted, the average is the whole batch's gradient up to rounding", off["weighted"] < 1e-3)
    claim(None, off["plain"] > 10 * max(off["weighted"], 1e-4))
