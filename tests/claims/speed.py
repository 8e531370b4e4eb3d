"""What chapter 11 says in numbers, held to what its cells computed: counts and arithmetic, never a clock."""

import torch
from claiming import after, claim
from scipy import optimize, stats
from torch.utils._python_dispatch import TorchDispatchMode

from vit_tutorial import PRESETS
from vit_tutorial.recipes import RECIPES
from vit_tutorial.runs import load_metrics


@after("calls")
def hundreds_of_calls(calls, one_step, recipe, device, size, batch_size):
    counted = device == "cpu" and size == "tiny" and batch_size == 128
    claim("More than 600, varying a little with PyTorch's version", 600 < calls["one step"] < 700, when=counted)
    claim("fewer than 150 of them belong to forward", calls["forward, loss, backward"] < 150, when=counted)
    claim("hundreds of calls", calls["one step"] > 200)
    config = recipe.model
    of_attention = config.num_tokens / (6 * config.embed_dim + config.num_tokens)
    claim("only 18 % of this arithmetic", round(100 * of_attention) == 18, when=size == "tiny")

    class Views(TorchDispatchMode):
        counted = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.counted += func.is_view
            return func(*args, **(kwargs or {}))

    with Views() as views:
        one_step(recipe)
    claim("Views, which move nothing, are left out", views.counted > 100)


@after("summit")
def operations_of_an_image(flops):
    claim("54 million operations", round(flops["tiny"] / 1e6) == 54)
    claim("needs 105 billion", round(flops["ViT-B/16"] / 1e9) == 105)
    claim("nearly 2,000 times as many", 1900 < flops["ViT-B/16"] / flops["tiny"] < 2000)


@after("published")
def of_the_listed_peak(published):
    deit, vit_g = published.values()
    claim("21 % of the listed peak", round(100 * deit) == 21)
    claim("on eight H100s: 29 %", round(100 * vit_g) == 29)


@after("intensity")
def what_a_byte_is_worth(points, d, wide):
    residual, norm = points["residual sum"][0], points["LayerNorm"][0]
    claim("one operation for twelve bytes, LayerNorm about one for each", abs(12 * residual - 1) < 1e-6 and norm == 1)
    claim("gets 19 out of a byte", round(points["MLP"][0]) == 19, when=d == 48)
    claim("one of width 384 over 100", points["wider MLP"][0] > 100, when=wide == 384)
    ridge = 312e12 / 2.039e12
    claim("its ridge near 150", abs(ridge - 150) < 5)
    claim("uses a seventieth of the arithmetic", 70 < ridge / 2 < 80)


@after("estimate")
def what_an_image_costs_an_a100(computing, launching, calls, launch, reached, size, batch_size, device):
    as_told = size == "tiny" and batch_size == 128 and launch == 10e-6 and reached == 0.1 and device == "cpu"
    claim("154 MB of training images", round(50_000 * 32 * 32 * 3 / 1e6) == 154)
    claim("so 1,200 a second", round(1 / (1 / 2000 + 1 / 3000)) == 1200)
    claim("you get 1,500: only a quarter more", round(1 / (1 / 2000 + 1 / 6000)) == 1500 == 1.25 * 1200)
    claim("gets 10 µs: a round number that we assume", launch == 10e-6, when=as_told)
    claim("arithmetic takes 1.7 µs an image", round(computing, 1) == 1.7, when=as_told)
    claim("some 390 calls about 30 µs", abs(calls["without augmentation"] - 390) < 15, when=as_told)
    claim("about 30 µs, at batch 128", 29 < launching < 32, when=as_told)
    claim("a GPU hardly computes with so small a model", computing < launching / 5, when=as_told)


@after("one-layer")
def calls_of_a_layer(started, operations, reached, A100, size, batch_size, device):
    as_told = size == "tiny" and batch_size == 128 and reached == 0.1
    loop, matrix, kernel = started.values()
    claim("The loop makes 30 calls", 25 < loop < 35, when=as_told and device == "cpu")
    claim("one matrix makes 10, the kernel 3", matrix < 14 and kernel < 6, when=as_told and device == "cpu")
    claim("launches a call, 10 µs each", loop > matrix > kernel)
    claim("for 128 images 8 µs in every row", round(1e6 * operations / (reached * A100)) == 8, when=as_told)


@after("saved")
def calls_and_memory_but_no_multiplication(arithmetic, memory, eager):
    loop, matrix, kernel = ("loop over heads", "one matrix", "fused kernel")
    claim("No multiplication is saved", arithmetic[loop] == arithmetic[matrix])
    claim("What's saved is launches, and by the kernel memory", eager[loop] > eager[matrix] > eager[kernel])
    claim("by the kernel memory", memory[kernel] < memory[matrix])


