#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Why a run ended, cause by cause, by both interfaces: each beside its twin, which keeps just inside the limit
and ends by itself."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, leftovers, service, tap

MI = 1 << 20


def sh(text):
    return ["sh", "-c", text]


def py(text):
    return ["python3", "-c", text]


FILL = "b = bytearray(%d << 20)\nfor i in range(0, len(b), 4096): b[i] = 1"
FORKS = """
import os, time
n = 0
try:
    for _ in range(%d):
        if os.fork() == 0:
            time.sleep(20); os._exit(0)
        n += 1
except OSError:
    os._exit(9)
os._exit(0)
"""
BURN = "import time\nwhile time.process_time() < %d: pass"
# A filter that kills who asks for its parent; as one of a foreign architecture's calls does, which not every
# machine can make.
FILTERED = """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
parent = {"x86_64": 110, "aarch64": 173}[os.uname().machine]
rows = [(0x20, 0, 0, 0), (0x15, 0, 1, parent), (6, 0, 0, 0x80000000), (6, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *r) for r in rows))
prog = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(rows), ctypes.addressof(code)))
assert libc.prctl(22, 2, prog, 0, 0) == 0
os.%s()
"""

# cause, manifest, what comes to it, what just does not; and what else the report has to say of the first.
ROWS = [
    ("exit", {}, sh("exit 7"), sh("exit 0"), {"exit_code": 7, "signal": None}),
    ("signal", {}, sh("kill -SEGV $$"), sh("trap '' USR1; kill -USR1 $$"), {"exit_code": 139, "signal": "SEGV"}),
    ("wallTime", {"timeouts": {"wall": "1s", "grace": "100ms"}}, sh("sleep 60"), sh("sleep 0.2"), {}),
    # What counts is the processor's time: the twin takes longer, and uses none.
    ("cpuTime", {"timeouts": {"cpu": "1s"}}, py(BURN % 60), sh("sleep 2"), {}),
    ("memory", {"resources": {"memory": "64Mi"}}, py(FILL % 200), py(FILL % 24), {}),
    ("pids", {"resources": {"pids": 16}}, py(FORKS % 40), py(FORKS % 10), {"exit_code": 9}),
    ("disk", {"resources": {"disk": "16Mi"}}, sh("dd if=/dev/zero of=f bs=1M count=64 2>/dev/null"),
     sh("dd if=/dev/zero of=f bs=1M count=8 2>/dev/null"), {}),
    ("policy", {}, py(FILTERED % "getppid"), py(FILTERED % "getpid"), {"signal": "SYS"}),
]


def signal_name(value):
    return signal.Signals(value).name[3:] if isinstance(value, int) else value


class Cli:
    name = "cli"

    def run(self, argv, manifest):
        return cli.run(*argv, manifest=manifest).report

    def disturbed(self, argv, how):
        """The report of a run that something happens to once its program says so."""
        with tempfile.TemporaryDirectory(prefix="causes-") as place:
            report = os.path.join(place, "report")
            child = subprocess.Popen(cli.command(*argv, options=["--no-tty", "--result", report]),
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            child.stdout.readline()
            if how == "cancelled":
                child.send_signal(signal.SIGTERM)
            else:
                os.kill(init_below(child.pid), signal.SIGKILL)
            child.communicate(timeout=120)
            with open(report, encoding="utf-8") as f:
                return json.load(f)

    def stop(self):
        pass


class Daemon:
    name = "daemon"

    def __init__(self):
        self.service = service.Daemon()

    def run(self, argv, manifest):
        return self.service.ask("POST", "/v1/execute/command", {"argv": argv, "manifest": {**cli.MINIMAL, **manifest}})[1]

    def disturbed(self, argv, how):
        job = "/v1/jobs/" + self.service.ask("POST", "/v1/jobs", {"kind": "command", "argv": argv})[1]["id"]
        end = time.monotonic() + 60
        while time.monotonic() < end:
            stream = self.service.ask("GET", job)[1]
            if stream.get("state") == "running" and init_below(self.service.pid):
                break
            time.sleep(0.05)
        if how == "cancelled":
            self.service.ask("DELETE", job)
        else:
            tap.wait_until(lambda: "sleep" in leftovers.descendants(self.service.pid).values(), 60)
            os.kill(init_below(self.service.pid), signal.SIGKILL)
        def over():
            answer = self.service.ask("GET", job)[1]
            return answer if answer.get("state") not in ("queued", "running") else None
        answer = tap.wait_until(over, 60)
        return answer.get("result") or answer

    def stop(self):
        self.service.stop()


def init_below(pid):
    """The init of the one sandbox there is: first process of another pid namespace."""
    for (found, _), _ in leftovers.descendants(pid).items():
        status = leftovers.read("/proc/%d/status" % found)
        for line in status.splitlines():
            if line.startswith("NSpid:") and line.split()[2:] == ["1"]:
                return found
    return None


def check(t, by):
    for cause, manifest, act, twin, more in ROWS:
        report = by.run(act, manifest) or {}
        got = {k: signal_name(report.get(k)) if k == "signal" else report.get(k) for k in more}
        # Nobody counts refused forks but a control group: without one the program's own end is all there is.
        told = "exit" if cause == "pids" and report["limits"]["by"] == "process" else cause
        t.equal((report.get("cause"), got), (told, more), "%s: %s" % (by.name, cause))
        if cause == "memory":
            limit = report["limits"]["memory"]
            t.ok(limit == 64 * MI and report["oom_kills"] >= 1 and 32 * MI < report["memory_peak"] < 128 * MI,
                 "%s: peak and limit are told" % by.name, repr((limit, report["memory_peak"], report["oom_kills"])))
        report = by.run(twin, manifest) or {}
        t.equal((report.get("cause"), report.get("exit_code")), ("exit", 0), "%s: just inside %s" % (by.name, cause))
    for cause in ("cancelled", "interrupted"):
        t.equal((by.disturbed(sh("echo on; exec sleep 60"), cause) or {}).get("cause"), cause, "%s: %s" % (by.name, cause))
    t.equal(by.run(sh("echo on; exec sleep 0.1"), {}).get("cause"), "exit", "%s: and left alone" % by.name)


def test_cli(t):
    check(t, Cli())


def test_daemon(t):
    by = Daemon()
    try:
        check(t, by)
        # Only who keeps output for somebody has a limit of it that ends a run.
        small = {"resources": {"stdout": 65536}}
        flood = sh("exec cat /dev/zero")
        t.equal(by.run(flood, small).get("cause"), "output", "daemon: output")
        report = by.run(sh("head -c 1000000 /dev/zero"), small)
        t.equal((report.get("cause"), report.get("stdout_truncated")), ("exit", True), "daemon: just inside output")
    finally:
        by.stop()


if __name__ == "__main__":
    sys.exit(tap.run([test_cli, test_daemon]))
