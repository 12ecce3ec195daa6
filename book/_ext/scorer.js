// The search: a statement, an equation or a heading that is named comes before pages that have the same words, and of these
// a page whose title has all of them before one that has some.
const searchedWords = (new URLSearchParams(location.search).get("q") ?? "").toLowerCase().split(/\s+/);
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([page, title, anchor, description, score]) =>
    score + (anchor && !title.startsWith('hmmlib.') ? 100 : 0) + (searchedWords.every((word) => title.toLowerCase().includes(word)) ? 1 : 0),
};
