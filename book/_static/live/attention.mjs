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
  out.said.textContent = TEXT.attention.out(n);
  root.replaceChildren(
    h("div.live-trio", {}, h("div", {}, title(TEXT.attention.queries), queries.element),
      h("div", {}, title(TEXT.attention.heads(depth, heads)), all.element), h("div", {}, weightsOf, keys.element, scale)),
    sum);

  return (state) => {
    const { trace, lit, query, block, head } = state, one = trace.blocks[block].attn.heads[head];
    const row = (matrix, i, size) => matrix.subarray(i * size, (i + 1) * size);
    paintPatches(queries, state);
    queries.mark(query, lit);
    trace.blocks.forEach(({ attn }, b) => attn.heads.forEach(({ weights }, i) =>
      paint(all.canvases[b * heads + i], gw, row(weights, query, n).subarray(1), "attention")));
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
    const largest = Math.max(...[...mine, ...theirs].map(Math.abs)), values = row(one.v, lit, headDim);
    paint(q.canvas, headDim, mine, q.colour, largest);
    paint(k.canvas, headDim, theirs, k.colour, largest);
    paint(v.canvas, headDim, values, v.colour);
    paint(out.canvas, headDim, row(one.out, query, headDim), out.colour);
    q.said.textContent = TEXT.attention.query(query);
    k.said.textContent = TEXT.attention.key(lit);
    v.said.textContent = TEXT.attention.value(lit);
    [dot.textContent, score.textContent] = [TEXT.number(product), TEXT.number(one.scores[query * n + lit])];
    weight.textContent = TEXT.number(looks[lit], 3);
    times.textContent = `${TEXT.number(looks[lit], 3)} ×`;
  };
}
