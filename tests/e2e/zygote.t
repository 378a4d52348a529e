#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Interpreters that are forks of one (nsboxd --zygote): the same sandbox, nothing of another run, and life without it."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, service, tap, traces

ADD = "def add(a, b):\n    return a + b\n"


def call(d, code=ADD, params=None, **more):
    return d.ask("POST", "/v1/execute/python-function", {"code": code, "params": params or {}, **more})[1]


def receipt(d, r):
    return d.ask("GET", "/v1/receipts/" + r["receipt_id"])[1]


def forked(d, r):
    return receipt(d, r).get("shared_layout", False)


def forks(d):
    """It is ready once a call is a fork of it."""
    return tap.wait_until(lambda: forked(d, call(d, params={"a": 1, "b": 1})), 60 * tap.slow())


def templates(d):
    return [pid for (pid, _), name in leftovers.descendants(d.pid).items()
            if name.startswith("python3") and "\0template\0" in leftovers.read("/proc/%d/cmdline" % pid)
            and leftovers.read("/proc/%d/status" % pid).split("NSpid:")[1].split("\n")[0].count("\t") == 1]


# What must differ from run to run, of which the hash does not.
CHANCE = """
def chance():
    import os, random, tempfile, uuid
    return [random.random(), next(tempfile._get_candidate_names()), str(uuid.uuid4()), os.urandom(4).hex()], hash("x")
"""


def test_same(t):
    with service.Daemon(options=["--zygote", "random,tempfile"]) as d, service.Daemon() as plain:
        t.ok(forks(d), "calls are forks of an interpreter")
        pages = re.search(r"each fork of it copies (\d+) pages at once", d.log())
        t.ok(pages and int(pages.group(1)) > 50, "and copy ahead what a call has been seen to write to", d.log())
        a, b = call(plain, traces.LOOK), call(d, traces.LOOK)
        t.equal((forked(plain, a), forked(d, b)), (False, True), "the receipt says which is")
        again = call(d, traces.LOOK)
        t.equal(traces.differences(a, b), {}, "it finds itself as an interpreter that was started for it")
        t.equal(traces.differences(a, again), {}, "and nothing that the one before has left")
        x, y = receipt(plain, a), receipt(d, b)
        same = ("policy_sha256", "plan_sha256", "image_digest", "kind", "host")
        t.equal({k: y[k] for k in same}, {k: x[k] for k in same}, "of the same plan and image")
        bare = lambda r: {k: v for k, v in r["witness"].items() if not k.endswith("us")}
        t.equal(bare(y), bare(x), "whose witness has tried the same")
        strip = lambda r: [{k: v for k, v in layer.items() if k != "us"} for layer in r["enforced"]]
        t.equal(strip(b), strip(a), "and the same layers hold")
        (one, seed), (two, same_seed) = (call(d, CHANCE)["data"] for _ in range(2))
        t.ok(all(i != j for i, j in zip(one, two)), "no two have the same chance", repr((one, two)))
        t.equal(seed, same_seed, "but the seed of hashes, as documented")
        for what, code in (("write outside", "def f():\n open('/usr/x', 'w')\n"),
                           ("write to the template's program", "def f():\n open('/proc/self/exe', 'rb').close()\n open('/proc/self/exe', 'r+b')\n"),
                           ("signal the template", "def f():\n import os\n os.kill(%d, 0)\n" % templates(d)[0]),
                           ("reach a host", "def f():\n import socket\n socket.create_connection(('192.0.2.1', 9), 3)\n")):
            r = call(d, code)
            t.ok(r["code"] == 500 and re.search("Errno|denied", r["msg"]), "it may not " + what, repr(r["msg"]))
        r = call(d, "def f():\n import subprocess, sys\n return subprocess.run([sys.executable, '-c', 'print(1+1)'], capture_output=True, text=True).stdout\n")
        t.equal(r["data"], "2\n", "it may start an interpreter of its own")
        r = call(d, "def f():\n raise SystemExit(7)\n")
        t.equal((r["cause"], r["exit_code"]), ("exit", 7), "and end as it likes")
        how = "def f():\n import os, time\n return 'template' in open('/proc/self/cmdline').read(), time.tzname[0], os.environ.get('X')\n"
        t.equal(call(d, how, env={"X": "1"})["data"], [True, "UTC", "1"], "a variable of its own is there")
        t.equal(call(d, how, env={"TZ": "XYZ3"})["data"], [False, "XYZ", None], "with one that an interpreter reads at its start another is started")


def test_pool(t):
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        config = place + "/nsboxd.json"

        def write(**options):
            with open(config, "w", encoding="utf-8") as f:
                json.dump({"zygote": "none", "pool": 2, **options}, f)

        write()
        with service.Daemon(options=["--config", config]) as d:
            t.ok(forks(d), "calls are forks")
            waits = lambda: int(re.search(r"^nsbox_pool_waiting (\d+)$", d.ask("GET", "/metrics")[1], re.M).group(1)) > 0
            t.ok(tap.wait_until(waits, 60 * tap.slow()), "one is made ahead")
            r = call(d, params={"a": 2, "b": 3})
            t.equal((r["data"], receipt(d, r).get("ahead"), forked(d, r)), (5, True, True), "and serves a call")
            before = templates(d)
            write(runners=3)
            status, r = d.ask("POST", "/v1/daemon/reload")
            t.equal((status, templates(d)), (200, before), "a reload of something else leaves it")
            write(zygote="json")
            status, r = d.ask("POST", "/v1/daemon/reload")
            t.ok(status != 200 and "zygote" in str(r), "one with another list is refused: it would need a new start", repr((status, r)))
            t.equal((templates(d), forked(d, call(d, params={"a": 1, "b": 1}))), (before, True), "and changes nothing")


