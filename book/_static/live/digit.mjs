// Strokes to the image that the model gets, made the way MNIST's were: the digit in a box of 20 × 20, its centre of mass in the
// middle of 28 × 28. draw_strokes in vit_tutorial/live.py does the same, to the last grey level.

export const SIDE = 28, BOX = 20, PEN = 2.4; // in pixels

/** Lists of points [x, y], in any unit, to 784 bytes: 0 is paper, 255 ink. */
export function drawStrokes(strokes) {
  const segments = strokes.flatMap((points) => points.map((point, i) => [points[Math.max(i - 1, 0)], point]));
  if (!segments.length) return new Uint8Array(SIDE * SIDE);
  return centred(render(fitted(segments)));
}

/** The segments scaled so that their ink fills the box, which stands in the middle. */
function fitted(segments) {
  const points = segments.map(([, to]) => to);
  const [low, high] = [Math.min, Math.max].map((pick) => [0, 1].map((axis) => points.reduce((best, point) => pick(best, point[axis]), points[0][axis])));
  const extent = Math.max(high[0] - low[0], high[1] - low[1]), scale = extent > 0 ? (BOX - PEN) / extent : 1;
  const place = (point) => [0, 1].map((axis) => (point[axis] - (low[axis] + high[axis]) / 2) * scale + SIDE / 2);
  return segments.map(([from, to]) => [place(from), place(to)]);
}

/** Grey by the distance of a pixel's middle from the nearest segment: full inside the pen, none a pixel further out. */
function render(segments) {
  const image = new Uint8Array(SIDE * SIDE);
  for (let row = 0; row < SIDE; row++)
    for (let column = 0; column < SIDE; column++) {
      const x = column + 0.5, y = row + 0.5;
      let nearest = Infinity;
      for (const [[ax, ay], [bx, by]] of segments) {
        const dx = bx - ax, dy = by - ay, length = dx * dx + dy * dy;
        const along = length > 0 ? Math.min(Math.max(((x - ax) * dx + (y - ay) * dy) / length, 0), 1) : 0;
        const ex = x - (ax + along * dx), ey = y - (ay + along * dy);
        nearest = Math.min(nearest, ex * ex + ey * ey);
      }
      const ink = Math.min(Math.max(PEN / 2 + 0.5 - Math.sqrt(nearest), 0), 1);
      image[row * SIDE + column] = Math.floor(ink * 255 + 0.5);
    }
  return image;
}

/** The image moved by whole pixels until its centre of mass lies in pixel 14 of both axes; what leaves it is lost. */
function centred(image) {
  let mass = 0, down = 0, right = 0;
  image.forEach((grey, i) => { mass += grey; down += grey * Math.floor(i / SIDE); right += grey * (i % SIDE); });
  const shift = [down, right].map((sum) => SIDE / 2 - Math.floor(sum / mass)), moved = new Uint8Array(image.length);
  image.forEach((grey, i) => {
    const row = Math.floor(i / SIDE) + shift[0], column = (i % SIDE) + shift[1];
    if (row >= 0 && row < SIDE && column >= 0 && column < SIDE) moved[row * SIDE + column] = grey;
  });
  return moved;
}
