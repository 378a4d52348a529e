#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every example of skill.json(5): what the page says can be run is run, the rest is refused where it says."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import manual, paths, tap

# What the skills of the examples are made of.
FILES = {
    "scripts/run.py": "import os\nos.makedirs('out')\nopen('out/a.pdf', 'w').write('%PDF')\n",
    "rates.py": "print(1)\n",
}
FUNCTION = "def double(x):\n    return 2 * x\n"


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def command(directory, manifest, text):
    """How this example is run: as a skill, as a function, or as the policy of a command."""
    write(directory + "/skill.json", text)
    if "entrypoints" in manifest:
        for entry in manifest["entrypoints"].values():
            for word in entry["command"]:
                if word in FILES:
                    write(directory + "/" + word, FILES[word])
        return ["--skill", directory, "--output", directory + "-out"]
    if manifest.get("process", {}).get("subprocess") == "none":
        write(directory + "-f.py", FUNCTION)
        return ["--manifest", directory + "/skill.json", "--python", directory + "-f.py", "--params", '{"x": 21}']
    return ["--manifest", directory + "/skill.json", "--", "id", "-u"]


def run(arguments):
    return subprocess.run([paths.NSBOX, "run", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=60, check=False)


def test_examples(t):
    scratch = paths.scratch("nsbox-manual-")
    ran = 0
    for number, (what, text) in enumerate(manual.examples()):
        name = "example %d %s" % (number + 1, what)
        manifest = json.loads(text)
        directory = "%s/%d" % (scratch, number)
        done = run(command(directory, manifest, text))
        if what == "runs":
            ran += 1
            t.ok(done.returncode == 0, name, done.stderr)
            for test in manifest.get("tests", []):
                for pattern in test["expect"].get("outputs", []):
                    t.ok(os.path.exists("%s-out/%s" % (directory, pattern.replace("*", "a"))), name + ": " + pattern)
            if manifest.get("profile") == "build":
                t.equal(done.stdout, "0\n", name + ": user 0 inside")
            if "--python" in done.args:
                t.equal(done.stdout.strip(), "42", name + ": the function's value")
        else:
            pointer = what.split()[1]
            t.ok(done.returncode == 125 and "nsbox: %s: " % pointer in done.stderr, name, done.stderr)
    t.ok(ran >= 5, "examples are run")


if __name__ == "__main__":
    sys.exit(tap.run([test_examples]))
