"""What chapter 12 says in numbers, held to what its cells computed."""

import math
from dataclasses import fields

import torch
import torch.nn.functional as F
from claiming import after, claim

from vit_tutorial import diagnose
from vit_tutorial.clinic import PATIENTS, make_patient
from vit_tutorial.what_matters import SWEEPS

SLOW = (1, 2, 3, 13, 14)  # patients whose training loss ends too high


@after("line-up")
def the_loss_finds_five(curves, seats, right, recorded, CONFIG, RECIPE):
    recipe = SWEEPS["clinic-digits"].recipes["healthy"]
    same = all(getattr(recipe, field.name) == getattr(RECIPE, field.name) for field in fields(RECIPE))
    claim("Three such runs of each are recorded, but for patient 5", same and recipe.model == CONFIG)
    claim(None, len(recorded) == 3 * len(curves) and set(curves) == set(range(15)) - {5})
    letters = dict(zip(seats, "abcdefghijklmn", strict=True))
    last = {number: curve[-1] for number, curve in curves.items()}
    fine = [number for number in last if number not in SLOW]
    claim("The healthy one is d", letters[0] == "d")
    claim("Curve b never falls", letters[2] == "b" and last[2] > 2.2)
    claim(
        "four more, g, i, k and l, end too high",
        {letters[n] for n in SLOW} == set("bgikl") and min(last[n] for n in SLOW) > max(last[n] for n in fine),
    )
    claim("The other eight end close to d", len(fine) == 9 and all(last[n] < last[0] + 0.2 for n in fine))
    passing = [n for n in last if n and right[n] > right[0] - 0.08]
    claim("by accuracy even l passes", letters[14] == "l" and 14 in passing)
    claim(
        "On digits, 8 sick models of 13 look healthy by their loss, and 9 by their accuracy",
        len(passing) == 9 and len(fine) - 1 == 8 and len(last) - 1 == 13,
    )


@after("photographs")
def what_it_costs_on_photographs(rows, gains, against_twin):
    clear = {name: (low > 0) or (high < 0) for name, (_, low, high) in gains.items()}
    middle = {name: effect[0] for name, effect in gains.items()}
    broke = clinic_broke()
    claim(
        "Patient 3's loss becomes NaN with every seed",
        {row["variant"] for row in broke} == {"dead residual norm"} and len(broke) == 3,
    )
    claim(None, all("nan" in row["broke"] for row in broke))
    counts = [sum(row["variant"] == name for row in rows) for name in {row["variant"] for row in rows}]
    claim("three seeds or more", min(counts) >= 3)
    blind = [row["test_accuracy"] for row in rows if row["variant"] == "attention across the batch"]
    claim("Patient 2 learns nothing", max(blind) < 0.15)
    low = "dead residual norm, low rate"
    claim("it still loses 2 points", -2.5 < middle[low] < -1.5 and clear[low])
    one, four = middle["softmax before cross-entropy"], middle["reshape without permute"]
    islands = middle["heads without a transpose"]
    claim(
        "Patient 1 loses 14, patient 13 loses 8, patient 4 loses 6",
        -14.5 < one < -13.5 and -8.5 < islands < -7.5 and -6.5 < four < -5.5 and clear["heads without a transpose"],
    )
    claim("On CIFAR-10, that costs 8 points", -8.5 < islands < -7.5)
    restless = middle["random while evaluating"]
    claim("patient 14 loses 4", round(restless) == -4 and clear["random while evaluating"])
    claim("On CIFAR-10 it loses 4 points to a model that drops nothing", round(restless) == -4)
    suffer = [name for name in gains if clear[name] and middle[name] < 0 and ", mean" not in name]
    claim("Now seven patients suffer", len(suffer) == 7)
    claim(
        "patient 12 loses 3", -3.5 < middle["softmax over the wrong axis"] < -2 and clear["softmax over the wrong axis"]
    )
    claim("they cost 6 points", clear["reshape without permute"])
    six = middle["no final norm"]
    claim("Patient 6 even gains 2 points", 1.5 < six < 2.5 and clear["no final norm"])
    unclear = [name for name in gains if not clear[name]]
    claim("Six show no clear difference", len(unclear) == 6)
    claim("On photographs, 6 of 14 don't clearly differ from their twins, and one wins", len(unclear) == 6)
    claim(
        "on CIFAR-10 patient 5 keeps up, within a point",
        -1 < gains["colours last"][1] < 0 < gains["colours last"][2] < 1,
    )
    claim("Yet Figure 12.3 shows no clear cost", "per-head slices" in unclear)
    claim("Figure 12.3 shows no clear difference", "scale by √dim" in unclear)
    across = "attention across the batch, mean pool"
    claim(
        "there's no clear difference from its twin (−2 to 5 points)",
        [round(end) for end in against_twin(across, "val")[1:]] == [-2, 5],
    )
    claim("On the test set, sorted by class in our copy, it loses 24 points", round(gains[across][0]) == -24)