def crowd(d, clients, calls):
    """Calls by several at once; each as (what was asked, its answer)."""
    seen = []

    def work(k):
        for i in range(calls):
            seen.append((k * 1000 + i, call(d, params={"a": k * 1000, "b": i})))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(clients)]
    for thread in threads:
        thread.start()
    return threads, seen


def test_loss(t):
    with service.Daemon(options=["--zygote", "none", "--runners", "4"]) as d:
        t.ok(forks(d), "calls are forks")
        found = templates(d)
        t.equal(len(found), 1, "of one process")
        os.kill(found[0], signal.SIGSTOP)
        began = time.monotonic()
        r = call(d, params={"a": 2, "b": 3})
        t.equal((r["data"], forked(d, r)), (5, False), "where it does not answer a call has an interpreter of its own")
        t.ok(time.monotonic() - began < 4 * tap.slow(), "and does not wait for it long", repr(time.monotonic() - began))
        t.ok(forks(d), "and then there is another one")
        t.ok(templates(d) != found, "in its place")
        threads, seen = crowd(d, 8, 4)  # more than may run, of whom some meet its end
        for _ in range(2):
            tap.wait_until(lambda: templates(d), 60 * tap.slow())
            for pid in templates(d):
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.2)
        for thread in threads:
            thread.join()
        t.equal([(n, r) for n, r in seen if r.get("data") != n], [], "killed under load: each call has its own answer")
        held = lambda r: ([layer["layer"] for layer in r["enforced"]], r["notEnforced"], r["policy_sha256"], {k: v for k, v in r["witness"].items() if not k.endswith("us")})
        t.equal(len({repr(held(r)) for _, r in seen}), 1, "by the same policy, layers and witness, whoever made it")
        t.ok(forks(d), "another one again")
        t.ok("the zygote has ended" in d.log(), "the log tells", d.log())


# Found by the host's python3, in a mount namespace of the service alone.
THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"


def beside(place):
    """What starts a service whose Python finds the modules of a directory."""
    where = next(p for p in sys.path if p.endswith("dist-packages") and os.path.isdir(p))
    return ["unshare", "-m", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"', place, where]


def test_modules(t):
    if os.geteuid() != 0:
        t.note("modules of a test's own need a mount, and so root")
        return
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        for name, text in (("starts_one", THREAD), ("starts_none", "import threading, time\n")):
            with open("%s/%s.py" % (place, name), "w", encoding="utf-8") as f:
                f.write(text)
        with service.Daemon(options=["--zygote", "starts_one"], under=beside(place)) as d:
            t.ok(tap.wait_until(lambda: "no more are tried" in d.log(), 60 * tap.slow()), "a module that starts a thread: it is given up")
            t.ok("one of the modules 'starts_one' has started a thread" in d.log(), "and the log says why", d.log())
            r = call(d, params={"a": 2, "b": 3})
            t.equal((r["data"], forked(d, r)), (5, False), "calls are made without")
        with service.Daemon(options=["--zygote", "starts_none"], under=beside(place)) as d:
            t.ok(forks(d), "the same module without the thread is one to fork from")
            unfiltered(t, d)


def unfiltered(t, d):
    """Of its forks the filter is left out, as if the kernel had taken it: who is to notice is the witness."""
    tracer = subprocess.Popen(["strace", "-f", "-qq", "-p", str(templates(d)[0]), "-e", "trace=seccomp", "-e", "inject=seccomp:retval=0"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    pid = templates(d)[0]
    traced = lambda: "TracerPid:\t%d\n" % tracer.pid in leftovers.read("/proc/%d/status" % pid)
    try:
        t.ok(tap.wait_until(traced, 20 * tap.slow()), "strace leaves out the filter of its forks")
        r = call(d, params={"a": 2, "b": 3})
        t.ok(r["cause"] == "sandbox" and "data" in r and r["data"] is None, "the witness notices, and nothing runs", repr(r)[:600])
    finally:
        tracer.terminate()
        tracer.communicate()
    t.ok(forks(d), "with it calls are forks again")


def test_refused(t):
    with service.Daemon(options=["--zygote", "nosuchmodule"]) as d:
        t.ok(tap.wait_until(lambda: "no more are tried" in d.log(), 60 * tap.slow()), "a module that is not there: it is given up")
        t.ok("No module named 'nosuchmodule'" in d.log(), "and the log says why", d.log())
        r = call(d, params={"a": 2, "b": 3})
        t.equal((r["data"], forked(d, r)), (5, False), "calls are made without")
    for what in ("a;b", "", "os system"):
        r = subprocess.run([service.paths.NSBOXD, "--zygote", what, "--check"], capture_output=True, text=True, check=False)
        t.ok(r.returncode != 0 and "zygote" in r.stderr, "%r is refused" % what, r.stderr)
    r = subprocess.run([service.paths.NSBOXD, "--zygote", "json,os.path", "--check"], capture_output=True, text=True, check=False)
    t.ok(r.returncode == 0, "names of modules are not", r.stderr)


sys.exit(tap.run([test_same, test_pool, test_loss, test_modules, test_refused]))
