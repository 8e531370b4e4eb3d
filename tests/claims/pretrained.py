"""What chapter 9 says in numbers, held to what its cells computed."""

import copy

import torch
import torch.nn.functional as F
from claiming import after, claim


def near(value, wanted, room=0.03):
    return abs(value - wanted) < room


@after("six")
def five_mistakes(answers, run, file, headless, prefixed, other_heads, config):
    from vit_tutorial import ViT
    from vit_tutorial.runs import load_metrics

    real = run == "cifar10-tiny"
    found = {name[0]: value for name, value in answers.items()}
    by_size = sorted("12345", key=found.get)
    claim("loaded properly, it gets 79 %", near(found["a"], 0.79), when=real)
    claim("gets 69 % of your photographs right", near(found["3"], 0.69), when=real)
    claim("mistake 3 made the 69 %", by_size[-1] == "3", when=real)
    claim("Mistakes 2 and 4 cost nearly everything", set(by_size[:2]) == {"2", "4"} and found["2"] < 0.2, when=real)
    claim("on all 10,000, it's 79.3 %", round(1000 * load_metrics("cifar10-tiny")["test"]["accuracy"]) == 793)
    claim("and left 5 %", found["4"] < 0.1, when=real)
    claim("it cost only 10 points", near(found["a"] - found["3"], 0.1), when=real)
    claim("69 % looks like a model that works", near(found["3"], 0.69), when=real)
    claim("55 % of the enlarged photographs were right", near(found["5"], 0.55, 0.04), when=real)
    claim("As a grid, it's 67 %", near(found["e"], 0.67, 0.04), when=real)
    refused = []
    for weights, sizes in ((prefixed, config), (headless, config), (file, other_heads)):
        try:
            ViT(sizes).load_state_dict(weights)
            refused.append(False)
        except RuntimeError:
            refused.append(True)
    claim("Three raise no error, and `strict=False` silences the other two", refused == [True, True, False])


@after("by-pixels")
def pixels_matter(by_pixels, run):
    drawn, photographed = by_pixels["drawings"], by_pixels["photographs"]
    claim("7.5 % of drawings is guessing", drawn["left as bytes"] < 0.2)
    claim("a plausible 84.5 % where there should be 99.5 %", near(drawn["not normalized"], 0.845))
    claim("without normalization, 99.5 % becomes 84.5 %", near(drawn["as in training"], 0.995, 0.02))
    claim("ImageNet's numbers leave 64 %", near(drawn["ImageNet's numbers"], 0.64, 0.06))
    swap = "red and blue swapped"
    claim("Swapping red and blue costs the drawings next to nothing", drawn[swap] > drawn["as in training"] - 0.03)
    claim("it turns 79 % into 53 %", near(photographed[swap], 0.53, 0.04), when=run == "cifar10-tiny")


@after("mean-or-std")
def the_standard_deviation_is_to_blame(halves, right_on, shapes_model, drawings, imagenet):
    by_mean, by_std = (right_on(shapes_model, pixels, drawings.labels) for pixels in halves.values())
    claim("The standard deviation: 0.23 in place of 0.5", by_mean > 0.97 and by_std < 0.8)
    claim(None, round(sum(imagenet.std) / 3, 2) == 0.23)


@after("temple")
def a_temple_is_a_truck(ten_words):
    claim("It says truck, nearly 90 % sure", ten_words[0][0] == "truck" and 0.85 < ten_words[0][1] < 0.9)


@after("published")
def its_file(info):
    from vit_tutorial import PRESETS, ViT

    with torch.device("meta"):
        size = 4 * sum(p.numel() for p in ViT(PRESETS["vit_b_16"]).parameters())
    claim("fetches its file of 346 MB", round(size / 1e6) == 346)
    claim("palace and monastery among them, but no temple", {"palace", "monastery"} < set(info.classes))
    claim(None, not any("temple" in word.split() for word in info.classes))


