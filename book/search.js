// How Sphinx ranks what it finds: chapters before other pages, the one that says it first before later ones, their
// headings above all, and the API last.
Scorer.score = (result) => {
  const [page, title, anchor, description, score] = result;
  const chapter = page.match(/^notebooks\/(\d+)/);
  const isSection = anchor && description === null;
  if (isSection && !title.includes(" > ")) result[1] = `${title} > ${headingAt(page, anchor)}`;
  return score + (chapter ? 40 - chapter[1] : page === "book/api" ? 0 : 20) + (isSection ? 20 : 0);
};

const headingAt = (page, anchor) => {
  const { alltitles, docnames } = Search._index;
  const isHere = ([number, id]) => docnames[number] === page && `#${id}` === anchor;
  return Object.keys(alltitles).find((heading) => alltitles[heading].some(isHere));
};

// An excerpt quotes the text, and no code, formulas or handles.
const excerpt = Search.makeSearchSummary;
Search.makeSearchSummary = (html, ...rest) => {
  const page = new DOMParser().parseFromString(html, "text/html");
  page.querySelectorAll("h1, .chapter-line, .cell, math, svg, summary, footer").forEach((element) => element.remove());
  return excerpt(page.documentElement.outerHTML, ...rest);
};
