"""Carry the repository's address from _config.yml to every other place that names it: `make links`.

The address stands in badges, in the set-up cells of the notebooks and in the package's metadata. It is changed in
_config.yml (`repository.url` and `repository.branch`) and nowhere else.
"""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
PLACES = ["README.md", "CONTRIBUTING.md", "CITATION.cff", "pyproject.toml", "notebooks/*.ipynb", "book/*.md"]

SLUG = r"[\w-]+/[\w.-]*[\w-]"  # OWNER/REPO
BADGE = re.compile(rf"(colab\.research\.google\.com/github/)({SLUG})/blob/(.+?)(/notebooks/\d\d_\w+\.ipynb)")
INSTALL = re.compile(rf"(vit-tutorial @ git\+https://github\.com/)({SLUG})")
METADATA = re.compile(rf'((?:Repository = |repository-code: )"https://github\.com/)({SLUG})')


def address(root: Path) -> tuple[str, str]:
    """OWNER/REPO and the branch, as _config.yml says."""
    repository = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["repository"]
    return repository["url"].removeprefix("https://github.com/").strip("/"), repository["branch"]


def files(root: Path) -> list[Path]:
    return [path for place in PLACES for path in sorted(root.glob(place))]


def own_slugs(texts: list[str]) -> set[str]:
    """The addresses that the texts take for this repository's: those in badges, set-up cells and metadata."""
    return {match[2] for text in texts for pattern in (BADGE, INSTALL, METADATA) for match in pattern.finditer(text)}


def rewrite(text: str, own: set[str], slug: str, branch: str) -> str:
    """``text`` with ``slug`` wherever it names one of ``own`` on GitHub, and badges on ``branch``."""
    names = "|".join(re.escape(name) for name in sorted(own, key=len, reverse=True))
    # Not a longer name that only begins alike; a full stop may end a sentence, and `.git` an address.
    text = re.sub(rf"(github\.com/|google\.com/github/)(?:{names})(?![\w-])(?!\.(?!git\b)\w)", rf"\g<1>{slug}", text)
    return BADGE.sub(lambda match: f"{match[1]}{match[2]}/blob/{branch}{match[4]}", text)


def outdated(root: Path) -> dict[Path, str]:
    """The files that name another address than _config.yml, and what each should read."""
    slug, branch = address(root)
    texts = {path: path.read_text(encoding="utf-8") for path in files(root)}
    own = own_slugs(list(texts.values()))
    fresh = {path: rewrite(text, own, slug, branch) for path, text in texts.items()}
    return {path: text for path, text in fresh.items() if text != texts[path]}


if __name__ == "__main__":
    changes = outdated(ROOT)
    for path, text in changes.items():
        path.write_text(text, encoding="utf-8")
        print("rewritten:", path.relative_to(ROOT))
    print(f"{'/'.join(address(ROOT))}: {len(changes)} files rewritten.")
