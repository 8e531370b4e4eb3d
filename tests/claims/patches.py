"""What chapter 1 says in numbers, held to what its cells computed."""

import torch
from claiming import after, claim


@after("pairs")
def tables_of_pixels_and_of_patches(pairs):
    pixels, patches = (4 * pairs(size)[1] for size in (1, 16))  # bytes
    claim("Ten gigabytes for 2.5 billion pairs", pairs(1)[1] == 2_517_630_976 and 9.5e9 < pixels < 10.5e9)
    claim("one and a half terabytes for all 144", 1.4e12 < 144 * pixels < 1.5e12)
    claim(
        "a table shrinks to 0.15 MB, all 144 to 22 MB",
        round(patches / 1e6, 2) == 0.15 and round(144 * patches / 1e6) == 22,
    )
    claim("16^4 = 65{,}536$ times smaller", pixels == 65_536 * patches)
    claim("it's 38,416", pairs(16) == (196, 38_416))


@after("cost-by-patch")
def comparing_is_little(cost_of, d_base, pairs):
    matrices, comparing = cost_of[16]
    claim("comparing is 4 % of the work", 0.035 < comparing / (comparing + matrices) < 0.045)
    claim("that's 4,608 tokens, more than even patches of 4 × 4 would give", 6 * d_base == 4608 > pairs(4)[0])


@after("pieces")
def a_reshaped_patch_is_lines(image, wrong, W):
    claim("the top 13.7 lines of the red channel", torch.equal(wrong[0, 0], image[0, 0].flatten()[: wrong.shape[2]]))
    claim("It holds 13.7 lines", round(wrong.shape[2] / W, 1) == 13.7)


@after("tiny")
def reshape_takes_the_top_line(cut, reshaped):
    claim("Its top left 2 × 2 patch holds 0, 1, 4 and 5", cut[0, 0].tolist() == [0, 1, 4, 5])
    claim("reshape hands us the top line instead", reshaped[0, 0].tolist() == [0, 1, 2, 3])


@after("addresses")
def only_the_last_step_copies(split, moved, merged, image):
    copies = [t.data_ptr() != image.data_ptr() for t in (split, moved, merged)]
    claim("The last one. Split and permute share the picture's memory", copies == [False, False, True])
    try:
        moved.view(merged.shape)
    except RuntimeError as refusal:
        claim("`view`, which never copies, would refuse", "view" in str(refusal))


@after("fastest")
def four_ways_and_the_same_bits(ways):
    several = torch.rand(2, 3, 24, 40)  # no two sizes alike, so that no mix-up can hide
    same = [
        torch.equal(way(several, *size), ways["loop"](several, *size))
        for size in [(4, 8), (6, 5), (24, 1), (1, 40)]
        for way in ways.values()
    ]
    claim("the same bits from all four", all(same))


@after("judge")
def only_the_right_way_comes_back(back, back_from_wrong, image):
    claim("Every pixel is back in its place", torch.equal(back, image))
    claim("what the bare reshape gives a model", not torch.equal(back_from_wrong, image))


@after("train-both")
def the_scramble_costs(scores, accuracy_with, cuts):
    patches, scrambled = (torch.tensor(values) for values in scores.values())
    claim("about 86 % of new digits", 0.82 < patches.mean() < 0.9)
    claim("scrambled about 72 %", 0.66 < scrambled.mean() < 0.79)
    claim("every seed agrees", patches.min() > scrambled.max())
    small = [accuracy_with(cut, 0, patch_size=2) for cut in cuts.values()]
    claim("then half a line, and the scramble wins", small[1] > small[0])


@after("clinic-rows")
def in_chapter_12_too(rows):
    scores = {name: [r["test_accuracy"] for r in rows if r["variant"] == name] for name in {r["variant"] for r in rows}}
    healthy, sick = (sum(x) / len(x) for x in (scores["healthy"], scores["reshape without permute"]))
    claim("55 % and 50 %", 0.545 < healthy < 0.555 and 0.49 < sick < 0.505)
    claim("three seeds or more", min(len(scores["healthy"]), len(scores["reshape without permute"])) >= 3)
    claim("a line and a half of one colour channel", 3 * 4 * 4 == 1.5 * 32)  # CIFAR's lines have 32 pixels


@after("round-trip")
def reshaping_back_finds_nothing(repaired_by_shape, image):
    scrambled = repaired_by_shape(image, (16, 16))
    claim("reshaping back: that cancels its own mistake", torch.equal(scrambled.reshape(image.shape), image))


@after("by-hand")
def one_number_of_a_token(pixels, kernels, maps):
    claim(None, (pixels[:2, :2] * kernels[0]).sum() == maps[0, 0, 0] == 1)  # as the figure has it


@after("same-weights")
def a_convolution_is_a_matrix(from_linear, from_conv):
    claim("the two agree to within a few millionths", (from_linear - from_conv).abs().max() < 1e-5)


@after("colours-last")
def the_same_once_the_columns_move(as_it_was, columns_moved, from_conv):
    torch.testing.assert_close(columns_moved, from_conv, rtol=1e-4, atol=1e-5)
    claim(
        "such weights don't fit a model that flattens patches colours first", (as_it_was - from_conv).abs().max() > 0.01
    )


@after("patch-embed")
def a_coincidence(ours, image):
    claim("196 tokens come out", ours(image).shape == (1, 196, 768))
