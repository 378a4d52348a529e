#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions and jobs of others do not exist, and of sessions that ended nothing is left, memory included.

SESSIONS_ENDED says how many are made and ended (default 8).
"""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, service, tap

COMMAND = "/v1/execute/command"
ENDED = int(os.environ.get("SESSIONS_ENDED", "8"))
OWNER, OTHER = 12345, 12346


def shape(answer, name, other):
    return str(answer).replace(name, other)


def test_others(t):
    """Each request of a table by another user, as if there were nothing; then, as the twin, by the owner."""
    if os.getuid() != 0:
        t.note("other users can be tried as root alone")
        return
    with service.Daemon(options=["--allow-uid", str(OWNER), "--allow-uid", str(OTHER)]) as d:
        def ask(uid, method, path, body=None):
            return service.ask_as(uid, d, method, path, body)
        status, made = ask(OWNER, "POST", COMMAND, {"session_id": "mine", "workspace_id": "w", "command": "echo secret >f"})
        t.equal((status, made["session"]["created"]), (200, True), "a user makes a session")
        status, job = ask(OWNER, "POST", "/v1/jobs", {"kind": "command", "workspace_id": "w", "session_id": "mine",
                                                      "command": "echo out; cp f g", "outputs": ["g"]})
        t.equal(status, 202, "and a job in it")
        ask(OWNER, "GET", "/v1/jobs/%s?wait=60" % job["id"])
        session, jobs = "/v1/sessions/mine", "/v1/jobs/" + job["id"]
        table = (("GET", session, None), ("PATCH", session, {"network_policy": {"mode": "none"}}),
                 ("GET", session + "/files/workspace/f", None), ("PUT", session + "/files/workspace/n", {}),
                 ("DELETE", session + "/files/workspace/g", None), ("GET", session + "/changes", None),
                 ("POST", session + "/snapshot", {}), ("POST", session + "/fork", {"session_id": "twin"}),
                 ("GET", jobs, None), ("GET", jobs + "/events", None), ("GET", jobs + "/outputs/g", None),
                 ("GET", "/v1/receipts/" + job["id"], None), ("DELETE", jobs, None),
                 ("DELETE", session, None))
        for method, path, body in table:
            status, answer = ask(OTHER, method, path, body)
            unknown = path.replace("mine", "none").replace(job["id"], "job-0")
            same = ask(OTHER, method, unknown, body)
            t.ok(status == same[0] == 404 and shape(answer, job["id"], "job-0").replace("mine", "none")
                 == str(same[1]), "%s %s by another user is as if it were not there" % (method, path.replace(job["id"], "ID")),
                 "%s %r %r" % (status, answer, same))
            if (method, path) != ("DELETE", session):
                status, answer = ask(OWNER, method, path, body)
                t.ok(status < 300 or status == 409, "its own user can", "%s %r" % (status, answer))
        t.equal((ask(OTHER, "GET", "/v1/sessions")[1], ask(OTHER, "GET", "/v1/jobs")[1]), ({"sessions": [], "max": 256}, {"jobs": []}),
                "nor is any of it listed")
        status, answer = ask(OTHER, "POST", COMMAND, {"session_id": "mine", "workspace_id": "w", "command": "cat f"})
        t.ok(status == 200 and answer["session"]["created"] and "secret" not in answer["stdout"],
             "the same name is another user's own session, with nothing of the first", str(answer)[:300])
        t.equal(ask(OWNER, "POST", COMMAND, {"session_id": "mine", "workspace_id": "w", "command": "cat f"})[1]["stdout"],
                "secret\n", "which is still there")
        t.equal(ask(OWNER, "DELETE", session)[0], 200, "and ended by its user")


def rss(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", leftovers.read("/proc/%d/status" % pid)).group(1))


def lasting(d):
    """{name: pid} of front and spawner, found while there is no sandbox whose processes have their names."""
    names = {pid: leftovers.read("/proc/%d/comm" % pid).strip() for pid in d.pids() if pid != d.pid}
    return {name: pid for pid, name in names.items() if name in ("nsboxd", "nsbox-spawn")}


def descriptors(pid):
    return len(os.listdir("/proc/%d/fd" % pid))


def held(found):
    """What the service holds: {process: (kB, descriptors)}, and how many mounts its spawner sees."""
    sizes = {name: (rss(pid), descriptors(pid)) for name, pid in found.items()}
    return sizes, len(leftovers.read("/proc/%d/mountinfo" % found["nsbox-spawn"]).splitlines())


def one(t, d, i):
    name = "s%d" % i
    status, r = d.ask("POST", COMMAND, {"session_id": name, "command": "head -c 8388608 /dev/zero >/tmp/fill; "
                                        "(sleep 600 & ) >/dev/null 2>&1; stat -c %i -L /proc/self/ns/mnt"})
    if status != 200 or r["exit_code"] != 0:
        t.ok(False, "a session is made", str(r))
    return name, int(r["stdout"])


def everywhere():
    """Mount namespaces that any process of the machine is in."""
    seen = set()
    for pid in os.listdir("/proc"):
        try:
            if pid.isdigit():
                seen.add(os.stat("/proc/%s/ns/mnt" % pid).st_ino)
        except OSError:
            pass
    return seen


def test_memory(t):
    """What a session wrote to memory goes with its mount namespace, and that with its last process."""
    with service.Daemon() as d:
        sizes, mounts, found = [], [], lasting(d)
        spawn = found["nsbox-spawn"]
        for i in range(ENDED):
            name, namespace = one(t, d, i)
            if i == 0:
                t.ok(namespace in everywhere(), "while a session is there its file systems are")
            t.equal(d.ask("DELETE", "/v1/sessions/" + name)[0], 200, "a session of 8 MiB, with a process left behind, ends")
            t.ok(tap.wait_until(lambda: namespace not in everywhere(), 60), "no process sees its file systems any more")
            # It lets go of a sandbox a moment after that is gone; what stays open for all is open after the first.
            tap.wait_until(lambda: i and descriptors(spawn) <= sizes[0]["nsbox-spawn"][1], 2 if i == 0 else 20)
            now = held(found)
            sizes.append(now[0])
            mounts.append(now[1])
        half = ENDED // 2
        for name in ("nsboxd", "nsbox-spawn"):
            grown = [s[name][0] for s in sizes]
            t.ok(grown[-1] <= grown[half] + 1024, "%s: memory is as before" % name, str(grown))
            t.ok(sizes[-1][name][1] <= sizes[half][name][1], "%s: so are its descriptors" % name, str([s[name][1] for s in sizes]))
        t.equal(mounts[-1], mounts[0], "nsbox-spawn has no mount more")
        t.equal(d.ask("GET", "/v1/sessions")[1]["sessions"], [], "none is listed")


if __name__ == "__main__":
    leftovers.become_subreaper()
    sys.exit(tap.run([test_others, test_memory]))
