// Ten probabilities as ten bars.

import { h } from "./dom.mjs";
import { TEXT } from "./text.mjs";

export function bars(label) {
  const rows = Array.from({ length: 10 }, (_, digit) => {
    const fill = h("span.fill"), percent = h("span.percent");
    const track = h("span.track", { "aria-hidden": "true" }, fill);
    return { row: h("li", {}, h("span.digit", {}, String(digit)), track, percent), fill, percent };
  });
  const element = h("ul.live-bars", { "aria-label": label, role: "list" }, ...rows.map(({ row }) => row));
  /** Shows probabilities; none where there is nothing to ask about. */
  const show = (probabilities) => rows.forEach(({ row, fill, percent }, digit) => {
    const value = probabilities?.[digit] ?? 0;
    fill.style.width = `${100 * value}%`;
    percent.textContent = probabilities ? TEXT.percent(value) : "";
    row.classList.toggle("best", probabilities !== undefined && digit === best(probabilities));
  });
  show();
  return { element, show };
}

/** The place of the largest number. */
export const best = (numbers) => numbers.indexOf(Math.max(...numbers));
