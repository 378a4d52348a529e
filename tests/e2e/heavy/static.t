#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The tool as one file (`make static`): it needs no other, and does what the one with libraries does."""

import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import paths, tap

STATIC = os.path.join(paths.BUILD, "nsbox-static")
place = paths.scratch("static-")


def run(*argv, **more):
    return subprocess.run([*argv], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, timeout=120, **more)


def headers(path):
    return run("readelf", "-hld", path).stdout


def test_file(t):
    done = run("make", "-C", paths.ROOT, "static")
    t.ok(done.returncode == 0, "make static", done.stdout[-3000:] + done.stderr[-3000:])
    ours, usual = headers(STATIC), headers(paths.NSBOX)
    t.ok("DYN (" in ours and "INTERP" not in ours and "(NEEDED)" not in ours, "is placed anywhere and needs no library", ours)
    t.ok("INTERP" in usual and "(NEEDED)" in usual, "as the usual one does", usual)


def test_alone(t):
    """In a root that has nothing else, which takes a user namespace."""
    root = place + "/root"
    os.mkdir(root)
    for path in (STATIC, paths.NSBOX):
        shutil.copy(path, root)
    inside = ["unshare", "--map-root-user", "chroot", root]
    done = run(*inside, "/nsbox-static", "--version")
    t.equal((done.returncode, done.stdout), (0, run(paths.NSBOX, "--version").stdout), "runs where there is nothing else")
    t.ok(run(*inside, "/nsbox", "--version").returncode != 0, "where the usual one does not")


def test_works(t):
    function = place + "/f.py"
    with open(function, "w", encoding="ascii") as f:
        f.write("def f(a):\n    return a + 1\n")
    def answers(tool):
        report = json.loads(run(tool, "run", "--json", "--", "true").stdout)
        return {"command": run(tool, "run", "--", "sh", "-c", "id -u; exit 3").returncode,
                "enforced": [layer["layer"] for layer in report["enforced"]],
                "plan": report.get("policy_sha256"),
                "function": run(tool, "run", "--python", function, "--params", '{"a": 1}').stdout,
                "lint": run(tool, "policy", "explain", "--json", os.path.join(paths.ROOT, "docs/examples/report-skill/skill.json")).stdout,
                "doctor": run(tool, "doctor", "--json").stdout}

    ours, usual = answers(STATIC), answers(paths.NSBOX)
    t.ok(usual["command"] == 3 and usual["function"] == "2\n" and len(usual["enforced"]) > 10, "the usual one works", str(usual))
    for what in usual:
        t.equal(ours[what], usual[what], "the same: " + what)


if __name__ == "__main__":
    sys.exit(tap.run([test_file, test_alone, test_works]))
