#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that mean harm: refused clearly, at no cost to others, and nothing of them stays.

NSBOX_CONNECTIONS: how many are opened (default 1,000); `make soak` takes 10,000.
"""

import json
import os
import re
import resource
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, service, tap

BODY_MAX = 80 << 20
CONNECTIONS = int(os.environ.get("NSBOX_CONNECTIONS", "1000"))
RUN = json.dumps({"argv": ["echo", "hello"]}).encode()


def connect(path, timeout=15):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path) # waits for a place in the queue, which it does not with a time-out
    s.settimeout(timeout)
    return s


def request(method="GET", path="/healthz", headers=(), body=b""):
    lines = ["%s %s HTTP/1.1" % (method, path), "Host: x", *headers]
    if body:
        lines.append("Content-Length: %d" % len(body))
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def talk(path, data, close=False):
    """All that comes back until the other side closes, or there is silence."""
    with connect(path, 5) as s:
        try:
            s.sendall(data)
            if close:
                s.shutdown(socket.SHUT_WR)
        except OSError:
            pass # it did not want to hear the rest
        got = b""
        try:
            while True:
                part = s.recv(65536)
                if not part:
                    break
                got += part
                if b"Connection: close" not in data and got.count(b"\r\n\r\n") and complete(got):
                    break
        except OSError:
            pass
        return got


def complete(got):
    m = re.search(rb"Content-Length: (\d+)", got)
    return bool(m) and len(got.split(b"\r\n\r\n", 1)[1]) >= int(m.group(1))


def status(got):
    m = re.match(rb"HTTP/1\.1 (\d+)", got)
    return int(m.group(1)) if m else None


def test_headers(t, d):
    t.equal(status(talk(d.socket, request())), 200, "a request as it should be")
    t.ok(status(talk(d.socket, request(headers=["X: " + "a" * 300000]))) in (431, 413), "a head of 300 KB is too large")
    t.ok(status(talk(d.socket, request(path="/" + "a" * 200000))) in (414, 431, 404), "so is a path of 200 KB")
    t.ok(status(talk(d.socket, request(headers=["X%d: y" % i for i in range(20000)]))) in (431, 413), "20,000 headers")
    for name, data in (("no HTTP", b"hello\r\n\r\n"), ("binary", bytes(range(256)) * 8 + b"\r\n\r\n"),
                       ("a header without a colon", b"GET /healthz HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n"),
                       ("two lengths", b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}x"),
                       ("length and chunks", b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                                             b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")):
        got = talk(d.socket, data)
        t.ok(status(got) in (None, 400) or (status(got) or 0) >= 400, "%s is refused, or cut off" % name, repr(got[:200]))


def test_bodies(t, d):
    post = lambda **more: request("POST", "/v1/execute/command", **more)
    t.equal(status(talk(d.socket, post(body=RUN))), 200, "a body as it should be")
    t.equal(status(talk(d.socket, post(headers=["Content-Length: %d" % (BODY_MAX + 1)]))), 413, "one that says it is too large")
    t.equal(status(talk(d.socket, post(headers=["Content-Length: 99999999999999999999999"]))), 413, "of a length that no number holds")
    t.ok(status(talk(d.socket, post(headers=["Content-Length: -1"]))) in (400, 413), "of a length below zero")
    for depth in (100, 100000):
        t.equal(status(talk(d.socket, post(body=b"[" * depth + b"]" * depth))), 400, "%d arrays within each other" % depth)
    t.equal(status(talk(d.socket, post(body=b'{"manifest":' * 5000 + b"1" + b"}" * 5000))), 400, "objects within each other")
    t.equal(status(talk(d.socket, post(body=b'{"argv":["\xff"]}'))), 400, "no UTF-8")
    t.equal(status(talk(d.socket, post(body=b'{"argv":["a\\u0000b"]}'))), 400, "a NUL")
    t.equal(status(talk(d.socket, post(body=b'{"argv":["a"],"argv":["b"]}'))), 400, "a key that is there twice")
    chunked = "Transfer-Encoding: chunked"
    good = b"%x\r\n%s\r\n0\r\n\r\n" % (len(RUN), RUN)
    t.equal(status(talk(d.socket, post(headers=[chunked]) + good)), 200, "chunks as they should be")
    for name, data in (("no number", b"zz\r\nab\r\n0\r\n\r\n"), ("a huge number", b"ffffffffffffffffff\r\nab\r\n0\r\n\r\n"),
                       ("a shorter one", b"1\r\n" + RUN + b"\r\n0\r\n\r\n")):
        got = talk(d.socket, post(headers=[chunked]) + data)
        t.ok(status(got) in (None, 400, 413), "a chunk with %s is refused, or cut off" % name, repr(got[:100]))


def front_of(d):
    return next(pid for (pid, _), name in leftovers.descendants(d.pid).items() if name == "nsboxd")


def test_endless(t, d):
    """A body in chunks has no length that could be looked at first."""
    with connect(d.socket) as s:
        s.sendall(request("POST", "/v1/execute/command", headers=["Transfer-Encoding: chunked"]))
        sent, piece = 0, b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        try:
            while sent < BODY_MAX + (64 << 20):
                s.sendall(piece)
                sent += 0x100000
            s.sendall(b"0\r\n\r\n")
            got = s.recv(4096)
        except OSError:
            got = b""
        t.ok(status(got) in (413, None), "a body without end is not kept", repr(got[:100]))


def test_pipeline(t, d):
    with connect(d.socket) as s:
        s.sendall(request() * 50 + request("POST", "/v1/execute/command", body=RUN) +
                  request(path="/v1/nothing", headers=["Connection: close"]))
        got = b""
        while True:
            part = s.recv(65536)
            if not part:
                break
            got += part
        seen = [int(x) for x in re.findall(rb"HTTP/1\.1 (\d+)", got)]
        t.equal(seen, [200] * 51 + [404], "52 requests at once are answered in their order")


def test_injection(t, d):
    trace = "00-%032x-%016x-01" % (1, 1)
    got = talk(d.socket, request(headers=["traceparent: " + trace]))
    t.ok(trace.encode() in got, "a traceparent comes back")
    for value in (trace + "\\r\\nX-Evil: 1", trace + "\tX-Evil: 1", trace[:-2] + "zz"):
        t.ok(b"X-Evil" not in talk(d.socket, request(headers=["traceparent: " + value])), "no other header does with it")
    evil = {"argv": ["true"], "kind": "command", "trace_id": "a\r\nX-Evil: 1\n<3>nsboxd fake", "workspace_id": "w\r\n\x1b[31m"}
    got = talk(d.socket, request("POST", "/v1/jobs", body=json.dumps(evil).encode()))
    t.ok(status(got) == 202 and b"\r\nX-Evil" not in got, "nor through a job's names")
    time.sleep(1)
    log = d.log()
    t.ok("\n<3>nsboxd fake" not in log and "\x1b" not in log, "the log has one line for each fact")


def test_paths(t, d):
    job = json.loads(talk(d.socket, request("POST", "/v1/jobs", body=json.dumps({"argv": ["true"], "kind": "command"}).encode()))
                     .split(b"\r\n\r\n", 1)[1])["id"]
    t.equal(status(talk(d.socket, request(path="/v1/jobs/" + job))), 200, "a job is at its path")
    for path in ("/v1/jobs/../jobs/" + job, "//v1//jobs/" + job, "/v1/jobs/" + job + "/", "/v1/jobs/" + job + "/../" + job,
                 "/v1/jobs/%2e%2e/jobs", "/v1/jobs/" + job + "%00", "/V1/jobs/" + job, "/v1/jobs/%2fetc%2fpasswd", "/v1/jobs/" + "a" * 500,
                 "/../../etc/passwd", "/v1/receipts/../../audit.log", "*", "/v1/jobs/' OR 1=1 --".replace(" ", "%20")):
        got = status(talk(d.socket, request(path=path)))
        t.ok(got in (400, 404), "%s is nothing" % path[:50], repr(got))
    t.equal(status(talk(d.socket, request("CONNECT", "x:1"))) in (400, 404, 405, 501), True, "it is no proxy")
    t.ok(status(talk(d.socket, request("GET", "http://169.254.169.254/"))) in (400, 404), "whatever it is asked to fetch")


def test_half_closed(t, d):
    got = talk(d.socket, request("POST", "/v1/execute/command", body=json.dumps({"argv": ["sh", "-c", "sleep .5; echo late"]}).encode()),
               close=True)
    t.ok(status(got) == 200 and b"late" in got, "who only stops to send gets the answer", repr(got[:200]))
    for _ in range(50):
        with connect(d.socket) as s:
            s.sendall(request("POST", "/v1/execute/command", headers=["Content-Length: 1000"])[:-5])
    for _ in range(20):
        with connect(d.socket) as s:
            s.sendall(request("POST", "/v1/execute/command", body=json.dumps({"argv": ["sleep", "60"]}).encode()))
    t.ok(tap.wait_until(lambda: d.ask("GET", "/healthz")[1]["queue"]["running"] == 0, 15), "who goes away cancels what it asked for")


def test_crowd(t, d):
    """Connections that are opened and kept: so many are taken as there is room for, the others hear so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    front = front_of(d)
    before, taken, told, cut = rss(front), [], 0, 0
    for _ in range(CONNECTIONS):
        s = connect(d.socket, 60)
        taken.append(s)
        if len(taken) < 600: # more than there is room for
            continue
        s = taken.pop()
        try:
            s.sendall(request())
        except OSError:
            pass # it was closed already, and what was said before is there to be read
        try:
            got = s.recv(4096)
        except OSError:
            got = b""
        s.close()
        told += status(got) == 503 and b"too many connections" in got
        cut += not got
    most = len(os.listdir("/proc/%d/fd" % front))
    t.ok(most < 700, "no more descriptors than connections that are taken", str(most))
    t.ok(rss(front) < before + 40, "memory does not grow", "%.0f MB, then %.0f MB" % (before, rss(front)))
    t.ok(told > (CONNECTIONS - 600) * 0.9, "who finds no room hears so", "%d told, %d cut off" % (told, cut))
    for s in taken:
        s.close()
    t.ok(tap.wait_until(lambda: status(talk(d.socket, request())) == 200, 60), "when they are gone there is room")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_slow(t):
    """Connections that give a byte now and then, in the head and in the body, and take none."""
    with service.Daemon(options=["--request-time", "1"]) as d:
        t.equal(status(talk(d.socket, request())), 200, "with little time for a request there is enough for one")
        heads = [connect(d.socket) for _ in range(100)]
        body, idle = connect(d.socket), connect(d.socket)
        body.sendall(request("POST", "/v1/execute/command", headers=["Content-Length: 1000"]))
        closed = {}
        began = time.monotonic()
        for tick in range(60):
            for s in [*heads, body]:
                if s in closed:
                    continue
                try:
                    s.send(b"GET /"[tick:tick + 1] or b"a")
                except OSError:
                    closed[s] = time.monotonic() - began
            time.sleep(0.25)
            if len(closed) == len(heads) + 1:
                break
        t.ok(len(closed) == 101 and max(closed[s] for s in heads) < 5, "slow heads are closed in time", repr(sorted(closed.values())[-3:]))
        t.ok(body in closed and closed[body] > 3, "a slow body has longer, but not for ever", repr(closed.get(body)))
        idle.settimeout(5)
        t.equal(idle.recv(1), b"", "so is one that says nothing")
        began = time.monotonic()
        with connect(d.socket, 20) as s:
            s.sendall(request("POST", "/v1/execute/command", body=json.dumps({"argv": ["sh", "-c", "sleep 2.5; echo late"]}).encode()))
            t.ok(b"late" in s.recv(65536), "a run may take longer than its request", "%.1f s" % (time.monotonic() - began))


def main():
    with service.Daemon() as d:
        talk(d.socket, request("POST", "/v1/execute/command", body=RUN))
        front = front_of(d)
        fds, memory = len(os.listdir("/proc/%d/fd" % front)), rss(front)

        def test_nothing_stays(t):
            t.equal(front_of(d), front, "all the time it was the same process")
            t.ok(tap.wait_until(lambda: len(os.listdir("/proc/%d/fd" % front)) <= fds + 2, 10), "no descriptor stays",
                 "%d, then %d" % (fds, len(os.listdir("/proc/%d/fd" % front))))
            t.ok(rss(front) < memory + 40, "nor memory", "%.0f MB, then %.0f MB" % (memory, rss(front)))
            t.equal(status(talk(d.socket, request("POST", "/v1/execute/command", body=RUN))), 200, "and it works")

        both = [test_headers, test_bodies, test_endless, test_pipeline, test_injection, test_paths, test_half_closed, test_crowd]
        named = []
        for test in both:
            bound = lambda t, test=test: test(t, d)
            bound.__name__ = test.__name__
            named.append(bound)
        return tap.run([*named, test_nothing_stays, test_slow])


def rss(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", leftovers.read("/proc/%d/status" % pid)).group(1)) / 1024


sys.exit(main())
