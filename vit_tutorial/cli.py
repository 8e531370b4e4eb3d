"""The ``vit-tutorial`` command: train, sweep, evaluate, predict, diagnose, export, data, handout and grade.

Each command is a dataclass. tyro turns its fields into arguments and its docstring into help.
"""

import io
import math
import os
import re
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Annotated, Literal

import torch
import tyro
from PIL import Image
from tyro.conf import CascadeSubcommandArgs, Fixed, FlagCreatePairsOff, Positional, Suppress, arg, subcommand

from vit_tutorial.attention_maps import attention_gradients, attention_map, gradient_rollout
from vit_tutorial.borders import is_out_of_memory, reason, write_whole
from vit_tutorial.classroom import write_handouts
from vit_tutorial.classroom.grading import grade, read_points
from vit_tutorial.classroom.judge import load_exercises
from vit_tutorial.classroom.reports import write_reports
from vit_tutorial.classroom.sandbox import Limits
from vit_tutorial.clinic.files import diagnose_file
from vit_tutorial.clinic.symptoms import are_probabilities
from vit_tutorial.data import NAMES, SPLITS, Dataset, ImageFiles, data_root, load_dataset
from vit_tutorial.data.copies import NOT_FOUND
from vit_tutorial.data.folders import check_split, split_folder
from vit_tutorial.data.headers import UnreadableImages, stop_if_unreadable
from vit_tutorial.data.images import decode
from vit_tutorial.data.load import STAND_INS, fetch_and_report
from vit_tutorial.data.paper import FORMS, read_digit
from vit_tutorial.data.sources import WEIGHTS, fetch_files
from vit_tutorial.live import as_script, export_model
from vit_tutorial.old_names import OLD_NAMES
from vit_tutorial.pretrained.few_images import expected
from vit_tutorial.recipes import RECIPES, Recipe, RecordedRecipe, fit_to_data, load_images, load_split, make_model
from vit_tutorial.runs import FOLDER, OWN_RUNS, find_run, load_classes, load_metrics, load_recorded, run_recipe
from vit_tutorial.training.distributed import process_group, rank_and_world
from vit_tutorial.training.loop import evaluate, make_optimizer, predict, to_input, train_epoch
from vit_tutorial.training.scores import explain
from vit_tutorial.what_matters.sweeps import load_sweep, run_sweep
from vit_tutorial.what_matters.variants import SWEEPS

MANY_TOKENS = 500  # ViT-B/16 has 197
MANY_CLASSES = 30
Flag = FlagCreatePairsOff[bool]  # --quiet, without --no-quiet


def _best_device() -> str:
    """A GPU if there is one. Not a Mac's (MPS): this package has not been tested on one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def _check_device(device: str) -> None:
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ValueError(f"--device must be cpu, cuda or cuda:N, got {device!r}")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device != "cpu" and (torch.device(device).index or 0) >= gpus:
        raise ValueError(f"--device {device} is not available, CUDA GPUs found: {gpus}; use --device cpu")


def _announce(recipe: Recipe, device: str) -> None:
    """Print what will be trained and about how long it takes."""
    train = load_split(recipe, "train", memory=0)  # counts the images of a folder without decoding them
    model = make_model(recipe).to(device)
    (height, width), (ph, pw) = recipe.model.img_size, recipe.model.patch_size
    print(f"{train.variant}: {len(train):,} images of {len(train.classes)} classes to train on")
    print(f"{recipe.arch} with {sum(p.numel() for p in model.parameters()):,} parameters")
    if "resnet" not in recipe.arch:
        print(f"{height}×{width} pixels in patches of {ph}×{pw} make {recipe.model.num_tokens:,} tokens")
        if recipe.model.num_tokens > MANY_TOKENS:
            print("so many tokens are slow: a larger --model.patch-size or a smaller --model.img-size makes them fewer")
    if rank_and_world()[1] == 1:
        print(f"{recipe.epochs} epochs take about {duration(_expected_seconds(model, recipe, len(train), device))}")
    if recipe.dataset.startswith("folder:"):
        print("\n".join(expected(max(1, len(train) // len(train.classes)))))


def _expected_seconds(model: torch.nn.Module, recipe: Recipe, num_images: int, device: str) -> float:
    """Measured on training steps with a learning rate of 0, with more and more images until one takes a second."""
    still = replace(recipe, lr=0.0, compile=False)
    shape = (recipe.model.in_chans, *recipe.model.img_size)
    for images in (1, 1, 8, min(recipe.batch_size, num_images)):  # the first call is slower than the others
        labels, classes = torch.zeros(images, dtype=torch.long), tuple(map(str, range(recipe.model.num_classes)))
        batch = Dataset(torch.zeros(images, *shape, dtype=torch.uint8), labels, classes, "").to(device)
        optimizer, start = make_optimizer(model, still), perf_counter()
        train_epoch(model, optimizer, batch, 0, still)
        seconds = perf_counter() - start
        if seconds > 1 and images > 1:
            break
    return seconds / images * num_images * recipe.epochs


def duration(seconds: float) -> str:
    """Seconds as one would say them: 45 s, 12 min, 1.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@dataclass(frozen=True)
