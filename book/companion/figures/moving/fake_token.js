// A fake token against a tuned prompt: weights on the belief, and the predictions of a network behind its prompt.
(function (space) {
  "use strict";
  const { sum, product, times, ones, dot, fixed } = space.kit;
  const { plane, input, triangle, text, slider, button, frame } = space.kit;

  /** W (c * p) / (c . p); zero where c excludes every state of p. */
  function mixture(W, c, p) {
    const weighed = product(c, p), total = sum(weighed);
    return times(W, weighed.map((w) => (total > 0 ? w / total : 0)));
  }

  /** Moves a place that others have taken a little aside, so that texts with the same prediction are seen one by one. */
  function spread() {
    const taken = {};
    return ([x, y]) => {
      const here = [Math.round(x / 4), Math.round(y / 4)], k = taken[here] || 0;
      taken[here] = k + 1;
      return [x + 2.5 * Math.sqrt(k) * Math.cos(2.4 * k), y + 2.5 * Math.sqrt(k) * Math.sin(2.4 * k)];
    };
  }

  /** The name of each state in the middle of the texts of which it is the likeliest; names that meet are written together. */
  function letters(places, likeliest, names) {
    const middles = [];
    names.forEach((name, state) => {
      const group = places.filter((_, i) => likeliest[i] === state);
      const [x, y] = [0, 1].map((k) => sum(group.map((at) => at[k])) / group.length);
      const near = middles.find((other) => Math.hypot(other.x - x, other.y - y) < 16);
      if (near) near.name += `, ${name}`;
      else if (group.length) middles.push({ x, y, name });
    });
    return middles.map(({ x, y, name }) => text(x + 14, y - 9, name, "strong", "start")).join("");
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

  /** Everything that the figure shows: with weights c, or where there are none, behind the tuned prompt. */
  function compute({ W, beliefs, labels, prompted }, c) {
    const points = c ? beliefs.map((p) => mixture(W, c, p)) : prompted;
    return { points, ...best(points, labels) };
  }

  function start(root, data) {
    const { names, corners, weights, labels, beliefs } = data;
    const likeliest = beliefs.map((p) => p.indexOf(Math.max(...p)));
    const shape = frame(root, {
      title: "A fake token and a tuned prompt",
      todo: "Weigh the states as a fake token does: how many labels can a line get right? A letter marks the texts in which its state is likeliest, by the exact belief; texts that coincide are drawn side by side.",
      key: [["one", "label 1"], ["zero", "label 0"], ["wrong", "best head wrong"], ["head", "best head's line"]],
    });
    const c = names.map((name) =>
      slider(shape.controls, { label: `factor of ${name}`, min: 0, max: 1, step: 0.01, value: 1, shown: fixed }, () => update()));
    const put = (values) => { c.forEach((one, h) => one.set(values[h])); update(); };
    button(shape.buttons, "Other factors found", () => put(weights));
    button(shape.buttons, "Tuned prompt", () => update(false));
    button(shape.buttons, "Reset", () => put(ones(names.length)));
    const place = plane([0, 1, 2].map((k) => [0, 1, 2].map((i) => Number(i === k))));

    /** Draw with the weights of the sliders, or behind the tuned prompt. */
    function update(weighed = true) {
      const chosen = c.map((one) => one.value());
      const { points, right, head } = compute(data, weighed ? chosen : null);
      const drawn = points.map((p, i) => [p, labels[i], dot(head, p) >= 0 !== labels[i]]).filter(([p]) => sum(p) > 0);
      const beside = spread();
      shape.controls.style.opacity = weighed ? "" : "0.4";
      const how = weighed ? `factors ${chosen.map((one) => fixed(one)).join(", ")}` : "the tuned prompt";
      const occurs = points.map((p) => sum(p) > 0);
      const places = points.filter((_, i) => occurs[i]).map(place);
      const words = letters(places, likeliest.filter((_, i) => occurs[i]), names);
      shape.draw(triangle(`Triangle of predictions at the gap, with ${how}.`, place, corners,
        drawn.map(([p, label, wrong]) => input(beside(place(p)), label, wrong)).join("") + words, head));
      const share = `${right} of ${points.length}`;
      shape.count({ "texts that the best head gets right": share });
      shape.say(`With ${weighed ? "these factors" : "the tuned prompt"} the best head is right on ${share} texts, ` +
        `${fixed((100 * right) / points.length, 1)}%.`);
    }
    update();
  }

  space.fake_token = { mixture, best, letters, compute, start };
  if (typeof module !== "undefined") module.exports = space;
})((globalThis.hmmMoving = globalThis.hmmMoving || {}));
