// The set-up of reveal.js: slides as large as they fit, T for light or dark, and keys that a live figure has to itself.
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)").matches && !/print-pdf/.test(location.search);
root.dataset.mode = root.dataset.theme = dark ? "dark" : "light";
const inFigure = (element) => element.closest(".fig-stage");
const deck = {
  width: 1280, height: 720, margin: 0, center: false, hash: true, slideNumber: "c/t", controls: false,
  transition: "none", viewDistance: 1000,
  keyboard: { 84: () => { root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark"; } },
  keyboardCondition: ({ target, key }) => !inFigure(target) && !(target.localName === "button" && key === " "),
};
const over = (e) => e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1;
const fit = (slide) => {
  const image = slide.querySelector("img"), scrolls = "pre, .highlight, .cell_output, :has(> table)";
  const boxes = [slide, ...slide.querySelectorAll(scrolls)];
  slide.classList.toggle("tall", image?.naturalWidth < 1.45 * image?.naturalHeight && !slide.querySelector("button"));
  for (let zoom = image ? 1.5 : 2.4; ; zoom -= 0.05) {
    slide.style.setProperty("--zoom", zoom);
    if (zoom < (slide.querySelector(".is-live") ? 0.7 : 1.3) || !boxes.some(over)) break;
  }
};
const fitAll = () => document.querySelectorAll(".slide").forEach(fit);
for (const event of ["ready", "pdf-ready"]) Reveal.on(event, () => document.fonts.ready.then(fitAll));
addEventListener("load", fitAll);
const watch = new ResizeObserver((changes) => changes.forEach(({ target }) => fit(target.closest(".slide"))));
document.querySelectorAll(".live-figure").forEach((figure) => watch.observe(figure));
addEventListener("keydown", ({ target, key }) => { if (key === "Escape" && inFigure(target)) target.blur(); });
