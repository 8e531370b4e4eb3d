// Break a part, guess what happens, and see: the healthy model beside the changed one, on the reader's digit and on the test set.

import { bars, best } from "./bars.mjs";
import { chips, h } from "./dom.mjs";
import { INTERVENTIONS, shuffled } from "./interventions.mjs";
import { paintGrey } from "./paint.mjs";
import { TEXT } from "./text.mjs";
import { greyPatches, gridOf } from "./tokens.mjs";
import { forward } from "./vit.mjs";

export const SHUFFLES = ["shuffleTokens", "shufflePatches", "noPositions", "shuffleBag"];
export const REPAIRS = Object.keys(INTERVENTIONS).filter((name) => !SHUFFLES.includes(name));
const AS_SURE = 0.05; // a probability that falls by less is about as sure as before
const ROUNDING = 1e-9; // a sum in another order differs by less
const TEMPERATURES = [0.25, 0.5, 2, 4]; // those that were measured
const GUESSES = Object.keys(TEXT.guess.options);

/** What has happened to an answer: "same", "less" or "other". */
export function happened(healthy, changed) {
  const digit = best(healthy);
  if (best(changed) !== digit) return "other";
  return changed[digit] > healthy[digit] - AS_SURE ? "same" : "less";
}

/** The accuracy on the test set that was measured for a choice; for shuffles, several: one for each of the orders tried. */
export function measured(rows, name, { order, ...choices } = {}) {
  const fits = (row) => row.name === name && Object.entries(choices).every(([key, value]) => row.choices[key] === value);
  return rows.filter(fits).map((row) => row.accuracy);
}

// The parts of a card -----------------------------------------------------------------------------------------------

function slider(label, least, most, told, onChange) {
  const said = h("output"), moved = () => { tell(); onChange(+input.value); };
  const input = h("input", { type: "range", "aria-label": label, min: least, max: most, value: least, oninput: moved });
  const tell = () => { said.textContent = told(+input.value); input.setAttribute("aria-valuetext", said.textContent); };
  tell();
  return h("label.live-slider", {}, h("span", {}, label), input, said);
}

const title = (text) => h("p.live-title", {}, text);

/** Grey patches as small pictures. */
const pictures = (patches, { patch_size }) => patches.map((patch) => {
  const canvas = h("canvas");
  paintGrey(canvas, patch_size[1], patch);
  return canvas;
});

/** Pictures side by side in the model's grid. */
const laid = (canvases, config, kind = "live-laid") =>
  h(`div.${kind}`, { style: `--columns: ${gridOf(config)[1]}`, "aria-hidden": "true" }, ...canvases);

/** Patches in the order in which the model gets them, each with the position that it's told: a number, or none. */
function hand(patches, order, places, lit, config) {
  const cards = pictures(order.map((from) => patches[from]), config).map((canvas, i) =>
    h(order[i] + 1 === lit ? "div.lit" : "div", {}, canvas, h("span", {}, places ? String(places[i] + 1) : "–")));
  return [title(places ? TEXT.pieces.together : TEXT.pieces.alone), h("div.live-hand", { "aria-hidden": "true" }, ...cards)];
}

/** The picture that comes of it when each patch lies where its position says. */
function believed(patches, order, places, config) {
  const inPlace = [];
  order.forEach((from, i) => { inPlace[places[i]] = patches[from]; });
  return [title(TEXT.pieces.places), laid(pictures(inPlace, config), config)];
}

/** What the model took for patches, from its own normalised numbers. */
function taken({ patches }, config) {
  const size = config.patch_size[0] * config.patch_size[1];
  const grey = patches.map((value) => Math.round(255 * (value * config.std + config.mean)));
  const all = Array.from({ length: grey.length / size }, (_, i) => grey.subarray(i * size, (i + 1) * size));
  return [title(TEXT.pieces.wrong), laid(pictures(all, config), config, "live-laid.apart")];
}

const mean = (numbers) => numbers.reduce((sum, value) => sum + value, 0) / numbers.length;

function score(label, accuracy, kind) {
  const fill = h(`span.fill.${kind}`, { style: `width: ${100 * accuracy}%` });
  const track = h("span.track", { "aria-hidden": "true" }, fill);
  return h("div.live-score", {}, h("span", {}, label), track, h("b", {}, TEXT.percent(accuracy)));
}

/** What happened, in words. */
function told(before, after) {
  const [was, is] = [best(before), best(after)], words = TEXT.guess.happened, kind = happened(before, after);
  return kind === "other" ? words.other(is, was) : words[kind](is, before[was], after[is]);
}

const equal = (before, after) => before.every((value, i) => Math.abs(value - after[i]) < ROUNDING);

// A card ------------------------------------------------------------------------------------------------------------

const FIRST_CHOICES = { muteHead: { block: 0, head: 0 }, muteBlock: { block: 0 }, temperature: { temperature: TEMPERATURES[0] } };