@after("climb")
def a_step_of_every_rung(eager, rest, size, device):
    as_told = size == "tiny" and device == "cpu"
    loop, kernel = eager["loop over heads"], eager["fused kernel"]
    claim("about a quarter of the loop's calls", 0.2 < kernel / loop < 0.33, when=as_told)
    claim("nearly four times as fast", 3.2 < loop / kernel < 4.2, when=as_told)
    claim("a whole step only 1.6 times", abs((loop + rest) / (kernel + rest) - 1.6) < 0.1, when=as_told)
    claim("some 500 calls stay", abs(rest - 500) < 50, when=as_told)
    claim("bf16 needs more calls", eager.get("kernel in bf16", kernel + 1) > kernel)


@after("growth")
def neither_four_nor_sixteen(counted, lengths, short, long, dim):
    as_told = dim == 192 and (lengths[short], lengths[long]) == (256, 1024)
    claim("at width 192, 1,152 tokens", 6 * 192 == 1152)
    claim("the count grows 6.2 times", round(counted[long] / counted[short], 1) == 6.2, when=as_told)
    claim("6.2 by the count", round(counted[long] / counted[short], 1) == 6.2, when=as_told)


@after("four-gpus")
def the_mean_is_the_whole_batch_s(mean, whole):
    apart = max((m - g).abs().max().item() for m, g in zip(mean, whole, strict=True))
    claim("One GPU's gradients, up to rounding", apart < 1e-4)


@after("cf127ceb")
def imagenet_by_arithmetic(imagenet, priced_model, num_weights):
    as_told = priced_model == PRESETS["vit_b_16"] and imagenet.__defaults__ == (1, 300, 4096, 0.30 * 989e12, 4)
    if not as_told:
        return
    one, eight, slow, fast = imagenet(1), imagenet(8), imagenet(256), imagenet(256, cables=8)
    claim("One GPU takes 38 hours", round(one[2]) == 38)
    claim("Divided by 256, that's 9 minutes", round(60 * one[2] / 256) == 9)
    claim("hides behind 182 ms of computing", round(1000 * eight[0]) == 182 > 1000 * eight[1])
    claim("computing is done in 6 ms", round(1000 * slow[0]) == 6)
    claim("if 16 images still keep a GPU busy", 4096 / 256 == 16)
    claim("the exchange takes 13 ms", round(1000 * slow[1]) == 13)
    claim("Hence 21 minutes: 108 times the speed", round(60 * slow[2]) == 21 and round(one[2] / slow[2]) == 108)
    claim("Eight cables bring it back to 9", round(60 * fast[2]) == 9)
    claim("one takes 21 minutes and the other 9", [round(60 * f[2]) for f in (slow, fast)] == [21, 9])
    claim("90 GPU hours instead of 38", [round(256 * f[2]) for f in (slow, fast)] == [90, 38])
    claim("sends 450 GB a second", abs(2 * 7 / 8 * 4 * 86.6e6 / eight[1] / 450e9 - 1) < 1e-3)
    claim("a cable to other machines carries 50", abs(2 * 31 / 32 * 4 * 86.6e6 / slow[1] / 50e9 - 1) < 1e-3)

    def full_at(gpus, **options):
        (before, earlier, _), (after_it, later, _) = (imagenet(gpus - i, **options) for i in (1, 0))
        return before >= earlier and after_it < later

    claim("One cable is full at 114 GPUs, eight at 849", full_at(114) and full_at(849, cables=8))
    claim("one cable is full only at 219 GPUs", full_at(219, bytes_each=2))
    claim("so 989 for dense matrices", round(1979 / 2) in (989, 990))
    claim("Each GPU eats 2,800 photographs a second", round(4096 / one[0], -2) == 2800)
    claim("a CPU core 10 ms, every GPU wants about thirty cores", 6500 < 256 * 4096 / one[0] / 100 < 7500)
    claim("86.6 million gradients", round(num_weights / 1e6, 1) == 86.6)
    large = imagenet(256, batch=16_384)
    claim("computes for 23 ms", round(1000 * large[0]) == 23)
    claim("the exchange still takes 13 ms", round(1000 * large[1]) == 13)
    claim("the training takes 9 minutes", round(60 * large[2]) == 9)


