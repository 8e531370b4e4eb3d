"""Checks of chapter 7, training on small photographs."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from vit_tutorial.exercises.engine import call, checks, close, compare, expect, expect_shape, rule_out
from vit_tutorial.recipes import split_product


def update_average(
    average: dict[str, Tensor], weights: dict[str, Tensor], decay: float, step: int
) -> dict[str, Tensor]:
    """The average after step ``step``: ``decay`` of the old one, less in the first steps, and the rest of the new."""
    decay = min(decay, (step + 1) / (step + 10))
    return {name: decay * average[name] + (1 - decay) * weights[name] for name in average}


@checks(update_average)
def check_update_average(fn):
    average = {"fc.weight": torch.tensor([[1.0, 2.0, 4.0]]), "fc.bias": torch.tensor([3.0])}
    weights = {"fc.weight": torch.tensor([[2.0, 6.0, 1.0]]), "fc.bias": torch.tensor([-1.0])}
    decay = 0.9

    def flat(state: dict[str, Tensor]) -> Tensor:
        return torch.cat([state[name].flatten() for name in ("fc.weight", "fc.bias")])

    def update(step: int) -> Tensor:
        result = call(fn, average, weights, decay, step)
        expect(isinstance(result, dict), f"expected a dict of tensors, got {type(result).__name__}")
        missing = sorted(set(average) - set(result))
        expect(not missing, f"{', '.join(missing)} is missing: every weight is averaged")
        for name, value in average.items():
            expect_shape(result[name], tuple(value.shape), f"{name} keeps its shape")
        return flat(result)

    def blend(share: float) -> Tensor:
        return share * flat(average) + (1 - share) * flat(weights)

    late = 200  # (200 + 1) / (200 + 10) is more than 0.9
    compare(
        update(late),
        torch.tensor([1.1, 2.4, 3.7, 2.6]),
        {
            "average and weights are swapped: `decay` is what the old average keeps": blend(1 - decay),
            "late in the run the larger of the two was taken. The average keeps the *smaller*: decay, from here on": (
                blend((late + 1) / (late + 10))
            ),
            "that is the middle between the two: use decay": blend(0.5),
            "those are the new weights: nothing of the old average is left": blend(0.0),
            "the average did not move": blend(1.0),
            "the new weights were added in full; their share is 1 − decay": decay * flat(average) + flat(weights),
        },
        f"at step {late} the average must be {decay} of the old one and {1 - decay:.1f} of the weights",
    )
    compare(
        update(8),
        blend(0.5),
        {
            "the first steps are like later ones, so the average would remember the initial weights. Early it keeps "
            "(step + 1) / (step + 10) only": blend(decay),
            "the early share is step / (step + 10); step counts from 0, so add 1 above": blend(8 / 18),
            "that is the plain mean over all steps so far, which never forgets": blend(8 / 9),
        },
        "at step 8 the average must keep 9 / 18 of the old one",
    )
    expect(close(update(0), blend(0.1)), "at step 0 the average must keep 1 / 10 of the old one")


def cut_and_mix(
    images: Float[Tensor, "b c H W"],
    targets: Float[Tensor, "b k"],
    boxes: Int64[Tensor, "b 4"],
    partner: Int64[Tensor, " b"],
) -> tuple[Float[Tensor, "b c H W"], Float[Tensor, "b k"]]:
    """Put a box (top, left, height, width) of the partner into each image; targets mix by the pixels replaced."""
    mixed, shares = images.clone(), []
    height, width = images.shape[2:]
    for i, (top, left, tall, wide) in enumerate(boxes.tolist()):
        rows = slice(max(0, top), max(0, min(top + tall, height)))
        cols = slice(max(0, left), max(0, min(left + wide, width)))
        mixed[i, :, rows, cols] = images[partner[i], :, rows, cols]
        shares.append((rows.stop - rows.start) * (cols.stop - cols.start) / (height * width))
    share = torch.tensor(shares)[:, None]
    return mixed, (1 - share) * targets + share * targets[partner]


@checks(cut_and_mix)
def check_cut_and_mix(fn):
    b, k, height, width = 4, 3, 6, 10
    images, targets = torch.rand(b, 2, height, width) + 1, torch.eye(k)[torch.tensor([0, 1, 2, 1])]
    partner = torch.tensor([1, 2, 3, 0])  # not its own inverse
    # One box inside, one that is cut below and right, one cut above and left, one that covers more than half.
    boxes = torch.tensor([[1, 2, 3, 5], [4, 7, 5, 6], [-2, -1, 4, 3], [0, 0, 5, 9]])
    result = call(fn, images, targets, boxes, partner)
    expect(
        isinstance(result, tuple | list) and len(result) == 2,
        f"expected two tensors, images and targets; got {type(result).__name__}",
    )
    expect_shape(result[0], (b, 2, height, width), "the images keep their size")
    expect_shape(result[1], (b, k), "a row of targets for each image")

    def inside(boxes: Tensor) -> Tensor:
        """True in each image's box, pixel by pixel."""
        mask = torch.zeros(b, height, width, dtype=torch.bool)
        for i, (top, left, tall, wide) in enumerate(boxes.tolist()):
            for y in range(height):
                for x in range(width):
                    mask[i, y, x] = top <= y < top + tall and left <= x < left + wide
        return mask

    def paste(mask: Tensor, other: Tensor) -> Tensor:
        return torch.where(mask[:, None], images[other], images)

    def mix(share: Tensor, other: Tensor) -> Tensor:
        return (1 - share[:, None]) * targets + share[:, None] * targets[other]

    mask, inverse = inside(boxes), partner.argsort()
    from_end = boxes.clone()
    from_end[:, :2] = boxes[:, :2] % torch.tensor([height, width])  # where Python's negative indices begin
    corners = boxes.clone()
    corners[:, 2:] -= corners[:, :2]  # height and width read as bottom and right
    compare(
        result[0],
        paste(mask, partner),
        {
            "the images were not mixed": images,
            "box and rest are swapped: the box comes from the partner, the rest stays": paste(~mask, partner),
            "the box was filled with zeros, not with the partner's pixels": images * ~mask[:, None],
            "top and left, height and width are swapped: rows come first": paste(
                inside(boxes[:, [1, 0, 3, 2]]), partner
            ),
            "height and width were read as the box's lower and right end": paste(inside(corners), partner),
            "all images have the box of the first one. Each has its own": paste(
                inside(boxes[:1].expand(b, 4)), partner
            ),
            "the partner of image i is images[partner[i]]. You took the image whose partner i is": paste(mask, inverse),
            "a negative top or left counts from the other end in Python: cut the box at 0": paste(
                inside(from_end), partner
            ),
            "a box that begins above or left of the image vanished: only the part outside is cut off": paste(
                mask & (torch.arange(b) != 2)[:, None, None], partner
            ),
            "a box that begins above or left of the image kept its full size: what lies outside is lost": paste(
                inside(torch.cat([boxes[:, :2].clamp(min=0), boxes[:, 2:]], dim=1)), partner
            ),
            "the box came from another place of the partner: pixels keep their places": torch.where(
                mask[:, None], images[partner].flip(-1), images
            ),
        },
        "an image must hold its partner's pixels inside its box, and its own elsewhere",
    )
    share = mask.float().mean(dim=(1, 2))
    whole = boxes[:, 2] * boxes[:, 3] / (height * width)
    compare(
        result[1],
        mix(share, partner),
        {
            "the targets were not mixed: an image that is half a ship should be called so": targets,
            "the targets are swapped: the share of the box belongs to the partner": mix(1 - share, partner),
            "the share is that of the whole box. Where it sticks out over the border, fewer pixels were replaced": mix(
                whole, partner
            ),
            "the targets are those of the larger part. Mix them by the share of pixels": torch.where(
                share[:, None] > 0.5, targets[partner], targets
            ),
            "all targets were mixed by the mean share. Each image has its own": mix(share.mean().expand(b), partner),
            "the targets come from another partner than the pixels": mix(share, inverse),
            "all targets were mixed half and half. The share is that of the pixels": mix(
                torch.full((b,), 0.5), partner
            ),
        },
        "the targets differ from (1 − share) · target + share · partner's target, share being that of replaced pixels",
    )


