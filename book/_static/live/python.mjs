// The digit as Python, to go on with in a notebook.

import { h } from "./dom.mjs";
import { TEXT } from "./text.mjs";

/** Lines that draw the same image and ask the same model. */
export const asPython = (strokes, run) => `from vit_tutorial.live import draw_strokes
from vit_tutorial.runs import load_recorded
from vit_tutorial.training import to_input

digit = draw_strokes([${strokes.map((points) => `[${points.map(([x, y]) => `(${x}, ${y})`).join(", ")}]`).join(", ")}])
model, recipe = load_recorded("${run}")
logits = model(to_input(digit[None, None], recipe))[0]
`;

export function python(root) {
  const code = h("code"), copied = h("span", { role: "status" });
  const copy = async () => {
    getSelection().selectAllChildren(code);
    try {
      await navigator.clipboard.writeText(code.textContent);
      copied.textContent = TEXT.code.copied;
    } catch { // not allowed, or the page didn't come by https: the text is selected
      copied.textContent = TEXT.code.selected;
    }
  };
  root.replaceChildren(
    h("div.live-code", { tabindex: 0, role: "region", "aria-label": TEXT.code.label }, h("pre", {}, code)),
    h("div.live-tools", {}, copied, h("button.live-button", { type: "button", onclick: copy }, TEXT.code.copy)));
  return ({ strokes, model }) => {
    code.textContent = asPython(strokes, model.name);
    copied.textContent = "";
  };
}
