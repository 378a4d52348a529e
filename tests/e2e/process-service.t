#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The service in the tier "process": refused where the operator has not accepted it, and with --min-tier process jobs,
functions, sessions, files and outputs. In a container as Docker starts one, asked from outside it.
"""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import docker, leftovers, paths, service, tap

place = paths.scratch("process-service-")


class Service:
    """nsboxd in a container, its socket in a directory of ours."""

    def __init__(self, name, *options):
        self.shown = os.path.join(place, name)
        os.makedirs(self.shown)
        os.chmod(self.shown, 0o755)
        box = docker.Container(os.path.join(place, name + "-box"), docker.default(),
                               [(self.shown, "/run/nsbox", ["rbind", "rw"])])
        self.log = os.path.join(self.shown, "log")
        with open(self.log, "wb") as log:
            self.process = box.start([paths.NSBOXD, "--socket", "/run/nsbox/sock", "--data-dir", "/var/lib/data",
                                      "--state-dir", "/var/lib/state", "--user", "nobody", *options], stdout=log, stderr=log)
        self.sock = os.path.join(self.shown, "sock")
        tap.wait_until(self.ready, 60)

    def ready(self):
        try:
            return self.process.poll() is not None or (leftovers.is_socket(self.sock)
                                                       and self.ask("GET", "/healthz")[0] == 200)
        except OSError:
            return False

    def ask(self, *request, **more):
        return service.ask(self.sock, *request, **more)

    def run(self, body):
        return self.ask("POST", "/v1/execute/command", body)[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


def test_refused(t):
    with Service("without") as s:
        status, answer = s.ask("POST", "/v1/execute/command", {"argv": ["echo", "ran"]})
        t.ok(status >= 400 and "seccomp=PROFILE" in json.dumps(answer), "without --min-tier: refused, with the remedy",
             "%s %s" % (status, answer))


def test_accepted(t):
    with Service("with", "--min-tier", "process", "--pool", "4") as s:
        t.equal(s.ask("GET", "/v1/capabilities")[1]["tier"], "process", "the service says which tier it reaches")
        done = s.run({"argv": ["sh", "-c", "id -u; cat /proc/1/environ; mkdir o; echo made >o/a; exit 3"],
                      "outputs": ["o/*"]})
        t.ok(done.get("exit_code") == 3 and int(done["stdout"] or 0) > 1000 and "Permission denied" in done["stderr"],
             "a command, as a user of its own", str(done))
        uids = {s.run({"argv": ["id", "-u"]}).get("stdout") for _ in range(3)}
        t.ok(len(uids) >= 1 and "" not in uids and None not in uids, "and again: ids come back", str(uids))
        status, answer = s.ask("POST", "/v1/execute/python-function",
                               {"code": "def f(a):\n return [a, sum(range(10))]", "params": {"a": "你好"}})
        t.equal((status, answer.get("data")), (200, ["你好", 45]), "a function" + ("" if status == 200 else str(answer)))
        done = s.run({"argv": ["sh", "-c", "(setsid sleep 300 &); sleep 300"], "timeout_seconds": 1})
        t.ok("wallTime" in json.dumps(done), "the time limit ends it", str(done))
        status, answer = s.ask("POST", "/v1/execute/command", {"argv": ["true"], "manifest": {
            "manifestVersion": 1, "name": "x", "network": {"mode": "open"}}})
        t.ok(status == 400 and "network/mode" in json.dumps(answer), "what the tier cannot hold is refused by name", str(answer))


def test_session(t):
    with Service("session", "--min-tier", "process") as s:
        status, answer = s.ask("POST", "/v1/sessions", {"session_id": "s"})
        t.ok(status in (200, 201), "a session", str(answer))

        def run(*argv, **more):
            return s.run({"session_id": "s", "argv": list(argv), **more})
        t.equal(run("sh", "-c", "echo one >f; sleep 300 & echo $!").get("exit_code"), 0, "a command in it")
        t.equal(run("cat", "f").get("stdout"), "one\n", "the next finds what it wrote")
        t.equal(run("cat", "/workspace/f").get("stdout"), "one\n", "also by the run's own path")
        status, _, raw = service.fetch(s.sock, "GET", "/v1/sessions/s/files/workspace/f")
        t.equal((status, raw), (200, b"one\n"), "and so does who asks for the file")
        status, _, raw = service.fetch(s.sock, "PUT", "/v1/sessions/s/files/tmp/g", b"two\n")
        t.ok(status < 300, "a file is written at /tmp", repr(raw))
        t.equal(run("cat", "/tmp/g").get("stdout"), "two\n", "where the command finds it")
        status, answer = s.ask("GET", "/v1/sessions/s/changes")
        t.ok(status >= 400 and "process" in json.dumps(answer), "its changes are refused by name", "%d %s" % (status, answer))
        status, answer = s.ask("DELETE", "/v1/sessions/s")
        t.ok(status < 300, "its end", str(answer))


def main():
    if os.geteuid() != 0:
        print("1..0 # SKIP containers are started by root: its half tries this")
        return 0
    return tap.run([test_refused, test_accepted, test_session])


if __name__ == "__main__":
    sys.exit(main())
