// How search ranks what it finds, and what it quotes. Sphinx runs this after its own searchtools.js.

// A section that teaches the term, then a page that is called so, then chapters before other pages, and the API last.
// Among pages that are alike, the one that uses the words most: book/_ext/ranking.py sorts the index by that.
Scorer.score = (result) => {
  const [page, title, anchor, description, score] = result;
  const query = queryText();
  const kind = page.startsWith("notebooks/") ? 40 : page === "book/api" ? 0 : 20;
  const isSection = anchor && description === null;
  if (isSection && !title.includes(" > ")) result[1] = `${title} > ${headingOf(page, anchor)}`;
  return score + kind + (isSection ? 20 : 0) + (title.toLowerCase() === query ? 200 : 0) + useOf(page, query);
};

const queryText = () => (new URLSearchParams(location.search).get("q") || "").toLowerCase().trim();

// What the section at this anchor is called.
const headingOf = (page, anchor) => {
  const { alltitles, docnames } = Search._index;
  const isHere = ([number, id]) => docnames[number] === page && `#${id}` === anchor;
  return Object.keys(alltitles).find((heading) => alltitles[heading].some(isHere));
};

// From 10 for the page that uses the query's words most towards 0.
const useOf = (page, query) => {
  const { docnames, titleterms, terms } = Search._index;
  const rankFor = (word) =>
    Math.max(...[titleterms[word], terms[word]].map((pages) => [pages].flat().indexOf(docnames.indexOf(page))));
  const [, words] = Search._parseQuery(query);
  const ranks = [...words].map(rankFor).filter((rank) => rank >= 0);
  return ranks.length ? Math.max(0, 10 - ranks.reduce((a, b) => a + b) / ranks.length) : 0;
};

// An excerpt comes from the article, without formulas and what only opens or shows something. It begins at a word.
Search.makeSearchSummary = (html, keywords, anchor) => {
  const article = new DOMParser().parseFromString(html, "text/html").querySelector("article");
  const part = (anchor && article.querySelector(`[id="${anchor.slice(1)}"]`)) || article;
  part.querySelectorAll("h1, .chapter-line, .headerlink, script, style, math, .cell, svg, summary")
    .forEach((element) => element.remove());
  const text = part.textContent.replace(/\s+/g, " ").trim();
  const found = [...keywords].map((word) => text.toLowerCase().indexOf(word)).filter((place) => place > 120);
  const start = found.length ? text.indexOf(" ", Math.min(...found) - 100) + 1 : 0;
  const summary = document.createElement("p");
  summary.className = "context";
  summary.textContent = (start ? "… " : "") + text.slice(start, start + 240).replace(/\s\S*$/, " …");
  return summary;
};
