// Curves over epochs, drawn in the pixels of the page so that letters stay as large as the text, again when its width changes.

import { h } from "../dom.mjs";

const LEFT = 38, RIGHT = 10, TOP = 8, BOTTOM = 38;

/**
 * `curves` are {x, y, colour, dashed, dots} with lists x and y. `mark(x)` moves a line to an epoch.
 * The words of `label` say what a reader who doesn't see the curves should know.
 */
export function chart({ height, from: [x0, y0], to: [x1, y1], xs, ys, xName, label, curves }) {
  const picture = h("svg", { height, class: "fig-chart", role: "img", "aria-label": label });
  let marked = null;

  function draw() {
    const width = picture.clientWidth || 320;
    const right = (x) => LEFT + ((x - x0) / (x1 - x0)) * (width - LEFT - RIGHT), down = (y) => TOP + ((y1 - y) / (y1 - y0)) * (height - TOP - BOTTOM);
    const grid = ys.flatMap((y) => [h("path", { d: `M${LEFT} ${down(y)}H${width - RIGHT}`, class: "fig-grid" }), h("text", { x: LEFT - 6, y: down(y) + 4, "text-anchor": "end" }, String(y))]);
    const feet = xs.map((x) => h("text", { x: right(x), y: height - BOTTOM + 16, "text-anchor": "middle" }, String(x)));
    const name = h("text", { x: (LEFT + width - RIGHT) / 2, y: height - 4, "text-anchor": "middle" }, xName);
    const lines = curves.map(({ x, y, colour, dashed }) => h("polyline", { points: x.map((each, i) => `${right(each)},${down(y[i])}`).join(" "), style: `stroke: ${colour}`, "stroke-dasharray": dashed ? "6 4" : "none" }));
    const here = marked === null ? [] : [h("path", { d: `M${right(marked)} ${TOP}V${height - BOTTOM}`, class: "fig-mark" })];
    const dots = curves.flatMap(({ x, y, colour, dots }) => x.flatMap((each, i) => (dots || each === marked ? [h("circle", { cx: right(each), cy: down(y[i]), r: each === marked ? 5 : 3.5, style: `fill: ${colour}` })] : [])));
    picture.replaceChildren(...grid, ...feet, name, ...here, ...lines, ...dots);
  }

  new ResizeObserver(draw).observe(picture);
  return { picture, mark: (x) => { marked = x; draw(); } };
}
