#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of each process of the service in mid-job: nothing is left, and the service is back.

	nsboxd (supervisor)
	 +- nsboxd (front)
	 +- nsbox-spawn
	 |   `- init, payload ... of each sandbox
	 `- nsbox-egress
"""

import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, service, tap

JOB = {"command": "mkdir -p /tmp/x; echo data >/tmp/x/f; sleep 300 & sleep 300"}
KINDS = ["no_processes", "no_mounts", "no_cgroups", "no_tmp_dirs", "no_netns"]


def ours(left):
    """Without the temporary files of whatever else runs on the machine."""
    return [l for l in left if not l.startswith("no_tmp_dirs: ") or "nsbox" in l]


def children(daemon):
    """name -> pid of the three."""
    table = leftovers.processes()
    return {name: pid for pid, (parent, state, _, name) in table.items()
            if parent == daemon.pid and state != "Z"}


def pair(daemon):
    found = children(daemon)
    return (found["nsboxd"], found["nsbox-spawn"]) if len(found) == 3 else None


def sleepers(daemon):
    return [pid for (pid, _), name in leftovers.descendants(daemon.pid).items() if name == "sleep"]


def start_jobs(daemon, n):
    """n running jobs; a thread waits for each, and takes whatever comes."""
    answers = []

    def call():
        try:
            answers.append(daemon.ask("POST", "/v1/execute/command", JOB, 60))
        except OSError as error:
            answers.append(error)

    threads = [threading.Thread(target=call) for _ in range(n)]
    for thread in threads:
        thread.start()
    if not tap.wait_until(lambda: len(sleepers(daemon)) == 2 * n, 20):
        raise RuntimeError("the jobs did not start:\n" + daemon.log())
    return threads, answers


def works(daemon):
    try:
        status, reply = daemon.ask("POST", "/v1/execute/command", {"command": "echo back"}, 30)
    except OSError:
        return False
    return status == 200 and reply["stdout"] == "back\n"


def nothing_left(t, before, what):
    left = ours(before.left(KINDS, 15))
    leftovers.reap_orphans(())
    t.equal(left, [], "%s: no process, mount, cgroup, file or namespace is left" % what)


def kill_one(t, name, index):
    """Kill one of the pair while two jobs run."""
    with service.Daemon() as daemon:
        t.ok(works(daemon), "%s: the service works before" % name)
        quiet(daemon)
        before = snapshot(daemon)
        victims = pair(daemon)
        threads, answers = start_jobs(daemon, 2)
        os.kill(victims[index], signal.SIGKILL)
        t.ok(tap.wait_until(lambda: not set(pair(daemon) or victims) & set(victims), 20),
             "%s: a new pair is started" % name, daemon.log())
        for thread in threads:
            thread.join(30)
        t.equal(len(answers), 2, "%s: whoever waited is no longer kept" % name)
        if name == "nsbox-spawn":
            causes = [a[1].get("cause") if isinstance(a, tuple) else repr(a) for a in answers]
            t.equal(causes, ["interrupted", "interrupted"], "running jobs end as interrupted")
        t.ok(tap.wait_until(lambda: works(daemon), 20), "%s: the service works again" % name,
             daemon.log())
        quiet(daemon)
        compare(t, before, daemon, name)


def quiet(daemon):
    """Until only the four processes of the service are there."""
    tap.wait_until(lambda: len(leftovers.descendants(daemon.pid)) == 3, 10)


def snapshot(daemon):
    """The pair's own pids change, so processes are counted, not named."""
    return leftovers.Snapshot([], []), len(leftovers.descendants(daemon.pid))


def compare(t, before, daemon, what):
    shot, count = before
    t.ok(tap.wait_until(lambda: len(leftovers.descendants(daemon.pid)) == count, 15),
         "%s: no process is left" % what, str(leftovers.descendants(daemon.pid)))
    left = ours(shot.left(["no_mounts", "no_cgroups", "no_tmp_dirs"], 15))
    t.equal(left, [], "%s: no mount, cgroup or file is left" % what)


def test_spawn_killed(t):
    kill_one(t, "nsbox-spawn", 1)


def test_front_killed(t):
    kill_one(t, "the front", 0)


def test_supervisor_killed(t):
    before = leftovers.Snapshot()
    daemon = service.Daemon()
    threads, answers = start_jobs(daemon, 2)
    os.kill(daemon.pid, signal.SIGKILL)
    for thread in threads:
        thread.join(30)
    t.equal(len(answers), 2, "whoever waited is no longer kept")
    daemon.stop()
    time.sleep(0.1)
    nothing_left(t, before, "the supervisor")


def test_all_killed_at_once(t):
    """Then nobody is left to clear up: the kernel ends the sandboxes, the next service the rest."""
    before = leftovers.Snapshot()
    daemon = service.Daemon()
    threads, _ = start_jobs(daemon, 2)
    for pid in (daemon.pid, *pair(daemon)):
        os.kill(pid, signal.SIGKILL)
    for thread in threads:
        thread.join(30)
    daemon.stop()
    left = ours(before.left(["no_processes", "no_mounts", "no_tmp_dirs", "no_netns"], 15))
    t.equal(left, [], "all at once: no process, mount, file or namespace is left")
    with service.Daemon() as following:
        t.ok(works(following), "all at once: the next service works")
        time.sleep(1)
    nothing_left(t, before, "all at once")


def test_terminated(t):
    before = leftovers.Snapshot()
    daemon = service.Daemon(options=["--drain", "1"])
    threads, answers = start_jobs(daemon, 2)
    began = time.monotonic()
    status = daemon.stop()
    t.equal(status, 0, "TERM: exit status 0")
    t.ok(time.monotonic() - began < 8, "TERM: promptly")
    for thread in threads:
        thread.join(30)
    causes = [a[1].get("cause") if isinstance(a, tuple) else repr(a) for a in answers]
    t.equal(causes, ["interrupted", "interrupted"], "TERM: running jobs end as interrupted")
    nothing_left(t, before, "TERM")


if __name__ == "__main__":
    leftovers.become_subreaper()
    with service.Daemon() as warm:  # what the first service on a machine makes for all later ones
        works(warm)
    sys.exit(tap.run([test_spawn_killed, test_front_killed, test_supervisor_killed,
                      test_all_killed_at_once, test_terminated]))
