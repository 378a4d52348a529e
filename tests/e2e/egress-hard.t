#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Egress where somebody works against it: names that change, answers that lie, servers that stall, floods
of connections, and the end of nsbox-egress itself."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from itertools import zip_longest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, outside, paths, tap

outside.need("nginx", "curl", "redis-server", "redis-cli", "git")
WEB = outside.nginx()
CHANGES = {"count": 0}


def changing(name, kind, tcp):
    """The first answer is the web server's address, all later ones are the host's own loopback."""
    if kind == outside.A:
        CHANGES["count"] += 1
    return (0, [outside.record(name, outside.A, outside.address_data(
        "127.0.0.1" if CHANGES["count"] <= 1 else "127.9.9.9"), ttl=1)] if kind == outside.A else [], False)


def cut(name, kind, tcp):
    if not tcp:
        return 0, [], True
    return 0, [outside.record(name, outside.A, outside.address_data("127.0.0.1"))] if kind == outside.A else [], False


def huge(name, kind, tcp):
    """Many addresses, the right one first; by UDP it does not fit."""
    if not tcp:
        return 0, [], True
    return 0, [outside.record(name, outside.A, outside.address_data(a)) for a in
               ["127.0.0.1"] + ["127.0.0.%d" % i for i in range(2, 200)]] if kind == outside.A else [], False


NAMES = outside.Script(outside.zone({
    "allowed.test": ["127.0.0.1"], "a.wild.test": ["127.0.0.1"], "a.b.wild.test": ["127.0.0.1"],
    "wild.test": ["127.0.0.1"], "evilwild.test": ["127.0.0.1"], "wild.test.other.test": ["127.0.0.1"],
    "xn--bcher-kva.test": ["127.0.0.1"], "changing.test": changing, "cut.test": cut, "huge.test": huge,
    "alias.test": "allowed.test", "inward.test": "private.test", "private.test": ["10.9.9.9"],
    "mapped.test": ["::ffff:10.9.9.9"], "nat64.test": ["64:ff9b::a09:909"], "sixtofour.test": ["2002:a09:909::1"],
    "metadata.test": ["169.254.169.254"], "zero.test": ["0.0.0.0"], "any.test": ["::"], "both.test": ["10.9.9.9", "127.0.0.1"],
    "dead.test": ["127.0.0.1"], "closed.test": ["127.0.0.2"], "six.test": ["::1"],
    "stalled.test": ["127.0.0.9"], "one-stalls.test": ["127.0.0.9", "127.0.0.1"],
}))

MEET = r"""
import errno, socket, sys, time
for where in sys.argv[1:]:
    host, _, port = where.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), 10) as s:
            s.sendall(b"GET / HTTP/1.0\r\n\r\n")
            data = b"".join(iter(lambda: s.recv(65536), b""))
            what = data.rpartition(b"\r\n\r\n")[2].decode() or "nothing"
    except socket.gaierror as e:
        what = "no name"
    except (OSError, UnicodeError) as e:
        what = errno.errorcode.get(getattr(e, "errno", 0), type(e).__name__)
    print(where, what, flush=True)
"""


def allow(*hosts, ports=None, **more):
    return {"network": {"mode": "allowlist", **more,
                        "allow": [{"host": h, "ports": ports or [WEB.port], "description": "test"} for h in hosts]}}


def options(*more, opened=("127.0.0.1",), dns=NAMES):
    out = ["--egress-dns", "%s:%d" % (dns.address, dns.port), *more]
    for net in opened:
        out += ["--egress-allow-private", net]
    return out


def run(code, *argv, manifest, opts=None, **more):
    return cli.run("python3", "-c", code, *argv, manifest=manifest, options=options() if opts is None else opts, **more)


def meet(manifest, *where, opts=None):
    done = run(MEET, *[w if ":" in w else "%s:%d" % (w, WEB.port) for w in where], manifest=manifest, opts=opts)
    return [line.partition(" ")[2] for line in done.out.splitlines()] or [repr(done)], done


