"""What chapter 3 says in numbers, held to what its cells computed."""

import math

import torch
from claiming import after, claim
from torch import nn

from vit_tutorial import PRESETS


@after("attention")
def the_pencil_is_right(scores, weights, outputs, qkv, attention, attention_weights, softmax_rows):
    claim("the weights are 4/8, 2/8 and 2/8", weights[0].tolist() == [4 / 8, 2 / 8, 2 / 8])
    claim("(6, 3)", outputs[0].tolist() == [6, 3])
    claim("one third each", torch.allclose(weights[2], torch.full((3,), 1 / 3)))
    q, k, v = qkv
    torch.testing.assert_close(attention(q, k, v), outputs)
    torch.testing.assert_close(softmax_rows(math.log(2) * scores + 7), weights)
    claim("Rows sum to 1, columns needn't", not torch.allclose(weights.sum(dim=0), torch.ones(3)))
    order = [2, 0, 1]
    claim(
        "shuffled tokens come out shuffled alike",
        torch.allclose(attention(q[order], k[order], v[order]), attention(q, k, v)[order]),
    )
    later = torch.ones(3, 3).triu(diagonal=1).bool()
    seen = (math.log(2) * scores).masked_fill(later, -math.inf).softmax(dim=-1)
    claim("their weights are 0 and nobody reads ahead", (seen[later] == 0).all() and not seen.isnan().any())


@after("mirror")
def every_patch_stares_into_the_mirror(mirror, pixels):
    claim(None, torch.equal(mirror.argmax(dim=-1), torch.arange(len(mirror))))
    claim("equally long", torch.allclose(pixels.norm(dim=-1), torch.tensor(pixels.shape[-1] ** 0.5), rtol=1e-4))
    claim("most give it practically all their weight", mirror.diagonal().median() > 0.95)


@after("train-left")
def the_head_learned_to_look_left(before, weight, net, noise, seen, explained, Neighbours, Head, dim, LEFT, train):
    claim("Before training each hears all 49 alike", before.max() < 0.2 and before.shape == (49, 49))
    claim("0.9 of the weight", 0.83 < weight["left"] < 0.95)
    claim("puts about nine tenths of its weight", 0.83 < weight["left"] < 0.95)
    claim("explain about 99 %", explained(net, seen)["left"] > 0.97 < explained(net, noise)["left"])


@after("zero-class-token")
def a_zero_class_token_reads_the_mean(class_row):
    (low, high), (least, most) = class_row["bias=False"], class_row["bias=True"]
    claim("its weights are all equal", low == high)
    claim("queries have no bias", most > 1.2 * least)
    model = _vit()
    claim("its row starts as uneven as the others", model[0, 0].max() > 0.1)


def _vit():
    """The weights of head 0 in the first block of a fresh ViT."""
    import vit_tutorial
    from vit_tutorial.attention_maps import record_attention

    torch.manual_seed(0)
    model = vit_tutorial.ViT(vit_tutorial.ViTConfig(img_size=16, patch_size=4, embed_dim=64, depth=1, num_heads=4))
    with torch.no_grad(), record_attention(model) as maps:
        model(torch.rand(1, 3, 16, 16))
    return maps[0][0]


@after("favourite")
def a_row_has_a_favourite(favourite, products, num_tokens, head_dim):
    claim("Take 197 random tokens and heads of width 64", (num_tokens, head_dim) == (197, 64))
    claim("About 80 % goes to one token", 0.7 < favourite(products) < 0.9)
    claim("With the square root it's 4 %", 0.035 < favourite(products / 8) < 0.05)
    claim("you're typically 8 away from the start", abs(products.std() - 8) < 0.5)
    claim("a factor of $e^8", 2900 < math.exp(8) < 3000)


@after("sweep")
def the_root_keeps_rows_wide(read, gradients):
    with_root, without = read["with √"], read["without"]
    claim("from about 120 of 197 tokens, however wide the head", all(110 < n < 130 for n in with_root.values()))
    claim("without it they narrow down to one", without[1024] < 1.5)
    claim("reads from 2 of 197 tokens without the √, and from about 120 with it", round(without[64]) == 2)
    claim("hardly any gradient gets through", 3 * gradients["without"][1024] < gradients["with √"][1024])
    claim("*more* gets through without it", gradients["without"][64] > 3 * gradients["with √"][64])
    claim(
        "the two lengths at width 64 are similar",
        0.6 < gradients["without"][64] / gradients["with √"][64] / 8 < 1.6,
    )
    heads = {PRESETS[f"vit_{size}_16"].head_dim for size in ("ti", "s", "b", "l")}
    claim("the width of a head in every ViT from tiny to large", heads == {64})


