"""A real browser looks at a page: each check lists what is wrong with it, one line each.

Any Chromium or Chrome will do: one on the PATH, or that of the variable CHROMIUM. Nothing is downloaded. Pages come
from this machine, texts compressed as GitHub Pages does it, and no other host can be reached.
"""

import gzip
import http.server
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

import pdf
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Playwright

LIGHTEST = 1_500_000  # bytes that a page may ask for before anyone scrolls
SHIFT = 0.05  # of the window, over the whole page: more is felt
CARDS = ("exercise", "predict", "pitfall", "takeaway", "patient")
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
    """A window and a theme, which is chosen by the theme's button or asked for by the reader's system."""

    width: int
    height: int
    theme: str
    by_button: bool = False


VIEWS = {
    "desktop-light": View(1280, 900, "light", by_button=True),
    "desktop-dark": View(1280, 900, "dark", by_button=True),
    "phone-light": View(390, 844, "light"),
    "phone-dark": View(390, 844, "dark"),
}


@dataclass
class Visit:
    """A page that is open in a view, and what went wrong on the way."""

    page: Page
    view: View
    source: str = ""  # the Markdown behind the page
    loaded: list[tuple[int, str]] = field(default_factory=list)
    shifts: list[tuple[float, list[str]]] = field(default_factory=list)  # until the end was seen; pictures come later
    console: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)


# What serves the pages ---------------------------------------------------------------------------------------------


@cache
def compressed(path: str, changed: float) -> bytes:
    return gzip.compress(Path(path).read_bytes(), 6)


class Pages(http.server.SimpleHTTPRequestHandler):
    def do_GET(self):
        path = Path(self.translate_path(self.path))
        if not (path.is_file() and path.suffix in (".html", ".css", ".js", ".svg", ".json")):
            return super().do_GET()
        content = compressed(str(path), path.stat().st_mtime)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

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


