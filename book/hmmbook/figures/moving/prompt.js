// Conditioning by a prompt: the entries of u against the posterior of H_2, and against the head of Theorem 3.6.
(function (space) {
  "use strict";
  const { sum, product, times, transposed, ones, latents, score, fixed, listed, picture, text, bar, line } = space.kit;
  const { plane, input, column, triangle, slider, button, frame } = space.kit;

  /** mu . P[H_0 | x], the task's weighted posterior. */
  const target = (model, mu, x) => score(mu, latents(model, x.map((z) => model.emission[z]))[0]);

  /** P[z, H_2] = A (u * P[H_1]): what the fake token z leaves of each state before the text is read. */
  const carried = (model, u) => times(model.transition, product(u, times(model.transition, model.initial)));

  /** P[H_2 | u, x] of (u, gap, x), and the distribution over tokens at the gap; zero where u and x exclude each other. */
  function conditioned(model, u, x) {
    const evidence = [u, ones(u.length), ...x.map((z) => model.emission[z])];
    const latent = latents(model, evidence)[2];
    return { latent, gap: times(model.emission, latent) };
  }

  /** Everything that the figure shows for a prompt u. */
  function compute({ model, mu, prompt, head, inputs }, u) {
    const points = inputs.map((x) => {
      const { latent, gap } = conditioned(model, u, x);
      const label = target(model, mu, x) >= 0, fits = sum(conditioned(model, prompt, x).gap) > 0;
      return { latent, gap, label, right: score(head, gap) >= 0 === label, occurs: sum(gap) > 0, fits };
    });
    return { possible: carried(model, u).map((c) => c > 0), points };
  }

  // Drawing

  function bars({ model, names, essential, inputs, shown }, points) {
    const wide = 340 / shown.length, slot = (wide - 8) / names.length;
    const parts = shown.map((k, n) => {
      const left = n * wide + 4, { latent, label, right, occurs } = points[k];
      const title = text(left + wide / 2 - 4, 16, `x = ${inputs[k].join(" ")}`, "strong");
      const axis = line([left, 166], [left + wide - 8, 166], "axis");
      const says = ["label " + (label ? "1" : "0"), right ? "head right" : "head wrong"];
      const under = says.map((words, row) => text(left + wide / 2 - 4, 204 + 17 * row, words, right ? "" : "alarm"));
      const columns = names.map((name, h) => {
        const x = left + h * slot, kind = essential.includes(h) ? "kept" : "other";
        return (
          bar(x + 3, 166, slot - 6, occurs ? 122 * latent[h] : 0, kind) +
          text(x + slot / 2, 182, name, latent[h] > 0 ? "strong" : "faint") +
          (occurs ? text(x + slot / 2, 161 - 122 * latent[h], fixed(latent[h]), "small") : "")
        );
      });
      const never = ["prompt and text", "exclude each", "other"].map((words, row) =>
        text(left + wide / 2 - 4, 70 + 17 * row, words));
      return title + axis + columns.join("") + (occurs ? "" : never.join("")) + under.join("");
    });
    const label = shown.map((k) => {
      const { latent, occurs } = points[k];
      const shares = names.map((name, h) => `${name} ${fixed(latent[h])}`).join(", ");
      return `for x = ${inputs[k].join(" ")}: ${occurs ? shares : "impossible with this prompt"}`;
    });
    return picture(340, 240, `Posterior of H₂ ${label.join("; ")}.`, parts.join(""));
  }

  function start(root, data) {
    const { model, names, prompt, head, inputs } = data;
    const shape = frame(root, {
      title: "A prompt conditions the hidden state",
      todo: "Move the entries of the prompt u. Which states are left at the gap, and where do the points go?",
      key: [["one", "label 1"], ["zero", "label 0"], ["wrong", "head wrong"], ["head", "theorem's head, fixed"],
        ["column", "column of W"]],
    });
    const columns = transposed(model.emission), place = plane(columns);
    const sliders = names.map((name) =>
      slider(shape.controls, { label: `u(${name})`, min: 0, max: 1, step: 0.01, value: 1, shown: fixed }, update));
    const put = (u) => {
      sliders.forEach((one, h) => one.set(u[h]));
      update();
    };
    button(shape.buttons, "Theorem's prompt", () => put(prompt));
    button(shape.buttons, "Nearly so", () => put(prompt.map((p) => Math.max(p, 0.03))));
    button(shape.buttons, "Reset", () => put(ones(names.length)));

    function update() {
      const { possible, points } = compute(data, sliders.map((one) => one.value()));
      const left = names.filter((_, h) => possible[h]);
      const here = points.filter((point) => point.occurs);
      const share = (which) => `${points.filter((p) => which(p) && p.right).length} of ${points.filter(which).length}`;
      const drawn = here.map((point) => input(place(point.gap), point.label, !point.right)).join("");
      const seen = `${here.length} inputs as points between the columns of W of ${listed(left)}; the head's line is fixed.`;
      shape.draw(
        triangle(`Triangle of token distributions at the gap: ${seen}`, place, ["token 0", "token 1", "token 2"],
          drawn + columns.map((p, h) => column(place(p), names[h])).join(""), head),
        bars(data, points).replace("<svg", '<p class="panel">Belief at the gap for single texts x</p><svg'),
      );
      const counts = { "states possible at the gap": left.join(" ") || "none" };
      if (here.length < points.length) {
        counts["texts excluded by u"] = `${points.length - here.length} of ${points.length}`;
      }
      if (points.some((point) => !point.fits)) {
        counts["right, of the texts that the theorem's prompt allows"] = share((point) => point.fits);
        counts["right, of the texts that it excludes"] = share((point) => !point.fits);
      }
      shape.count(counts);
      const right = points.filter((point) => point.right).length;
      const gone = names.filter((_, h) => !possible[h]);
      shape.say(
        (left.length ? `Possible at the gap: ${listed(left)}. ` : "No state is possible: nothing can follow this u. ") +
          (gone.length && left.length ? `Ruled out, whatever the text: ${listed(gone)}. ` : "") +
          `The head is right on ${right} of ${points.length} inputs, ${fixed((100 * right) / points.length, 1)}%.`,
      );
    }
    update();
  }

  space.prompt = { target, carried, conditioned, compute, start };
  if (typeof module !== "undefined") module.exports = space;
})((globalThis.hmmMoving = globalThis.hmmMoving || {}));
