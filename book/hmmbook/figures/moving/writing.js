// What the figures share in which a reader writes a text: its words as tokens, as evidence, and what cannot be written.
(function (space) {
  "use strict";
  const { sum, product, times, normalised, listed } = space.kit;

  /**
   * What is known after 0, 1, ..., T positions: entry i is P[M = k, H_i = h | evidence up to i], a row for each memory k.
   * It is zero from the first evidence on that is impossible after what stood before.
   */
  function filtered({ transition, initial, prior }, evidence) {
    const all = [normalised(prior.map((p) => initial.map((q) => p * q)))];
    for (const row of evidence) all.push(normalised(all.at(-1).map((m, k) => product(times(transition, m), row[k]))));
    return all;
  }

  /** The first position whose word cannot follow those before it; 0 where the text can occur. */
  const impossibleAt = (model, evidence) =>
    Math.max(0, filtered(model, evidence).findIndex((table) => !sum(table.map(sum))));

  /** Of one token: W at the value that state h looks up when the memory is k. All ones for -1, which hides the token. */
  const evidenceOf = ({ lookup, emission }, x) => lookup.map((row) => row.map((mh) => (x < 0 ? 1 : emission[x][mh])));

  /** Words to tokens; `hidden` is the word for -1, if there is one. Returns { tokens } or { problem }, in words. */
  function parse(words, written, most, hidden) {
    const spaced = words.includes(".") ? written.replaceAll(".", " . ") : written.replaceAll(".", " ");
    const parts = spaced.toLowerCase().split(/[\s,;]+/).filter(Boolean);
    const unknown = [...new Set(parts.filter((word) => !words.includes(word) && word !== hidden))];
    const begun = words.filter((word) => word.startsWith(unknown[0]));
    const some = words.length > 12 ? `, such as ${listed(words.filter((_, k) => k % Math.ceil(words.length / 9) === 1))}` :
      `: ${listed(words)}`;
    if (unknown.length === 1 && begun.length && written.endsWith(unknown[0])) {
      return { problem: `Go on: “${unknown[0]}” can become ${begun.join(" or ")}.` };
    }
    if (unknown.length) {
      return { problem: `Not in this language: ${listed(unknown)}. It has ${words.length} words${some}.` };
    }
    if (!parts.length) return { problem: `Write a text of these words${some}.` };
    if (parts.length > most) return { problem: `At most ${most} words fit here, and these are ${parts.length}.` };
    return { tokens: parts.map((word) => words.indexOf(word)) };
  }

  /** Why there is nothing to say about a text whose word at position `at` cannot stand there. */
  function cannotOccur(parts, at) {
    const after = parts.slice(0, at - 1).join(" ");
    return `This text has probability zero: “${parts[at - 1]}” cannot ${after ? `follow “${after}”` : "come first"}.`;
  }

  space.writing = { filtered, impossibleAt, evidenceOf, parse, cannotOccur };
  if (typeof module !== "undefined") module.exports = space;
})((globalThis.hmmMoving = globalThis.hmmMoving || {}));
