// The Vision Transformer of this book for one image, in plain loops: chapters 1 to 5 once more, with vit_tutorial's names.
// A matrix is an array of numbers, row after row. `forward` returns everything that is computed on the way.

export const NORM_EPS = 1e-6;

/** x Wᵀ + b for each row of x. W is (out, in), as `nn.Linear` keeps it. */
export function linear(x, { weight, bias }) {
  const out = bias.length, dim = weight.length / out, rows = x.length / dim, y = new Float64Array(rows * out);
  for (let row = 0; row < rows; row++) {
    const from = row * dim, to = row * out;
    let o = 0;
    for (; o + 3 < out; o += 4) { // four outputs at a time: each number of x is fetched once for all
      const w = o * dim;
      let a = bias[o], b = bias[o + 1], c = bias[o + 2], d = bias[o + 3];
      for (let i = 0; i < dim; i++) {
        const value = x[from + i];
        a += value * weight[w + i];
        b += value * weight[w + dim + i];
        c += value * weight[w + 2 * dim + i];
        d += value * weight[w + 3 * dim + i];
      }
      y[to + o] = a; y[to + o + 1] = b; y[to + o + 2] = c; y[to + o + 3] = d;
    }
    for (; o < out; o++) {
      let sum = bias[o];
      for (let i = 0; i < dim; i++) sum += x[from + i] * weight[o * dim + i];
      y[to + o] = sum;
    }
  }
  return y;
}

/** Each row to mean 0 and variance 1, then scaled and shifted by learned numbers. */
export function layerNorm(x, { weight, bias }, eps = NORM_EPS) {
  const dim = weight.length, y = new Float64Array(x.length);
  for (let from = 0; from < x.length; from += dim) {
    let mean = 0, variance = 0;
    for (let i = 0; i < dim; i++) mean += x[from + i] / dim;
    for (let i = 0; i < dim; i++) variance += (x[from + i] - mean) ** 2 / dim;
    const scale = 1 / Math.sqrt(variance + eps);
    for (let i = 0; i < dim; i++) y[from + i] = (x[from + i] - mean) * scale * weight[i] + bias[i];
  }
  return y;
}

