"""The colours of the book's pages, as custom properties: those of ``vit_tutorial/plots/colours.py`` and no others.

``--query`` is what figures paint queries with, ``--query-ink`` what letters in this colour are. In the dark theme
letters are lighter, and so is all of attention's indigo. ``custom.css`` and the live figures' style sheets use them.
"""

from pathlib import Path

from vit_tutorial.plots.colours import COLOURS, INKS


def sheet() -> str:
    """The style sheet: a property for each thing and for its letters, and the coloured words of the text."""
    light, dark, words = {}, {}, {}
    for thing, colour in COLOURS.items():
        name, (on_white, on_black) = f"--{thing.replace(' ', '-')}", INKS.get(colour, (colour, colour))
        light |= {name: colour, f"{name}-ink": on_white}
        dark[f"{name}-ink"] = on_black
        words[colour] = f"var({name}-ink) !important"  # a notebook gives the word its colour in place
    dark["--attention"] = dark["--attention-ink"]
    rules = {"html": light, 'html[data-theme="dark"]': dark}
    rules |= {f'.bd-content span[style*="{colour}"]': {"color": ink} for colour, ink in words.items()}
    return "\n".join(
        f"{selector} {{\n" + "".join(f"  {name}: {value};\n" for name, value in properties.items()) + "}\n"
        for selector, properties in rules.items()
    )


def write(app) -> None:
    """Before the pages are made, for Sphinx gives the address of a style sheet the hash of what's in it."""
    static = Path(app.outdir) / "_static"
    static.mkdir(parents=True, exist_ok=True)
    (static / "colours.css").write_text(sheet(), encoding="utf-8")


def setup(app):
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
