// The sheet to draw on: with a mouse, a finger, a pen, or the arrow keys and the space bar.

import { h } from "./dom.mjs";
import { TEXT } from "./text.mjs";

export const SHEET = 280; // units of a side
const NEAR = 4, STEP = 14, SMALL_STEP = 5; // units: closer points are one; what an arrow key moves, and with Shift
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** `onChange(strokes, finished)` is told of each new point. */
export function pad(onChange) {
  let strokes = [], ours = false, greeting = false, drawing = null, pen = [SHEET / 2, SHEET / 2], inked = false;
  const held = new Set(), lines = h("svg"), cursor = h("circle.pen", { r: 9 });
  const invitation = h("p.live-invitation", { "aria-hidden": "true" }, TEXT.pad.invitation);
  const sheet = h("svg.live-sheet", {
    viewBox: `0 0 ${SHEET} ${SHEET}`, tabindex: 0, role: "application", "aria-label": TEXT.pad.label, "aria-describedby": "live-keys",
    onpointerdown: begin, onpointermove: follow, onpointerup: end, onpointercancel: end,
    onkeydown: press, onkeyup: (event) => held.delete(event.key), onblur: () => { held.clear(); lift(); },
  }, lines, cursor);
  lines.setAttribute("overflow", "visible");

  const draw = () => {
    lines.replaceChildren(...strokes.map((points) =>
      h("polyline", { points: (points.length > 1 ? points : [points[0], points[0]]).join(" ") })));
    sheet.classList.toggle("ours", ours);
    sheet.classList.toggle("inked", inked);
    invitation.hidden = strokes.length > 0 && !greeting;
    cursor.setAttribute("cx", pen[0]);
    cursor.setAttribute("cy", pen[1]);
  };
  const tell = (finished) => { draw(); onChange(strokes, finished); };
  const inside = (value) => Math.min(Math.max(Math.round(value), 0), SHEET);

  function start(point) {
    if (ours) strokes = [];
    ours = greeting = false;
    strokes = [...strokes, [point]];
  }
  function extend(point) {
    const last = strokes.at(-1), [x, y] = last.at(-1);
    if (Math.hypot(point[0] - x, point[1] - y) >= NEAR) last.push(point);
  }
  function place(event) {
    const box = sheet.getBoundingClientRect();
    return [inside(((event.clientX - box.left) / box.width) * SHEET), inside(((event.clientY - box.top) / box.height) * SHEET)];
  }

  function begin(event) {
    if (!event.isPrimary || event.button) return;
    lift();
    drawing = event.pointerId;
    sheet.setPointerCapture(drawing);
    start(pen = place(event));
    tell(false);
  }
  function follow(event) {
    if (event.pointerId !== drawing) return;
    const passed = event.getCoalescedEvents?.() ?? [];
    for (const point of (passed.length ? passed : [event]).map(place)) extend(pen = point);
    tell(false);
  }
  function end(event) {
    if (event.pointerId !== drawing) return;
    drawing = null;
    tell(true);
  }
  function lift() {
    if (inked) { inked = false; tell(true); }
  }

  function press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " ") {
      if (event.repeat) { event.preventDefault(); return; }
      if (inked) lift();
      else { inked = true; start(pen); tell(true); }
    } else if (event.key in ARROWS) {
      held.add(event.key);
      const step = event.shiftKey ? SMALL_STEP : STEP, ways = [...held].map((key) => ARROWS[key]); // two keys go aslant
      pen = pen.map((value, axis) => inside(value + step * ways.reduce((sum, way) => sum + way[axis], 0)));
      if (inked) { extend(pen); tell(true); } else draw();
    } else if (event.key === "Backspace") undo();
    else if (event.key === "Delete") show([]);
    else return;
    event.preventDefault();
  }

  function undo() {
    inked = false;
    strokes = ours ? [] : strokes.slice(0, -1);
    ours = greeting = false;
    tell(true);
  }
  /** Puts strokes on the sheet. Those that are `own` to the page give way to the reader's first one; the first `greets`. */
  function show(given, own = false, greets = false) {
    [strokes, ours, greeting, inked] = [given, own, greets, false];
    tell(true);
  }
  draw();
  return { element: h("div.live-paper", {}, sheet, invitation), sheet, undo, show };
}
