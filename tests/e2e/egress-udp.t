#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Datagrams of a run: what a grant over UDP reaches, and what it does not."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, outside, tap

NAMES = outside.Script(outside.zone({"a.test": ["127.0.0.1"], "b.test": ["127.0.0.1"], "inward.test": ["10.9.9.9"],
                                     "six.test": ["::1"], "other.test": ["127.0.0.1"]}))


class Echo:
    """Answers each datagram with itself."""

    def __init__(self, address="127.0.0.1"):
        self.socket = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, 0))
        self.port = self.socket.getsockname()[1]
        self.heard = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            data, peer = self.socket.recvfrom(65536)
            self.heard.append(data)
            try:
                self.socket.sendto(data, peer)
            except OSError:
                pass


ONE, TWO = Echo(), Echo()

# Ask each host:port in turn and print what comes back; a "-" before it: send and wait for nothing.
ASK = """
import errno, socket, sys
s = {}
for f in (socket.AF_INET, socket.AF_INET6):
    s[f] = socket.socket(f, socket.SOCK_DGRAM)
    s[f].settimeout(20)
for where in sys.argv[1:]:
    host, _, port = where.lstrip("-").rpartition(":")
    try:
        family, _, _, _, to = socket.getaddrinfo(host.strip("[]"), int(port), 0, socket.SOCK_DGRAM)[0]
        if s[family].sendto(where.encode(), to) and where[0] != "-":
            data, peer = s[family].recvfrom(65536)
            print(data.decode() == where and peer[:2] == to[:2])
        else:
            print("sent")
    except socket.gaierror: print("no name")
    except OSError as e: print(errno.errorcode.get(e.errno, e))
"""


def grant(host, *ports, protocol="udp"):
    return {"host": host, "ports": list(ports), "protocol": protocol, "description": "d"}


def allow(*grants, **more):
    return {"network": {"mode": "allowlist", "allow": list(grants)}, **more}


def options(*more, opened=("127.0.0.1",)):
    out = ["--egress-dns", "127.0.0.1:%d" % NAMES.port, *more]
    for net in opened:
        out += ["--egress-allow-private", net]
    return out


def ask(manifest, *where, opts=None, code=ASK):
    done = cli.run("python3", "-c", code, *where, manifest=manifest, options=options() if opts is None else opts)
    return done.out.split("\n")[:-1], done


def decisions(done, verdict):
    return {(d["name"], d.get("port"), d["bytes_out"], d["bytes_in"]) for d in done.report["network"]["decisions"]
            if d["what"] == "datagrams" and d["verdict"] == verdict}


def test_granted(t):
    where = ["a.test:%d" % ONE.port, "b.test:%d" % TWO.port, "a.test:%d" % TWO.port, "A.TEST.:%d" % ONE.port]
    got, done = ask(allow(grant("a.test", ONE.port, TWO.port), grant("b.test", TWO.port)), *where)
    t.equal(got, ["True"] * 4, "one socket, two names at two ports: each answer comes from where it was sent to")
    n = len(where[0])
    t.ok({("a.test", ONE.port, 2 * n + 1, 2 * n + 1), ("b.test", TWO.port, n, n)} <= decisions(done, "allowed"), "what each carried is told",
         repr(done.report["network"]))
    got, _ = ask({"network": {"mode": "open"}}, where[0])
    t.equal(got, ["True"], "in mode open as well")
    code = ASK.replace("socket.getaddrinfo(host.strip(\"[]\"), int(port), 0,", "socket.getaddrinfo(host, int(port), socket.AF_INET,")
    got, _ = ask(allow(grant("a.test", ONE.port)), where[0], code=code)
    t.equal(got, ["True"], "by IPv4 inside")
    if socket.has_ipv6:
        six = Echo("::1")
        got, _ = ask(allow(grant("six.test", six.port)), "six.test:%d" % six.port, opts=options(opened=("::1",)))
        t.equal(got, ["True"], "a name that has IPv6 alone")


def test_not_granted(t):
    a, b = "a.test:%d" % ONE.port, "b.test:%d" % ONE.port
    before = len(TWO.heard)
    got, done = ask(allow(grant("a.test", ONE.port), grant("b.test", 443, protocol="tcp")), "a.test:%d" % TWO.port, "other.test:%d" % ONE.port,
                    "8.8.8.8:%d" % ONE.port, "-" + b, "-198.18.7.7:%d" % ONE.port, a)
    t.equal(got, ["EPERM", "no name", "EPERM", "sent", "sent", "True"], "another port and address: refused at once; another name: no answer")
    t.equal((len(TWO.heard) - before, [h for h in ONE.heard if h.decode().startswith("-")]), (0, []), "and nobody heard of it")
    told = {(d["layer"], d["what"], d["name"]): d["times"] for d in done.report["denials"]}
    t.equal((told.get(("egress", "datagrams", "b.test")), told.get(("egress", "datagrams", None)), told.get(("nftables", "connection", None))),
            (1, 1, 2), "each is among the denials")
    code = ("import socket, sys\nfor k in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n    s = socket.socket(socket.AF_INET, k)\n    try:\n"
            "        s.connect(socket.getaddrinfo('a.test', int(sys.argv[1]), socket.AF_INET)[0][4])\n        s.send(b'x')\n        print('sent')\n"
            "    except OSError as e: print(type(e).__name__)\n")
    for protocol, want in (("udp", ["ConnectionRefusedError", "sent"]), ("tcp", ["sent", "PermissionError"])):
        listener = outside.Listener(lambda c: c.recv(10))
        got, _ = ask(allow(grant("a.test", listener.port, protocol=protocol)), str(listener.port), code=code)
        t.equal(got, want, "a grant over %s is none over the other" % protocol)


