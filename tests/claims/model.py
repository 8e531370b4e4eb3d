"""What chapter 5 says in numbers, held to what its cells computed."""

import math

import torch
import torchvision
from claiming import after, claim
from torch import nn

from vit_tutorial import PRESETS, Attention, ViT, ViTConfig, init_weights


@after("one-piece")
def one_piece_and_its_traps(forward_in_one_piece, tiny, image):
    answer, positions = tiny(image), tiny.pos_embed.clone()
    torch.testing.assert_close(forward_in_one_piece(tiny, image), answer, rtol=1e-4, atol=1e-5)
    with torch.no_grad():  # forgotten positions show, since they aren't zero any more
        tiny.pos_embed.zero_()
        claim("That's why we replaced the placeholders", not torch.allclose(tiny(image), answer, atol=1e-5))
        tiny.pos_embed.copy_(positions)


@after("head-on-all")
def one_score_for_each_token(forward_features, tiny, image):
    everywhere = tiny.head(forward_features(tiny, image))
    claim("That's 197 predictions for one picture", everywhere.shape == (1, 197, 1000))
    torch.testing.assert_close(everywhere[:, 0], tiny(image), rtol=1e-4, atol=1e-4)


@after("shares")
def parameters_and_work(total, percent, base, sizes):
    claim("86.6 million parameters", total[0] == sum(p.numel() for p in base.parameters()) == 86_567_656)
    d, tokens = sizes["dim"], 197
    block = tokens * (4 * d**2 + 2 * d * 4 * d) + 2 * tokens**2 * d
    by_hand = 196 * 768 * d + sizes["depth"] * block + d * 1000
    claim("17.6 billion multiply-adds", total[1] == by_hand == 17_563_828_224)
    comparing = percent["attention: comparing, mixing"]
    attention = [a + b for a, b in zip(percent["attention: its matrices"], comparing, strict=True)]
    claim("33 % of the parameters and 36 % of the work", [round(share) for share in attention] == [33, 36])
    claim("nearly two thirds of both", all(63 < share < 66 for share in percent["MLP"]))
    claim("no parameters at all and takes 4 % of the work", comparing[0] == 0 and round(comparing[1]) == 4)


@after("published-sizes")
def sizes_as_built(presets, counted):
    for config, count in zip(presets.values(), counted, strict=True):
        with torch.device("meta"):
            claim(None, count == sum(p.numel() for p in ViT(config).parameters()))
    millions = dict(zip(presets, (count / 1e6 for count in counted), strict=True))
    claim("with patches of 16 × 16 it has 304.3", round(millions["vit_l_16"], 1) == 304.3)
    claim("with patches of 32 × 32 Large rounds to 307", round(millions["vit_l, patches of 32"]) == 307)
    claim("printed as 86 and would round to 87", round(millions["vit_b_16"]) == 87)
    claim("2304 · 1024 more weights", PRESETS["vit_l_16"].embed_dim == 1024 and 3 * (32**2 - 16**2) == 2304)
    claim("147 fewer rows", 14**2 - 7**2 == 147)


@after("certain")
def a_floor_and_a_ceiling(certain, floor, right, wrong, cross_entropy):
    claim("That's 2.30 for ten classes", round(math.log(10), 2) == 2.30)
    claim("a meagre 23 %", round(certain.softmax(dim=1)[0, 0].item(), 2) == 0.23)
    claim("A perfect model pays 1.461", abs(floor - 1.461) < 5e-4)
    claim("pays 2.461", abs(cross_entropy(certain, wrong) - floor - 1) < 1e-5)


@after("floor-and-gradient")
def nothing_is_lower(softmax_loss_floor, loss_and_gradient):
    z = torch.randn(100_000, 10) * torch.linspace(0, 30, 100_000)[:, None]
    p = z.softmax(dim=1)  # from even to very uneven
    floor = softmax_loss_floor(10)
    claim(None, (p.logsumexp(dim=1) - p.amax(dim=1)).min() >= floor - 1e-5)
    thousand = softmax_loss_floor(1000)
    claim("For 1,000 classes that's 5.91. Knowing nothing costs 6.91", abs(thousand - 5.91) < 0.005)
    claim(None, round(math.log(1000), 2) == 6.91)
    plain, twice = (loss_and_gradient(torch.zeros(1, 10), two)[1].item() for two in (False, True))
    claim("10 times for digits", abs(plain / twice - 10) < 1e-4)


@after("start-glorot")
def knowing_nothing(evaluate, digit_model, train_labels, test_labels):
    claim("The first loss is 2.3", 2.2 < evaluate(digit_model())[0] < 2.4)
    claim("Guessing gets 10 % of the digits right", abs((test_labels == 1).float().mean().item() - 0.1) < 0.005)
    claim("from 1,437 pictures", len(train_labels) == 1437)


@after("train")
def it_reads_and_so_does_its_twin(history, twin_history, softmax_loss_floor):
    claim("96 to 98 % of unseen digits", 0.945 < history[-1]["accuracy"] < 0.995)
    claim("the twin gets 93 to 96 %", 0.91 < twin_history[-1]["accuracy"] < 0.995)
    claim("goes to nearly zero", history[-1]["train"] < 0.25)
    claim("stuck above the floor", min(epoch["train"] for epoch in twin_history) > softmax_loss_floor(10))


