// What the moving figures share. First the mathematics, in pure functions; then what draws and listens.
// Vectors are arrays, matrices arrays of rows: A[h'][h] = P[H_i = h' | H_(i-1) = h], W[x][h] = P[X_i = x | H_i = h].
(function (space) {
  "use strict";

  const sum = (v) => v.reduce((total, entry) => total + entry, 0);
  const dot = (v, w) => v.reduce((total, entry, i) => total + entry * w[i], 0);
  const product = (v, w) => v.map((entry, i) => entry * w[i]);
  const times = (matrix, v) => matrix.map((row) => dot(row, v));
  const transposed = (matrix) => matrix[0].map((_, j) => matrix.map((row) => row[j]));
  const ones = (n) => Array(n).fill(1);

  /** Entries of a table of one row for each memory value, divided by their sum; zeros stay zeros. */
  function normalised(table) {
    const total = sum(table.map(sum));
    return table.map((row) => row.map((entry) => (total > 0 ? entry / total : 0)));
  }

  /** One step: condition a message on a row of evidence, then predict. Scaled, so that long texts do not underflow. */
  const step = (matrix, message, evidence) =>
    normalised(message.map((row, k) => times(matrix, product(row, evidence[k]))));

  /**
   * tau_0, ..., tau_T of a chain with a memory k that never changes: tau_i[k][h] is proportional to
   * P[M = k, H_i = h, all evidence but that at i], and sums to 1; it is zero where the evidence is impossible.
   * evidence[i - 1][k][h] belongs to position i; H_0 has none.
   */
  function messages({ transition, initial, prior }, evidence) {
    const nothing = prior.map(() => ones(initial.length));
    const rows = [nothing, ...evidence];
    const forward = [normalised(prior.map((p) => initial.map((q) => p * q)))];
    for (const row of rows.slice(0, -1)) forward.push(step(transition, forward.at(-1), row));
    const backward = [nothing];
    for (const row of rows.slice(1).reverse()) backward.unshift(step(transposed(transition), backward[0], row));
    return forward.map((f, i) => normalised(f.map((row, k) => product(row, backward[i][k]))));
  }

  /** P[H_i | evidence at the other positions], i = 0, ..., T, of a model without memory; evidence[i - 1][h]. */
  const latents = (model, evidence) =>
    messages({ ...model, prior: [1] }, evidence.map((row) => [row])).map((table) => table[0]);

  /** A score, or 0 where it is no larger than the rounding of a sum of terms of that size: so a tie is label 1. */
  const unlessRounding = (score, size) => (Math.abs(score) <= 16 * Number.EPSILON * size ? 0 : score);

  /** weights . p, 0 where within rounding of it. */
  const score = (weights, p) => unlessRounding(dot(weights, p), dot(weights.map(Math.abs), p.map(Math.abs)));

  // Words and numbers

  const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const fixed = (x, digits = 2) => x.toFixed(digits).replace(/^-(?=0\.?0*$)/, "").replace("-", "−");
  const listed = (names) =>
    names.length < 2 ? names[0] || "none" : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;

  // Drawing: strings of SVG, in units of one pixel

  const picture = (width, height, label, body) =>
    `<svg viewBox="0 0 ${width} ${height}" style="max-width:${width * 1.25}px" role="img"` +
    ` aria-label="${escaped(label)}">${body}</svg>`;
  const text = (x, y, words, kind = "", anchor = "middle") =>
    `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" class="${kind}" text-anchor="${anchor}">${escaped(words)}</text>`;
  const line = ([x1, y1], [x2, y2], kind) =>
    `<line x1="${x1.toFixed(2)}" y1="${y1.toFixed(2)}" x2="${x2.toFixed(2)}" y2="${y2.toFixed(2)}" class="${kind}"/>`;
  const bar = (x, y, width, height, kind) =>
    `<rect x="${x.toFixed(1)}" y="${(y - height).toFixed(2)}" width="${width.toFixed(1)}"` +
    ` height="${Math.max(0, height).toFixed(2)}" class="${kind}"/>`;

  /** The map from distributions over three outcomes to the plane, scaled so that the given ones fill the picture. */
  const [WIDE, HIGH, CORNERS] = [340, 286, [[0, 0], [1, 0], [0.5, 0.866]]];
  function plane(around, margin = [30, 30]) {
    const flat = (p) => times(transposed(CORNERS), p.map((share) => share / sum(p)));
    const [xs, ys] = transposed(around.map(flat));
    const low = [Math.min(...xs), Math.min(...ys)], high = [Math.max(...xs), Math.max(...ys)];
    const scale = Math.min((WIDE - 2 * margin[0]) / (high[0] - low[0]), (HIGH - 2 * margin[1]) / (high[1] - low[1]));
    const [x, y] = [(low[0] + high[0]) / 2, (low[1] + high[1]) / 2];
    return (p) => [WIDE / 2 + scale * (flat(p)[0] - x), HIGH / 2 - scale * (flat(p)[1] - y)];
  }

  const disc = (kind) => `<circle r="4.2" class="${kind}"/>`;
  const square = (kind) => `<rect x="-3.8" y="-3.8" width="7.6" height="7.6" class="${kind}"/>`;
  const SHAPES = {
    one: disc("one"),
    zero: square("zero"),
    wrong: '<circle r="7.5" class="ring"/>',
    prompt: disc("prompt"),
    alone: square("alone"),
    column: '<path d="M-5,-5l10,10m0,-10l-10,10" class="column"/>',
    head: '<path d="M-10,0h20" class="head"/>',
    bound: '<path d="M-10,0h20" class="bound"/>',
    before: '<path d="M0,-8v16" class="before"/>',
    up: '<path d="M0,-5l5.4,9.4h-10.8z"/>',
    down: '<path d="M0,5l5.4,-9.4h-10.8z"/>',
    idle: '<circle r="2.2" class="idle"/>',
  };
  for (const kind of ["kept", "other", "memory", "first", "second"])
    SHAPES[kind] = `<rect x="-5" y="-6" width="10" height="12" class="${kind}"/>`;
  const mark = (kind, [x, y]) => `<g transform="translate(${x.toFixed(2)},${y.toFixed(2)})">${SHAPES[kind]}</g>`;
  /** A disc for label 1, a square for label 0; a ring around it where the head is wrong. */
  const input = (at, label, wrong) => mark(label ? "one" : "zero", at) + (wrong ? mark("wrong", at) : "");
  const column = ([x, y], name, below) => mark("column", [x, y]) + text(x + 12, y + (below ? 15 : -5), name, "strong");

  /** The ends of the line b . p = 0 through the triangle of distributions; none where it misses it. */
  function ends(b) {
    const found = [[0, 1], [1, 2], [2, 0]].filter(([i, j]) => b[i] * b[j] < 0).map(([i, j]) => {
      const p = [0, 0, 0];
      p[i] = b[j] / (b[j] - b[i]);
      p[j] = 1 - p[i];
      return p;
    });
    return found.length === 2 ? found : [];
  }

  /** A triangle with named corners, and what is in it. What is outside the picture is cut off; its corners are pointed to. */
  function triangle(label, place, corners, body, b = [0, 0, 0]) {
    const at = [0, 1, 2].map((k) => place([0, 1, 2].map((i) => (i === k ? 1 : 0))));
    const edges = [0, 1, 2].map((k) => line(at[k], at[(k + 1) % 3], "axis")).join("");
    const names = corners.map((name, k) => {
      const inside = at[k][0] > 4 && at[k][0] < WIDE - 4 && at[k][1] > 10 && at[k][1] < HIGH - 10;
      const words = inside ? name : [`↙ ${name}`, `${name} ↘`, `↑ ${name}`][k];
      const x = Math.min(Math.max(at[k][0], 2), WIDE - 2), y = at[k][1] + (k === 2 ? -8 : 18);
      return text(x, Math.min(Math.max(y, 12), HIGH - 4), words, "faint", ["start", "end", "middle"][k]);
    });
    const [from, to] = ends(b).map(place);
    return picture(WIDE, HIGH, label, edges + body + (from ? line(from, to, "head") : "") + names.join(""));
  }

  // Controls, all of them the browser's own

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  /** A labelled slider with its value in words behind it. `shown` turns the value into words. */
  function slider(parent, { label, min, max, step, value, shown }, moved) {
    const input = element("input", { type: "range", min, max, step });
    const output = element("output", { "aria-live": "off" });
    const show = () => {
      output.textContent = shown(Number(input.value));
      input.setAttribute("aria-valuetext", output.textContent);
    };
    const set = (given) => {
      input.value = given;
      show();
    };
    set(value);
    input.addEventListener("input", () => {
      show();
      moved();
    });
    let before;
    input.addEventListener("pointerdown", () => (before = input.value));
    input.addEventListener("pointercancel", () => { // the finger scrolls the page
      set(before);
      moved();
    });
    parent.append(element("div", { class: "slider" }, element("label", {}, element("span", {}, label), input), output));
    const upTo = (most) => input.setAttribute("max", most);
    return { set, upTo, value: () => Number(input.value) };
  }

  function button(parent, words, pressed) {
    const made = element("button", { type: "button" }, words);
    made.addEventListener("click", pressed);
    parent.append(made);
    return made;
  }

  /**
   * Title, one line on what to do, and places for controls, the sentence that says what is seen, drawings and numbers.
   * `key` says what the marks mean: pairs of a mark's kind and words.
   */
  function frame(root, { title, todo, key }) {
    const controls = element("div", { class: "controls" });
    const buttons = element("div", { class: "buttons" });
    const views = element("div", { class: "views" });
    const numbers = element("div", { class: "numbers" });
    const says = element("p", { class: "says", "aria-live": "polite" });
    const marks = element("div", { class: "key" });
    marks.innerHTML = key.map(([kind, words]) =>
      `<span><svg viewBox="-11 -8 22 16" aria-hidden="true">${SHAPES[kind]}</svg>${escaped(words)}</span>`).join("");
    const head = [element("p", { class: "title" }, title), element("p", { class: "todo" }, todo)];
    root.setAttribute("role", "group");
    root.setAttribute("aria-label", title);
    root.querySelector(".still").replaceWith(...head, controls, buttons, says, views, marks, numbers);
    return {
      controls,
      buttons,
      draw(...pictures) {
        views.classList.remove("stale");
        views.removeAttribute("aria-hidden");
        views.innerHTML = pictures.map((svg) => `<div>${svg}</div>`).join("");
      },
      /** The drawings no longer belong to what the controls say: they fade, and are silent. */
      stale() {
        views.classList.add("stale");
        views.setAttribute("aria-hidden", "true");
      },
      say: (words) => words !== says.textContent && (says.textContent = words),
      count: (pairs) =>
        (numbers.innerHTML = Object.entries(pairs)
          .map(([name, value]) => `<div>${escaped(name)}: <b>${escaped(value)}</b></div>`)
          .join("")),
    };
  }

  /** Start a figure in each place of this id that has none yet. */
  function start(id, figure, data) {
    for (const root of document.querySelectorAll(`[id="${id}"]:not([data-ready])`)) {
      root.setAttribute("data-ready", "");
      space[figure].start(root, data);
    }
  }

  space.kit = {
    sum, dot, product, times, transposed, ones, normalised, messages, latents, unlessRounding, score,
    fixed, listed, picture, text, line, bar, plane, mark, input, column, triangle,
    element, slider, button, frame, start,
  };
  if (typeof module !== "undefined") module.exports = space;
})((globalThis.hmmMoving = globalThis.hmmMoving || {}));
