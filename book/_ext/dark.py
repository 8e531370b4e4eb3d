"""How the book draws its figures: lines and letters as SVG, images as PNG, and each a second time for the dark theme.

There ink turns light, paper goes, data keep their colours. ``book/build.py`` has the notebooks' kernels call
:func:`register` when they start. A figure's output then has its dark twin in its metadata, and
``book/_ext/pages.py`` shows the one that suits the page.
"""

import colorsys
import re
import struct
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO

import matplotlib
from IPython import get_ipython
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import Collection, LineCollection, PathCollection, QuadMesh
from matplotlib.colors import Colormap, LinearSegmentedColormap, same_color, to_rgba
from matplotlib.figure import Figure
from matplotlib.image import AxesImage, _ImageBase
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.text import Annotation, Text

from vit_tutorial.plots.colours import COLOURS, INKS

INK, PAPER, SHADED_PAPER = "#e6e6e6", "#121212", "#262626"  # the dark theme's text and page
DIM_INK = "#a6a6a6"  # of letters that are grey on paper
INDIGO = COLOURS["attention"]
LIGHT_INDIGO = INKS[INDIGO][1]
BLUE, LIGHT_BLUE = COLOURS["query"], "#3A93D0"  # lighter than on paper, and darker than the palette's sky blue
PIXELS_PER_INCH = 96  # of a page, where letters of 13 points are then as large as the text beside them
SHARPNESS = 2  # pixels of a PNG to one of the page
THIN = 0.75  # a fill with less alpha lets so much dark paper through that letters on it have to be light
HEAVY = 200_000  # letters of an SVG: above, a PNG is lighter
# Fonts of about the same width, since a reader's system may lack the one that the layout is made with.
LETTERS = {"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"], "svg.hashsalt": "book"}


def is_ink(colour) -> bool:
    """Whether a colour is black or a dark grey, so that it would be lost on dark paper."""
    red, green, blue, alpha = to_rgba(colour)
    return alpha > 0 and max(red, green, blue) < 0.45 and max(red, green, blue) - min(red, green, blue) < 0.08


def is_paper(colour) -> bool:
    """Whether a colour is white, or a grey that hardly differs from it."""
    red, green, blue, alpha = to_rgba(colour)
    return alpha > 0.25 and min(red, green, blue) > 0.9 and max(red, green, blue) - min(red, green, blue) < 0.03


def dark_paper(colour) -> str:
    """What white, or a pale grey on it, becomes."""
    return PAPER if min(to_rgba(colour)[:3]) > 0.985 else SHADED_PAPER


def is_light(colour) -> bool:
    """Whether a fill is light, and not white paper: lines on it stay dark."""
    return to_rgba(colour)[3] > 0.25 and min(to_rgba(colour)[:3]) > 0.5 and not is_paper(colour)


def lit(colour):
    """The colour that a fill, or a line on an image, gets on dark paper."""
    if is_ink(colour):
        return to_rgba(INK, to_rgba(colour)[3])
    return to_rgba(LIGHT_INDIGO, to_rgba(colour)[3]) if same_color(to_rgba(colour)[:3], INDIGO) else colour


def lit_letter(colour):
    """The colour that a letter gets on dark paper: of one of the book's colours, its lighter ink; grey stays grey."""
    dim = is_ink(colour) and min(to_rgba(colour)[:3]) > 0.3
    inks = (light for on_page, (_, light) in INKS.items() if same_color(to_rgba(colour)[:3], on_page))
    ink = next(inks, DIM_INK if dim else None)
    return to_rgba(ink, to_rgba(colour)[3]) if ink else lit(colour)


def lit_line(colour):
    """The colour that a line or a mark gets on dark paper: lighter if it is blue; of a pale grey, a dark one."""
    *channels, alpha = to_rgba(colour)
    pale = min(channels) > 0.6 and max(channels) < 0.95 and max(channels) - min(channels) < 0.03
    if pale:
        return (*[1.05 - channels[0]] * 3, alpha)
    return to_rgba(LIGHT_BLUE, alpha) if same_color(channels, BLUE) else lit(colour)


