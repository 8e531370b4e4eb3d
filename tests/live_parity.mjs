// Reads {model, images, change} from standard input, runs vit.mjs, and writes what it computed on the way:
// a line of names and lengths, in JSON, then for each image all the numbers as float64.
import { readFileSync, writeSync } from "node:fs";
import { INTERVENTIONS } from "../book/_static/live/interventions.mjs";
import * as vit from "../book/_static/live/vit.mjs";

const { model, images, change } = JSON.parse(readFileSync(0, "utf8"));
const loaded = vit.loadModel(model), changes = change ? INTERVENTIONS[change.name](change.choices) : {};

const flat = (arrays) => Float64Array.from(arrays.flatMap((array) => Array.from(array)));

function write(bytes) {
  for (let at = 0; at < bytes.length; ) at += writeSync(1, bytes, at);
}

images.forEach((image, i) => {
  const found = computed(vit, loaded, image, changes);
  if (i === 0) write(Buffer.from(JSON.stringify(Object.entries(found).map(([name, array]) => [name, array.length])) + "\n"));
  for (const array of Object.values(found)) write(Buffer.from(Float64Array.from(array).buffer));
});

// All that the page's model computes for an image, by name, as flat arrays.
function computed({ forward, answersOnTheWay }, loaded, image, changes) {
  const trace = forward(loaded, image, changes), { patches, embedded, tokens, features, logits, probabilities } = trace;
  const found = { patches, embedded, tokens, features, logits, probabilities, answers: flat(answersOnTheWay(loaded, trace)) };
  trace.blocks.forEach(({ attn, ...block }, i) => {
    for (const [name, array] of Object.entries({ ...block, attn: attn.out })) found[`${i}.${name}`] = array;
    for (const name of ["q", "k", "v", "scores", "weights"]) found[`${i}.${name}`] = flat(attn.heads.map((head) => head[name]));
  });
  return found;
}
