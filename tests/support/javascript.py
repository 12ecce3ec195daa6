"""The scripts of the moving figures, run under Node."""

import json
from pathlib import Path

import numpy as np
from moving_figures import FIGURES, MOVING

# Calls are [figure or "kit", function, arguments].
DRIVER = """
const folder = process.argv[2] + "/";
const all = require(folder + "kit.js");
for (const figure of FIGURES) require(folder + figure + ".js");
const calls = JSON.parse(require("fs").readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(calls.map(([from, name, args]) => all[from][name](...args))));
""".replace("FIGURES", json.dumps(FIGURES))


def caller(node, place: Path):
    """What makes many calls of JavaScript functions in one run of `node`; its driver is put into `place`."""
    driver = place / "driver.js"
    driver.write_text(DRIVER)

    def run(calls, folder=MOVING):
        done = node(
            [str(driver), str(folder)],
            return_completed_process=True,
            input=json.dumps(calls),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def close(found, expected, tolerance=1e-12):
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max(initial=0) <= tolerance, np.abs(found - expected).max()