# A visit -----------------------------------------------------------------------------------------------------------

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
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  for (let y = 0; y < document.documentElement.scrollHeight; y += innerHeight) {
    scrollTo({top: y, behavior: 'instant'});
    await frame();
  }
  for (const image of document.images) image.loading = 'eager';  // some were passed too fast
  scrollTo({top: 0, behavior: 'instant'});
  await new Promise((done) => setTimeout(done, 100));  // shifts are told a little later
}"""
# What came before anyone scrolled: bytes as they were sent, and the file's name.
LOADED = """() => [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
  .map((e) => [e.encodedBodySize, e.name.split('/').pop()])"""
READY = "async () => { await document.fonts.ready; }"


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


def choose_theme(browser: Browser, url: str, theme: str) -> dict:
    """What the browser remembers when the theme was chosen with the button, by a reader whose system says otherwise."""
    context = browser.new_context(color_scheme="light" if theme == "dark" else "dark")
    page = context.new_page()
    page.goto(url)
    for _ in range(3):
        page.locator("button.theme-switch-button:visible").first.click()
        if page.evaluate("document.documentElement.dataset.mode") == theme:
            break
    state = context.storage_state()
    context.close()
    return state


@contextmanager
def visit(
    browser: Browser, url: str, view: View, *, remembered: dict | None = None, source: str = ""
) -> Iterator[Visit]:
    """Open a page, scroll to its end and back, and wait until it is complete."""
    context = browser.new_context(
        viewport={"width": view.width, "height": view.height},
        color_scheme=view.theme if remembered is None else ("light" if view.theme == "dark" else "dark"),
        storage_state=remembered,
        reduced_motion="reduce",
        is_mobile=view.width < 500,
        has_touch=view.width < 500,
    )
    context.add_init_script(PRELUDE)
    page = context.new_page()
    seen = Visit(page, view, source)
    page.on("console", lambda m: seen.console.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: seen.console.append(str(error)))
    page.on("response", lambda r: seen.console.append(f"{r.status} {r.url}") if r.status >= 400 else None)
    page.on(
        "request", lambda r: seen.hosts.append(r.url) if re.match(r"(http|ws)s?://(?!127\.0\.0\.1)", r.url) else None
    )
    try:
        page.goto(url)
        page.evaluate(READY)
        seen.loaded = page.evaluate(LOADED)
        page.evaluate(SCROLL)
        page.evaluate(COMPLETE)
        seen.shifts = page.evaluate("shifts")
        yield seen
    finally:
        context.close()


def turn(visit: Visit, view: View) -> Visit:
    """The same page in a view of the same width, whose theme the button turns on, or the reader's system."""
    page = visit.page
    if view.by_button:
        for _ in range(3):
            page.evaluate("document.querySelector('button.theme-switch-button').click()")  # the focus stays
            if page.evaluate("document.documentElement.dataset.mode") == view.theme:
                break
    else:
        page.emulate_media(color_scheme=view.theme)
        page.evaluate(TWO_FRAMES)  # the page hears of it in the next
    page.evaluate(COMPLETE)
    return replace(visit, view=view)


# Checks ------------------------------------------------------------------------------------------------------------
# In the order in which they have to be made: the last ones press keys and open what was closed.


def weight(visit: Visit) -> list[str]:
    """What the page asks for before anyone scrolls, in bytes as they are sent."""
    total = sum(size for size, _ in visit.loaded)
    heaviest = ", ".join(f"{name} {size / 1e6:.2f}" for size, name in sorted(visit.loaded, reverse=True)[:4])
    return [f"{total / 1e6:.2f} MB: {heaviest}"] if total > LIGHTEST else []


def shift(visit: Visit) -> list[str]:
    """Nothing moves while the page loads and is scrolled to its end, but the contents, which unfold by intent."""
    moved = [f"{value:.3f} {', '.join(nodes[:2])}" for value, nodes in sorted(visit.shifts, reverse=True)[:3]]
    total = sum(value for value, _ in visit.shifts)
    return [f"{total:.2f} of the window moved: {'; '.join(moved)}"] if total > SHIFT else []


def theme(visit: Visit) -> list[str]:
    """The page has the theme that was asked for, in its colours too, and pictures keep theirs."""
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
          for (let box = e; box.nodeName !== 'ARTICLE'; box = box.parentElement)
            if (/auto|scroll/.test(getComputedStyle(box).overflowX)) return true;
          return false;
        };
        for (const e of shown('article *')) {
          if (e.closest('svg, math') !== e && e.closest('svg, math, mjx-container')) continue;
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


def formulas(visit: Visit) -> list[str]:
    """Each formula of the source is rendered, by whatever means, and no TeX is left in the text."""
    found = visit.page.evaluate(
        r"""() => {
        const kinds = 'math, mjx-container, .katex', faults = [];
        const rendered = [...document.querySelectorAll('article :is(math, mjx-container, .katex)')]
          .filter((e) => !e.parentElement.closest(kinds) && !e.closest('.cell_output, dl.py'));
        for (const e of rendered)
          if (visible(e.parentElement) && !e.getBoundingClientRect().width) faults.push(`not to be seen: ${called(e)}`);
        for (const e of document.querySelectorAll('merror, mjx-merror, [data-mjx-error]'))
          faults.push(`an error: ${called(e)}`);
        const raw = /\$\$|\$[^$\n]{1,80}\$|\\[()[\]]|\\(frac|math[a-z]+|text|sqrt|sum|cdot|operatorname|begin)\b/;
        const text_of = document.querySelector('article') ?? document.querySelector('main');
        const texts = document.createTreeWalker(text_of, NodeFilter.SHOW_TEXT);
        for (let text; (text = texts.nextNode()); ) {
          const shielded = text.parentElement.closest('pre, code, script, style, svg, annotation, mjx-container');
          if (!shielded && raw.test(text.data)) faults.push(`raw TeX: ${text.data.trim().slice(0, 60)}`);
        }
        return [rendered.length, faults];
        }"""
    )
    count, faults = found
    if count != (wanted := formulas_of(visit.source)):
        faults.append(f"{wanted} formulas in the source, {count} on the page")
    return faults


def formulas_of(markdown: str) -> int:
    """How many formulas a Markdown text has."""
    from markdown_it import MarkdownIt
    from mdit_py_plugins.amsmath import amsmath_plugin
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    blocks = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin).use(amsmath_plugin).parse(markdown)
    tokens = [*blocks, *(token for block in blocks for token in block.children or ())]
    return sum(token.type.startswith(("math_", "amsmath")) for token in tokens)


def cards(visit: Visit) -> list[str]:
    """Each card of the source is one on the page, and each kind has a colour of its own."""
    found = visit.page.evaluate(
        """(kinds) => kinds.map((kind) => {
        const all = [...document.querySelectorAll(`article .card-${kind}`)], first = all.find(visible);
        const style = first && getComputedStyle(first);
        return [all.length, style ? style.borderLeftWidth + style.borderLeftColor + style.backgroundColor : ''];
        })""",
        CARDS,
    )
    written = Counter(word.lower() for word in re.findall(r"^> \*\*(\w+)", visit.source, re.MULTILINE))
    looks = Counter(look for _, look in found if look)
    faults = [
        f"{written[kind]} {kind} cards in the source, {count} on the page"
        for kind, (count, _) in zip(CARDS, found, strict=True)
        if count != written[kind]
    ]
    plain = re.compile(r"0px.*rgba\(0, 0, 0, 0\)")
    for kind, (_, look) in zip(CARDS, found, strict=True):
        if look and (looks[look] > 1 or plain.fullmatch(look)):
            faults.append(f"a {kind} card has no colour of its own: {look}")
    return faults


