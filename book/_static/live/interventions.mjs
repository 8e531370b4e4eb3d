// What can be done to a healthy model: each entry gives the changes that `forward` takes.
// The last four are patients of chapter 12, played on healthy weights.

/** The tokens in another order: row i of the result is row order[i]. */
export function permute(tokens, dim, order) {
  const permuted = new Float64Array(tokens.length);
  order.forEach((from, to) => permuted.set(tokens.subarray(from * dim, (from + 1) * dim), to * dim));
  return permuted;
}

/** Numbers 0 to n − 1 in an order that `seed` decides: the same in every browser and in Python. */
export function shuffled(n, seed) {
  const order = Array.from({ length: n }, (_, i) => i);
  let state = seed >>> 0;
  for (let i = n - 1; i > 0; i--) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    const j = Math.floor((state / 2 ** 32) * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

const meanOfTokens = (features, dim) => {
  const mean = new Float64Array(dim), n = features.length / dim;
  features.forEach((value, i) => { mean[i % dim] += value / n; });
  return mean;
};

export const INTERVENTIONS = {
  muteHead: ({ block, head }) => ({ head: (out, h, b) => (b === block && h === head ? out.map(() => 0) : out) }),
  muteBlock: ({ block }) => ({ block: (result, x, b) => (b === block ? x : result.out) }),
  uniform: () => ({ weights: (weights, n) => weights.map(() => 1 / n) }),
  shuffleTokens: ({ order }) => ({ reorder: (tokens, dim) => permute(tokens, dim, order) }),
  shufflePatches: ({ order }) => ({ order: (tokens, dim) => permute(tokens, dim, order) }),
  noPositions: () => ({ positions: (table) => table.map(() => 0) }),
  temperature: ({ temperature }) => ({ scores: (scores) => scores.map((score) => score / temperature) }),
  unscaled: () => ({ scale: () => 1 }),
  acrossBatch: () => ({ weights: (weights, n) => weights.map((_, i) => (i % (n + 1) === 0 ? 1 : 0)) }),
  deadNorm: () => ({ norm: (x) => x }),
  reshape: () => ({ patchify: (image) => image }),
  allTokens: () => ({ read: meanOfTokens }),
};