class NamedRecipe:
    """A recipe of ``RECIPES``: its fields become options, its name a subcommand."""

    title: Suppress[Fixed[str]]
    recipe: Annotated[Recipe, arg(name="")]


AnyRecipe = tyro.extras.subcommand_type_from_defaults(
    defaults={name: NamedRecipe(name, recipe) for name, recipe in RECIPES.items()},
    descriptions={name: f"{recipe.dataset}, {recipe.epochs} epochs" for name, recipe in RECIPES.items()},
)


@dataclass(frozen=True)
class Train:
    """Train a recipe; metrics and weights go into runs/<name>/.

    Every field of a recipe can be overridden, also those of the model and the augmentation:
      vit-tutorial train mnist --epochs 3 --model.depth 2
      vit-tutorial train mnist --help          lists the fields and their values
      vit-tutorial train photos --dataset folder:PATH          your own images, in PATH/<class>/
      … --dataset folder:PATH --labels FILE.csv                their classes in a table

    The same command resumes an interrupted run. A finished run is replaced only with --record.

    With several processes:  torchrun --nproc-per-node=2 -m vit_tutorial train mnist

    Args:
        record: write into vit_tutorial/recorded, which ships with the package.
        name: name of the run.
        device: cpu, cuda or cuda:N.
        no_weights: keep the metrics only.
        quiet: don't show a progress bar and a summary before training.
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
            raise ValueError(
                f"{folder} holds a finished run: give this one another --name, or move the folder elsewhere"
            )
        with process_group(self.device) as device:
            recipe = fit_to_data(recipe)
            if not self.quiet and rank_and_world()[0] == 0:
                _announce(recipe, device)
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
                print("\n".join(explain(metrics["test"], metrics["classes"])))


@dataclass(frozen=True)
class Sweep:
    """Compare recipes that differ in one thing; results go into runs/sweeps/<name>.jsonl, one line per run.

    Only missing runs are trained.

    Args:
        name: the sweep.
        only: some of the sweep's variants.
        seeds: some of the random seeds.
        record: write into vit_tutorial/recorded, which ships with the package.
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
            print(f"{row['variant']:>18}: seed {row['seed']} diverged: {row['broke']}")
        print(f"rows: {folder / self.name}.jsonl, and those recorded with the package")


def _loaded(folder: Path, batch_size: int) -> tuple[torch.nn.Module, RecordedRecipe]:
    """A run's model and recipe, which takes so many images at once; 0 for as many as in its training."""
    model, recipe = load_recorded(folder)
    return model, replace(recipe, batch_size=batch_size or recipe.batch_size)


@dataclass(frozen=True)
class Evaluate:
    """Evaluate a finished run on the test set: your own run in runs/, else the recorded one.

    Args:
        name: of the run.
        batch_size: images at once; fewer take less memory.
        device: cpu, cuda or cuda:N.
    """

    name: Annotated[Positional[str], arg(metavar="NAME")]
    batch_size: Annotated[int, arg(metavar="N", help_behavior_hint="(default: the training's)")] = 0
    device: str = field(default_factory=_best_device)

    def run(self) -> None:
        _check_device(self.device)
        folder = find_run(self.name, own_first=True)
        model, recipe = _loaded(folder, self.batch_size)
        metrics, changes = load_metrics(folder), ""
        if recipe.dataset.startswith("folder:"):
            changes = check_split(metrics, load_images(recipe, "test", memory=0), "test")  # without decoding
        test = load_split(recipe, "test")
        scores, after = evaluate(model.to(self.device), test, recipe), metrics["test"]
        if not changes:  # so the training images are the same, which aren't read here
            scores |= {key: after[key] for key in ("look_alikes", "accuracy_unlike") if key in after}
        whose = "your own run" if folder.is_relative_to(OWN_RUNS) else "the recorded run"
        accuracy = f"{scores['accuracy']:.2%}"
        print(f"{self.name}, {whose}: test accuracy {accuracy} on {len(test):,} images of {test.variant}")
        print("\n".join(explain(scores, test.classes)))
        print(f"after its training: {after['accuracy']:.2%}; weights: {folder / 'model.safetensors'}")
        if changes:
            print(f"since then: {changes}; no test image was used in training")


