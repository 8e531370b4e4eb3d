// What the live figures share: the button that starts one, and controls with their labels.

import { h } from "../dom.mjs";

/** A sentence of the catalogue with its {places} filled. */
export const say = (sentence, values) => sentence.replace(/\{(\w+)\}/g, (_, name) => values[name]);

/** A number with so many digits behind the point, and a true minus. */
export const number = (value, digits = 0) => value.toFixed(digits).replace("-", "−").replace(/^−(0\.?0*)$/, "$1");

/** A slider: its label, and what `told` makes of its value. `changed` hears every new value. */
export function slider(label, { min, max, step = 1, value, told = String }, changed) {
  const shown = h("output"), input = h("input", { type: "range", min, max, step, value });
  const tell = () => { shown.textContent = told(+input.value); input.setAttribute("aria-valuetext", shown.textContent); };
  input.addEventListener("input", () => { tell(); changed(+input.value); });
  tell();
  const set = (to) => { input.value = to; tell(); changed(+input.value); };
  return { element: h("div", { class: "fig-control" }, h("label", {}, h("span", {}, label), input), shown), input, set };
}

/** A menu of [value, name] pairs. */
export function menu(label, options, value, changed) {
  const input = h("select", { onchange: () => changed(input.value) });
  input.append(...options.map(([key, name]) => h("option", { value: key, selected: key === value }, name)));
  return { element: h("div", { class: "fig-control" }, h("label", {}, h("span", {}, label), input)), input };
}

export const button = (label, pressed) => h("button", { type: "button", onclick: pressed }, label);

/** A tick box. */
export function tick(label, value, changed) {
  const input = h("input", { type: "checkbox", onchange: () => changed(input.checked) });
  input.checked = value;
  return { element: h("label", { class: "fig-tick" }, input, " ", label), input };
}

/** Side by side where there is room. */
export const columns = (...contents) => h("div", { class: "fig-columns" }, ...contents.map((content) => h("div", { class: "fig-column" }, ...content)));

/** A sentence that is read out when it changes, with room for so many lines that nothing below it moves. */
export const told = (lines = 3) => h("p", { class: "fig-told", role: "status", style: `--lines: ${lines}` });

/** The colour that a share of 0 to 1 has on matplotlib's viridis, the colours of the book's maps. */
const VIRIDIS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37]];
export function viridis(share) {
  const at = Math.min(Math.max(share, 0), 1) * (VIRIDIS.length - 1), low = Math.min(Math.floor(at), VIRIDIS.length - 2);
  return `rgb(${VIRIDIS[low].map((value, i) => Math.round(value + (at - low) * (VIRIDIS[low + 1][i] - value))).join(" ")})`;
}

/** The data that a figure's own file brings. A page from disk may load nothing but a script. */
async function brought(address, name) {
  await new Promise((done) => document.head.append(h("script", { src: address, onload: done, onerror: done })));
  const found = globalThis.liveFigures?.[name];
  if (!found) throw new Error(`${address} is missing or damaged`);
  return found;
}

/** Has a figure's button start it: `draw` gets the empty stage, the data and the words, once; and again where it failed. */
export function figure(name, draw) {
  for (const root of document.querySelectorAll(`[data-live="figures/${name}"]`)) {
    const [control, stage, given] = [".fig-switch", ".fig-stage", "script"].map((part) => root.querySelector(part));
    const { data, text, later } = JSON.parse(given.textContent);
    let started = false;
    const start = async () => {
      started = true;
      stage.replaceChildren(h("p.fig-loading", { role: "status" }, text.loading));
      const whole = later ? { ...data, ...(await brought(later, name)) } : data;
      stage.replaceChildren();
      await draw(stage, whole, text);
    };
    const fail = (error) => { started = false; stage.textContent = `${text.failed} (${error.message})`; };
    control.addEventListener("click", () => {
      const live = root.classList.toggle("is-live");
      if (live && !started) start().catch(fail);
      stage.hidden = !live;
      control.setAttribute("aria-expanded", live);
      control.textContent = live ? text.stop : text.start;
      control.scrollIntoView({ block: "nearest" });
    });
  }
}
