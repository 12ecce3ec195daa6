// The attention head of Theorem 4.3 over a text that the reader writes: scores, attended positions, label, and the truth.
(function (space) {
  "use strict";
  const { sum, dot, product, times, messages, unlessRounding, score } = space.kit;
  const { fixed, listed, picture, text, bar, line, element, button, frame } = space.kit;
  const { impossibleAt, evidenceOf, parse, cannotOccur } = space.writing;

  /** tau_0, ..., tau_T of a text, each over (memory, state). */
  const taus = (model, x) => messages(model, x.map((z) => evidenceOf(model, z)));

  /** G_i(x) = P[X_i | others], from tau_i. */
  const guess = (model, tau) =>
    model.emission.map((_, z) => sum(evidenceOf(model, z).map((row, k) => dot(row, tau[k]))));

  /** P[M_cell | x], from tau_0. */
  const memoryPosterior = ({ held, count }, tau) =>
    Array.from({ length: count }, (_, m) => sum(tau.map((row, k) => (held[k] === m ? sum(row) : 0))));

  /** V(a, v) = b . ((Theta_V a) * v), 0 where within rounding of it. */
  function valueOf({ value, output, condition }, a, v) {
    const read = value.map((row) => dot(row.map(Math.abs), a) + condition * sum(a));
    return unlessRounding(dot(product(times(value, a), v), output), dot(product(read, v), output.map(Math.abs)));
  }

  /** The positions of the largest score, ties to rounding included. */
  function argmax(scores, condition) {
    const largest = Math.max(...scores);
    return scores.map((s) => s >= largest - 256 * Number.EPSILON * condition * Math.max(1, Math.abs(largest)));
  }

  /** Everything that the figure shows for a text x of tokens; `impossible` is the place of the first word that cannot be. */
  function compute({ model, head, mu, essential }, x) {
    const impossible = impossibleAt(model, x.map((z) => evidenceOf(model, z)));
    if (impossible) return { impossible };
    const [before, ...rest] = taus(model, x);
    const guesses = rest.map((tau) => guess(model, tau));
    const scores = guesses.map((g) => dot(head.query, times(head.key, g)));
    const attended = argmax(scores, head.condition);
    const values = guesses.map((g, i) => valueOf(head, g, model.emission[x[i]]));
    const sure = rest.map((tau) => tau.every((row) => row.every((p, h) => p === 0 || essential.includes(h))));
    const posterior = memoryPosterior(model, before);
    const output = sum(product(values, attended.map(Number))) / sum(attended.map(Number));
    return { impossible, scores, attended, values, sure, posterior, output, target: score(mu, posterior) };
  }

  // Drawing

  function bars(parts, { scores, attended }) {
    const low = Math.min(0, ...scores), high = Math.max(1, ...scores), slot = 316 / parts.length;
    const y = (s) => 190 - (160 * (s - low)) / (high - low);
    const above = (top) => (top > y(1) && top < y(1) + 18 ? y(1) : top) - 5; // not on the line at 1
    const drawn = parts.map((word, i) => {
      const x = 22 + i * slot, top = Math.min(y(scores[i]), y(0)), tall = Math.abs(y(scores[i]) - y(0));
      return (
        bar(x + slot * 0.15, top + tall, Math.min(slot * 0.7, 40), tall, attended[i] ? "kept" : "other") +
        text(x + slot / 2, above(top), fixed(scores[i]), attended[i] ? "strong" : "small") +
        text(x + slot / 2, 207, word, attended[i] ? "strong" : "") +
        (attended[i] ? text(x + slot / 2, 223, "▲") : "")
      );
    });
    const axes = line([22, y(0)], [338, y(0)], "axis") + line([22, y(1)], [338, y(1)], "bound") +
      text(18, y(0) + 4, "0", "small", "end") + text(18, y(1) + 4, "1", "small", "end");
    const each = parts.map((word, i) => `${word} ${fixed(scores[i])}${attended[i] ? ", attended" : ""}`);
    return picture(340, 230, `Attention scores: ${each.join("; ")}.`, axes + drawn.join(""));
  }

  function belief(names, { posterior, target, output }) {
    const rows = names.map((name, m) =>
      text(70, 44 + 34 * m, name, "strong", "end") +
      `<rect x="78" y="${30 + 34 * m}" width="${(200 * posterior[m]).toFixed(2)}" height="20" class="memory"/>` +
      text(284, 44 + 34 * m, fixed(posterior[m], 3), "", "start"));
    const y = 62 + 34 * names.length;
    const side = (words, number, at) =>
      text(4, at, words, "", "start") + text(262, at, fixed(number, 4), "strong", "end") +
      text(336, at, `label ${number >= 0 ? 1 : 0}`, (number >= 0) === (target >= 0) ? "strong" : "alarm", "end");
    const label = names.map((name, m) => `${name} ${fixed(posterior[m], 3)}`).join(", ");
    return picture(340, y + 36, `True posterior of the memory: ${label}.`,
      text(4, 16, "true posterior of the memory, given the text", "faint", "start") + rows.join("") +
      side("truth, μᵀP[M | x]", target, y) + side("output of the head", output, y + 24));
  }

  function start(root, data) {
    const { words, names, question, first, examples, most } = data;
    const shape = frame(root, {
      title: "To which words does the head attend?",
      todo: `Write a text with the words below, or tap them. The task: ${question}`,
      key: [["kept", "attended (▲)"], ["other", "not attended"], ["bound", "1: the state is surely in H*"]],
    });
    const field = element("input", { type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
    shape.controls.append(element("label", {}, "Text ", field));
    const put = (written) => {
      field.value = written;
      update();
    };
    const full = () => field.value.trim().split(/\s+/).length >= most;
    for (const word of words) {
      button(shape.buttons, word, () =>
        full() ? shape.say(`At most ${most} words fit here.`) : put(`${field.value.trim()} ${word}`.trim()));
    }
    button(shape.buttons, "Remove last", () => put(field.value.trim().split(/\s+/).slice(0, -1).join(" ")));
    button(shape.buttons, "Reset", () => put(first));
    const more = element("div", { class: "buttons" });
    for (const example of examples) button(more, `Try: ${example}`, () => put(example));
    shape.buttons.after(more);
    field.addEventListener("input", update);

    function update() {
      const { tokens, problem } = parse(words, field.value, most);
      const seen = tokens ? compute(data, tokens) : {};
      field.setAttribute("aria-invalid", String(Boolean(problem || seen.impossible)));
      if (problem || seen.impossible) {
        shape.stale();
        return shape.say(problem ||
          `${cannotOccur(tokens.map((z) => words[z]), seen.impossible)} So there is nothing to predict from it.`);
      }
      const parts = tokens.map((z) => words[z]), { attended, sure, output, target } = seen;
      shape.draw(bars(parts, seen), belief(names, seen));
      const where = parts.map((word, i) => `${word} (${i + 1})`).filter((_, i) => attended[i]);
      shape.say(`The head attends to ${listed(where)}. ` +
        (sure.some(Boolean)
          ? "There the state is surely in H*, so the label must be right: "
          : "Nowhere is the state surely in H*: the text is outside of 𝓡, and the theorem is silent. Here ") +
        `the head gives label ${Number(output >= 0)}, the right one is ${Number(target >= 0)}.`);
    }
    put(first);
  }

  space.attention = { taus, guess, memoryPosterior, valueOf, argmax, compute, start };
  if (typeof module !== "undefined") module.exports = space;
})((globalThis.hmmMoving = globalThis.hmmMoving || {}));