@dataclass(frozen=True)
class Predict:
    """Classify images with a finished run: your own run in runs/, else the recorded one.

    Prints the three likeliest classes of each image. A run on digits, such as mnist, takes white ones on black, of
    one size and centred: a picture of a digit on paper is converted first, and what was done is printed. Files that
    can't be read are named at the end.

    Args:
        name: of the run.
        images: files.
        maps: file for a figure that shows, on each image, the patches that support its class.
        batch_size: images at once; fewer take less memory.
        device: cpu, cuda or cuda:N.
    """

    name: Annotated[Positional[str], arg(metavar="NAME")]
    images: Annotated[Positional[tuple[str, ...]], arg(metavar="IMAGE ...", help_behavior_hint="(required)")]
    maps: Annotated[str | None, arg(metavar="OUT.png", help_behavior_hint="(default: none)")] = None
    batch_size: Annotated[int, arg(metavar="N", help_behavior_hint="(default: the training's)")] = 0
    device: str = field(default_factory=_best_device)

    def __post_init__(self):
        if not self.images:
            raise ValueError("predict needs at least one IMAGE")

    def run(self) -> None:
        _check_device(self.device)
        folder = find_run(self.name, own_first=True)
        model, recipe = _loaded(folder, self.batch_size)
        classes = load_classes(folder)
        read, done, faults = {}, {}, []
        for file in self.images:
            try:
                if recipe.dataset in FORMS:
                    read[file], done[file] = read_digit(file, recipe.dataset)
                else:
                    read[file] = decode(file, recipe.model.img_size)
            except ValueError as error:  # the others go on
                faults.append(str(error))
        if read:
            self._answer(model, recipe, classes, read, done)
        stop_if_unreadable(faults)

    def _answer(self, model, recipe, classes, read, done) -> None:
        images = torch.stack(list(read.values()))
        dataset = Dataset(images, torch.zeros(len(images), dtype=torch.long), classes, "").resize(recipe.model.img_size)
        images = dataset.images
        outputs = predict(model.to(self.device), dataset, recipe)
        probabilities = outputs if are_probabilities(outputs) else outputs.softmax(dim=-1)
        best, indices = probabilities.topk(min(3, len(classes)))
        lines = [
            [f"{classes[k]} {p:.1%}" for p, k in zip(*row, strict=True)]
            for row in zip(best.tolist(), indices.tolist(), strict=True)
        ]
        for file, names in zip(read, lines, strict=True):
            if done.get(file):
                print(f"{file}: {done[file]}")
            print(f"{file}: {', '.join(names)}")
        if self.maps:
            titles = [f"{Path(file).name}\n{names[0]}" for file, names in zip(read, lines, strict=True)]
            self._draw(model, to_input(images.to(self.device), recipe), images, indices[:, 0], titles)

    def _draw(self, model, inputs, images, classes, titles) -> None:
        from matplotlib import pyplot as plt

        from vit_tutorial.plots import show_maps, use_style

        rolled = [
            gradient_rollout(*attention_gradients(model, inputs[i : i + 1], classes[i : i + 1]))
            for i in range(len(inputs))
        ]
        maps = attention_map(torch.cat(rolled), model.config).cpu()
        maps = maps / maps.sum(dim=(1, 2), keepdim=True)
        use_style()
        figure, drawn = show_maps(images, maps, titles, label="fraction", size=2), io.BytesIO()
        figure.savefig(drawn, format=Path(self.maps).suffix[1:] or "png")
        plt.close(figure)
        write_whole(self.maps, drawn.getvalue())
        print(f"maps: {self.maps}")


