// A grid of small canvases to choose from: one stop for the Tab key, arrow keys inside, as a list box.

import { freshId, h } from "./dom.mjs";

/**
 * `count` tiles in rows of `columns`; with `lead`, the first one stands above the others.
 * onChoose: by click or arrow keys; onPoint: by a mouse that passes over.
 */
export function tiles({ label, columns, count, name, lead = "", kind = "", onChoose, onPoint = () => {} }) {
  const options = Array.from({ length: count }, (_, i) => {
    const canvas = h("canvas");
    const listeners = { onclick: () => onChoose(i), onpointerenter: () => onPoint(i) };
    const names = { id: freshId(), role: "option", "aria-label": name(i), "aria-selected": "false", title: name(i) };
    const option = h("div.live-tile", { ...names, ...listeners }, canvas);
    if (lead && i === 0) { option.classList.add("lead"); option.append(h("span", {}, lead)); }
    return { option, canvas };
  });
  const box = { role: "listbox", tabindex: 0, "aria-label": label, style: `--columns: ${columns}`, onkeydown: move };
  const element = h("div.live-tiles", box, ...options.map(({ option }) => option));
  if (kind) element.classList.add(kind);
  let chosen = 0;

  function move(event) {
    const first = lead ? 1 : 0, step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (!step) return;
    event.preventDefault();
    let to = chosen + step;
    if (lead && chosen === 0) to = step > 0 ? 1 : 0;
    else if (to < first) to = lead ? 0 : chosen;
    if (to < count && to !== chosen) onChoose((chosen = to)); // two keys may come before the page is drawn
  }

  return {
    element,
    canvases: options.map(({ canvas }) => canvas),
    /** Marks the chosen tile, and the one that is lit on the whole page. */
    mark(choice, lit = -1) {
      chosen = choice;
      element.setAttribute("aria-activedescendant", options[choice].option.id);
      options.forEach(({ option }, i) => {
        option.setAttribute("aria-selected", i === choice);
        option.classList.toggle("lit", i === lit);
      });
    },
    relabel: (i, text) => options[i].option.setAttribute("aria-label", text),
  };
}
