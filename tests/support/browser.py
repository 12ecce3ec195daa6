"""What tests in a browser share: the system's Chromium, a server of a folder, and the faults that a page shows."""

import contextlib
import http.server
import os
import shutil
import socketserver
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ADVICE = "no Chromium here: install one (Debian: the package chromium) or name it in CHROMIUM"
COSTLY = {"serious", "critical"}
"""The impacts of what axe-core finds that no page may have."""


def executable() -> str | None:
    """The path of the system's Chromium, or None."""
    return next(filter(None, map(shutil.which, (os.environ.get("CHROMIUM", ""), *NAMES))), None)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium without a window; FileNotFoundError where there is none."""
    if (path := executable()) is None:
        raise FileNotFoundError(ADVICE)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        try:
            yield browser
        finally:
            browser.close()


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """A server of files that says nothing when a browser hangs up early."""

    daemon_threads = True

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address, on this machine only, at which the files of a folder are served."""
    with Server(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


class Watched:
    """A page in a context of its own, and what goes wrong in it: messages, failures, and requests to other hosts."""

    def __init__(
        self,
        browser: Browser,
        home: str,
        width: int = 1280,
        height: int = 900,
        theme: str = "light",
        choose: bool = True,
        **more,
    ):
        """`theme`: the system's, and with `choose` also the reader's choice. `more`: what else a context takes."""
        self.home, self.wrong = home, []
        self.context = browser.new_context(viewport=dict(width=width, height=height), color_scheme=theme, **more)
        if choose:
            self.context.add_init_script(CHOOSE.replace("THEME", theme))
        self.context.set_default_timeout(20_000)
        self.page: Page = self.context.new_page()
        self.page.on("console", self.console)
        self.page.on("pageerror", lambda error: self.wrong.append(f"script error: {error}"))
        self.page.on("requestfailed", self.failed)
        self.page.on("response", self.response)
        self.page.on("request", self.request)

    def failed(self, request):
        # What a page still loads when another is opened is broken off; what is not there fails in other ways.
        if request.failure != "net::ERR_ABORTED":
            self.wrong.append(f"failed: {request.url} {request.failure}")

    def console(self, message):
        if message.type in {"error", "warning"}:
            self.wrong.append(f"console {message.type}: {message.text}")

    def response(self, response):
        if response.status >= 400:
            self.wrong.append(f"status {response.status}: {response.url}")

    def request(self, request):
        if not request.url.startswith((self.home, "data:", "blob:")):
            self.wrong.append(f"another host asked: {request.url}")

    def open(self, path: str) -> Page:
        """The page at a path below home, loaded, with its formulas typeset; what was wrong before is forgotten."""
        self.wrong.clear()
        self.page.goto("about:blank")
        self.page.goto(self.home + path, wait_until="load")
        self.page.evaluate(SETTLED)
        return self.page


CHOOSE = "if (location.protocol !== 'about:') for (const key of ['mode', 'theme']) localStorage.setItem(key, 'THEME')"

SETTLED = """async () => {
  await window.MathJax?.startup?.promise;
  await document.fonts.ready;
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""

FAULTS = r"""() => {
  const found = [], root = document.documentElement, article = document.querySelector('article, main') ?? document.body;
  const say = (check, element, more = '') => found.push(`${check}: ${path(element)} ${more}`.trim());
  const path = element => {
    const words = [];
    for (let e = element; e && e !== document.body && words.length < 4; e = e.parentElement)
      words.unshift(e.tagName.toLowerCase() + (e.id ? '#' + e.id : [...e.classList].map(c => '.' + c).join('')));
    return words.join(' > ');
  };
  const seen = element => element.checkVisibility({opacityProperty: true, visibilityProperty: true});
  const scrolls = style => /auto|scroll/.test(style.overflowX);

  // No TeX is left in the text, and every formula has its glyphs.
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const {nodeValue: text, parentElement: parent} = texts.currentNode;
    const tex = text.match(/\\[a-zA-Z]{2,}|\\[()[\]]|\$\$/);
    if (tex && !parent.closest('code, pre, kbd, script, style, noscript, textarea, template') && seen(parent))
      say('TeX left', parent, JSON.stringify(text.slice(Math.max(0, tex.index - 20), tex.index + 40)));
  }
  for (const e of document.querySelectorAll('mjx-merror, merror, [data-mml-node="merror"]')) say('formula in error', e);
  for (const e of document.querySelectorAll('span.math, div.math'))
    if (!e.closest('mjx-container') && !e.querySelector('mjx-container')) say('formula not typeset', e);
  for (const e of document.querySelectorAll('mjx-container')) {
    const glyphs = e.querySelector('svg');
    if (!glyphs) say('formula without a picture', e);
    else if (seen(e) && e.textContent.trim() && !(glyphs.getBoundingClientRect().width > 0)) say('empty formula', e);
  }
  for (const e of document.querySelectorAll('svg use')) {
    const target = e.getAttribute('href') ?? e.getAttribute('xlink:href') ?? '';
    if (!target.startsWith('#') || !document.getElementById(target.slice(1))) say('glyph not there', e, target);
  }

  // The page is no wider than the window; what is wider than its column scrolls there, and is not cut off.
  const boxes = [...document.body.querySelectorAll('*')].filter(e => !e.closest('svg') || e.matches('svg'));
  if (root.scrollWidth > innerWidth) {
    const out = boxes.filter(e => seen(e) && e.getBoundingClientRect().right > innerWidth + 0.5);
    const free = out.filter(e => {
      for (let a = e.parentElement; a && a !== root; a = a.parentElement)
        if (getComputedStyle(a).overflowX !== 'visible' && a !== document.body) return false;
      return true;
    });
    const worst = free.filter(e => !free.some(other => other !== e && e.contains(other)));
    for (const e of worst.slice(0, 4)) say('page too wide', e, `${e.getBoundingClientRect().right} of ${innerWidth}`);
    if (!worst.length) found.push(`page too wide: ${root.scrollWidth} of ${innerWidth}`);
  }
  for (const e of article.querySelectorAll('mjx-container, table, pre, img, svg')) {
    if (!seen(e) || e.parentElement.closest('mjx-container, svg, pre, button, a')) continue;
    const right = e.getBoundingClientRect().left + Math.max(e.getBoundingClientRect().width, 0);
    if (scrolls(getComputedStyle(e))) continue;
    for (let a = e.parentElement; a && a !== root; a = a.parentElement) {
      const style = getComputedStyle(a), edge = a.getBoundingClientRect().left + a.clientLeft + a.clientWidth;
      if (scrolls(style)) break;
      if (right > edge + 2 && /hidden|clip/.test(style.overflowX)) { say('cut off', e, `by ${path(a)}`); break; }
      if (a === article) { if (right > edge + 2) say('beyond the column', e, `${right} of ${edge}`); break; }
    }
  }

  // Pictures say what they show.
  for (const e of document.querySelectorAll('img')) if (!e.alt.trim()) say('no alternative text', e, e.src.slice(-60));
  for (const e of article.querySelectorAll('svg')) {
    if (e.closest('mjx-container, button, [aria-hidden="true"]') || e.parentElement.closest('svg')) continue;
    const labels = (e.getAttribute('aria-labelledby') ?? '').split(' ').map(id => document.getElementById(id));
    const name = e.getAttribute('aria-label') ?? labels.map(l => l?.textContent).join('');
    if (e.getAttribute('role') !== 'img' || !name.trim()) say('figure without a name', e);
  }
  return found;
}"""

CONTRAST = r"""() => {
  // Formulas and the lettering of inline figures, which axe-core does not read: contrast with what lies behind them.
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let a = element; a; a = a.parentElement) {
      const colour = rgba(getComputedStyle(a).backgroundColor);
      if (colour[3] > 250) return colour;
    }
    return [255, 255, 255];
  };
  const found = new Map();
  for (const e of document.querySelectorAll('mjx-container > svg, mjx-container svg [fill], article svg text')) {
    if (!e.checkVisibility() || e.getAttribute('fill') === 'none') continue;
    if (e.matches('text') && e.closest('svg').querySelector('image')) continue; // on a shade
    const style = getComputedStyle(e), colour = e.matches('svg') ? style.color : style.fill;
    if (colour === 'none') continue;
    const [a, b] = [light(rgba(colour)), light(behind(e))].sort((x, y) => x - y), ratio = (b + 0.05) / (a + 0.05);
    if (ratio < 4.5) found.set(colour, `faint: ${colour}, contrast ${ratio.toFixed(2)}, in ${e.tagName} of `
      + `${e.closest('[id]')?.id}: ${e.textContent.slice(0, 30)}`);
  }
  return [...found.values()];
}"""

PRUNE = r"""() => {
  // axe-core's time grows with the number of elements, so: no glyphs, and of the tokens of code one of each class.
  for (const e of document.querySelectorAll('mjx-container > svg')) e.replaceChildren();
  for (const e of document.querySelectorAll('mjx-assistive-mml')) e.textContent = e.textContent;
  for (const e of document.querySelectorAll('svg[role="img"]'))
    e.replaceChildren(...e.querySelectorAll(':scope > title'));
  const met = new Set(), again = [];
  for (const e of document.querySelectorAll('pre span')) {
    const kind = `${e.className} ${getComputedStyle(e).color} ${getComputedStyle(e.closest('pre')).backgroundColor}`;
    if (met.has(kind)) again.push(e);
    else met.add(kind);
  }
  for (const e of again) e.replaceWith(...e.childNodes);
  for (const e of document.querySelectorAll('pre')) e.normalize();

  // One of each kind of text: its contrast is that of all.
  const sample = new Map();
  const ground = e => {
    const own = getComputedStyle(e).backgroundColor;
    return e.parentElement && /rgba\(.*, 0\)|transparent/.test(own) ? ground(e.parentElement) : own;
  };
  for (const e of document.body.querySelectorAll('*')) {
    const {color, fontSize, fontWeight, opacity} = getComputedStyle(e);
    const bare = [...e.childNodes].some(n => n.nodeType === Node.TEXT_NODE && n.nodeValue.trim());
    if (!bare || !e.checkVisibility() || e.closest('mjx-container, script, style')) continue;
    const kind = [color, fontSize, fontWeight, opacity, ground(e), e.tagName, e.parentElement.className].join();
    if (!sample.has(kind)) sample.set(kind, e);
  }
  for (const e of sample.values()) e.setAttribute('data-sample', '');
}"""


def faults(page: Page) -> list[str]:
    """What is wrong in the page as it stands: each a check's name, the element and the circumstances."""
    return page.evaluate(FAULTS) + page.evaluate(CONTRAST)


def barriers(page: Page) -> list[str]:
    """What axe-core holds against the page, serious or critical: rule, what to mend, first element. Prunes the page."""
    page.evaluate(PRUNE)
    options = {"resultTypes": ["violations"], "preload": False, "rules": {"color-contrast": {"enabled": False}}}
    violations = Axe().run(page, options=options).response["violations"]
    options = {"resultTypes": ["violations"], "preload": False, "runOnly": ["color-contrast"]}
    violations += Axe().run(page, context={"include": [["[data-sample]"]]}, options=options).response["violations"]
    found: dict[str, list[str]] = {}
    for rule in violations:
        for node in rule["nodes"] if rule["impact"] in COSTLY else []:
            advice = "; ".join(check["message"] for check in node["any"] + node["all"] + node["none"])
            where = f"{' '.join(map(str, node['target']))} {node['html'][:160]}"
            found.setdefault(f"axe {rule['id']} ({rule['impact']}): {advice}", []).append(where)
    return [f"{what}: {places[0]} ({len(places)} times)" for what, places in found.items()]
