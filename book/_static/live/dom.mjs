// Elements of the page in one line each.

const SVG = new Set(["svg", "g", "polyline", "polygon", "line", "circle", "path", "rect", "text"]);

/** h("p.note", { id: "a", onclick }, "text", child): an element with its class, attributes, listeners and children. */
export function h(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(key.slice(2), value);
    else if (typeof value === "boolean") element.toggleAttribute(key, value);
    else element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

let count = 0;
/** An id that no other element of the page has. */
export const freshId = () => `live-${count++}`;

/** A choice of one among a few, as native radio buttons in the dress of chips. */
export function chips(legend, options, onChoose) {
  const name = freshId();
  const inputs = options.map(({ value, label }, i) => {
    const input = h("input", { type: "radio", name, value, "aria-label": label, checked: i === 0, onchange: () => onChoose(value) });
    return h("label.live-chip", {}, input, h("span", {}, label));
  });
  return h("fieldset.live-chips", {}, h("legend", {}, legend), ...inputs);
}
