#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs made ahead (nsboxd --pool): calls of functions that find one, those that must not, and that it is the same sandbox."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, service, tap, traces

ADD = "def add(a, b):\n    return a + b\n"


def metric(d, name):
    return int(re.search(r"^%s (\d+)$" % name, d.ask("GET", "/metrics")[1], re.M).group(1))


def taken(d):
    return metric(d, "nsbox_pool_taken_total")


def full(d, n=1):
    """Wait until so many wait for a call."""
    return tap.wait_until(lambda: metric(d, "nsbox_pool_waiting") >= n, 60 * tap.slow())


def call(d, code=ADD, params=None, **more):
    status, r = d.ask("POST", "/v1/execute/python-function", {"code": code, "params": params or {}, **more})
    r["status"] = status
    return r


def found(d, *args, **more):
    """A call, and whether it found a run that had been made."""
    before = taken(d)
    return call(d, *args, **more), taken(d) == before + 1


def interpreters(d):
    """Of runs that wait: their processes outside."""
    return [pid for (pid, _), name in leftovers.descendants(d.pid).items()
            if name.startswith("python3") and "\0ahead\0" in leftovers.read("/proc/%d/cmdline" % pid)]


def filters_of(pid):
    return next(line for line in leftovers.read("/proc/%d/status" % pid).splitlines(True) if line.startswith("Seccomp_filters"))


def receipt(d, r):
    return d.ask("GET", "/v1/receipts/" + r["receipt_id"])[1]


def test_found(t):
    with service.Daemon(options=["--pool", "2"]) as d:
        t.equal(metric(d, "nsbox_pool_waiting"), 0, "nothing is made before anything was asked for")
        cold, hit = found(d, params={"a": 1, "b": 2})
        t.equal((cold["data"], hit), (3, False), "the first call of its kind finds none")
        t.ok(full(d), "one is made afterwards")
        warm, hit = found(d, params={"a": 20, "b": 3})
        t.equal((warm["data"], warm["cause"], hit), (23, "exit", True), "the next one finds it")
        strip = lambda r: [{k: v for k, v in layer.items() if k != "us"} for layer in r["enforced"]]
        t.equal(strip(warm), strip(cold), "the same layers hold, by the same evidence")
        a, b = receipt(d, cold), receipt(d, warm)
        same = ("policy_sha256", "plan_sha256", "image_digest", "kind", "host")
        t.equal({k: b[k] for k in same}, {k: a[k] for k in same}, "it is of the same plan and image")
        t.equal((a.get("ahead"), b.get("ahead")), (None, True), "the receipt says which was made ahead")
        bare = lambda r: {k: v for k, v in r["witness"].items() if not k.endswith("us")}
        t.equal(bare(b), bare(a), "the witness has tried the same in both")

        # State of one call that another could see; an interpreter that was started ahead has an argument more.
        with service.Daemon() as none:
            plain = call(none, traces.LOOK)
        t.equal(plain["data"]["seen"], [False] * 4, "who was started for a call sees nothing of another")
        for which in ("a call that leaves things behind", "and one after it"):
            t.ok(full(d), "there is one again")
            r, hit = found(d, traces.LOOK)
            t.equal((hit, {k: v for k, v in traces.differences(plain, r).items() if k != "orig"}), (True, {}), which + " finds itself alone")
        t.ok(full(d), "and one more")
        chance = "def f():\n import random, tempfile\n return [random.random(), hash('x'), tempfile.mktemp()]\n"
        first, second = [(full(d), found(d, chance))[1] for _ in range(2)]
        t.ok(first[1] and second[1] and all(x != y for x, y in zip(first[0]["data"], second[0]["data"])),
             "no two have the same random numbers, hashes or names of temporary files", repr((first, second)))


def test_no_programs(t):
    """The filter of interpreters that start no program is in force before the call is known, and once."""
    code = ("def f():\n import os, sys\n filters = [l for l in open('/proc/self/status') if l.startswith('Seccomp_filters')]\n"
            " try: started = os.spawnv(os.P_WAIT, '/bin/true', ['true']) == 0\n except OSError as e: started = e.errno\n"
            " return [filters, started, sys.argv[1:]]\n")
    manifest = {"manifestVersion": 1, "name": "m", "process": {"subprocess": "none"}}
    with service.Daemon(options=["--pool", "2"]) as d:
        open_to_all = call(d, code)["data"]
        t.equal(open_to_all[1:], [True, []], "a program is started where nothing forbids it")
        cold, _ = found(d, code, manifest=manifest)
        t.ok(full(d, 2), "of both kinds one is made")
        want = sorted(open_to_all[0] + cold["data"][0])
        waiting = lambda: sorted(filters_of(pid) for pid in interpreters(d))
        tap.wait_until(lambda: waiting() == want, 10 * tap.slow())  # a run waits from its start on, and its interpreter starts yet
        t.equal(waiting(), want, "which have their filters while they wait")
        warm, hit = found(d, code, manifest=manifest)
        t.ok(hit and cold["data"][1] is not True, "one that starts none is found", repr(cold))
        t.equal(warm["data"], cold["data"], "and has what another one has")
        t.ok(cold["data"][0] != open_to_all[0], "which is a filter more")


