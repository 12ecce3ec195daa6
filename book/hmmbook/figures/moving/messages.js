// Message passing, one message at a time: first from the left, then from the right; where both have come, tau and G.
(function (space) {
  "use strict";
  const { sum, product, times, transposed, ones, fixed, picture, text, bar, line, element, slider, button, frame } = space.kit;

  /** Unscaled: forward[i] = P[H_i, x_1, ..., x_(i-1)] and backward[i] = P[x_(i+1), ..., x_T | H_i], for i = 0, ..., T. */
  function forwardAndBackward({ transition, initial }, evidence) {
    const back = transposed(transition), rows = [ones(initial.length), ...evidence];
    const forward = [initial], backward = rows.map(() => rows[0]);
    for (let i = 1; i < rows.length; i++) forward.push(times(transition, product(forward[i - 1], rows[i - 1])));
    for (let i = rows.length - 1; i > 0; i--) backward[i - 1] = times(back, product(backward[i], rows[i]));
    return { forward, backward };
  }

  const share = (vector) => vector.map((entry) => entry / sum(vector));

  /**
   * What there is after some messages: at each place the two messages, tau and G, or null for what is still to come.
   * The last message went from place `from` to place `at`.
   */
  function compute({ model, text: tokens }, masked, step) {
    const evidence = tokens.map((token, i) => (masked[i] ? ones(2) : model.emission[token]));
    const { forward, backward } = forwardAndBackward(model, evidence), last = tokens.length, rightwards = step <= last;
    const at = rightwards ? step : 2 * last - step;
    const places = forward.map((message, i) => {
      const left = i <= step ? message : null, right = i >= (rightwards ? last : at) ? backward[i] : null;
      const tau = left && right && product(left, right);
      return { left, right, tau, guess: tau && i ? times(model.emission, share(tau)) : null };
    });
    return { evidence, places, step, at, from: rightwards ? at - 1 : at + 1, rightwards };
  }

  // Words and numbers

  const short = (x) => String(Number(x.toPrecision(4)));
  const vector = (v) => `(${v.map(short).join(", ")})`;
  const below = (i) => "₀₁₂₃₄₅"[i];

  /** The last message: for each state the sum over the states that it comes from, in words, and what it is. */
  function sums({ model }, { evidence, places, at, from, rightwards }) {
    const [matrix, side] = rightwards ? [model.transition, "left"] : [transposed(model.transition), "right"];
    const row = from ? evidence[from - 1] : ones(2), plain = row.every((entry) => entry === 1);
    return places[at][side].map((total, h) => [places[from][side].map((entry, k) =>
      [matrix[h][k], entry, row[k]].slice(0, plain ? 2 : 3).map(short).join("·")).join(" + "), short(total)]);
  }

  /** What the last message was made of, in words. */
  function explanation({ words, text: tokens }, { evidence, places, step, at, from, rightwards }, masked) {
    if (!step) return "From the left, P[H₀] is there from the start; from the right, ones, as no word follows the last.";
    const word = from && !masked[from - 1] ? ` times e(${words[tokens[from - 1]]}) = ${vector(evidence[from - 1])}` : "";
    const silent = word || !from ? "" : `; word ${from} is masked`;
    const gives = at ? `they give τ${below(at)} and G${below(at)}` : "scaled, τ₀ is the posterior that a label asks about";
    const met = places[at].tau ? ` Both messages have come to H${below(at)}: ${gives}.` : "";
    return `From the ${rightwards ? "left" : "right"}, H${below(from)} to H${below(at)}: ` +
      `${from ? `the message at H${below(from)}` : "P[H₀]"}${word}, carried one step ${rightwards ? "by A" : "back by Aᵀ"}` +
      `${silent}.${met}`;
  }

  // Drawing

  const ROWS = {
    left: "→ message from the left, as shares", right: "← message from the right, as shares",
    tau: "τ, their product, as shares", guess: "G: columns of W, mixed by these shares",
  };
  const HIGH = 42, ROW = 88;

  function drawn({ model, states, words }, { places, step, at, rightwards }) {
    const wide = 340 / places.length, pitch = Math.min(30, wide / 2 - 1), middle = (i) => (i + 0.5) * wide;
    const rows = Object.entries(ROWS).map(([name, title], r) => {
      const base = ROW * r + 88, isNew = (i) => step && i === at && name === (rightwards ? "left" : "right");
      const pairs = ({ [name]: found }, i) => share(found).map((part, h) => {
        const x = middle(i) + (h - 0.5) * pitch;
        return bar(x - 9, base, 18, HIGH * part, h ? "second" : "first") +
          text(x, base - 4 - HIGH * part, fixed(part), isNew(i) ? "small strong" : "small");
      });
      const mixtures = ({ tau }, i) => words.map((word, z) => {
        const slot = Math.min(15, (wide - 6) / words.length), x = middle(i) + slot * (z - words.length / 2);
        const [calm, other] = product(model.emission[z], share(tau)).map((part) => 1.3 * HIGH * part);
        return bar(x + 1, base, slot - 2, calm, "first") + bar(x + 1, base - calm, slot - 2, other, "second") +
          text(x + slot / 2, base + 12, word[0], "small");
      });
      const arrow = (i) => {
        const way = { left: 1, right: -1 }[name], tip = [middle(i) - 6 * way, base + 9], kind = isNew(i) ? "column" : "axis";
        return places[i - way] ? line([tip[0] - (wide - 12) * way, tip[1]], tip, kind) + [-4, 4].map((rise) =>
          line([tip[0] - 6 * way, tip[1] + rise], tip, kind)).join("") : "";
      };
      return text(2, base - 54, title, "small faint", "start") + places.map((place, i) =>
        (i || name !== "guess" ? line([middle(i) - 23, base], [middle(i) + 23, base], "axis") : "") +
        (place[name] ? (name === "guess" ? mixtures : pairs)(place, i).join("") + arrow(i) : "")).join("");
    });
    const heads = places.map((_, i) => text(middle(i), 14, `H${below(i)}`, i === at ? "strong" : "faint"));
    const shares = Object.entries(ROWS).map(([name, title]) => `${title}: ${places.map((place, i) => place[name] &&
      `H${below(i)} ${share(place[name]).map((part) => fixed(part)).join(" and ")}`).filter(Boolean).join("; ") || "none yet"}`);
    return picture(340, 372, `After ${step} messages, ${states.join(" and ")}. ${shares.join(". ")}.`, heads.join("") + rows.join(""));
  }

  function start(root, data) {
    const { states, words, text: tokens } = data, last = tokens.length;
    const shape = frame(root, {
      title: "Two passes of messages",
      todo: "Press None, then Next, to pass one message after the other. Tap or click a word to mask it or to show it. Which messages change?",
      key: [["first", states[0]], ["second", states[1]]],
    });
    const passed = slider(shape.controls, {
      label: "messages passed", min: 0, max: 2 * last, step: 1, value: 2 * last, shown: (k) => `${k} of ${2 * last}`,
    }, update);
    const put = (step) => {
      passed.set(step);
      update();
    };
    button(shape.buttons, "Next", () => put(passed.value() + 1));
    button(shape.buttons, "Back", () => put(passed.value() - 1));
    button(shape.buttons, "None", () => put(0));
    button(shape.buttons, "Reset", reset);
    const row = element("div", { class: "tokens" }, element("span", {}, "no word"));
    root.querySelector(".views").before(row);
    let masked = [];
    const choices = tokens.map((_, i) => button(row, "", () => {
      masked[i] = !masked[i];
      update();
    }));

    function reset() {
      masked = tokens.map((_, i) => data.masked.includes(i + 1));
      put(2 * last);
    }

    function update() {
      choices.forEach((choice, i) => {
        choice.textContent = masked[i] ? "mask" : words[tokens[i]];
        choice.setAttribute("aria-label", `${choice.textContent}, word ${i + 1}`);
        choice.setAttribute("aria-pressed", masked[i]);
      });
      const seen = compute(data, masked, passed.value()), { tau, guess, left } = seen.places[seen.at], name = below(seen.at);
      shape.draw(drawn(data, seen));
      shape.count({
        ...(seen.step ? Object.fromEntries(sums(data, seen).map(([terms, total], h) => [`${states[h]}, ${terms}`, total]))
          : { "P[H₀]": vector(left) }),
        [`τ${name}`]: tau ? vector(tau) : "not there yet",
        ...(guess && { [`G${name}`]: words.map((word, z) => `${word} ${fixed(guess[z])}`).join(", ") }),
        ...(tau && !guess && { "τ₀, scaled": vector(share(tau)) }),
      });
      shape.say(explanation(data, seen, masked));
    }
    reset();
  }

  space.messages = { forwardAndBackward, compute, sums, explanation, start };
  if (typeof module !== "undefined") module.exports = space;
})((globalThis.hmmMoving = globalThis.hmmMoving || {}));
