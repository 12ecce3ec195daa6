// A tuned prompt whose part at the mask follows the text, or is the same for every text: two sliders, one triangle.
(function (space) {
  "use strict";
  const { sum, dot, fixed, plane, input, triangle, text, slider, button, frame } = space.kit;

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

  /** The points at the chosen levels, and the line that labels most of them right. */
  function compute({ frames, labels }, attention, values) {
    const points = frames[attention][values].map((p) => p.map((share) => share / sum(p)));
    return { points, ...best(points, labels) };
  }

  function start(root, data) {
    const { names, corners, likeliest, labels, frames } = data;
    const most = frames.length - 1;
    const shape = frame(root, {
      title: "Open and shut the gate",
      todo: "Let the attention to the prompt be the same for every text, or its values. When does the best line " +
        "lose texts? A letter marks the texts in which its state is likeliest.",
      key: [["one", "label 1"], ["zero", "label 0"], ["wrong", "best head wrong"], ["head", "best head's line"]],
    });
    const percent = (level) => `${fixed((100 * level) / most, 0)}%`;
    const shown = (level) => (level === 0 ? "the same for all" : level === most ? "as tuned" : percent(level));
    const range = { min: 0, max: most, step: 1, value: most, shown };
    const attention = slider(shape.controls, { label: "attention", ...range }, update);
    const values = slider(shape.controls, { label: "values", ...range }, update);
    const put = (first, second) => { attention.set(first); values.set(second); update(); };
    button(shape.buttons, "Same attention", () => put(0, most));
    button(shape.buttons, "Same values", () => put(most, 0));
    button(shape.buttons, "Both the same", () => put(0, 0));
    button(shape.buttons, "Reset", () => put(most, most));
    const place = plane([0, 1, 2].map((k) => [0, 1, 2].map((i) => Number(i === k))));

    function update() {
      const { points, right, head } = compute(data, attention.value(), values.value());
      const places = points.map(place);
      const marks = points.map((p, i) => input(places[i], labels[i], dot(head, p) >= 0 !== labels[i]));
      const state = `Attention to the prompt: ${shown(attention.value())}; values: ${shown(values.value())}`;
      shape.draw(triangle(`Triangle of predictions at the gap. ${state}.`, place, corners,
        marks.join("") + letters(places, likeliest, names), head));
      const share = `${right} of ${points.length}`;
      shape.count({ "texts that the best head gets right": share });
      shape.say(`Here the best head is right on ${share} texts.`);
    }
    update();
  }

  space.gate = { best, compute, start };
  if (typeof module !== "undefined") module.exports = space;
})((globalThis.hmmMoving = globalThis.hmmMoving || {}));