@after("train-starts")
def the_start_decides(learned, StartingHead, Neighbours, LEFT, train, explained, dim, where, gh, gw):
    good, bad, small = learned.values()
    claim("with the √ the head explains 99 %, without it 0 %", min(good) > 0.97 and max(map(abs, bad)) < 0.05)
    claim("with each of three seeds", len(good) == len(bad) == len(small) == 3)
    claim("the third learns as well as the first", min(small) > 0.97)
    fresh = Neighbours(StartingHead(True, 1), LEFT)
    tokens = fresh.tokens(torch.randn(64, gh * gw, 3))
    claim("queries and keys that start with variance 1", 0.6 < fresh.layer.query(tokens).var() < 1.5)
    usual = nn.Linear(dim, dim)
    claim("with only a third of their inputs' variance", 0.2 < usual(tokens).var() / tokens.var() < 0.5)
    torch.manual_seed(0)
    slow = train(Neighbours(StartingHead(False, 1), LEFT), 1600, 0.001)
    claim(
        "with smaller steps, and more of them, it gets there, too",
        explained(slow, torch.randn(64, gh * gw, 3))["left"] > 0.9,
    )


@after("two-heads")
def two_heads_divide_the_work(asked_twice, several, heads, inner, gw, gh, explained):
    noise = torch.randn(64, gh * gw, 3)
    one, two = explained(asked_twice, noise), explained(several, noise)
    claim(
        "99 % of one neighbour's variance and nothing of the other's",
        max(one.values()) > 0.97 and abs(min(one.values())) < 0.05,
    )
    claim("One head answers half of the question, two heads about 98 % of it", min(two.values()) > 0.95)
    _, *maps = heads.values()
    reads = [[weights[inner, inner - step].median() for step in (1, gw)] for weights in maps]
    claim("divide the work", {row.index(max(row)) for row in reads} == {0, 1})
    pair = torch.randn(100_000, 2)
    part = 1 - (pair[:, 0] - pair.mean(dim=1)).var()  # the best guess of one from the mean of both is this mean
    claim("you recover half the variance of each", abs(part - 0.5) < 0.02)


@after("view-or-transpose")
def the_picture_is_as_it_is_told(cut, x, n, h, hd):
    claim(
        "each head has a row of every token",
        [[y // 4 for y in row[:, 0]] for row in cut.transpose(0, 1)] == [[0, 1, 2]] * 2,
    )
    claim(
        "head 0 has two rows of token 0, one of token 1, and none of token 2",
        (x.view(h, n, hd)[0, :, 0] // 4).tolist() == [0, 0, 1],
    )


@after("same-as-the-loop")
def as_many_parameters(loop, Head, d):
    several, one = (sum(p.numel() for p in part.parameters()) for part in (loop.heads, Head(d, d)))
    claim("together they have as many parameters as one", several == one)


@after("biases")
def a_key_s_bias_changes_nothing(moved):
    claim("those of the keys don't matter", 100 * moved["keys"] < min(moved["queries"], moved["values"]))


@after("measure")
def the_kernel_saves_memory(memory, lengths):
    claim("at 1,024 tokens, one matrix with the formula holds about five times as much", lengths[-1] == 1024)
    table, kernel = memory["one matrix, formula"], memory["one kernel"]
    claim("about five times as much", 2 < table[-1] / kernel[-1] < 20)
    claim(
        "the kernel's memory doubles, while a table quadruples",
        1.3 < kernel[-1] / kernel[-2] < 3 < table[-1] / table[-2] < 6,
    )


@after("asked")
def the_kernel_weighs_as_the_formula_does(gap):
    claim(None, gap < 1e-5)


@after("influence")
def a_batch_is_mixed_up(influences):
    healthy, sick = influences.values()
    claim("Each of six pictures should influence its own output only", torch.equal(healthy, healthy.diag().diag()))
    claim("each influences all", (sick > 0).all())


@after("sick-or-healthy")
def the_sick_one_fails_alone(accuracy, truth, by_class, batch_size):
    batches, alone, by_digit = accuracy.values()
    in_any = [batches[0], alone[0], by_digit[0]]
    claim("A healthy network gets 83 % right, in any batch", min(in_any) > 0.79 and max(in_any) - min(in_any) < 0.01)
    claim("83 %", max(in_any) < 0.87)
    claim("about three quarters in batches", 0.65 < batches[1] < 0.85)
    claim("a demo with one picture fails at 10 % or less", alone[1] < 0.13)
    most = max(len(part.unique()) for part in truth[by_class].split(batch_size))
    claim("at most three of the ten digits, and does worse", most <= 3 and by_digit[1] < batches[1])


@after("rows-are-independent")
def the_test_finds_it(rows_are_independent, healthy, sick, batch, tiny, digit_patches):
    claim("Sending each through alone finds it", rows_are_independent(lambda x: healthy(x, x, x)[0], batch))
    claim(None, not rows_are_independent(lambda x: sick(x, x, x)[0], batch))
    copies = tiny(digit_patches[:1].expand(8, -1, -1))
    claim("mixing equal pictures changes nothing", torch.allclose(copies, copies[:1].expand_as(copies), atol=1e-5))