def clinic_broke():
    from vit_tutorial.what_matters import load_sweep

    return load_sweep("clinic", broken=True)


@after("by-heart")
def the_usual_checks_catch_two(heart, few_labels):
    claim("The first check catches none", all(abs(losses[0] - math.log(10)) < 0.1 for losses in heart))
    caught = [number for number, losses in enumerate(heart) if min(losses) > 0.5]
    claim("the second catches two", caught == [1, 2])
    claim("Loss at the start and one batch by heart catch 2 of 14", caught == [1, 2] and len(heart) == 15)
    fractions = few_labels.bincount() / len(few_labels)
    entropy = -torch.special.xlogy(fractions, fractions).sum().item()
    claim("Patient 2 gets to 1.82", abs(heart[2][-1] - 1.82) < 0.05)
    claim("it learns how often each class occurs", abs(heart[2][-1] - entropy) < 0.05)
    claim("On sixteen images it stopped near 1.5", 1.46 < heart[1][-1] < 1.6)


@after("floor")
def a_floor_stays_a_floor(stubborn, lowest):
    claim("a floor that two hundred steps don't break", lowest - 1e-4 < min(stubborn["sick"]) < 1.6)
    claim(None, len(stubborn["sick"]) == 200 and stubborn["healthy"][-1] < 0.1)
    claim(None, abs(F.cross_entropy(torch.eye(10), torch.arange(10)).item() - lowest) < 1e-4)
    claim(None, round(lowest, 2) == 1.46)


@after("floor")
def mended_it_predicts_the_same(healthy, images, CONFIG):
    sick = make_patient("softmax before cross-entropy", CONFIG).eval()
    sick.load_state_dict(healthy.state_dict())
    with torch.no_grad():
        same = torch.equal(healthy(images).argmax(dim=1), sick(images).argmax(dim=1))
    claim("The same weights then return logits and predict the same classes", same)


@after("same-scores")
def the_same_for_all(scores):
    claim("The sick model says the same of all of them", scores["sick"].std(dim=0).max() < 1e-3)
    claim(None, scores["healthy"].std(dim=0).max() > 0.1)


@after("company")
def company_decides(company):
    (mixed, by_class, alone), healthy = company["sick"], company["healthy"]
    claim("sorted by class it answers worse, and alone much worse", alone + 0.1 < by_class < mixed - 0.05)
    claim(None, max(healthy) - min(healthy) < 0.01)


@after("dead-norms")
def norms_that_never_moved(learned):
    claim("Not one of the sick model's norm weights has moved", bool((learned["sick"] == 1).all()))
    claim(None, bool((learned["healthy"] != 1).any()))


@after("strips")
def strips_and_squares(grids, right, CONFIG):
    claim(None, grids["sick"][0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1])
    claim(None, grids["healthy"][:2, :2].unique().tolist() == [0])
    claim("On digits, strips served as well as squares", right[4] > right[0] - 0.03)
    planes = torch.eye(3)[:, :, None, None].expand(-1, -1, 32, 32)  # one colour each
    config = type(CONFIG)(img_size=32, patch_size=4, embed_dim=32, depth=1, num_heads=4)
    strips = make_patient("reshape without permute", config).patch_embed
    with torch.no_grad():
        moved = (strips(planes) - strips(torch.zeros(1, 3, 32, 32))).norm(dim=-1) > 1e-4
    claim("62 of 64 see a single colour", (moved.sum(dim=0) == 1).sum() == 62)