def alt_texts(visit: Visit) -> list[str]:
    """Each picture is there, and says in words what it shows."""
    return visit.page.evaluate(
        r"""() => shown('article img').flatMap((e) => {
        const alt = (e.getAttribute('alt') ?? '').trim(), faults = [];
        if (!e.naturalWidth) faults.push(`not to be seen: ${called(e)}`);
        if (alt.length < 10 || !/\s/.test(alt) || /\.(png|svg|jpe?g|webp)\b|_images\//.test(alt))
          faults.push(`no real alt text, ${alt.slice(0, 40)}: ${called(e)}`);
        return faults;
        })"""
    )


def captions(visit: Visit) -> list[str]:
    """Each result in view that is a figure or a table has its caption, and figures are numbered in order.

    A printed matrix, though a table of numbers, is a value and has none.
    """
    return visit.page.evaluate(
        r"""() => {
        const faults = [], numbers = {};
        let figure = null;
        for (const e of shown('article .cell_output :is(img, table), article .figure-caption')) {
          if (e.matches('table') && !e.querySelector('caption')) faults.push(`no caption: ${called(e)}`);
          if (e.matches('img')) {
            if (figure) faults.push(`no caption: ${called(figure)}`);
            figure = e;
          }
          if (!e.matches('.figure-caption')) continue;
          const [, kind, number] = e.textContent.match(/^(Figure|Table)\s\d+\.(\d+)\./) ?? [];
          if (kind === 'Figure') figure = null;
          if (+number !== (numbers[kind] = (numbers[kind] ?? 0) + 1)) faults.push(`out of order: ${called(e)}`);
        }
        if (figure) faults.push(`no caption: ${called(figure)}`);
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
        for (const e of shown('article section > p:not([class])')) note(size(e), 16, e);
        for (const e of shown('article *')) {
          const text = [...e.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim());
          if (text && !e.closest('math, mjx-container, svg, sup, .headerlink')) note(size(e), 11, e);
        }
        for (const e of shown('article .tag_hide-cell > details > summary')) note(size(e), 15, e);  // what goes deeper
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


# axe asks each element of a page, and most of a chapter's are words of code, as most of the package's page are parts of
# signatures. It is spared what it would pass over, the contents of closed rooms, and the colours of code that all stood
# on the same ground in code above; its links stay.
SPARE = """() => {
  window.put_back = [];
  for (const e of document.querySelectorAll('details:not([open]) > :not(summary)')) {
    const place = document.createComment('');
    e.replaceWith(place);
    put_back.push(() => place.replaceWith(e));
  }
  const known = new Set();
  for (const box of shown('pre, dt.sig')) {
    let ground = box;
    while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)' && ground.parentElement)
      ground = ground.parentElement;
    const looks = [...box.querySelectorAll('*')].map((e) => {
      const style = getComputedStyle(e), {color, backgroundColor, fontSize, fontWeight, opacity} = style;
      return [getComputedStyle(ground).backgroundColor, color, backgroundColor, fontSize, fontWeight, opacity].join();
    });
    if (looks.every((look) => known.has(look))) {
      const code = [...box.childNodes], plain = document.createElement('span');
      const links = [...box.querySelectorAll('a, button, [tabindex]')].map((link) => link.cloneNode(true));
      plain.textContent = box.textContent;
      plain.style.whiteSpace = 'pre-wrap';  // its lines knew how to break
      box.replaceChildren(plain, ...links);
      put_back.push(() => box.replaceChildren(...code));
    }
    for (const look of looks) known.add(look);
  }
}"""
PUT_BACK = "() => { for (const undo of put_back.reverse()) undo(); }"


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
    visit.page.evaluate(SPARE)
    violations = Axe().run(visit.page, options=options).response["violations"]
    visit.page.evaluate(PUT_BACK)
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
  let last;
  const stop = (e) => {
    if (!e || e === document.body || e === document.documentElement) return null;
    const before = last, pictures = [...e.querySelectorAll('img')].map((image) => image.alt);
    const name = [e.textContent, e.ariaLabel, e.title, e.placeholder, ...pictures].find((text) => text?.trim());
    last = e;
    return {
      called: called(e),
      skips: /^#/.test(e.getAttribute('href') ?? '') && /skip/i.test(name),
      inside: !!e.closest('main'),
      'a formula is a stop': !!e.closest('math, mjx-container'),
      'a stop is not seen': !ringed(e),
      'a stop without a name': !name,
      'a stop leads back up': !!before && !(before.compareDocumentPosition(e) & Node.DOCUMENT_POSITION_FOLLOWING),
    };
  };
  addEventListener('keyup', ({key}) => { if (key === 'Tab') stops.push(stop(document.activeElement)); }, true);
}"""
# What had the focus is gone, and the next stop is the first of the page.
TO_THE_TOP = """() => {
  const start = document.createElement('button');
  document.body.prepend(start);
  start.focus();
  start.remove();
}"""
AT_A_TIME = 20  # so many times the Tab key is pressed before the page is asked


