"""A page's modules of ``book/_static/live`` as one script inside it: no library bundles them without Node.

A page from disk may load no module. An element with ``data-live="figures/patches"`` holds what stands there without
JavaScript, and asks for ``book/_static/live/figures/patches.mjs``: :func:`enliven` puts that into the page.

For the page "Draw a digit" there are also its models' files, a still picture, and the lines of the package that it
runs.
"""

import ast
import inspect
import json
import re
import textwrap
from pathlib import Path

from bs4 import BeautifulSoup

from vit_tutorial.attention import Attention, attention_weights, plain_attention
from vit_tutorial.encoder import Block
from vit_tutorial.live import INTERVENTIONS, MEASURED, as_script, draw_strokes, export_model
from vit_tutorial.model import ViT
from vit_tutorial.patches import LinearPatchEmbed, patchify
from vit_tutorial.plots import COLOURS
from vit_tutorial.runs import load_metrics, load_recorded
from vit_tutorial.training import to_input

MODULES = Path(__file__).parent.parent / "_static/live"
COMMENT = re.compile(r"^ *(?://[^\n]*|/\*\*.*?\*/)\n", re.MULTILINE | re.DOTALL)  # on lines of its own
IMPORT = re.compile(r'^import \{([^}]*)\} from "(\.[^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:const|class|(?:async )?function) )(.*)$", re.MULTILINE)


def bundle(entry: Path) -> str:
    """The module and all that it imports as one script element, each module in a function of its own, no comments.

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
        source = COMMENT.sub("", file.read_text(encoding="utf-8"))
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


# The page "Draw a digit" -------------------------------------------------------------------------------------------

FIRST = (4, 3)  # the digit that is there before anyone has drawn, and which way of writing it
LINES = {
    "patches": (patchify,),
    "tokens": (LinearPatchEmbed.forward, ViT.forward_features),
    "attention": (Attention.project, attention_weights, plain_attention, Attention.forward),
    "stream": (Block.forward,),
    "logits": (ViT.forward_head,),
    "shuffle": (INTERVENTIONS["shuffleTokens"], INTERVENTIONS["shufflePatches"]),
}


def examples() -> list[list[list]]:
    """For each digit, the ways in which we wrote it: lists of strokes."""
    text = (MODULES / "examples.mjs").read_text(encoding="utf-8")
    return json.loads(text[text.index("= [") + 2 :].rstrip().rstrip(";"))


def lines_of(function) -> str:
    """A function's source without its docstring and its checks."""
    source = textwrap.dedent(inspect.getsource(function))
    lines, (definition,) = source.splitlines(), ast.parse(source).body
    for node in definition.body:
        checks = isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise)
        said = isinstance(node, ast.Expr) and ("check" in ast.unparse(node) or isinstance(node.value, ast.Constant))
        if checks or said:
            lines[node.lineno - 1 : node.end_lineno] = [None] * (node.end_lineno - node.lineno + 1)
    return "\n".join(line for line in lines if line)


def substitutions() -> dict[str, str]:
    """What book/live.md has in double braces."""
    metrics = load_metrics("mnist")
    found = {f"live_lines_{name}": "\n\n".join(map(lines_of, functions)) for name, functions in LINES.items()}
    found = {name: f"```python\n{code}\n```" for name, code in found.items()}
    images = json.loads(MEASURED.read_text(encoding="utf-8"))["images"]["mnist"]
    return found | {"live_parameters": f"{metrics['parameters']:,}", "live_images": f"{images:,}"}


def still() -> str:
    """The page as a picture, for whoever has no JavaScript: a digit, its patches, ten bars."""
    digit, way = FIRST
    image = draw_strokes(examples()[digit][way])
    model, recipe = load_recorded("mnist")
    probabilities = model(to_input(image[None, None], recipe))[0].softmax(dim=-1).tolist()
    (ph, pw), scale, shapes = recipe.model.patch_size, 7, []
    for left, top, gap in ((2, 32, 0), (218, 20, 8)):
        for y, row in enumerate(image.tolist()):
            for x, grey in enumerate(row):
                place = left + x * scale + x // pw * gap, top + y * scale + y // ph * gap
                shapes.append(f'<path fill="rgb({grey},{grey},{grey})" d="M{place[0]} {place[1]}h7v7h-7z"/>')
        side, apart = (scale * pw, pw) if gap else (scale * len(image), len(image))
        steps = [i * (scale * pw + gap) for i in range(len(image) // apart)]
        corners = [(left + x, top + y) for y in steps for x in steps]  # a black edge is lost on a black page
        shapes += [f'<path fill="none" stroke="#7F7F7F" d="M{x} {y}h{side}v{side}h-{side}z"/>' for x, y in corners]
    for digit, probability in enumerate(probabilities):
        y = 22 + 24 * digit
        shapes.append(f'<text x="460" y="{y + 8}" font-size="22" fill="#7F7F7F">{digit}</text>')
        shapes.append(f'<path fill="{COLOURS["class token"]}" d="M482 {y - 6}h{2 + 116 * probability:.1f}v12H482z"/>')
    crisp = 'shape-rendering="crispEdges" font-family="sans-serif"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 602 260" {crisp}>{"".join(shapes)}</svg>\n'


def write_files(static: Path) -> None:
    """The still picture, and each model with what was measured of it, beside the modules in the built book."""
    found = json.loads(MEASURED.read_text(encoding="utf-8"))
    for run, rows in found["runs"].items():
        exported = export_model(*load_recorded(run)) | {"measured": rows, "images": found["images"][run]}
        (static / "live" / f"{run}.js").write_text(as_script(run, exported), encoding="utf-8")
    (static / "live/still.svg").write_text(still(), encoding="utf-8")


def give_substitutions(app, config):
    config.myst_substitutions = {**config.myst_substitutions, **substitutions()}


def setup(app):
    app.connect("config-inited", give_substitutions)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
