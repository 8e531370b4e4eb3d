"""Which recipes are compared: one change at a time, from one base for each data set (chapters 7, 10, 11 and 13)."""

from dataclasses import dataclass, replace
from functools import partial

from vit_tutorial.archs.modern import MODERN
from vit_tutorial.archs.patients import PATIENTS, last_epoch
from vit_tutorial.archs.registry import FIELDS
from vit_tutorial.augment.policy import Augment
from vit_tutorial.recipes import RECIPES, Recipe


@dataclass(frozen=True)
class Sweep:
    """Recipes to compare.

    Args:
        recipes: named after what they change; the first is the base, unless the base is in another sweep.
        seeds: how many random seeds each recipe runs with, counted from 0.
        base_seeds: how many the base runs with, if more: every effect is a difference from it.

    Raises:
        ValueError: if two recipes differ in their seed only, so that the same run would have two names.
    """

    recipes: dict[str, Recipe]
    seeds: int = 3
    base_seeds: int = 0

    def __post_init__(self):
        names = {}
        for name, recipe in self.recipes.items():
            other = names.setdefault(replace(recipe, seed=0), name)
            if other != name:
                raise ValueError(f"the recipes of a sweep must differ, but {other!r} and {name!r} are equal")

    def runs(self) -> list[tuple[str, int]]:
        """Recipe and seed of every run; each seed is finished before the next starts."""
        base, *others = self.recipes
        most = max(self.seeds, self.base_seeds)
        return [(name, seed) for seed in range(most) for name in (base, *(others if seed < self.seeds else ()))]


FRACTIONS = (30, 10, 3, 1)  # of the training images, in per cent


# Variants that change a single thing in the base, by kind, and what chapter 10 calls them.
CHANGES = {
    "architecture": {
        "patch-14": "patches 14/16/16",
        "patch-16": "patches 14/16/16",
        "patch-8": "patches 8",
        "patch-4": "patches 4",
        "wide": "1 wide block",
        "deep": "16 narrow blocks",
        "one-head": "1 head",
        "many-heads": "12/8/12 heads",
    },
    "positions, head": {
        "no-positions": "no positions",
        "positions-1d": "fixed 1-D table",
        "positions-2d": "fixed 2-D table",
        "positions-learned": "learned table",
        "mean-pool": "mean of patches",
    },
    "norms, init": {
        "no-final-norm": "no final norm",
        "post-norm": "post-norm",
        "torch-init": "PyTorch's init",
    },
    "loss, pixels": {
        "softmax-head": "second softmax",
        "label-smoothing": "label smoothing",
        "raw-pixels": "raw pixels",
    },
    "optimization": {
        "adamw": "AdamW, Muon's rate",
        "adamw-quarter-lr": "AdamW, ¼ the rate",
        "constant-lr": "constant rate",
        "no-warmup": "no warm-up",
        "no-clipping": "no clipping",
        "no-ema": "no EMA",
        "decay-0": "no weight decay",
        "decay-1": "weight decay 1",
        "decay-all": "decay on norms too",
    },
    "augmentation": {
        "rand-augment": "RandAugment",
        "mixup": "mixup",
        "cutmix": "CutMix",
        "no-augment": "no augmentation",
    },
}


def one_change(base: Recipe, **sizes: dict) -> dict[str, Recipe]:
    """The base, and variants of it that change one choice each.

    Args:
        sizes: further variants by name, each with the fields of the model that it changes.
    """
    model, augment = partial(replace, base.model), partial(replace, base.augment)
    return {
        "base": base,
        **{name.replace("_", "-"): replace(base, model=model(**change)) for name, change in sizes.items()},
        "no-positions": replace(base, model=model(pos_embed="none")),
        "positions-1d": replace(base, model=model(pos_embed="sincos_1d")),
        "positions-2d": replace(base, model=model(pos_embed="sincos_2d")),
        "positions-learned": replace(base, model=model(pos_embed="learned")),
        "mean-pool": replace(base, model=model(pool="mean")),
        "no-final-norm": replace(base, model=model(final_norm=False)),
        "post-norm": replace(base, arch="post-norm", model=model(final_norm=False)),
        "torch-init": replace(base, init="torch"),
        "softmax-head": replace(base, arch="softmax-head"),
        "raw-pixels": replace(base, mean=0.0, std=1.0),
        "adamw": replace(base, optimizer="adamw"),
        "adamw-quarter-lr": replace(base, optimizer="adamw", lr=base.lr / 4),  # AdamW wants a lower one than Muon
        "constant-lr": replace(base, schedule="constant"),
        "no-warmup": replace(base, warmup=0.0),
        "no-clipping": replace(base, clip_grad=0.0),
        "no-ema": replace(base, ema=0.0),
        "decay-0": replace(base, weight_decay=0.0),
        "decay-1": replace(base, weight_decay=1.0),
        "decay-all": replace(base, decay_all=True),
        "label-smoothing": replace(base, label_smoothing=0.1),
        "no-augment": replace(base, augment=Augment()),
        "rand-augment": replace(base, augment=augment(rand_magnitude=0.3)),
        "mixup": replace(base, augment=augment(mixup=0.2)),
        "cutmix": replace(base, augment=augment(cutmix=1.0)),
        **{f"fraction-{percent}": replace(base, fraction=percent / 100) for percent in FRACTIONS},
    }


