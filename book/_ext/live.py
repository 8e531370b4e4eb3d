"""What runs in a page: the modules of ``book/_static/live`` inside it, for a page from disk may not load any.

An element with ``data-live="figures/patches"`` holds what stands there without JavaScript, and asks for
``book/_static/live/figures/patches.mjs``. ``book/_ext/pages.py`` has :func:`enliven` put that into the page.
"""

import re
from pathlib import Path

from bs4 import BeautifulSoup

MODULES = Path(__file__).parent.parent / "_static/live"
IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:const|class|(?:async )?function) )(.*)$", re.MULTILINE)


def bundle(entry: Path) -> str:
    """The module and all that it imports as one script element, each module in a function of its own.

    What it can take is what our modules need: ``import { a, b } from "./c.mjs";`` and ``export`` before ``const``,
    ``class`` or ``function``.

    Raises:
        ValueError: if a module imports or exports otherwise, a name that the other one lacks, or itself.
    """
    sources = _in_order(entry.resolve(), {}, ())
    wanted = {file: set() for file in sources}
    for file, source in sources.items():
        for names, path in IMPORT.findall(source):
            wanted[(file.parent / path).resolve()] |= _words(names)
    parts = [_as_function(file, source, wanted[file]) for file, source in sources.items()]
    code = "\n".join(parts).replace("</script", r"<\/script").replace("<!--", r"<\!--")  # a page's parser stops there
    return f'<script type="module">\n{code}</script>'


def enliven(page: BeautifulSoup) -> None:
    """Give a page what its ``data-live`` elements ask for, once each, behind everything else."""
    for name in dict.fromkeys(element["data-live"] for element in page.select("[data-live]")):
        page.body.append(BeautifulSoup(bundle(MODULES / f"{name}.mjs"), "html.parser"))


def _in_order(file: Path, found: dict[Path, str], above: tuple[Path, ...]) -> dict[Path, str]:
    """The module's text behind the texts of those that it imports."""
    if file in above:
        raise ValueError(f"{file.name} imports itself, by way of {', '.join(path.name for path in above)}")
    if file not in found:
        source = file.read_text(encoding="utf-8")
        for _, path in IMPORT.findall(source):
            _in_order((file.parent / path).resolve(), found, (*above, file))
        found[file] = source
    return found


def _as_function(file: Path, source: str, wanted: set[str]) -> str:
    """``const $name = (() => { …; return { what others want }; })();``"""
    exported = _words(" ".join(EXPORT.findall(source)))
    if wanted - exported:
        raise ValueError(f"{file.name} does not export {', '.join(sorted(wanted - exported))}")
    code = IMPORT.sub(lambda found: f"const {{{found[1]}}} = {_name(file.parent / found[2])};", source)
    code = EXPORT.sub(r"\1", code)
    if other := re.search(r"^(?:import|export)\b.*", code, re.MULTILINE):
        raise ValueError(f"{file.name}: {other[0]!r} is no import or export that a page's script can be made of")
    return f"const {_name(file)} = (() => {{\n{code}\nreturn {{ {', '.join(sorted(wanted))} }};\n}})();\n"


def _name(file: Path) -> str:
    """What a module is called inside a bundle: no name in its own text begins with a dollar."""
    file = file.resolve()
    return "$" + re.sub(r"\W", "_", f"{file.parent.name}_{file.stem}")


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))
