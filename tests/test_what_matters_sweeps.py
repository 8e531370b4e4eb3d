"""A sweep's recipes differ as their names say; its rows survive interruptions, and only current ones count."""

import errno
import json
import math
import multiprocessing
from dataclasses import replace

import pytest
import torch

from vit_tutorial import diagnose, runs
from vit_tutorial.data import Dataset
from vit_tutorial.metrics import recipe_from_dict
from vit_tutorial.recipes import RECIPES, make_model
from vit_tutorial.runs import FOLDER, append_row
from vit_tutorial.training import make_optimizer
from vit_tutorial.what_matters import SWEEPS, Sweep, effect_interval, load_sweep, read_rows, run_sweep, sweeps

MODEL = replace(RECIPES["digits"].model, embed_dim=12, depth=1)
BASE = replace(RECIPES["digits"], epochs=2, batch_size=512, model=MODEL)  # three steps an epoch
SMALL = Sweep(
    {"base": BASE, "no-warmup": replace(BASE, warmup=0.0), "post-norm": replace(BASE, arch="post-norm")}, seeds=2
)


@pytest.fixture(scope="module")
def base_rows(tmp_path_factory) -> list[bytes]:
    """The lines that the base's two runs have in a sweep's file."""
    folder = tmp_path_factory.mktemp("sweeps")
    run_sweep("small", SMALL, folder, only=["base"], progress=False)
    return (folder / "small.jsonl").read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("name", SWEEPS)
def test_every_model_can_be_made_and_takes_its_images(name):
    sweep = SWEEPS[name]
    for variant, recipe in sweep.recipes.items():
        model = make_model(recipe)
        logits = model(torch.rand(2, recipe.model.in_chans, *recipe.model.img_size))
        assert logits.shape == (2, 10) and logits.isfinite().all(), variant
        optimizer = make_optimizer(model, recipe)
        held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        assert len(held) == len(list(model.parameters())), variant
        if recipe.optimizer == "muon" and variant != "per-head slices":
            in_a_block = 5 if "swiglu" in variant else 4
            assert len(optimizer.parts[0].param_groups[0]["params"]) == in_a_block * recipe.model.depth, variant


def test_two_variants_of_a_sweep_never_share_a_recipe():
    for sweep in SWEEPS.values():
        assert len({repr(replace(recipe, seed=0)) for recipe in sweep.recipes.values()}) == len(sweep.recipes)
    with pytest.raises(ValueError, match="the recipes of a sweep must differ, but 'base' and 'twin' are equal"):
        Sweep({"base": BASE, "other": replace(BASE, lr=1.0), "twin": replace(BASE, seed=7)})


def test_what_is_trained_is_of_the_row_s_arch(tmp_path, monkeypatch):
    """Some of the clinic's sweep on a few random images: diagnose sees only the model and names what was trained."""
    only = ["healthy", "attention across the batch, mean pool", "dead residual norm, low rate", "colours last"]
    numbers = torch.Generator().manual_seed(0)
    images = torch.randint(256, (10, 3, 32, 32), dtype=torch.uint8, generator=numbers)
    few = Dataset(images, torch.arange(10), tuple("abcdefghij"), "noise")
    monkeypatch.setattr(runs, "load_split", lambda recipe, split: few)
    trained, real = [], runs.fit
    monkeypatch.setattr(runs, "fit", lambda model, *rest, **given: trained.append(model) or real(model, *rest, **given))
    rows = run_sweep("clinic", SWEEPS["clinic"], tmp_path, only=only, seeds=[99], progress=False)  # a seed of no record
    assert {row["variant"] for row in rows} == {*only}
    for row, model in zip(rows, trained, strict=True):
        name = row["variant"].partition(",")[0]
        assert row["recipe"]["arch"] == ("vit" if name == "healthy" else f"patient:{name}")
        assert [finding.bug for finding in diagnose(model)] == [name] * (name != "healthy"), row["variant"]