/** One experiment as a card. The function that comes back shows a state. */
export function experiment(root, name, { config, measured: rows, images }) {
  const n = gridOf(config).reduce((product, side) => product * side), text = TEXT.experiments[name], shuffles = SHUFFLES.includes(name);
  const inOrder = Array.from({ length: n }, (_, i) => i), noPositions = INTERVENTIONS.noPositions();
  let choices = FIRST_CHOICES[name] ?? {}, state = null, seed = 1;
  let guess = null; // with the image and the choices for which it was made

  const choose = (more) => { choices = { ...choices, ...more }; if (state) show(state); };
  const again = () => choose({ order: shuffled(n, seed++) });
  if (name === "noPositions") choose({ order: inOrder });
  else if (shuffles) again();

  const controls = h("div.live-controls"), pieces = h("div.live-pieces"), places = h("div.live-places");
  const verdict = h("p.live-verdict", { role: "status" }), result = h("div.live-result"), scores = h("div.live-scores");
  const barsBefore = bars(TEXT.guess.before), barsAfter = bars(TEXT.guess.after);
  const buttons = GUESSES.map((kind) =>
    h("button.live-button", { type: "button", "aria-pressed": "false", onclick: () => commit(kind) }, TEXT.guess.options[kind]));
  const ask = h("fieldset.live-guess", {}, h("legend", {}, TEXT.guess.question), ...buttons);

  if (shuffles && name !== "noPositions") controls.append(h("button.live-button", { type: "button", onclick: again }, TEXT.controls.order));
  if ("block" in choices)
    controls.append(slider(TEXT.controls.layer, 1, config.depth, String, (layer) => choose({ block: layer - 1 })));
  if ("head" in choices)
    controls.append(slider(TEXT.controls.head, 1, config.num_heads, String, (head) => choose({ head: head - 1 })));
  if ("temperature" in choices)
    controls.append(slider(TEXT.controls.temperature, 0, TEMPERATURES.length - 1, (i) => String(TEMPERATURES[i]),
      (i) => choose({ temperature: TEMPERATURES[i] })));
  root.replaceChildren(h("h3", {}, text.title), h("p", {}, text.what), controls, pieces, ask, verdict, result);

  function commit(kind) {
    guess = { kind, choices, image: state.image };
    const both = [[TEXT.guess.before, barsBefore], [TEXT.guess.after, barsAfter]];
    const beside = both.map(([label, { element }]) => h("div", {}, title(label), element));
    if (positions()) beside.unshift(places);
    result.replaceChildren(h("div.live-beside", {}, ...beside), scores, h("p.live-why", {}, text.why));
    show(state);
  }

  /** The traces before and after the change. */
  function run({ model, pixels, trace }) {
    if (name !== "shuffleBag") return [trace, forward(model, pixels, INTERVENTIONS[name](choices))];
    return [{}, INTERVENTIONS.shufflePatches(choices)].map((order) => forward(model, pixels, { ...noPositions, ...order }));
  }

  /** The position that each place in the row is told, if any. */
  const positions = () => ({ shuffleTokens: choices.order, shufflePatches: inOrder })[name];

  function deal({ image, lit }) {
    const patches = greyPatches(image, config), { order } = choices;
    pieces.replaceChildren(...hand(patches, order, positions(), lit, config));
    if (positions()) places.replaceChildren(...believed(patches, order, positions(), config));
  }

  function show(given) {
    state = given;
    if (shuffles) deal(state);
    if (!guess && name !== "reshape") return;
    const [before, after] = run(state);
    if (name === "reshape") pieces.replaceChildren(...taken(after, config));
    if (guess) compare(before.probabilities, after.probabilities);
  }

  /** What was guessed for another digit or another choice isn't judged again: then the card only tells what happens. */
  function compare(before, after) {
    const { empty, image } = state, judged = guess.image === image && guess.choices === choices;
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", judged && GUESSES[i] === guess.kind));
    barsBefore.show(empty ? undefined : before);
    barsAfter.show(empty ? undefined : after);
    if (name !== "shuffleBag") { // the same before and after, as the bars show
      const [healthy] = measured(rows, "healthy"), found = measured(rows, name, choices), several = found.length > 1;
      scores.replaceChildren(title(TEXT.guess.accuracy(images)), score(TEXT.guess.before, healthy, "before"),
        score(several ? TEXT.guess.mean(found.length) : TEXT.guess.after, mean(found), "after"),
        ...(several ? [h("p.quiet", {}, TEXT.guess.orders(found))] : []));
    }
    const story = shuffles && equal(before, after) ? TEXT.guess.happened.unchanged(best(after)) : told(before, after);
    const called = guess.kind === happened(before, after) ? TEXT.guess.right : TEXT.guess.wrong;
    verdict.replaceChildren(...(empty ? [TEXT.guess.empty] : judged ? [h("strong", {}, called), ` ${story}`] : [story]));
  }
  return show;
}

/** A few experiments to choose from, one at a time. */
export function chooser(root, names, model) {
  const stage = h("div.live-card");
  let show, state;
  const open = (name) => { show = experiment(stage, name, model); if (state) show(state); };
  const options = names.map((name) => ({ value: name, label: TEXT.experiments[name].title }));
  root.replaceChildren(chips(TEXT.chooser, options, open), stage);
  open(names[0]);
  return (given) => { state = given; show(state); };
}
