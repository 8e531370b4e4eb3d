// Figure 8.5: behind each dot, what the single patches read, in any layer and head of a small model.

import { columns, figure, menu, number, say, slider, told } from "./stage.mjs";
import { h } from "../dom.mjs";
import { decoded, tiles } from "./tiles.mjs";

figure("heads", async (stage, data, text) => {
  const { grid, heads, layers, names } = data, images = await tiles(data.images, data.side, names);
  const rows = decoded(data.rows, data), patches = grid ** 2;
  let image = 0, layer = 0, head = 0, row = 3, column = 3;

  const numbered = (count) => Array.from({ length: count }, (_, i) => [i, say(text.one, { number: i + 1 })]);
  const controls = [
    menu(text.image, [...names.entries()], image, (value) => { image = +value; draw(); }),
    menu(text.layer, numbered(layers), layer, (value) => { layer = +value; draw(); }),
    menu(text.head, numbered(heads), head, (value) => { head = +value; draw(); }),
  ];
  const rowSlider = slider(text.row, { min: 0, max: grid - 1, value: row }, (value) => { row = value; draw(); });
  const columnSlider = slider(text.column, { min: 0, max: grid - 1, value: column }, (value) => { column = value; draw(); });
  const frame = h("rect", { class: "fig-frame", width: 1, height: 1 });
  const over = h("svg", { viewBox: `0 0 ${grid} ${grid}`, "aria-hidden": "true", onclick: pick }, frame);
  const shown = h("div", { class: "fig-over", role: "img" }), picture = h("div", { role: "img" }), line = told(4);
  stage.append(h("div", { class: "fig-controls" }, ...controls.map(({ element }) => element)),
    columns([h("div", { class: "fig-pair" }, picture, shown)], [rowSlider.element, columnSlider.element, line]));

  function pick(event) {
    const box = over.getBoundingClientRect(), place = (at, from, size) => Math.min(Math.floor((grid * (at - from)) / size), grid - 1);
    rowSlider.set(place(event.clientY, box.top, box.height));
    columnSlider.set(place(event.clientX, box.left, box.width));
  }

  function draw() {
    const patch = row * grid + column, from = ((layer * names.length + image) * heads + head) * patches + patch, tile = images[image];
    tile.paint(rows.subarray(from * patches, (from + 1) * patches), data.limit);
    picture.replaceChildren(tile.picture);
    shown.replaceChildren(tile.map, over);
    frame.setAttribute("transform", `translate(${column} ${row})`);
    picture.setAttribute("aria-label", say(text.picture, { image: names[image] }));
    shown.setAttribute("aria-label", say(text.map, { image: names[image], layer: layer + 1, head: head + 1 }));
    line.textContent = say(text.far, { here: number(data.far[from], 1), mean: number(data.mean[layer][head], 1), even: number(data.even, 1) });
  }
  draw();
});