@after("transplant")
def colours_change_hands(grafts, accuracy):
    twin, scratch, given, mended = map(accuracy, grafts.values())
    claim("With the healthy weights, most answers are wrong", given < 0.5)
    claim("so the gap between the first two rows is luck", abs(scratch - twin) < 0.1)
    claim(None, abs(mended - twin) < 0.01)


@after("lengths")
def lengths_grow(mean, laws):
    sick = mean["sick"]
    claim("from 5.7 after 2 blocks to 27 after 24", (round(sick[1].item(), 1), round(sick[-1].item())) == (5.7, 27))
    claim("nearly 5-fold", 4.4 < sick[-1] / sick[1] < 5)
    claim(None, laws["like √depth"][-1] < sick[-1] < laws["like depth"][-1] / 2)
    claim("The healthy model's norm keeps the length at", bool(((mean["healthy"] - 32**0.5).abs() < 0.02).all()))


@after("slices")
def slices_are_islands(influence, layers):
    sizes = {name: sum(p.numel() for p in layer.parameters()) for name, layer in layers.items()}
    claim("864 parameters; the paper's, at this width, has 4,224", sizes == {"healthy": 4224, "sick": 864})
    islands = torch.block_diag(*[torch.ones(8, 8)] * 4) > 0
    claim("all but four squares are exactly 0", torch.equal(influence["sick"] > 0, islands))
    claim(None, bool((influence["healthy"] > 0).all()))


@after("scale")
def a_smaller_favourite(ranked):
    favourites = ranked["sick"][0], ranked["healthy"][0]
    claim("0.14 for the favourite in place of 0.25", abs(favourites[0] - 0.14) < 0.02)
    claim(None, abs(favourites[1] - 0.25) < 0.02)


@after("4dd8ad5d")
def a_scale_that_is_a_little_off(scale_is_right):
    def off(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, scale=1.05 * q.shape[-1] ** -0.5)

    claim("a scale that is only 5 % off", not scale_is_right(off))


@after("rows")
def rows_decide(torn, answers):
    claim("It differs by more than 0.5", (answers["sick"].max() - answers["sick"].min()).item() > 0.5)
    claim(None, (answers["healthy"].max() - answers["healthy"].min()).item() < 1e-3)
    claim("about one test digit in ten", 1 / 14 < torn.float().mean().item() < 1 / 7)


@after("voices")
def one_voice_in_seventeen(healthy, crowd, voices):
    claim("one voice in seventeen", torch.allclose(voices(crowd), torch.tensor(1 / 17)))
    claim(None, voices(healthy).tolist() == [1] + 16 * [0])


@after("idle-row")
def one_row_rests(moved):
    claim("Training has moved every row but the class token's", bool(moved[0] == 0) and bool(moved[1:].min() > 0))


@after("wrong-sum")
def rows_that_do_not_sum_to_one(weights):
    claim(None, torch.allclose(weights["healthy"].sum(dim=1), torch.ones(6), atol=1e-5))
    claim(
        "each key hands out weights that sum to 1", torch.allclose(weights["sick"].sum(dim=0), torch.ones(6), atol=1e-5)
    )
    claim(None, weights["sick"].sum(dim=1).max() > 1.2)


