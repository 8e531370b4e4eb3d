"""The ``vit-tutorial`` command: ``train`` a recipe, ``sweep`` over many, ``evaluate`` one, look after ``data``.

Each command is a dataclass. tyro makes arguments of its fields and the help of its docstring.
"""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro
from tyro.conf import CascadeSubcommandArgs, Fixed, FlagCreatePairsOff, Positional, Suppress, arg, subcommand

from vit_tutorial.data import NAMES, SPLITS, data_root, load_dataset
from vit_tutorial.data.folders import check_test
from vit_tutorial.recipes import RECIPES, Recipe, load_split
from vit_tutorial.runs import FOLDER, OWN_RUNS, find_run, load_metrics, load_recorded, run_recipe
from vit_tutorial.training.distributed import process_group, rank_and_world
from vit_tutorial.training.loop import evaluate
from vit_tutorial.what_matters.sweeps import load_sweep, run_sweep
from vit_tutorial.what_matters.variants import SWEEPS

Flag = FlagCreatePairsOff[bool]  # --quiet, without a --no-quiet beside it


def _best_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def _check_device(device: str) -> None:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ValueError(f"--device must be cpu, cuda or cuda:N, got {device!r}")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device != "cpu" and (torch.device(device).index or 0) >= gpus:
        raise ValueError(f"--device {device}: CUDA GPUs that PyTorch finds here: {gpus}. Or use --device cpu")


@dataclass(frozen=True)
class NamedRecipe:
    """A recipe of ``RECIPES``: its fields become options, its name is the subcommand's."""

    title: Suppress[Fixed[str]]
    recipe: Annotated[Recipe, arg(name="")]


AnyRecipe = tyro.extras.subcommand_type_from_defaults(
    defaults={name: NamedRecipe(name, recipe) for name, recipe in RECIPES.items()},
    descriptions={name: f"{recipe.dataset}, {recipe.epochs} epochs" for name, recipe in RECIPES.items()},
)


@dataclass(frozen=True)
class Train:
    """Train a recipe; metrics and weights go into runs/<name>/.

    Every field of a recipe can be overridden, the model's and the augmentation's too:
      vit-tutorial train mnist --epochs 3 --model.depth 2
      vit-tutorial train mnist --help          lists the fields and their values

    An interrupted run continues when the same command is given again; a finished one is replaced with --record only.

    In several processes:  torchrun --nproc-per-node=2 -m vit_tutorial train mnist

    Args:
        record: write into vit_tutorial/recorded, which comes with the package.
        name: name of the run.
        device: cpu, cuda or cuda:N.
        no_weights: keep the metrics only.
        quiet: show no progress bar.
    """

    named: Annotated[AnyRecipe, arg(name="")]
    record: Flag = False
    name: Annotated[str, arg(help_behavior_hint="(default: the recipe's, and the seed unless it is 0)")] = ""
    device: str = field(default_factory=_best_device)
    no_weights: Flag = False
    quiet: Flag = False

    def run(self) -> None:
        _check_device(self.device)
        if self.name and (Path(self.name).name != self.name or self.name == ".."):
            raise ValueError(f"--name must name one folder, as in my-run, got {self.name!r}")
        title, recipe = self.named.title, self.named.recipe
        name = self.name or title + (f"-{recipe.seed}" if recipe.seed else "")
        folder = (FOLDER if self.record else OWN_RUNS) / name
        if not self.record and (folder / "metrics.json").exists() and not (folder / "checkpoint.pt").exists():
            raise ValueError(f"{folder} holds a finished run: give this one another --name, or delete the folder")
        with process_group(self.device) as device:
            metrics = run_recipe(
                title,
                recipe,
                folder,
                device=device,
                keep_weights=not self.no_weights,
                progress=not self.quiet,
            )
            if rank_and_world()[0] == 0:
                accuracy, seconds = f"{metrics['test']['accuracy']:.2%}", f"{metrics['seconds']:.0f} s"
                print(f"{name}: test accuracy {accuracy} after {recipe.epochs} epochs in {seconds}; see {folder}")


