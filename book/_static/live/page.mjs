// The page "Draw a digit": what is drawn goes through the model at once, and every panel in view shows it.

import { bars, best } from "./bars.mjs";
import { drawStrokes } from "./digit.mjs";
import { chips, h } from "./dom.mjs";
import { EXAMPLES } from "./examples.mjs";
import { chooser, experiment, REPAIRS, SHUFFLES } from "./experiments.mjs";
import { pad } from "./pad.mjs";
import { onTheme, paintGrey } from "./paint.mjs";
import { PANELS } from "./panels.mjs";
import { python } from "./python.mjs";
import { TEXT } from "./text.mjs";
import { gridOf, thumb } from "./tokens.mjs";
import { forward, loadModel } from "./vit.mjs";

const LARGE = "mnist", SMALL = "mnist-patch4"; // recorded runs, by the size of their patches
const FIRST = [4, 3]; // the example that is there before anyone has drawn: digit, variant
const slots = Object.fromEntries([...document.querySelectorAll("[data-live=page]")].map((slot) => [slot.dataset.panel, slot]));
const models = {}, shown = new Map(), inView = new Set(), stale = new Set();
const state = { strokes: [], image: null, pixels: null, empty: true, model: null, trace: null, lit: 0, query: 0, block: 0, head: 0 };

/** A model, fetched once. A file that is lacking or damaged is an error, and asked for again the next time. */
function load(name) {
  const failed = (error) => { delete models[name]; throw error; };
  return (models[name] ??= fetched(name).catch(failed));
}

async function fetched(name) {
  const file = `${name}.js`;
  await new Promise((resolve, reject) => {
    const gone = () => reject(new Error(TEXT.missing(file)));
    document.head.append(h("script", { src: slots.draw.dataset.models + file, onload: resolve, onerror: gone }));
  });
  const found = globalThis.models?.[name];
  if (!found) throw new Error(TEXT.missing(file));
  return { ...loadModel(found), name, measured: found.measured, images: found.images };
}

function fail(error) {
  for (const slot of Object.values(slots)) {
    slot.dataset.state = "failed";
    slot.querySelectorAll(":scope > :not(.live-still)").forEach((element) => element.remove());
  }
  slots.draw.prepend(h("p.live-failed", { role: "alert" }, TEXT.failed(error.message)));
}

// What follows from the strokes and the choices --------------------------------------------------------------------

function update(change) {
  Object.assign(state, change);
  if ("strokes" in change) compute();
  for (const name of shown.keys()) stale.add(name);
  schedule();
}

function compute() {
  if (!state.model) return;
  state.image = drawStrokes(state.strokes);
  state.empty = !state.strokes.length;
  state.pixels = Float64Array.from(state.image, (grey) => grey / 255);
  state.trace = forward(state.model, state.pixels);
}

let frame = 0;
/** Panels out of view wait until they are scrolled to. */
function schedule() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    if (!state.trace) return;
    for (const name of stale) if (inView.has(name)) { stale.delete(name); shown.get(name)(state); }
  });
}

/** In view or not. */
function showAll() {
  stale.clear();
  for (const show of shown.values()) show(state);
}

// The sheet, and the bar that goes along ---------------------------------------------------------------------------

/** The likeliest digit, and its probability. */
const answer = ({ probabilities }) => [best(probabilities), Math.max(...probabilities)];

function drawPanel(root) {
  const variants = Array(10).fill(0), seen = h("canvas.live-seen", { role: "img", "aria-label": TEXT.pad.seen });
  const says = h("p.live-says", { "aria-hidden": "true" }, TEXT.loading), heard = h("p.live-heard", { role: "status" }, TEXT.loading);
  const answers = bars(TEXT.pad.answers), note = h("p.quiet.live-note");
  let finished;
  const sheet = pad((strokes, over) => {
    note.textContent = sheet.sheet.classList.contains("ours") ? TEXT.pad.ours : "";
    finished = over;
    update({ strokes });
  });
  const example = (digit, greets = false) => {
    sheet.show(EXAMPLES[digit][variants[digit]++ % EXAMPLES[digit].length], true, greets);
  };
  const button = (label, onclick, more = {}) => h("button.live-button", { type: "button", onclick, ...more }, label);
  const tools = [button(TEXT.pad.undo, sheet.undo), button(TEXT.pad.clear, () => sheet.show([]))];
  const digits = EXAMPLES.map((_, digit) => button(String(digit), () => example(digit), { "aria-label": TEXT.pad.example(digit) }));
  const top = h("div.live-top", {}, h("figure", {}, seen, h("figcaption", {}, TEXT.pad.seen)), says);
  root.append(
    h("div.live-desk", {},
      h("div", {}, sheet.element, h("div.live-tools", {}, note, ...tools)), h("div.live-answer", {}, top, answers.element)),
    h("div.live-examples", {}, h("span", {}, TEXT.pad.examples), ...digits),
    h("p.quiet", { id: "live-keys" }, TEXT.pad.keys), heard);
  variants[FIRST[0]] = FIRST[1];
  example(FIRST[0], true);
  return ({ image, trace, empty }) => {
    paintGrey(seen, 28, image);
    answers.show(empty ? undefined : trace.probabilities);
    const [digit, sure] = answer(trace), told = empty ? TEXT.pad.nothing : TEXT.pad.heard(digit, sure);
    if (finished && heard.textContent !== told) heard.textContent = told;
    says.replaceChildren(...(empty ? [h("b", {}, TEXT.pad.empty)] : [h("b", {}, String(digit)), h("span", {}, TEXT.pad.sure(sure))]));
  };
}

