// Figure 2.7: which positions are alike, for three tables and any patch; the tokens may arrive in another order.

import { button, columns, figure, menu, number, say, slider, told, viridis } from "./stage.mjs";
import { h } from "../dom.mjs";
import { shuffled } from "../interventions.mjs";
import { sincos2d } from "../vit.mjs";

/** The cosine between each pair of rows. */
function cosines(rows) {
  const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
  return rows.map((a) => rows.map((b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b))));
}

figure("positions", (stage, data, text) => {
  const { side, dim, lowest } = data, n = side ** 2, inOrder = Array.from({ length: n }, (_, i) => i);
  // Rows 1 to n of a table; the class token has row 0. A grid n high and one wide counts along the sequence, with one clock.
  const rows = (table, width, used) => inOrder.map((i) => table.slice((1 + i) * width, (1 + i) * width + used));
  const tables = {
    one: cosines(rows(sincos2d([n, 1], 2 * dim), 2 * dim, dim)),
    two: cosines(rows(sincos2d([side, side], dim), dim, dim)),
    learned: inOrder.map((i) => inOrder.map((j) => (i === j ? 1 : data.learned[Math.max(i, j)][Math.min(i, j)] / 100))),
  };
  let table = "two", row = 3, column = 3, order = inOrder, shuffles = 0;

  const cells = inOrder.map((place) => h("g", { transform: `translate(${place % side} ${Math.floor(place / side)})` },
    h("rect", { width: 0.96, height: 0.96, onclick: () => look(order[place]) }), h("text", { x: 0.48, y: 0.6 })));
  const frame = h("rect", { class: "fig-frame", width: 0.96, height: 0.96 });
  const grid = h("svg", { viewBox: `-0.1 -0.1 ${side + 0.2} ${side + 0.2}`, class: "fig-cells", role: "img" }, ...cells, frame);
  const steps = [0, 0.25, 0.5, 0.75, 1].map(viridis).join(", ");
  const scale = h("div", {}, h("div", { class: "fig-scale", style: `background: linear-gradient(to right, ${steps})` }),
    h("div", { class: "fig-ends" }, h("span", {}, `≤ ${lowest}`), h("span", {}, text.cosine), h("span", {}, "1")));

  const tableMenu = menu(text.table, Object.entries(text.tables), table, (value) => { table = value; draw(); });
  const rowSlider = slider(text.row, { min: 0, max: side - 1, value: row }, (value) => { row = value; draw(); });
  const columnSlider = slider(text.column, { min: 0, max: side - 1, value: column }, (value) => { column = value; draw(); });
  const shuffle = button(text.shuffle, () => { order = shuffled(n, ++shuffles); draw(); });
  const restore = button(text.restore, () => { order = inOrder; draw(); });
  const line = told(6);
  stage.append(columns([grid, scale], [tableMenu.element, rowSlider.element, columnSlider.element, h("div", { class: "fig-controls" }, shuffle, restore), line]));

  function look(patch) {
    rowSlider.set(Math.floor(patch / side));
    columnSlider.set(patch % side);
  }

  function draw() {
    const patch = row * side + column, alike = tables[table][patch];
    cells.forEach((cell, place) => {
      const share = (alike[order[place]] - lowest) / (1 - lowest);
      cell.firstChild.setAttribute("fill", viridis(share));
      cell.lastChild.textContent = order[place];
      cell.lastChild.style.fill = share > 0.55 ? "#000" : "#fff";
    });
    const place = order.indexOf(patch);
    frame.setAttribute("transform", `translate(${place % side} ${Math.floor(place / side)})`);
    grid.setAttribute("aria-label", say(text.grid, { patch }));
    const beside = { above: row > 0 && patch - side, below: row < side - 1 && patch + side, left: column > 0 && patch - 1, right: column < side - 1 && patch + 1 };
    const neighbours = Object.entries(beside).filter(([, there]) => there !== false).map(([where, there]) => say(text.neighbours[where], { cosine: number(alike[there], 2) })).join(", ");
    const least = alike.indexOf(Math.min(...alike)), told_ = say(text.cosines, { patch, neighbours, least, cosine: number(alike[least], 2) });
    line.textContent = order === inOrder ? told_ : `${told_} ${text.shuffled}`;
  }
  draw();
});
