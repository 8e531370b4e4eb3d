"""One drawing of the whole model. Each chapter opens with it, its own part highlighted.

``python -m vit_tutorial.plots.diagram > book/_static/model.svg`` writes the copy that the book's cover
and the README show.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vit_tutorial.plots.colours import COLOURS, INKS, PALETTE
from vit_tutorial.validate import checked

PARTS = ("patches", "positions", "attention", "encoder", "model")

# A flower of 12×12 pixels, cut into 3×3 patches of 4×4.
FLOWER = [
    "YY...rr.....",
    "YY..rRRr.ww.",
    "Y..rRRRRrwww",
    "..rRRooRRr..",
    "..rRRooRRr..",
    "...rRRRRr...",
    "....rRRr....",
    ".....gg.....",
    ".gg..gg..gg.",
    ".ggggggggggg",
    "eeeeeggeeeee",
    "eeeeeeeeeeee",
]
PIXELS = {
    ".": "#BFE0F5", "Y": "#F7C948", "w": "#FDFDFE", "r": "#D98BB5", "R": "#C2588F",
    "o": "#E69F00", "g": "#009E73", "e": "#A67C52",
}  # fmt: skip
PATCH, GRID = 4, 3
BLUE, SKY = PALETTE[0], PALETTE[5]
WIDTH, HEIGHT, FONT_SIZE = 480, 634, 15
FIRST, PITCH = 147, 32.5  # middle of the class token, and from one token to the next
MARK, MARK_INK = 20, INKS[PALETTE[4]][0]  # height and fill of a mark
PLACES = {  # where a mark may sit, as middles; a block has two norms
    "cut": [(145, 36)],
    "projection": [(174, 115)],
    "class token": [(121, 231)],
    "class position": [(120, 261)],
    "norm": [(186, 343), (186, 437)],
    "attention": [(186, 385)],
    "heads": [(380, 310)],
    "scale": [(448, 468)],
    "softmax": [(446, 401)],
    "glue": [(448, 498)],
    "dropout": [(87, 385), (87, 479)],
    "MLP": [(186, 479)],
    "last norm": [(207, 553)],
    "head": [(285, 553)],
    "scores": [(324, 553)],
}


@dataclass(frozen=True, repr=False)
class Diagram:
    """An SVG picture that notebooks show by themselves; its description where they can't, and in a terminal."""

    svg: str

    def __repr__(self) -> str:
        return re.search(r"<desc>(.*?)</desc>", self.svg)[1]

    def _repr_svg_(self) -> str:
        return self.svg


def _rgb(colour: str) -> list[int]:
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


def _hex(rgb: Sequence[int | float]) -> str:
    return "#" + "".join(f"{round(value):02X}" for value in rgb)


def tint(colour: str, fraction: float = 0.3) -> str:
    """``fraction`` of the colour, the rest white."""
    return _hex([255 - fraction * (255 - value) for value in _rgb(colour)])


def _grey(colour: str) -> str:
    """A colour in a part that is not highlighted: a pale grey of the same lightness."""
    red, green, blue = _rgb(colour)
    return tint(_hex([0.3 * red + 0.6 * green + 0.1 * blue] * 3), 0.7)