function barPanel(root) {
  const { element, canvas, light } = thumb(), reads = h("b", {}, TEXT.loading), which = h("span");
  const redraw = (event) => { // to the sheet itself: a link would give the title the focus, and its outline
    event.preventDefault();
    const sheet = slots.draw.querySelector(".live-sheet");
    sheet.focus({ preventScroll: true });
    sheet.scrollIntoView({ block: "center" });
  };
  root.append(element, reads, which, h("a", { href: `#${slots.draw.closest("section").id}`, onclick: redraw }, TEXT.bar.back));
  return ({ image, trace, empty, lit, model: { config } }) => {
    paintGrey(canvas, 28, image);
    light(lit, config);
    reads.textContent = empty ? TEXT.pad.nothing : TEXT.bar.reads(...answer(trace));
    which.textContent = TEXT.bar.lit(lit);
  };
}

// A model, and the panels that show it -----------------------------------------------------------------------------

/** The patch with the most ink. */
function inkiest({ image, model: { config } }) {
  const [, gw] = gridOf(config), [ph, pw] = config.patch_size, ink = {};
  image.forEach((grey, i) => {
    const patch = 1 + Math.floor(Math.floor(i / 28) / ph) * gw + Math.floor((i % 28) / pw);
    ink[patch] = (ink[patch] ?? 0) + grey;
  });
  return +Object.keys(ink).reduce((most, patch) => (ink[patch] > ink[most] ? patch : most), 1);
}

function build(model) {
  state.model = model;
  compute();
  for (const [name, panel] of Object.entries(PANELS)) shown.set(name, panel(slots[name], model, update));
  shown.set("code", python(slots.code));
  const cards = SHUFFLES.map((name) => ({ name, root: h("div.live-card") }));
  slots.shuffle.replaceChildren(...cards.map(({ root }) => root));
  const shows = cards.map(({ name, root }) => experiment(root, name, model));
  shown.set("shuffle", (given) => shows.forEach((show) => show(given)));
  shown.set("break", chooser(slots.break, REPAIRS, model));
  Object.assign(state, { lit: inkiest(state), query: 0, block: 0, head: 0 });
  for (const slot of Object.values(slots)) slot.dataset.state = "ready";
  showAll(); // nothing is to change its height later
}

function sizes() {
  const said = h("p.quiet", { role: "status" });
  let wanted;
  const choose = async (name) => {
    wanted = name;
    said.textContent = TEXT.patches.fetching;
    try {
      const model = await load(name);
      if (name !== wanted) return; // another one was chosen meanwhile
      build(model);
      said.textContent = "";
    } catch (error) { // the page goes on with the model that it has
      if (name !== wanted) return;
      said.textContent = `${error.message}.`;
      slots.sizes.querySelector(`[value="${state.model.name}"]`).checked = true;
    }
  };
  const options = [{ value: LARGE, label: TEXT.patches.large }, { value: SMALL, label: TEXT.patches.small }];
  slots.sizes.append(chips(TEXT.patches.sizes, options, choose), said);
}

async function start() {
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) inView[isIntersecting ? "add" : "delete"](target.dataset.panel);
    schedule();
  }, { rootMargin: "300px" });
  for (const slot of Object.values(slots)) watch.observe(slot);
  shown.set("bar", barPanel(slots.bar));
  shown.set("draw", drawPanel(slots.draw));
  try {
    build(await load(LARGE));
    sizes();
    onTheme(() => update({}));
    addEventListener("beforeprint", showAll);
  } catch (error) { fail(error); }
}

start();
