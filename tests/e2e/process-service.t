#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The service in the tier "process": refused where the operator has not accepted it, and with --min-tier process jobs,
functions, sessions, files, skills and outputs, limits, ids, receipts, and that nothing outlives its end.

In a container as Docker starts one, asked from outside it, where its processes are seen as the host sees them.
"""

import base64
import concurrent.futures
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import docker, leftovers, paths, service, tap, tiers

place = paths.scratch("process-service-")


class Service(tiers.Boxed):
    """nsboxd in a container that allows no more than this tier."""

    def __init__(self, name, *options):
        super().__init__(os.path.join(place, name), docker.default(), options)

    def run(self, body):
        return self.ask("POST", "/v1/execute/command", body)[1]

    def receipt(self, done):
        return self.ask("GET", "/v1/receipts/" + done["receipt_id"])[1]


shared = None  # one service for all that does not need its own


def mark():
    """A number of seconds that no other sleep has."""
    mark.n += 1
    return "4%06d%02d" % (os.getpid(), mark.n)


mark.n = 0


def alive(number):
    """The users of the processes that sleep for so long."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if leftovers.read("/proc/%s/cmdline" % pid) == "sleep\0%s\0" % number:
            status = leftovers.read("/proc/%s/status" % pid)
            found += [int(line.split()[1]) for line in status.splitlines() if line.startswith("Uid:")]
    return found


def later(call, *args):
    return concurrent.futures.ThreadPoolExecutor(1).submit(call, *args)


# A child, an orphan in a session of its own, and one that does not heed TERM.
TREE = "sleep {0} & (setsid sleep {0} &) ; (sh -c 'trap \"\" TERM; sleep {0} & wait' &) ; sleep {0}"


# ---------------------------------------------------------------- what is accepted


def test_refused(t):
    with Service("without") as s:
        status, answer = s.ask("POST", "/v1/execute/command", {"argv": ["echo", "ran"]})
        t.ok(status >= 400 and "seccomp=PROFILE" in json.dumps(answer), "without --min-tier: refused, with the remedy",
             "%s %s" % (status, answer))


def test_zygote(t):
    """There is nothing to fork: its twin without the option is the service of all other tests."""
    with Service("zygote", "--min-tier", "process", "--zygote", "none") as s:
        t.ok(s.process.wait(60) != 0, "with --zygote the service does not start")
        log = s.log()
        t.ok("reaches the tier 'process'" in log and "--zygote" in log and "nsbox doctor" in log,
             "and says why, and what to do", log)
        t.equal(log.count("starting again"), 0, "it is not tried again and again")
    with service.Daemon(options=["--min-tier", "process", "--zygote", "none"]) as d:
        t.equal(d.ask("GET", "/healthz")[0], 200, "where namespaces are reached the same options are taken")


def test_pool(t):
    """--pool makes none here, and says so (pool.t: what it makes elsewhere)."""
    t.equal(shared.ask("GET", "/v1/daemon")[1].get("pool"), 0, "no runs wait")
    calls = [shared.ask("POST", "/v1/execute/python-function", {"code": "def f():\n return 1"})[1] for _ in range(3)]
    t.equal([(c.get("data"), shared.receipt(c).get("ahead")) for c in calls], [(1, None)] * 3, "none of three calls finds one")
    t.equal(shared.ask("GET", "/v1/daemon")[1].get("pool"), 0, "nor was one made for the next")
    t.ok("pool-none" in shared.log(), "the log says so")


# ---------------------------------------------------------------- jobs


def test_command(t):
    t.equal(shared.ask("GET", "/v1/capabilities")[1]["tier"], "process", "the service says which tier it reaches")
    script = "id -u; cat /proc/1/environ; mkdir o; echo made >o/a; ln -s /etc/passwd o/b; exit 3"
    done = shared.run({"argv": ["sh", "-c", script], "outputs": ["o/*"]})
    t.ok(done.get("exit_code") == 3 and int(done["stdout"] or 0) > 1000 and "Permission denied" in done["stderr"],
         "a command, as a user of its own", str(done))
    t.ok(leftovers.read("/proc/%d/environ" % shared.process.pid), "variables of a process can be read outside")
    t.equal([(o["path"], base64.b64decode(o["content_base64"])) for o in done["outputs"]], [("o/a", b"made\n")],
            "its output is what it wrote, and no link")
    status, answer = shared.ask("POST", "/v1/execute/python-function",
                                {"code": "def f(a):\n return [a, sum(range(10))]", "params": {"a": "你好"}})
    t.equal((status, answer.get("data")), (200, ["你好", 45]), "a function" + ("" if status == 200 else str(answer)))
    status, answer = shared.ask("POST", "/v1/execute/command", {"argv": ["true"], "manifest": {
        "manifestVersion": 1, "name": "x", "network": {"mode": "open"}}})
    t.ok(status == 400 and "network/mode" in json.dumps(answer), "what the tier cannot hold is refused by name", str(answer))