# What an interpreter does when it ends, each as a line of standard output.
END = """
def f():
    import atexit, builtins, ctypes, sys, threading, time
    class Late:
        def __del__(self):
            print("finalizer", flush=True)
    def later():
        time.sleep(0.2)
        print("thread", flush=True)
    threading.Thread(target=later).start()
    atexit.register(print, "exit function", flush=True)
    global kept
    kept = Late()
    builtins.left_open = open(1, "w", closefd=False)
    builtins.left_open.write("open file\\n")
    ctypes.CDLL(None).printf(b"stdio\\n")
    print("stream")
    return 1
"""
ENDED = ["exit function", "finalizer", "open file", "stdio", "stream", "thread"]
# The same of a module of the call's own, which is taken apart with the rest.
OWN = "def f():\n import mine\n return mine.f.write('own\\n')\n"


def test_end(t):
    with service.Daemon(options=["--pool", "1"]) as d:
        for what, ahead in (("a run of its own", False), ("one made ahead", True)):
            r, hit = found(d, END)
            t.equal((r["data"], r["exit_code"], sorted(r["stdout"].split("\n")[:-1]), hit), (1, 0, ENDED, ahead),
                    what + " ends as an interpreter does: threads, exit functions, finalizers, streams")
            t.ok(full(d), "one waits")
        r = call(d, "def f():\n import sys\n sys.stdout.close()\n return 2\n")
        t.equal((r["data"], r["exit_code"]), (2, 0), "with its output closed by itself")
        files = [{"path": "mine.py", "content": "f = open(1, 'w', closefd=False)\n"}]
        r = call(d, OWN, files=files)
        t.equal((r["data"], r["stdout"]), (4, "own\n"), "what a module of the call's own has open is written")


def test_commands(t):
    with service.Daemon(options=["--pool", "1"]) as d:
        def command(text, **more):
            before = taken(d)
            r = d.ask("POST", "/v1/execute/command", {"argv": ["sh", "-c", text], **more})[1]
            return r, taken(d) == before + 1

        leave = "test -e /tmp/left -o -e left && echo seen; touch /tmp/left left; echo $X; pwd; cat"
        cold, hit = command(leave)
        t.equal((cold["stdout"], hit), ("\n/workspace\n", False), "the first command finds no sandbox")
        t.ok(full(d), "one is made afterwards")
        t.equal(interpreters(d), [], "with no program in it")
        warm, hit = command(leave, env={"X": "y"}, cwd="/tmp", stdin="z")
        t.equal((warm["stdout"], hit), ("y\n/tmp\nz", True), "the next one finds it, with variables, directory and input of its own")
        a, b = receipt(d, cold), receipt(d, warm)
        same = ("policy_sha256", "plan_sha256", "image_digest", "host")
        t.equal(({k: b[k] for k in same}, a.get("ahead"), b.get("ahead")), ({k: a[k] for k in same}, None, True),
                "it is of the same plan and image, and the receipt says so")
        strip = lambda r: [{k: v for k, v in layer.items() if k != "us"} for layer in r["enforced"]]
        t.equal(strip(warm), strip(cold), "the same layers hold, by the same evidence")
        for what, more in (("files", {"files": [{"path": "a", "content": "b"}]}),
                           ("another policy", {"manifest": {"manifestVersion": 1, "resources": {"memory": "300Mi"}}})):
            t.ok(full(d), "one waits")
            r, hit = command("echo fine", **more)
            t.equal((r["stdout"], hit), ("fine\n", False), "not for a command with " + what)
        r, hit = command("kill -9 $$")
        t.equal(r["cause"], "signal", "how it ends is its own")