def test_wildcards_and_spelling(t):
    names = ["a.wild.test", "a.b.wild.test", "A.WILD.Test", "a.wild.test.", "wild.test", "evilwild.test", "wild.test.other.test"]
    got, _ = meet(allow("*.wild.test"), *names)
    t.equal(got, ["hello"] * 4 + ["no name"] * 3, "what a wildcard covers, in any case, with a dot at the end")
    got, _ = meet(allow("xn--bcher-kva.test"), "b\u00fccher.test", "xn--bcher-kva.test", "b\u00fcche.test")
    t.equal(got, ["hello", "hello", "no name"], "an international name in its ASCII form")


def test_private_addresses(t):
    names = ["private.test", "mapped.test", "nat64.test", "sixtofour.test", "metadata.test", "zero.test", "any.test",
             "inward.test"]
    for manifest, word in ((allow(*names), "granted by name"), ({"network": {"mode": "open"}}, "mode open")):
        got, done = meet(manifest, *names)
        t.equal(got, ["no name"] * len(names), word + ": a name at a private address, in every spelling, is refused")
        t.ok(len({d["name"] for d in done.report["denials"]}) == len(names), "and each is told", repr(done.report["denials"]))
    got, _ = meet(allow("both.test"), "both.test")
    t.equal(got, ["hello"], "one good address is enough, and only that is used")
    literal = ["10.9.9.9:80", "169.254.169.254:80", "127.0.0.1:%d" % WEB.port, "0.0.0.0:80", "[::1]:80", "[::ffff:10.9.9.9]:80",
               "[64:ff9b::a09:909]:80", "[2002:a09:909::1]:80", "[fd00:ec2::254]:80"]
    got, _ = meet({"network": {"mode": "open"}}, *literal, opts=options(opened=()))
    t.ok(set(got) <= {"ECONNREFUSED", "ENETUNREACH"}, "addresses themselves, in mode open", repr(got))
    # inet_aton(3) takes these for 10.9.9.9, as browsers and curl do.
    spelt = ["168364297", "0x0a090909", "01202204411", "10.9.2313", "012.9.0x909"]
    got, _ = meet({"network": {"mode": "open"}}, *[host + ":80" for host in spelt], opts=options(opened=()))
    t.equal(set(got), {"ECONNREFUSED"}, "in decimal, octal and hexadecimal forms")
    done = run("import socket, sys\nfor host in sys.argv[1:]: print(socket.getaddrinfo(host, 80)[0][4][0])", *spelt,
               manifest={"network": {"mode": "open"}})
    t.equal(set(done.out.split()), {"10.9.9.9"}, "which are that address inside")


def test_a_name_that_changes(t):
    code = MEET + "\nif sys.argv[1] != 'x':\n    time.sleep(2.2)\n    sys.argv[1:] = ['x'] + sys.argv[1:]\n"
    again = code + "    exec(open('/proc/self/cmdline').read().split(chr(0))[2].split('if sys.argv[1] !=')[0].replace('sys.argv[1:]', 'sys.argv[2:]'))"
    got = run(again, "changing.test:%d" % WEB.port, manifest=allow("changing.test"))
    lines = [line.partition(" ")[2] for line in got.out.splitlines()]
    t.ok(lines[:1] == ["hello"] and lines[1:] in (["no name"], ["ECONNRESET"]), "a name that turns to the host's loopback leads nowhere",
         repr(got))


def test_answers(t):
    got, _ = meet(allow("cut.test", "huge.test", "alias.test"), "cut.test", "huge.test", "alias.test", opts=options(opened=("127.0.0.0/8",)))
    t.equal(got, ["hello"] * 3, "answers that are cut, huge, or a chain of names")
    asked = len(NAMES.asked)
    got, _ = meet(allow("allowed.test"), "secret-data.canary.test", "x.allowed.test")
    t.equal((got, [q for q in NAMES.asked[asked:] if "canary" in q[0] or q[0].startswith("x.")]), (["no name"] * 2, []),
            "no question about a name that is not granted goes outside")


def test_dns_by_tcp_and_other_types(t):
    code = """
import socket, struct
def ask(name, kind, tcp, server=("8.8.8.8", 53)):
    q = struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + bytes(1) + struct.pack(">HH", kind, 1)
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM); s.settimeout(5); s.connect(server)
    s.sendall((len(q).to_bytes(2, "big") if tcp else b"") + q)
    a = s.recv(4096)
    return a[2:] if tcp else a
for tcp in (False, True):
    for name, kind in (("allowed.test", 1), ("allowed.test", 28), ("allowed.test", 16), ("other.test", 1)):
        a = ask(name, kind, tcp)
        print(a[3] & 15, int.from_bytes(a[6:8], "big"))
"""
    got = run(code, manifest=allow("allowed.test")).out.split("\n")[:-1]
    t.equal(got, ["0 1", "0 1", "0 0", "3 0"] * 2, "by UDP and TCP, to whatever name server: addresses of granted names alone")


