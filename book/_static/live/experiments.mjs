// Break a part, guess what happens, and see: the healthy model beside the changed one, on the reader's digit and on the test set.

import { bars, best } from "./bars.mjs";
import { chips, h } from "./dom.mjs";
import { INTERVENTIONS, shuffled } from "./interventions.mjs";
import { paintGrey } from "./paint.mjs";
import { TEXT } from "./text.mjs";
import { greyPatches, gridOf } from "./tokens.mjs";
import { forward } from "./vit.mjs";

export const SHUFFLES = ["shuffleTokens", "shufflePatches", "noPositions"];
export const REPAIRS = Object.keys(INTERVENTIONS).filter((name) => !SHUFFLES.includes(name));
const AS_SURE = 0.05; // a probability that falls by less is as sure as before
const TEMPERATURES = [0.25, 0.5, 2, 4]; // those that were measured

/** What has happened to an answer: "same", "less" or "other". */
export function happened(healthy, changed) {
  const digit = best(healthy);
  if (best(changed) !== digit) return "other";
  return changed[digit] > healthy[digit] - AS_SURE ? "same" : "less";
}

/** The accuracy on the test set that was measured for a choice; for shuffles, the mean of several orders. */
export function measured(rows, name, { order, ...choices } = {}) {
  const fits = (row) => row.name === name && Object.entries(choices).every(([key, value]) => row.choices[key] === value);
  const found = rows.filter(fits).map((row) => row.accuracy);
  return found.reduce((sum, accuracy) => sum + accuracy, 0) / found.length;
}

function slider(label, least, most, told, onChange) {
  const said = h("output", {}, told(least));
  const input = h("input", { type: "range", "aria-label": label, min: least, max: most, value: least, oninput: () => { said.textContent = told(+input.value); onChange(+input.value); } });
  return h("label.live-slider", {}, h("span", {}, label), input, said);
}