/** The error function to double precision: its series without cancellation. Source: Abramowitz and Stegun, 7.1.6. */
export function erf(x) {
  if (Math.abs(x) >= 6) return Math.sign(x); // 2e-17 from it
  let sum = x, term = x;
  for (let odd = 3; Math.abs(term) > 1e-17 * Math.abs(sum); odd += 2) sum += term *= (2 * x * x) / odd;
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

export const gelu = (x) => x.map((value) => (value * (1 + erf(value / Math.SQRT2))) / 2);

/** Each run of `size` numbers to probabilities. */
export function softmax(x, size) {
  const y = new Float64Array(x.length);
  for (let from = 0; from < x.length; from += size) {
    let largest = -Infinity, sum = 0;
    for (let i = from; i < from + size; i++) largest = Math.max(largest, x[i]);
    for (let i = from; i < from + size; i++) sum += y[i] = Math.exp(x[i] - largest);
    for (let i = from; i < from + size; i++) y[i] /= sum;
  }
  return y;
}

export const add = (x, y) => x.map((value, i) => value + y[i]);

/** An image, row after row, to patches, row after row: "(gh ph) (gw pw) -> (gh gw) (ph pw)". */
export function patchify(image, [H, W], [ph, pw]) {
  const patches = new Float64Array(image.length), gw = W / pw;
  for (let y = 0; y < H; y++)
    for (let x = 0; x < W; x++) {
      const patch = Math.floor(y / ph) * gw + Math.floor(x / pw);
      patches[patch * ph * pw + (y % ph) * pw + (x % pw)] = image[y * W + x];
    }
  return patches;
}

/** Sines and cosines: the row in the first half of a token, the column in the second. The class token gets zeros. */
export function sincos2d([gh, gw], dim) {
  const half = dim / 2, table = new Float64Array((1 + gh * gw) * dim);
  for (let p = 0; p < gh * gw; p++)
    for (let i = 0; i < half; i++)
      [Math.floor(p / gw), p % gw].forEach((position, axis) => {
        const angle = position * 10000 ** -((i - (i % 2)) / half);
        table[(1 + p) * dim + axis * half + i] = Math.fround(i % 2 ? Math.cos(angle) : Math.sin(angle)); // fp32, as PyTorch
      });
  return table;
}

/** The token rows of the (n, 3·dim) matrix `qkv` as queries, keys or values of one head, (n, headDim). */
function oneHead(qkv, third, head, n, dim, headDim) {
  const part = new Float64Array(n * headDim);
  for (let token = 0; token < n; token++) {
    const from = token * 3 * dim + third * dim + head * headDim;
    part.set(qkv.subarray(from, from + headDim), token * headDim);
  }
  return part;
}

/** q kᵀ times `scale`: how well each query and each key agree, (n, n). */
export function attentionScores(q, k, headDim, scale = headDim ** -0.5) {
  const n = q.length / headDim, scores = new Float64Array(n * n);
  for (let i = 0; i < n; i++)
    for (let j = 0; j < n; j++) {
      let sum = 0;
      for (let d = 0; d < headDim; d++) sum += q[i * headDim + d] * k[j * headDim + d];
      scores[i * n + j] = sum * scale;
    }
  return scores;
}

/** The weighted mean of the values, for each row of weights. */
export function mix(weights, v, headDim) {
  const n = v.length / headDim, out = new Float64Array(v.length);
  for (let i = 0; i < n; i++)
    for (let j = 0; j < n; j++)
      for (let d = 0; d < headDim; d++) out[i * headDim + d] += weights[i * n + j] * v[j * headDim + d];
  return out;
}

/** Multi-head attention over the tokens x; `change` may put other scores, weights or outputs in the place of a head's. */
export function attention(x, { qkv, proj }, numHeads, change) {
  const dim = proj.bias.length, headDim = dim / numHeads, n = x.length / dim;
  const projected = linear(x, qkv), mixed = new Float64Array(x.length);
  const heads = Array.from({ length: numHeads }, (_, head) => {
    const [q, k, v] = [0, 1, 2].map((third) => oneHead(projected, third, head, n, dim, headDim));
    const scores = attentionScores(q, k, headDim, change.scale?.(headDim));
    const weights = change.weights(softmax(change.scores(scores), n), n);
    const out = change.head(mix(weights, v, headDim), head);
    for (let token = 0; token < n; token++)
      mixed.set(out.subarray(token * headDim, (token + 1) * headDim), token * dim + head * headDim);
    return { q, k, v, scores, weights, out };
  });
  return { heads, out: linear(mixed, proj) };
}

/** One encoder block: x plus attention of its norm, plus the MLP of that one's norm. */
export function block(x, part, numHeads, change) {
  const norm1 = change.norm(x, part.norm1), attn = attention(norm1, part.attn, numHeads, change), middle = add(x, attn.out);
  const norm2 = change.norm(middle, part.norm2), hidden = gelu(linear(norm2, part.mlp.fc1)), mlp = linear(hidden, part.mlp.fc2);
  return { norm1, attn, middle, norm2, hidden, mlp, out: add(middle, mlp) };
}

/** What `forward` does with a healthy model. `interventions.mjs` has the others: each replaces some of these. */
export const HEALTHY = {
  patchify, // image, img_size, patch_size
  order: (tokens) => tokens, // of the patch tokens, before they get their positions
  reorder: (tokens) => tokens, // of the patch tokens, with their positions
  positions: (table) => table,
  norm: layerNorm,
  scale: undefined, // of the scores: head_dim ** −0.5
  scores: (scores) => scores,
  weights: (weights) => weights,
  head: (out) => out,
  block: (result, x) => result.out,
  read: (features, dim) => features.subarray(0, dim), // the class token
};

/** An image of numbers in 0..1, row after row, to ten logits, with all that lies between. */
export function forward({ config, parts }, image, changes = {}) {
  const change = { ...HEALTHY, ...changes }, { img_size, patch_size, embed_dim: dim, num_heads } = config;
  const pixels = Float64Array.from(image, (value) => (value - config.mean) / config.std);
  const patches = change.patchify(pixels, img_size, patch_size);
  const embedded = linear(patches, parts.patch_embed.proj);
  const patchTokens = change.order(embedded, dim);
  const grid = img_size.map((size, axis) => size / patch_size[axis]);
  const content = new Float64Array(dim + patchTokens.length);
  content.set(parts.cls_token);
  content.set(patchTokens, dim);
  const positions = change.positions(sincos2d(grid, dim)), placed = add(content, positions), tokens = placed.slice();
  tokens.set(change.reorder(placed.subarray(dim), dim), dim);
  const blocks = [];
  let x = tokens;
  parts.blocks.forEach((part, index) => {
    const inBlock = { ...change, head: (out, head) => change.head(out, head, index) };
    const result = block(x, part, num_heads, inBlock);
    x = change.block(result, x, index);
    blocks.push({ ...result, out: x });
  });
  const features = layerNorm(x, parts.norm), logits = linear(change.read(features, dim), parts.head);
  return { patches, embedded, positions, tokens, blocks, features, logits, probabilities: softmax(logits, logits.length) };
}

/** What the model would answer if it stopped after each block, and before the first: the head on the class token. */
export function answersOnTheWay({ config, parts }, { tokens, blocks }) {
  return [tokens, ...blocks.map(({ out }) => out)].map((x) => {
    const logits = linear(layerNorm(x.subarray(0, config.embed_dim), parts.norm), parts.head);
    return softmax(logits, logits.length);
  });
}

/** The numbers of half precision in the bytes of a string in base64: all high bytes, then all low ones. */
function halves(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0)), count = bytes.length >> 1;
  const numbers = new Float32Array(count);
  for (let i = 0; i < count; i++) {
    const bits = (bytes[i] << 8) | bytes[count + i], exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
    numbers[i] = bits >> 15 ? -size : size;
  }
  return { numbers, checksum: adler32(bytes) };
}

function adler32(bytes) {
  let a = 1, b = 0;
  for (const byte of bytes) { a = (a + byte) % 65521; b = (b + a) % 65521; }
  return b * 65536 + a;
}

/** What `vit-tutorial export` wrote, as a model: `parts.blocks[0].attn.qkv.weight` is where PyTorch has it, too. */
export function loadModel({ config, tensors, checksum, float16 }) {
  const found = halves(float16);
  if (found.checksum !== checksum) throw new Error(`damaged weights: their checksum is ${found.checksum}, and should be ${checksum}`);
  const parts = {};
  let from = 0;
  for (const [name, size] of tensors) {
    const path = name.split("."), last = path.pop();
    let place = parts;
    path.forEach((key, i) => { place = place[key] ??= /^\d+$/.test(path[i + 1]) ? [] : {}; });
    place[last] = found.numbers.subarray(from, from += size);
  }
  if (from !== found.numbers.length) throw new Error(`damaged weights: ${found.numbers.length} numbers, and should be ${from}`);
  return { config, parts };
}