def dark_map(colours: Colormap) -> Colormap:
    """A colour map that begins at white paper, for dark paper: from there to as light a colour as the last was dark."""
    last = colours(1.0)
    hue, light, saturation = colorsys.rgb_to_hls(*last[:3])
    lightest = lit(last) if same_color(last, INDIGO) else colorsys.hls_to_rgb(hue, 1 - light, saturation)
    return LinearSegmentedColormap.from_list("dark", [SHADED_PAPER, lightest])


def lies_on(text: Text, painted: list[Artist]) -> bool:
    """Whether the middle of a text stands on something painted, so that the text stays as it is."""
    box = Text.get_window_extent(text)  # an annotation's own has its arrow in it
    middle = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2

    def holds(artist: Artist) -> bool:
        if isinstance(artist, Patch):
            return artist.get_transform().transform_path(artist.get_path()).contains_point(middle)
        return artist.get_window_extent().contains(*middle)

    return any(holds(artist) for artist in painted)


def _painted(fig: Figure, papers: list[Patch]) -> list[Artist]:
    """Images, meshes and filled patches, without the paper and what is laid on it thinly."""
    return [
        artist
        for artist in fig.findobj(lambda a: a.get_visible() and a not in papers)
        if isinstance(artist, AxesImage | QuadMesh)
        or (
            isinstance(artist, Patch)
            and not isinstance(artist, FancyArrowPatch)
            and artist.get_fill()
            and to_rgba(artist.get_facecolor())[3] > THIN
            and not is_paper(artist.get_facecolor())
        )
    ]


def _recolour(image: AxesImage, colours: Colormap) -> None:
    """Give an image another colour map. Its bar follows, and would forget where its ticks are and what they say."""
    bar = image.colorbar
    ticks = bar and (bar.locator, bar.formatter)
    image.set_cmap(colours)
    if bar:
        bar.locator, bar.formatter = ticks


@contextmanager
def darkened(fig: Figure) -> Iterator[None]:
    """Within this context the figure is drawn for dark paper, which shows through."""
    fig.canvas.draw()
    undo = []

    def swap(artist: Artist, name: str, colour) -> None:
        undo.append((getattr(artist, f"set_{name}"), getattr(artist, f"get_{name}")()))
        getattr(artist, f"set_{name}")(colour)

    every_axes = fig.findobj(Axes)  # with those inside others, which fig.axes leaves out
    papers = [fig.patch, *(ax.patch for ax in every_axes)]
    painted = _painted(fig, papers)
    # Through a thin map its image shows, through the bar beside it only paper: that stays white.
    bars = [ax for ax in every_axes if hasattr(ax, "_colorbar")]
    for patch in papers:
        if patch not in [bar.patch for bar in bars]:
            swap(patch, "facecolor", "none")
    maps = [image for image in fig.findobj(AxesImage) if image.get_array().ndim == 2]
    maps = [image for image in maps if is_paper(image.get_cmap()(0.0))]
    for image in maps:
        undo.append((_recolour, image, image.get_cmap()))
        _recolour(image, dark_map(image.get_cmap()))
    on_maps = {image.axes for image in maps}
    on_images = {image.axes for image in fig.findobj(AxesImage)}

    def light_up(artist: Artist, *names: str, lit=lit) -> None:
        colours = [getattr(artist, f"get_{name}")() for name in names]  # all at once: a mark may follow its line
        for name, colour in zip(names, colours, strict=True):
            if not (isinstance(colour, str) and colour in ("none", "auto")) and lit(colour) is not colour:
                swap(artist, name, lit(colour))

    arrows = [text.arrow_patch for text in fig.findobj(Annotation) if text.arrow_patch]
    # The key to an image's colours has to keep them, and so do the arrows at a bar's ends.
    keys = [patch for legend in fig.findobj(Legend) for patch in legend.get_patches()] * bool(fig.findobj(AxesImage))
    keys += [patch for bar in bars for patch in bar.patches if patch.get_fill()]
    for artist in [artist for artist in fig.findobj() if artist not in keys] + arrows:
        if isinstance(artist, Text) and not lies_on(artist, painted):
            light_up(artist, "color", lit=lit_letter)
        elif isinstance(artist, Line2D):
            mark = artist.get_markerfacecolor()
            in_line = lit if artist.axes in on_images - on_maps else lit_line
            light_up(artist, "color", "markeredgecolor", "markerfacecolor", lit=in_line)
            if artist.axes in on_maps and is_paper(artist.get_color()):  # the lines between a map's cells
                swap(artist, "color", dark_paper(artist.get_color()))
            if mark != "none" and is_paper(mark):
                swap(artist, "markerfacecolor", dark_paper(mark))
        elif isinstance(artist, Patch) and artist not in papers:
            filled, on_light = artist.get_fill(), artist.get_fill() and is_light(artist.get_facecolor())
            for name in ("edgecolor", "facecolor") if filled else ("edgecolor",):
                colour = getattr(artist, f"get_{name}")()
                if filled and is_paper(colour):
                    swap(artist, name, dark_paper(colour))
                elif name == "facecolor" or not on_light:
                    light_up(artist, name)
        elif isinstance(artist, Collection) and artist.get_array() is None:
            for name in ("edgecolor", "facecolor"):
                colours = list(getattr(artist, f"get_{name}")())
                if colours and not (name == "facecolor" and isinstance(artist, LineCollection)):
                    marks = isinstance(artist, LineCollection | PathCollection) and artist.axes not in on_images
                    swap(artist, name, [(lit_line if marks else lit)(colour) for colour in colours])
    try:
        yield
    finally:
        for put, *back in reversed(undo):
            put(*back)


