"""A real browser looks at a page: each check lists what is wrong with it, one line each.

Any Chromium or Chrome will do: one on the PATH, or that of the variable CHROMIUM. Nothing is downloaded. Pages come
from this machine, and no other host can be reached.
"""

import http.server
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pdf
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Error, Page, Playwright

SHIFT = 0.05  # of the window, over the whole page: more is felt
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
COLOUR_RULES = ["color-contrast", "link-in-text-block"]
WIDTH_RULES = ["target-size", "scrollable-region-focusable", "aria-hidden-focus", "button-name", "link-name"]
# Faults of the theme's markup, not of the book's: axe's rule, and the only elements for which it is forgiven.
FORGIVEN = {
    "label-content-name-mismatch": ".search-button__button",
    "region": "#pst-skip-link, #pst-back-to-top, .skip-link",
}


@dataclass(frozen=True)
class View:
    """A window, and the theme that the reader's system asks for."""

    width: int
    height: int
    theme: str


VIEWS = {
    f"{name}-{theme}": View(width, height, theme)
    for name, width, height in (("desktop", 1280, 900), ("phone", 390, 844))
    for theme in ("dark", "light")
}


@dataclass
class Visit:
    """A page that is open in a view, and what went wrong on the way."""

    page: Page
    view: View
    shifts: list[tuple[float, list[str]]] = field(default_factory=list)  # until the end was seen; pictures come later
    console: list[str] = field(default_factory=list)  # errors, warnings, what is missing, what another host is asked


# A visit -----------------------------------------------------------------------------------------------------------