@after("claimed-heads")
def only_the_right_heads_agree(off):
    claim("the logits agree to within 0.00001", max(gaps[0] for gaps in off.values()) < 1e-5)
    claim("the logits are off by 0.5 or more", min(min(gaps[1:]) for gaps in off.values()) > 0.5)


@after("heads-of-photographs")
def only_the_true_number_of_heads(by_heads, config, run):
    rest = [right for heads, right in by_heads.items() if heads != config.num_heads]
    own, photographs = by_heads[config.num_heads], run == "cifar10-tiny"
    claim("only the true one gets 79 %", near(own, 0.79) and max(rest) < own - 0.05, when=photographs)
    claim(None, max(rest) < own)


@after("seeds-of-heads")
def seed_zero_drew_their_heads(readers):
    from vit_tutorial import ViT
    from vit_tutorial.runs import load_recorded

    right, alike = {}, {}
    for run, (owner, features, labels) in readers.items():
        claim("all three were trained with seed 0", load_recorded(run)[1].seed == 0)
        for seed in range(5):
            torch.manual_seed(seed)
            head = ViT(owner.config).head
            right[run, seed] = (head(features).argmax(1) == labels).float().mean().item()
            alike[run, seed] = F.cosine_similarity(head.weight.flatten(), owner.head.weight.flatten(), dim=0).item()
    claim("Most heads guess", all(value < 0.35 for (_, seed), value in right.items() if seed))
    claim(None, all(right[run, 0] > 0.35 and abs(alike[run, 1]) < 0.1 for run in readers))
    small = "cifar10-small"
    claim("chapter 7's small model gets 85 %", near(right.get((small, 0), 0), 0.85), when=small in readers)
    claim("(cosine similarity 0.79)", round(alike.get((small, 0), 0), 2) == 0.79, when=small in readers)
    claim("the shapes' most (0.19)", round(alike["shapes", 0], 2) == 0.19)


@after("refusals")
def they_are_refused(spoiled, owner):
    from vit_tutorial import ViT
    from vit_tutorial.pretrained import load_weights

    for wrong in spoiled.values():
        try:
            load_weights(copy.deepcopy(ViT(owner.config)), wrong)
        except ValueError:
            continue
        claim("So load strictly, and read what the refusal says", False)


@after("6bebca08")
def sky_and_temple(looks, whole):
    sky = looks[:4]  # the upper quarter; below it the picture is patchy
    claim("Sky and temple, untrained", (looks.std() > 2 * sky[:, 14:].std()).item())


@after("two-tables")
def pictures_that_grow(on_grown):
    (formula, stretched), (formula_below, stretched_below), (formula_round, stretched_round) = (
        tuple(found.values()) for found in on_grown.values()
    )
    claim("53.5 %, against 98.5 % for the stretched table", near(formula, 0.535, 0.06) and near(stretched, 0.985, 0.02))
    claim("98.5 % against 53.5 % on magnified pictures", stretched > formula + 0.3)
    claim("the formula wins, 99 % to 82 %", near(formula_below, 0.99, 0.02) and near(stretched_below, 0.82, 0.05))
    claim("Continued all round, they have, and it loses again", stretched_round > formula_round + 0.1)


@after("memory")
def what_training_holds(weights, kept, bytes_of, map_bytes, batch):
    whole = bytes_of["training"] + kept
    claim("Its file has only 346 MB", round(weights / 1e6) == 346)
    claim(
        "Training takes 5.2 GB, fifteen times its file", round(whole / 1e9, 1) == 5.2 and 14.5 < whole / weights < 15.5
    )
    claim("the lower three pieces, 1.4 GB", round(bytes_of["training"] / 1e9, 1) == 1.4)
    claim("The other 3.8 GB", round(kept / 1e9, 1) == 3.8)
    claim("22 MB an image", round(map_bytes / batch / 1e6) == 22)


@after("checkpoints")
def checkpoints_have_a_peak(thrifty, one_block, kept):
    claim("Less than a tenth is kept", thrifty < 0.1 * kept)
    claim("with one block recomputed, about a sixth", near((thrifty + one_block) / kept, 1 / 6, 0.02))