@dataclass(frozen=True)
class Sweep:
    """Compare recipes that differ in one thing; results go into runs/sweeps/<name>.jsonl, a line for each run.

    Only what is missing is run.

    Args:
        name: the sweep.
        only: some of the sweep's variants.
        seeds: some of the random seeds.
        record: write into vit_tutorial/recorded, which comes with the package.
        device: cpu, cuda or cuda:N.
        quiet: show no progress bar.
    """

    name: Positional[Literal[tuple(SWEEPS)]]
    only: Annotated[tuple[str, ...] | None, arg(metavar="VARIANT ...", help_behavior_hint="(default: all)")] = None
    seeds: Annotated[tuple[int, ...] | None, arg(metavar="N ...", help_behavior_hint="(default: all)")] = None
    record: Flag = False
    device: str = field(default_factory=_best_device)
    quiet: Flag = False

    def __post_init__(self):
        for option in ("only", "seeds"):
            if getattr(self, option) == ():  # an empty shell variable must not start the whole sweep
                raise ValueError(f"--{option} needs at least one value")

    def run(self) -> None:
        _check_device(self.device)
        folder = (FOLDER if self.record else OWN_RUNS) / "sweeps"
        run_sweep(
            self.name,
            SWEEPS[self.name],
            folder,
            only=self.only or (),
            seeds=self.seeds or (),
            device=self.device,
            progress=not self.quiet,
        )
        ended = load_sweep(self.name)
        for variant in dict.fromkeys(row["variant"] for row in ended):
            print(f"{variant:>18}:", end="")
            for split in ("val", "test"):
                found = [row[f"{split}_accuracy"] for row in ended if row["variant"] == variant]
                each = ", ".join(f"{accuracy:.2%}" for accuracy in found)
                print(f" {split} accuracy {sum(found) / len(found):.2%} ({each})", end="")
            print()
        for row in load_sweep(self.name, broken=True):
            print(f"{row['variant']:>18}: seed {row['seed']} broke: {row['broke']}")
        print(f"rows: {folder / self.name}.jsonl, and what came with the package")


@dataclass(frozen=True)
class Evaluate:
    """Test a finished run's stored weights: your own run's in runs/, else the recorded run's.

    Args:
        name: of the run.
        device: cpu, cuda or cuda:N.
    """

    name: Annotated[Positional[str], arg(metavar="NAME")]
    device: str = field(default_factory=_best_device)

    def run(self) -> None:
        _check_device(self.device)
        folder = find_run(self.name, own_first=True)
        model, recipe = load_recorded(folder)
        metrics, changes = load_metrics(folder), ""
        if recipe.dataset.startswith("folder:"):
            changes = check_test(metrics, load_dataset(recipe.dataset, "test", memory=0))  # without decoding
        test = load_split(recipe, "test")
        accuracy = evaluate(model.to(self.device), test, recipe)["accuracy"]
        then = metrics["test"]["accuracy"]
        whose = "your own run" if folder.is_relative_to(OWN_RUNS) else "the recorded run"
        print(f"{self.name}, {whose}: test accuracy {accuracy:.2%} on {len(test):,} images of {test.variant}")
        print(f"after its training: {then:.2%}; weights: {folder / 'model.safetensors'}")
        if changes:
            print(f"since then: {changes}; no test image was used in training")


@dataclass(frozen=True)
class Data:
    """Fetch data sets into $VIT_TUTORIAL_DATA (else ~/.cache/vit-tutorial), and print the sizes of their splits.

    Args:
        names: mnist, cifar10, digits, shapes or folder:PATH.
    """

    names: Annotated[Positional[tuple[str, ...]], arg(metavar="[NAME ...]", help_behavior_hint="(default: all)")] = ()

    def run(self) -> None:
        print(f"data root: {data_root()}")
        lacking = []
        for name in self.names or NAMES:
            try:
                # memory=0: the images of a folder are counted without being decoded.
                splits = {split: load_dataset(name, split, memory=0) for split in SPLITS}
            except FileNotFoundError as error:
                lacking.append(name)
                print(f"{name}: {error}", file=sys.stderr)
                continue
            sizes = ", ".join(f"{split} {len(dataset):,}" for split, dataset in splits.items())
            print(f"{name}: {sizes} ({splits['train'].variant})")
        if lacking:
            sys.exit(f"vit-tutorial: not there, and not to be had: {', '.join(lacking)}")


@dataclass(frozen=True)
class Arguments:
    """The Vision Transformer from scratch."""

    command: Annotated[
        Annotated[Train, subcommand("train")]
        | Annotated[Sweep, subcommand("sweep")]
        | Annotated[Evaluate, subcommand("evaluate")]
        | Annotated[Data, subcommand("data")],
        arg(name=""),
    ]


def main(arguments: list[str] | None = None) -> None:
    """Run the command. Wrong usage exits with code 2; whatever else the user can mend is one line, with code 1."""
    try:
        # Cascading: `train --quiet mnist` is `train mnist --quiet`.
        command = tyro.cli(Arguments, prog="vit-tutorial", args=arguments, config=(CascadeSubcommandArgs,)).command
    except ValueError as error:  # a value of the recipe is out of range
        print(f"vit-tutorial: {error}", file=sys.stderr)
        sys.exit(2)
    try:
        command.run()
    except (ValueError, OSError, FloatingPointError) as error:
        sys.exit(f"vit-tutorial: {error}")
    except KeyboardInterrupt:
        sys.exit("vit-tutorial: interrupted; the same command goes on after the last whole epoch")
