"""What is said in more than one place agrees: addresses, requirements, chapters; and notebooks keep to their rules."""

import copy
import re
import shutil
import sys
import textwrap
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from notebook_rules import NOTEBOOKS, ROOT, cells, exercise_calls, problems, read

from vit_tutorial import PRESETS, patchify
from vit_tutorial.clinic import PATIENTS
from vit_tutorial.recipes import RECIPES
from vit_tutorial.runs import load_metrics, recorded_runs
from vit_tutorial.what_matters import SWEEPS

sys.path.insert(0, str(ROOT / "book"))
import links

SLUG, BRANCH = links.address(ROOT)
CHAPTERS = [
    "01_patches",
    "02_positions",
    "03_attention",
    "04_encoder",
    "05_model",
    "06_training",
    "07_recipes",
    "08_attention_maps",
    "09_pretrained",
    "10_what_matters",
    "11_speed",
    "12_clinic",
]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
INSTALL = f"vit-tutorial @ git+https://github.com/{SLUG}"


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def code_of(stem: str) -> str:
    """All code of a chapter."""
    return "\n".join(cell.source for cell in cells(read(ROOT / f"notebooks/{stem}.ipynb"), "code"))


def badge(name: str) -> str:
    return f"https://colab.research.google.com/github/{SLUG}/blob/{BRANCH}/notebooks/{name}"


# Notebooks ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_keeps_to_the_rules(path):
    assert problems(read(path), path.name, badge(path.name), INSTALL) == []


def good_notebook() -> nbformat.NotebookNode:
    alt = {"mystnb": {"image": {"alt": "A line that rises from left to right, as it should."}}}
    hint = "<details><summary>Hint</summary>\n\nUse fingers.\n\n</details>"
    figure = "import matplotlib.pyplot as plt\n\nplt.plot([1, 2])\nplt.show()"
    title = f"# 1 · A title\n\n[![Open In Colab](https://colab.research.google.com/assets/colab-badge.svg)]({badge('01_x.ipynb')})"
    notebook = new_notebook(
        cells=[
            new_markdown_cell(title),
            new_code_cell(f'import importlib.util\n\nif False:\n    %pip install "{INSTALL}"'),
            new_code_cell("def show(x):\n    plots.heatmap(x)\n    plt.show()"),
            new_code_cell(figure, metadata=alt),
            new_markdown_cell(
                "### Exercise 1: count\n\nThe set `{a}` and $x^{n}$.\n\n$$\nx_{1}\n$$\n\n"
                f"```python\n# a comment\n```\n\n{hint}"
            ),
        ]
    )
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return notebook


def found_in(notebook: nbformat.NotebookNode) -> str:
    return "\n".join(problems(notebook, "01_x.ipynb", badge("01_x.ipynb"), INSTALL))


def test_a_good_notebook_has_no_problems():
    assert found_in(good_notebook()) == ""


def _set(cell: int, **changes):
    return lambda notebook: notebook.cells[cell].update(changes)


def _source(cell: int, old: str, new: str):
    def change(notebook):
        assert old in notebook.cells[cell].source
        notebook.cells[cell].source = notebook.cells[cell].source.replace(old, new)

    return change


def _add(cell: nbformat.NotebookNode):
    return lambda notebook: notebook.cells.append(cell)


def _alt(text: str):
    return lambda notebook: notebook.cells[3].metadata.mystnb.image.update(alt=text)


