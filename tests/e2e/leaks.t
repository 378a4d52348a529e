#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Nothing outlives a run: no process, mount, control group, namespace, descriptor or file.

Counted before and after many runs in a row and many at 16 in parallel through each interface, and
after the owner of a run was killed in the middle of it. NSBOX_RUNS says how many (default 300; `make
soak`: 1000).
"""

import concurrent.futures
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, leftovers, paths, service, tap

IN_A_ROW = int(os.environ.get("NSBOX_RUNS", "300"))
IN_PARALLEL, AT_ONCE = IN_A_ROW // 5, 16
PRIVATE = paths.scratch("nsbox-leaks-")


def once(_=None):
    return subprocess.run(cli.command("true", options=["--no-tty"]), stdin=subprocess.DEVNULL,
                          env=dict(os.environ, TMPDIR=PRIVATE), check=False).returncode


def ask(daemon):
    status, answer = daemon.ask("POST", "/v1/execute/command", {"argv": ["true"]})
    return answer.get("exit_code") if status == 200 else "HTTP %d %r" % (status, answer)


def count_and_compare(t, what, call, pids=()):
    call()  # what the first run on a machine makes for all later ones is no leak
    before = leftovers.Snapshot(pids, [PRIVATE])
    failed = [s for s in (call() for _ in range(IN_A_ROW)) if s != 0]
    t.equal(failed[:3], [], "%s: %d runs in a row succeed" % (what, IN_A_ROW))
    t.equal(before.left(), [], "and leave nothing")
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        failed = [s for s in pool.map(lambda _: call(), range(IN_PARALLEL)) if s != 0]
    t.equal(failed[:3], [], "%s: %d runs, %d at once, succeed" % (what, IN_PARALLEL, AT_ONCE))
    leftovers.reap_orphans(set())
    t.equal(before.left(), [], "and leave nothing")


def test_detector(t):
    """The twin of all below: something left on purpose is seen."""
    before = leftovers.Snapshot([os.getpid()], [PRIVATE])
    orphan = subprocess.Popen(["sh", "-c", "setsid sleep 60 >/dev/null 2>&1 & echo $!"], stdout=subprocess.PIPE)
    pid = int(orphan.stdout.readline())
    orphan.wait()
    path = os.path.join(PRIVATE, "left")
    open(path, "w").close()
    shared = os.path.join("/tmp", "nsbox-left-%d" % os.getpid())
    open(shared, "w").close()
    fd = os.open("/dev/null", os.O_RDONLY)
    left = before.left(seconds=0)
    for what in ("no_processes", "no_tmp_dirs", "no_open_fds"):
        t.ok(any(line.startswith(what) for line in left), "what is left on purpose is seen: %s" % what, left)
    t.ok(any(shared in line for line in left), "and so is what is left in /tmp", left)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.unlink(path)
    os.unlink(shared)
    os.close(fd)
    orphan.stdout.close()


def test_cli(t):
    count_and_compare(t, "nsbox run", once)


def test_daemon(t):
    with service.Daemon() as daemon:
        count_and_compare(t, "nsboxd", lambda: ask(daemon), daemon.pids())


def test_killed_owner(t):
    once()
    before = leftovers.Snapshot([], [PRIVATE])
    for name in ("KILL", "TERM"):
        child = subprocess.Popen(
            cli.command("sh", "-c", "sleep 300 & setsid sleep 300 & echo up; wait", options=["--no-tty"]),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=dict(os.environ, TMPDIR=PRIVATE))
        t.equal(child.stdout.readline(), b"up\n", "a run with children is under way")
        child.send_signal(getattr(signal, "SIG" + name))
        child.wait()
        child.stdout.close()
        tap.wait_until(lambda: not before.left(["no_processes"], 0), 5)
        leftovers.reap_orphans(set())
        kinds = [k for k in leftovers.KINDS if k != "no_cgroups"] if name == "KILL" else leftovers.KINDS
        t.equal(before.left(kinds), [], "SIG%s of nsbox leaves nothing of it" % name)
        # Who is killed cannot remove the control groups of its run, empty by now: the next one does.
        once()
        t.equal(before.left(), [], "nor after the next run")


if __name__ == "__main__":
    leftovers.become_subreaper()
    sys.exit(tap.run([test_detector, test_cli, test_daemon, test_killed_owner]))
