#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""NSBOX_RUNS (50,000) calls by four clients of a pool of three: none sees another's state, nothing is left behind.

With four clients the pool is empty most of the time, so that both ways are taken. Every hundredth interpreter that
waits is killed. And all of it once more with forks of a zygote, which is killed as often. Figures are reported every tenth of the way; the verdict compares the last half with its beginning.
"""

import os
import re
import signal
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, service, tap

RUNS = int(os.environ.get("NSBOX_RUNS", "50000"))
CLIENTS = 4
CODE = """
def f(n):
    import builtins, os, signal, sys, threading
    seen = [hasattr(builtins, "left"), os.path.exists("/tmp/left"), "LEFT" in os.environ, os.getcwd() != "/workspace",
            signal.getsignal(signal.SIGUSR1) != signal.SIG_DFL, threading.active_count() != 1, len(os.listdir("/proc/self/fd")) > 8]
    builtins.left = 1
    open("/tmp/left", "w").close()
    os.environ["LEFT"] = "1"
    os.chdir("/tmp")
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    sys.stdin = open("/etc/services")
    return [n, any(seen), seen]
"""


def metric(d, name):
    return int(re.search(r"^%s (\d+)$" % name, d.ask("GET", "/metrics")[1], re.M).group(1))


def inside(d):
    return [pid for (pid, _), _ in leftovers.descendants(d.pid).items() if leftovers.in_sandbox(pid)]


def kill_one(d, doomed):
    """A call that has just got it is told of a signal; that is no defect."""
    for (pid, _), name in leftovers.descendants(d.pid).items():
        if name.startswith("python3") and doomed(pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            return 1
    return 0


def waits(pid):
    return "\0ahead\0" in leftovers.read("/proc/%d/cmdline" % pid)


def is_template(pid):
    return "\0template\0" in leftovers.read("/proc/%d/cmdline" % pid) and not leftovers.in_sandbox(pid)


def work(d, count, wrong, killed, lock, doomed):
    for i in range(count):
        status, r = d.ask("POST", "/v1/execute/python-function", {"code": CODE, "params": {"n": i}})
        fine = status == 200 and (r.get("data") or [None, True])[:2] == [i, False]
        if not fine and r.get("cause") == "signal" and killed[0]:
            with lock:
                killed[0] -= 1
        elif not fine:
            wrong.append(repr((status, r))[:300])
        if (i + 1) % min(100, count) == 0:
            with lock:
                # With a zygote no call ends: that of a fork that it has made goes on.
                killed[0] += kill_one(d, doomed) and doomed is waits


def figures(pids):
    out = {}
    for name, pid in pids.items():
        status = leftovers.read("/proc/%d/status" % pid)
        out[name] = (int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024, len(os.listdir("/proc/%d/fd" % pid)))
    return out


def soak(t, options, doomed):
    with service.Daemon(options=options) as d:
        own = {leftovers.read("/proc/%d/comm" % pid).strip(): pid for pid in d.pids()[1:]}
        wrong, killed, lock, seen = [], [0], threading.Lock(), []
        for part in range(10):
            threads = [threading.Thread(target=work, args=(d, max(1, RUNS // 10 // CLIENTS), wrong, killed, lock, doomed)) for _ in range(CLIENTS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seen.append(figures(own))
            print("# %d0%%: %s, %d found a run" % (part + 1, seen[-1], metric(d, "nsbox_pool_taken_total")), flush=True)
        t.equal(wrong[:3], [], "all %d calls had their own result, and saw nothing of another" % RUNS)
        t.ok(metric(d, "nsbox_pool_taken_total") > 0, "some of them found a run made ahead")
        t.ok(tap.wait_until(lambda: len(inside(d)) <= 3 * 4, 60), "what is left are the runs that wait", repr(inside(d)))
        for name in ("nsboxd", "nsbox-spawn"):
            (first, fds), (last, fds_then) = seen[4][name], seen[-1][name]
            t.ok(last < first * 1.25 + 4, "%s stays as large as it was" % name, repr((first, last)))
            t.ok(fds_then <= fds + 64, "%s has as many files open" % name, repr((fds, fds_then)))
        pids = inside(d)
    t.ok(tap.wait_until(lambda: not any(os.path.exists("/proc/%d" % pid) for pid in pids), 60), "all of it ends with the service")


def test_pool(t):
    soak(t, ["--pool", "3"], waits)


def test_zygote(t):
    soak(t, ["--pool", "3", "--zygote", "none"], is_template)


sys.exit(tap.run([test_pool, test_zygote]))
