"""The ``vit-tutorial`` command: ``train`` a recipe, ``sweep`` over many, ``evaluate`` one, look after ``data``."""

import argparse
import sys

import torch
import tyro

from vit_tutorial.data import NAMES, SPLITS, data_root, load_dataset
from vit_tutorial.recipes import RECIPES, Recipe, load_split
from vit_tutorial.recorded import FOLDER, OWN_RUNS, find_run, load_metrics, load_recorded, run_recipe
from vit_tutorial.sweeps import run_sweep
from vit_tutorial.training import evaluate
from vit_tutorial.training.distributed import process_group, rank_and_world
from vit_tutorial.variants import SWEEPS

TRAIN_EPILOG = f"""recipes: {", ".join(RECIPES)}

Every field of a recipe can be overridden, the model's and the augmentation's too:
  vit-tutorial train mnist --epochs 3 --model.depth 2
  vit-tutorial train mnist --help          lists the fields and their values
A run that was interrupted goes on where it stopped when the same command is given again.
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
    default_device = "cuda" if torch.cuda.is_available() else "cpu"
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
    train.add_argument("--device", default=default_device, help="cpu or cuda (default: %(default)s)")
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
    sweep.add_argument("--device", default=default_device, help="cpu or cuda (default: %(default)s)")
    sweep.add_argument("--quiet", action="store_true", help="show no progress bar")

    judge = commands.add_parser("evaluate", help="test a finished run's stored weights")
    judge.add_argument("run", help="a recorded run, or one of your own in runs/")
    judge.add_argument("--device", default=default_device, help="cpu or cuda (default: %(default)s)")

    data = commands.add_parser("data", help="fetch data sets, and say what is there")
    data.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)} (default: all of them)")
    return parser, train


def _check_device(device: str) -> None:
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"--device {device}: PyTorch finds no CUDA GPU here; use --device cpu")


def _train(options: argparse.Namespace, overrides: list[str]) -> None:
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
    rows = run_sweep(
        options.name,
        SWEEPS[options.name],
        folder,
        only=options.only,
        seeds=options.seeds,
        device=options.device,
        progress=not options.quiet,
    )
    ended = [row for row in rows if "broke" not in row]
    for variant in dict.fromkeys(row["variant"] for row in ended):
        found = [row["test_accuracy"] for row in ended if row["variant"] == variant]
        each = ", ".join(f"{accuracy:.2%}" for accuracy in found)
        print(f"{variant:>18}: test accuracy {sum(found) / len(found):.2%} ({each})")
    for row in rows:
        if "broke" in row:
            print(f"{row['variant']:>18}: seed {row['seed']} broke: {row['broke']}")
    print(f"rows: {folder / options.name}.jsonl")


def _evaluate(options: argparse.Namespace, _: list[str]) -> None:
    _check_device(options.device)
    model, recipe = load_recorded(options.run)
    test = load_split(recipe, "test")
    accuracy = evaluate(model.to(options.device), test, recipe)["accuracy"]
    then = load_metrics(options.run)["test"]["accuracy"]
    print(
        f"{options.run}: test accuracy {accuracy:.2%} on {len(test):,} images of {test.variant}; recorded: {then:.2%}"
    )
    print(f"weights: {find_run(options.run) / 'model.safetensors'}")


def _data(options: argparse.Namespace, _: list[str]) -> None:
    print(f"data root: {data_root()}")
    for name in options.names or NAMES:
        splits = {split: load_dataset(name, split) for split in SPLITS}
        sizes = ", ".join(f"{split} {len(dataset):,}" for split, dataset in splits.items())
        print(f"{name}: {sizes} ({splits['train'].variant})")