def _resnet(base: Recipe) -> Recipe:
    return replace(base, arch="resnet", optimizer="adamw", lr=4e-3, ema=0.0)


def with_resnet(base: Recipe, epochs: int) -> dict[str, Recipe]:
    """A ResNet in the ViT's place, with its own optimizer and learning rate and without EMA. It trains on all images
    and on fractions of them, for as many epochs as the base and for as much time.

    Args:
        epochs: how many the ResNet can train in the time of the base.
    """
    resnet = _resnet(base)
    return {
        name + suffix: replace(recipe, fraction=fraction)
        for name, recipe in (("resnet", resnet), ("resnet-equal-time", replace(resnet, epochs=epochs)))
        for suffix, fraction in {"": 1.0, **{f"-fraction-{percent}": percent / 100 for percent in FRACTIONS}}.items()
    }


def shuffled(base: Recipe) -> dict[str, Recipe]:
    """Both models on images with shuffled patches or pixels, without augmentation."""
    vit, resnet = (replace(recipe, augment=Augment()) for recipe in (base, _resnet(base)))
    return {
        "shuffled-patches": replace(vit, arch="shuffled-patches"),
        "shuffled-pixels": replace(vit, arch="shuffled-pixels"),
        "resnet-no-augment": resnet,
        "resnet-shuffled-patches": replace(resnet, arch="resnet-shuffled-patches"),
        "resnet-shuffled-pixels": replace(resnet, arch="resnet-shuffled-pixels"),
    }


def _sweep(base: Recipe, resnet_epochs: int, **sizes: dict) -> Sweep:
    recipes = one_change(base, **sizes) | with_resnet(base, resnet_epochs) | shuffled(base)
    # Drop variants that equal the base.
    kept = {name: recipe for name, recipe in recipes.items() if name == "base" or recipe != base}
    return Sweep(kept, base_seeds=6)


def _clinic(base: Recipe) -> Sweep:
    """The healthy model and every patient whose model is sick; one patient also with mean pooling, and one also at a
    learning rate that it survives."""
    sick = [name for name, patient in PATIENTS.items() if patient.select is last_epoch]
    recipes = {}
    for variant, recipe, patients in (
        ("", base, sick),
        (", mean pool", replace(base, model=replace(base.model, pool="mean")), ["attention across the batch"]),
        (", low rate", replace(base, lr=base.lr / 4), ["dead residual norm"]),
    ):
        recipes["healthy" + variant] = recipe
        recipes |= {name + variant: with_arch(recipe, f"patient:{name}") for name in patients}
    return Sweep(recipes, base_seeds=6)


def _clinic_on_digits(base: Recipe) -> Sweep:
    """The healthy model and every sick one whose bug changes something in it."""
    sick = {name: patient for name, patient in PATIENTS.items() if patient.select is last_epoch}
    fitting = [name for name, patient in sick.items() if patient.needs[1](base.model)]
    return Sweep({"healthy": base} | {name: with_arch(base, f"patient:{name}") for name in fitting})


def with_arch(recipe: Recipe, arch: str) -> Recipe:
    """The recipe with another architecture, whose fields of the model it takes over; see ``archs.FIELDS``."""
    return replace(recipe, arch=arch, model=replace(recipe.model, **FIELDS.get(arch, {})))


# Stronger augmentation only pays in longer runs.
CIFAR10_SHORT = replace(RECIPES["cifar10-tiny"], epochs=5, augment=Augment(flip=True, crop=2))

# How the larger model's recipe was found: two epochs, too few for stronger augmentation to pay (chapter 7).
SMALL_SHORT = replace(
    RECIPES["cifar10-small"], epochs=2, lr=4e-3, init="xavier", augment=Augment(flip=True, crop=2), precision="bf16"
)

# The base of today's parts (chapter 13): on a CPU with fast units for bf16 (AMX), a step takes about 3/5 of the time.
MODERN_SHORT = replace(CIFAR10_SHORT, precision="bf16")

# For how many epochs a part trains in about the time of the base's five, from the seconds of a step on one CPU core;
# the others take about as long as the base.
EQUAL_TIME = {
    "rope": 4, "rope-mixed": 3, "relative": 3, "registers": 4, "qk-norm": 4, "patch-dropout": 9,
    "dinov3": 3, "vit5": 3,
}  # fmt: skip

