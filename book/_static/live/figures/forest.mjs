// Figure 10.4: what each change does, sorted and filtered. The axis is linear between −1 and 1 and logarithmic beyond.

import { figure, menu, number, say, tick, told } from "./stage.mjs";
import { h } from "../dom.mjs";

const FROM = -90, TO = 13, TICKS = [-30, -3, 0, 3], LINEAR = 0.35; // the linear part is that much of a decade
const bent = (x) => Math.sign(x) * (Math.abs(x) < 1 ? LINEAR * Math.abs(x) : LINEAR + Math.log10(Math.abs(x)));
const across = (x) => (100 * (bent(Math.min(Math.max(x, FROM), TO)) - bent(FROM))) / (bent(TO) - bent(FROM));
const signed = (x, digits = 1) => (x > 0 ? "+" : "") + number(x, digits);

/** Worse, better, or neither where the interval holds both signs. */
const verdict = ([, low, high]) => (high < 0 ? "worse" : low > 0 ? "better" : "unclear");

figure("forest", (stage, data, text) => {
  const changes = Object.entries(data.kinds).flatMap(([kind, group]) => Object.entries(group).map(([change, effects]) => ({ kind, change, effects })));
  let set = "cifar10", kind = "", order = "chapter", clear = false;

  const sets = menu(text.data, Object.entries(text.sets), set, (value) => { set = value; draw(); });
  const kinds = menu(text.kind, [["", text.every], ...Object.keys(data.kinds).map((name) => [name, name])], kind, (value) => { kind = value; draw(); });
  const orders = menu(text.order, Object.entries(text.orders), order, (value) => { order = value; draw(); });
  const only = tick(text.clear, clear, (value) => { clear = value; draw(); });
  const line = told(2), body = h("tbody"), head = h("thead"), key = h("p", { class: "fig-key" });
  stage.append(h("div", { class: "fig-controls" }, sets.element, kinds.element, orders.element, only.element), line, key,
    h("table", { class: "fig-table fig-forest" }, h("caption", {}, text.table), head, body));

  const shownSets = () => (set === "all" ? data.sets : [set]);
  const mean = ({ effects }, i) => shownSets().filter((name) => effects[name]).reduce((sum, name, _, all) => sum + effects[name][i] / all.length, 0);
  const sorts = { worst: (a, b) => mean(a, 0) - mean(b, 0), best: (a, b) => mean(b, 0) - mean(a, 0), unsure: (a, b) => mean(b, 2) - mean(b, 1) - mean(a, 2) + mean(a, 1) };

  /** An interval's line and its dot, hollow where there are two runs only. */
  function mark(effect, colour, lane) {
    const [middle, low, high, runs] = effect, top = `calc(50% + ${0.4 * lane}rem)`;
    return [h("span", { class: "fig-interval", style: `left: ${across(low)}%; width: ${across(high) - across(low)}%; top: ${top}; background: ${colour}` }),
      h("span", { class: "fig-dot", style: `left: ${across(middle)}%; top: ${top}; border-color: ${colour}; background: ${runs > 2 ? colour : "var(--paper)"}` })];
  }

  function row({ change, effects }) {
    const several = set === "all", there = shownSets().filter((name) => effects[name]);
    const marks = there.flatMap((name) => mark(effects[name], several ? `var(--${name})` : `var(--${verdict(effects[name])})`, several ? data.sets.indexOf(name) - 1 : 0));
    const numbers = there.map((name) => signed(effects[name][0])), ends = there.map((name) => say(text.between, { low: signed(effects[name][1]), high: signed(effects[name][2]) }));
    const track = h("td", { class: several ? "fig-track is-high" : "fig-track" }, h("span", { class: "fig-zero", style: `left: ${across(0)}%` }), ...marks);
    const told_ = several ? numbers.map((value, i) => h("span", { class: "fig-line", style: `color: var(--${there[i]}-ink)`, title: `${text.sets[there[i]]}: ${ends[i]}` }, value)) : numbers;
    return h("tr", {}, h("th", { scope: "row" }, change), track, h("td", {}, ...told_), ...(several ? [] : [h("td", { class: "fig-wide" }, ...ends)]));
  }

  function draw() {
    const tried = changes.filter((each) => (!kind || each.kind === kind) && shownSets().some((name) => each.effects[name]));
    const shown = tried.filter(({ effects }) => !clear || shownSets().some((name) => effects[name] && verdict(effects[name]) !== "unclear"));
    if (sorts[order]) shown.sort(sorts[order]);
    const axis = h("th", { scope: "col", class: "fig-track" }, ...TICKS.map((value) => h("span", { class: "fig-tickmark", style: `left: ${across(value)}%` }, signed(value, 0))));
    head.replaceChildren(h("tr", {}, h("th", { scope: "col" }, text.change), axis, h("th", { scope: "col" }, text.effect), ...(set === "all" ? [] : [h("th", { scope: "col", class: "fig-wide" }, text.interval)])));
    body.replaceChildren(...shown.map(row));
    key.replaceChildren(...(set === "all" ? data.sets.map((name) => h("span", { style: `color: var(--${name}-ink)` }, `● ${text.sets[name]} `)) : []));
    key.hidden = set !== "all";
    if (set === "all") {
      const verdicts = tried.map(({ effects }) => Object.values(effects).map(verdict)).filter((found) => found.length > 1);
      const agree = verdicts.filter((found) => found[0] !== "unclear" && found.every((each) => each === found[0])).length;
      const differ = verdicts.filter((found) => found.includes("worse") && found.includes("better")).length;
      line.textContent = say(text.agree, { all: verdicts.length, agree, differ, shown: shown.length });
    } else {
      const count = (word) => tried.filter(({ effects }) => verdict(effects[set]) === word).length;
      const [worse, better] = [count("worse"), count("better")];
      line.textContent = say(text.counted, { clear: worse + better, all: tried.length, worse, better, shown: shown.length });
    }
  }
  draw();
});
