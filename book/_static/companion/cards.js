// Definitions within reach. Hovering, focusing or tapping a reference to a statement, or a letter in a formula, shows a
// card with what it stands for; the button "Notation" opens all letters in a panel. The data are scripts of the book's
// own that are loaded when first asked for (a script, not a request for data: pages may be opened from a folder).
(() => {
  const here = document.currentScript.src;
  const folder = here.slice(0, here.lastIndexOf("/") + 1);
  const root = document.documentElement.dataset.content_root || "./";
  const STATEMENT = /#((?:equation-)?(?:paper|ours)-[\w-]+)$/;
  const arrived = {};
  const asked = {};

  // From a folder the browser refuses to read other pages for the excerpts of a search: titles must do.
  if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

  const element = (name, attributes = {}, html = "") => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.innerHTML = html;
    return made;
  };

  window.companion = Object.fromEntries(
    ["statements", "notation"].map((name) => [
      name,
      ({ data, glyphs }) => {
        document.body.prepend(element("div", { hidden: "", class: "glyphs" }, glyphs));
        document.body.firstChild.replaceWith(...document.body.firstChild.childNodes);
        arrived[name](data);
      },
    ]),
  );

  const load = (name) =>
    (asked[name] ??= new Promise((resolve, reject) => {
      arrived[name] = resolve;
      const script = element("script", { src: `${folder}${name}.js` });
      script.addEventListener("error", () => {
        delete asked[name];
        reject(new Error(`${script.src} is not there`));
      });
      document.head.append(script);
    }));

  // A letter of a formula and its accent, as one key: "I-1D43A" is G, "I-1D43A N-AF" is G with a bar.
  const glyph = (node) => node?.querySelector("use")?.getAttribute("href").slice(1) ?? "";
  const letter = (mi) => {
    let whole = mi;
    while (whole.parentNode?.dataset?.mmlNode === "TeXAtom") whole = whole.parentNode;
    const over = whole.parentNode?.dataset?.mmlNode === "mover" && whole === whole.parentNode.firstElementChild;
    return over ? `${glyph(mi)} ${glyph(whole.nextElementSibling)}` : glyph(mi);
  };

  let meanings = null; // of each letter, read from the table once
  const letters = async () => {
    if (meanings) return meanings;
    const table = element("table", {}, await load("notation"));
    meanings = new Map();
    for (const row of table.querySelectorAll("tbody tr")) {
      const cells = [...row.cells].map((cell) => cell.querySelector("p")?.innerHTML ?? "");
      const mi = row.cells[0].querySelector('[data-mml-node="mi"]');
      if (!mi) continue;
      const key = letter(mi);
      meanings.set(key, [...(meanings.get(key) ?? []), cells]);
    }
    return meanings;
  };

  // The card: one for the page, next to what it explains.
  const card = element("div", { id: "companion-card", role: "tooltip", hidden: "" });
  let shownFor = null;
  let timer = 0;

  const hide = () => {
    clearTimeout(timer);
    wanted = null;
    shownFor?.removeAttribute("aria-describedby");
    shownFor = null;
    card.hidden = true;
  };

  const show = (target, html) => {
    if (!card.isConnected) document.body.append(card);
    card.innerHTML = html;
    card.hidden = false;
    shownFor = target;
    if (target.matches("a")) target.setAttribute("aria-describedby", card.id);
    const at = target.getBoundingClientRect();
    const width = document.documentElement.clientWidth;
    const left = Math.max(8, Math.min(at.left, width - card.offsetWidth - 8));
    const below = at.bottom + card.offsetHeight + 8 < window.innerHeight || at.top < card.offsetHeight + 8;
    card.style.left = `${left + window.scrollX}px`;
    card.style.top = `${(below ? at.bottom + 6 : at.top - card.offsetHeight - 6) + window.scrollY}px`;
  };

  const statementCard = async (link, tapped) => {
    const anchor = link.href.match(STATEMENT)[1];
    const found = (await load("statements"))[anchor];
    if (!found || link.closest(`[id="${anchor}"]`)) return null;
    const title = found.title ? `<p class="admonition-title">${found.title}</p>` : "";
    return `${title}${found.html}${tapped ? `<p><a href="${link.href}">Go there</a></p>` : ""}`;
  };

  const letterCard = async (mi) => {
    const rows = (await letters()).get(letter(mi));
    if (!rows) return null;
    const line = ([sign, meaning, code]) => `<p>${sign}<br>${meaning}${code ? `<br><small>${code}</small>` : ""}</p>`;
    const page = `${root}book/notation.html`;
    return rows.map(line).join("") + (rows.length > 1 ? `<p><a href="${page}">Notation</a></p>` : "");
  };

  const subject = ({ target, clientX: x, clientY: y }) => {
    const link = target.closest?.("article a[href]");
    if (link && STATEMENT.test(link.href) && !link.classList.contains("headerlink")) return [link, statementCard];
    const around = (mi) => {
      const box = mi.getBoundingClientRect();
      return box.left <= x && x <= box.right && box.top <= y && y <= box.bottom;
    };
    const letters = target.closest?.("article mjx-container")?.querySelectorAll('[data-mml-node="mi"]') ?? [];
    const mi = [...letters].find(around);
    return mi ? [mi, letterCard] : null;
  };

  let wanted = null; // what the reader asked for last: data may arrive when that is something else
  const ask = async (target, tapped = false) => {
    const [node, content] = (wanted = target);
    const html = await content(node, tapped).catch(() => null);
    if (html && wanted === target) show(node, html);
    return html;
  };

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    clearTimeout(timer);
    if (card.contains(event.target)) return;
    const target = subject(event);
    if (target && target[0] === shownFor) return;
    timer = setTimeout(() => (target ? (hide(), ask(target)) : hide()), target ? 250 : 350);
  });
  document.addEventListener("focusin", (event) => {
    const target = event.target.matches("a:focus-visible") && subject(event);
    if (target) ask(target);
  });
  document.addEventListener("focusout", (event) => [shownFor, wanted?.[0]].includes(event.target) && hide());
  card.addEventListener("mousedown", (event) => event.target.closest("a") && event.preventDefault()); // or focusout hides it
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  let pointer = ""; // browsers differ in what a click says of it
  document.addEventListener("pointerdown", (event) => (pointer = event.pointerType), true);
  document.addEventListener("click", async (event) => {
    if (card.contains(event.target)) return void (event.target.closest("a") && hide());
    const target = pointer === "touch" && subject(event);
    const again = target && target[0] === shownFor;
    hide();
    if (!target || again) return;
    if (target[1] === statementCard) event.preventDefault();
    if (!(await ask(target, true)) && target[0].href) location.assign(target[0].href);
  });

  // The panel: every letter of the book.
  const panel = element("dialog", { class: "notation-panel", "aria-label": "Notation" });
  const open = async () => {
    if (!panel.isConnected) {
      const table = await load("notation").catch(() => null);
      if (!table) return location.assign(`${root}book/notation.html`);
      panel.innerHTML = `<form method="dialog"><strong>Notation</strong><button>Close</button></form>
        <div class="letters" tabindex="0" role="region" aria-label="Letters and their meaning">${table}</div>
        <p><a href="${root}book/notation.html">The page on notation</a>,
        <a href="${root}book/notation.html#glossary">glossary</a></p>`;
      document.body.append(panel);
    }
    panel.showModal();
  };
  panel.addEventListener("click", (event) => event.target === panel && panel.close());

  document.addEventListener("DOMContentLoaded", () => {
    const place = document.querySelector(".article-header-buttons");
    const button = element("button", { class: "notation-button", type: "button", "aria-label": "Notation" });
    button.innerHTML = 'Notation<span aria-hidden="true">αβ</span>'; // the short one on a phone
    button.addEventListener("click", open);
    place?.prepend(button);
  });
})();

// What scrolls in its place can be scrolled by keyboard too.
(() => {
  const wide = "article mjx-container[display], article table, article pre, article .cell_output, article .proof, article span.math";
  const mark = () => {
    for (const part of document.querySelectorAll(wide)) {
      const overflows = part.scrollWidth > part.clientWidth && getComputedStyle(part).overflowX !== "visible";
      if (overflows && !part.hasAttribute("tabindex")) part.setAttribute("tabindex", "0");
    }
  };
  addEventListener("load", mark);
  addEventListener("resize", mark);
  document.addEventListener("toggle", mark, true);
})();

// Paper is white.
(() => {
  let screen = null;
  addEventListener("beforeprint", () => {
    screen = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
  });
  addEventListener("afterprint", () => (document.documentElement.dataset.theme = screen));
})();
