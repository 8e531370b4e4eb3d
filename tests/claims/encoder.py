"""What chapter 4 says in numbers, held to what its cells computed."""

import math

import torch
import torch.nn.functional as F
from claiming import after, claim


@after("alone")
def attention_alone_averages(after, difference):
    differ = [difference(x).item() for x in after]
    claim("They differ by 38 % at first", 0.36 < differ[0] < 0.40)
    claim("by less than 1 % after one layer", differ[1] < 0.01)
    claim("by less than 0.001 % after two", differ[2] < 1e-5)


@after("sums")
def sums_keep_the_image(differ):
    claim(
        "With sums they still differ by 8 to 9 % after 24", all(0.075 < run[24] < 0.095 for run in differ["with sums"])
    )
    claim(
        "With sums, tokens still differ by 8 to 9 % after 24 blocks", all(len(run) == 25 for run in differ["with sums"])
    )
    claim("the same vector after three blocks, up to rounding", all(run[3] < 1e-5 for run in differ["without sums"]))


@after("gradients")
def the_gradient_lives(rows):
    without = [row[1:] for row in rows if row[0] == "without sums"]
    claim("the first block gets no less than the last", all(first > last for first, last, _ in without))
    claim("Only queries and keys get almost none", all(part < 1e-4 * last for _, last, part in without))
    claim(None, all(row[3] > 1e-3 * row[2] for row in rows if row[0] == "with sums"))


@after("loudness")
def the_stream_swells(stream, added, terms, rms, difference):
    grown = rms(stream[-1]) / rms(stream[0])
    claim("It gets 7 × as loud", 6.2 < grown < 7.8)
    claim("at the price of a stream that gets 7 × as loud", len(terms) == 49)
    claim("the stream gets 7 × as loud: hence", len(stream) == 25)
    at_right_angles = math.sqrt(sum(rms(x) ** 2 for x in terms)) / rms(stream[0])
    claim("Pythagoras gives nearly the same", abs(at_right_angles / grown - 1) < 0.1)
    torch.testing.assert_close(stream[-1], sum(terms), rtol=1e-3, atol=1e-3)
    first, second = (difference(x).item() for x in added["attention"][:2])
    claim("it differs by 6 to 7 % in the first block", 0.05 < first < 0.08)
    claim("by less than 2 % in the second", second < 0.02)
    apart = [rms(x - x.mean(dim=1, keepdim=True)) for x in (stream[0], stream[-1])]
    claim("what tells them apart falls behind", 1 < apart[1] / apart[0] < 2.5 < grown)


@after("no-norms")
def without_norms_it_explodes(raw, rms):
    claim("the stream grows more than ten-thousandfold", rms(raw[-1]) / rms(raw[0]) > 10_000)


@after("final-norm")
def a_last_norm_evens_out(first_loss):
    claim("it starts with a loss of about 7", 6 < first_loss["without"][-1] < 8.2)
    claim("With the final norm it stays near that at any depth", all(2.1 < loss < 2.8 for loss in first_loss["with"]))


@after("layer-norm")
def a_token_by_hand(four, layer_norm):
    out = layer_norm(four, torch.ones(4), torch.zeros(4), 1e-6)
    claim("(−0.58, −0.58, −0.58, 1.73)", [round(value, 2) for value in out.tolist()] == [-0.58, -0.58, -0.58, 1.73])


@after("axes")
def which_oddities_stay(odd, per_token, per_channel):
    claim("makes *tokens* 2 and 5 ordinary", per_token.std(1).max() < 1.1 and per_token.mean(1).abs().max() < 1e-5)
    claim("keeps the odd *channel*, 8", per_token[:, 8].mean() > 1.5)
    claim(
        "Along the wrong axis it's the other way round", per_channel.mean(0).abs().max() < 1e-5 < per_channel[5].mean()
    )


@after("unseen")
def what_a_norm_hides(change):
    claim(
        "nothing changes. Noise gets through", max(change["3 · x"], change["x + 7"]) < 1e-3 and change["x + noise"] > 1
    )


@after("epsilon")
def a_blank_patch_is_too_quiet(after_norm):
    torchs, timms, *_ = after_norm["was 0.02"]
    claim("With 1e-5 such a token comes out 1.2 % too quiet", 0.0115 < 1 - torchs < 0.0125)
    claim("with 1e-6 it's 0.1 %", 0.001 < 1 - timms < 0.0015)