@after("logistic")
def without_layers(plain, test_pixels, test_labels):
    claim("gets 97 %", abs(plain.score(test_pixels, test_labels.cpu()) - 0.97) < 0.006)


@after("one-batch")
def thirty_two_pictures(one_batch, softmax_loss_floor):
    claim("below 0.1 within 60 steps", one_batch[0] < 0.1)
    claim("its twin can't", one_batch[1] > softmax_loss_floor(10) > 0.1)


@after("confusions")
def a_handful(confusions, truth):
    mistakes = confusions - torch.diag(confusions.diag())
    claim("A handful of the 360", len(truth) == confusions.sum() == 360 and 2 <= mistakes.sum() <= 18)
    claim("None happens more than a few times", mistakes.max() <= 5)


@after("look")
def ink_and_paper(has_ink, on_ink):
    claim("Ink covers 43 % of the patches", round(has_ink.float().mean().item(), 2) == 0.43)
    claim("would spend 43 % of its attention there", 0.4 < has_ink.float().mean() < 0.46)
    claim("one of the twelve heads", on_ink.numel() == 12)
    claim("86 to 98 % against 14 to 40 % over four runs", 0.7 < on_ink.max() < 1 and on_ink.min() < 0.5)
    claim("its mean darkness is above 30 %", has_ink.any() and not has_ink.all())


@after("same-logits")
def the_same_as_torchvisions(our_logits, their_logits, NEW_NAMES):
    torch.testing.assert_close(our_logits, their_logits, rtol=1e-4, atol=1e-4)
    claim("the differences are a few millionths", (our_logits - their_logits).abs().max() < 1e-5)
    claim("the largest is above 1", their_logits.abs().max() > 1)
    claim("Twelve names are the whole dictionary", len(NEW_NAMES) == 12)
    fresh = torchvision.models.VisionTransformer(32, 16, 1, 1, 8, 8).eval()
    claim("so it answers 0 for every class", not fresh(torch.randn(1, 3, 32, 32)).any())


@after("one-mlp")
def whispers(one_mlp, widths):
    fixed, glorot = one_mlp["fixed 0.02"], one_mlp["Glorot"]
    claim("1 comes out as 0.02; with Glorot, as 0.5", fixed[0] < 0.03 < 0.4 < glorot[0] < 0.6)
    claim("at one width only, near 1,000", fixed[4] < glorot[4] and fixed[5] > glorot[5])
    claim("$2/(5d)$, which is 0.02 squared at $d = 1000$", math.isclose(2 / 5000, 0.02**2))
    claim(
        "adapt to the width", all(0.8 < one_mlp[rule][-1] / one_mlp[rule][0] < 1.25 for rule in ("Glorot", "PyTorch"))
    )
    scores = []
    for whole in (True, False):
        attention, tokens = Attention(192, 3), torch.randn(8, 65, 192)
        for part in [attention.qkv.weight] if whole else attention.qkv.weight.chunk(3):
            nn.init.xavier_uniform_(part)
        nn.init.zeros_(attention.qkv.bias)
        q, k, _ = attention.project(tokens)
        scores.append((q @ k.mT).std())
    claim("so scores $q \\cdot k$ half as large", abs(scores[0] / scores[1] - 0.5) < 0.05)


@after("three-starts")
def a_poor_start_costs_time(runs):
    last = {rule: [run[-1]["accuracy"] for run in those] for rule, those in runs.items()}
    fixed = last.pop("fixed 0.02")
    others = [accuracy for those in last.values() for accuracy in those]
    claim("about 80 to 89 %", min(fixed) > 0.74 and max(fixed) < 0.92)
    claim("all others at 92 to 95 %", min(others) > 0.895 and max(others) < 0.97)
    claim("a poor start costs time", sum(others) / len(others) - sum(fixed) / len(fixed) > 0.04)


@after("first-loss")
def small_logits(first, expected):
    claim("the first loss is about $\\ln C + \\sigma^2/2$", all(abs(first[i] - expected[i]) < 0.1 for i in (0, 1)))


@after("read-the-mean")
def trained_to_read_one(accuracy, by_mean, test_labels):
    by_mean = (by_mean.argmax(dim=1) == test_labels).float().mean()
    claim("to between 50 and 75 % in our four runs", 0.35 < by_mean < 0.9 < accuracy)


@after("who-hears")
def only_the_class_token_in_the_end(heard):
    claim("After the last block all of it is at the class token", heard[-1] == 1 > heard[0])


@after("package")
def the_same_weights(digit_model, start_glorot, config):
    mine, packaged = digit_model().cpu(), ViT(config)
    torch.manual_seed(1)
    init_weights(packaged)
    torch.manual_seed(1)
    start_glorot(mine)
    for small in (mine.cls_token, mine.head.weight, mine.pos_embed):
        nn.init.normal_(small, std=0.02)
    claim(
        "from the same seed, its `init_weights` draws the same weights",
        all(torch.equal(a, b) for a, b in zip(mine.parameters(), packaged.parameters(), strict=True)),
    )
    larger = ViTConfig(img_size=384)
    claim("that is 291,840", (larger.num_tokens - ViTConfig().num_tokens) * larger.embed_dim == 291_840)
