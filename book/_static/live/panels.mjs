// What happens to the digit, in the order in which it happens. A panel is built once, and gives the function that shows a state:
// { image, model, trace, lit, query, block, head …}, where lit and query are tokens, 0 the class token.

import { h } from "./dom.mjs";
import { paint, paintGrey } from "./paint.mjs";
import { TEXT } from "./text.mjs";
import { tiles } from "./tiles.mjs";
import { attentionPanel } from "./attention.mjs";
import { best } from "./bars.mjs";
import { greyPatches, gridOf, paintPatches, thumb, tokenTiles } from "./tokens.mjs";
import { answersOnTheWay } from "./vit.mjs";

function patchesPanel(root, { config }, update) {
  const [gh, gw] = gridOf(config), [ph, pw] = config.patch_size;
  const grid = tiles({
    label: TEXT.patches.grid(gh * gw), columns: gw, count: gh * gw, kind: "apart", name: (i) => TEXT.tile(i + 1, gw),
    onChoose: (i) => update({ lit: i + 1 }), onPoint: (i) => update({ lit: i + 1 }),
  });
  const numbers = h("div.live-numbers", { style: `--columns: ${pw}`, "aria-hidden": "true" }, ...Array.from({ length: ph * pw }, () => h("span")));
  const said = h("p"), row = h("canvas.live-strip");
  root.replaceChildren(
    h("div.live-pair", {}, grid.element, h("div", {}, said, numbers)),
    h("div", {}, row, h("p.quiet", {}, TEXT.patches.row(ph * pw))));
  return ({ image, lit }) => {
    const patches = greyPatches(image, config), patch = Math.max(lit, 1);
    patches.forEach((pixels, i) => paintGrey(grid.canvases[i], pw, pixels));
    grid.mark(patch - 1, lit - 1);
    said.textContent = TEXT.patches.numbers(patch, ph * pw);
    patches[patch - 1].forEach((grey, i) => {
      numbers.children[i].textContent = grey;
      // black on what is lighter than the grey on which black and white stand out alike
      numbers.children[i].style.cssText = `background: rgb(${grey} ${grey} ${grey}); color: ${grey > 117 ? "#000" : "#fff"}`;
    });
    paintGrey(row, ph * pw, patches[patch - 1]);
  };
}

const STRONG = 3; // a token's number that gets the full colour; positions reach 1

function tokensPanel(root, { config, parts }, update) {
  const grid = tokenTiles(config, TEXT.tokens.grid, { onChoose: (lit) => update({ lit }), onPoint: (lit) => update({ lit }) });
  const dim = config.embed_dim, line = () => ({ strip: h("canvas.live-strip"), said: h("span") });
  const content = line(), position = line(), sum = line();
  const full = h("p.quiet", {}, TEXT.tokens.full(STRONG));
  const shown = ({ strip, said }, sign) => h("div.live-term", {}, h("b", { "aria-hidden": "true" }, sign), strip, said);
  root.replaceChildren(h("div.live-pair", {}, grid.element, h("div.live-terms", {}, shown(content, ""), shown(position, "+"), shown(sum, "="), full)));
  return (state) => {
    const { trace, lit } = state, row = (x) => x.subarray(lit * dim, (lit + 1) * dim), kind = lit === 0 ? "class-token" : "projection";
    paintPatches(grid, state);
    grid.mark(lit, lit);
    paint(content.strip, dim, lit === 0 ? parts.cls_token : trace.embedded.subarray((lit - 1) * dim, lit * dim), kind, STRONG);
    paint(position.strip, dim, row(trace.positions), "positions", STRONG);
    paint(sum.strip, dim, row(trace.tokens), kind, STRONG);
    content.said.textContent = TEXT.tokens.content(lit);
    position.said.textContent = TEXT.tokens.position(lit);
    sum.said.textContent = TEXT.tokens.sum;
  };
}

/** The length of each row. */
const lengths = (x, dim) => Array.from({ length: x.length / dim }, (_, i) => Math.hypot(...x.subarray(i * dim, (i + 1) * dim)));

