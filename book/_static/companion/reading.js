// Reading mode: a button shows and hides the code of a page; where there is no JavaScript, all code is shown. What is
// folded opens where a link leads into it.
(() => {
  const page = document.documentElement;
  const remembered = () => { try { return sessionStorage.getItem("code") === "shown"; } catch { return false; } };
  page.classList.toggle("reading", !remembered());

  const unfold = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let part = target; part; part = part.parentElement) if (part.matches("details")) part.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);

  document.addEventListener("DOMContentLoaded", () => {
    unfold();
    if (!document.querySelector("article .cell_input")) return;
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "notation-button code-button" });
    const name = () => {
      const hidden = page.classList.contains("reading");
      button.innerHTML = `${hidden ? "Show all code" : "Hide code"}<span aria-hidden="true">&lt;/&gt;</span>`;
      button.setAttribute("aria-label", hidden ? "Show all code of this page" : "Hide the code of this page");
    };
    button.addEventListener("click", () => {
      page.classList.toggle("reading");
      try { sessionStorage.setItem("code", page.classList.contains("reading") ? "hidden" : "shown"); } catch { /* no memory */ }
      name();
    });
    name();
    document.querySelector(".article-header-buttons")?.prepend(button);
  });
})();
