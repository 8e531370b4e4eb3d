// Figure 7.2: three runs, epoch by epoch, with the learning rate that each has left.

import { chart } from "./chart.mjs";
import { columns, figure, number, say, slider, told } from "./stage.mjs";
import { h } from "../dom.mjs";

const COLOURS = ["var(--better)", "var(--better)", "var(--other)"], DASHED = [false, true, false];

figure("recipes", (stage, data, text) => {
  const runs = data.runs.map((run, i) => ({ ...run, name: text.runs[i], x: run.accuracy.map((_, epoch) => epoch + 1), colour: COLOURS[i], dashed: DASHED[i] }));
  const last = Math.max(...runs.map(({ x }) => x.length)), xs = [1, 10, 20, 30];
  const accuracy = chart({ height: 240, from: [1, 20], to: [last, 90], xs, ys: [20, 40, 60, 80], xName: text.epoch, label: text.accuracyChart, curves: runs.map((run) => ({ ...run, y: run.accuracy })) });
  const rate = chart({ height: 130, from: [1, 0], to: [last, 100], xs, ys: [0, 50, 100], xName: text.epoch, label: text.rateChart, curves: runs.map((run) => ({ ...run, y: run.rate })) });
  const line = told(4), cells = runs.map(() => [h("td"), h("td")]);
  const table = h("table", { class: "fig-table fig-left" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, text.run), h("th", { scope: "col" }, text.accuracy), h("th", { scope: "col" }, text.rate))),
    h("tbody", {}, ...runs.map(({ name, colour, dashed }, i) => h("tr", {}, h("th", { scope: "row" }, h("span", { class: dashed ? "fig-swatch is-dashed" : "fig-swatch", style: `border-color: ${colour}` }), name), ...cells[i]))));
  const epochs = slider(text.epoch, { min: 1, max: last, value: 5 }, draw);
  stage.append(epochs.element, columns([h("p", { class: "fig-title" }, text.accuracyTitle), accuracy.picture, h("p", { class: "fig-title" }, text.rateTitle), rate.picture], [table, line]));

  function draw(epoch) {
    [accuracy, rate].forEach((each) => each.mark(epoch));
    runs.forEach((run, i) => {
      const over = epoch > run.x.length, at = Math.min(epoch, run.x.length) - 1;
      cells[i][0].textContent = `${number(run.accuracy[at], 1)} %`;
      cells[i][1].textContent = over ? text.ended : `${number(run.rate[at])} %`;
      cells[i][0].parentElement.classList.toggle("is-over", over);
    });
    const [long, short] = runs, end = short.x.length, now = epoch - 1;
    line.textContent = epoch > end
      ? say(text.later, { epoch, points: number(long.accuracy[now] - short.accuracy[end - 1], 1), rate: number(long.rate[now]) })
      : say(text.both, { epoch, points: number(short.accuracy[now] - long.accuracy[now], 1), short: number(short.rate[now]), long: number(long.rate[now]) });
  }
  draw(5);
});