def test_servers_that_misbehave(t):
    def stall(c):
        c.recv(100)
        time.sleep(1)
        c.sendall(b"HTTP/1.0 200 OK\r\n\r\nlate")

    def cut_off(c):
        c.recv(100)
        c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    def half(c): # answers only once the other side has ended what it says
        data = b"".join(iter(lambda: c.recv(65536), b""))
        c.sendall(b"HTTP/1.0 200 OK\r\n\r\n%d" % len(data))

    slow, reset, halves = (outside.Listener(f) for f in (stall, cut_off, half))
    ports = [slow.port, reset.port, halves.port, 1]
    got, done = meet(allow("allowed.test", ports=ports), "allowed.test:%d" % slow.port, "allowed.test:%d" % reset.port,
                     "allowed.test:1")
    t.equal(got, ["late", "ECONNRESET", "ECONNRESET"], "a slow server, one that resets, and none at all")
    t.ok(any(d["verdict"] == "failed" and d.get("error") == "ECONNREFUSED" for d in done.report["network"]["decisions"]),
         "the report has the far refusal's own error", repr(done.report["network"]))
    code = ("import socket,sys\ns = socket.create_connection(('allowed.test', %d), 10)\ns.sendall(b'x' * 300000)\n"
            "s.shutdown(socket.SHUT_WR)\nprint(b''.join(iter(lambda: s.recv(65536), b'')).rpartition(b'\\r\\n\\r\\n')[2].decode())" % halves.port)
    t.equal(run(code, manifest=allow("allowed.test", ports=ports)).out, "300000\n", "one direction ends before the other")


def test_ipv6(t):
    web6 = outside.nginx(address="127.0.0.1", more="listen [::1]:%d;" % (WEB.port + 1)) if socket.has_ipv6 else None
    got, _ = meet(allow("six.test", ports=[WEB.port + 1]), "six.test:%d" % (WEB.port + 1), opts=options(opened=("::1",)))
    t.equal(got, ["hello"], "a name that has IPv6 alone")
    web6.stop()
    code = ("import socket\nfor f in (socket.AF_INET, socket.AF_INET6):\n    a = socket.getaddrinfo('allowed.test', %d, f, socket.SOCK_STREAM)[0][4]\n"
            "    s = socket.socket(f); s.connect(a); s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); print(s.getpeername() == a or s.getpeername()[:2] == a[:2], b'hello' in s.recv(4096))" % WEB.port)
    t.equal(run(code, manifest=allow("allowed.test")).out, "True True\n" * 2, "by either family inside; getpeername agrees")


# As a container engine has it: the only name server is on its own loopback, and resolv.conf says so.
LIKE_AN_ENGINE = """
set -e
ip link set lo up
echo "nameserver 127.0.0.11" >"$1/resolv.conf"
mount --bind "$1/resolv.conf" "$(readlink -f /etc/resolv.conf)"
dnsmasq --conf-file=/dev/null --port=53 --listen-address=127.0.0.11 --bind-interfaces --no-resolv --no-hosts --pid-file= --user= --local=/test/ --address=/allowed.test/127.0.0.1
nginx -c "$1/conf" >/dev/null 2>&1 &
until curl -s -o /dev/null "http://127.0.0.1:$2/"; do sleep 0.1; done
shift 2
exec "$@"
"""


