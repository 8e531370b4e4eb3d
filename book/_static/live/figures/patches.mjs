// Figure 1.2: the photograph cut into patches of any size, right by rearrange and scrambled by a bare reshape.

import { figure, say, slider, told } from "./stage.mjs";
import { h } from "../dom.mjs";

const CHANNELS = 3, FRAME = 3;

/** From (H, W, c, with alpha) as a canvas has it to (c, H, W) as PyTorch has it. */
function channelsFirst(rgba, side) {
  const image = new Uint8Array(CHANNELS * side * side);
  for (let c = 0; c < CHANNELS; c++) for (let i = 0; i < side * side; i++) image[c * side * side + i] = rgba[4 * i + c];
  return image;
}

/** Where in memory the numbers of all tokens come from: "c (gh ph) (gw pw) -> (gh gw) (c ph pw)", or as they lie there. */
const source = {
  rearrange: (side, size, token, c, y, x) => {
    const grid = side / size;
    return (c * side + Math.floor(token / grid) * size + y) * side + (token % grid) * size + x;
  },
  reshape: (side, size, token, c, y, x) => ((token * CHANNELS + c) * size + y) * size + x,
};

figure("patches", async (stage, data, text) => {
  const { side, sizes } = data, photo = new Image();
  photo.src = data.photo;
  await photo.decode();
  const pen = h("canvas", { width: side, height: side }).getContext("2d");
  pen.drawImage(photo, 0, 0);
  const image = channelsFirst(pen.getImageData(0, 0, side, side).data, side);

  let size = 32, token = 0;
  const ways = Object.keys(source), line = told(), counts = told(1);
  const canvases = ways.map((way) => h("canvas", { role: "img", onclick: (event) => pick(way, event) }));
  const sizeSlider = slider(text.size, { min: 0, max: sizes.length - 1, value: sizes.indexOf(size), told: (i) => say(text.pixels, { size: sizes[i] }) }, (i) => {
    size = sizes[i];
    tokenSlider.input.max = (side / size) ** 2 - 1;
    tokenSlider.set(0);
  });
  const tokenSlider = slider(text.token, { min: 0, max: (side / size) ** 2 - 1, value: token, told: (value) => say(text.of, { token: value, last: (side / size) ** 2 - 1 }) }, (value) => { token = value; draw(); });
  stage.append(h("div", { class: "fig-controls" }, sizeSlider.element, tokenSlider.element), counts,
    h("div", { class: "fig-pair" }, ...ways.map((way, i) => h("figure", {}, h("figcaption", {}, text[way]), canvases[i]))), line);

  const gap = () => (size < 4 ? 0 : Math.max(1, Math.round(size / 8))); // patches lift apart
  function pick(way, event) {
    const canvas = canvases[ways.indexOf(way)], grid = side / size;
    const [x, y] = [event.offsetX / canvas.clientWidth, event.offsetY / canvas.clientHeight].map((share) => Math.min(Math.floor(share * grid), grid - 1));
    tokenSlider.set(y * grid + x);
  }

  function draw() {
    const grid = side / size, tokens = grid ** 2, whole = side + gap() * (grid - 1);
    const count = (value) => value.toLocaleString(document.documentElement.lang);
    ways.forEach((way, i) => {
      const canvas = canvases[i], context = canvas.getContext("2d");
      canvas.width = canvas.height = whole;
      const shown = context.createImageData(whole, whole);
      for (let t = 0; t < tokens; t++)
        for (let y = 0; y < size; y++)
          for (let x = 0; x < size; x++) {
            const to = 4 * ((Math.floor(t / grid) * (size + gap()) + y) * whole + (t % grid) * (size + gap()) + x);
            for (let c = 0; c < CHANNELS; c++) shown.data[to + c] = image[source[way](side, size, t, c, y, x)];
            shown.data[to + 3] = 255;
          }
      context.putImageData(shown, 0, 0);
      context.lineWidth = FRAME;
      context.strokeStyle = getComputedStyle(canvas).getPropertyValue("--key");
      context.strokeRect((token % grid) * (size + gap()), Math.floor(token / grid) * (size + gap()), size, size);
      canvas.setAttribute("aria-label", say(text.drawn, { way: text[way], size }));
    });
    const width = count(CHANNELS * size ** 2);
    counts.textContent = tokens === 1 ? say(text.one, { width }) : say(text.counts, { grid, tokens: count(tokens), width, pairs: count(tokens ** 2) });
    const [top, left] = [Math.floor(token / grid) * size, (token % grid) * size];
    const channel = (i) => Math.floor(i / (side * side)), first = channel(source.reshape(side, size, token, 0, 0, 0)), last = channel(source.reshape(side, size, token, CHANNELS - 1, size - 1, size - 1));
    const lines = +((CHANNELS * size ** 2) / side).toPrecision(3), colours = text.colours.slice(first, last + 1).join(text.and);
    line.textContent = say(text.token_is, { token, top, bottom: top + size - 1, left, right: left + size - 1, lines, colours });
  }
  draw();
});
