// The tokens of a model as tiles: the class token, and the patches in their grid.

import { h } from "./dom.mjs";
import { paintGrey } from "./paint.mjs";
import { TEXT } from "./text.mjs";
import { tiles } from "./tiles.mjs";
import { patchify } from "./vit.mjs";

export const gridOf = ({ img_size, patch_size }) => img_size.map((size, axis) => size / patch_size[axis]);

/** The grey values of each patch. */
export function greyPatches(image, config) {
  const size = config.patch_size[0] * config.patch_size[1], all = patchify(image, config.img_size, config.patch_size);
  return Array.from({ length: all.length / size }, (_, i) => all.subarray(i * size, (i + 1) * size));
}

/** All tokens to choose from, the patches painted as they are. */
export function tokenTiles(config, label, more) {
  const [gh, gw] = gridOf(config);
  return tiles({ label, columns: gw, count: 1 + gh * gw, lead: TEXT.token(0), name: (i) => TEXT.tile(i, gw), ...more });
}

export function paintPatches(grid, { image, model: { config } }) {
  greyPatches(image, config).forEach((patch, i) => paintGrey(grid.canvases[i + 1], config.patch_size[1], patch));
}

/** A small picture with a box around one patch: its canvas, and a function that moves the box. */
export function thumb() {
  const canvas = h("canvas"), lit = h("span.live-lit", { hidden: true });
  const light = (token, config) => {
    const [gh, gw] = gridOf(config), [row, column] = [Math.floor((token - 1) / gw), (token - 1) % gw];
    lit.hidden = token === 0;
    lit.style.cssText = `width: ${100 / gw}%; height: ${100 / gh}%; left: ${(100 * column) / gw}%; top: ${(100 * row) / gh}%`;
  };
  return { element: h("span.live-thumb", {}, canvas, lit), canvas, light };
}