def test_the_name_server_of_an_engine(t):
    if os.geteuid():
        t.note("only root can give itself another /etc/resolv.conf here")
        return
    place = paths.scratch("egress-")
    os.mkdir(place + "/files")
    with open(place + "/conf", "w", encoding="ascii") as f:
        f.write(outside.NGINX % {"place": place, "address": "127.0.0.1", "port": WEB.port, "more": ""})
    with open(place + "/skill.json", "w", encoding="ascii") as f:
        json.dump(dict(cli.MINIMAL, **allow("allowed.test")), f)
    argv = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", LIKE_AN_ENGINE, "sh", place,
            str(WEB.port), paths.NSBOX, "run", "--manifest", place + "/skill.json", "--egress-allow-private", "127.0.0.1"]
    for more, want, name in (([], "hello", "its server on 127.0.0.11 is asked"),
                             (["--egress-dns", "127.0.0.12"], "", "another, which is not there, gives no answer")):
        done = subprocess.run([*argv, *more, "--", "curl", "-s", "-m", "20", "http://allowed.test:%d/" % WEB.port], capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, check=False, timeout=120)
        t.equal(done.stdout, want, name) or t.note(done.stderr)


def stall(address, port):
    """Sockets that keep an address from answering to SYNs: its queue is full."""
    full = socket.socket()
    full.bind((address, port))
    full.listen(0)
    held = [full]
    for _ in range(4):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex((address, port))
        held.append(s)
    return held


def test_an_address_that_stalls(t):
    held = stall("127.0.0.9", WEB.port)
    code = ("import socket, sys\nfor host in sys.argv[1:]:\n    s = socket.create_connection((host, %d), 10); s.settimeout(3)\n"
            "    try: s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); print(b'hello' in b''.join(iter(lambda: s.recv(4096), b'')))\n"
            "    except TimeoutError: print('stalls')" % WEB.port)
    done = run(code, "one-stalls.test", "stalled.test", manifest=allow("stalled.test", "one-stalls.test"),
               opts=options(opened=("127.0.0.0/8",)))
    t.equal(done.out, "True\nstalls\n", "of several addresses the next is tried before one that says nothing is given up")
    for s in held:
        s.close()


def test_limits_of_bytes(t):
    server = outside.Listener(lambda c: (c.recv(1), c.sendall(bytes(1 << 22)))) # not before connect() has come back
    code = ("import socket,time\nt=time.monotonic()\ns = socket.create_connection(('allowed.test', %d), 30)\ns.sendall(b'x')\nn = 0\ntry:\n"
            "    while True:\n        k = len(s.recv(1 << 16))\n        if not k: break\n        n += k\nexcept ConnectionResetError: n = -n\n"
            "print(n, time.monotonic() - t)" % server.port)
    for ceiling, judge, name in (({"transfer": "1Mi"}, lambda n, s: -(1 << 22) < n < 0, "the limit of bytes ends it"),
                                 ({"transferRate": "2Mi"}, lambda n, s: n == 1 << 22 and s > 0.8, "the limit of the rate slows it"),
                                 ({}, lambda n, s: n == 1 << 22, "without either it passes")):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(ceiling, f)
            f.flush()
            done = run(code, manifest=allow("allowed.test", ports=[server.port]), opts=options("--ceiling", f.name))
        n, seconds = (float(x) for x in (done.out.split() or ["0", "0"]))
        t.ok(judge(n, seconds), name, repr(done))


def test_limits_of_time(t):
    """Two connections: one that says nothing, one that never stops."""
    def serve(c):
        if c.recv(1) == b"t":
            while True:
                c.sendall(b"x")
                time.sleep(0.1)
        c.recv(1)

    server = outside.Listener(serve)
    code = """
import select, socket, time
two = {}
for word in (b"q", b"t"):
    s = socket.create_connection(("allowed.test", %d), 30)
    s.sendall(word)
    two[s] = word.decode()
ended, deadline = [], time.monotonic() + 4
while two and time.monotonic() < deadline:
    for s in select.select(list(two), [], [], 0.2)[0]:
        try: data = s.recv(4096)
        except ConnectionResetError: data = b""
        if not data: ended.append(two.pop(s))
print(*sorted(ended))
""" % server.port
    for ceiling, want, name in (({"connectionIdle": "1s"}, "q", "one without a byte for too long is ended, one with bytes is not"),
                                ({"connectionTime": "1s"}, "q t", "none lasts longer than it may"),
                                ({}, "", "without either both go on")):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(ceiling, f)
            f.flush()
            done = run(code, manifest=allow("allowed.test", ports=[server.port]), opts=options("--ceiling", f.name))
        t.equal(done.out.strip(), want, name)


def children_of(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid), encoding="ascii") as f:
        return [int(x) for x in f.read().split()]


