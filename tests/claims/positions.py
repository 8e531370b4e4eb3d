"""What chapter 2 says in numbers, held to what its cells computed."""

import math

import torch
from claiming import after, claim

from vit_tutorial import ViTConfig
from vit_tutorial.runs import load_recorded


@after("attend")
def inked_pixels_in_common(patches):
    common = (patches @ patches.mT)[0]
    claim("each patch has 7", common.diagonal().tolist() == [7, 7, 7, 7])
    claim("shares 4 with the one diagonally opposite", common[0, 3] == 4)


@after("same-mean")
def both_letters_give_the_same(out_o, out_x):
    claim("They differ by less than 0.000001", (out_o.mean(dim=1) - out_x.mean(dim=1)).abs().max() < 1e-6)
    claim("more than $10^{365}$ ways", math.lgamma(197) / math.log(10) > 365)


@after("whole-vit")
def a_whole_vit_is_as_blind(apart):
    claim("A whole Vision Transformer is as blind", apart["none"] < 1e-6 < 1e-5 < apart["learned"])


@after("three-rounds")
def the_class_token_is_blind_but_reads(order_blind, encode, tokens, add_cls_token, patch_tokens, cls_token):
    other = add_cls_token(0.3 * torch.randn_like(patch_tokens), cls_token)
    claim("Blind as well", order_blind(encode, tokens) and not torch.allclose(encode(tokens), encode(other), atol=1e-3))


@after("add-positions")
def positions_cure_it(order_blind, encode_with_positions, tokens):
    base = ViTConfig()  # ViT-B/16
    claim("cures the blindness", not order_blind(encode_with_positions, tokens))
    claim("197 · 768 = 151,296 numbers", base.num_tokens * base.embed_dim == 197 * 768 == 151_296)
    x, p, W = torch.randn(5, 8), torch.randn(5, 3), torch.randn(8 + 3, 7)
    torch.testing.assert_close(torch.cat([x, p], dim=1) @ W, x @ W[:8] + p @ W[8:])  # side by side is a sum


@after("neighbours")
def the_table_found_the_grid(on_grid, unit):
    right, below = ((a * b).sum(-1).mean() for a, b in ((on_grid[:, 1:], on_grid[:, :-1]), (on_grid[1:], on_grid[:-1])))
    ends = (on_grid[:, 0] * on_grid[:, -1]).sum(-1).mean()
    claim("a cosine of 0.80 with that of the patch to its right", 0.795 < right < 0.805)
    claim("0.83 with the one below", 0.825 < below < 0.835)
    claim("any two, 0.03", 0.025 < (unit @ unit.T).mean() < 0.035)
    claim("even more alike than neighbours: 0.96", 0.955 < ends < 0.965)
    claim("Training flipped each photograph half of the time", load_recorded("cifar10-tiny-mild")[1].augment.flip)


@after("dials")
def hands_of_a_clock():
    round_trips = [2 * math.pi * 10000 ** (2 * i / 16) for i in range(8)]
    claim("The first goes round in about six steps", 6 < round_trips[0] < 6.5)
    claim("about three times as long as the one before", abs(round_trips[1] / round_trips[0] - 3) < 0.2)


@after("similarity")
def only_the_distance_counts(table, similarity):
    claim("All rows are equally long", torch.allclose(table.norm(dim=1), torch.tensor(math.sqrt(table.shape[1] / 2))))
    for distance in range(len(table)):
        diagonal = similarity.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), rtol=0, atol=1e-5)


@after("two-clocks")
def one_clock_and_two(one_clock, two_clocks, here, right, below):
    one, two = ([pairs[here, there].item() for there in (right, below)] for pairs in (one_clock, two_clocks))
    claim("The cosine is 0.96 to the right and 0.66 below", abs(one[0] - 0.96) < 0.005 and abs(one[1] - 0.66) < 0.005)
    claim("the patch below is eight steps away", below - here == 8)
    claim("it takes patches 31 and 32 for neighbours", torch.isclose(one_clock[31, 32], one_clock[here, right]))
    claim("Now both neighbours get 0.97", max(abs(cosine - 0.97) for cosine in two) < 0.005)
    claim(None, two_clocks[31, 32] < two_clocks[here, below] - 0.1)


@after("who-is-above")
def one_matrix_for_all(table, M, asked):
    claim("so it takes every position back", torch.allclose(table[8:] @ M.float(), table[:-8], rtol=0, atol=1e-4))
    claim("asks as if it stood at 19", asked.argmax() == 19)


@after("stretch")
def stretched(stretched, small, new_grid):
    claim("needs 240 rows", math.prod(new_grid) == 240 == stretched.shape[1] - 1)
    claim("its row is set aside and put back", torch.equal(stretched[:, :1], small[:, :1]))  # to the last bit


@after("scale-factor")
def a_row_goes_missing(by_factor, by_size):
    claim("from a grid of 14 to one of 61, you get 60", (by_factor.shape[2], by_size.shape[2]) == (60, 61))


@after("twelve-runs")
def what_positions_are_worth(scores, images, test):
    intact, shuffled = ({kind: 100 * torch.tensor(runs) for kind, runs in s.items()} for s in scores.values())
    means = {kind: runs.mean().item() for kind, runs in intact.items()}
    with_positions = [kind for kind in means if kind != "none"]
    best, worst = max(means[kind] for kind in with_positions), min(means[kind] for kind in with_positions)
    claim("1,797 real handwritten digits", len(images) == 1797)
    claim("about 64 % right", 57 < means["none"] < 71)
    claim("Shuffling costs it nothing", torch.allclose(intact["none"], shuffled["none"], atol=0.5))
    claim("to around 93 %", 88 < worst < best < 97)
    claim("it falls to about 14 %", all(9 < shuffled[kind].mean() < 25 for kind in with_positions))
    claim("about 94 against 92 %", abs(means["sincos_1d"] - 94) < 3 and abs(means["sincos_2d"] - 92) < 5)
    furthest = max((intact[kind].max() - intact[kind].min()).item() for kind in with_positions)
    claim("two seeds of the same kind of table can differ by 4 points", 1.5 < furthest < 8)
    claim("positions were worth about 29 points", 22 < (best + worst) / 2 - means["none"] < 36)
    lead = min(intact[kind].min() for kind in with_positions) - intact["none"].max()
    claim("beats every run of the other by more than 10 points", lead > 10)
    claim("about 1.2 points either way", abs((0.93 * 0.07 / len(test)) ** 0.5 - 0.012) < 0.0005)


@after("does-stretching-pay")
def stretched_as_a_picture(on_enlarged):
    as_picture, as_line = (100 * sum(values) / len(values) for values in on_enlarged.values())
    claim("from around 93 % to about 70 %", 55 < as_picture < 82)
    claim("as a line, to about 20 %", 8 < as_line < 35)
    claim(None, as_picture > as_line + 20)


@after("copies")
def the_table_numbers_the_pictures(placed, long_table, copies_agree, sequence_first):
    claim("Broadcasting gives row 2 to every token of picture 2", (placed[2] == long_table[2]).all())
    claim(
        "all outputs must be equal", not copies_agree(sequence_first) and copies_agree(lambda x: x + long_table[:17, 0])
    )


@after("added-in-place")
def it_changes_with_every_call(first_time, second_time, own):
    claim("once more with every call", not torch.equal(first_time, second_time) and torch.equal(second_time, own))
