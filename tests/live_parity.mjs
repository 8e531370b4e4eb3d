// Reads {model, images, change, keep} from standard input, runs vit.mjs, and writes what it computed on the way:
// a line of names and lengths, in JSON, then for each image all the numbers as float64.
import { readFileSync, writeSync } from "node:fs";
import { INTERVENTIONS } from "../book/_static/live/interventions.mjs";
import * as vit from "../book/_static/live/vit.mjs";
import { computed } from "./live_computed.mjs";

const { model, images, change, keep } = JSON.parse(readFileSync(0, "utf8"));
const loaded = vit.loadModel(model), changes = change ? INTERVENTIONS[change.name](change.choices) : {};

function write(bytes) {
  for (let at = 0; at < bytes.length; ) at += writeSync(1, bytes, at);
}

images.forEach((image, i) => {
  const found = computed(vit, loaded, image, changes, keep);
  if (i === 0) write(Buffer.from(JSON.stringify(Object.entries(found).map(([name, array]) => [name, array.length])) + "\n"));
  for (const array of Object.values(found)) write(Buffer.from(Float64Array.from(array).buffer));
});