@dataclass(frozen=True)
class Diagnose:
    """Look for published bugs in a model of your own (chapter 12).

    Prints each bug with its evidence and its repair, and what was not tested. The exit code is 1 if there is one.

    Args:
        source: a Python file, and in it a function that makes the model, a class, or the model itself.
        images: folder with pictures to ask it about, of any size, also in folders of it.
        patch_size: pixels of a patch's side, if no part of the model says it.
    """

    source: Annotated[Positional[str], arg(metavar="FILE.py:make_model")]
    images: Annotated[str, arg(metavar="DIR", help_behavior_hint="(default: random images)")] = ""
    patch_size: Annotated[int, arg(metavar="N", help_behavior_hint="(default: what the model says)")] = 0

    def __post_init__(self):
        if self.patch_size < 0:
            raise ValueError(f"--patch-size must be 1 or more, got {self.patch_size}")

    def run(self) -> None:
        found = diagnose_file(self.source, self.images, patch_size=self.patch_size or None)
        print(found)
        if found:
            sys.exit(1)


@dataclass(frozen=True)
class Export:
    """Write a finished run as JavaScript, for a web page: your own run in runs/, else the recorded one.

    Args:
        name: of the run.
        out: file; it sets ``models[NAME]`` to what ``loadModel`` in book/_static/live/vit.mjs takes.
    """

    name: Annotated[Positional[str], arg(metavar="NAME")]
    out: Annotated[Positional[str], arg(metavar="OUT.js")]

    def run(self) -> None:
        folder = find_run(self.name, own_first=True)
        script = as_script(folder.name, export_model(*load_recorded(folder)))
        write_whole(self.out, script.encode())
        print(f"{folder.name}: {len(script) / 1000:.0f} kB in {self.out}")


def _class_sizes(parts: list[Dataset | ImageFiles]) -> str:
    """How many images each class has."""
    classes = parts[0].classes
    counts = sum(part.labels.bincount(minlength=len(classes)) for part in parts).tolist()
    shown = ", ".join(f"{name} {count:,}" for name, count in list(zip(classes, counts, strict=True))[:MANY_CLASSES])
    return f"{len(classes)} classes: {shown}{', …' * (len(classes) > MANY_CLASSES)}"


@dataclass(frozen=True)
class Data:
    """Fetch data sets into $VIT_TUTORIAL_DATA (else ~/.cache/vit-tutorial), and print the sizes of their splits.

    Published weights go into torch's cache. An interrupted download is resumed. Of folders, images that can't be read
    are named at the end; they are counted with the others.

    Args:
        names: mnist, cifar10, digits, shapes, folder:PATH, or published weights such as vit_b_16.
        labels: of a folder:PATH, a CSV file with the images' classes, instead of folders for them.
        label_columns: its columns with files and classes.
        minutes: give up what would take longer. Missing files are then not an error, unless $VIT_TUTORIAL_STRICT is
            set, and sizes aren't printed: `make book` uses this.
    """

    names: Annotated[
        Positional[tuple[str, ...]], arg(metavar="[NAME ...]", help_behavior_hint="(default: all data sets)")
    ] = ()
    labels: Annotated[str, arg(metavar="FILE.csv", help_behavior_hint="(default: none)")] = ""
    label_columns: Annotated[str, arg(metavar="FILE,CLASS", help_behavior_hint="(default: guessed, and told)")] = ""
    minutes: Annotated[float, arg(metavar="N", help_behavior_hint="(default: as long as it takes)")] = math.inf

    def __post_init__(self):
        if not self.minutes > 0:
            raise ValueError(f"--minutes must be more than 0, got {self.minutes:g}")

    def run(self) -> None:
        print(f"data root: {data_root()}", flush=True)
        if self.minutes < math.inf:
            return self.fetch()
        lacking, faults = [], []
        table = {"labels": self.labels, "label_columns": self.label_columns}
        for name in self.names or NAMES:
            try:
                if name in WEIGHTS:
                    host = fetch_files(name, data_root())
                    print(f"{name}: fetched from {host}" if host else f"{name}: already here")
                    continue
                # memory=0 counts the images of a folder without decoding them.
                splits = {split: load_dataset(name, split, memory=0, **table) for split in SPLITS}
            except FileNotFoundError as error:
                lacking.append(name)
                print(f"{name}: {error}", file=sys.stderr)
                continue
            except UnreadableImages as error:  # the others are counted
                faults.append(str(error))
                splits = split_folder(Path(name.removeprefix("folder:")).expanduser(), **table)
            except (ValueError, OSError) as error:
                faults.append(str(error))
                continue
            sizes = ", ".join(f"{split} {len(dataset):,}" for split, dataset in splits.items())
            print(f"{name}: {sizes} ({splits['train'].variant})")
            if name.startswith("folder:"):
                print(f"{name}: {_class_sizes(list(splits.values()))}")
                print(f"{name}: looked for files of equal content; {NOT_FOUND}")
        faults += [f"missing, and cannot be fetched: {', '.join(lacking)}"] * bool(lacking)
        if faults:
            sys.exit("\n".join(f"vit-tutorial: {fault}" for fault in faults))

    def fetch(self) -> None:
        """What arrives in time, with a line for each."""
        lacking = []
        for name in self.names or STAND_INS:
            there, said = fetch_and_report(name, 60 * self.minutes, progress=sys.stderr.isatty())
            print(said, flush=True)
            lacking += [name] * (not there)
        if lacking and os.environ.get("VIT_TUTORIAL_STRICT", "0") != "0":
            sys.exit(f"vit-tutorial: VIT_TUTORIAL_STRICT is set, so nothing may stand in for {', '.join(lacking)}")


