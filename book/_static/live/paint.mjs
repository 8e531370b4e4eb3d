// Numbers as colours: one colour per thing, as in the book's figures, from the style sheet of the page.

const known = {};

/** Red, green and blue of the custom property --NAME, which holds six hexadecimal digits. */
function colour(name) {
  const root = document.documentElement, written = () => getComputedStyle(root).getPropertyValue(`--${name}`);
  return (known[`${root.dataset.theme} ${name}`] ??= written().match(/[\da-f]{2}/gi).map((pair) => parseInt(pair, 16)));
}

/** Calls `draw` whenever the theme has changed: what was painted has the other theme's colours. */
export function onTheme(draw) {
  new MutationObserver(draw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}

function fill(canvas, columns, values, rgba) {
  const rows = values.length / columns;
  if (canvas.width !== columns || canvas.height !== rows) Object.assign(canvas, { width: columns, height: rows });
  const picture = new ImageData(columns, rows);
  for (let i = 0; i < values.length; i++) picture.data.set(rgba(values[i]), 4 * i);
  canvas.getContext("2d").putImageData(picture, 0, 0);
}

/** Strong where a number is large, the page's own paper where it is 0; below 0 in the colour of ink. */
export function paint(canvas, columns, values, name, largest = Math.max(...values.map(Math.abs))) {
  const plus = colour(name), minus = colour("minus");
  fill(canvas, columns, values, (value) => [...(value < 0 ? minus : plus), 255 * Math.min(Math.abs(value) / (largest || 1), 1)]);
}

/** Grey values as MNIST shows them: 0 black, 255 white, in both themes. */
export const paintGrey = (canvas, columns, bytes) => fill(canvas, columns, bytes, (grey) => [grey, grey, grey, 255]);