def test_a_sweep_has_a_row_for_each_run_and_resumes_where_it_stopped(tmp_path, monkeypatch):
    first = run_sweep("small", SMALL, tmp_path, only=["no-warmup"], seeds=[1], progress=False)
    assert [(row["variant"], row["seed"]) for row in first] == [("no-warmup", 1)]
    made = []
    real = sweeps.run_recipe

    def counted(name, recipe, *rest, **options):
        made.append((recipe.warmup, recipe.seed))
        if len(made) == 3:
            raise KeyboardInterrupt
        return real(name, recipe, *rest, **options)

    monkeypatch.setattr(sweeps, "run_recipe", counted)
    with pytest.raises(KeyboardInterrupt):
        run_sweep("small", SMALL, tmp_path, progress=False)
    rows = run_sweep("small", SMALL, tmp_path, progress=False)
    assert [(row["variant"], row["seed"]) for row in rows] == [
        (variant, seed) for variant in ("base", "no-warmup", "post-norm") for seed in (0, 1)
    ]
    assert len(made) == 6  # five runs were missing, and one of them was interrupted
    assert rows[3] == first[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.jsonl"]
    by_run = {(row["variant"], row["seed"]): row["train_losses"] for row in rows}
    assert len({tuple(losses) for losses in by_run.values()}) == 6  # no two runs are the same
    assert all(len(losses) == 2 for losses in by_run.values())


def test_a_checkpoint_of_an_older_recipe_does_no_harm(tmp_path, monkeypatch):
    def interrupted(name, recipe, folder, **options):
        folder.mkdir()
        (folder / "checkpoint.pt").write_bytes(b"of the recipe as it was then")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sweeps, "run_recipe", interrupted)
        run_sweep("small", SMALL, tmp_path, only=["base"], seeds=[0], progress=False)
    changed = replace(SMALL, recipes=SMALL.recipes | {"base": replace(BASE, lr=BASE.lr / 2)})
    (row,) = run_sweep("small", changed, tmp_path, only=["base"], seeds=[0], progress=False)
    assert row["recipe"]["lr"] == BASE.lr / 2


def test_runs_recorded_with_the_package_are_not_run_again(base_rows, tmp_path, monkeypatch):
    (tmp_path / "recorded/sweeps").mkdir(parents=True)
    (tmp_path / "recorded/sweeps/small.jsonl").write_bytes(base_rows[0])
    monkeypatch.setattr(sweeps, "FOLDER", tmp_path / "recorded")
    rows = run_sweep("small", SMALL, tmp_path / "own", only=["base"], progress=False)
    assert [(row["variant"], row["seed"]) for row in rows] == [("base", 1)]


def test_the_base_may_have_more_seeds_than_the_rest():
    more = replace(SMALL, base_seeds=4)
    assert more.runs() == [
        *(("base", 0), ("no-warmup", 0), ("post-norm", 0)),
        *(("base", 1), ("no-warmup", 1), ("post-norm", 1), ("base", 2), ("base", 3)),
    ]
    assert SMALL.runs() == [run for run in more.runs() if run[1] < 2]


def test_a_run_that_breaks_is_a_row_too_and_is_not_run_again(tmp_path, monkeypatch):
    breaks = Sweep({"base": BASE, "rate": replace(BASE, lr=1e30, clip_grad=0.0)}, seeds=1)
    rows = run_sweep("small", breaks, tmp_path / "sweeps", progress=False)
    assert [row["variant"] for row in rows] == ["base", "rate"]
    assert "broke" not in rows[0] and "test_accuracy" not in rows[1]
    assert rows[1]["broke"].startswith("the loss is ") and " at step " in rows[1]["broke"]
    assert rows[1]["recipe"]["lr"] == 1e30 and rows[1]["device"] and rows[1]["commit"]
    assert [path.name for path in (tmp_path / "sweeps").iterdir()] == ["small.jsonl"]
    monkeypatch.setattr(sweeps, "run_recipe", lambda *given, **options: pytest.fail("was run again"))
    assert run_sweep("small", breaks, tmp_path / "sweeps", progress=False) == rows
    monkeypatch.setattr(sweeps, "SWEEPS", {"small": breaks})
    monkeypatch.setattr(sweeps, "FOLDER", tmp_path)
    assert load_sweep("small") == rows[:1] and load_sweep("small", broken=True) == rows[1:]


