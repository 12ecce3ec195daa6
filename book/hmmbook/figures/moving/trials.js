// Figure 3's left panel, trial by trial: the chosen one's states above the tokens that they favour.
(function (space) {
  "use strict";
  const { fixed, listed, picture, text, line, mark, slider, button, frame } = space.kit;

  const [WIDE, HIGH, LEFT, FOOT] = [340, 280, 40, 40];
  const percent = (share) => `${fixed(100 * share, 1)}%`;

  /** The sizes there are, and where in the picture a trial stands and an accuracy is. */
  function layout(trials) {
    const sizes = [...new Set(trials.map((trial) => trial.size))].sort((a, b) => a - b);
    const lowest = Math.min(...trials.map((trial) => Math.min(trial.head, trial.prompt)));
    const floor = Math.floor(10 * lowest) / 10, width = (WIDE - LEFT - 8) / sizes.length;
    const across = (size, part) => LEFT + width * (sizes.indexOf(size) + 0.08 + 0.84 * part);
    const groups = sizes.map((size) => trials.filter((trial) => trial.size === size));
    const x = trials.map((trial) => {
      const group = groups[sizes.indexOf(trial.size)];
      return across(trial.size, (group.indexOf(trial) + 0.5) / group.length);
    });
    const y = (share) => 8 + (HIGH - FOOT - 8) * ((1 - share) / (1 - floor || 1));
    return { sizes, groups, floor, across, x, y };
  }

  /** Tokens that are the favourite of a state with a positive weight and of one with a negative weight. */
  function contested(states) {
    const of = (sign) => new Set(states.filter(([, weight]) => weight * sign > 0).map(([token]) => token));
    const negative = of(-1);
    return [...of(1)].filter((token) => negative.has(token)).sort((a, b) => a - b);
  }

  /** Which of the trials is drawn nearest to a point of the picture. */
  function nearest(trials, [left, top]) {
    const { x, y } = layout(trials);
    const away = trials.map((trial, i) =>
      Math.min(...[trial.head, trial.prompt].map((share) => Math.hypot(2 * (x[i] - left), y(share) - top))));
    return away.indexOf(Math.min(...away));
  }

  function panel(data, place, chosen) {
    const { trials, published } = data, { sizes, floor, across, x, y } = place, parts = [];
    for (let tenth = Math.round(10 * floor); tenth <= 10; tenth++) {
      parts.push(line([LEFT, y(tenth / 10)], [WIDE - 8, y(tenth / 10)], "axis"));
      parts.push(text(LEFT - 4, y(tenth / 10) + 4, `${10 * tenth}%`, "faint", "end"));
    }
    for (const size of sizes) parts.push(text(across(size, 0.5), HIGH - FOOT + 18, `${size}`, "faint"));
    parts.push(text((LEFT + WIDE) / 2, HIGH - 6, "hidden states |H|", "faint"));
    for (const [series, pairs] of Object.entries(published)) {
      const kind = series === "head" ? "bound alone" : "bound prompt";
      for (const [size, mean] of pairs) {
        if (sizes.includes(size) && mean >= floor) {
          parts.push(line([across(size, 0), y(mean)], [across(size, 1), y(mean)], kind));
        }
      }
    }
    const drawn = (trial, i) => {
      const stem = line([x[i], y(trial.head)], [x[i], y(trial.prompt)], i === chosen ? "column" : "axis");
      return stem + mark("alone", [x[i], y(trial.head)]) + mark("prompt", [x[i], y(trial.prompt)]);
    };
    trials.forEach((trial, i) => i !== chosen && parts.push(`<g opacity="0.6">${drawn(trial, i)}</g>`));
    const one = trials[chosen];
    parts.push(drawn(one, chosen));
    for (const share of [one.head, one.prompt]) {
      parts.push(`<circle cx="${x[chosen].toFixed(1)}" cy="${y(share).toFixed(1)}" r="8" class="ring"/>`);
    }
    return picture(WIDE, HIGH, `Accuracy of head and prompt in ${trials.length} trials; chosen: ${one.size} states, seed ${one.seed}.`, parts.join(""));
  }

  /** The states of a chain in the columns of the tokens that they favour. */
  function chain({ tokens }, { states, size, seed }) {
    const wide = 340, step = (wide - 16) / tokens, heights = Array(tokens).fill(0), parts = [];
    const most = Math.max(...Array.from({ length: tokens }, (_, k) => states.filter(([token]) => token === k).length));
    const foot = 26 + 17 * most;
    states.forEach(([token, weight]) => {
      const at = [8 + step * (token + 0.5), foot - 12 - 17 * heights[token]++];
      parts.push(mark(weight ? (weight > 0 ? "up" : "down") : "idle", at));
    });
    const clash = contested(states);
    for (let token = 0; token < tokens; token++) {
      parts.push(text(8 + step * (token + 0.5), foot + 14, `${token}`, clash.includes(token) ? "alarm" : "faint"));
    }
    parts.push(line([8, foot - 1], [wide - 8, foot - 1], "axis"));
    parts.push(text(wide / 2, foot + 32, "token, and the states that favour it", "faint"));
    return picture(wide, foot + 38, `The ${size} states of seed ${seed} above the tokens that they favour.`, parts.join(""));
  }

  function start(root, data) {
    const { trials } = data, place = layout(trials), { sizes, groups } = place;
    const shape = frame(root, {
      title: "Figure 3, trial by trial",
      todo: "Choose a trial, by the sliders or in the picture. Do states of opposite weight share a token?",
      key: [["prompt", "prompt"], ["alone", "head"], ["bound", "published means, in the same colours"],
        ["up", "state with positive weight"], ["down", "negative weight"], ["idle", "no weight"]],
    });
    const bySize = slider(shape.controls, { label: "hidden states", min: 0, max: sizes.length - 1, step: 1,
      value: sizes.length - 1, shown: (k) => `${sizes[k]}` }, update);
    const byTrial = slider(shape.controls, { label: "trial", min: 1, max: Math.max(...groups.map((g) => g.length)), step: 1,
      value: 1, shown: (k) => `${k}` }, update);
    const go = (trial) => {
      bySize.set(sizes.indexOf(trial.size));
      byTrial.set(groups[sizes.indexOf(trial.size)].indexOf(trial) + 1);
      update();
    };
    const gain = (trial) => trial.prompt - trial.head;
    const extreme = (of, sign) => () => go(trials.reduce((a, b) => (sign * of(b) > sign * of(a) ? b : a)));
    button(shape.buttons, "Largest gain", extreme(gain, 1));
    button(shape.buttons, "Smallest gain", extreme(gain, -1));
    button(shape.buttons, "Lowest prompt", extreme((trial) => trial.prompt, -1));
    button(shape.buttons, "Reset", () => go(groups.at(-1)[0]));
    root.addEventListener("click", (event) => {
      const svg = event.target.closest(".views > div:first-child svg");
      if (!svg) return;
      const box = svg.getBoundingClientRect(), scale = WIDE / box.width;
      go(trials[nearest(trials, [scale * (event.clientX - box.left), scale * (event.clientY - box.top)])]);
    });

    function update() {
      const group = groups[bySize.value()], number = Math.min(byTrial.value(), group.length);
      const one = group[number - 1];
      shape.draw(panel(data, place, trials.indexOf(one)), chain(data, one));
      shape.count({
        "head": percent(one.head), "prompt": percent(one.prompt),
        "more frequent label": percent(one.majority), "share learned by the network (0%: token frequencies, 100%: exact G)": one.learned === null ? "not known" : percent(one.learned),
      });
      const clash = contested(one.states).map((token) => `token ${token}`);
      shape.say(
        `${one.size} states, trial ${number} (seed ${one.seed}): the head is right on ${percent(one.head)}, ` +
          `with the prompt on ${percent(one.prompt)}. ` +
          (clash.length
            ? `States of opposite weight share ${listed(clash)}.`
            : "No token is shared by states of opposite weight."),
      );
    }
    update();
  }

  space.trials = { layout, contested, nearest, start };
  if (typeof module !== "undefined") module.exports = space;
})((globalThis.hmmMoving = globalThis.hmmMoving || {}));
