"""What chapter 8 says in numbers, held to what its cells computed."""

import torch
from claiming import after, claim

from vit_tutorial.attention_maps import attention_gradients, attention_rollout
from vit_tutorial.runs import load_metrics


def as_told(RUNS, test):
    """Whether these are the models and photographs that the text is about."""
    return RUNS == ("cifar10-small", "cifar10-tiny") and test.variant == "CIFAR-10 (JPEG copy)"


@after("choose")
def a_horse_and_a_model(RUNS, ONE, answers, sure, test):
    told = as_told(RUNS, test)
    claim("agrees, more than 99 % sure", answers[ONE] == "horse" and sure[ONE] > 0.99, when=told)
    claim("it gets 84.7 % right", round(1000 * load_metrics("cifar10-small")["test"]["accuracy"]) == 847)


@after("hook")
def hooks_leave_nothing_behind(model, hook, images, record_attention):
    before = model(images)
    with record_attention(model):
        model(images)
    claim(None, not any(part._forward_pre_hooks for part in model.modules()))
    torch.testing.assert_close(before, model(images))


@after("slips")
def a_shift_may_hide(found_on):
    first, second = found_on.values()
    claim(None, first[0] > 0.8 and first[1] < 0.55 and first[2] < 0.45)
    claim("Column 0 does, in both trainings", all(column < row - 0.3 for row, _, column in (first, second)))
    claim("57 % of the wrong map lie on the object, 59 % of the right one", abs(second[1] - 0.57) < 0.015)
    claim("59 % of the right one", abs(second[0] - 0.59) < 0.015)


@after("heads")
def one_head_keeps_to_itself(RUNS, test, maps, ONE):
    told = as_told(RUNS, test)
    claim("keeps 92 % of its attention for itself", abs(maps[0][ONE, 0, 0, 0] - 0.92) < 0.02, when=told)


@after("covered")
def the_mean_covers_more(RUNS, test, covers):
    told = as_told(RUNS, test)
    one, mean = covers.values()
    claim("one head's map covers about 30 of the 64 patches", 28 < one[0] < 33, when=told)
    claim("53 of 64", 52 < mean[0] < 55, when=told)
    claim("more than one and a half times as many patches", all(b > 1.5 * a for a, b in zip(one, mean, strict=True)))


@after("reach")
def layer_1_looks_far(RUNS, test, distances, everywhere, attention_distance, model, images):
    told = as_told(RUNS, test)
    one, other = (each.mean(dim=1) for each in distances.values())
    claim("on the line at 16.5 pixels", abs(everywhere - 16.5) < 0.1, when=told)
    claim("No head reads only its neighbours", min(each.min() for each in distances.values()).item() > 7, when=told)
    claim("14 pixels in one model, 18 in the other", abs(one[0] - 13.8) < 0.5, when=told)
    claim("14 pixels in one model, 18 in the other", abs(other[0] - 17.6) < 0.5, when=told)
    _, pulls = attention_gradients(model, images)
    claim("its gradient is exactly 0", not pulls[-1][:, :, 1:].any() and bool(pulls[0][:, :, 1:].any()))


@after("filters")
def light_before_colour_and_left_like_right(grey, filters, tables, size):
    claim("more than half of what they respond to", grey.square().sum() > 0.5 * filters.square().sum())
    for name, table in tables.items():
        unit = torch.nn.functional.normalize(table, dim=1).unflatten(0, size)
        upright, across = ((unit * unit.flip(i)).sum(-1).mean() for i in (0, 1))
        if name == "learned":
            claim("far more similar across the middle", across > upright + 0.3)
        else:
            claim("makes no such difference", abs(across - upright) < 0.01)


@after("two-tokens")
def five_eighths(layer):
    claim("Five eighths", (layer @ layer)[0, 1].item() == 0.625)