def test_rows_of_a_recipe_that_changed_do_not_count(base_rows, tmp_path):
    (tmp_path / "small.jsonl").write_bytes(base_rows[0])
    changed = replace(SMALL, recipes={**SMALL.recipes, "base": replace(BASE, lr=1e-3)})
    assert len(read_rows(tmp_path / "small.jsonl", SMALL)) == 1
    assert read_rows(tmp_path / "small.jsonl", changed) == []
    gone = replace(SMALL, recipes={"no-warmup": SMALL.recipes["no-warmup"]})
    assert read_rows(tmp_path / "small.jsonl", gone) == []


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda row: row | {"recipe": row["recipe"] | {"torch_init": True}}, "does not know: torch_init"),
        (lambda row: {name: value for name, value in row.items() if name != "seed"}, "it lacks seed"),
        (lambda row: row | {"seed": "0"}, "its seed is '0'"),
        (lambda row: row | {"val_loss": None}, "its val_loss is None"),
        (lambda row: row | {"recipe": None}, "a recipe must be an object with its fields, got None"),
        (lambda row: row | {"recipe": row["recipe"] | {"seed": -1}}, "seed must be an int of at least 0, got -1"),
        (lambda row: [row], "it holds a list"),
    ],
)
def test_an_invalid_row_is_named_and_its_run_is_run_again(base_rows, tmp_path, spoil, reason):
    first, row = map(json.loads, base_rows)
    path = tmp_path / "small.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (spoil(row), first)))
    told = rf"small\.jsonl, line 1 is not a row of this version: .*{reason}.*Its run does not count"
    with pytest.warns(UserWarning, match=told):
        assert read_rows(path, SMALL) == [first]
    with pytest.warns(UserWarning, match=told):
        again = run_sweep("small", SMALL, tmp_path, only=["base"], progress=False)
    assert [each["seed"] for each in again] == [0, 1] and again[0] == first
    assert len(path.read_bytes().splitlines()) == 3  # nothing was thrown away


def test_a_run_that_cannot_go_on_is_named_and_the_others_are_run(tmp_path):
    def damage(name, recipe, folder, **options):
        folder.mkdir()
        (folder / "checkpoint.pt").write_bytes(b"damaged")
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sweeps, "run_recipe", damage)
        run_sweep("small", SMALL, tmp_path, only=["base"], seeds=[0], progress=False)
    with pytest.raises(ValueError, match=r"^base, seed 0: .*checkpoint\.pt is not a whole checkpoint: .*afresh$"):
        run_sweep("small", SMALL, tmp_path, only=["base"], progress=False)
    assert [row["seed"] for row in read_rows(tmp_path / "small.jsonl", SMALL)] == [1]


def test_of_two_rows_of_one_run_the_first_counts(base_rows, tmp_path):
    """Counted twice, a run would make intervals too narrow."""
    path = tmp_path / "small.jsonl"
    path.write_bytes(base_rows[0] + base_rows[1] + base_rows[0])
    with pytest.warns(UserWarning, match=r"small\.jsonl, line 3 has the run of line 1, 'base' with seed 0: that one"):
        assert read_rows(path, SMALL) == [json.loads(row) for row in base_rows]


