"""The repository's address is the same everywhere, and CONTRIBUTING.md's command changes it everywhere."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from notebook_rules import NOTEBOOKS, REPOSITORY, ROOT, SLUG, badge

# The command, and the files that it is given.
COMMAND = re.compile(r"^```bash\n(FROM=\S+ TO=OWNER/REPO perl .*?' \\\n  (.*?)\n)```", re.DOTALL | re.MULTILINE)
FILES = COMMAND.search((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))[2].split()

NAME = r"([\w-]+/[\w.-]*[\w-])"  # OWNER/REPO
OURS = {  # places where an address is this repository's
    "badge": rf"google\.com/github/{NAME}/blob/(.+?)/notebooks/\d\d_\w+\.ipynb",
    "installation": rf"vit-tutorial @ git\+https://github\.com/{NAME}",
    "metadata": rf'(?:Repository = |Issues = |repository-code: )"https://github\.com/{NAME}',
    "clone": rf"git clone https://github\.com/{NAME}",
    "readme": rf"\[README\]\(https://github\.com/{NAME}#readme",
    "command": rf"^FROM={NAME} TO=",
}


def places(root: Path) -> list[Path]:
    return [path for pattern in FILES for path in sorted(root.glob(pattern))]


def texts(root: Path) -> dict[str, str]:
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in places(root)}


def found(root: Path) -> list[tuple[str, str, str, str]]:
    """Every address that should be the config's: the file, the kind of place, OWNER/REPO and the branch or ''."""
    return [
        (file, kind, *(group.removesuffix(".git") for group in (*match.groups(), "")[:2]))
        for file, text in texts(root).items()
        for kind, pattern in OURS.items()
        for match in re.finditer(pattern, text, re.MULTILINE)
    ]


def wrong(root: Path) -> list[tuple[str, str, str, str]]:
    """Those that are not."""
    config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["repository"]
    slug, branch = config["url"].removeprefix("https://github.com/"), config["branch"]
    return [place for place in found(root) if place[2] != slug or place[3] not in ("", branch)]


def test_all_addresses_are_the_config_s():
    assert wrong(ROOT) == []
    kinds = [(file, kind) for file, kind, *_ in found(ROOT)]
    assert {kind for _, kind in kinds} == set(OURS)
    for path in NOTEBOOKS:
        assert kinds.count((f"notebooks/{path.name}", "badge")) == 1
        assert kinds.count((f"notebooks/{path.name}", "installation")) >= 1


def test_the_command_is_given_every_file_that_names_the_address():
    folders = ("book", "notebooks", "vit_tutorial", "tests", "benchmarks", ".github", ".ci")
    files = [*ROOT.glob("*"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    address = re.compile(rf"\bgit\w+(\.com)?/{SLUG}\b".encode())
    naming = {path for path in files if path.is_file() and address.search(path.read_bytes())}
    assert len(naming) > len(NOTEBOOKS)
    assert naming <= set(places(ROOT))


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A copy of the files that the command is given, with a few lines that look alike and are not ours."""
    for path in places(ROOT):
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    with (tmp_path / "README.md").open("a", encoding="utf-8") as readme:
        readme.write(
            f"\nhttps://github.com/{SLUG}.git\nAt https://github.com/{SLUG}.\n"
            f"https://github.com/{SLUG}-extras https://github.com/{SLUG}.github.io https://github.com/my-{SLUG}\n"
            "https://github.com/huggingface/pytorch-image-models ~/.cache/vit-tutorial\n"
            "https://colab.research.google.com/github/other/repo/blob/main/lesson.ipynb\n"
        )
    return tmp_path


def run_command(checkout: Path, new: str, old: str = "") -> None:
    """What CONTRIBUTING.md says, with OWNER/REPO replaced by ``new``, and its FROM by ``old`` where that is given."""
    command = COMMAND.search((checkout / "CONTRIBUTING.md").read_text(encoding="utf-8"))[1]
    command = command.replace("TO=OWNER/REPO", f"TO={new}")
    command = re.sub(r"FROM=\S+", f"FROM={old}", command) if old else command
    done = subprocess.run(["bash", "-c", command], cwd=checkout, capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""


needs_perl = pytest.mark.skipif(shutil.which("perl") is None, reason="there is no perl here")


@needs_perl
def test_the_command_changes_every_place_and_nothing_else(checkout):
    before = texts(checkout)
    run_command(checkout, "new-owner/new.repo")
    after = texts(checkout)
    assert wrong(checkout) == []
    assert {slug for _, _, slug, _ in found(checkout)} == {"new-owner/new.repo"}
    assert len(found(checkout)) == len(found(ROOT))
    lookalikes = (f"{SLUG}-extras ", f"{SLUG}.github.io ", f"/my-{SLUG}\n")
    for name, text in after.items():
        kept = sum(text.count(lookalike) for lookalike in lookalikes)
        assert text.count(SLUG) == kept, name
        assert text.count("new-owner/new.repo") == before[name].count(SLUG) - kept, name
        assert text.replace("new-owner/new.repo", SLUG) == before[name], name
    for line in ("new.repo.git\n", "new.repo.\n", *lookalikes, "/other/repo/blob/main/lesson", "cache/vit-tutorial\n"):
        assert line in after["README.md"]
    for path in NOTEBOOKS:
        expected = badge(path.name).replace(SLUG, "new-owner/new.repo")
        assert expected in after["README.md"]
        assert expected in after[f"notebooks/{path.name}"]

    run_command(checkout, SLUG)  # as CONTRIBUTING.md says now
    assert texts(checkout) == before


@needs_perl
def test_the_command_changes_the_branch(checkout):
    branch = REPOSITORY["branch"]
    config = checkout / "_config.yml"
    config.write_text(config.read_text(encoding="utf-8").replace(f"  branch: {branch}\n", "  branch: trunk\n"))
    badges = len([place for place in found(checkout) if place[1] == "badge"])
    assert len(wrong(checkout)) == badges > len(NOTEBOOKS)
    run_command(checkout, f"{SLUG}/blob/trunk", f"{SLUG}/blob/{branch}")
    assert wrong(checkout) == []


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("README.md", "badge"),
        ("README.md", "clone"),
        ("notebooks/03_attention.ipynb", "badge"),
        ("notebooks/03_attention.ipynb", "installation"),
        ("pyproject.toml", "metadata"),
        ("CITATION.cff", "metadata"),
        ("book/running.md", "installation"),
        ("book/teaching.md", "readme"),
        ("CONTRIBUTING.md", "command"),
    ],
)
def test_a_forgotten_address_is_found(checkout, file, kind):
    path = checkout / file
    text = path.read_text(encoding="utf-8")
    match = re.search(OURS[kind], text, re.MULTILINE)
    path.write_text(text[: match.start(1)] + "old/name" + text[match.end(1) :], encoding="utf-8")
    assert [place[:3] for place in wrong(checkout)] == [(file, kind, "old/name")]
