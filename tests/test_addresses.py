"""Address and version are the same everywhere, and CONTRIBUTING.md's commands change them everywhere."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from notebook_rules import NOTEBOOKS, REPOSITORY, ROOT, SLUG, VERSION, badge

# The command, and the files that it is given.
COMMAND = re.compile(r"^```bash\n(FROM=\S+ TO=OWNER/REPO perl .*?' \\\n  (.*?)\n)```", re.DOTALL | re.MULTILINE)
FILES = COMMAND.search((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))[2].split()

RELEASE = re.compile(r"^```bash\n(FROM=\S+ TO=X\.Y\.Z perl .*?\n)```", re.DOTALL | re.MULTILINE)

NAME = r"([\w-]+/[\w.-]*[\w-])"  # OWNER/REPO
OURS = {  # places where an address is this repository's
    "badge": rf"google\.com/github/{NAME}/blob/(.+?)/notebooks/\d\d_\w+\.ipynb",
    "installation": rf"vit-tutorial @ git\+https://github\.com/{NAME}",
    "metadata": rf'(?:Repository = |Issues = |repository-code: )"https://github\.com/{NAME}',
    "clone": rf"git clone https://github\.com/{NAME}",
    "readme": rf"\[README\]\(https://github\.com/{NAME}#readme",
    "command": rf"^FROM={NAME} TO=",
}


VERSIONS = {  # places where a version is this package's
    "installation": r"vit-tutorial @ git\+https://github\.com/[\w./-]+(?:@v([\w.]*\w))?",
    "package": r'^version = "(.*)"$',
    "citation": r"^version: (.*)$",
    "command": r"^FROM=(\S+) TO=X",
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


# The version ------------------------------------------------------------------------------------------------------


def versions(root: Path) -> list[tuple[str, str, str | None]]:
    """Every version that should be the package's: the file, the kind of place and what stands there."""
    return [
        (file, kind, match[1])
        for file, text in texts(root).items()
        for kind, pattern in VERSIONS.items()
        for match in re.finditer(pattern, text, re.MULTILINE)
    ]


def test_set_up_cells_and_metadata_agree_on_the_version():
    assert {version for *_, version in versions(ROOT)} == {VERSION}
    assert {kind for _, kind, _ in versions(ROOT)} == set(VERSIONS)
    installing = [file for file, kind, _ in versions(ROOT) if kind == "installation"]
    assert sorted(installing) == sorted(
        [*(f"notebooks/{path.name}" for path in NOTEBOOKS), "README.md", "book/running.md"]
    )


@pytest.mark.parametrize("file", ["README.md", "notebooks/03_attention.ipynb"])
@pytest.mark.parametrize("other", ["", "@v0.0.9", "@v9.9.9rc1", f"@v{VERSION}1"])
def test_another_version_is_found(checkout, file, other):
    path = checkout / file
    path.write_text(path.read_text(encoding="utf-8").replace(f"{SLUG}@v{VERSION}", f"{SLUG}{other}"), encoding="utf-8")
    wrong = [place for place in versions(checkout) if place[2] != VERSION]
    assert wrong == [(file, "installation", other[2:] or None)]


@needs_perl
def test_a_release_sets_the_version_everywhere_and_nothing_else(checkout):
    lookalikes = f"version {VERSION}, timm=={VERSION}, git+https://github.com/{SLUG}@v{VERSION}1, @v{VERSION}rc1\n"
    with (checkout / "README.md").open("a", encoding="utf-8") as readme:
        readme.write(lookalikes)
    before = texts(checkout)
    command = RELEASE.search(before["CONTRIBUTING.md"])[1].replace("TO=X.Y.Z", "TO=12.3.4")
    done = subprocess.run(["bash", "-c", command], cwd=checkout, capture_output=True, text=True, check=True)
    assert done.stdout == done.stderr == ""
    after = texts(checkout)
    assert {version for *_, version in versions(checkout)} == {"12.3.4"}
    assert after["README.md"].endswith(lookalikes)
    for name, text in after.items():
        assert text.replace("12.3.4", VERSION) == before[name], name