@after("digits")
def digits_want_their_border(reads_as_is):
    claim("Enlarged to the edge, 66 % are read right", near(reads_as_is["to the edge"], 0.66, 0.05))
    claim("with MNIST's border 89 %", near(reads_as_is["with border"], 0.89))


@after("labels-buy")
def what_labels_buy(bought, labels, drawn_labels, reads_as_is):
    from vit_tutorial.runs import load_metrics

    means = {way: {count: sum(d) / len(d) for count, d in found.items()} for way, found in bought.items()}
    borrowed, bare = means["borrowed features"], means["bare pixels"]
    claim("With 100 labels the probe reads 98 % of the digits", near(borrowed[100], 0.976, 0.012))
    claim("98 % with 100 labels (and 180 for its penalty)", len(labels["val"]) == 180)
    claim("On bare pixels 1,000 labels buy 92 %", near(bare[1000], 0.92, 0.015))
    scratch = load_metrics("digits")["test"]["accuracy"]
    claim("about what a ViT from scratch ends at with all 1,257", near(scratch, 0.925, 0.001))
    claim(None, borrowed[100] > bare[1000] + 0.02)
    claim("the old head wins: 89 % with none at all", reads_as_is["with border"] > borrowed[10] + 0.15)
    shown = [len(labels["train"][drawn_labels(10, seed)].unique()) for seed in range(10)]
    claim("Draws of ten show only five to eight of the classes", (min(shown), max(shown)) == (5, 8))


@after("chosen-rates")
def rates_and_heads(tuned, best, alone, average, rates, with_lora, with_fresh_head):
    probed = average(alone)
    fresh, headed, lora = (
        {rate: average(found["test"]) for rate, found in by_rate.items()} for by_rate in tuned.values()
    )
    low, high = min(rates), max(rates)
    claim("A fresh head wants the higher rate", best["fresh head"] == high and fresh[low] < fresh[high] - 0.1)
    claim("still ends below the probe", fresh[high] < probed - 0.01)
    claim("The probe as head wants the lower, and keeps its 98 %", best["probe as head"] == low)
    claim(None, near(headed[low], probed, 0.012) and near(probed, 0.98, 0.012))
    claim("at ten times that rate it loses about 3 points", 0.01 < headed[low] - headed[high] < 0.06)
    claim("here neither rate hurts it", min(lora.values()) > probed - 0.012)
    trained = [
        sum(p.numel() for p in start(0).parameters() if p.requires_grad) for start in (with_lora, with_fresh_head)
    ]
    claim("LoRA trains 6,144 numbers in place of 305,194", trained == [6144, 305_194])
    claim("360 images know 98 % to about ± 1.5 points", near(1.96 * (0.98 * 0.02 / 360) ** 0.5, 0.0145, 0.0005))