@dataclass(frozen=True)
class Pen:
    """Draws one part; ``quiet`` takes the colour out of everything it draws."""

    quiet: bool = False
    strong: bool = False

    def fill(self, colour: str) -> str:
        return _grey(colour) if self.quiet else colour

    @property
    def ink(self) -> str:
        return "#6B6B6B" if self.quiet else "#1F1F1F"

    def rect(self, x, y, w, h, colour, *, line="none", width=1.0, r=0.0) -> str:
        return (
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="{r:g}" '
            f'fill="{self.fill(colour)}" stroke="{line}" stroke-width="{width:g}"/>'
        )

    def text(self, x, y, words, *, anchor="start", bold=False, colour="") -> str:
        style = ' font-weight="700"' * bold
        return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour or self.ink}"{style}>{words}</text>'

    def box(self, x, y, w, h, words, colour, *, line="", width=1.2) -> str:
        frame = self.rect(x, y, w, h, tint(colour), line=line or self.fill(colour), width=width, r=6)
        return frame + self.text(x + w / 2, y + h / 2 + 5, words, anchor="middle")

    def line(self, *points, width=1.6, colour="", opacity=1.0) -> str:
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        return (
            f'<polyline points="{path}" fill="none" stroke="{colour or self.ink}" '
            f'stroke-width="{width:g}" stroke-linejoin="round" stroke-opacity="{opacity:g}"/>'
        )

    def arrow(self, *points) -> str:
        """A line whose head points along its last stretch."""
        (x0, y0), (x, y) = points[-2:]
        length = math.hypot(x - x0, y - y0)
        dx, dy = (x - x0) / length, (y - y0) / length
        neck = (x - 6 * dx, y - 6 * dy)
        wing = [(neck[0] + 4 * side * dy, neck[1] - 4 * side * dx) for side in (1, -1)]
        head = " ".join(f"{px:g},{py:g}" for px, py in [(x, y), *wing])
        return self.line(*points[:-1], neck) + f'<polygon points="{head}" fill="{self.ink}"/>'

    def panel(self, x, y, w, h, number, words) -> str:
        """The frame of a part, with its chapter's number and name."""
        line, width = (BLUE, 3) if self.strong else ("#C9C9C9", 1)
        badge = "#7A7A7A" if self.quiet else BLUE
        return (
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="10" '
            f'fill="{"#EAF3FA" if self.strong else "#F8F8F8"}" stroke="{line}" stroke-width="{width}"/>'
            f'<circle cx="{x + 20}" cy="{y + 20}" r="11" fill="{badge}"/>'
            + self.text(x + 20, y + 25, number, anchor="middle", bold=True, colour="#FFFFFF")
            + self.text(x + 37, y + 25, words, bold=True, colour=BLUE if self.strong else "")
        )

    def frame(self, x, y, w, h, colour="#8C8C8C", width=0.8) -> str:
        return (
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" fill="none" '
            f'stroke="{colour}" stroke-width="{width:g}"/>'
        )

    def mark(self, x, y, words) -> str:
        """A small square, so that it differs from a chapter's round badge by more than its colour."""
        width = MARK + 6 * (len(str(words)) - 1)
        square = self.rect(x - width / 2, y - MARK / 2, width, MARK, MARK_INK, line="#FFFFFF", r=4)
        return square + (
            f'<text x="{x:g}" y="{y + 5:g}" text-anchor="middle" fill="#FFFFFF" font-weight="700" '
            f'font-size="14">{words}</text>'
        )

    def token(self, middle, y, cells, w=22.0, h=7.0) -> str:
        """A column of numbers, drawn as cells."""
        x = middle - w / 2
        column = [self.rect(x, y + i * h, w, h, cell, line="#FFFFFF", width=0.8) for i, cell in enumerate(cells)]
        return "".join(column) + self.frame(x, y, w, h * len(cells))


def _patches() -> list[list[str]]:
    """The pixels of each patch, the grid row by row."""
    rows = [[PIXELS[letter] for letter in line] for line in FLOWER]
    corners = [(gy * PATCH, gx * PATCH) for gy in range(GRID) for gx in range(GRID)]
    return [[rows[y + i][x + j] for i in range(PATCH) for j in range(PATCH)] for y, x in corners]


def _tokens() -> list[list[str]]:
    """The class token, and for each patch one cell per row of pixels: their mean colour."""
    tokens = [[COLOURS["class token"], "#F3CF80", "#C98A00", "#F0BF52"]]
    for pixels in _patches():
        rows = [pixels[i : i + PATCH] for i in range(0, len(pixels), PATCH)]
        tokens.append([_hex([sum(channel) / PATCH for channel in zip(*map(_rgb, row), strict=True)]) for row in rows])
    return tokens


def _weights() -> list[list[float]]:
    """Attention between the tokens as drawn: softmax of the likeness of their colours."""
    flat = [[value / 255 for cell in token for value in _rgb(cell)] for token in _tokens()]
    scores = [[-2 * math.dist(q, k) ** 2 for k in flat] for q in flat]
    return [[math.exp(score) / sum(map(math.exp, row)) for score in row] for row in scores]


