// Ten small images, each above its attention map: the image pale and grey, and the more attention, the more colour.

import { h } from "../dom.mjs";

const PALE = 0.55, INDIGO = [51, 34, 136], FULL = 0.95; // as plots.overlay_map draws

/** Digits in base 36, a root-scaled share each, as numbers of 0 to `top`. */
export const decoded = (digits, { levels, top }) => Float64Array.from(digits, (digit) => top * (parseInt(digit, 36) / (levels - 1)) ** 2);

/** One tile for each image of the strip `address`, `side` pixels high; `names` stand under them. */
export async function tiles(address, side, names) {
  const strip = new Image();
  strip.src = address;
  await strip.decode();
  return names.map((name, i) => {
    const [picture, map] = [0, 1].map(() => h("canvas", { width: side, height: side, "aria-hidden": "true" }));
    const pen = picture.getContext("2d"), brush = map.getContext("2d");
    pen.drawImage(strip, -i * side, 0);
    const seen = pen.getImageData(0, 0, side, side).data;
    /** Draws a map of (side / patch)² numbers, in full colour where it is `limit` or more. */
    const paint = (values, limit) => {
      const drawn = brush.createImageData(side, side), grid = Math.sqrt(values.length), patch = side / grid;
      for (let y = 0; y < side; y++)
        for (let x = 0; x < side; x++) {
          const at = 4 * (y * side + x), grey = PALE + ((1 - PALE) * (seen[at] + seen[at + 1] + seen[at + 2])) / (3 * 255);
          const share = FULL * Math.min(values[Math.floor(y / patch) * grid + Math.floor(x / patch)] / limit, 1);
          INDIGO.forEach((colour, c) => { drawn.data[at + c] = 255 * grey * (1 - share) + colour * share; });
          drawn.data[at + 3] = 255;
        }
      brush.putImageData(drawn, 0, 0);
    };
    return { element: h("figure", {}, picture, map, h("figcaption", {}, name)), picture, map, paint };
  });
}