@after("poke")
def who_talks_to_whom(changed, yours):
    claim("one output has changed. Attention *gathers* from others: all 49 have", [*changed.values()] == [1, 1, 49])
    size = {name: sum(p.numel() for p in part.parameters()) for name, part in yours.named_children()}
    claim("it holds two thirds of the block's parameters", 0.65 < size["mlp"] / sum(size.values()) < 0.68)


@after("product-learned")
def an_mlp_learns_a_product_sooner(learned):
    whole, without = learned["whole block"], learned["without MLP"]
    claim("The whole block is there within 100 steps", whole[:, 4:].min() > 0.9)
    claim("slower rather than blind", without[:, 4].mean() < whole[:, 4].mean() - 0.05 and without[:, -1].min() > 0.75)
    claim("after 300 steps 10 to 15 % is left to explain", 0.06 < 1 - without[:, -3:].mean() < 0.18)


@after("gelus")
def two_gelus_and_dead_units(gap, dead, slope, line):
    claim("The two differ by at most 0.0005", 0.0004 < gap < 0.0005)
    claim(
        "with ReLU most of them are dead then, with the GELU none",
        dead["relu, minus 2"] > 0.6 > dead["gelu, minus 2"] == 0,
    )
    slopes = slope(F.gelu, line)
    claim("left of −0.75", slopes[line < -0.76].max() < 0 < slopes[line > -0.75].min())


@after("rates")
def pre_norm_takes_the_larger_rate(reached):
    small, large = sorted({rate for _, rate in reached})
    claim(
        "Both learn at 0.001",
        all(loss < 1.9 for (_, rate), losses in reached.items() if rate == small for loss in losses),
    )
    claim("At 0.005, pre-norm still learns", max(reached["pre-norm", large]) < 1.7)
    claim("post-norm never leaves the loss of guessing", min(reached["post-norm", large]) > 2.1)
    claim("unless it has warm-up", sum(reached["post-norm, warm-up", large]) / 3 < 2)


@after("suspects")
def a_step_moves_post_norm_further(rows):
    pre, post = ([row[1:] for row in rows if row[0] == name] for name in ("pre-norm", "post-norm"))
    claim(
        "Post-norm's gradient is about as large in the first block as in the last",
        all(0.4 < row[0] < 2.5 for row in post),
    )
    ratio = sum(row[1] for row in post) / sum(row[1] for row in pre)
    claim("one step moves what its head reads about twice as far", 1.6 < ratio < 3)
    claim("at 0.005 pre-norm moves by more than 100 %, and learns", sum(row[3] for row in pre) / len(pre) > 1)


@after("depth-matters")
def depth_amplifies_noise(moves):
    grown = {name: values[-1] / values[0] for name, values in moves.items()}
    claim("grows about threefold with pre-norm", 2 < grown["pre-norm"] < 4)
    claim("about sevenfold with post-norm", 5 < grown["post-norm"] < 10)


@after("flips")
def flips_of_a_step(drop_rates, drop_path):
    claim("The rate rises to 40 %", drop_rates[0] == 0 and math.isclose(drop_rates[-1], 0.4, rel_tol=1e-6))
    claim("since the mean rate is 20 %", math.isclose(sum(drop_rates) / len(drop_rates), 0.2, rel_tol=1e-6))
    claim("An image skips 4.8 of 24 on average", math.isclose(2 * sum(drop_rates), 4.8, rel_tol=1e-6))
    many = drop_path(torch.ones(4000, 1, 1), 0.4, True)
    claim("which keeps their expectation", 0.9 < many.mean() < 1.1)


@after("twins")
def dead_norms_cost_and_still_train(twins):
    healthy, sick = ([sum(run[-10:]) / 10 for run in runs] for runs in twins.values())
    claim("the loss at the end is nearly twice theirs", 1.3 < sum(sick) / sum(healthy) < 2.6)
    claim("the sick one trains", max(sick) < 0.9)


@after("no-gradient")
def four_parameters_get_nothing(suspect):
    lost = [name for name, p in suspect.named_parameters() if p.grad is None]
    claim("which parameters have no gradient?", len(lost) == 4 and all(".norm." in name for name in lost))


@after("alive")
def the_test_tells_them_apart(pair, norm_is_alive, probe):
    claim(None, [norm_is_alive(one, "residual1.norm", probe) for one in pair] == [True, False])


@after("identity")
def a_stray_norm_is_alive_and_no_identity(tests):
    claim("A second error passes the norm's test", [*tests.values()] == [(True, True), (True, False)])


@after("02e7abc2")
def where_attention_overtakes(block_multiply_adds):
    attention, mlp = block_multiply_adds(2 * 192, 192, 4)
    claim("that is at $n = 2d$", attention == mlp)
