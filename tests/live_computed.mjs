// All that the page's model computes for an image, by name, as flat arrays: for Node and for a browser.

export function computed({ forward, answersOnTheWay }, loaded, image, changes, keep) {
  const trace = forward(loaded, image, changes), { logits } = trace;
  if (keep === "logits") return { logits };
  const { patches, embedded, tokens, features, probabilities } = trace;
  const found = { patches, embedded, tokens, features, logits, probabilities, answers: flat(answersOnTheWay(loaded, trace)) };
  trace.blocks.forEach(({ attn, ...block }, i) => {
    for (const [name, array] of Object.entries({ ...block, attn: attn.out })) found[`${i}.${name}`] = array;
    for (const name of ["q", "k", "v", "scores", "weights"]) found[`${i}.${name}`] = flat(attn.heads.map((head) => head[name]));
  });
  return found;
}

const flat = (arrays) => Float64Array.from(arrays.flatMap((array) => Array.from(array)));