def svg_of(fig: Figure, **options) -> tuple[str, tuple[float, float]]:
    """The figure with lines as lines and letters as text, and its size in inches."""
    file, nothing = BytesIO(), dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context(LETTERS):
        fig.savefig(file, format="svg", bbox_inches="tight", metadata=nothing, **options)
    svg = file.getvalue().decode()
    svg = svg[svg.index("<svg") :].replace('pt"', '"', 2)  # a point is a unit: the page says how large that is
    width, height = (float(re.search(rf'\b{side}="([\d.]+)"', svg)[1]) / 72 for side in ("width", "height"))
    return svg, (width, height)


def png_of(fig: Figure, **options) -> tuple[str, tuple[float, float]]:
    """The figure in base64, sharp on a screen whose pixels are finer than the page's, and its size in inches."""
    file, dpi = BytesIO(), SHARPNESS * PIXELS_PER_INCH
    fig.savefig(file, format="png", bbox_inches="tight", dpi=dpi, **options)
    width, height = struct.unpack(">II", file.getvalue()[16:24])
    return b64encode(file.getvalue()).decode(), (width / dpi, height / dpi)


def is_drawn(fig: Figure) -> bool:
    """Whether a figure has lines and letters only, and no image or mesh of pixels."""
    return not fig.findobj(lambda artist: isinstance(artist, _ImageBase | QuadMesh) and artist.get_visible())


def both(fig: Figure) -> tuple[dict, dict] | None:
    """A figure's output, with its dark twin and its size in a page's pixels as metadata; None for an empty figure."""
    if not fig.axes and not fig.lines:
        return None
    fig.canvas.draw()
    layout = fig.get_layout_engine()
    fig.set_layout_engine("none")  # or each further drawing would move the panels a little, and the twins differ
    kind, draw = ("image/svg+xml", svg_of) if is_drawn(fig) else ("image/png", png_of)
    light, inches = draw(fig)
    if draw is svg_of and len(light) > HEAVY:
        kind, draw = "image/png", png_of
        light, inches = draw(fig)
    with darkened(fig):
        dark, _ = draw(fig, facecolor="none")
    fig.set_layout_engine(layout or "none")  # None would ask for the default one
    width, height = (round(side * PIXELS_PER_INCH) for side in inches)
    return {kind: light}, {kind: {"dark": dark, "width": width, "height": height}}


def register() -> None:
    """From now on, every figure that the notebook shows is drawn twice, and not by the notebook itself."""
    shell = get_ipython()
    shell.config.InlineBackend.figure_formats = set()
    shell.display_formatter.mimebundle_formatter.for_type(Figure, both)