@after("how-many")
def what_images_were_worth():
    from vit_tutorial.pretrained.few_images import TASKS, by_task, load_few_images
    from vit_tutorial.runs import load_metrics

    rows = load_few_images()
    right, seconds = by_task(rows), by_task(rows, "seconds")

    def mean(kind, way, count, found=right):
        draws = found[kind][way][count]
        return sum(draws) / len(draws)

    def whole(kind, way, count):
        return round(100 * mean(kind, way, count))

    scratch, probe, everything = "from scratch", "linear probe", "all weights"
    photos, drawings, large = "photographs", "drawings", "large drawings"
    claim("the probe gets 57 %, scratch 42 %", [whole(photos, way, 10) for way in (probe, scratch)] == [57, 42])
    claim("the probe stops at 71 %", [whole(photos, probe, count) for count in (1000, 4000)] == [71, 71])
    lowest, highest = min(right[photos][scratch][1000]), max(right[photos][probe][1000])
    claim("with 1,000 scratch passes it", lowest > highest)
    rivals = {n: max(mean(photos, way, n) for way in (scratch, probe)) for n in TASKS[photos].further}
    ahead = [mean(photos, everything, n) > rival for n, rival in rivals.items()]
    claim("All weights stay ahead, 78 % to 75 %", all(ahead) and whole(photos, everything, 1000) == 78)
    claim(None, whole(photos, scratch, 1000) == 75)
    times = mean(photos, everything, 1000, seconds) / mean(photos, scratch, 1000, seconds)
    claim("each of their trainings takes about a quarter of the time", near(times, 0.25, 0.05))
    probed = [whole(drawings, probe, count) for count in (100, 1000)]
    claim("with 100 of each the probe reads 16 %, with 1,000 only 22 %", probed == [16, 22])
    two = {way: [whole(drawings, way, count) for count in (100, 1000)] for way in (everything, scratch)}
    claim("gets 53 % and 95 %, from scratch 46 % and 93 %", two == {everything: [53, 95], scratch: [46, 93]})

    def leads(one, other, kind, count, found=right):
        return all(a > b for a, b in zip(found[kind][one][count], found[kind][other][count], strict=True))

    claim("It leads in each draw", all(leads(everything, scratch, drawings, count) for count in (100, 1000)))
    quicker = all(leads(scratch, everything, drawings, count, seconds) for count in (100, 1000))
    claim("leads in each draw, in less time", quicker)
    claim("Norms and biases alone won't do: 57 % with 1,000", whole(drawings, "norms and biases", 1000) == 57)
    rates = {kind: ways[everything] for kind, ways in by_task(rows, "rate").items()}
    claim("training all weights, at the full rate", {*rates[drawings][100], *rates[drawings][1000]} == {1.0})
    low = {rate for count in (10, 100, 1000) for rate in rates[photos][count]}
    high = {rate for kind in (drawings, large) for count in rates[kind] if count > 10 for rate in rates[kind][count]}
    claim("a low one if images are few and the probe is good, else a high one", max(low) < min(high))
    claim(None, set(rates[photos][4000]) == {1.0})
    claim("10,000 drawings have two draws", {len(ways[10_000]) for ways in right[drawings].values()} == {2})
    guesses = (ways[10] for kind in (drawings, large) for ways in right[kind].values())
    claim("With 10, all but guess", max(map(max, guesses)) < 0.16)
    ends = [accuracy for way in (scratch, everything) for accuracy in right[drawings][way][10_000]]
    claim("with 10,000, both pass 99.5 %", min(ends) > 0.995)
    claim("With 100 of each, all weights get 65 %, from scratch 35 %", whole(large, scratch, 100) == 35)
    claim(None, whole(large, everything, 100) == 65 and leads(everything, scratch, large, 100))
    claim("with 1,000, both get 97 %", [whole(large, way, 1000) for way in (scratch, everything)] == [97, 97])
    times = [mean(kind, scratch, 1000, seconds) for kind in (drawings, large)]
    claim("and take as long", near(times[0] / times[1], 1, 0.1))
    many = [(kind, count) for kind, ways in right.items() for count in ways[scratch] if count >= 1000]
    behind = max(mean(kind, everything, count) - mean(kind, scratch, count) for kind, count in many)
    claim("it was about 3 points behind at most", near(behind, 0.03, 0.005))
    fastest = min(entry["seconds"] for entry in load_metrics("cifar10-half")["history"])
    claim("trained for 20 minutes on small pictures", near(25 * fastest / 60, 20, 2.5))


@after("balance")
def a_rare_class(balance, sizes, few):
    (whole, rare), (_, repeated) = balance.values()
    claim("The probe reads 93 % and finds not even half of the eights", near(whole, 0.93, 0.015) and rare < 0.5)
    claim("93 % hid one of which not even half was found", rare < 0.5)
    claim("Repeating each of the three images 20 times", (sizes.max() // sizes.min(), few) == (20, 3))
    claim("finds nearly all", repeated > 0.9)