@after("fleets")
def the_first_figure_s_clusters(step_and_computing, priced_model, imagenet):
    slow, fast = imagenet(256), imagenet(256, cables=8)
    drawn = {"21 minutes": slow, "9 minutes": fast}
    as_told = priced_model == PRESETS["vit_b_16"] and imagenet.__defaults__ == (1, 300, 4096, 0.30 * 989e12, 4)
    as_told = as_told and set(step_and_computing) == set(drawn)
    for name, (compute, exchange, _) in drawn.items():
        step = round(1000 * max(compute, exchange), 1), round(1000 * compute, 1)
        claim(None, step == step_and_computing.get(name), when=as_told)
    claim("seven steps done; in the slow one three", [round(40 / 5.7), round(40 / 13.4)] == [7, 3])


@after("gathered")
def what_accuracy_costs(found, names, cost, val, test, pareto_front, dataset):
    if dataset != "cifar10":
        return
    run = {name: (cost[i].item(), test[i].item()) for i, name in enumerate(names)}
    on = {name for name, is_on in zip(names, pareto_front(cost, val).tolist(), strict=True) if is_on}
    short, mild, tiny, small = (run[name] for name in ("tiny-mild-10", "tiny-mild", "tiny", "small"))
    claim("from 67.1 % to 77.6 %", [round(r[1], 1) for r in (short, mild)] == [67.1, 77.6])
    claim("buy the tiny model 10.5 points", round(mild[1] - short[1], 1) == 10.5)
    claim("ten times the epochs", round(mild[0] / short[0]) == 10)
    claim("just off the front", "tiny-mild" not in on)
    claim("off the front too", "small" not in on)
    claim("adds 1.7 points with no more operations", tiny[0] == mild[0] and round(tiny[1] - mild[1], 1) == 1.7)
    claim("six times the operations for 5.4 points more", round(small[0] / tiny[0]) == 6)
    claim("5.4 points more", round(small[1] - tiny[1], 1) == 5.4)
    claim("costs nearly as much as our racer", 0.8 < run["small-published-10"][0] / run["speedrun"][0] < 1)
    told = [seeds for name, seeds in found.items() if name in run and name != "speedrun"]
    claim("All but the speedrun are single runs", all(len(seeds) == 1 for seeds in told))
    variants = {load_metrics(f"cifar10-{name}")["data"] for name in ("tiny", "small", "speedrun", "mixed")}
    claim("trained and tested on a JPEG copy of CIFAR-10", variants == {"CIFAR-10 (JPEG copy)"})


@after("result")
def the_race(seeds, scores, minutes, curves, to_beat, entry):
    if entry != "cifar10-speedrun":
        return
    model, larger, mixed = (RECIPES[f"cifar10-{name}"].model for name in ("speedrun", "small", "mixed"))
    claim("128 wide instead of 192", [model.embed_dim, larger.embed_dim] == [128, 192])
    claim("a class token, 25 epochs", RECIPES[entry].epochs == 25 and [model.pool, larger.pool] == ["mean", "cls"])
    claim("Five seeds of the speedrun", len(scores) == 5)
    claim("after 28 minutes", round(minutes[-1]) == 28)
    claim("a CPU recorded as `AVX512`", seeds[0]["device"] == "CPU (AVX512), 2 threads")
    guide = load_metrics("cifar10-small-published-10-epochs")
    claim("recipe ended at 59 %", round(100 * guide["test"]["accuracy"]) == 59)
    first = next(iter(curves.values()))
    passed = next(m for m, accuracy in zip(minutes, first, strict=True) if accuracy > to_beat)
    claim("After 2 minutes", round(passed) == 2)
    share = scores.mean().item() / 100
    claim("84.1 %", round(100 * share, 1) == 84.1)
    interval = stats.t.ppf(0.975, len(scores) - 1) * scores.std().item() / len(scores) ** 0.5
    claim("Five seeds make that ± 0.3", round(interval, 1) == 0.3)
    claim("the 10,000 test images add ± 0.7", round(196 * (share * (1 - share) / 10_000) ** 0.5, 1) == 0.7)
    other = load_metrics("cifar10-mixed")
    claim("the same model", mixed == model)
    dearer = other["samples_seen"] / seeds[0]["samples_seen"]
    claim("1.7 points more", round(100 * (other["test"]["accuracy"] - share), 1) == 1.7)
    claim("for 1.8 times the operations", round(dearer, 1) == 1.8)


@after("same")
def the_fit_is_scipy_s(fit_cost):
    tokens = torch.tensor([144, 256, 576, 1296])
    took = 2e-6 * tokens + 3e-9 * tokens**2
    design = torch.stack([tokens, tokens**2], dim=1).double()
    solved, _ = optimize.nnls(design.numpy(), took.double().numpy())
    torch.testing.assert_close(
        torch.tensor(fit_cost(tokens, took)).double(), torch.from_numpy(solved), rtol=1e-3, atol=0
    )
