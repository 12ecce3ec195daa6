"""What tests in a browser share: the system's Chromium, a server of a folder, and the faults that a page shows."""

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ADVICE = "no Chromium here: install one (Debian: the package chromium) or name it in CHROMIUM"


def executable() -> str | None:
    """The path of the system's Chromium, or None."""
    return next(filter(None, map(shutil.which, (os.environ.get("CHROMIUM", ""), *NAMES))), None)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The system's Chromium without a window; FileNotFoundError where there is none."""
    if (path := executable()) is None:
        raise FileNotFoundError(ADVICE)
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=path) as browser:
        yield browser


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address, on this machine only, at which the files of a folder are served."""
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()


WRONG = {
    "console": lambda message, _: message.type in {"error", "warning"} and f"console {message.type}: {message.text}",
    "pageerror": lambda error, _: f"script error: {error}",
    # What a page still loads when another is opened is broken off; what is not there fails in other ways.
    "requestfailed": lambda request, _: (
        request.failure != "net::ERR_ABORTED" and f"failed: {request.url} {request.failure}"
    ),
    "response": lambda response, _: response.status >= 400 and f"status {response.status}: {response.url}",
    "request": lambda request, home: (
        not request.url.startswith((home, "data:", "blob:")) and f"another host asked: {request.url}"
    ),
}
"""What is wrong in each kind of event of a page that is at home at an address, or False."""


class Watched:
    """A page in a context of its own, and what goes wrong in it: messages, failures, and requests to other hosts."""

    def __init__(self, browser: Browser, home: str, width: int, theme: str, **more):
        """`theme`: the system's, which pages follow. `more`: what else a context takes."""
        self.home, self.wrong = home, []
        size = dict(width=width, height=900 if width > 500 else 844)
        self.context = browser.new_context(viewport=size, color_scheme=theme, **more)
        self.context.set_default_timeout(20_000)
        self.page = self.context.new_page()
        for event, wrong in WRONG.items():
            self.page.on(event, lambda what, wrong=wrong: self.wrong.extend(filter(None, [wrong(what, home)])))

    def open(self, path: str) -> Page:
        """The page at a path below home, loaded, with its formulas typeset; what was wrong before is forgotten."""
        self.wrong.clear()
        self.page.goto("about:blank")
        self.page.goto(self.home + path, wait_until="load")
        self.page.evaluate(SETTLED)
        return self.page


SETTLED = """async () => {
  await document.fonts.ready;
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
}"""

FAULTS = r"""() => {
  const found = new Set(), root = document.documentElement;
  const article = document.querySelector('article, main') ?? document.body;
  const above = element => element && element !== root ? [element, ...above(element.parentElement)] : [];
  const path = element => above(element).filter(e => e !== document.body).slice(0, 4).reverse()
    .map(e => e.tagName.toLowerCase() + (e.id ? '#' + e.id : [...e.classList].map(c => '.' + c).join(''))).join(' > ');
  const say = (check, element, more = '') => found.add(`${check}: ${path(element)} ${more}`.trim());
  const seen = element => element.checkVisibility({opacityProperty: true, visibilityProperty: true});
  const right = element => element.getBoundingClientRect().right;

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
    const width = e.querySelector('svg')?.getBoundingClientRect().width ?? 0;
    if (!e.querySelector('svg') || (seen(e) && e.textContent.trim() && !(width > 0))) say('empty formula', e);
  }
  for (const e of document.querySelectorAll('svg use')) {
    const target = e.getAttribute('href') ?? e.getAttribute('xlink:href') ?? '';
    if (!target.startsWith('#') || !document.getElementById(target.slice(1))) say('glyph not there', e, target);
  }

  // The page is no wider than the window; what is wider than its column scrolls there, and is not cut off.
  if (root.scrollWidth > innerWidth) {
    const holds = e => e !== document.body && getComputedStyle(e).overflowX !== 'visible';
    const out = [...document.body.querySelectorAll('*')]
      .find(e => seen(e) && right(e) > innerWidth + 0.5 && !above(e.parentElement).some(holds));
    say('page too wide', out ?? root, `${root.scrollWidth} of ${innerWidth}`);
  }
  for (const e of article.querySelectorAll('mjx-container, table, pre, img, svg')) {
    if (!seen(e) || e.parentElement.closest('mjx-container, svg, pre, button, a')) continue;
    for (const a of above(e)) {
      const edge = a.getBoundingClientRect().left + a.clientLeft + a.clientWidth, way = getComputedStyle(a).overflowX;
      if (/auto|scroll/.test(way)) break;
      const cuts = a !== e && (/hidden|clip/.test(way) || a === article) && right(e) > edge + 2;
      if (cuts) say('cut off', e, `by ${path(a)}`);
      if (cuts || a === article) break;
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

  // Formulas and the lettering of inline figures, which axe-core does not read, stand out from what lies behind them.
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = rgb => rgb.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => [...above(element), root].map(a => rgba(getComputedStyle(a).backgroundColor))
    .find(colour => colour[3] > 250) ?? [255, 255, 255];
  for (const e of document.querySelectorAll('mjx-container > svg, mjx-container svg [fill], article svg text')) {
    const style = getComputedStyle(e), colour = e.matches('svg') ? style.color : style.fill;
    const shaded = e.matches('text') && e.closest('svg').querySelector('image');
    if (!e.checkVisibility() || shaded || colour === 'none') continue;
    const [a, b] = [light(rgba(colour)), light(behind(e))].sort((x, y) => x - y), ratio = (b + 0.05) / (a + 0.05);
    if (ratio < 4.5) found.add(`faint: ${colour}, contrast ${ratio.toFixed(2)}, in ${e.closest('[id]')?.id}`);
  }
  return [...found];
}"""

PASSED_OVER = {"exclude": [["mjx-container"], ["svg[role=img]"]]}
"""What axe-core does not look into: formulas and figures, which `faults` does, and which take most of its time."""


def faults(page: Page) -> list[str]:
    """What is wrong in the page as it stands: each a check's name, the element and the circumstances."""
    return page.evaluate(FAULTS)


def barriers(page: Page) -> list[str]:
    """What axe-core holds against the page, serious or critical: rule, what to mend, first element."""
    found, options = [], {"resultTypes": ["violations"], "preload": False}
    for rule in Axe().run(page, PASSED_OVER, options).response["violations"]:
        if rule["impact"] in {"serious", "critical"}:
            node, times = rule["nodes"][0], len(rule["nodes"])
            advice = "; ".join(check["message"] for check in node["any"] + node["all"] + node["none"])
            found.append(f"axe {rule['id']}: {advice}: {node['target']} {node['html'][:160]} ({times} times)")
    return found
