// Nearly dependent columns: two columns of W come together, and the left inverse of Theorem 3.3 magnifies every error.
(function (space) {
  "use strict";
  const { sum, dot, times, transposed, ones, latents, score, fixed, picture, text, plane, input, column, triangle } = space.kit;
  const { slider, button, frame } = space.kit;

  /** W with column `moved` brought to column `still`: at gap 1 it is W, at gap 0 the two are equal. */
  const together = (emission, [still, moved], gap) =>
    emission.map((row) => row.map((entry, h) => (h === moved ? (1 - gap) * row[still] + gap * entry : entry)));

  /** Singular values, largest first: turn pairs of columns until all are orthogonal (one-sided Jacobi). */
  function singularValues(matrix) {
    const columns = transposed(matrix);
    for (let sweep = 0, turned = true; turned && sweep < 60; sweep++) {
      turned = false;
      for (let i = 0; i < columns.length; i++)
        for (let j = i + 1; j < columns.length; j++) {
          const [v, w] = [columns[i], columns[j]];
          const [a, b, c] = [dot(v, v), dot(w, w), dot(v, w)];
          if (Math.abs(c) <= 1e-17 * Math.sqrt(a) * Math.sqrt(b)) continue;
          turned = true;
          const zeta = (b - a) / (2 * c);
          const tangent = (zeta < 0 ? -1 : 1) / (Math.abs(zeta) + Math.hypot(1, zeta));
          const cosine = 1 / Math.hypot(1, tangent), sine = cosine * tangent;
          columns[i] = v.map((entry, k) => cosine * entry - sine * w[k]);
          columns[j] = v.map((entry, k) => sine * entry + cosine * w[k]);
        }
    }
    return columns.map((v) => Math.hypot(...v)).sort((a, b) => b - a);
  }

  const outer = (v, w) => [v[1] * w[2] - v[2] * w[1], v[2] * w[0] - v[0] * w[2], v[0] * w[1] - v[1] * w[0]];

  /** The inverse of a 3 by 3 matrix with columns w_0, w_1, w_2: its rows are w_1 x w_2, w_2 x w_0 and w_0 x w_1 over det. */
  function inverse(matrix) {
    const w = transposed(matrix);
    const rows = [outer(w[1], w[2]), outer(w[2], w[0]), outer(w[0], w[1])];
    return rows.map((row, h) => row.map((entry) => entry / dot(rows[h], w[h])));
  }

  /** mu less a constant (posteriors sum to 1), so that half of the inputs have label 1. */
  function halved(mu, posteriors) {
    const targets = posteriors.map((p) => dot(mu, p)).sort((a, b) => a - b);
    const middle = targets.length >> 1;
    return mu.map((weight) => weight - (targets[middle - 1] + targets[middle]) / 2);
  }

  /** The head b = W'^T D^-1 mu of Theorem 3.3, with D = P[H_1] / P[H_0]. */
  function theoremHead(model, mu) {
    const next = times(model.transition, model.initial);
    return times(transposed(inverse(model.emission)), mu.map((weight, h) => (weight * model.initial[h]) / next[h]));
  }

  /** Everything that the figure shows for a gap between the two columns. */
  function compute({ model: apart, merge, mu, inputs, noise }, gap) {
    const model = { ...apart, emission: together(apart.emission, merge, gap) };
    const rows = inputs.map((x) => x.map((z) => model.emission[z]));
    const posteriors = rows.map((evidence) => latents(model, evidence)[0]);
    const guesses = rows.map((evidence) => times(model.emission, latents(model, [ones(3), ...evidence])[1]));
    const task = halved(mu, posteriors);
    const values = singularValues(model.emission);
    const dependent = values[2] <= 3 * Number.EPSILON * values[0];
    const head = dependent ? null : theoremHead(model, task);
    const points = guesses.map((guess, n) => {
      const noisy = guess.map((share, z) => Math.max(0, share + noise[n][z]));
      const label = score(task, posteriors[n]) >= 0;
      const right = (p) => head !== null && score(head, p) >= 0 === label;
      return { guess, noisy, label, right: right(guess), rightNoisy: right(noisy) };
    });
    return { model, task, values, dependent, head, points };
  }

  // Drawing

  const STEPS = 60;
  /** From apart (0) to equal (STEPS): the gap falls from 1 to 0.0001 by equal factors, and the last step is 0. */
  const gapAt = (k) => (k >= STEPS ? 0 : 10 ** ((-4 * k) / (STEPS - 1)));
  const WHOLE = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];

  function start(root, data) {
    const { names, words, merge, refuted, noiseSize } = data;
    const [still, moved] = merge.map((h) => names[h]);
    const shape = frame(root, {
      title: "Two columns of W come together",
      todo: `Move column ${moved} to column ${still}. What happens to the head that separates the labels?`,
      key: [["one", "label 1"], ["zero", "label 0"], ["wrong", "head wrong"], ["head", "head's line"],
        ["column", "column of W"]],
    });
    const distance = (columns) => Math.hypot(...columns[merge[0]].map((entry, i) => entry - columns[merge[1]][i]));
    const farthest = distance(transposed(data.model.emission));
    const gap = slider(shape.controls, {
      label: `${moved} towards ${still}: distance`, min: 0, max: STEPS, step: 1, value: 0,
      shown: (k) => fixed(farthest * gapAt(k), 4),
    }, update);
    const put = (k) => () => {
      gap.set(k);
      update();
    };
    button(shape.buttons, "Nearly equal", put(45));
    button(shape.buttons, "Equal", put(STEPS));
    button(shape.buttons, "Reset: apart", put(0));
    const tokens = plane(WHOLE, [24, 26]), states = plane(WHOLE, [64, 60]);

    function update() {
      const { model, task, values, dependent, head, points } = compute(data, gapAt(gap.value()));
      const n = points.length, clean = points.filter((p) => p.right).length;
      const noisy = points.filter((p) => p.rightNoisy).length;
      const columns = transposed(model.emission), apart = fixed(distance(columns), 4);
      const crosses = columns.map((p, h) => column(tokens(p), names[h], h === merge[1])).join("");
      const left = points.map((p) => input(tokens(p.guess), p.label, !dependent && !p.right)).join("");
      const pictures = [triangle(
        `${n} texts: predictions at the mask, between the columns of W; ${still} and ${moved} are ${apart} apart.`,
        tokens, words, left + crosses, head || undefined)];
      if (dependent) {
        pictures.push(picture(340, 286, "No left inverse, so nothing to read.", text(170, 140, "no left inverse")));
      } else {
        const read = inverse(model.emission), next = times(model.transition, model.initial);
        const weighed = task.map((weight, h) => (weight * model.initial[h]) / next[h]);
        const right = points.map((p) => input(states(times(read, p.noisy)), p.label, !p.rightNoisy)).join("");
        pictures.push(triangle(
          `The left inverse of noisy predictions: the head is right on ${noisy} of ${n} texts.`,
          states, names.map((name) => `H₁ = ${name}`), right, weighed));
      }
      shape.draw(...pictures.map((svg, k) => svg.replace("<svg", `<p class="panel">${
        ["G₁, without noise", `Read by the left inverse, noise ${noiseSize} in G₁`][k]}</p><svg`)));
      const share = (count) => (dependent ? "no head" : `${fixed((100 * count) / n, 1)}%`);
      const largest = dependent ? 0 : Math.max(...head.map(Math.abs));
      shape.count({
        "condition number of W": dependent ? "infinite" : fixed(values[0] / values[2], 0),
        "largest weight of the head": dependent ? "no head" : fixed(largest, 1),
        "right without noise": share(clean),
        "right with noise": share(noisy),
      });
      const verdict = refuted
        ? "No linear head exists: a mixture of texts of label 0 looks exactly like one of texts of label 1."
        : "The theorem builds no head; for this task another one happens to fit these texts.";
      shape.say(dependent
        ? `Columns ${still} and ${moved} are equal, so W has no left inverse. ${verdict}`
        : `The head is right on ${clean} of ${n} texts without noise and on ${noisy} with noise ${noiseSize}. ` +
          `Its largest weight is ${fixed(largest, 1)}: about so much it magnifies an error in G.`);
    }
    update();
  }

  space.columns = { together, singularValues, inverse, halved, theoremHead, compute, gapAt, STEPS, start };
  if (typeof module !== "undefined") module.exports = space;
})((globalThis.hmmMoving = globalThis.hmmMoving || {}));