def test_the_same_sweep_in_two_terminals_shares_the_work(tmp_path, monkeypatch):
    real, made = sweeps.run_recipe, []

    def meanwhile(name, recipe, *rest, **options):
        made.append((recipe.warmup, recipe.seed))
        if len(made) == 1:  # the other terminal, while the first run is under way
            with pytest.warns(
                UserWarning, match=r"left to other processes, which have not finished them yet: base, seed 0$"
            ):
                rows = run_sweep("small", SMALL, tmp_path, only=["base", "no-warmup"], progress=False)
            assert [(row["variant"], row["seed"]) for row in rows] == [("base", 1), ("no-warmup", 0), ("no-warmup", 1)]
        return real(name, recipe, *rest, **options)

    monkeypatch.setattr(sweeps, "run_recipe", meanwhile)
    rows = run_sweep("small", SMALL, tmp_path, only=["base", "no-warmup"], progress=False)
    assert len(rows) == 4 and len(made) == len(set(made)) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["small.jsonl"]


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
def test_six_writers_lose_no_row(tmp_path):
    path, row = tmp_path / "small.jsonl", {"filler": "x" * 300_000}

    def write(writer: int) -> None:
        for number in range(8):
            append_row(path, row | {"writer": writer, "number": number})

    writers = [multiprocessing.get_context("fork").Process(target=write, args=[writer]) for writer in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    rows = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert sorted((row["writer"], row["number"]) for row in rows) == [(w, n) for w in range(6) for n in range(8)]


def test_a_run_whose_row_could_not_be_written_is_not_trained_again(tmp_path, monkeypatch):
    def full(path, row):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch, pytest.raises(OSError, match=r"No space left on device: '.*small\.jsonl'"):
        patch.setattr(sweeps, "append_row", full)
        run_sweep("small", SMALL, tmp_path, only=["base"], seeds=[0], progress=False)
    monkeypatch.setattr(sweeps, "run_recipe", lambda *given, **options: pytest.fail("was run again"))
    (row,) = run_sweep("small", SMALL, tmp_path, only=["base"], seeds=[0], progress=False)
    assert (row["variant"], row["seed"]) == ("base", 0)
    assert [path.name for path in tmp_path.iterdir()] == ["small.jsonl"]


@pytest.mark.parametrize("left", [1, 10, -1])
def test_a_truncated_row_is_rerun(base_rows, tmp_path, left, monkeypatch):
    """Its first letter is left, a part, or all but the line break."""
    path = tmp_path / "small.jsonl"
    real, made = sweeps.run_recipe, []
    monkeypatch.setattr(sweeps, "run_recipe", lambda *given, **options: made.append(1) or real(*given, **options))
    first, second = map(json.loads, base_rows)
    path.write_bytes(base_rows[0] + base_rows[1][:left])
    with pytest.warns(UserWarning, match=r"small\.jsonl, line 2 is truncated"):
        assert read_rows(path, SMALL) == [first]
    with pytest.warns(UserWarning, match="line 2 is truncated"):
        again = run_sweep("small", SMALL, tmp_path, only=["base"], progress=False)
    assert len(made) == 1
    assert again[0] == first and again[1]["train_losses"] == second["train_losses"]
    assert [json.loads(line)["seed"] for line in path.read_text().splitlines()] == [0, 1]


def test_own_rows_are_added_to_recorded_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "SWEEPS", {"small": SMALL})
    monkeypatch.setattr(sweeps, "FOLDER", tmp_path / "package")
    monkeypatch.setattr(sweeps, "OWN_RUNS", tmp_path / "runs")
    assert load_sweep("small") == []
    recorded = run_sweep("small", SMALL, tmp_path / "package/sweeps", only=["base"], progress=False)
    run_sweep("small", SMALL, tmp_path / "runs/sweeps", only=["base", "no-warmup"], seeds=[1], progress=False)
    rows = load_sweep("small")
    assert [(row["variant"], row["seed"]) for row in rows] == [("base", 0), ("base", 1), ("no-warmup", 1)]
    assert rows[:2] == recorded
    with pytest.raises(ValueError, match="name must be one of small; got 'nope'"):
        load_sweep("nope")


@pytest.mark.parametrize(
    "path", sorted((FOLDER / "sweeps").glob("*.jsonl")) or [None], ids=lambda path: path and path.stem
)
def test_every_recorded_row_has_a_current_recipe(path):
    if path is None:
        pytest.skip("no sweep is recorded")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(read_rows(path, SWEEPS[path.stem])) == len(lines)
    assert len({(row["variant"], row["seed"]) for row in lines}) == len(lines)
    assert not any(row["commit"].endswith("+") for row in lines), "recorded from a checkout with changes"
    counts = {}
    for number, row in enumerate(lines, start=1):
        recipe = recipe_from_dict(row["recipe"])
        key = replace(recipe, seed=0)
        if key not in counts:
            with torch.device("meta"):
                counts[key] = sum(p.numel() for p in make_model(recipe).parameters())
        assert "broke" in row or row["parameters"] == counts[key], f"{path}, line {number}"


def test_effect_interval_by_hand():
    """Two and two runs with variance 2, so 1 for each mean; two degrees of freedom, where t is 4.303."""
    base, changed = torch.tensor([1.0, 3.0]), torch.tensor([5.0, 7.0])
    half = 4.30265 * math.sqrt(2)
    assert effect_interval(base, changed) == pytest.approx((4, 4 - half, 4 + half), abs=1e-4)


def test_no_interval_without_variation_or_of_what_is_not_finite():
    with pytest.raises(ValueError, match=r"results must be finite.*changed has \[0.5, nan\]"):
        effect_interval(torch.tensor([0.5, 0.75]), torch.tensor([0.5, math.nan]))
    with pytest.raises(ValueError, match="at least 2 runs, got 3 and 1"):
        effect_interval(torch.randn(3), torch.randn(1))
    with pytest.raises(ValueError, match=r"must vary .* got \[1.0, 1.0\] and \[2.0, 2.0, 2.0\]"):
        effect_interval(torch.ones(2), 2 * torch.ones(3))


def test_effect_interval_holds_the_truth_in_95_of_100_cases():
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(1000, 6, generator=generator, dtype=torch.float64)
    found = [effect_interval(row[:3], row[3:] + 2) for row in draws]
    assert 0.93 < sum(low < 2 < high for _, low, high in found) / len(found) < 0.985