def test_limits(t):
    with service.Daemon(options=["--pool", "1"]) as d:
        slow = {"timeout_seconds": 1}
        call(d, params={"a": 1, "b": 1}, **slow)
        t.ok(full(d), "one waits whose calls may take a second")
        time.sleep(1.2)
        began = time.monotonic()
        r, hit = found(d, params={"a": 1, "b": 1}, **slow)
        t.ok(hit and r["cause"] in ("exit", "wallTime") and r["wall_ms"] <= (time.monotonic() - began) * 1000,
             "longer than that it has waited: the time is the call's", repr(r))
        t.ok(full(d), "another one")
        r, hit = found(d, "def f():\n while True: pass\n", **slow)
        t.equal((r["cause"], hit), ("wallTime", True), "a call that takes longer ends")
        call(d, params={"a": 1, "b": 1})
        t.ok(full(d), "another one")
        r, hit = found(d, "def f():\n x = b'x' * (3 << 30)\n")
        t.ok("Cannot allocate" in r["msg"] and hit, "a call with too much memory is told so", repr(r))
        t.ok(full(d), "another one")
        big = ADD + "#" * 200000
        r, hit = found(d, big, {"a": 5, "b": 5}, **slow)
        t.equal((r["data"], hit), (10, False), "a call that is more than a pipe takes has a run of its own")


def test_not_found(t):
    with service.Daemon(options=["--pool", "1"]) as d:
        call(d, params={"a": 1, "b": 1})
        t.ok(full(d), "one waits")
        for what, more in (("another policy", {"manifest": {"manifestVersion": 1, "resources": {"memory": "300Mi"}}}),
                           ("a variable of its own", {"env": {"X": "1"}}),
                           ("files", {"files": [{"path": "a", "content": "b"}]})):
            call(d, params={"a": 1, "b": 1})
            t.ok(full(d), "one waits")
            r, hit = found(d, params={"a": 2, "b": 2}, **more)
            t.equal((r.get("data"), hit), (4, False), "not for a call with " + what)
        t.ok(full(d), "it is there again, of whatever kind")


def test_loss(t):
    with service.Daemon(options=["--pool", "2"]) as d:
        call(d, params={"a": 1, "b": 1})
        t.ok(full(d), "one waits")
        victims = interpreters(d)
        t.equal(len(victims), 1, "it is a process that can be found")
        os.kill(victims[0], signal.SIGKILL)
        r = call(d, params={"a": 2, "b": 2})
        t.ok(r.get("data") == 4 or r["cause"] == "signal", "killed from outside: the call has another one, or is told", repr(r))
        t.ok(full(d), "and there will be another one")
        r, hit = found(d, params={"a": 4, "b": 4})
        t.equal((r["data"], hit), (8, True), "which works")


def test_operations(t):
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        config = place + "/nsboxd.json"

        def write(pool, **more):
            with open(config, "w", encoding="utf-8") as f:
                json.dump({"pool": pool, **more}, f)

        write(2)
        with service.Daemon(options=["--config", config]) as d:
            call(d, params={"a": 1, "b": 1})
            t.ok(full(d), "made as the configuration has it")
            t.ok(tap.wait_until(lambda: len(interpreters(d)) == 1, 60), "one interpreter")
            write(0)
            t.equal(d.ask("POST", "/v1/daemon/reload")[0], 200, "a reload without")
            t.ok(tap.wait_until(lambda: not interpreters(d), 60), "ends it")
            r, hit = found(d, params={"a": 1, "b": 1})
            t.equal((r["data"], hit, metric(d, "nsbox_pool_waiting")), (2, False, 0), "calls work as ever, and none is made")
            front = d.pids()
            write(1, poolSpare="900Ti")  # more than any machine has
            d.ask("POST", "/v1/daemon/reload")
            r = [call(d, params={"a": 1, "b": 1}) for _ in range(3)]
            t.equal(([x["data"] for x in r], metric(d, "nsbox_pool_waiting"), interpreters(d)), ([2, 2, 2], 0, []),
                    "none is made while the machine is short of memory")
            write(1)
            d.ask("POST", "/v1/daemon/reload")
            call(d, params={"a": 1, "b": 1})
            t.ok(full(d), "and with it again")
            write(1, poolSpare="900Ti")
            d.ask("POST", "/v1/daemon/reload")
            t.ok(tap.wait_until(lambda: not interpreters(d), 60), "one that waits is ended when memory becomes short")
            r, hit = found(d, params={"a": 1, "b": 1})
            t.equal((r["data"], hit), (2, False), "and its call has a run of its own")
        t.ok(tap.wait_until(lambda: not any(os.path.exists("/proc/%d" % pid) for pid in front), 30), "all of it ends with the service")
    r = subprocess.run([service.paths.NSBOXD, "--pool", "257", "--check"], capture_output=True, text=True, check=False)
    t.ok(r.returncode != 0 and "pool" in r.stderr, "more than 256 are refused", r.stderr)


sys.exit(tap.run([test_found, test_no_programs, test_end, test_commands, test_limits, test_not_found, test_loss, test_operations]))
