#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`nsbox run --timings`: what each part of a run took, for people and for programs."""

import os
import re
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, tap

PARTS = ["policy", "files", "setup", "start", "witness", "program", "end"]


def test_told(t):
    began = time.monotonic()
    done = cli.run("sleep", "0.3", options=["--timings"])
    whole = (time.monotonic() - began) * 1e6
    told = done.report["timings"]
    t.equal(sorted(told), sorted([p + "_us" for p in PARTS] + ["stages_us"]), "the report has every part")
    t.ok(told["program_us"] >= 300000, "a program that sleeps took that long", str(told))
    t.ok(sum(told[p + "_us"] for p in PARTS if p != "witness") <= whole, "together they are no more than all", str(told))
    t.ok(0 < told["witness_us"] <= told["start_us"], "the witness is a part of the start", str(told))
    stages = told["stages_us"]
    t.ok({"overlay", "pivot"} <= set(stages) and sum(stages.values()) <= told["setup_us"], "stages are parts of the set-up",
         str(stages))
    rows = re.findall(r"^ *(\d+) us  (\w+)", done.err, re.M)
    t.equal([name for _, name in rows], PARTS, "the table has them in their order")
    t.equal({name: int(us) for us, name in rows}, {p: told[p + "_us"] for p in PARTS}, "and the same figures")


def test_not_asked(t):
    done = cli.run("true")
    t.ok("timings" not in done.report and " us " not in done.err, "nothing of it without being asked", done.err)


if __name__ == "__main__":
    sys.exit(tap.run([test_told, test_not_asked]))
