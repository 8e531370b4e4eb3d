// The sheet to draw on: with a mouse, a finger, a pen, or the arrow keys and the space bar.

import { h } from "./dom.mjs";
import { TEXT } from "./text.mjs";

export const SHEET = 280; // units of a side
const KEYS = "keys", NEAR = 4, STEP = 14, SMALL_STEP = 5; // units: closer points are one; what an arrow key moves, and with Shift
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

/** `onChange(strokes, finished)` is told of each new point. Strokes that it got are never changed: new ones take their place. */
export function pad(onChange) {
  let strokes = [], ours = false, greeting = false, pen = [SHEET / 2, SHEET / 2];
  let hand = null; // what is drawing a stroke: KEYS, or the id of a pointer
  const held = new Set(), lines = h("svg"), cursor = h("circle.pen", { r: 9 });
  const invitation = h("p.live-invitation", { "aria-hidden": "true" }, TEXT.pad.invitation);
  const sheet = h("svg.live-sheet", {
    viewBox: `0 0 ${SHEET} ${SHEET}`, tabindex: 0, role: "application", "aria-label": TEXT.pad.label, "aria-describedby": "live-keys",
    onpointerdown: begin, onpointermove: follow, onpointerup: end, onpointercancel: end, onlostpointercapture: end,
    onkeydown: press, onkeyup: (event) => held.delete(event.key), onblur: () => { held.clear(); lift(); },
  }, lines, cursor);
  lines.setAttribute("overflow", "visible");

  const draw = () => {
    lines.replaceChildren(...strokes.map((points) =>
      h("polyline", { points: (points.length > 1 ? points : [points[0], points[0]]).join(" ") })));
    sheet.classList.toggle("ours", ours);
    sheet.classList.toggle("inked", hand === KEYS);
    invitation.hidden = strokes.length > 0 && !greeting;
    cursor.setAttribute("cx", pen[0]);
    cursor.setAttribute("cy", pen[1]);
  };
  const tell = (finished) => { draw(); onChange(strokes, finished); };
  const inside = (value) => Math.min(Math.max(Math.round(value), 0), SHEET);

  function start(point) {
    strokes = [...(ours ? [] : strokes), [point]];
    ours = greeting = false;
  }
  function extend(point) {
    const last = strokes.at(-1), [x, y] = last.at(-1);
    if (Math.hypot(point[0] - x, point[1] - y) >= NEAR) strokes = [...strokes.slice(0, -1), [...last, point]];
  }
  function place(event) {
    const box = sheet.getBoundingClientRect();
    return [inside(((event.clientX - box.left) / box.width) * SHEET), inside(((event.clientY - box.top) / box.height) * SHEET)];
  }

  function begin(event) {
    if (!event.isPrimary || event.button) return;
    hand = event.pointerId;
    sheet.setPointerCapture(hand);
    start(pen = place(event));
    tell(false);
  }
  function follow(event) {
    if (event.pointerId !== hand) return;
    if (!event.buttons) return lift(); // it was let go elsewhere
    const passed = event.getCoalescedEvents?.() ?? [];
    for (const point of (passed.length ? passed : [event]).map(place)) extend(pen = point);
    tell(false);
  }
  function end(event) {
    if (event.pointerId === hand) lift();
  }
  function lift() {
    if (hand !== null) { hand = null; tell(true); }
  }

  function press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) { held.clear(); return; }
    if (event.key === " ") {
      if (event.repeat) { event.preventDefault(); return; }
      if (hand === KEYS) lift();
      else if (hand === null) { hand = KEYS; start(pen); tell(true); }
    } else if (event.key in ARROWS) {
      held.add(event.key);
      const step = event.shiftKey ? SMALL_STEP : STEP, ways = [...held].map((key) => ARROWS[key]); // two keys go aslant
      pen = pen.map((value, axis) => inside(value + step * ways.reduce((sum, way) => sum + way[axis], 0)));
      if (hand === KEYS) { extend(pen); tell(true); } else draw();
    } else if (event.key === "Backspace") undo();
    else if (event.key === "Delete") show([]);
    else return;
    event.preventDefault();
  }

  const undo = () => show(ours ? [] : strokes.slice(0, -1));
  /** Puts strokes on the sheet, and what is being drawn is over. Those that are `own` to the page give way to the reader's first one; the first `greets`. */
  function show(given, own = false, greets = false) {
    [strokes, ours, greeting, hand] = [given, own, greets, null];
    tell(true);
  }
  draw();
  return { element: h("div.live-paper", {}, sheet, invitation), sheet, undo, show };
}