@after("islands")
def tokens_are_islands(reach, CONFIG):
    n, h = CONFIG.num_tokens, CONFIG.num_heads
    islands = [{row // h for row in range(head * n, (head + 1) * n)} for head in range(h)]
    together = torch.tensor([[any({i, j} <= each for each in islands) for j in range(n)] for i in range(n)])
    claim("all but four islands are exactly 0", torch.equal(reach["sick"] > 0, together))
    claim("the first 4¼", n / h == 4.25 and islands[0] == {0, 1, 2, 3, 4})
    claim(None, bool((reach["healthy"] > 0).all()))


@after("ask-twice")
def dice_in_the_model(rates, odds, most, calm, accuracy):
    claim("Mended, the weights get 88 %", round(100 * accuracy(calm)) == 88)
    low, high = (round(100 * rate) for rate in (rates.min().item(), rates.max().item()))
    claim("as they are, 85 to 89 %", (low, high) == (85, 89))
    claim(None, (odds[:, most].max() - odds[:, most].min()).item() > 0.4)


@after("operate")
def six_transplants(after, healthy, CONFIG):
    twins, came, cured = (
        {n: v for n, v in zip(after["patient"], after[key], strict=True) if v is not None}
        for key in ("the twin", "as they came", "adapted")
    )
    lost = {number: twins[number] - right for number, right in came.items()}
    claim("Patients 5, 10 and 13 collapse", min(lost[5], lost[10], lost[13]) > 0.3)
    claim("8 and 12 lose points", lost[8] > 0.04 and lost[12] > 0.07)
    claim("Only 11 doesn't mind", abs(lost[11]) < 0.03)
    claim(None, all(abs(twins[number] - right) < 0.01 for number, right in cured.items()))
    refused = []
    for number, name in enumerate(PATIENTS, start=1):
        if number not in (1, 2, 3, 4, 5, 14, 15):
            try:
                make_patient(name, CONFIG).load_state_dict(healthy.state_dict())
            except RuntimeError:
                refused.append(number)
    claim("6, 7 and 9 refuse the healthy weights", refused == [6, 7, 9])


@after("luck")
def luck_looks_like_skill(too_high, amounts):
    claim("We claim nearly 93 %", 92.5 < 90 + too_high[20][amounts.index(360)] < 93.2)
    claim("each image right with a chance of 90 %", min(map(min, too_high.values())) > 0)
    claim(
        "Small test sets and many tries make it worse",
        all(points == sorted(points, reverse=True) for points in too_high.values())
        and too_high[5] < too_high[20] < too_high[100],
    )


@after("caught")
def diagnose_catches_all(checks, caught, findings, blind, fragile, two_faced, idle, restless):
    claim(None, [sum(said.values()) for said in checks.values()][-3:] == [0, 2, 15])
    claim(None, not any(said[0] for said in caught.values()))
    own = all([finding.bug for finding in findings(name)] == [name] for name in PATIENTS)
    trained = {2: blind, 3: fragile, 9: two_faced, 11: idle, 14: restless}
    old = all([f.bug for f in diagnose(trained[n])] == [name] for n, name in enumerate(PATIENTS, 1) if n in trained)
    claim("Fresh or trained, each patient has its own finding and no other", own and old)


@after("yours")
def two_bugs_by_weights_alone(tutorial):
    bugs = [finding.bug for finding in diagnose(tutorial)]
    claim("finds two bugs in the tutorial's", bugs == ["softmax before cross-entropy", "no final norm"])


@after("mine")
def one_argument_is_missing(own_findings):
    claim("One argument is missing", [f.bug for f in own_findings] == ["attention across the batch"])


@after("undetected")
def one_that_hid_and_one_that_slips_through(hidden, plain):
    claim(None, [f.bug for f in diagnose(hidden)] == ["per-head slices"])
    claim(None, [f.bug for f in diagnose(plain)] == ["no final norm"])


@after("agree")
def your_tests_agree(yours, package):
    claim("Patient 4 fails the test for 5 as well, and 12 that for 8", yours[4] == [4, 5] and yours[12] == [8])
    claim("Patient 14 fails three", yours[14] == [2, 6, 9])
    claim("One still slips past yours: patient 2 with its class token", yours[2] == [])
    others = (0, 1, 3, 5, 6, 7, 8, 9)
    claim(None, all(yours[n] == package[n] for n in others) and yours[10] == yours[11] == yours[13] == [])
    claim(None, package == [[], *([n] for n in range(1, 15))])
