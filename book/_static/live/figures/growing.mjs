// Figure 8.7: where the class token looks as training goes on, in any layer and head, and how much of it is on the object.

import { chart } from "./chart.mjs";
import { columns, figure, menu, number, say, slider, told } from "./stage.mjs";
import { h } from "../dom.mjs";
import { decoded, tiles } from "./tiles.mjs";

figure("growing", async (stage, data, text) => {
  const { epochs, layers, heads, places } = data, images = await tiles(data.images, data.side, data.names);
  const maps = data.maps.map((digits) => decoded(digits, data));
  let at = 0, layer = -1, head = -1; // -1 is the mean over all

  const all = (count) => Array.from({ length: count }, (_, i) => i);
  const numbered = (every, count, sentence) => [[-1, every], ...all(count).map((i) => [i, say(sentence, { number: i + 1 })])];
  const epochSlider = slider(text.epoch, { min: 0, max: epochs.length - 1, value: at, told: (i) => (epochs[i] ? String(epochs[i]) : text.untrained) }, (value) => { at = value; draw(); });
  const layerMenu = menu(text.layer, numbered(text.allLayers, layers, text.one), layer, (value) => { layer = +value; draw(); });
  const headMenu = menu(text.head, numbered(text.allHeads, heads, text.one), head, (value) => { head = +value; draw(); });
  const line = told(4), gallery = h("div", { class: "fig-tiles", role: "img", "aria-label": text.gallery }, ...images.map(({ element }) => element));
  const host = h("div"), controls = h("div", { class: "fig-controls" }, epochSlider.element, layerMenu.element, headMenu.element);
  stage.append(controls, gallery, columns([h("p", { class: "fig-title" }, h("span", { class: "fig-swatch", style: "border-color: var(--other)" }), text.accuracy, h("br"), h("span", { class: "fig-swatch", style: "border-color: var(--attention)" }), text.onObject), host], [line]));

  const onObject = (stage_) => data.on_object[stage_][layer + 1][head + 1];

  function draw() {
    const which = { layers: layer < 0 ? all(layers) : [layer], heads: head < 0 ? all(heads) : [head] };
    images.forEach(({ paint }, image) => {
      const mean = new Float64Array(places);
      for (const l of which.layers)
        for (const h of which.heads) {
          const from = ((l * images.length + image) * heads + h) * places;
          for (let i = 0; i < places; i++) mean[i] += maps[at][from + i] / (which.layers.length * which.heads.length);
        }
      paint(mean, data.limit);
    });
    const curves = [
      { x: data.accuracy.map((_, i) => i + 1), y: data.accuracy, colour: "var(--other)" },
      { x: epochs, y: epochs.map((_, i) => onObject(i)), colour: "var(--attention)", dots: true },
    ];
    const last = data.accuracy.length;
    const curve = chart({ height: 190, from: [0, 0], to: [last, 100], xs: [0, ...epochs.slice(1)], ys: [0, 50, 100], xName: text.epoch, label: text.chart, curves });
    host.replaceChildren(curve.picture);
    curve.mark(epochs[at]);
    const values = { epoch: epochs[at], on: number(onObject(at)), even: number(data.even), right: epochs[at] ? number(data.accuracy[epochs[at] - 1]) : "" };
    line.textContent = say(epochs[at] ? text.trained : text.fresh, values);
  }
  draw();
});