@checks(split_product)
def check_split_product(fn):
    d, rank = 5, 3
    u, v = (torch.linalg.qr(torch.randn(d, d)).Q for _ in range(2))
    s = torch.tensor([8.0, 4.0, 2.0, 1.0, 0.5])
    product = (u * s) @ v.T
    result = call(fn, product, rank)
    expect(
        isinstance(result, tuple | list) and len(result) == 2,
        f"expected two matrices, left and right; got {type(result).__name__}",
    )
    left, right = result
    expect_shape(left, (d, rank), "left has a column for each direction that is kept")
    expect_shape(right, (d, rank), "right has a column for each direction that is kept; svd gives Vᵀ, with rows")

    def rebuild(values: Tensor, kept: slice) -> Tensor:
        return (u[:, kept] * values[kept]) @ v[:, kept].T

    strong = slice(0, rank)
    compare(
        left @ right.T,
        rebuild(s, strong),
        {
            "the weakest directions were kept; svd puts the strongest first": rebuild(s, slice(d - rank, d)),
            "both factors carry the whole singular values, so the product has their squares": rebuild(s**2, strong),
            "each factor has half of every singular value, and halves multiply to a quarter of its square": rebuild(
                s**2 / 4, strong
            ),
            "the singular values are missing": rebuild(torch.ones(d), strong),
            "left and right are swapped: that is the product's transpose": rebuild(s, strong).T,
            "the roots are on one side only: each side needs them": rebuild(s.sqrt(), strong),
        },
        f"left @ right.T must be the product with its {rank} strongest directions alone. If you took columns of what "
        "svd gives last: its *rows* are the directions",
        tolerance=1e-4,
    )
    values = torch.linalg.svdvals(left), torch.linalg.svdvals(right)
    expect(
        close(values[0], values[1], 1e-4),
        f"the product is right, but the two are not equally large: singular values {values[0].tolist()} and "
        f"{values[1].tolist()}. Give each the root",
    )


