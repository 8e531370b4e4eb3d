// How Sphinx ranks what it finds: chapters before other pages, the one that says it first before later ones, their
// headings above all, and the API last.
Scorer.score = ([page, , anchor, description, score]) => {
  const chapter = page.match(/^notebooks\/(\d+)/);
  const isSection = anchor && description === null;
  return score + (chapter ? 40 - chapter[1] : page === "book/api" ? 0 : 20) + (isSection ? 20 : 0);
};