/** One experiment as a card. The function that comes back shows a state. */
export function experiment(root, name, { config, measured: rows, images }) {
  const text = TEXT.experiments[name], n = gridOf(config).reduce((product, side) => product * side), shuffles = SHUFFLES.includes(name);
  let choices = { muteHead: { block: 0, head: 0 }, muteBlock: { block: 0 }, temperature: { temperature: TEMPERATURES[0] } }[name] ?? {};
  let seed = 1, guess = null, state = null;
  const choose = (more) => { choices = { ...choices, ...more }; if (state) show(state); };
  const again = () => choose({ order: shuffled(n, seed++) });
  if (shuffles) again();

  const controls = h("div.live-controls"), pieces = h("div.live-pieces"), result = h("div.live-result"), verdict = h("p.live-verdict", { role: "status" });
  if (shuffles) controls.append(h("button.live-button", { type: "button", onclick: again }, TEXT.controls.order));
  if ("block" in choices) controls.append(slider(TEXT.controls.layer, 1, config.depth, String, (layer) => choose({ block: layer - 1 })));
  if ("head" in choices) controls.append(slider(TEXT.controls.head, 1, config.num_heads, String, (head) => choose({ head: head - 1 })));
  if ("temperature" in choices) controls.append(slider(TEXT.controls.temperature, 0, TEMPERATURES.length - 1, (i) => String(TEMPERATURES[i]), (i) => choose({ temperature: TEMPERATURES[i] })));

  const buttons = Object.entries(TEXT.guess.options).map(([kind, label]) =>
    h("button.live-button", { type: "button", "aria-pressed": "false", onclick: () => commit(kind) }, label));
  const ask = h("fieldset.live-guess", {}, h("legend", {}, TEXT.guess.question), ...buttons);
  const healthyBars = bars(TEXT.guess.healthy), changedBars = bars(TEXT.guess.changed), score = h("div.live-scores");
  const places = h("div.live-places");
  const column = (title, { element }) => h("div", {}, h("p.live-title", {}, title), element);
  const laysOut = shuffles && name !== "noPositions"; // there are places to lay the patches out by
  const revealed = [h("div.live-beside", {}, ...(laysOut ? [places] : []), column(TEXT.guess.healthy, healthyBars), column(TEXT.guess.changed, changedBars)), score, h("p.live-why", {}, text.why)];
  root.replaceChildren(h("h3", {}, text.title), h("p", {}, text.what), controls, pieces, ask, verdict, result);

  function commit(kind) {
    guess = kind;
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", Object.keys(TEXT.guess.options)[i] === kind));
    result.replaceChildren(...revealed);
    if (state) show(state);
  }

  /** The model's trace with the part broken, and the patches that it takes, with the places that it takes them for. */
  function run({ model, pixels }) {
    const changes = INTERVENTIONS[name](choices);
    if (name === "noPositions") Object.assign(changes, INTERVENTIONS.shufflePatches(choices));
    return forward(model, pixels, changes);
  }

  function dealt({ image, lit }) {
    const patches = greyPatches(image, config), tile = (patch) => { const canvas = h("canvas"); paintGrey(canvas, config.patch_size[1], patch); return canvas; };
    const place = (i) => (name === "shuffleTokens" ? choices.order[i] : i);
    const cards = choices.order.map((from, i) => h(from + 1 === lit ? "div.lit" : "div", {}, tile(patches[from]), h("span", {}, name === "noPositions" ? "–" : String(place(i) + 1))));
    pieces.replaceChildren(h("p.live-title", {}, TEXT.pieces.together), h("div.live-hand", { "aria-hidden": "true" }, ...cards));
    const laid = Array(n);
    choices.order.forEach((from, i) => { laid[place(i)] = tile(patches[from]); });
    places.replaceChildren(h("p.live-title", {}, TEXT.pieces.places), h("div.live-laid", { style: `--columns: ${gridOf(config)[1]}`, "aria-hidden": "true" }, ...laid));
  }

  function taken(trace) {
    const size = config.patch_size[0] * config.patch_size[1];
    const tile = (i) => { const canvas = h("canvas"); paintGrey(canvas, config.patch_size[1], trace.patches.subarray(i * size, (i + 1) * size).map((value) => Math.round(255 * (value * config.std + config.mean)))); return canvas; };
    pieces.replaceChildren(h("p.live-title", {}, TEXT.pieces.wrong), h("div.live-laid.apart", { style: `--columns: ${gridOf(config)[1]}`, "aria-hidden": "true" }, ...Array.from({ length: n }, (_, i) => tile(i))));
  }

  function show(given) {
    state = given;
    const { trace, empty } = state;
    if (shuffles) dealt(state);
    if (!guess && name !== "reshape") return;
    const changed = run(state);
    if (name === "reshape") taken(changed);
    if (!guess) return;
    healthyBars.show(empty ? undefined : trace.probabilities);
    changedBars.show(empty ? undefined : changed.probabilities);
    if (empty) { verdict.textContent = TEXT.guess.empty; return; }
    const before = best(trace.probabilities), after = best(changed.probabilities), what = happened(trace.probabilities, changed.probabilities);
    const told = {
      same: () => TEXT.guess.happened.same(after),
      less: () => TEXT.guess.happened.less(after, trace.probabilities[before], changed.probabilities[after]),
      other: () => TEXT.guess.happened.other(after, before),
    }[what]();
    verdict.replaceChildren(h("strong", {}, guess === what ? TEXT.guess.right : TEXT.guess.wrong), ` ${told}`);
    const line = (label, part, kind) => h("div.live-score", {}, h("span", {}, label), h(`span.track`, { "aria-hidden": "true" }, h(`span.fill.${kind}`, { style: `width: ${100 * part}%` })), h("b", {}, TEXT.percent(part)));
    score.replaceChildren(h("p.live-title", {}, TEXT.guess.accuracy(images)),
      line(TEXT.guess.healthy, measured(rows, "healthy"), "healthy"), line(TEXT.guess.changed, measured(rows, name, choices), "changed"));
  }
  return show;
}

/** A few experiments to choose from, one at a time. */
export function chooser(root, names, model) {
  const stage = h("div.live-card");
  let show, state;
  const open = (name) => { show = experiment(stage, name, model); if (state) show(state); };
  root.replaceChildren(chips(TEXT.chooser, names.map((name) => ({ value: name, label: TEXT.experiments[name].title })), open), stage);
  open(names[0]);
  return (given) => { state = given; show(state); };
}
