// Tables: long ones can be sorted by a click on a column's head, and the ledger can be filtered. Without scripts every
// table is shown whole, in the order in which it was written.
(() => {
  const element = (name, attributes = {}, words = "") => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = words;
    return made;
  };
  const said = (cell) => cell.textContent.trim();

  // Sorting. Only where there is something to search for: in tables of more than eight rows.
  const FEW = 8;
  const NOTHING = new Set(["", "–", "—", "none"]);
  const NUMBER = "(?<sign>[-+−]?)(?<digits>(?:\\d{1,3}(?:,\\d{3})+|\\d+)(?:\\.\\d+)?)(?:e(?<power>[-+]?\\d+)|·10(?<raised>[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?";
  const FIRST = new RegExp(`${NUMBER}(?:\\s*(?<unit>ns|µs|ms|s|min|h|MB|GB)(?![\\p{L}\\d]))?`, "u");
  const BEGINS = new RegExp(`^[<≤≥≈~(\\[]?\\s*${NUMBER}`, "u");
  const UNITS = { ns: 1e-9, µs: 1e-6, ms: 1e-3, min: 60, h: 3600, GB: 1e3 };
  const plain = (raised) => Number(raised.replace("⁻", "-").replace(/[⁰¹²³⁴⁵⁶⁷⁸⁹]/g, (one) => "⁰¹²³⁴⁵⁶⁷⁸⁹".indexOf(one)));

  /** The first number in a text, in seconds or megabytes where it has a unit of these: of "94.1% ± 2.6%" it is 94.1. */
  const first = (text) => {
    const found = text.match(FIRST)?.groups;
    if (!found) return null;
    const power = found.power ? Number(found.power) : found.raised ? plain(found.raised) : 0;
    const size = Number(found.digits.replaceAll(",", "")) * 10 ** power * (UNITS[found.unit] ?? 1);
    return "-−".includes(found.sign || "+") ? -size : size;
  };

  /** What cells are compared by: numbers where most of those that say something begin with one. Nothing comes last. */
  const keys = (texts) => {
    const told = texts.filter((text) => !NOTHING.has(text));
    const numeric = told.filter((text) => BEGINS.test(text)).length * 2 > told.length;
    return texts.map((text) => (NOTHING.has(text) ? null : numeric ? first(text) : text));
  };
  const compared = (a, b) =>
    typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true, sensitivity: "base" });

  const TURNS = ["ascending", "descending", null]; // the third click brings the first order back

  const sortable = (table) => {
    const heads = [...(table.tHead?.rows ?? [])].at(-1)?.cells ?? [];
    const body = table.tBodies[0];
    const regular = (row) => row.cells.length === heads.length && [...row.cells].every((c) => c.colSpan * c.rowSpan === 1);
    if (table.tHead?.rows.length !== 1 || body.rows.length <= FEW || ![...body.rows].every(regular)) return;
    const written = [...body.rows];
    const sort = (column, turn) => {
      const key = keys(written.map((row) => said(row.cells[column])));
      const order = written.map((_, k) => k).sort((i, j) => {
        if (turn === null) return i - j;
        if (key[i] === null || key[j] === null) return (key[i] === null) - (key[j] === null) || i - j;
        return (turn === "descending" ? -1 : 1) * compared(key[i], key[j]) || i - j;
      });
      body.append(...order.map((k) => written[k]));
    };
    for (const [column, head] of [...heads].entries()) {
      if (!said(head)) head.append(element("span", { class: "visually-hidden" }, "name"));
      const button = element("button", { type: "button", class: "sort", title: "Sort by this column" });
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const turn = TURNS[(TURNS.indexOf(head.getAttribute("aria-sort")) + 1) % TURNS.length];
        for (const other of heads) other.removeAttribute("aria-sort");
        if (turn) head.setAttribute("aria-sort", turn);
        sort(column, turn);
      });
    }
  };

  // The ledger's filter: by ruling, by kind, and by words. Each row has its ruling and its kind as classes.
  const read = (row, what) =>
    [...row.classList].find((name) => name.startsWith(`${what}-`))?.slice(what.length + 1).replaceAll("-", " ") ?? "";
  const folded = (text) => text.normalize("NFKC").toLowerCase(); // H0 finds H₀

  const choice = (what, rows) => {
    const counts = new Map();
    for (const row of rows) counts.set(read(row, what), (counts.get(read(row, what)) ?? 0) + 1);
    const select = element("select", { name: what });
    select.append(element("option", { value: "" }, "all"));
    for (const [name, count] of counts) select.append(element("option", { value: name }, `${name} (${count})`));
    return select;
  };

  const filterable = (table) => {
    const rows = [...table.tBodies[0].rows];
    const form = element("form", { class: "ledger-filter", "aria-label": "Filter the ledger" });
    const fields = { ruling: choice("ruling", rows), kind: choice("kind", rows) };
    const words = element("input", { type: "search", name: "words", autocomplete: "off", placeholder: "e.g. prompt" });
    for (const [label, field] of [["Verdict", fields.ruling], ["Kind", fields.kind], ["Word", words]]) {
      const line = element("label", {}, `${label} `);
      line.append(field);
      form.append(line);
    }
    const count = element("p", { role: "status" });
    form.append(element("button", { type: "reset" }, "Show all"), count);
    const show = () => {
      const wanted = folded(words.value).split(/\s+/).filter(Boolean);
      for (const row of rows) {
        const chosen = Object.entries(fields).every(([what, { value }]) => !value || read(row, what) === value);
        const text = folded(row.textContent);
        row.hidden = !chosen || !wanted.every((word) => text.includes(word));
      }
      count.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} statements`;
    };
    form.addEventListener("input", show);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(show));
    (table.closest(".pst-scrollable-table-container") ?? table).before(form);
    show();
  };

  document.addEventListener("DOMContentLoaded", () => {
    for (const table of document.querySelectorAll("article table.dataframe"))
      if (!table.closest(".moving")) sortable(table);
    for (const table of document.querySelectorAll("article table.statements")) filterable(table);
  });
})();