BROKEN = {
    "outputs": (_set(3, outputs=[new_output("stream", text="1")]), "cell 3: has outputs"),
    "execution count": (_set(3, execution_count=1), "cell 3: has outputs or an execution count"),
    "no alt": (_set(3, metadata={}), "cell 3: draws, but has no alt text"),
    "no alt in a loop": (_add(new_code_cell("for i in range(2):\n    plots.bars(i)")), "cell 5: draws"),
    "no alt through a function": (_add(new_code_cell("show(3)")), "cell 5: draws"),
    "no alt on the diagram": (_add(new_code_cell('model_diagram("patches")')), "cell 5: draws"),
    "a path as alt": (_alt("../_build/jupyter_execute/0123456789abcdef.png"), "alt text is no sentence"),
    "empty alt": (_alt(""), "alt text is no sentence"),
    "double quotes in alt": (_alt('A line that is called "the line", from left to right.'), "alt text is no sentence"),
    "another chapter's badge": (_source(0, "01_x.ipynb", "02_y.ipynb"), "no Colab badge of its own"),
    "a fork's badge": (_source(0, f"github/{SLUG}", "github/someone/else"), "no Colab badge of its own"),
    "no badge": (_set(0, source="# 1 · A title"), "no Colab badge of its own"),
    "no title": (_source(0, "# 1 · A title", "A title"), "cell 0 is no title"),
    "a second title": (_add(new_markdown_cell("# 2 · Again")), "not exactly one title"),
    "other set-up": (_source(1, SLUG, "someone/else"), "does not install"),
    "exercise numbers": (_source(4, "Exercise 1", "Exercise 2"), "numbered [2]"),
    "no hint": (_source(4, "<summary>Hint", "<summary>More"), "Exercise 1: count: not exactly one folded hint"),
    "an open hint": (_source(4, "\n\n</details>", ""), "Exercise 1: count: not exactly one folded hint"),
    "an empty hint": (_source(4, "Use fingers.", ""), "Exercise 1: count: not exactly one folded hint"),
    "a hint for two": (
        _source(4, "### Exercise 1: count", "### Exercise 1: count\n\n### Exercise 2: sum"),
        "not exactly one",
    ),
    "directive": (_add(new_markdown_cell("```{note}\nText\n```")), "MyST directive"),
    "colon directive": (_add(new_markdown_cell(":::{note}\nText\n:::")), "MyST directive"),
    "role": (_add(new_markdown_cell("See {cite}`someone2021`.")), "MyST role"),
    "label": (_add(new_markdown_cell("(my-label)=\n## Heading")), "MyST label"),
    "image tag": (_add(new_markdown_cell('<img src="x.png">')), "raw HTML"),
    "CDN": (_add(new_markdown_cell("[x](https://cdn.jsdelivr.net/npm/x)")), "a CDN's address"),
    "inline display maths": (_add(new_markdown_cell("$$x^2$$")), "line of its own"),
    "open display maths": (_add(new_markdown_cell("$$\nx^2")), "not closed"),
    "same id twice": (lambda notebook: notebook.cells[1].update(id=notebook.cells[2].id), "not unique"),
    "kernel": (lambda notebook: notebook.metadata.kernelspec.update(name="my-env"), "kernel is not python3"),
}


