// Belief word by word: the posterior of each memory cell and of the state after every word of a text that the reader writes.
(function (space) {
  "use strict";
  const { sum, dot, times, fixed, listed, picture, text, bar, line, element, slider, button, frame } = space.kit;
  const { filtered, evidenceOf, parse, cannotOccur } = space.writing;

  const HIDDEN = "[mask]", STATES = 4, NEXT = 6, MOVED = 0.005;

  /** P[M_j | words so far] of each cell, and P[H_i | words so far], of a table over (memory, state). */
  function posteriors({ cells, held }, table) {
    const whole = table.map(sum);
    return {
      cells: cells.map(({ values }, j) => values.map((_, m) => sum(whole.filter((_, k) => held[k][j] === m)))),
      state: table[0].map((_, h) => sum(table.map((row) => row[h]))),
    };
  }

  /** P[X = x | words so far] for the word that comes next. */
  function following(model, table) {
    const ahead = table.map((row) => times(model.transition, row));
    return model.emission.map((_, x) => sum(evidenceOf(model, x).map((row, k) => dot(row, ahead[k]))));
  }

  /** The indices of the largest entries that are not zero, at most so many; of equal ones the first. */
  const largest = (v, most) =>
    v.map((p, i) => [p, i]).filter(([p]) => p > 0).sort(([p, i], [q, j]) => (Math.abs(p - q) > 1e-9 ? q - p : i - j))
      .slice(0, most).map(([, i]) => i);

  /** Beliefs after each word, from none on, and what may come next; `impossible` is the place of a word that cannot be. */
  function compute(data, tokens) {
    const tables = filtered(data.model, tokens.map((x) => evidenceOf(data.model, x)));
    const impossible = Math.max(0, tables.findIndex((table) => !sum(table.map(sum))));
    const possible = impossible ? tables.slice(0, impossible) : tables;
    return {
      impossible,
      beliefs: possible.map((table) => posteriors(data, table)),
      next: possible.map((table) => following(data.model, table)),
    };
  }

  /** Cells of which a word changes what is believed, as far as two digits show it. */
  const moved = (cells, { cells: now }, { cells: before }) =>
    cells.filter((_, j) => now[j].some((p, m) => Math.abs(p - before[j][m]) > MOVED)).map(({ name }) => name);

  // Drawing

  function row(y, name, [from, wide], now, kind, before) {
    const mark = before === undefined ? "" : line([from + wide * before, y + 4], [from + wide * before, y - 17], "before");
    return text(from - 8, y - 2, name, now > 0.5 ? "strong" : "", "end") + bar(from, y, wide * now, 14, kind) + mark +
      line([from, y + 1], [from + wide, y + 1], "axis") + text(from + wide + 6, y - 2, fixed(now), "", "start");
  }

  function memory(cells, { cells: now }, before) {
    let y = 0;
    const drawn = cells.map(({ name, values }, j) => {
      const title = text(4, (y += 18), name, "faint", "start");
      const rows = values.map((value, m) => row((y += 23), value, [92, 196], now[j][m], "memory", before?.cells[j][m]));
      y += 8;
      return title + rows.join("");
    });
    const shares = cells.map(({ name, values }, j) =>
      `${name}: ${values.map((value, m) => `${value} ${fixed(now[j][m])}`).join(", ")}`);
    return picture(340, y, `Belief about each memory cell. ${shares.join("; ")}.`, drawn.join(""));
  }

  function state(states, { state: now }) {
    const shown = largest(now, STATES), rest = Math.max(0, 1 - sum(shown.map((h) => now[h])));
    const rows = [...shown.map((h) => [states[h], now[h]]), ["all other states", rest]];
    const drawn = rows.map(([name, p], k) => row(41 + 23 * k, name, [186, 108], p, "kept"));
    const shares = rows.map(([name, p]) => `${name} ${fixed(p)}`).join(", ");
    return picture(340, 26 + 23 * (STATES + 1), `Belief about the state: ${shares}.`,
      text(4, 18, "state: cell, part of speech", "faint", "start") + drawn.join(""));
  }

  function start(root, data) {
    const { words, cells, states, first, read, examples, most } = data;
    const shape = frame(root, {
      title: "Belief, word by word",
      todo: `Read the text word by word, or write your own. “${HIDDEN}” hides a word.`,
      key: [["memory", "belief now: memory"], ["kept", "state"], ["before", "before the last word"]],
    });
    const field = element("input", { type: "text", autocomplete: "off", autocapitalize: "off", spellcheck: "false" });
    shape.controls.append(element("label", {}, "Text ", field));
    const place = slider(shape.controls, {
      label: "Words read", min: 0, max: most, step: 1, value: 0, shown: String,
    }, update);
    const written = element("p"), ahead = element("div", { class: "buttons ahead" });
    const put = (words, at = most) => {
      field.value = words;
      write(at);
    };
    const step = (by) => () => {
      place.set(place.value() + by);
      update();
    };
    button(shape.buttons, "Back", step(-1));
    button(shape.buttons, "Next word", step(1));
    button(shape.buttons, "Reset", () => put(first, read));
    for (const example of examples) button(shape.buttons, `Try: ${example}`, () => put(example, 1));
    const offers = Array.from({ length: NEXT }, (_, n) => button(ahead, "", () => offers[n].go()));
    ahead.prepend(element("span", {}, "Likely next:"));
    shape.buttons.after(written, ahead);
    field.addEventListener("input", () => write(most));

    let seen, parts;
    /** Take up what stands in the field, as far as it can be read, and read so many words of it. */
    function write(at) {
      const { tokens, problem } = parse(words, field.value, most, HIDDEN);
      seen = { problem, ...compute(data, tokens || []) };
      parts = (tokens || []).map((x) => (x < 0 ? HIDDEN : words[x]));
      field.setAttribute("aria-invalid", String(Boolean(problem || seen.impossible)));
      place.upTo(seen.beliefs.length - 1);
      place.set(at);
      update();
    }

    function update() {
      const at = place.value(), now = seen.beliefs[at], before = seen.beliefs[at - 1];
      const unread = element("span", { class: "todo" }, parts.slice(at).join(" "));
      written.replaceChildren(element("b", {}, parts.slice(0, at).join(" ")), " ", unread);
      const likely = seen.problem && field.value.trim() ? [] : largest(seen.next[at], NEXT);
      offers.forEach((offer, n) => {
        offer.hidden = n >= likely.length;
        offer.textContent = words[likely[n]] || "";
        offer.setAttribute("aria-label", `Go on with ${words[likely[n]]}`);
        offer.go = () => put([...parts.slice(0, at), words[likely[n]]].join(" "));
      });
      shape.draw(memory(cells, now, before), state(states, now));
      if (seen.problem) shape.stale();
      shape.say(seen.problem || sentence(at, now, before));
    }

    function sentence(at, now, before) {
      if (seen.impossible && at === seen.impossible - 1) {
        return `${cannotOccur(parts, seen.impossible)} The bars show the belief before it.`;
      }
      if (at === 0) return "No word has been read yet, so the bars show the prior.";
      const changed = moved(cells, now, before);
      return changed.length
        ? `“${parts[at - 1]}” changes the belief about the ${listed(changed)}.`
        : `“${parts[at - 1]}” does not change the belief about the memory.`;
    }
    put(first, read);
  }

  space.beliefs = { posteriors, following, largest, compute, moved, start };
  if (typeof module !== "undefined") module.exports = space;
})((globalThis.hmmMoving = globalThis.hmmMoving || {}));