# In fp32, several times faster than bf16 on a CPU without AMX; its ResNet is "resnet-equal-time" of cifar10.
MODERN_LONGER = replace(CIFAR10_SHORT, epochs=10)

# What chapter 12 trains in its waiting room, in two seconds.
DIGITS_SHORT = replace(
    RECIPES["digits"],
    model=replace(RECIPES["digits"].model, embed_dim=32, depth=2, num_heads=4, pos_embed="learned"),
    epochs=6, batch_size=48, lr=8e-3, warmup=0.2, ema=0.0, augment=Augment(),
)  # fmt: skip

# vit-tutorial sweep mnist, ...
# Minutes of one CPU core per run: mnist 1.3, shapes 1, cifar10 and cifar10-lr 6.7, clinic 2.7, clinic-digits 0.05,
# modern and modern-equal-time 4 to 7 where it has units for bf16, else 60, modern-longer 15 to 25, cifar10-small 14.
SWEEPS = {
    "mnist": _sweep(
        replace(RECIPES["mnist"], epochs=2),
        resnet_epochs=1,  # from the seconds of a step on one CPU core
        patch_14={"patch_size": 14},
        patch_4={"patch_size": 4},
        wide={"depth": 1, "embed_dim": 192},  # depth × width², and with it the number of parameters, is the base's
        deep={"depth": 16, "embed_dim": 48},
        one_head={"num_heads": 1},
        many_heads={"num_heads": 12},
    ),
    # Patches of 8, not the recipe's 4: a quarter of the tokens, so that all 150 runs take two hours of one core.
    "shapes": _sweep(
        replace(RECIPES["shapes"], epochs=5, model=replace(RECIPES["shapes"].model, patch_size=8)),
        resnet_epochs=3,
        patch_16={"patch_size": 16},
        patch_4={"patch_size": 4},
        wide={"depth": 1, "embed_dim": 128},
        deep={"depth": 16, "embed_dim": 32},
        one_head={"num_heads": 1},
        many_heads={"num_heads": 8},
    ),
    "cifar10": _sweep(
        CIFAR10_SHORT,
        resnet_epochs=10,
        patch_16={"patch_size": 16},
        patch_8={"patch_size": 8},
        wide={"depth": 1, "embed_dim": 96},
        deep={"depth": 16, "embed_dim": 24},
        one_head={"num_heads": 1},
        many_heads={"num_heads": 12},
    ),
    "clinic": _clinic(replace(CIFAR10_SHORT, epochs=2)),
    "clinic-digits": _clinic_on_digits(DIGITS_SHORT),
    # To compare with the base of cifar10, whose rate is in between.
    "cifar10-lr": Sweep(
        {f"lr-{lr:g}": replace(CIFAR10_SHORT, lr=lr) for lr in (1e-3, 3e-3, 2e-2, 4e-2, 8e-2)}, seeds=1
    ),
    "modern": Sweep(
        {
            "base": MODERN_SHORT,
            # Two of the parts are pools without a class token, so they are compared with this one, too.
            "mean-pool": replace(MODERN_SHORT, model=replace(MODERN_SHORT.model, pool="mean")),
            **{name: with_arch(MODERN_SHORT, f"modern:{name}") for name in MODERN},
        },
        base_seeds=6,
    ),
    # To compare with the base of modern.
    "modern-equal-time": Sweep(
        {name: replace(with_arch(MODERN_SHORT, f"modern:{name}"), epochs=n) for name, n in EQUAL_TIME.items()}
    ),
    # Twice as long: the four largest gains of modern, one of them a block of today.
    "modern-longer": Sweep(
        {
            "base": MODERN_LONGER,
            **{
                name: with_arch(MODERN_LONGER, f"modern:{name}")
                for name in ("conv-stem", "swiglu-layer-scale", "vit5", "layer-scale")
            },
        }
    ),
    "cifar10-small": Sweep(
        {
            "base": SMALL_SHORT,
            "lr-0.012": replace(SMALL_SHORT, lr=1.2e-2),
            "lr-0.0015": replace(SMALL_SHORT, lr=1.5e-3),
            "positions-2d": replace(SMALL_SHORT, model=replace(SMALL_SHORT.model, pos_embed="sincos_2d")),
            "mimetic-init": replace(SMALL_SHORT, init="mimetic"),
            "mimetic-init-lr-0.002": replace(SMALL_SHORT, init="mimetic", lr=2e-3),
            "mimetic-init-lr-0.001": replace(SMALL_SHORT, init="mimetic", lr=1e-3),
            "mimetic-init-lr-0.0005": replace(SMALL_SHORT, init="mimetic", lr=5e-4),
        },
        seeds=1,
    ),
}