@pytest.mark.parametrize(("change", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_notebook_is_found(change, message):
    notebook = copy.deepcopy(good_notebook())
    change(notebook)
    assert message in found_in(notebook)


# The repository's address ---------------------------------------------------------------------------------------


def test_every_address_is_the_one_of_the_config():
    assert links.outdated(ROOT) == {}
    assert links.own_slugs([path.read_text(encoding="utf-8") for path in links.files(ROOT)]) == {SLUG}


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A copy of the files that hold the address, with a few lines that look alike and are not ours."""
    for path in [ROOT / "_config.yml", *links.files(ROOT)]:
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    with (tmp_path / "README.md").open("a", encoding="utf-8") as readme:
        readme.write(
            f"\ngit clone https://github.com/{SLUG}.git\nAt https://github.com/{SLUG}.\n"
            f"https://github.com/{SLUG}-extras https://github.com/{SLUG}.github.io\n"
            "https://github.com/huggingface/pytorch-image-models\n"
            "https://colab.research.google.com/github/other/repo/blob/main/lesson.ipynb\n"
        )
    return tmp_path


def move(checkout: Path, slug: str, branch: str) -> None:
    """Name another address in the config, and carry it everywhere."""
    config = checkout / "_config.yml"
    text = re.sub(r"(\n  url: https://github\.com/)\S+", rf"\g<1>{slug}", config.read_text(encoding="utf-8"))
    config.write_text(re.sub(r"(\n  branch: )\S+", rf"\g<1>{branch}", text), encoding="utf-8")
    for path, text in links.outdated(checkout).items():
        path.write_text(text, encoding="utf-8")


def texts(checkout: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in links.files(checkout)}


def test_another_address_reaches_every_place_and_nothing_else(checkout):
    before = texts(checkout)
    move(checkout, "new-owner/new.repo", "trunk")
    after = texts(checkout)
    assert links.outdated(checkout) == {}
    for name, text in after.items():
        kept = text.replace(f"{SLUG}-extras", "").replace(f"{SLUG}.github.io", "")
        assert f"github.com/{SLUG}" not in kept, name
        assert f"google.com/github/{SLUG}" not in kept, name
        ours = len(re.findall(rf"(?:github\.com|google\.com/github)/{re.escape(SLUG)}", before[name]))
        left = len(re.findall(rf"github\.com/{re.escape(SLUG)}", text))
        assert text.count("new-owner/new.repo") == ours - left, name
    for line in (
        "new.repo.git\n",
        "new.repo.\n",
        f"{SLUG}-extras ",
        f"{SLUG}.github.io\n",
        "/other/repo/blob/main/lesson",
    ):
        assert line in after["README.md"]
    for stem in CHAPTERS:
        expected = f"github/new-owner/new.repo/blob/trunk/notebooks/{stem}.ipynb"
        assert expected in after["README.md"]
        assert expected in after[f"{stem}.ipynb"]
        assert "git+https://github.com/new-owner/new.repo" in after[f"{stem}.ipynb"]

    move(checkout, SLUG, BRANCH)
    assert texts(checkout) == before


def test_a_forgotten_address_is_found(checkout):
    readme = checkout / "README.md"
    text = readme.read_text(encoding="utf-8")
    readme.write_text(text.replace(badge("01_patches.ipynb"), badge("01_patches.ipynb").replace(SLUG, "old/name")))
    assert list(links.outdated(checkout)) == [readme]


# Chapters, requirements, licence ----------------------------------------------------------------------------------


def test_chapters_are_the_same_in_the_folder_the_contents_and_the_readme():
    contents = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    files = [chapter["file"] for part in contents["parts"] for chapter in part["chapters"]]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [path.stem for path in NOTEBOOKS] == CHAPTERS
    assert [file for file in files if file.startswith("notebooks/")] == [f"notebooks/{stem}" for stem in CHAPTERS]
    assert re.findall(r"^\| \[.*?\]\(notebooks/(\w+)\.ipynb\)", readme, re.MULTILINE) == CHAPTERS
    for path in NOTEBOOKS:
        title = read(path).cells[0].source.split("\n")[0].removeprefix("# ")
        assert f"[{title}](notebooks/{path.name})" in readme
        assert badge(path.name) in readme


def modules_of(stem: str) -> list[str]:
    """The modules that a chapter builds, as the README says: the one of its name, or others."""
    (row,) = [line for line in page("README.md").splitlines() if line.startswith("| `vit_tutorial/` |")]
    others = {int(number): names for number, names in re.findall(r"\b(\d+) ((?:`\w+`(?:, )?)+)", row)}
    return re.findall(r"`(\w+)`", others.get(int(stem[:2]), f"`{stem[3:]}`"))


@pytest.mark.parametrize("stem", CHAPTERS)
def test_a_chapter_has_its_modules_its_checks_and_their_tests(stem):
    modules = modules_of(stem)
    for name in modules:
        module = ROOT / "vit_tutorial" / name
        assert module.with_suffix(".py").is_file() or (module / "__init__.py").is_file(), module
        assert name == stem[3:] or re.search(rf"vit_tutorial(\.| import .*\b){name}\b", code_of(stem)), name
    checks = "training" if stem == "06_training" else stem[3:]
    for file in (f"vit_tutorial/checks/{checks}.py", f"tests/test_checks_{checks}.py", f"tests/test_{modules[0]}.py"):
        assert (ROOT / file).is_file(), file


def names_and_bounds(requirements: list[str]) -> dict[str, str]:
    matches = [re.match(r"([\w.-]+)(\[[^\]]*\])?(.*)", requirement) for requirement in requirements]
    return {match[1].lower(): match[3].strip() for match in matches}


def test_requirements_agree_with_pyproject():
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").split("\n")
    lines = [line for line in lines if line and not line.startswith("#")]
    extras = PYPROJECT["project"]["optional-dependencies"]
    assert lines.pop() == "-e .[book,test]"
    listed = names_and_bounds(lines)
    assert {"torch", "torchvision", "matplotlib", "pillow", "jupyter-book", "nbmake"} <= set(listed)
    assert (
        listed.items()
        <= names_and_bounds(PYPROJECT["project"]["dependencies"] + extras["book"] + extras["test"]).items()
    )
    assert listed["jupyter-book"].endswith("<2")


def test_the_package_has_lower_bounds_only():
    bounds = names_and_bounds(PYPROJECT["project"]["dependencies"])
    assert all(re.fullmatch(r">=[\d.]+", bound) for bound in bounds.values()), bounds


def test_pre_commit_formats_with_the_ruff_that_lint_runs():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    rev = next(hook["rev"] for hook in hooks if hook["repo"].endswith("ruff-pre-commit"))
    bound = names_and_bounds(PYPROJECT["project"]["optional-dependencies"]["test"])["ruff"]
    assert bound.startswith(f">={'.'.join(rev.removeprefix('v').split('.')[:2])},")


# What the pages say ---------------------------------------------------------------------------------------------


def python_blocks(name: str) -> list[str]:
    """The Python on a page. Blocks in a list are indented."""
    return [
        textwrap.dedent(code) for code in re.findall(r"^ *```python\n(.*?)```", page(name), re.DOTALL | re.MULTILINE)
    ]


def test_the_readme_s_code_runs_and_prints_what_it_says(capsys):
    (code,) = python_blocks("README.md")
    exec(code, {})
    assert capsys.readouterr().out.strip() == re.search(r"# (.*)", code)[1]


def test_the_intro_s_code_runs():
    load_timm, mark_all = python_blocks("book/intro.md")
    exec(load_timm, {})

    def empty(images, patch_size):
        raise NotImplementedError

    def bare_reshape(images, patch_size):
        return images.reshape(patchify(images, patch_size).shape)

    def marks(hers, his):
        exec(mark_all, scope := {"her_patchify": hers, "his_patchify": his})
        return scope["marks"]

    assert marks(patchify, empty) == {"Ada": "right", "Max": "not attempted"}
    assert "scrambled" in marks(bare_reshape, empty)["Ada"]


def test_the_intro_says_how_long_a_chapter_takes():
    minutes = [int(re.search(r"about (\d+) minutes", read(path).cells[0].source)[1]) for path in NOTEBOOKS]
    assert f"A chapter takes {min(minutes)} to {max(minutes)} minutes" in page("book/intro.md")


def test_the_environment_variables_of_the_intro_are_read():
    quick = {stem for stem in CHAPTERS if 'os.environ.get("VIT_TUTORIAL_BUDGET", "full" if device' in code_of(stem)}
    assert quick == {"06_training", "07_recipes", "09_pretrained", "10_what_matters", "11_speed"}
    assert "6 and 7 then train to the end, 9 and 10 longer, and 11 measures the larger model" in page("book/intro.md")
    named = set(re.findall(r"VIT_TUTORIAL_\w+", page("book/intro.md")))
    assert named == {"VIT_TUTORIAL_BUDGET", "VIT_TUTORIAL_DATA"}
    assert "VIT_TUTORIAL_DATA" in page("vit_tutorial/data/load.py")


@pytest.mark.parametrize("names", [PRESETS, SWEEPS, PATIENTS], ids=["PRESETS", "SWEEPS", "PATIENTS"])
def test_the_api_page_lists_the_names(names):
    assert f"Names: {', '.join(f'`{name}`' for name in names)}.\n" in page("book/api.md")


def test_modules_in_the_api_page_s_table_are_documented_on_it():
    rows = re.findall(r"^\| \[`(\w+)`\]\(api-\w+\) \|(.*)\|$", page("book/api.md"), re.MULTILINE)
    documented = set(re.findall(r"automodule:: vit_tutorial\.(\S+)", page("book/api.md")))
    assert len(rows) >= 20
    for module, words in rows:
        for name in re.findall(r"`(\w+)`", words):
            assert {f"{module}.{name}", name} & documented, name
        assert module in documented


def table(first_heading: str, name: str = "book/api.md") -> list[str]:
    """The rows of the page's table whose first column has this heading."""
    lines = page(name).split(f"| {first_heading} |")[1].splitlines()
    return lines[2 : lines.index("")]


def test_exercises_on_the_api_page_are_those_of_the_chapters():
    rows = []
    for number, stem in enumerate(CHAPTERS, 1):
        headings = [
            cell for cell in cells(read(ROOT / f"notebooks/{stem}.ipynb"), "markdown") if "### Exercise " in cell.source
        ]
        names = re.findall(r'= exercise\(\s*"(\w+)"', code_of(stem))
        assert len(names) == len(headings)
        rows.append(f"| [{number}](../notebooks/{stem}.ipynb) | {', '.join(f'`{name}`' for name in names)} |")
    assert table("chapter") == rows


def test_the_teachers_page_has_all_exercises_and_only_sections_that_there_are():
    about = [line.strip("|").split("|") for line in table("chapter | afterwards, students can", "book/teaching.md")]
    given = [line.strip("|").split("|") for line in table("chapter | exercises in class", "book/teaching.md")]
    for number, (path, cells_, exercises) in enumerate(zip(NOTEBOOKS, about, given, strict=True), 1):
        *_, minutes, skipped = (cell.strip() for cell in cells_)
        notebook = read(path)
        assert minutes == re.search(r"about (\d+) minutes", notebook.cells[0].source)[1]
        prose = "\n".join(cell.source for cell in cells(notebook, "markdown"))
        headings = {heading.replace("`", "") for heading in re.findall(r"^##+ (.*)", prose, re.MULTILINE)}
        named = re.sub(r", but for one choice|; patients 10 and 11.*", "", skipped).replace("`", "").split("; ")
        assert set(named) <= headings, path.stem
        assert int(exercises[0]) == number
        names = re.findall(r"`(\w+)`", "".join(exercises[1:]))
        assert sorted(names) == sorted(name for _, name, _ in exercise_calls(notebook)), path.stem


def test_hand_outs_have_no_solutions_and_all_exercises(tmp_path, monkeypatch):
    (script,) = python_blocks("book/teaching.md")
    (tmp_path / "here").mkdir()
    shutil.copytree(ROOT / "notebooks", tmp_path / "here" / "notebooks")
    monkeypatch.chdir(tmp_path / "here")
    exec(script, {})
    for path in NOTEBOOKS:
        copy = read(tmp_path / "hand-outs" / path.name)
        text = "\n".join(cell.source for cell in copy.cells)
        assert exercise_calls(copy) == exercise_calls(read(path))
        assert (
            text.count("<summary>Hint</summary>")
            == path.read_text(encoding="utf-8").count("<summary>Hint</summary>")
            > 0
        )
        assert "<summary>Solution" not in text and "<summary>Answers" not in text
        nbformat.validate(copy)


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def test_recipes_on_the_api_page_are_those_recorded():
    """Time is that of the fastest pass times the passes, for the machine may have had other work too."""
    rows = []
    for name, recipe in RECIPES.items():
        runs = [load_metrics(run) for run in recorded_runs() if re.fullmatch(rf"{name}(-\d)?", run)]
        data, cost, accuracy = recipe.dataset, "–", "–"
        if runs:
            passes = [(entry["seconds"], run["device"]) for run in runs for entry in run["history"]]
            seconds, device = min(passes)
            data, cost = runs[0]["data"], f"{duration(seconds * recipe.epochs)}, {device}"
            accuracy = " · ".join(f"{run['test']['accuracy']:.2%}".replace("%", " %") for run in runs)
        rows.append(f"| `{name}` | {data} | {recipe.epochs} | {cost} | {accuracy} |")
    assert table("recipe") == rows


def test_citation_and_package_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PYPROJECT["project"]["version"]
    assert citation["repository-code"] == PYPROJECT["project"]["urls"]["Repository"] == f"https://github.com/{SLUG}"
    assert "MIT" in citation["license"]
    assert "CC-BY-4.0" in citation["license"]