def test_skill(t):
    skill = os.path.join(place, "skill")
    os.makedirs(skill, exist_ok=True)
    manifest = {"manifestVersion": 1, "name": "demo", "files": {"executable": ["tool"]}}
    tool = "#!/bin/sh\ncat data; touch x 2>/dev/null && echo x; cp data \"$HOME/copy\" && cat \"$HOME/copy\"\n"
    for name, text in (("skill.json", json.dumps(manifest)), ("tool", tool), ("data", "of the skill\n")):
        with open(os.path.join(skill, name), "w", encoding="utf-8") as f:
            f.write(text)
    done = subprocess.run([paths.NSBOX, "job", "run", "--socket", shared.socket, "--skill", skill, "--", "./tool"],
                          capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    t.ok(done.returncode == 0 and done.stdout == "of the skill\n" * 2,
         "a skill is copied in, read-only, and its program made executable", repr(done))


def test_ids(t):
    """Three at once, twice over."""
    ids = []
    for turn in range(2):
        number = mark()
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            script = "id -u; id -g; exec timeout 1 sleep " + number
            jobs = [pool.submit(shared.run, {"argv": ["sh", "-c", script]}) for _ in range(3)]
            t.ok(tap.wait_until(lambda n=number: len(alive(n)) == 3, 60), "three run at once")
            outside = sorted(alive(number))
            ids.append(sorted(job.result()["stdout"] for job in jobs))
        t.equal(len(set(ids[turn])), 3, "each with ids of its own")
        t.equal(["%d\n%d\n" % (uid, uid) for uid in outside], ids[turn], "as which the host knows them")
    t.equal(ids[0], ids[1], "and ids that were given back are given again")


def test_other_container(t):
    """Neither knows the other's runs; users are the whole host's. A run ends with all that its user has."""
    with Service("other", "--min-tier", "process") as other:
        number, quick = mark(), {"argv": ["sh", "-c", "id -u; true"]}
        job = other.ask("POST", "/v1/jobs", {"kind": "command", "argv": ["sleep", number]})[1]
        t.ok(tap.wait_until(lambda: alive(number), 20 * tap.slow()), "a run of another container's service is alive")
        ours = {int(shared.run(quick)["stdout"]) for _ in range(3)}
        t.ok(not ours & set(alive(number)), "none of ours has its user", repr((ours, alive(number))))
        t.ok(alive(number), "and it lives on when ours end")
        other.ask("DELETE", "/v1/jobs/" + job["id"])


def test_receipt(t):
    done = shared.run({"argv": ["true"]})
    receipt = shared.receipt(done)
    t.equal((receipt.get("tier"), receipt["host"]["tier"]), ("process", "process"), "a receipt says by which tier it was held")
    missing = {row["layer"] for row in receipt["notEnforced"]}
    t.ok({"user", "mount", "pid", "net", "root"} <= missing and "ownId" not in missing, "which layers it lacked", str(missing))
    t.ok({"processes", "host", "paths", "disk"} <= set(receipt["notStopped"])
         and not {"attributes", "signals"} & set(receipt["notStopped"]), "and what was not stopped", str(receipt["notStopped"]))
    t.equal(done["notStopped"], receipt["notStopped"], "as the reply does")
    with service.Daemon() as d:
        done = d.ask("POST", "/v1/execute/command", {"argv": ["true"]})[1]
        receipt = d.ask("GET", "/v1/receipts/" + done["receipt_id"])[1]
        t.ok(receipt["tier"] in ("namespace", "cgroup") and "notStopped" not in receipt and "notStopped" not in done,
             "with namespaces there is nothing to be said of that", str(receipt))


# ---------------------------------------------------------------- ends


def test_time(t):
    number = mark()
    waiting = later(shared.run, {"argv": ["sh", "-c", TREE.format(number)], "timeout_seconds": 2})
    t.ok(tap.wait_until(lambda: len(alive(number)) == 4, 60), "a tree of four, an orphan among them", str(alive(number)))
    t.equal(waiting.result()["cause"], "wallTime", "the time limit ends it")
    t.equal(alive(number), [], "all of it")


def test_cancel(t):
    number = mark()
    status, job = shared.ask("POST", "/v1/jobs", {"kind": "command", "argv": ["sh", "-c", TREE.format(number)]})
    t.equal(status, 202, "a job") or t.note(str(job))
    t.ok(tap.wait_until(lambda: len(alive(number)) == 4, 60), "whose tree lives", str(alive(number)))
    status, answer = shared.ask("DELETE", "/v1/jobs/" + job["id"])
    t.ok(status < 300, "it is cancelled", str(answer))
    t.ok(tap.wait_until(lambda: shared.ask("GET", "/v1/jobs/" + job["id"])[1].get("state") == "finished", 60), "and over")
    t.equal(shared.ask("GET", "/v1/receipts/" + job["id"])[1]["cause"], "cancelled", "for that reason")
    t.equal(alive(number), [], "with all that it had started")


FILL = "import mmap, time\nm = mmap.mmap(-1, %d << 20)\nfor i in range(0, len(m), 4096): m[i] = 1\ntime.sleep(%d)"
FORKS = """import os, sys, time
for n in range(%d):
    try:
        if os.fork() == 0:
            time.sleep(1); os._exit(0)
    except OSError:
        sys.exit(9)
"""


def test_limits(t):
    def end(code, **resources):
        manifest = {"manifestVersion": 1, "name": "x", "resources": resources}
        done = shared.run({"argv": ["python3", "-c", code], "manifest": manifest, "timeout_seconds": 30})
        return done["cause"], done["exit_code"]
    t.equal(end(FILL % (96, 20), memory="64Mi")[0], "memory", "more memory than the limit, shared: ended by it")
    t.equal(end(FILL % (24, 0), memory="64Mi"), ("exit", 0), "less is had")
    t.equal(end(FORKS % 40, pids=16), ("exit", 9), "a fork beyond the limit of processes is refused")
    t.equal(end(FORKS % 8, pids=16), ("exit", 0), "one within is not")


# ---------------------------------------------------------------- sessions


def test_session(t):
    s = shared
    status, answer = s.ask("POST", "/v1/sessions", {"session_id": "s"})
    t.ok(status in (200, 201), "a session", str(answer))
    t.equal((answer.get("tier"), "notStopped" in answer), ("process", True), "which says how it is held")

    def run(*argv, **more):
        return s.run({"session_id": "s", "argv": list(argv), **more})
    stays, stopped = mark(), mark()
    t.equal(run("sh", "-c", "echo one >f; (setsid sleep %s >/dev/null 2>&1 &)" % stays).get("exit_code"), 0, "a command in it")
    t.ok(tap.wait_until(lambda: len(alive(stays)) == 1, 20), "what it left behind, an orphan in a session of its own, lives on")
    t.equal(run("cat", "f").get("stdout"), "one\n", "the next finds what it wrote")
    t.equal(run("cat", "/workspace/f").get("stdout"), "one\n", "also by the run's own path")
    done = run("sh", "-c", "mkdir $NSBOX_ROOT/skills/own && echo x >$NSBOX_ROOT/skills/own/y && cat $NSBOX_ROOT/skills/own/y")
    t.equal(done.get("stdout"), "x\n", "/skills is the run's, as in any tier")
    done = run("sh", "-c", TREE.format(stopped), timeout_seconds=1)
    t.equal((done["cause"], alive(stopped), len(alive(stays))), ("wallTime", [], 1),
            "a command that is stopped ends with all that it started, and nothing else does")
    status, _, raw = s.fetch("GET", "/v1/sessions/s/files/workspace/f")
    t.equal((status, raw), (200, b"one\n"), "who asks for the file has it")
    status, _, raw = s.fetch("PUT", "/v1/sessions/s/files/tmp/g", b"two\n")
    t.ok(status < 300, "a file is written at /tmp", repr(raw))
    t.equal(run("cat", "/tmp/g").get("stdout"), "two\n", "where the command finds it")
    status, answer = s.ask("GET", "/v1/sessions/s/changes")
    t.ok(status >= 400 and "process" in json.dumps(answer), "its changes are refused by name", "%d %s" % (status, answer))
    t.equal(len(alive(stays)), 1, "until its end the orphan is there")
    status, answer = s.ask("DELETE", "/v1/sessions/s")
    t.ok(status < 300, "its end", str(answer))
    t.ok(tap.wait_until(lambda: not alive(stays), 20), "with which it ends")


def main():
    global shared  # pylint: disable=global-statement
    if os.geteuid() != 0:
        print("1..0 # SKIP containers are started by root: its half tries this")
        return 0
    with Service("with", "--min-tier", "process", "--pool", "4") as shared:
        return tap.run([test_refused, test_zygote, test_pool, test_command, test_skill, test_ids, test_other_container,
                        test_receipt, test_time, test_cancel, test_limits, test_session])


if __name__ == "__main__":
    sys.exit(main())
