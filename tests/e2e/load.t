#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""64 clients at once, by ab(1) over TCP: no answer but good ones and 429, no memory and no descriptor that stays.

NSBOX_LOAD_SECONDS: how long (default 2); `make load` takes a minute.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, service, tap

SECONDS = int(os.environ.get("NSBOX_LOAD_SECONDS", "2"))
TOKEN = "t" * 32


def rss(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", leftovers.read("/proc/%d/status" % pid)).group(1)) / 1024


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def load(port, place, seconds, path, body=None):
    """What ab says, as numbers."""
    what = ["ab", "-q", "-l", "-s", "60", "-c", "64", "-n", "1000000", "-t", str(seconds), "-H", "Authorization: Bearer " + TOKEN]
    if body is not None:
        with open(place + "/body", "w", encoding="utf-8") as f:
            json.dump(body, f)
        what += ["-p", place + "/body", "-T", "application/json"]
    r = subprocess.run([*what, "http://127.0.0.1:%d%s" % (port, path)], capture_output=True, text=True, check=False)
    find = lambda key: int((re.search(key + r":\s+(\d+)", r.stdout) or [0, 0])[1])
    return {"done": find("Complete requests"), "failed": find("Failed requests"), "refused": find("Non-2xx responses"),
            "said": r.stdout[-1500:] + r.stderr[-500:], "median": int((re.search(r"50%\s+(\d+)", r.stdout) or [0, 0])[1])}


def test_load(t):
    place, port = tempfile.mkdtemp(prefix="load-e2e-"), free_port()
    os.chmod(place, 0o755)
    tokens = place + "/tokens"
    with open(tokens, "w", encoding="utf-8") as f:
        f.write("team %s\n" % TOKEN)
    os.chmod(tokens, 0o600)
    try:
        with service.Daemon(options=["--tcp", "127.0.0.1:%d" % port, "--tokens", tokens]) as d:
            front = next(pid for (pid, _), name in leftovers.descendants(d.pid).items() if name == "nsboxd")
            load(port, place, 1, "/v1/execute/command", {"argv": ["true"]})
            tap.wait_until(lambda: d.ask("GET", "/healthz")[1]["queue"]["running"] == 0, 30)
            before, fds = rss(front), len(os.listdir("/proc/%d/fd" % front))
            for name, path, body in (("calls", "/v1/execute/command", {"argv": ["true"]}),
                                     ("jobs", "/v1/jobs", {"kind": "command", "argv": ["true"]}),
                                     ("questions", "/healthz", None)):
                r = load(port, place, max(1, SECONDS // 3 if name == "questions" else SECONDS // 2), path, body)
                metrics = d.ask("GET", "/metrics")[1]
                full = int(re.search(r"nsbox_jobs_refused_full_total (\d+)", metrics).group(1))
                t.ok(r["done"] >= 5 and r["failed"] == 0, "64 clients, %s: none failed" % name, r["said"])
                t.ok(r["refused"] <= full, "and none but those that found the queue full was refused", r["said"])
                t.note("%s: %d, of these %d refused, median %d ms" % (name, r["done"], r["refused"], r["median"]))
            t.ok(tap.wait_until(lambda: d.ask("GET", "/healthz")[1]["queue"]["running"] +
                                d.ask("GET", "/healthz")[1]["queue"]["waiting"] == 0, 1200), "all of it comes to an end")
            t.ok(tap.wait_until(lambda: len(os.listdir("/proc/%d/fd" % front)) <= fds + 4, 30), "descriptors are as before",
                 "%d, then %d" % (fds, len(os.listdir("/proc/%d/fd" % front))))
            t.ok(rss(front) < before + 60, "memory is flat", "%.0f MB, then %.0f MB" % (before, rss(front)))
            t.note("front: %.0f MB before, %.0f MB afterwards" % (before, rss(front)))
            t.equal(os.path.exists("/proc/%d" % front), True, "all the time it was the same process")
    finally:
        shutil.rmtree(place)


if not shutil.which("ab"):
    tap.skip_all("needs ab(1), package apache2-utils")
sys.exit(tap.run([test_load]))