def test_its_death(t):
    def trickle(c):
        while True:
            c.sendall(b"x")
            time.sleep(0.05)

    server = outside.Listener(trickle)
    code = """
import socket, sys, time
s = socket.create_connection(("allowed.test", %d), 10)
s.recv(1); print("going", flush=True)
try:
    while s.recv(100): pass
    print("end")
except OSError as e: print(type(e).__name__)
def connect():
    # Its listeners may outlive its connections by a moment; then who came in between is reset.
    for i in range(600):
        try:
            with socket.create_connection(("198.18.1.0", 80), 60) as s: s.recv(1)
        except ConnectionResetError: time.sleep(0.1)
for what in (connect, lambda: socket.getaddrinfo("allowed.test", 1)):
    try: print(what())
    except OSError as e: print(type(e).__name__)
""" % server.port
    with tempfile.TemporaryDirectory() as place:
        manifest, report = os.path.join(place, "m"), os.path.join(place, "r")
        with open(manifest, "w", encoding="ascii") as f:
            json.dump({"manifestVersion": 1, **allow("allowed.test", ports=[server.port, 80])}, f)
        nsbox = subprocess.Popen(cli.command("python3", "-c", code, options=["-m", manifest, "--result", report, "--no-tty", *options()]),
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first = nsbox.stdout.readline()
        for pid in children_of(nsbox.pid):
            with open("/proc/%d/comm" % pid, encoding="ascii") as f:
                if f.read().strip() == "nsbox-egress":
                    os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        out, err = nsbox.communicate(timeout=60)
        with open(report, encoding="utf-8") as f:
            network = json.load(f)["network"]
    t.equal((first, out.split()[1:]), ("going\n", ["ConnectionRefusedError", "gaierror"]), "without it, calls are refused")
    t.ok(out.split()[0] in ("end", "ConnectionResetError"), "what was open has ended", out)
    t.ok(time.monotonic() - began < 50 and "nsbox-egress ended" in err and network["lost"], "soon, and it is told", err)


def test_addresses_and_networks(t):
    manifest = {"network": {"mode": "allowlist", "allow": [{"host": "127.0.0.0/30", "ports": [WEB.port], "description": "d"}]}}
    # The inside's own loopback is the run's; an address of the host's that is not 127/8 is needed to be reached by address.
    mine = [line.split()[3].split("/")[0] for line in subprocess.run(["ip", "-o", "-4", "addr", "show", "scope", "global"],
            capture_output=True, text=True, check=False).stdout.splitlines()]
    if mine:
        server = outside.Listener(lambda c: (c.recv(100), c.sendall(b"\r\n\r\nhello")), address=mine[0])
        net = mine[0] + "/32"
        manifest["network"]["allow"] = [{"host": net, "ports": [server.port], "description": "d"}]
        where = "%s:%d" % (mine[0], server.port)
        got, _ = meet(manifest, where, "%s:%d" % (mine[0], server.port - 1), opts=options(opened=(mine[0],)))
        t.equal(got, ["hello", "ECONNREFUSED"], "a network that is granted at a port")
        got, _ = meet(manifest, where, opts=options(opened=()))
        t.equal(got, ["ECONNREFUSED"], "and refused by the kernel where the operator has not opened it")
    else:
        t.ok(True, "no address to be reached by: the kernel half is in tests/kernel")


def echo(c):
    for data in iter(lambda: c.recv(100), b""):
        c.sendall(data)


# How many of so many connections at once answered, and how many were reset; then one more, alone.
MANY = """
import socket, sys, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
at = socket.getaddrinfo("allowed.test", int(sys.argv[1]), socket.AF_INET)[0][4]
def make():
    s = socket.socket(); s.settimeout(60)
    try: s.connect(at)
    except ConnectionResetError: s.close() # reset before connect() came back; talk() finds it closed
    return s
def talk(s, what):
    try:
        if s.fileno() < 0: return False
        s.sendall(what)
        return s.recv(4) == what
    except ConnectionError: return False
all = [make() for i in range(int(sys.argv[2]))]
good = sum([talk(s, b"%04d" % i) for i, s in enumerate(all)])
print(good, len(all) - good)
for s in all: s.close()
for i in range(600): # its place is free when it was noticed that the others went
    if talk(make(), b"last"): break
else: print("no more")
"""


def many(count, opts=None, **more):
    server = outside.Listener(echo)
    manifest = {**allow("allowed.test", ports=[server.port]), "resources": {"openFiles": 1100}}
    return run(MANY, str(server.port), str(count), manifest=manifest, opts=opts, timeout=200, **more)


def test_many_connections(t):
    t.equal(many(100).out, "100 0\n", "100 connections at once")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump({"connections": 10}, f)
        f.flush()
        done = many(12, opts=options("--ceiling", f.name))
    t.ok(done.out == "10 2\n" and any("limit" in d["why"] for d in done.report["denials"]),
         "more than the operator allows are reset, told, and no more than those", repr(done))


def test_few_descriptors(t):
    """nsbox-egress with room for seven connections: others are reset at once, and all goes on afterwards."""
    argv = cli.command
    try:
        cli.command = lambda *a, options=(): ["prlimit", "--nofile=300:300", *argv(*a, options=options)]
        done = many(40)
    finally:
        cli.command = argv
    good, bad = (int(x) for x in (done.out.split() or ["0", "0"])[:2])
    t.ok(1 <= good <= 10 and good + bad == 40 and "no more" not in done.out, "out of descriptors, connections are reset, none waits", repr(done))


# Ask by UDP at once, in turn by TCP, and by UDP without end for names that are not granted; how many were answered
# of each, and how long all of it took.
ASK = r"""
import select, socket, struct, sys, time
AT = (open("/etc/resolv.conf").read().split("nameserver")[1].split()[0], 53)
def question(i, name):
    return struct.pack(">6H", i, 0x100, 1, 0, 0, 0) + b"".join(bytes([len(p)]) + p.encode() for p in name.split(".")) + b"\0\0\1\0\1"
def udp():
    s = socket.socket(socket.AF_INET6 if ":" in AT[0] else socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(AT); s.settimeout(60)
    return s
began = time.monotonic()
s = udp()
for i in range(100): s.send(question(i, "allowed.test"))
print(len({s.recv(1000)[:2] for i in range(100)}))
def tcp(n):
    good = 0
    with socket.create_connection(AT, 60) as s:
        for i in range(n):
            q = question(i, "allowed.test")
            s.sendall(struct.pack(">H", len(q)) + q)
            good += s.recv(struct.unpack(">H", s.recv(2, socket.MSG_WAITALL))[0], socket.MSG_WAITALL)[:2] == q[:2]
    return good
print(tcp(100) + tcp(100), time.monotonic() - began)
s = udp()
answers = 0
for i in range(1500):
    s.send(question(i, "x%d.other.test" % i))
    answers += bool(select.select([s], [], [], 0)[0] and s.recv(1000))
answers += bool(s.recv(1000))
end = time.monotonic() + 0.5
while time.monotonic() < end and select.select([s], [], [], 0.1)[0]: answers += bool(s.recv(1000))
print(answers, time.monotonic() - began)
print(tcp(1))
"""


def test_many_questions(t):
    """Two seconds' questions may come at once, and then a hundred a second, however slow this machine is."""
    done = run(ASK, manifest=allow("allowed.test"))
    lines = [[float(x) for x in line.split()] for line in done.out.splitlines()[:3]]
    t.ok(len(lines) == 3 and lines[0] == [100], "a hundred questions at once are all answered", repr(done))
    (_, (by_tcp, took), (more, all_of_it)) = lines
    t.ok(by_tcp == 200 and 300 <= 201 + 100 * took, "by TCP those above the limit wait, and are answered", repr(lines))
    t.ok(0 < 300 + more <= 201 + 100 * all_of_it, "by UDP those above the limit are not", repr(lines))
    t.ok(done.out.endswith("\n1\n"), "and names are known as before afterwards", done.out)
    names = {name for name, _, _ in NAMES.asked}
    t.ok("allowed.test" in names and not any(n.endswith(".other.test") for n in names), "nothing is asked outside for what is not granted")


def test_landlock_ports(t):
    """Where it is asked for: connections to granted ports alone, also to what the run itself could reach."""
    code = MEET + """
for f in (lambda: socket.socket().bind(("127.0.0.1", 0)), lambda: socket.create_connection(("127.0.0.1", 9), 5)):
    try: print("may", f() or "bind")
    except OSError as e: print("may", errno.errorcode[e.errno])
"""
    for layer, want in (({"require": {"landlockTcp": "require"}}, ["EACCES", "hello", "EACCES", "EACCES"]),
                        ({}, ["ECONNREFUSED", "hello", "bind", "ECONNREFUSED"])):
        done = run(code, "allowed.test:9", "allowed.test:%d" % WEB.port, manifest={**allow("allowed.test"), **layer})
        if layer and done.status == 125 and "landlockTcp" in done.err and not tap.must_work():
            t.ok(True, "this kernel's Landlock has no TCP")
            continue
        t.equal([line.rpartition(" ")[2] for line in done.out.splitlines()], want, "with rules of Landlock" if layer else "and without")


def test_without_namespaces(t):
    """There a network by name cannot be had, which is said of the grant."""
    argv, words = cli.command, "/network/allow: takes a network namespace of the run's own"
    for before, status in (([os.path.join(paths.BUILD, "tests", "tools", "enosys"), "clone3", "--"], 125), ([], 0)):
        try:
            cli.command = lambda *a, before=before, options=(): [*before, *argv(*a, options=options)]
            done = run("pass", manifest={**allow("allowed.test"), "minTier": "process"})
        finally:
            cli.command = argv
        t.ok(done.status == status and (words in done.err) == bool(status), "a host %s namespaces" % ("without" if status else "with"), repr(done))


def test_bans(t):
    for bans, want, name in ((".*\\.wild\\.test,192.0.2.0/24", ["no name", "hello"], "a pattern"), ("127.0.0.0/8", ["no name", "no name"], "a network"),
                             (socket.gethostname() + ",wild.test,::/0,ALLOWED.Test", ["hello", "no name"], "names in any case, the own name left out")):
        got, _ = meet(allow("a.wild.test", "allowed.test"), "a.wild.test", "allowed.test", opts=options("--egress-ban", bans))
        t.equal(got, want, "a ban: " + name)
    done = run("pass", manifest=allow("allowed.test"), opts=options("--egress-ban", "10.0.0.1/8"))
    t.ok(done.status == 125 and "bits beyond" in done.err, "a ban that would ban nothing is an error", repr(done))


CLIENTS = r"""
redis-cli -h allowed.test -p %(redis)d ping
python3 -c 'import requests; print(requests.get("http://allowed.test:%(web)d/", timeout=60).text)'
python3 -c 'import asyncio
async def one():
    r, w = await asyncio.open_connection("allowed.test", %(web)d)
    w.write(b"GET / HTTP/1.0\r\n\r\n")
    return b"hello" in await r.read()
async def all(): return await asyncio.gather(*[one() for _ in range(50)])
print(sum(asyncio.run(all())))'
git ls-remote http://allowed.test:%(web)d/files/r.git refs/heads/master | cut -f 2
busybox wget -q -O - http://allowed.test:%(web)d/ && echo
python3 -c 'import http.server, threading, urllib.request
s = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=s.serve_forever, daemon=True).start()
print(urllib.request.urlopen("http://127.0.0.1:%%d/" %% s.server_port).status)'
"""


def test_programs(t):
    port = outside.free_port()
    redis = outside.Server(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", "/tmp"], port)
    repo = os.path.join(WEB.place, "files", "r.git")
    subprocess.run("git init -q --bare {0} && cd $(mktemp -d) && git init -q && git -c user.name=t -c user.email=t@t commit -q --allow-empty -m x "
                   "&& git push -q {0} HEAD:master && git -C {0} update-server-info; rm -rf $PWD".format(repo), shell=True, check=False,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    done = cli.run("sh", "-c", CLIENTS % {"redis": port, "web": WEB.port}, manifest=allow("allowed.test", ports=[WEB.port, port]), options=options())
    redis.stop()
    names = ("a raw client of Redis", "requests", "asyncio, 50 at once", "git", "a static program", "a server of the run's own, on its loopback")
    for got, want, name in zip_longest(done.out.splitlines(), ("PONG", "hello", "50", "refs/heads/master", "hello", "200"), names):
        t.equal(got, want, name or done.err)


if __name__ == "__main__":
    sys.exit(tap.run([f for name, f in sorted(globals().items()) if name.startswith("test_")]))