@dataclass(frozen=True)
class Handout:
    """Copy chapters for a class: without solutions and answers, with a last cell that hands in.

    Args:
        out: folder for the copies.
        chapters: such as 1-5 or 1,3,8.
        points: TOML file with lines such as `patchify = 2`; the exercises show them.
        url: folder on GitHub where the copies will be; Colab badges open them there. Without it there are no badges.
        exercises: Python file with EXERCISES of your own, which have points, too.
    """

    out: Annotated[Positional[str], arg(metavar="OUT")]
    chapters: Annotated[str, arg(metavar="N-M", help_behavior_hint="(default: all)")] = ""
    points: Annotated[str, arg(metavar="FILE", help_behavior_hint="(default: none)")] = ""
    url: Annotated[str, arg(metavar="URL", help_behavior_hint="(default: none)")] = ""
    exercises: Annotated[str, arg(metavar="FILE.py", help_behavior_hint="(default: the book's alone)")] = ""

    def run(self) -> None:
        points = read_points(self.points) if self.points else None
        own = load_exercises(self.exercises) if self.exercises else ()
        written = write_handouts(self.out, self.chapters, points, self.url, own)
        print(f"{len(written)} hand-outs: {', '.join(file.name for file in written)} in {self.out}")


@dataclass(frozen=True)
class Grade:
    """Grade what students handed in: notebooks, .py files and hand-in files, found by their functions' names.

    Each answer runs in a process of its own, with limits: it writes in its own folder, and can't open other files. If
    the system can't confine it, as on macOS, nothing runs. The same command resumes after an interruption.

    Args:
        submissions: a folder or a zip, as Moodle, Canvas and others make it.
        out: the table: student, exercise, points, status, hint, seconds.
        report: folder for a page about the class, class.html, and one for each student.
        points: TOML file with lines such as `patchify = 2`; exercises that it doesn't name don't count.
        chapters: such as 1-5 or 1,3,8.
        exercises: Python file with EXERCISES of your own.
        seconds: CPU time for an answer.
        memory: megabytes for an answer, beyond what PyTorch takes.
        jobs: answers at once.
        unconfined: go on even if the system can't keep answers out of your files; for a container, and never as root.
        quiet: show no progress bar.
    """

    submissions: Annotated[Positional[str], arg(metavar="SUBMISSIONS")]
    out: Annotated[str, arg(metavar="GRADES.csv")]
    report: Annotated[str, arg(metavar="DIR", help_behavior_hint="(default: none)")] = ""
    points: Annotated[str, arg(metavar="FILE", help_behavior_hint="(default: a point for each exercise)")] = ""
    chapters: Annotated[str, arg(metavar="N-M", help_behavior_hint="(default: those handed in)")] = ""
    exercises: Annotated[str, arg(metavar="FILE.py", help_behavior_hint="(default: the book's alone)")] = ""
    seconds: int = Limits.seconds
    memory: int = Limits.memory
    jobs: Annotated[int, arg(help_behavior_hint="(default: all cores)")] = 0
    unconfined: Flag = False
    quiet: Flag = False

    def __post_init__(self):
        for option, least in (("seconds", 1), ("memory", 1), ("jobs", 0)):
            if getattr(self, option) < least:
                raise ValueError(f"--{option} must be {least} or more, got {getattr(self, option)}")

    def run(self) -> None:
        grades = grade(
            self.submissions,
            self.out,
            points=read_points(self.points) if self.points else None,
            chapters=self.chapters,
            exercises=self.exercises,
            limits=Limits(seconds=self.seconds, memory=self.memory, unconfined=self.unconfined),
            jobs=self.jobs,
            progress=not self.quiet,
        )
        students = {each.student for each in grades}
        right = sum(each.status == "right" for each in grades)
        print(f"{len(students)} students, {right:,} of {len(grades):,} answers right; see {self.out}")
        if self.report:
            print(f"the class: {write_reports(self.report, grades)}")
        for student, note in {each.student: each.note for each in grades if each.note}.items():
            print(f"{student}: {note}")


