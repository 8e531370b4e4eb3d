"""The ``vit-tutorial`` command: ``train`` a recipe, ``sweep`` over many, ``evaluate`` one, look after ``data``."""

import argparse
import re
import sys

import torch
import tyro

from vit_tutorial.augment.policy import Augment
from vit_tutorial.config import ViTConfig
from vit_tutorial.data import NAMES, SPLITS, data_root, load_dataset
from vit_tutorial.recipes import RECIPES, Recipe, load_split
from vit_tutorial.runs import FOLDER, OWN_RUNS, find_run, load_metrics, load_recorded, run_recipe
from vit_tutorial.training.distributed import process_group, rank_and_world
from vit_tutorial.training.loop import TrainConfig, evaluate
from vit_tutorial.what_matters.sweeps import load_sweep, run_sweep
from vit_tutorial.what_matters.variants import SWEEPS

TRAIN_EPILOG = f"""recipes: {", ".join(RECIPES)}

Every field of a recipe can be overridden, the model's and the augmentation's too:
  vit-tutorial train mnist --epochs 3 --model.depth 2
  vit-tutorial train mnist --help          lists the fields and their values
A run that was interrupted goes on where it stopped when the same command is given again; one that is
finished is replaced with --record only.
In several processes:  torchrun --nproc-per-node=2 -m vit_tutorial train mnist"""


def main(arguments: list[str] | None = None) -> None:
    """Run the command. An error that the user can mend is printed as one line; the exit code is then 1."""
    parser, train = _parsers()
    options, overrides = parser.parse_known_args(arguments)
    if overrides and options.command != "train":
        parser.error(f"unrecognized arguments: {' '.join(overrides)}")
    if options.command == "train" and (options.help or options.recipe is None):
        train.print_help()
        if options.recipe is None:
            sys.exit(0 if options.help else 2)
        print()
        overrides = ["--help"]
    try:
        {"train": _train, "sweep": _sweep, "evaluate": _evaluate, "data": _data}[options.command](options, overrides)
    except (ValueError, OSError, FloatingPointError) as error:
        sys.exit(f"vit-tutorial: {error}")
    except KeyboardInterrupt:
        sys.exit("vit-tutorial: interrupted; the same command goes on after the last whole pass")


