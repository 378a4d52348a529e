#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""NSBOX_JOBS (20,000) jobs and calls, one after the other by eight clients: what the service holds stays the same.

Figures are reported every tenth of the way; the verdict compares the last half with its beginning.
"""

import os
import re
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, service, tap

JOBS = int(os.environ.get("NSBOX_JOBS", "20000"))
BODY = {"kind": "command", "argv": ["echo", "hello"]}


def figures(d):
    pair = {name: pid for (pid, _), name in leftovers.descendants(d.pid).items() if name in ("nsboxd", "nsbox-spawn")}
    out = {}
    for name, pid in pair.items():
        status = leftovers.read("/proc/%d/status" % pid)
        out[name] = (int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024, len(os.listdir("/proc/%d/fd" % pid)))
    out["disk"] = sum(os.path.getsize(os.path.join(d.data, f)) for f in os.listdir(d.data)
                      if not f.startswith("audit")) / (1 << 20)
    return out


def work(d, count, wrong):
    for i in range(count):
        if i % 2:
            status, r = d.ask("POST", "/v1/execute/command", {"argv": BODY["argv"]})
        else:
            status, r = d.ask("POST", "/v1/jobs", BODY)
            if status == 202:
                status, r = d.ask("GET", "/v1/jobs/%s?wait=60" % r["id"])
        if status != 200 or r.get("cause") != "exit":
            wrong.append((status, str(r)[:300]))


def test_soak(t):
    before = leftovers.Snapshot()
    wrong, seen = [], []
    # Results are kept for some seconds only: then the disk's use has an end that can be seen.
    with service.Daemon(options=["--keep-results", "20"]) as d:
        began = time.monotonic()
        for step in range(10):
            threads = [threading.Thread(target=work, args=(d, JOBS // 80, wrong)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            time.sleep(1)
            seen.append(figures(d))
            t.note("%5d jobs, %4.0f s: front %.1f MB %d fds, spawn %.1f MB %d fds, journal %.1f MB" % (
                (step + 1) * (JOBS // 80) * 8, time.monotonic() - began, *seen[-1]["nsboxd"], *seen[-1]["nsbox-spawn"],
                seen[-1]["disk"]))
        t.equal(wrong[:3], [], "every job ended as it should")
        middle, last = seen[4], seen[-1]
        for name in ("nsboxd", "nsbox-spawn"):
            t.ok(last[name][0] < middle[name][0] * 1.2 + 8, "%s: memory is flat" % name, "%r" % [s[name] for s in seen])
            t.ok(last[name][1] <= middle[name][1] + 4, "%s: descriptors are flat" % name, "%r" % [s[name] for s in seen])
        t.ok(last["disk"] < middle["disk"] * 1.5 + 8, "the journal is flat", "%r" % [s["disk"] for s in seen])
    t.equal(before.left(["no_processes", "no_mounts", "no_netns"], 15), [], "nothing is left")


leftovers.become_subreaper()
sys.exit(tap.run([test_soak]))
