// Figure 3.3: the pencil's three tokens. Queries and values can be changed, the values by dragging; scores may be heated.

import { button, columns, figure, number, say, slider, told } from "./stage.mjs";
import { h } from "../dom.mjs";
import { attentionScores, mix, softmax } from "../vit.mjs";

const LOW = -3, HIGH = 15, HOT = 4, COLD = 1 / 4;
const BESIDE = [{ x: 0.6, y: -0.5 }, { x: -0.6, y: 0.7, "text-anchor": "end" }, { x: -0.5, y: -0.6, "text-anchor": "end" }]; // an output's name

figure("attention", (stage, data, text) => {
  const { names, features, keys } = data, three = [0, 1, 2];
  let queries, values, temperature = 1, reader = 0;
  const restore = () => { queries = data.queries.map((row) => [...row]); values = data.values.map((row) => [...row]); };
  restore();

  // What each token brings, in boxes.
  const box = (rows, i, j, label, kind, limits) => h("input", {
    type: "number", class: `fig-${kind}`, "aria-label": label, value: rows()[i][j], ...limits,
    oninput: ({ target }) => { if (target.validity.valid && target.value !== "") { rows()[i][j] = +target.value; draw(); } },
  });
  const queryBoxes = names.map((_, i) => features.map((feature, j) => box(() => queries, i, j, `${names[i]}, ${say(text.query, { feature })}`, "query", { min: 0, max: 4, step: "any" })));
  const valueBoxes = names.map((_, i) => [0, 1].map((j) => box(() => values, i, j, `${names[i]}, ${say(text.value, { axis: j + 1 })}`, "value", { min: LOW + 1, max: HIGH - 1, step: "any" })));
  const brings = h("table", { class: "fig-table" }, h("caption", {}, text.brings),
    h("thead", {}, h("tr", {}, h("td"), h("th", { colspan: 4, scope: "colgroup", class: "fig-query-ink" }, text.queries), h("th", { colspan: 2, scope: "colgroup", class: "fig-value-ink" }, text.values))),
    h("tbody", {}, ...names.map((name, i) => h("tr", {}, h("th", { scope: "row" }, name), ...[...queryBoxes[i], ...valueBoxes[i]].map((input) => h("td", {}, input))))));

  // The softmax, a row for each reader.
  const cells = names.map(() => names.map(() => h("td", { class: "fig-weight" }))), outputCells = names.map(() => h("td"));
  const weighs = h("table", { class: "fig-table" }, h("caption", {}, text.weights),
    h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "fig-key-ink" }, text.key), ...names.map((name, j) => h("th", { scope: "col" }, name, h("br"), h("span", { class: "fig-key-ink" }, keys[j].join(" ")))), h("th", { scope: "col" }, text.output))),
    h("tbody", {}, ...names.map((name, i) => {
      const radio = h("input", { type: "radio", name: "fig-reader", "aria-label": say(text.reader, { name }), onchange: () => { reader = i; draw(); } });
      radio.checked = i === reader;
      return h("tr", {}, h("th", { scope: "row" }, h("label", {}, radio, " ", name)), ...cells[i], outputCells[i]);
    })));

  // The plane. Its second number points up.
  const up = ([x, y]) => [x, -y];
  const triangle = h("polygon", { class: "fig-shade" });
  const rays = names.map(() => h("line", { class: "fig-attention-line" }));
  const dots = names.map((name, i) => h("g", {}, h("circle", { r: 0.42, class: "fig-attention" }), h("text", { ...BESIDE[i], class: "fig-attention-ink" }, name)));
  const handles = names.map((name, i) => h("g", {
    class: "fig-handle", tabindex: 0, role: "slider", "aria-label": say(text.valueOf, { name }), "aria-valuemin": LOW + 1, "aria-valuemax": HIGH - 1,
    onpointerdown: (event) => { if (!event.button) event.currentTarget.setPointerCapture(event.pointerId); },
    onpointermove: (event) => { if (event.buttons && event.currentTarget.hasPointerCapture(event.pointerId)) move(i, pointed(event)); },
    onkeydown: (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      if (!step) return;
      event.preventDefault();
      move(i, values[i].map((value, axis) => value + step[axis]));
    },
  }, h("circle", { r: 1.6, class: "fig-grip" }), h("rect", { x: -0.45, y: -0.45, width: 0.9, height: 0.9, class: "fig-value" }), h("text", { y: 1.5, "text-anchor": "middle", class: "fig-value-ink" }, name)));
  const plane = h("svg", { viewBox: `${LOW} ${-HIGH} ${HIGH - LOW} ${HIGH - LOW}`, class: "fig-plane", "aria-label": text.plane, role: "group" },
    h("path", { d: `M${LOW} 0H${HIGH}M0 ${-HIGH}V${-LOW}`, class: "fig-axis" }), triangle, ...rays, ...handles, ...dots);

  const pointed = (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(plane.getScreenCTM().inverse());
    return [at.x, -at.y].map((value) => Math.round(2 * value) / 2);
  };
  const move = (i, to) => {
    values[i] = to.map((value) => Math.min(Math.max(value, LOW + 1), HIGH - 1));
    valueBoxes[i].forEach((input, j) => { input.value = values[i][j]; });
    draw();
  };

  const heat = slider(text.temperature, { min: -3, max: 3, step: 0.25, value: 0, told: (power) => number(2 ** power, 2) }, (power) => { temperature = 2 ** power; draw(); });
  const again = button(text.reset, () => {
    restore();
    [queryBoxes, valueBoxes].forEach((boxes, kind) => boxes.forEach((row, i) => row.forEach((input, j) => { input.value = (kind ? values : queries)[i][j]; })));
    heat.set(0);
  });
  const line = told();
  stage.append(columns([heat.element, plane, line], [weighs, brings, again]));

  function draw() {
    const scores = attentionScores(queries.flat(), keys.flat(), features.length);
    const weights = softmax(scores.map((score) => (score * data.base) / temperature), names.length);
    const outputs = mix(weights, values.flat(), 2), output = (i) => [outputs[2 * i], outputs[2 * i + 1]];
    three.forEach((i) => {
      three.forEach((j) => {
        const weight = weights[3 * i + j];
        cells[i][j].style.setProperty("--share", `${70 * weight}%`);
        cells[i][j].replaceChildren(h("b", {}, number(weight, 2)), h("small", {}, number(scores[3 * i + j], 1)));
      });
      outputCells[i].textContent = output(i).map((value) => number(value, 1)).join(", ");
      outputCells[i].parentElement.classList.toggle("is-chosen", i === reader);
      handles[i].setAttribute("transform", `translate(${up(values[i])})`);
      handles[i].setAttribute("aria-valuenow", values[i][0]);
      handles[i].setAttribute("aria-valuetext", values[i].map((value) => number(value, 1)).join(", "));
      dots[i].setAttribute("transform", `translate(${up(output(i))})`);
      const [[x1, y1], [x2, y2]] = [up(output(reader)), up(values[i])];
      for (const [name, value] of Object.entries({ x1, y1, x2, y2, "stroke-width": 0.9 * weights[3 * reader + i] })) rays[i].setAttribute(name, value);
    });
    triangle.setAttribute("points", values.map(up).join(" "));
    const shares = three.map((j) => say(text.share, { weight: number(weights[3 * reader + j], 2), name: names[j] })).join(", ");
    const [x, y] = output(reader).map((value) => number(value, 2));
    const extreme = temperature >= HOT ? ` ${text.hot}` : temperature <= COLD ? ` ${text.cold}` : "";
    line.textContent = say(text.reads, { name: names[reader], shares, x, y }) + extreme;
  }
  draw();
});
