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
    """Find the path of the system's Chromium, or None."""
    for name in (os.environ.get("CHROMIUM", ""), *NAMES):
        path = shutil.which(name)
        if path:
            return path
    return None


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """Open the system's Chromium without a window; FileNotFoundError where there is none."""
    path = executable()
    if path is None:
        raise FileNotFoundError(ADVICE)
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=path) as browser:
        yield browser


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of a folder, on this machine only, and give the address."""
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()


class Watched:
    """A page in a context of its own, and what goes wrong in it: messages, failures, and requests to other hosts.

    Args:
        browser: the browser.
        home: the address that the page's requests may go to.
        width: of the window, in pixels.
        theme: the system's, which pages follow.
        options: what else a context takes.
    """

    def __init__(self, browser: Browser, home: str, width: int, theme: str, **options):
        self.home = home
        self.wrong = []
        size = {"width": width, "height": 900 if width > 500 else 844}
        self.context = browser.new_context(viewport=size, color_scheme=theme, **options)
        self.context.set_default_timeout(20_000)
        self.page = self.context.new_page()
        self.page.on("console", self.on_message)
        self.page.on("pageerror", lambda error: self.wrong.append(f"script error: {error}"))
        self.page.on("requestfailed", self.on_failure)
        self.page.on("response", self.on_response)
        self.page.on("request", self.on_request)

    def on_message(self, message) -> None:
        if message.type in {"error", "warning"}:
            self.wrong.append(f"console {message.type}: {message.text}")

    def on_failure(self, request) -> None:
        # What a page still loads when another is opened is broken off. What is not there fails in other ways.
        if request.failure != "net::ERR_ABORTED":
            self.wrong.append(f"failed: {request.url} {request.failure}")

    def on_response(self, response) -> None:
        if response.status >= 400:
            self.wrong.append(f"status {response.status}: {response.url}")

    def on_request(self, request) -> None:
        if not request.url.startswith((self.home, "data:", "blob:")):
            self.wrong.append(f"another host asked: {request.url}")

    def open(self, path: str) -> Page:
        """Open the page at a path below home, and wait for its formulas. What was wrong before is forgotten."""
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
    """List what is wrong in the page as it stands: each a check's name, the element and the circumstances."""
    return page.evaluate(Path(__file__).with_name("faults.js").read_text(encoding="utf8"))


def barriers(page: Page) -> list[str]:
    """List what axe-core holds against the page, serious or critical: rule, what to mend, first element."""
    options = {"resultTypes": ["violations"], "preload": False}
    descriptions = []
    for rule in Axe().run(page, PASSED_OVER, options).response["violations"]:
        if rule["impact"] in {"serious", "critical"}:
            node = rule["nodes"][0]
            advice = "; ".join(check["message"] for check in node["any"] + node["all"] + node["none"])
            element = f"{node['target']} {node['html'][:160]} ({len(rule['nodes'])} times)"
            descriptions.append(f"axe {rule['id']}: {advice}: {element}")
    return descriptions