def test_private(t):
    got, done = ask(allow(grant("inward.test", 99), grant("a.test", ONE.port)), "inward.test:99", "a.test:%d" % ONE.port, opts=options(opened=()))
    t.equal(got, ["no name"] * 2, "names at private addresses do not exist")
    got, done = ask({"network": {"mode": "open"}}, "10.9.9.9:99", "169.254.169.254:80", opts=options(opened=()))
    t.ok(set(got) <= {"EPERM", "EACCES", "ENETUNREACH"} and done.report["network"]["refused_at_once"] == 2, "addresses themselves, in mode open", repr(got))
    mine = [line.split()[3].split("/")[0] for line in subprocess.run(["ip", "-o", "-4", "addr", "show", "scope", "global"],
            capture_output=True, text=True, check=False).stdout.splitlines()]
    if mine:
        echo = Echo(mine[0])
        manifest = allow(grant(mine[0] + "/32", echo.port))
        where = "%s:%d" % (mine[0], echo.port)
        t.equal(ask(manifest, where, opts=options(opened=(mine[0],)))[0], ["True"], "an address that is granted and opened")
        t.equal(ask(manifest, where, opts=options(opened=()))[0], ["EPERM"], "and refused at once where the operator has not opened it")


def test_refused_by_name(t):
    done = cli.run("true", manifest=allow(grant("a.test", 53)), options=options())
    t.ok(done.status == 125 and "/network/allow/0" in done.err and "port 53" in done.err, "lookups are not for others to answer", repr(done))
    a = "-a.test:%d" % ONE.port
    before = len(ONE.heard)
    with outside.Listener(lambda c: None).socket as proxy:
        got, done = ask(allow(grant("a.test", ONE.port)), a, opts=options("--egress-proxy", "socks5://127.0.0.1:%d" % proxy.getsockname()[1]))
    t.equal((got, [d["why"] for d in done.report["denials"]], len(ONE.heard)), (["sent"], ["the operator's proxy takes no UDP"], before),
            "where a proxy connects there is no way around it")


def test_sizes_and_ends(t):
    code = """
import socket, sys
at = socket.getaddrinfo("a.test", int(sys.argv[1]), 0, socket.SOCK_DGRAM)[0]
s = socket.socket(at[0], socket.SOCK_DGRAM); s.settimeout(60); s.connect(at[4])
for size in (0, 1, 1400, 60000):
    s.send(bytes(size))
    print(len(s.recv(65536)))
for i in range(500): # in turn, so that none is lost
    s.send(b"%d" % i)
    assert s.recv(100) == b"%d" % i
print("500")
"""
    got, _ = ask(allow(grant("a.test", ONE.port)), str(ONE.port), code=code)
    t.equal(got, ["0", "1", "1400", "60000", "500"], "datagrams of any size, and many")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        nobody = s.getsockname()[1]
    got, done = ask(allow(grant("a.test", nobody, ONE.port)), "-a.test:%d" % nobody, "a.test:%d" % ONE.port)
    t.ok(got == ["sent", "True"] and any(d.get("error") == "ECONNREFUSED" and d["verdict"] == "failed" for d in done.report["network"]["decisions"]),
         "where nobody listens the report has the far refusal", repr(done.report["network"]))


def test_limits(t):
    code = """
import socket, sys
at = socket.getaddrinfo("a.test", int(sys.argv[1]), socket.AF_INET, socket.SOCK_DGRAM)[0]
all = [socket.socket(at[0], socket.SOCK_DGRAM) for i in range(8)]
for s in all[:5]:
    s.settimeout(60); s.sendto(b"x", at[4]); print(s.recv(10).decode())
for s in all[5:]: s.sendto(b"more", at[4])
all[0].sendto(b"y", at[4]); print(all[0].recv(10).decode())
"""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump({"connections": 5}, f)
        f.flush()
        before = ONE.heard.count(b"more")
        got, done = ask(allow(grant("a.test", ONE.port)), str(ONE.port), code=code, opts=options("--ceiling", f.name))
    t.equal((got, ONE.heard.count(b"more") - before, done.report["network"]["connections_refused"]), (["x"] * 5 + ["y"], 0, 3),
            "no more flows than the operator's limit of connections; what there is goes on")


if __name__ == "__main__":
    sys.exit(tap.run([f for name, f in sorted(globals().items()) if name.startswith("test_")]))
