// Arg-max as the limit of softmax: as the query grows, the weights go to the positions of the largest score, shared by ties.
(function (space) {
  "use strict";
  const { sum, dot, fixed, listed, picture, text, bar, line, slider, button, frame } = space.kit;

  /** exp(c s_i) / sum of exp(c s_j); the largest score is taken off first, so nothing overflows. */
  function softmax(scores, c) {
    const largest = Math.max(...scores);
    const powers = scores.map((s) => Math.exp(c * (s - largest)));
    return powers.map((p) => p / sum(powers));
  }

  /** The limit: equal weights on the attended positions, none on the others. */
  const limit = (attended) => attended.map((yes) => (yes ? 1 / attended.filter(Boolean).length : 0));

  /** Weights and output of the softmax head whose query has the given norm; the scores belong to the norm `unit`. */
  function compute({ scores, values, attended, unit }, norm) {
    const weights = softmax(scores, norm / unit);
    return { weights, output: dot(weights, values), exact: dot(limit(attended), values) };
  }

  // Drawing

  const [LOW, HIGH] = [-1, 4];

  function bars({ words, attended }, weights) {
    const slot = 316 / words.length, floor = limit(attended).find(Boolean), even = 1 / words.length;
    const y = (w) => 210 - (170 * w) / Math.max(floor, even);
    const drawn = words.map((word, i) => {
      const x = 22 + i * slot, kind = attended[i] ? "kept" : "other", width = Math.min(slot * 0.7, 40);
      return (
        bar(x + (slot - width) / 2, 210, width, 210 - y(weights[i]), kind) +
        text(x + slot / 2, y(weights[i]) - 5, fixed(weights[i]), attended[i] ? "strong" : "small") +
        text(x + slot / 2, 228, word, attended[i] ? "strong" : "")
      );
    });
    const level = (w, name) => line([22, y(w)], [338, y(w)], "bound") + text(18, y(w) + 4, name, "small", "end");
    const levels = level(floor, fixed(floor, 1)) + line([22, 210], [338, 210], "axis") + text(18, 214, "0", "small", "end");
    const each = words.map((word, i) => `${word} ${fixed(weights[i])}`).join(", ");
    return picture(340, 246, `Attention weights: ${each}.`, levels + drawn.join(""));
  }

  function curve(data, exponent, seen) {
    const grid = Array.from({ length: 101 }, (_, k) => LOW + ((HIGH - LOW) * k) / 100);
    const outputs = grid.map((e) => compute(data, 10 ** e).output);
    const low = Math.min(0, seen.exact, ...outputs), high = Math.max(0, seen.exact, ...outputs);
    const x = (e) => 52 + (264 * (e - LOW)) / (HIGH - LOW), y = (v) => 200 - (170 * (v - low)) / (high - low);
    const path = grid.map((e, k) => `${k ? "L" : "M"}${x(e).toFixed(2)},${y(outputs[k]).toFixed(2)}`).join("");
    const ticks = [-1, 0, 1, 2, 3, 4].map((e) => text(x(e), 218, String(10 ** e), "small"));
    return picture(340, 246,
      `Output of the softmax head against the norm of q: ${fixed(seen.output, 5)} here, ${fixed(seen.exact, 5)} in the limit.`,
      line([52, y(0)], [316, y(0)], "axis") + text(46, y(0) + 4, "0", "small", "end") +
      line([52, y(seen.exact)], [316, y(seen.exact)], "head") +
      text(46, y(seen.exact) + 4, fixed(seen.exact, 4), "small", "end") +
      `<path d="${path}" class="curve"/>` + ticks.join("") + text(190, 238, "‖q‖, logarithmic", "faint") +
      `<circle cx="${x(exponent).toFixed(2)}" cy="${y(seen.output).toFixed(2)}" r="6" class="here"/>`);
  }

  function start(root, data) {
    const { words, attended } = data;
    const shape = frame(root, {
      title: "Arg-max is the limit of softmax",
      todo: "Make the query longer. Which positions keep their weight, and how do ties share it?",
      key: [["kept", "attended by the arg-max head"], ["other", "not attended"], ["head", "output of the arg-max head"]],
    });
    const norm = slider(shape.controls, {
      label: "‖q‖", min: LOW, max: HIGH, step: 0.05, value: LOW,
      shown: (e) => (e < 2 ? (10 ** e).toPrecision(3) : fixed(10 ** e, 0)),
    }, update);
    const put = (exponent) => () => {
      norm.set(exponent);
      update();
    };
    button(shape.buttons, "‖q‖ = 10", put(1));
    button(shape.buttons, "‖q‖ = 1000", put(3));
    button(shape.buttons, "Reset", put(LOW));
    const tied = words.map((word, i) => `${word} (${i + 1})`).filter((_, i) => attended[i]);

    function update() {
      const seen = compute(data, 10 ** norm.value());
      const off = sum(seen.weights.filter((_, i) => !attended[i]));
      shape.draw(bars(data, seen.weights), curve(data, norm.value(), seen));
      shape.count({
        "weight elsewhere": fixed(off, 4),
        "output of softmax": fixed(seen.output, 5),
        "output of arg-max": fixed(seen.exact, 5),
      });
      shape.say(off > 0.005
        ? `${fixed(100 * off, 1)}% of the weight is on positions that the arg-max head does not attend to.`
        : `The weight is on ${listed(tied)}${tied.length > 1 ? ", which tie and share it equally" : ""}: ` +
          "softmax has become arg-max.");
    }
    update();
  }

  space.softmax = { softmax, limit, compute, start };
  if (typeof module !== "undefined") module.exports = space;
})((globalThis.hmmMoving = globalThis.hmmMoving || {}));