@after("methods")
def maps_of_two_classes(RUNS, test, names, guesses, ONE, for_second, model, record, many, spread):
    told = as_told(RUNS, test)
    claim("second guess for our horse is *dog*", names[guesses[1][ONE]] == "dog", when=told)
    lowest = for_second[ONE].flatten().topk(2).indices // model.config.grid_size[1]
    claim("marks the horse's hooves", bool((lowest == 6).all()), when=told)
    for run in RUNS:
        config, maps = record(run, many)
        row = attention_rollout(maps)[:, 0, 1:].unflatten(-1, config.grid_size)
        claim("On photographs that leaves a fog", spread(row).mean() > 59, when=told)


@after("alike")
def less_by_class_than_by_image(alike):
    classes, images = alike.values()
    claim("changes with the class", max(classes) < 0.85)
    claim("and more with the image", all(b < a - 0.03 for a, b in zip(classes, images, strict=True)))


@after("grow")
def attention_comes_first(history, on_object, few, EPOCHS):
    percent = [100 * value for value in on_object]
    claim("99 % right on vivid shapes", abs(load_metrics("shapes")["test"]["accuracy"] - 0.99) < 0.006)
    claim("40, 73 and 99 % of validation images", [round(100 * history[i]) for i in (0, 3, 7)] == [40, 73, 99])
    claim("An even map has 13 % on the object", abs(few.masks.float().mean() - 0.135) < 0.006)
    claim("after one epoch, 45 % of it is on the object", abs(percent[1] - 45) < 2)
    claim("with accuracy at 40 %; after four, 62 %", abs(percent[2] - 62) < 2)
    claim("that fraction *falls*, to 52 %", abs(percent[3] - 52) < 2)


@after("where")
def the_inside_loses_its_lead(where, rows):
    at = {name: i for i, name in enumerate(rows)}
    top, _, edge = (dict(zip(at, values, strict=True)) for values in where.values())
    claim("on the edge, in 96 % of the images", abs(top["epoch 8"] - 0.96) < 0.03)
    claim("(by chance: 84 %)", abs(top["even"] - 0.84) < 0.015)
    claim("the *inside* loses its lead", edge["epoch 1"] < edge["epoch 4"] - 0.05 < edge["epoch 8"] - 0.1)
    claim("ends nearly even over the object's patches", abs(edge["epoch 8"] - edge["even"]) < 0.04)
    claim("with *less* on the edge than an even map has", edge["shapes, finished"] < edge["even"] - 0.04)


@after("judge")
def colour_wins(measured, by_rule, SHAPES):
    on, hits = measured["on the object"], measured["hits"]
    layers = [name for name in on[SHAPES[0]] if name.startswith("layer")]
    even = by_rule["on the object"]["even"]
    claim("at least twice an even map's", all(on[run][name][0] > 2 * even for run in SHAPES for name in layers))
    claim(None, all(on["untrained"][name][0] < 1.35 * even for name in layers))
    claim("wins the game, with 100 %", by_rule["hits"]["colour"] > 0.995)
    for run in SHAPES:
        best, *_ = sorted((mean for mean, _ in hits[run].values()), reverse=True)
        claim("rollout comes next, in both", hits[run]["rollout"][0] == best < by_rule["hits"]["colour"])
        mean, half = hits[run][layers[-1]]
        claim("the last layer does no better than the centre", mean - half < by_rule["hits"]["centre"])


@after("edges")
def the_edge_is_a_miss(by_layer):
    touched, on_edge = by_layer["touched"], by_layer["top on edge"]
    claim("those get 99 % and 95 % of its attention", abs(touched[3] - 0.99) < 0.01 and abs(touched[7] - 0.95) < 0.015)
    claim("nearly always lies on the edge", min(on_edge[3], on_edge[7]) > 0.93)
    claim("with 36 % and 42 % on patches", abs(touched[0] - 0.64) < 0.015 and abs(touched[4] - 0.58) < 0.015)


@after("messages")
def messages_point_elsewhere(sent_by_layer):
    _, looked, sent, same = sent_by_layer.values()
    later = [i for i in range(8) if i % 4]
    claim("both maps lie on the object about equally", all(abs(looked[i] - sent[i]) < 0.05 for i in later))
    claim("often have different highest patches", max(same) < 0.9)


