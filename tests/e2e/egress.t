#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a run reaches outside, with real servers: allowed beside its refused twin, each time.

A name server (dnsmasq, or one with a script) and nginx listen on the host's loopback; the operator's
option opens those addresses, which are refused otherwise.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, outside, tap

outside.need("dnsmasq", "nginx", "curl")
DNS = outside.dnsmasq("--address=/test/127.0.0.1")
WEB = outside.nginx()

# Tell how each host:port of argv was met: what came back, or the error by name, and how long it took.
MEET = r"""
import errno, socket, sys, time
for where in sys.argv[1:]:
    host, _, port = where.rpartition(":")
    began = time.monotonic()
    try:
        with socket.create_connection((host.strip("[]"), int(port)), 10) as s:
            s.sendall(b"GET / HTTP/1.0\r\n\r\n")
            data = b"".join(iter(lambda: s.recv(65536), b""))
            what = data.rpartition(b"\r\n\r\n")[2].decode() or "nothing"
    except socket.gaierror as e:
        what = "no name"
    except OSError as e:
        what = errno.errorcode.get(e.errno, str(e))
    print(where, what, "late" if time.monotonic() - began > 3 else "")
"""


def allow(*hosts, port=None, **more):
    return {"network": {"mode": "allowlist", **more,
                        "allow": [{"host": h, "ports": [port or WEB.port], "description": "test"} for h in hosts]}}


def options(dns=DNS, opened=("127.0.0.1",), more=()):
    out = ["--egress-dns", "%s:%d" % (dns.address, dns.port), *more]
    for net in opened:
        out += ["--egress-allow-private", net]
    return out


def meet(manifest, *where, opts=None):
    """[what each was met with], and the run."""
    done = cli.run("python3", "-c", MEET, *where, manifest=manifest, options=options() if opts is None else opts)
    lines = [line.partition(" ")[2].strip() for line in done.out.splitlines()]
    return lines or [repr(done)], done


def at(host, port=None):
    return "%s:%d" % (host, port or WEB.port)


def test_allowed_and_refused(t):
    got, done = meet(allow("allowed.test"), at("allowed.test"), at("other.test"), at("allowed.test", 1))
    t.equal(got, ["hello", "no name", "ECONNREFUSED"], "an allowed name is reached, its neighbour and another port not")
    network = done.report["network"]
    t.equal([network["connections"], network["connections_refused"]], [1, 0], "connections are counted")
    t.ok(network["bytes_in"] > 5 and network["bytes_out"] > 5, "bytes are counted", repr(network))
    rules = {(d["name"], d["verdict"], d["rule"]) for d in network["decisions"]}
    t.equal(rules, {("allowed.test", "allowed", "/network/allow/0"), ("other.test", "refused", "/network/allow")},
            "each decision names its rule")
    t.equal([(d["layer"], d["name"], d["pointer"]) for d in done.report["denials"]],
            [("egress", "other.test", "/network/allow"), ("nftables", None, "/network/allow")], "the refusals are among the denials")
    t.equal(done.report["witness"]["connect"], "held", "the witness was refused an address that is not granted")


def test_refused_at_once(t):
    """What the packet filter refuses is counted: three connections and two packets."""
    code = """
import socket
for i in range(3):
    try: socket.create_connection(("8.8.8.8", 80), 30)
    except OSError: pass
for i in range(2):
    try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("8.8.8.8", 99))
    except OSError: pass
"""
    done = cli.run("python3", "-c", code, manifest=allow("allowed.test"), options=options())
    t.equal((done.report["network"]["refused_at_once"], [d["times"] for d in done.report["denials"]]), (5, [5]), "each is counted")
    done = cli.run("true", manifest=allow("allowed.test"), options=options())
    t.equal((done.report["network"]["refused_at_once"], done.report["denials"]), (0, []), "and what the witness tried is not")


def test_without_a_grant(t):
    got, done = meet({}, at("allowed.test"), at("127.0.0.1"), at("198.18.1.0"))
    t.equal(got, ["no name", "ECONNREFUSED", "ENETUNREACH"], "nothing is reached without a grant")
    t.equal([done.report.get("network"), done.report["denials"]], [None, []], "and there is nothing to tell")


def test_private_needs_the_operator(t):
    got, done = meet(allow("allowed.test"), at("allowed.test"), opts=options(opened=()))
    t.equal(got, ["no name"], "a name that is at a loopback address is refused")
    t.ok("loopback" in done.report["denials"][0]["why"], "and the report says why", repr(done.report["denials"]))
    got, _ = meet(allow("allowed.test"), at("allowed.test"), opts=options(opened=("127.0.0.0/8",)))
    t.equal(got, ["hello"], "a network that is opened holds its addresses")
    got, _ = meet(allow("allowed.test", denyCidrs=["127.0.0.0/8"]), at("allowed.test"))
    t.equal(got, ["no name"], "what the manifest denies stays denied")


def test_programs(t):
    url = "http://%s/" % at("allowed.test")
    done = cli.run("curl", "-sS", url, manifest=allow("allowed.test"), options=options())
    t.equal((done.status, done.out), (0, "hello"), "curl")
    done = cli.run("curl", "-sS", url, manifest=allow("another.test"), options=options())
    t.equal(done.status, 6, "curl cannot resolve what is not granted")


if __name__ == "__main__":
    sys.exit(tap.run([f for name, f in sorted(globals().items()) if name.startswith("test_")]))
