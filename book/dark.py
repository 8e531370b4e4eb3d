"""Every figure a second time, for the dark theme: ink turns light, paper goes, data keep their colours.

``book/build.py`` has the notebooks' kernels call :func:`register` when they start. A figure's output then has the
second PNG in its metadata, and ``book/_ext/figures.py`` shows the one that suits the page.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from IPython.core import pylabtools
from matplotlib.artist import Artist
from matplotlib.collections import Collection, LineCollection, QuadMesh
from matplotlib.colors import same_color, to_rgba
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch
from matplotlib.text import Annotation, Text

INK, PAPER, SHADED_PAPER = "#e6e6e6", "#121212", "#262626"  # the dark theme's text and page
INDIGO, LIGHT_INDIGO = "#332288", "#a99bea"  # attention's colour, and what the style sheet makes of it
KEY = "dark"  # in the metadata of an output


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
    """The colour that a line, a letter or a fill gets on dark paper."""
    if is_ink(colour):
        return to_rgba(INK, to_rgba(colour)[3])
    return to_rgba(LIGHT_INDIGO, to_rgba(colour)[3]) if same_color(to_rgba(colour)[:3], INDIGO) else colour


def lies_on(text: Text, painted: list[Artist]) -> bool:
    """Whether the middle of a text stands on something painted, so that the text stays as it is."""
    box = Text.get_window_extent(text)  # an annotation's own has its arrow in it
    middle = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2

    def holds(artist: Artist) -> bool:
        if isinstance(artist, Patch):
            return artist.get_transform().transform_path(artist.get_path()).contains_point(middle)
        return artist.get_window_extent().contains(*middle)

    return any(holds(artist) for artist in painted)


def _painted(fig: Figure) -> list[Artist]:
    """Images, meshes and filled patches, without the paper."""
    papers = {fig.patch, *(ax.patch for ax in fig.axes)}
    return [
        artist
        for artist in fig.findobj(lambda a: a.get_visible() and a not in papers)
        if isinstance(artist, AxesImage | QuadMesh)
        or (
            isinstance(artist, Patch)
            and not isinstance(artist, FancyArrowPatch)
            and artist.get_fill()
            and to_rgba(artist.get_facecolor())[3] > 0.25
            and not is_paper(artist.get_facecolor())
        )
    ]


@contextmanager
def darkened(fig: Figure) -> Iterator[None]:
    """Within this context the figure is drawn for dark paper, which shows through."""
    fig.canvas.draw()
    undo = []

    def swap(artist: Artist, name: str, colour) -> None:
        undo.append((artist, name, getattr(artist, f"get_{name}")()))
        getattr(artist, f"set_{name}")(colour)

    painted, papers = _painted(fig), [fig.patch, *(ax.patch for ax in fig.axes)]
    for patch in papers:
        swap(patch, "facecolor", "none")

    def light_up(artist: Artist, name: str) -> None:
        colour = getattr(artist, f"get_{name}")()
        if not (isinstance(colour, str) and colour in ("none", "auto")) and lit(colour) is not colour:
            swap(artist, name, lit(colour))

    arrows = [text.arrow_patch for text in fig.findobj(Annotation) if text.arrow_patch]
    # The key to an image's colours has to keep them.
    keys = [patch for legend in fig.findobj(Legend) for patch in legend.get_patches()] * bool(fig.findobj(AxesImage))
    for artist in [artist for artist in fig.findobj() if artist not in keys] + arrows:
        if isinstance(artist, Text) and not lies_on(artist, painted):
            light_up(artist, "color")
        elif isinstance(artist, Line2D):
            for name in ("color", "markeredgecolor", "markerfacecolor"):
                light_up(artist, name)
            if artist.get_markerfacecolor() != "none" and is_paper(artist.get_markerfacecolor()):
                swap(artist, "markerfacecolor", dark_paper(artist.get_markerfacecolor()))
        elif isinstance(artist, Patch) and artist not in papers:
            if not (artist.get_fill() and is_light(artist.get_facecolor())):
                light_up(artist, "edgecolor")
            if artist.get_fill():
                light_up(artist, "facecolor")
                if is_paper(artist.get_facecolor()):
                    swap(artist, "facecolor", dark_paper(artist.get_facecolor()))
        elif isinstance(artist, Collection) and artist.get_array() is None:
            for name in ("edgecolor", "facecolor"):
                colours = list(getattr(artist, f"get_{name}")())
                if colours and not (name == "facecolor" and isinstance(artist, LineCollection)):
                    swap(artist, name, [lit(colour) for colour in colours])
    try:
        yield
    finally:
        for artist, name, colour in reversed(undo):
            getattr(artist, f"set_{name}")(colour)


def print_both(fig: Figure, fmt: str = "png", base64: bool = False, *, light, **options):
    """What IPython's own function ``light`` gives for a figure and, for a PNG, the dark one as metadata."""
    content = light(fig, fmt, base64=base64, **options)
    if content is None or fmt != "png" or not base64:
        return content
    with darkened(fig):
        return content, {KEY: light(fig, fmt, base64=True, **{**options, "facecolor": "none"})}


def register() -> None:
    """From now on, every figure that the notebook shows is drawn twice."""
    pylabtools.print_figure = partial(print_both, light=pylabtools.print_figure)