@dataclass(frozen=True)
class Arguments:
    """The Vision Transformer from scratch."""

    command: Annotated[
        Annotated[Train, subcommand("train")]
        | Annotated[Sweep, subcommand("sweep")]
        | Annotated[Evaluate, subcommand("evaluate")]
        | Annotated[Predict, subcommand("predict")]
        | Annotated[Diagnose, subcommand("diagnose")]
        | Annotated[Export, subcommand("export")]
        | Annotated[Data, subcommand("data")]
        | Annotated[Handout, subcommand("handout")]
        | Annotated[Grade, subcommand("grade")],
        arg(name=""),
    ]


def _with_current_names(arguments: list[str]) -> list[str]:
    """The arguments of ``train`` and ``sweep``, where recipes and variants may have their old names."""
    for i, name in enumerate(arguments):
        if name in OLD_NAMES and arguments[0] in ("train", "sweep") and arguments[i - 1] != "--name":
            own = f"; your run in {OWN_RUNS / name} resumes with --name {name}" if (OWN_RUNS / name).exists() else ""
            print(f"vit-tutorial: {name} is now called {OLD_NAMES[name]}{own}", file=sys.stderr)
            arguments = [*arguments[:i], OLD_NAMES[name], *arguments[i + 1 :]]
    return arguments


def _one_line_each() -> Callable[..., str]:
    """How warnings are shown: in a line without code, and once, though each split of a folder repeats them."""
    told = set()

    def one_line(message: Warning | str, *_, **__) -> str:
        line = f"vit-tutorial: {message}\n"
        again = line in told
        told.add(line)
        return "" if again else line

    return one_line


def main(arguments: list[str] | None = None) -> None:
    """Run the command. Wrong usage exits with code 2; other errors that the user can fix are one line, with code 1."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # for folders by names that are no text
    warnings.formatwarning = _one_line_each()
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # twice as many pixels are read, and no more
    arguments = _with_current_names(sys.argv[1:] if arguments is None else arguments)
    try:
        # Cascading: `train --quiet mnist` is `train mnist --quiet`.
        command = tyro.cli(Arguments, prog="vit-tutorial", args=arguments, config=(CascadeSubcommandArgs,)).command
    except ValueError as error:  # a value of the recipe is out of range
        print(f"vit-tutorial: {error}", file=sys.stderr)
        sys.exit(2)
    try:
        command.run()
    except KeyboardInterrupt:
        sys.exit(
            "vit-tutorial: interrupted; the same command resumes where it was, a training after its last complete epoch"
        )
    except Exception as error:
        if is_out_of_memory(error):
            sys.exit(f"vit-tutorial: out of memory ({reason(error)}): {LOWER.get(type(command), OTHERWISE)}")
        if isinstance(error, ValueError | OSError | FloatingPointError):
            sys.exit(f"vit-tutorial: {error}")
        raise


# What takes less memory.
LOWER = {
    Train: "lower --batch-size, or make fewer tokens with a larger --model.patch-size",
    Evaluate: "lower --batch-size",
    Predict: "lower --batch-size, or name fewer images",
    Diagnose: "let the function make a smaller model, or one with larger patches",
    Grade: "lower --jobs",
}
OTHERWISE = "end other programs, or take another machine"