def most_confused_pairs(confusion: Int64[Tensor, "k k"], count: int) -> list[tuple[int, int, int]]:
    """The ``count`` most frequent mistakes as (true class, predicted class, times), the most frequent first."""
    mistakes = confusion.clone().fill_diagonal_(-1)
    top = mistakes.flatten().topk(count)
    k = len(confusion)
    return [
        (index // k, index % k, times) for index, times in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]


@checks(most_confused_pairs)
def check_most_confused_pairs(fn):
    confusion = torch.tensor([[50, 7, 1, 0], [9, 40, 3, 6], [2, 12, 30, 5], [0, 14, 8, 20]])
    result = call(fn, confusion, 4)
    expect(isinstance(result, list | tuple), f"expected a list of triples, got {type(result).__name__}")
    expect(len(result) == 4, f"4 pairs were asked for, got {len(result)}")
    expect(
        all(isinstance(entry, list | tuple) and len(entry) == 3 for entry in result),
        "each entry must be a triple: true class, predicted class, times",
    )
    found = torch.tensor([[float(number) for number in entry] for entry in result])
    expect(
        bool((found == found.floor()).all()),
        f"classes are whole numbers: rows come from // and columns from %, got {found.tolist()}",
    )
    found = found.long()
    truth = torch.tensor([[3, 1, 14], [2, 1, 12], [1, 0, 9], [3, 2, 8]])
    compare(
        found,
        truth,
        {
            "the diagonal counts what was right. Leave it out": torch.tensor(
                [[0, 0, 50], [1, 1, 40], [2, 2, 30], [3, 3, 20]]
            ),
            "rows and columns are swapped: a row is a *true* class, a column a *predicted* one": truth[:, [1, 0, 2]],
            "the rarest mistakes come first: sort the other way round": torch.tensor(
                [[0, 3, 0], [3, 0, 0], [0, 2, 1], [2, 0, 2]]
            ),
            "those are the right four, but from the fourth to the first": truth.flip(0),
            "only one half of the matrix was searched. Class a taken for b and b taken for a are two mistakes": (
                torch.tensor([[0, 1, 7], [1, 3, 6], [2, 3, 5], [1, 2, 3]])
            ),
            "both directions were added up. A cat taken for a dog is not a dog taken for a cat": torch.tensor(
                [[1, 3, 20], [0, 1, 16], [1, 2, 15], [2, 3, 13]]
            ),
            "the worst mistake of each row was taken. One row may hold two of the worst": torch.tensor(
                [[3, 1, 14], [2, 1, 12], [1, 0, 9], [0, 1, 7]]
            ),
        },
        f"wanted {truth.tolist()}, got {found.tolist()}",
    )
    expect(len(call(fn, confusion, 1)) == 1, "with count 1 a single pair was wanted")
    few = call(fn, torch.tensor([[3, 0], [0, 4]]), 2)
    expect(
        all(int(true) != int(said) for true, said, _ in few),
        f"where two mistakes were never made, the diagonal came back instead: {few}. Mask it with -1, not with 0",
    )


def expected_calibration_error(
    probabilities: Float[Tensor, "n k"], labels: Int64[Tensor, " n"], num_bins: int
) -> Float[Tensor, ""]:
    """Mean gap between confidence and accuracy over bins of equal width, each weighted by its number of images."""
    confidence, predictions = probabilities.max(dim=1)
    right = (predictions == labels).float()
    place = (confidence * num_bins).ceil().long().clamp(1, num_bins) - 1
    gaps = torch.zeros(num_bins).index_add(0, place, confidence - right)
    return gaps.abs().sum() / len(labels)


@checks(expected_calibration_error)
def check_expected_calibration_error(fn):
    # Four bins; nothing falls into the first, and the model is certain of one image, wrongly.
    confidence = torch.tensor([0.30, 0.40, 0.60, 0.55, 0.70, 0.65, 0.90, 1.00, 0.80, 0.95, 0.85, 0.75 + 0.01])
    right = torch.tensor([0.0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0])
    n, k = len(confidence), 4
    predicted = torch.arange(n) % k
    # The runner-up takes less than the winner; where the winner is wrong, the label is the runner-up.
    probabilities = ((1 - confidence) / (k - 1))[:, None].repeat(1, k)
    probabilities[torch.arange(n), predicted] = confidence
    labels = torch.where(right.bool(), predicted, (predicted + 1) % k)
    bins = [(confidence > i / 4) & (confidence <= (i + 1) / 4) for i in range(4)]
    groups = [(confidence[bin], right[bin]) for bin in bins if bin.any()]
    gaps = torch.stack([(sure - is_right).mean().abs() for sure, is_right in groups])
    signed = torch.stack([(sure - is_right).mean() for sure, is_right in groups])
    weight = torch.tensor([len(sure) / n for sure, _ in groups])
    result = call(fn, probabilities, labels, 4)
    result = torch.as_tensor(result, dtype=torch.float32)
    expect_shape(result, (), "one number for all images")
    expect(
        not result.isnan(),
        "the result is NaN: a bin without images gave 0 / 0. Leave it out, or add up before you divide",
    )
    truth = (weight * gaps).sum()
    of_label = probabilities[torch.arange(n), labels]
    by_label = [(of_label > i / 4) & (of_label <= (i + 1) / 4) for i in range(4)]
    compare(
        result,
        truth,
        {
            "all bins count the same. Weight each by its share of the images": gaps.mean(),
            "you divided by num_bins, empty ones included. Weight each bin by its share of the images": gaps.sum() / 4,
            "that is the sum of the bins' gaps. Weight each by its share of the images": gaps.sum(),
            "gaps of different sign cancel: take the absolute value in each bin, before you add up": (
                weight * signed
            ).sum(),
            "that is accuracy minus confidence, and gaps of different sign cancel": -(weight * signed).sum(),
            "the gaps were squared": (weight * gaps**2).sum(),
            "that is the largest gap. The mean over bins was wanted, weighted by their images": gaps.max(),
            "the absolute value was taken image by image. In a bin, what is too sure and what is not sure enough even "
            "out: average first": (confidence - right).abs().mean(),
            "those are percentages; a share between 0 and 1 was wanted": 100 * truth,
            "the confidence is the largest probability, whether it is right or not. You took the true class's": (
                torch.stack([(of_label[bin] - right[bin]).sum().abs() for bin in by_label]).sum() / n
            ),
            "an image with confidence 1 fell out of the last bin": torch.stack(
                [(confidence - right)[bin & (confidence < 1)].sum().abs() for bin in bins]
            ).sum()
            / n,
            "an image with confidence 1 fell out of the last bin, and out of the number of images": torch.stack(
                [(confidence - right)[bin & (confidence < 1)].sum().abs() for bin in bins]
            ).sum()
            / (n - 1),
            "the bins hold equally many images. Bins of equal width were wanted: 0 to 1/4, 1/4 to 1/2, …": torch.stack(
                [part.sum().abs() for part in (confidence - right)[confidence.argsort()].chunk(4)]
            ).sum()
            / n,
            "the bins reach from the lowest confidence to the highest. They divide 0 to 1": _gap_over(
                confidence, right, float(confidence.min()), 1.0
            ),
        },
        "the result differs from Σ (images in bin / all images) · |accuracy in bin − mean confidence in bin|",
        tolerance=1e-4,
    )
    # Cut into thirds, the bins hold 2, 3 and 7 of them.
    thirds = [(confidence > i / 3) & (confidence <= (i + 1) / 3) for i in range(3)]
    truth = torch.stack([(confidence - right)[bin].sum().abs() for bin in thirds]).sum() / n
    compare(
        torch.as_tensor(call(fn, probabilities, labels, 3), dtype=torch.float32),
        truth,
        {},
        "right with 4 bins and wrong with 3: num_bins is given, and is not the number of classes",
        tolerance=1e-4,
    )


def _gap_over(confidence: Tensor, right: Tensor, low: float, high: float) -> Tensor:
    place = ((confidence - low) / (high - low) * 4).ceil().clamp(1, 4)
    return torch.stack([(confidence - right)[place == i].sum().abs() for i in range(1, 5)]).sum() / len(right)


def loss_weights(counts: Int64[Tensor, " p"]) -> Float[Tensor, " p"]:
    """What each process multiplies its mean loss by, so that the mean of all gradients is that of the whole batch."""
    return counts * len(counts) / counts.sum()


@checks(loss_weights)
def check_loss_weights(fn):
    counts = torch.tensor([5, 4, 2])
    x, y, w = torch.randn(11, 3), torch.randn(11), torch.randn(3)
    per_image = 2 * (x @ w - y)[:, None] * x  # the gradient of each image's squared error, by hand
    shards = torch.stack([part.mean(dim=0) for part in per_image.split(counts.tolist())])
    result = call(fn, counts)
    expect_shape(result, (3,), "one weight for each process")
    result = result.float()
    rule_out(
        result,
        {
            "all processes count the same, so an image on the smallest one counts most": torch.ones(3),
            "the weights are shares that add up to 1. But the processes' gradients are *averaged*: that divides by "
            "their number once more": counts / 11,
            "the weights are the numbers of images. The mean gradient would grow with the batch": counts.float(),
            "the larger a shard, the *more* its mean counts; this is turned round": 11 / (3 * counts),
            "each weight is 1 over the number of processes, which the averaging does already": torch.full((3,), 1 / 3),
            "you divided by the largest shard; divide by the mean one": counts / 5,
            "you divided by the smallest shard; divide by the mean one": counts / 2,
            "you divided by the number of processes; divide by the images of the mean shard": counts / 3,
        },
    )
    whole = per_image.mean(dim=0)
    averaged = (result[:, None] * shards).mean(dim=0)
    expect(
        close(averaged, whole, 1e-4),
        f"with the weights {result.tolist()} the mean over processes is not the gradient of the mean over 11 images",
    )
    equal = call(fn, torch.tensor([4, 4])).float()
    expect(close(equal, torch.ones(2)), f"with equal shards every weight is 1, got {equal.tolist()}")