class Pages(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        pass  # the browser has hung up


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """The address of a server of the folder."""
    server = Server(("127.0.0.1", 0), partial(Pages, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


# Before the page's own scripts: the words of the checks below, and what has to be counted from the beginning.
PRELUDE = """
window.visible = (e) => e.checkVisibility({visibilityProperty: true}) && e.getClientRects().length > 0;
window.shown = (selector) => [...document.querySelectorAll(selector)].filter(visible);
window.called = (e) => {
  const classes = (e.getAttribute?.('class') ?? '').trim().split(/\\s+/).filter(Boolean).slice(0, 2);
  const text = (e.getAttribute?.('src')?.split('/').pop() ?? e.textContent ?? '').trim().replace(/\\s+/g, ' ');
  return `<${[e.nodeName.toLowerCase(), ...classes].join('.')}> ${text.slice(0, 50)}`;
};
// A ring stands around what has the focus, around its form, or around the card that a link fills.
window.ringed = (e) => [[e], [e, '::after'], [e.closest('form') ?? e]].some((place) => {
  const style = getComputedStyle(...place);
  return (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== 'none';
});
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries())
    if (!entry.hadRecentInput && !entry.sources.every((s) => s.node?.parentElement?.closest('.bd-toc')))
      shifts.push([entry.value, entry.sources.map((s) => s.node ? called(s.node) : '?')]);
}).observe({type: 'layout-shift', buffered: true});
"""
TWO_FRAMES = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
COMPLETE = """async () => {
  const coming = () => shown('img').some((image) => !image.complete);
  for (let i = 0; i < 50 && coming(); i++) await new Promise((done) => setTimeout(done, 100));
}"""
# A reader scrolls to the end: pictures come when they are near.
SCROLL = """async () => {
  await document.fonts.ready;
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  for (let y = 0; y < document.documentElement.scrollHeight; y += innerHeight) {
    scrollTo({top: y, behavior: 'instant'});
    await frame();
  }
  for (const image of document.images) image.loading = 'eager';  // some were passed too fast
  scrollTo({top: 0, behavior: 'instant'});
  await new Promise((done) => setTimeout(done, 100));  // shifts are told a little later
}"""


def installed() -> str:
    """The browser to look with. Without one CI fails, and others go without these tests."""
    if path := pdf.installed():
        return path
    reason = "no Chromium or Chrome on the PATH; `apt install chromium` brings one, CHROMIUM=… names one"
    (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def launch(playwright: Playwright, executable: str) -> Browser:
    """The installed browser, which finds no host but this machine."""
    hosts = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    return playwright.chromium.launch(executable_path=executable, args=[hosts, "--no-sandbox", "--disable-gpu"])


@contextmanager
def visit(browser: Browser, url: str, view: View) -> Iterator[Visit]:
    """Open a page, scroll to its end and back, and wait until it is complete."""
    context = browser.new_context(
        viewport={"width": view.width, "height": view.height},
        color_scheme=view.theme,
        reduced_motion="reduce",
        is_mobile=view.width < 500,
        has_touch=view.width < 500,
    )
    context.add_init_script(PRELUDE)
    page = context.new_page()
    seen = Visit(page, view)

    def note(text: str, true: bool) -> None:
        if true:
            seen.console.append(text)

    page.on("console", lambda m: note(m.text, m.type in ("error", "warning")))
    page.on("pageerror", lambda error: note(str(error), True))
    page.on("response", lambda r: note(f"{r.status} {r.url}", r.status >= 400))
    page.on("request", lambda r: note(r.url, re.match(r"(http|ws)s?://(?!127\.0\.0\.1)", r.url) is not None))
    try:
        page.goto(url)
        page.evaluate(SCROLL)
        page.evaluate(COMPLETE)
        seen.shifts = page.evaluate("shifts")
        yield seen
    finally:
        context.close()


def turn(visit: Visit, theme: str, by_button: bool) -> Visit:
    """The same page in another theme, which the page's button turns on, or the reader's system."""
    page = visit.page
    for _ in range(3 if by_button else 0):
        page.evaluate("document.querySelector('button.theme-switch-button').click()")  # the focus stays
        if page.evaluate("document.documentElement.dataset.mode") == theme:
            break
    if not by_button:
        page.emulate_media(color_scheme=theme)
        page.evaluate(TWO_FRAMES)  # the page hears of it in the next
    page.evaluate(COMPLETE)
    return replace(visit, view=replace(visit.view, theme=theme))


# Checks ------------------------------------------------------------------------------------------------------------
# In the order in which they have to be made: the last ones press keys and open what was closed.


def shift(visit: Visit) -> list[str]:
    """Nothing moves while the page loads and is scrolled to its end, but the contents, which unfold by intent."""
    moved = [f"{value:.3f} {', '.join(nodes[:2])}" for value, nodes in sorted(visit.shifts, reverse=True)[:3]]
    total = sum(value for value, _ in visit.shifts)
    return [f"{total:.2f} of the window moved: {'; '.join(moved)}"] if total > SHIFT else []


def theme(visit: Visit) -> list[str]:
    """The page has the theme that was asked for, in its colours too; each kind of card has a colour of its own."""
    return visit.page.evaluate(
        """(wanted) => {
        const faults = [], [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/[\\d.]+/g).map(Number);
        if (document.documentElement.dataset.theme !== wanted)
          faults.push(`the theme is ${document.documentElement.dataset.theme}`);
        if ((r + g + b > 384) !== (wanted === 'light')) faults.push(`the page's colour is rgb(${r}, ${g}, ${b})`);
        for (const e of shown('article img'))
          if (getComputedStyle(e).filter !== 'none') faults.push(`a filter changes its colours: ${called(e)}`);
        for (const e of shown('article img[src*=".svg"]'))
          if (getComputedStyle(e).backgroundColor !== 'rgba(0, 0, 0, 0)') faults.push(`on a card: ${called(e)}`);
        const cards = ['exercise', 'predict', 'pitfall', 'takeaway', 'patient'].flatMap((kind) =>
          shown(`article .card-${kind}`).slice(0, 1).map((card) => getComputedStyle(card).borderLeftColor));
        if (new Set(cards).size < cards.length) faults.push(`cards of one colour: ${cards}`);
        return faults;
        }""",
        visit.view.theme,
    )


def overflow(visit: Visit) -> list[str]:
    """The page does not scroll sideways, whatever is open; what is too wide scrolls in its own box, and is not cut.

    Of a table that scrolls on a phone the first column stays; short code stays in one line.
    """
    return visit.page.evaluate(
        """() => {
        const closed = document.querySelectorAll('article details:not(.hide, [open])');
        for (const room of closed) room.open = true;
        const edge = document.documentElement.clientWidth, width = document.documentElement.scrollWidth, faults = [];
        if (width > edge + 1) faults.push(`the page is ${width} px wide in a window of ${edge} px`);
        const boxed = (e) => {
          for (let box = e; box && box.nodeName !== 'ARTICLE'; box = box.parentElement)
            if (/auto|scroll/.test(getComputedStyle(box).overflowX)) return true;
          return false;
        };
        for (const e of shown('article *, .prev-next-area *')) {
          if (e.closest('svg, math') !== e && e.closest('svg, math')) continue;
          if (e.getBoundingClientRect().right > edge + 1 && !boxed(e)) faults.push(`beyond the edge: ${called(e)}`);
          const cut = /hidden|clip/.test(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 1;
          if (cut && e.clientWidth > 1) faults.push(`cut off: ${called(e)}`);
        }
        for (const e of shown('article .whole'))
          if (e.getClientRects().length > 1) faults.push(`broken in two: ${called(e)}`);
        const boxes = 'article :is(.pst-scrollable-table-container, .text_html:has(table))';
        for (const box of innerWidth <= 600 ? shown(boxes) : []) {
          box.scrollLeft = box.scrollWidth;
          const [edge, first] = [box, box.querySelector('tr > *')].map((e) => e.getBoundingClientRect().left);
          if (first < edge - 1) faults.push(`its rows lose their names: ${called(box)}`);
          box.scrollLeft = 0;
        }
        for (const room of closed) room.open = false;
        return faults;
        }"""
    )


def letters(visit: Visit) -> list[str]:
    """Text can be read without a glass, in figures too."""
    return visit.page.evaluate(
        r"""async () => {
        const faults = new Set();
        const size = (e) => parseFloat(getComputedStyle(e).fontSize);
        const note = (px, least, e) => { if (px && px < least) faults.add(`${px.toFixed(1)} px: ${called(e)}`); };
        for (const e of shown('article *')) {
          const text = [...e.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim());
          const least = e.matches('section > p:not([class])') ? 16 : 11;
          if (text && !e.closest('math, svg, sup, .headerlink')) note(size(e), least, e);
        }
        for (const image of shown('article img[src*=".svg"]:not([src*="badge"])')) {
          const host = document.createElement('div');  // a shadow keeps the drawing's style sheet to itself
          host.style.cssText = `position: absolute; width: ${image.getBoundingClientRect().width}px`;
          document.body.append(host);
          host.attachShadow({mode: 'open'}).innerHTML = await (await fetch(image.currentSrc)).text();
          const drawing = host.shadowRoot.querySelector('svg');
          drawing.style.cssText = 'width: 100%; height: auto; max-width: none';
          for (const e of drawing.querySelectorAll('text')) {
            const {a, b} = e.getScreenCTM(), parts = [...e.querySelectorAll('tspan')];  // indices are smaller
            const largest = Math.max(...(parts.length ? parts : [e]).map(size));
            if (e.textContent.trim()) note(largest * Math.hypot(a, b), 8, e);
          }
          host.remove();
        }
        return [...faults];
        }"""
    )


def axe(visit: Visit, everywhere: bool = False) -> list[str]:
    """axe-core has nothing to say, but for what it says of the theme.

    A wide window is asked everything, in the dark what is of colours, and a phone what is of its width; or
    ``everywhere`` everything.
    """
    rules = COLOUR_RULES if visit.view.theme == "dark" else WIDTH_RULES
    everything, some = {"type": "tag", "values": AXE_TAGS}, {"type": "rule", "values": rules}
    options = {
        "runOnly": everything if everywhere or visit.view == VIEWS["desktop-light"] else some,
        "resultTypes": ["violations"],
        "preload": False,  # it would ask for style sheets again, some of them where they are not
    }
    violations = Axe().run(visit.page, options=options).response["violations"]
    found = [(violation["id"], node["target"][-1]) for violation in violations for node in violation["nodes"]]
    theirs = "([selector, forgiven]) => document.querySelector(selector).matches(forgiven)"
    return [
        f"{rule}: {target}"
        for rule, target in found
        if not (rule in FORGIVEN and visit.page.evaluate(theirs, [target, FORGIVEN[rule]]))
    ]


# From now on, whenever the Tab key has come up, the page notes where it has come; null at the end of the page.
NOTE_STOPS = """() => {
  window.stops = [];
  const stop = (e) => (e && e !== document.body ? [called(e), ringed(e)] : null);
  addEventListener('keyup', ({key}) => { if (key === 'Tab') stops.push(stop(document.activeElement)); }, true);
}"""
# What had the focus is gone, and the next stop is the first of the page.
TO_THE_TOP = """() => {
  const start = document.createElement('button');
  document.body.prepend(start);
  start.focus();
  start.remove();
}"""


def tab_order(visit: Visit) -> list[str]:
    """The Tab key goes down the page to its end, and each stop is seen; the first one skips to the text."""
    page, stops = visit.page, []
    if visit.view.theme == "dark":
        return []  # the same stops, in other colours
    page.evaluate(NOTE_STOPS)
    most = page.evaluate("document.querySelectorAll('a, button, input, summary, [tabindex], pre').length") + 50
    while None not in stops and len(stops) < most:
        for _ in range(20):
            page.keyboard.press("Tab")
        stops += page.evaluate("stops.splice(0)")
    faults = [] if None in stops else [f"no end after {len(stops)} stops"]
    faults += [f"a stop is not seen: {stop[0]}" for stop in stops if stop and not stop[1]]
    page.evaluate(TO_THE_TOP)
    for key in ("Tab", "Enter", "Tab"):
        page.keyboard.press(key)
    if not page.evaluate("document.activeElement.closest('main') !== null"):
        faults.append(f"the first stop leads to {page.evaluate('called(document.activeElement)')}")
    return faults


def solutions(visit: Visit) -> list[str]:
    """Solutions, hints and side rooms open by the mouse, show what they hold, and close by the keyboard."""
    faults = []
    if visit.view != VIEWS["desktop-light"]:
        return []  # the same rooms
    for room in visit.page.locator("article details:not(.hide)").all():
        summary = room.locator("> summary")
        room.evaluate("(e) => { while ((e = e.parentElement.closest('details'))) e.open = true; }")
        room.evaluate("(e) => { e.open = false; }")
        try:
            summary.click(timeout=2000, position={"x": 12, "y": 12})
            opened = room.locator("> :not(summary)").first.is_visible()
            summary.press("Enter")
        except Error as error:  # something lies above it
            opened = error.message
        if opened is not True or room.get_attribute("open") is not None:
            faults.append(f"does not open and close, {opened}: {summary.inner_text()}")
    return faults


def console(visit: Visit) -> list[str]:
    """No error, no warning, nothing that is missing, and no other host is asked for anything."""
    return visit.console


CHECKS: list[Callable[[Visit], list[str]]] = [shift, theme, overflow, letters, axe, tab_order, solutions, console]


def hits(page: Page, term: str) -> list[str]:
    """The files that the search page finds, the best first."""
    page.goto(f"{page.url.partition('?')[0]}?q={term}")
    page.wait_for_function("/found|did not match/.test(document.querySelector('.search-summary')?.textContent)")
    page.wait_for_load_state("networkidle")  # excerpts come from the pages themselves
    links = page.locator("#search-results li > a").all()
    return [re.split("[?#]", link.get_attribute("href"))[0] for link in links]
