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

PASSED_OVER = {"exclude": [["mjx-container"], ["svg[role=img]"]]}
"""What axe-core does not look into: formulas and figures, which `faults` does, and which take most of its time."""


def faults(page: Page) -> list[str]:
    """What is wrong in the page as it stands: each a check's name, the element and the circumstances."""
    return page.evaluate(Path(__file__).with_name("faults.js").read_text())


def barriers(page: Page) -> list[str]:
    """What axe-core holds against the page, serious or critical: rule, what to mend, first element."""
    found, options = [], {"resultTypes": ["violations"], "preload": False}
    for rule in Axe().run(page, PASSED_OVER, options).response["violations"]:
        if rule["impact"] in {"serious", "critical"}:
            node, times = rule["nodes"][0], len(rule["nodes"])
            advice = "; ".join(check["message"] for check in node["any"] + node["all"] + node["none"])
            found.append(f"axe {rule['id']}: {advice}: {node['target']} {node['html'][:160]} ({times} times)")
    return found
