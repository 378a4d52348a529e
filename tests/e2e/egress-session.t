#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The network of a live session: told with its commands, narrowed by a client and by a reload, never widened."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import outside, paths, service, tap

NAMES = outside.Script(outside.zone({"%s.test" % n: ["127.0.0.1"] for n in ("a", "b", "c")}))


def serve(connection):
    """One byte, or one after the other."""
    if connection.recv(1) == b"1":
        connection.sendall(b"x")
        return
    while True:
        connection.sendall(b"x")
        time.sleep(0.02)


SERVER = outside.Listener(serve)

# Each host of argv: is it reached?
MEET = """
import socket, sys
for host in sys.argv[1:]:
    try:
        with socket.create_connection((host, %d), 30) as s:
            s.sendall(b"1")
            print(host, "reached" if s.recv(1) and not s.recv(1) else "ended")
    except OSError as e:
        print(host, type(e).__name__)
""" % SERVER.port

# From one socket, in turn for ever: a datagram to the second host:port of argv, then one to the first. They say
# "after" once there is a file of that name.
SEND = """
import os, socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
to = {w: socket.getaddrinfo(*w.split(":"), socket.AF_INET, socket.SOCK_DGRAM)[0][4] for w in sys.argv[1:]}
while True:
    word = "after" if os.path.exists("/workspace/after") else "before"
    for w in reversed(sys.argv[1:]):
        s.sendto(("%s %s" % (word, w)).encode(), to[w])
    time.sleep(0.05)
"""

# Holds a connection to each host, and says in a file when it has ended.
HOLD = """
import socket, sys
s = socket.create_connection((sys.argv[1], %d), 30)
s.sendall(b"+")
s.recv(1)
open(sys.argv[2], "w").write("holds")
try:
    while s.recv(100): pass
except OSError: pass
open(sys.argv[2], "w").write("ended")
""" % SERVER.port