def _parsers() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    device = {
        "default": "cuda" if torch.cuda.is_available() else "cpu",
        "help": "cpu, cuda or cuda:N (default: %(default)s)",
    }
    parser = argparse.ArgumentParser(prog="vit-tutorial", description="The Vision Transformer from scratch.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="train | sweep | evaluate | data")

    train = commands.add_parser(
        "train",
        help="train a recipe",
        description="Train a recipe; metrics and weights go into runs/<name>/.",
        epilog=TRAIN_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    train.add_argument("recipe", nargs="?", choices=RECIPES, metavar="RECIPE", help="which recipe; see below")
    train.add_argument("--record", action="store_true", help=f"write into {FOLDER}, which comes with the package")
    train.add_argument("--name", help="name of the run (default: the recipe's, and the random seed unless 0)")
    train.add_argument("--device", **device)
    train.add_argument("--no-weights", action="store_true", help="keep the metrics only")
    train.add_argument("--quiet", action="store_true", help="show no progress bar")
    train.add_argument("-h", "--help", action="store_true", help="show this; after a recipe's name also its fields")

    sweep = commands.add_parser(
        "sweep",
        help="compare recipes that differ in one thing",
        description="Run what is missing of a sweep; results go into runs/sweeps/NAME.jsonl, a line for each run.",
    )
    sweep.add_argument("name", choices=SWEEPS, metavar="NAME", help=", ".join(SWEEPS))
    sweep.add_argument("--only", nargs="+", default=[], metavar="VARIANT", help="some of the sweep's variants")
    sweep.add_argument("--seeds", nargs="+", type=int, default=[], metavar="N", help="some of the random seeds")
    sweep.add_argument("--record", action="store_true", help=f"write into {FOLDER}, which comes with the package")
    sweep.add_argument("--device", **device)
    sweep.add_argument("--quiet", action="store_true", help="show no progress bar")

    judge = commands.add_parser(
        "evaluate",
        help="test a finished run's stored weights",
        description="Test a finished run's stored weights: your own run's in runs/, else the recorded run's.",
    )
    judge.add_argument("run", metavar="NAME", help="of the run")
    judge.add_argument("--device", **device)

    data = commands.add_parser(
        "data",
        help="fetch data sets, and say what is there",
        description="Fetch what is missing into $VIT_TUTORIAL_DATA (else ~/.cache/vit-tutorial), "
        "and print the sizes of the splits.",
    )
    names = f"{', '.join(NAMES)} (default: all of these), or folder:PATH"
    data.add_argument("names", nargs="*", metavar="NAME", help=names)
    return parser, train


def _check_device(device: str) -> None:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ValueError(f"--device must be cpu, cuda or cuda:N, got {device!r}")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device != "cpu" and (torch.device(device).index or 0) >= gpus:
        raise ValueError(f"--device {device}: CUDA GPUs that PyTorch finds here: {gpus}. Or use --device cpu")


def _strip_markup(*kinds: type) -> None:
    """Take the markup out of docstrings, for the help prints them as they are."""
    for kind in kinds:
        kind.__doc__ = re.sub(r"(:\w+:)?(`+)~?(.*?)\2", r"\3", kind.__doc__)


def _train(options: argparse.Namespace, overrides: list[str]) -> None:
    _strip_markup(Recipe, TrainConfig, ViTConfig, Augment)
    recipe = tyro.cli(
        Recipe,
        prog=f"vit-tutorial train {options.recipe}",
        description=f"Fields of the recipe {options.recipe}",
        default=RECIPES[options.recipe],
        args=overrides,
    )
    _check_device(options.device)
    name = options.name or options.recipe + (f"-{recipe.seed}" if recipe.seed else "")
    folder = (FOLDER if options.record else OWN_RUNS) / name
    if not options.record and (folder / "metrics.json").exists() and not (folder / "checkpoint.pt").exists():
        raise ValueError(f"{folder} holds a finished run: give this one another --name, or delete the folder")
    with process_group(options.device) as device:
        metrics = run_recipe(
            options.recipe,
            recipe,
            folder,
            device=device,
            keep_weights=not options.no_weights,
            progress=not options.quiet,
        )
        if rank_and_world()[0] == 0:
            accuracy, seconds = metrics["test"]["accuracy"], metrics["seconds"]
            print(f"{name}: test accuracy {accuracy:.2%} after {recipe.epochs} passes in {seconds:.0f} s; see {folder}")


def _sweep(options: argparse.Namespace, _: list[str]) -> None:
    _check_device(options.device)
    folder = (FOLDER if options.record else OWN_RUNS) / "sweeps"
    run_sweep(
        options.name,
        SWEEPS[options.name],
        folder,
        only=options.only,
        seeds=options.seeds,
        device=options.device,
        progress=not options.quiet,
    )
    ended = load_sweep(options.name)
    for variant in dict.fromkeys(row["variant"] for row in ended):
        print(f"{variant:>18}:", end="")
        for split in ("val", "test"):
            found = [row[f"{split}_accuracy"] for row in ended if row["variant"] == variant]
            each = ", ".join(f"{accuracy:.2%}" for accuracy in found)
            print(f" {split} accuracy {sum(found) / len(found):.2%} ({each})", end="")
        print()
    for row in load_sweep(options.name, broken=True):
        print(f"{row['variant']:>18}: seed {row['seed']} broke: {row['broke']}")
    print(f"rows: {folder / options.name}.jsonl, and what came with the package")


def _evaluate(options: argparse.Namespace, _: list[str]) -> None:
    _check_device(options.device)
    folder = find_run(options.run, own_first=True)
    model, recipe = load_recorded(folder)
    test = load_split(recipe, "test")
    accuracy = evaluate(model.to(options.device), test, recipe)["accuracy"]
    then = load_metrics(folder)["test"]["accuracy"]
    whose = "your own run" if folder.is_relative_to(OWN_RUNS) else "the recorded run"
    print(f"{options.run}, {whose}: test accuracy {accuracy:.2%} on {len(test):,} images of {test.variant}")
    print(f"after its training: {then:.2%}; weights: {folder / 'model.safetensors'}")


def _data(options: argparse.Namespace, _: list[str]) -> None:
    print(f"data root: {data_root()}")
    lacking = []
    for name in options.names or NAMES:
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