function streamPanel(root, model) {
  const { depth, embed_dim: dim, num_classes } = model.config, [, gw] = gridOf(model.config);
  const stages = [TEXT.stream.start, ...Array.from({ length: depth }, (_, b) => TEXT.stream.layer(b + 1))].map((name) => {
    const map = thumb(), length = h("td.number"), answer = h("td.answer"), cells = Array.from({ length: num_classes }, () => h("td.cell.answer"));
    return { row: h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, map.element), length, answer, ...cells), map, length, answer, cells };
  });
  const digits = Array.from({ length: num_classes }, (_, digit) => h("th.cell", { scope: "col" }, String(digit)));
  const { stage, lengths: all, length, answer, caption } = TEXT.stream;
  const heads = [stage, all, length, answer].map((name) => h("th", { scope: "col" }, name));
  const table = h("table.live-table", {}, h("caption", {}, caption),
    h("thead", {}, h("tr", {}, ...heads, ...digits)), h("tbody", {}, ...stages.map(({ row }) => row)));
  const scale = h("p.quiet");
  root.replaceChildren(h("div.live-scroll", { tabindex: 0, role: "region", "aria-label": caption }, table), scale);
  return ({ trace, lit, empty }) => {
    root.classList.toggle("empty", empty);
    const streams = [trace.tokens, ...trace.blocks.map(({ out }) => out)].map((x) => lengths(x, dim));
    const longest = Math.max(...streams.flatMap((all) => all.slice(1)));
    scale.textContent = TEXT.stream.scale(longest);
    answersOnTheWay(model, trace).forEach((probabilities, stage) => {
      const { map, length, answer, cells } = stages[stage], digit = best(probabilities);
      paint(map.canvas, gw, streams[stage].slice(1), "projection", longest);
      map.light(lit, model.config);
      length.textContent = TEXT.number(streams[stage][0], 1);
      answer.textContent = `${digit}, ${TEXT.percent(probabilities[digit])}`;
      cells.forEach((cell, k) => {
        cell.style.setProperty("--part", probabilities[k]);
        cell.title = TEXT.percent(probabilities[k]);
      });
    });
  };
}

function logitsPanel(root, { config }) {
  const rows = Array.from({ length: config.num_classes }, (_, digit) => {
    const logit = h("td.number"), bar = h("span"), probability = h("td.number"), fill = h("span.fill");
    const drawn = [["td.signed", bar], ["td.track", fill]].map(([cell, shape]) => h(cell, { "aria-hidden": "true" }, shape));
    const cells = [logit, drawn[0], probability, drawn[1]], row = h("tr", {}, h("th", { scope: "row" }, String(digit)), ...cells);
    for (const cell of cells) cell.classList.add("answer");
    return { row, logit, bar, probability, fill };
  });
  const { digit, logit, probability } = TEXT.logits;
  const names = [digit, logit, probability].map((name, i) => h("th", { scope: "col", colspan: i ? 2 : 1 }, name));
  const caption = h("caption");
  root.replaceChildren(h("table.live-table.live-logits", {}, caption,
    h("thead", {}, h("tr", {}, ...names)), h("tbody", {}, ...rows.map(({ row }) => row))));
  return ({ trace: { logits, probabilities }, empty }) => {
    root.classList.toggle("empty", empty);
    caption.textContent = empty ? TEXT.logits.empty : TEXT.logits.caption;
    const largest = Math.max(...logits.map(Math.abs));
    rows.forEach(({ row, logit, bar, probability, fill }, digit) => {
      const part = logits[digit] / largest;
      logit.textContent = TEXT.number(logits[digit], 1);
      bar.style.cssText = `left: ${50 + Math.min(part, 0) * 50}%; width: ${Math.abs(part) * 50}%`;
      probability.textContent = TEXT.percent(probabilities[digit]);
      fill.style.width = `${100 * probabilities[digit]}%`;
      row.classList.toggle("best", !empty && digit === best(probabilities));
    });
  };
}

export const PANELS = { patches: patchesPanel, tokens: tokensPanel, attention: attentionPanel, stream: streamPanel, logits: logitsPanel };