class Hears:
    """What came as datagrams, each once."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.heard = set()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            self.heard.add(self.socket.recv(100).decode())

    def wait(self, *words):
        return tap.wait_until(lambda: self.heard >= set(words), 60)


def allow(*names, port=None):
    return {"mode": "allowlist", "allow": ["%s.test:%d" % (n, port or SERVER.port) for n in names]}


class Service:
    def __init__(self):
        self.place = tempfile.TemporaryDirectory()
        os.chmod(self.place.name, 0o755)
        self.path = os.path.join(self.place.name, "ceiling.json")
        self.ceiling()
        self.daemon = service.Daemon(options=["--ceiling", self.path, "--egress-dns", "127.0.0.1:%d" % NAMES.port])

    def ceiling(self, **more):
        with open(self.path, "w", encoding="ascii") as f:
            json.dump({"openNetworks": ["127.0.0.1"], **more}, f)

    def make(self, name, policy):
        return self.daemon.ask("POST", "/v1/sessions", {"session_id": name, **({"network_policy": policy} if policy else {})})

    def run(self, name, code, *argv):
        return self.daemon.ask("POST", "/v1/execute/command", {"session_id": name, "command": ["python3", "-c", code, *argv]})[1]

    def meet(self, name, *hosts):
        answer = self.run(name, MEET, *["%s.test" % h for h in hosts])
        return [line.split()[1] for line in answer["stdout"].splitlines()], answer

    def hold(self, name, host):
        """A program that goes on in the session, with a connection."""
        path = "/workspace/" + host
        self.daemon.ask("POST", "/v1/execute/command", {"session_id": name, "command": ["sh", "-c",
                        'python3 -c "$0" %s.test %s >/dev/null 2>&1 &' % (host, path), HOLD]})
        return lambda word: tap.wait_until(lambda: self.said(name, path) == word, 60)

    def said(self, name, path):
        return self.daemon.ask("POST", "/v1/execute/command", {"session_id": name, "command": "cat " + path})[1]["stdout"]

    def narrow(self, name, policy):
        return self.daemon.ask("PATCH", "/v1/sessions/" + name, {"network_policy": policy})

    def audit(self):
        with open(os.path.join(self.daemon.data, "audit.log"), encoding="utf-8") as f:
            return [json.loads(line) for line in f]


S = None


def test_narrower(t):
    S.make("s", allow("a", "b"))
    got, answer = S.meet("s", "a", "b", "c")
    t.equal(got, ["reached", "reached", "gaierror"], "a session reaches what it was made with")
    t.equal([answer["network"]["connections"], answer["network"]["lookups_refused"] > 0, {d["name"] for d in answer["denials"]}],
            [2, True, {"c.test"}], "what was decided while a command ran is in its result")
    status, answer = S.daemon.ask("POST", "/v1/sessions/s/snapshot")
    t.equal(status, 201, "it can have a snapshot")
    holds = {n: S.hold("s", n) for n in "ab"}
    t.ok(all(h("holds") for h in holds.values()), "two connections are open")
    status, answer = S.narrow("s", allow("a"))
    t.equal((status, answer.get("network_policy")), (200, allow("a")), "its network is narrowed")
    for copy in ("snapshot", "fork"):
        status, answer = S.daemon.ask("POST", "/v1/sessions/s/" + copy, {"session_id": "copy"} if copy == "fork" else None)
        t.ok(status == 409 and "narrowed" in answer["error"]["message"], "no %s has what was taken away" % copy, repr(answer))
    t.ok(holds["b"]("ended"), "an open connection that is not allowed any more ends")
    t.equal(S.said("s", "/workspace/a"), "holds", "and one that is goes on")
    t.equal(S.meet("s", "a", "b")[0], ["reached", "gaierror"], "new ones: the one, and not the other")
    for policy, name in ((allow("a", "b"), "what was taken away"), (allow("a", port=1), "another port"), ({"mode": "open"}, "everything")):
        status, answer = S.narrow("s", policy)
        t.ok(status in (400, 409) and answer["error"]["pointer"].startswith("/network_policy/"), "%s is not given back" % name, repr(answer))
    t.ok("can only become less" in S.narrow("s", allow("a", "b"))[1]["error"]["message"], "the error says why")
    t.equal(S.meet("s", "a", "b")[0], ["reached", "gaierror"], "nor is anything changed by asking")
    t.equal(S.narrow("s", {"mode": "none"})[0], 200, "all of it can be taken away")
    t.ok(holds["a"]("ended"), "what was open has ended")
    t.equal(S.meet("s", "a", "b")[0], ["gaierror"] * 2, "and nothing is reached")
    S.daemon.ask("DELETE", "/v1/sessions/s")
    lines = S.audit()
    t.equal(len([l for l in lines if l["event"] == "session-narrow" and l["what"] == "s"]), 2, "each change is in the audit")
    t.ok(any(l["event"] == "network" and l.get("session") == "s" for l in lines), "and so is what no command waited for")


def test_datagrams(t):
    server = Hears()
    a, b = ("%s.test:%d" % (n, server.port) for n in "ab")
    status, answer = S.make("u", {"mode": "allowlist", "allow": [a + "/udp", b + "/udp", a]})
    t.equal((status, sorted(answer["session"]["network_policy"]["allow"])), (201, sorted([a, a + "/udp", b + "/udp"])), "a session with grants over UDP")
    S.daemon.ask("POST", "/v1/execute/command", {"session_id": "u", "command": ["sh", "-c", 'python3 -c "$@" >/dev/null 2>&1 &', "-", SEND, a, b]})
    t.ok(server.wait("before " + a, "before " + b), "datagrams reach both", repr(server.heard))
    status, answer = S.narrow("u", {"mode": "allowlist", "allow": [a + "/udp"]})
    t.equal((status, answer["network_policy"]["allow"]), (200, [a + "/udp"]), "one of them is taken away")
    S.daemon.ask("POST", "/v1/execute/command", {"session_id": "u", "command": "touch after"})
    # What is sent to b comes before what is sent to a, from one socket and by one relay.
    t.ok(server.wait("after " + a), "what is left goes on", repr(server.heard))
    t.ok("after " + b not in server.heard, "and the other is heard no more", repr(server.heard))
    for wish in (b + "/udp", a, a + "x/udp"):
        status, answer = S.narrow("u", {"mode": "allowlist", "allow": [wish]})
        t.ok(status in (400, 409), "neither given back nor by TCP: " + wish, repr(answer))
    S.daemon.ask("DELETE", "/v1/sessions/u")
    told = [l["decision"] for l in S.audit() if l["event"] == "network" and l.get("session") == "u"]
    t.ok({("b.test", "refused"), ("a.test", "allowed")} <= {(d["name"], d["verdict"]) for d in told if d["what"] == "datagrams"},
         "and both are told", repr(told))


def test_without_one(t):
    S.make("plain", None)
    t.equal(S.narrow("plain", {"mode": "none"})[0], 200, "a session without a network is to have none")
    status, answer = S.narrow("plain", allow("a"))
    t.ok(status == 409 and "made without a network" in answer["error"]["message"], "it cannot get one", repr(answer))
    t.equal(S.narrow("absent", allow("a"))[0], 404, "there has to be one")
    for body in ({}, {"network_policy": {"mode": "some"}}, {"network_policy": allow("a"), "more": 1}):
        status, answer = S.daemon.ask("PATCH", "/v1/sessions/plain", body)
        t.ok(status == 400, "a malformed wish: %r" % body, repr(answer))


def test_operator(t):
    S.make("o", allow("a", "b"))
    holds = {n: S.hold("o", n) for n in "ab"}
    t.ok(all(h("holds") for h in holds.values()), "two connections are open")
    S.ceiling(bannedHosts="b\\.test")
    t.equal(S.daemon.ask("POST", "/v1/daemon/reload")[0], 200, "the operator bans one of the names")
    t.ok(holds["b"]("ended"), "a live session's connection ends")
    t.equal((S.said("o", "/workspace/a"), S.meet("o", "a", "b")[0]), ("holds", ["reached", "gaierror"]), "and the ban holds for new ones")
    S.ceiling()
    S.daemon.ask("POST", "/v1/daemon/reload")
    t.equal(S.meet("o", "b")[0], ["gaierror"], "which does not end with the ban")
    S.ceiling(network="none")
    S.daemon.ask("POST", "/v1/daemon/reload")
    t.equal((holds["a"]("ended"), S.meet("o", "a")[0]), (True, ["gaierror"]), "nothing may be reached: nothing is")
    S.ceiling()
    S.daemon.ask("POST", "/v1/daemon/reload")


def test_command_line(t):
    def nsbox(*argv):
        return subprocess.run([paths.NSBOX, "session", "narrow", "--socket", S.daemon.socket, *argv], capture_output=True, text=True, check=False)

    S.make("line", allow("a", "b"))
    done = nsbox("--allow", "a.test:%d" % SERVER.port, "line")
    t.equal((done.returncode, done.stdout), (0, "network: allowlist\n  a.test:%d\n" % SERVER.port), "by the command line")
    done = nsbox("--allow", "b.test:%d" % SERVER.port, "line")
    t.ok(done.returncode and "can only become less" in done.stderr, "which says what is refused", repr(done))
    done = nsbox("--no-network", "line")
    t.equal((done.returncode, done.stdout, S.meet("line", "a")[0]), (0, "network: none\n", ["gaierror"]), "nothing at all")
    done = nsbox("line")
    t.ok(done.returncode == 125 or done.returncode == 2, "one of both has to be said", repr(done))


if __name__ == "__main__":
    S = Service()
    try:
        STATUS = tap.run([f for name, f in sorted(globals().items()) if name.startswith("test_")])
    finally:
        S.daemon.stop()
        S.place.cleanup()
    sys.exit(STATUS)
