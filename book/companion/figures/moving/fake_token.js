// A fake token against other emission distributions: weights c on the posterior, and how far each column of W is moved.
(function (space) {
  "use strict";
  const { sum, product, times, transposed, ones, dot, fixed, listed } = space.kit;
  const { plane, input, column, triangle, slider, button, frame } = space.kit;

  /** W with each column moved by a share towards the column of R. */
  const columns = (W, R, shares) => W.map((row, x) => row.map((w, h) => (1 - shares[h]) * w + shares[h] * R[x][h]));

  /** R (c * p) / (c . p); zero where c excludes every state of p. */
  function mixture(table, c, p) {
    const weighed = product(c, p), total = sum(weighed);
    return times(table, weighed.map((w) => (total > 0 ? w / total : 0)));
  }

  const DIRECTIONS = 180;

  /** A head that labels as many points right as any line in one of DIRECTIONS directions does, and how many these are. */
  function best(points, labels) {
    const positive = labels.filter(Boolean).length;
    let found = { right: positive, head: [1, 1, 1] };
    for (let k = 0; k < 2 * DIRECTIONS; k++) {
      const angle = (Math.PI * k) / DIRECTIONS, way = [Math.cos(angle), Math.sin(angle), 0];
      const order = points.map((p, i) => [dot(way, p), labels[i]]).sort((one, other) => one[0] - other[0]);
      let right = positive;
      order.forEach(([at, label], i) => {
        right += label ? -1 : 1;
        const next = i + 1 < order.length ? order[i + 1][0] : at + 1;
        if (right > found.right && next > at + 1e-9) {
          found = { right, head: way.map((w) => w - (at + next) / 2) };
        }
      });
    }
    return found;
  }

  /** Everything that the figure shows. */
  function compute({ W, R, beliefs, labels }, c, shares) {
    const table = columns(W, R, shares), points = beliefs.map((p) => mixture(table, c, p));
    const { right, head } = best(points, labels);
    return { table, points, right, head };
  }

  function start(root, data) {
    const { names, W, R, weights, beliefs, labels } = data, n = names.length;
    const shape = frame(root, {
      title: "Reweighting and relabelling",
      todo: "Weigh the states as a fake token does, or give them new token distributions. Which of the two separates the labels?",
      key: [["one", "label 1"], ["zero", "label 0"], ["wrong", "best head wrong"], ["head", "best head's line"],
        ["column", "a state's distribution"]],
    });
    const percent = (x) => `${fixed(100 * x, 0)}%`;
    const make = (label, value, shown) => slider(shape.controls, { label, min: 0, max: 1, step: 0.01, value, shown }, update);
    const c = names.map((name) => make(`weight of ${name}`, 1, fixed));
    const shares = names.map((name) => make(`change of ${name}`, 0, percent));
    const put = (someWeights, someShares) => {
      c.forEach((one, h) => one.set(someWeights[h]));
      shares.forEach((one, h) => one.set(someShares[h]));
      update();
    };
    const none = Array(n).fill(0), corner = (k) => [0, 1, 2].map((i) => Number(i === k));
    button(shape.buttons, "Nearest reweighting", () => put(weights, none));
    button(shape.buttons, "Tuned prompt", () => put(ones(n), ones(n)));
    button(shape.buttons, "Reset", () => put(ones(n), none));
    const place = plane([0, 1, 2].map(corner));

    function update() {
      const { table, points, right, head } = compute(data, c.map((one) => one.value()), shares.map((one) => one.value()));
      const drawn = points.map((p, i) => [p, labels[i], dot(head, p) >= 0 !== labels[i]]).filter(([p]) => sum(p) > 0);
      const crosses = transposed(table).map(place), set = names.map((name, h) =>
        `${name} with weight ${fixed(c[h].value())} and ${percent(shares[h].value())} changed`).join("; ");
      shape.draw(
        triangle(`Triangle of predictions at the gap, with ${set}.`, place,
          ["token 0", "token 1", "token 2"],
          drawn.map(([p, label, wrong]) => input(place(p), label, wrong)).join("") +
            crosses.map((at, h) => {
              const alike = names.filter((_, k) => Math.hypot(crosses[k][0] - at[0], crosses[k][1] - at[1]) < 1);
              return column(at, alike[0] === names[h] ? alike.join(", ") : "", h % 2 || alike.length > 1);
            }).join(""), head),
      );
      const share = `${right} of ${points.length}`;
      shape.count({ "texts that the best head gets right": share });
      const silent = names.filter((_, h) => c[h].value() === 0), moved = names.filter((_, h) => shares[h].value() > 0);
      shape.say(
        (silent.length ? `With weight 0: ${listed(silent)}. ` : "") +
          (moved.length ? `With a new distribution: ${listed(moved)}. ` : "No state's distribution is changed. ") +
          `The best head is right on ${share} texts, ${fixed((100 * right) / points.length, 1)}%.`,
      );
    }
    update();
  }

  space.fake_token = { columns, mixture, best, compute, start };
  if (typeof module !== "undefined") module.exports = space;
})((globalThis.hmmMoving = globalThis.hmmMoving || {}));