@after("fit-probe")
def the_first_block_has_most(read_off):
    for projection, *blocks, colour in read_off.values():
        claim("a *linear* layer reads off little", projection < 0.4 < min(blocks))
        claim("sinks with every block, in both trainings", blocks == sorted(blocks, reverse=True))
        claim("The rule of colour beats all of them", colour > max(blocks))


@after("horse-hidden")
def without_its_patches(RUNS, test, ONE, said_of, verdicts, names):
    told = as_told(RUNS, test) and names[ONE] == "horse"
    whole, looked_at, _, brightest = said_of
    claim("it becomes a cat", (whole, looked_at) == ("horse", "cat"), when=told)
    claim("it stays a horse in all 20 draws", bool((verdicts == ONE).all()) and len(verdicts) == 20, when=told)
    claim("Without its *brightest*, it becomes a bird", brightest == "bird", when=told)


@after("areas")
def who_beats_colour(curves, lead, area):
    chefers, rollouts = ([each[name] for each in lead.values()] for name in ("Chefer's", "rollout"))
    last = [each["layer 4"] for each in lead.values()]
    claim("In neither training does the last layer's map beat colour", all(m + h > 0 for m, h in last))
    claim("In both, Chefer's map does", all(m + h < 0 for m, h in chefers))
    claim("by about 12 and 7 points of the area", abs(chefers[0][0] + 12.2) < 1.5 and abs(chefers[1][0] + 6.7) < 1.5)
    claim("so does plain rollout, by about 5", all(m + h < 0 and abs(m + 4.9) < 1.5 for m, h in rollouts))
    for by_name in curves.values():
        areas = {name: area(curve).mean().item() for name, curve in by_name.items()}
        claim("Highest: random patches", max(areas, key=areas.get) == "random" and areas["random"] > 90)
        beaten = areas["random, on the object"] - 3
        claim(
            "also beat random patches *of the object*",
            max(areas[n] for n in ("colour", "Chefer's", "rollout")) < beaten,
        )


@after("hide-with-what")
def the_mean_colour_does_harm(left, paints):
    for accuracies in left.values():
        of = dict(zip(paints, accuracies, strict=True))
        harmless = min(of["middle grey"], of["mean of another image"])
        claim("does harm in both trainings", of["mean of the image"] < harmless - 0.01)
        claim("The mean of *another* image is harmless, and so is middle grey", harmless > 0.97)


@after("swap")
def what_the_row_may_be(RUNS, test, kept):
    told = as_told(RUNS, test)
    claim("at least 94 %, in all four models", all(each["another image's"][1] > 0.93 for each in kept.values()))
    means = [value for each in kept.values() for value in each["the mean row"].values()]
    claim("about three quarters of the answers or more", min(means) > 0.69, when=told)
    small, *others = kept.values()
    claim("92 % of the answers stay, or more", all(each["nothing"][1] > 0.89 for each in others), when=told)
    claim("In `cifar10-small` 14 % do", abs(small["nothing"][1] - 0.14) < 0.05, when=told)
    claim("reads no patch either, keeps 88 %", abs(small["itself only"][1] - 0.88) < 0.05, when=told)
    claim("with 40 % left, and not in the other", abs(kept["shapes"]["itself only"][1] - 0.40) < 0.05)
    claim("and not in the other", kept["shapes-by-epoch"]["itself only"][1] > 0.88)
    claim("another image's row leaves at least 94 % of the answers, in four models", len(kept) == 4, when=told)


@after("horse-swapped")
def what_the_last_layer_reads_does_not_decide(RUNS, test, ONE, names, verdict, first, shuffled, NUM):
    told = as_told(RUNS, test) and names[ONE] == "horse"
    answers = dict(zip(verdict["row 0"], verdict["answers"], strict=True))
    least = dict(zip(verdict["row 0"], verdict["least sure"], strict=True))
    other = "50 other photographs'"
    claim("it stays a *horse*, at least 88 % sure", answers[other] == "horse" and least[other] > 0.86, when=told)
    claim("other photographs' rows", NUM == 50 and first[ONE] not in shuffled[:NUM], when=told)
    claim("it becomes a *cat*", answers["itself only"] == answers["nothing"] == "cat", when=told)