def tab(page: Page, times: int) -> list[dict | None]:
    """Press the Tab key, and return the stops."""
    for _ in range(times):
        page.keyboard.press("Tab")
    return page.evaluate("stops.splice(0)")


def tab_order(visit: Visit) -> list[str]:
    """The Tab key offers to skip to the text, then goes down the page; each stop has a name and is seen."""
    page, faults = visit.page, []
    if visit.view.theme == "dark":
        return []  # the same stops, in other colours
    page.evaluate(NOTE_STOPS)
    (first,) = tab(page, 1)
    if not (first and first["skips"]):
        faults.append(f"the first stop skips nothing: {first and first['called']}")
    most = page.evaluate("document.querySelectorAll('a, button, input, summary, [tabindex], pre').length") + 50
    stops: list[dict | None] = []
    while None not in stops and len(stops) < most:
        stops += tab(page, AT_A_TIME)
    if None not in stops:
        faults.append(f"no end after {len(stops)} stops")
    for stop in stops[: stops.index(None) if None in stops else None]:
        faults += [f"{fault}: {stop['called']}" for fault, true in stop.items() if true is True and " " in fault]
    if first and first["skips"]:
        page.evaluate(TO_THE_TOP)
        tab(page, 1)
        page.keyboard.press("Enter")
        (stop,) = tab(page, 1)
        if not (stop and stop["inside"]):
            faults.append(f"the first stop leads to {stop and stop['called']}")
    return faults


def solutions(visit: Visit) -> list[str]:
    """Solutions, hints and side rooms open by the mouse, show what they hold, and close by a focus that is seen."""
    page, faults = visit.page, []
    if visit.view != VIEWS["desktop-light"]:
        return []  # the same rooms
    for room in page.locator("article details:not(.hide)").all():  # .hide: a notebook's code, folded by MyST-NB
        place = room.evaluate(
            """(room) => {
            const summary = room.firstElementChild;
            for (let e = room; e; e = e.parentElement.closest('details')) e.open = e !== room;
            summary.scrollIntoView({block: 'center', behavior: 'instant'});
            const {x, y, height} = summary.getBoundingClientRect();
            return [x + 12, y + height / 2];
            }"""
        )
        page.mouse.click(*place)
        opened = room.evaluate(
            """(room) => {
            const [summary, ...content] = room.children;
            summary.focus();
            return room.open && content.some((e) => visible(e) && e.getBoundingClientRect().height > 8);
            }"""
        )
        page.keyboard.press("Enter")
        name, closed, ring = room.evaluate(
            "(room) => [called(room.firstElementChild), !room.open, ringed(room) || ringed(room.firstElementChild)]"
        )
        wrong = {"a click shows nothing": not opened, "Enter does not close": not closed, "focus is not seen": not ring}
        faults += [f"{fault}: {name}" for fault, true in wrong.items() if true]
    return faults


def console(visit: Visit) -> list[str]:
    """No error, no warning, and nothing that is missing."""
    return visit.console


def hosts(visit: Visit) -> list[str]:
    """No other host is asked for anything."""
    return visit.hosts


CHECKS: list[Callable[[Visit], list[str]]] = [
    weight,
    shift,
    theme,
    overflow,
    formulas,
    cards,
    alt_texts,
    captions,
    letters,
    axe,
    tab_order,
    solutions,
    console,
    hosts,
]


def hits(page: Page, term: str) -> list[str]:
    """The files that the search page finds, the best first."""
    page.goto(f"{page.url.partition('?')[0]}?q={term}")
    page.wait_for_function("/found|did not match/.test(document.querySelector('.search-summary')?.textContent)")
    page.wait_for_load_state("networkidle")  # excerpts come from the pages themselves
    links = page.locator("#search-results li > a").all()
    return [re.split("[?#]", link.get_attribute("href"))[0] for link in links]
