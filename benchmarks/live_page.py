"""Milliseconds that the page "Draw a digit" takes for an image, in an installed Chromium or Chrome.

    python benchmarks/live_page.py
    python benchmarks/live_page.py --throttle 1 4 6 --images 100

A throttle of 4 slows the processor down four times, as the browser's own tools do: about a cheap telephone. The first
image is listed separately, because the browser compiles what it runs often. The goal is 10 ms at full speed, and 40 ms
at a throttle of 4.
"""

import argparse
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

from vit_tutorial.live import export_model
from vit_tutorial.runs import load_recorded

BOOK = Path(__file__).parent.parent / "book"
sys.path.append(str(BOOK))
from pdf import browser  # noqa: E402, it lies beside the package

RUNS = ("mnist", "mnist-patch4")
MEASURE = """async ([sources, exported, images]) => {
  const load = (source) => import(`data:text/javascript,${encodeURIComponent(source)}`);
  const [{ drawStrokes }, { forward, loadModel }] = await Promise.all(sources.map(load));
  const model = loadModel(exported), times = [];
  for (let i = 0; i < images; i++) {
    const points = Array.from({ length: 60 }, (_, k) => [140 + 100 * Math.cos(k / 9 + i), 140 + 120 * Math.sin(k / 9)]);
    const start = performance.now();
    forward(model, Float64Array.from(drawStrokes([points]), (grey) => grey / 255));
    times.push(performance.now() - start);
    await new Promise((done) => setTimeout(done));
  }
  const later = times.slice(1).sort((a, b) => a - b);
  return [times[0], later[Math.floor(later.length / 2)], later[Math.floor(later.length * 0.95)]];
}"""


def main(throttles: list[float], images: int) -> None:
    sources = [(BOOK / f"_static/live/{name}.mjs").read_text(encoding="utf-8") for name in ("digit", "vit")]
    print(f"{'':14}{'throttle':>9}{'first':>9}{'median':>9}{'95 %':>9}   ms, strokes to probabilities")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox", "--disable-gpu"])
        for run in RUNS:
            exported = export_model(*load_recorded(run))
            for throttle in throttles:
                page = chromium.new_page()  # a fresh one, in which nothing is compiled yet
                page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": throttle})
                times = page.evaluate(MEASURE, [sources, exported, images])
                print(f"{run:14}{throttle:9g}" + "".join(f"{ms:9.1f}" for ms in times))
                page.close()
        chromium.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--throttle", type=float, nargs="+", default=[1, 4])
    parser.add_argument("--images", type=int, default=50)
    arguments = parser.parse_args()
    main(arguments.throttle, arguments.images)
