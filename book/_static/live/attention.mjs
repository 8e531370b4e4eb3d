// Every head of every layer for one query, and the arithmetic of one weight.

import { h } from "./dom.mjs";
import { paint } from "./paint.mjs";
import { TEXT } from "./text.mjs";
import { tiles } from "./tiles.mjs";
import { gridOf, paintPatches, tokenTiles } from "./tokens.mjs";

export function attentionPanel(root, { config }, update) {
  const { depth, num_heads: heads, embed_dim } = config, headDim = embed_dim / heads;
  const [gh, gw] = gridOf(config), n = 1 + gh * gw, light = (lit) => update({ lit });
  const queries = tokenTiles(config, TEXT.attention.queries, { onChoose: (query) => update({ query, lit: query }), onPoint: light });
  const all = tiles({
    label: TEXT.attention.heads(depth, heads), columns: heads, count: depth * heads, kind: "maps",
    name: (i) => TEXT.attention.head(Math.floor(i / heads) + 1, (i % heads) + 1),
    onChoose: (i) => update({ block: Math.floor(i / heads), head: i % heads }),
  });
  const keys = tokenTiles(config, "", { kind: "weights", onChoose: light, onPoint: light });
  const strongest = all.canvases.map((canvas) => { const said = h("span"); canvas.after(said); return said; });
  const title = (text) => h("p.live-title", {}, text), weightsOf = title(""), scale = h("p.quiet");
  const sum = h("div.live-sum"), strip = (colour) => ({ canvas: h("canvas.live-strip"), said: h("span"), colour });
  const q = strip("query"), k = strip("key"), v = strip("value"), out = strip("value");
  const dot = h("b"), score = h("b"), weight = h("b"), times = h("b");
  const number = (value, said) => h("div.live-number", {}, value, h("span", {}, said));
  const sign = (text) => h("b", { "aria-hidden": "true" }, text);
  const term = ({ canvas, said }, factor) => h("div.live-term", {}, factor, canvas, said);
  sum.append(term(q, sign("")), term(k, sign("·")),
    h("div.live-steps", {}, number(dot, TEXT.attention.dot), number(score, TEXT.attention.score(headDim, heads)),
      number(weight, TEXT.attention.softmax(n))),
    term(v, times), term(out, sign("Σ")));
  root.replaceChildren(
    h("div.live-trio", {}, h("div", {}, title(TEXT.attention.queries), queries.element),
      h("div", {}, title(TEXT.attention.heads(depth, heads)), all.element, h("p.quiet", {}, TEXT.attention.strongest)), h("div", {}, weightsOf, keys.element, scale)),
    sum);

  return (state) => {
    const { trace, lit, query, block, head } = state, one = trace.blocks[block].attn.heads[head];
    const row = (matrix, i, size) => matrix.subarray(i * size, (i + 1) * size);
    paintPatches(queries, state);
    queries.mark(query, lit);
    trace.blocks.forEach(({ attn }, b) => attn.heads.forEach(({ weights }, i) => {
      const tile = b * heads + i, patches = row(weights, query, n).subarray(1), most = Math.max(...patches);
      paint(all.canvases[tile], gw, patches, "attention", most);
      strongest[tile].textContent = TEXT.percent(most);
      all.relabel(tile, TEXT.attention.upTo(TEXT.attention.head(b + 1, i + 1), most));
    }));
    all.mark(block * heads + head);
    const looks = row(one.weights, query, n), most = Math.max(...looks);
    looks.forEach((part, i) => {
      paint(keys.canvases[i], 1, [part], "attention", most);
      keys.relabel(i, TEXT.attention.weight(i, part));
    });
    keys.mark(lit, lit);
    weightsOf.textContent = TEXT.attention.weights(block + 1, head + 1, query);
    scale.textContent = TEXT.attention.scale(most);
    keys.element.setAttribute("aria-label", weightsOf.textContent);

    const mine = row(one.q, query, headDim), theirs = row(one.k, lit, headDim);
    const product = mine.reduce((total, value, i) => total + value * theirs[i], 0);
    const size = (numbers) => Math.max(...numbers.map(Math.abs)), both = Math.max(size(mine), size(theirs));
    const show = ({ canvas, said, colour }, numbers, text, largest = size(numbers)) => {
      paint(canvas, headDim, numbers, colour, largest);
      said.textContent = TEXT.attention.full(text, largest);
    };
    show(q, mine, TEXT.attention.query(query), both);
    show(k, theirs, TEXT.attention.key(lit), both);
    show(v, row(one.v, lit, headDim), TEXT.attention.value(lit));
    show(out, row(one.out, query, headDim), TEXT.attention.out(n));
    [dot.textContent, score.textContent] = [TEXT.number(product), TEXT.number(one.scores[query * n + lit])];
    weight.textContent = TEXT.number(looks[lit], 3);
    times.textContent = `${TEXT.number(looks[lit], 3)} ×`;
  };
}