def _draw_patches(pen: Pen, x: int, y: int) -> str:
    out = [pen.panel(x, y, 460, 172, 1, "patches")]
    for i, pixels in enumerate(_patches()):
        left, top = x + 14 + i % GRID * 35, y + 38 + i // GRID * 35
        column = FIRST + PITCH * (i + 1)
        for j, pixel in enumerate(pixels):
            out.append(pen.rect(left + j % PATCH * 8, top + j // PATCH * 8, 8.2, 8.2, pixel))
            out.append(pen.rect(column - 7, y + 14 + j * 4, 14, 4.5 if j < 15 else 4, pixel))
        out.append(pen.frame(column - 7, y + 14, 14, 64))
        out.append(pen.arrow((column, y + 80), (column, y + 91)) + pen.arrow((column, y + 118), (column, y + 129)))
        out.append(pen.token(column, y + 132, _tokens()[i + 1]))
    out.append(pen.box(x + 148, y + 92, 304, 26, "linear projection, c·ph·pw → d", COLOURS["projection"]))
    out.append(pen.arrow((x + 120, y + 46), (x + 150, y + 46)))
    out.append(pen.text(x + 14, y + 159, "image"))
    out.append(pen.text(x + 150, y + 159, "tokens", anchor="end"))
    return "".join(out)


def _draw_positions(pen: Pen, x: int, y: int) -> str:
    out = [pen.panel(x, y, 460, 86, 2, "positions")]
    for i, token in enumerate(_tokens()):
        centre = FIRST + PITCH * i
        out.append(pen.token(centre, y + 10, token))
        out.append(pen.line((centre - 4, y + 47), (centre + 4, y + 47)) + pen.line((centre, y + 43), (centre, y + 51)))
        out.append(pen.rect(centre - 13, y + 55, 26, 21, tint(COLOURS["positions"], 0.45), r=6))
        out.append(pen.text(centre, y + 71, i, anchor="middle"))
    out.append(pen.text(x + 14, y + 48, "class token"))
    out.append(pen.text(x + 14, y + 70, "+ position"))
    return "".join(out)


def _draw_encoder(pen: Pen, x: int, y: int, attention: Pen) -> str:
    stacked = "".join(
        f'<rect x="{x + d}" y="{y + d}" width="204" height="230" rx="10" fill="#F1F1F1" stroke="#C9C9C9"/>'
        for d in (10, 5)
    )
    out = [stacked, pen.panel(x, y, 204, 230, 4, "encoder"), pen.text(x + 192, y + 25, "× depth", anchor="end")]
    stream, left, right = x + 34, x + 66, x + 190
    out.append(pen.line((stream, y + 36), (stream, y + 229), width=5, colour=pen.fill(BLUE)))
    named = BLUE if attention.strong else ""
    for top, words, line in ((y + 40, "attention", named), (y + 134, "MLP", "")):
        out.append(pen.arrow((stream, top + 13), (left - 1, top + 13)))
        out.append(pen.box(left, top, right - left, 26, "norm", COLOURS["norm"]))
        out.append(pen.arrow((left + 62, top + 26), (left + 62, top + 39)))
        box = attention if named and line else pen
        out.append(
            box.box(
                left, top + 40, right - left, 30, words, COLOURS[words.lower()], line=line, width=3 if line else 1.2
            )
        )
        out.append(pen.arrow((left, top + 55), (stream + 11, top + 55)))
        out.append(
            f'<circle cx="{stream}" cy="{top + 55}" r="10" fill="#FFFFFF" stroke="{pen.ink}" stroke-width="1.6"/>'
        )
        out.append(pen.line((stream - 5, top + 55), (stream + 5, top + 55)))
        out.append(pen.line((stream, top + 50), (stream, top + 60)))
    return "".join(out)


def _draw_attention(pen: Pen, x: int, y: int) -> str:
    out = [pen.panel(x, y, 226, 230, 3, "attention"), pen.text(x + 214, y + 25, "h heads", anchor="end")]
    tokens, weights, query = _tokens(), _weights(), 5
    middle = x + 24.5 + 19.7 * query
    for i, (token, weight) in enumerate(zip(tokens, weights[query], strict=True)):
        centre = x + 24.5 + 19.7 * i
        colour = pen.fill(COLOURS["attention"])
        out.append(pen.line((centre, y + 56), (middle, y + 87), width=0.8 + 14 * weight, colour=colour, opacity=0.75))
        out.append(pen.token(centre, y + 36, token, w=15, h=5))
    out.append(pen.token(middle, y + 87, tokens[query], w=15, h=5))
    for shift in (8, 4, 0):  # one matrix for each head
        out.append(pen.rect(x + 12.5 + shift, y + 118.5 - shift, 102.4, 102.4, "#FFFFFF", line="#A8A8A8"))
    top = max(map(max, weights))
    for i, row in enumerate(weights):
        for j, weight in enumerate(row):
            shade = tint(COLOURS["attention"], 0.08 + 0.92 * weight / top)
            out.append(pen.rect(x + 14 + 10 * j, y + 120 + 10 * i, 9.4, 9.4, shade))
    row = pen.ink if pen.quiet else COLOURS["query"]
    out.append(pen.frame(x + 12.5, y + 118.5 + 10 * query, 102.4, 12.4, row, 2.4))
    for i, words in enumerate(("softmax of", "q kᵀ / √hd", "(n × n)", "times v")):
        out.append(pen.text(x + 132, y + 138 + 24 * i, words))
    return "".join(out)


def _draw_model(pen: Pen, x: int, y: int) -> str:
    out = [pen.panel(x, y, 460, 86, 5, "model")]
    out.append(pen.text(x + 14, y + 54, "class token"))
    out.append(pen.text(x + 14, y + 74, "to scores"))
    out.append(pen.token(FIRST, y + 29, _tokens()[0]))
    for left, words, colour in ((168, "norm", COLOURS["norm"]), (246, "head", COLOURS["projection"])):
        out.append(pen.arrow((x + left - 18, y + 43), (x + left - 1, y + 43)))
        out.append(pen.box(x + left, y + 28, 58, 30, words, colour))
    out.append(pen.arrow((x + 306, y + 43), (x + 322, y + 43)))
    for i, (name, length) in enumerate((("flower", 66), ("bird", 18), ("boat", 10))):
        out.append(pen.text(x + 378, y + 24 + 24 * i, name, anchor="end"))
        out.append(pen.rect(x + 384, y + 12 + 24 * i, length, 15, BLUE if i == 0 else SKY, r=3))
    return "".join(out)


@checked
def model_diagram(part: str | None = None, marks: Mapping[str, int] | None = None) -> Diagram:
    """The Vision Transformer from image to class scores, one part highlighted.

    Args:
        part: ``"patches"``, ``"positions"``, ``"attention"``, ``"encoder"`` or ``"model"``; None draws all alike.
        marks: numbers to set in small squares, by place, one of ``PLACES``.

    Raises:
        ValueError: if there is no such part or place.
    """
    marks = marks or {}
    if part is not None and part not in PARTS:
        raise ValueError(f"part must be one of {', '.join(PARTS)} or None; got {part!r}")
    if unknown := [place for place in marks if place not in PLACES]:
        raise ValueError(f"places must be among {', '.join(PLACES)}; got {', '.join(unknown)}")
    whole = part in (None, "model")
    pens = {name: Pen(quiet=not whole and name != part, strong=name == part) for name in PARTS}
    plain = Pen()
    top = (10, 192, 290, 538)
    desc = (
        "An image of a flower is cut into nine patches. Each patch is flattened and projected to a token. "
        "A class token is put in front, and a position is added to each. Blocks follow one another; each adds "
        "attention and then an MLP to the tokens, both after a norm. From the class token, a last norm and a "
        "linear head make a score for each class."
    )
    if marks:
        desc += f" Marked: {', '.join(f'{number} at the {place}' for place, number in marks.items())}."
    title = "The Vision Transformer, from image to class scores" + (f"; highlighted: {part}" if part else "")
    body = [
        f'<rect x="1" y="1" width="{WIDTH - 2}" height="{HEIGHT - 2}" rx="14" fill="#FFFFFF" '
        + (f'stroke="{BLUE}" stroke-width="2"/>' if part == "model" else 'stroke="none"/>'),
        _draw_patches(pens["patches"], 10, top[0]),
        _draw_positions(pens["positions"], 10, top[1]),
        _draw_encoder(pens["encoder"], 10, top[2], pens["attention"]),
        f'<polygon points="200,370 244,{top[2] + 8} 244,{top[2] + 222} 200,400" fill="{BLUE}" fill-opacity="0.12"/>',
        _draw_attention(pens["attention"], 244, top[2]),
        _draw_model(pens["model"], 10, top[3]),
        *(plain.arrow((44, start), (44, end)) for start, end in ((182, 192), (278, 290), (520, 538))),
        *(plain.mark(*middle, number) for place, number in marks.items() for middle in PLACES[place]),
    ]
    return Diagram(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" font-family="system-ui, \'Segoe UI\', Roboto, Helvetica, Arial, sans-serif" '
        f'font-size="{FONT_SIZE}" style="max-width:100%;height:auto"><title>{title}</title><desc>{desc}</desc>'
        + "".join(body)
        + "</svg>\n"
    )


if __name__ == "__main__":
    print(model_diagram().svg, end="")
