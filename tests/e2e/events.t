#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The stream of a job's events: order, content, going on, slow and vanishing readers, who may look."""

import base64
import json
import os
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, paths, service, tap

JOBS = "/v1/jobs"
daemon = None


def post(text, **more):
    return daemon.ask("POST", JOBS, dict({"kind": "command", "command": text}, **more))[1]


def open_stream(job, last=None):
    connection = service.UnixConnection(daemon.socket, 60)
    connection.request("GET", "%s/%s/events" % (JOBS, job["id"]), headers={"Last-Event-ID": last} if last else {})
    return connection, connection.getresponse()


def events(answer, until=None):
    """(id, event, data) of a stream, up to its end or to an event."""
    event = {}
    for line in iter(answer.readline, b""):
        line = line.decode().rstrip("\n")
        if line:
            key, _, value = line.partition(": ")
            event[key] = value
            continue
        yield event["id"], event["event"], json.loads(event["data"])
        if event["event"] == until:
            return
        event = {}


def stream(job, last=None):
    connection, answer = open_stream(job, last)
    found = list(events(answer))
    connection.close()
    return found


def output(found, name="stdout"):
    """What was written, and that its pieces follow one another."""
    data = b""
    for _, event, value in found:
        if event == name:
            assert value["offset"] == len(data), (value["offset"], len(data))
            data += value["text"].encode() if "text" in value else base64.b64decode(value["base64"])
    return data


def names(found):
    """Without repetitions."""
    return [e for i, (_, e, _) in enumerate(found) if i == 0 or found[i - 1][1] != e]


def test_life(t):
    job = post("echo one; sleep 0.5; echo two; sleep 0.2; echo err >&2; exit 3")
    connection, answer = open_stream(job)
    t.equal((answer.status, answer.getheader("Content-Type")), (200, "text/event-stream"), "a stream of events")
    began, found, when = time.monotonic(), [], {}
    for event in events(answer):
        found.append(event)
        when[len(found)] = time.monotonic() - began
    connection.close()
    t.equal(names(found), ["queued", "started", "stdout", "stderr", "finished"], "in order")
    t.equal((output(found), output(found, "stderr")), (b"one\ntwo\n", b"err\n"), "with all that was written")
    t.ok(len([e for e in found if e[1] == "stdout"]) == 2 and when[4] - when[3] > 0.3, "as it is written", str(when))
    t.equal((found[-1][2]["cause"], found[-1][2]["id"], found[-1][2]["state"]), ("exit", job["id"], "finished"),
            "and how it ended")
    again = stream(job)
    t.equal((names(again), output(again)), (names(found), b"one\ntwo\n"), "the same when it is over")
    t.equal(stream(job, again[-1][0]), again[-1:], "who has heard of the end hears of that alone")


def test_resume(t):
    text = "i=0; while [ $i -lt 200 ]; do echo \"line $i €\"; i=$((i+1)); sleep 0.005; done"
    want = "".join("line %d €\n" % i for i in range(200)).encode()
    job = post(text)
    data, last, count = b"", None, 0
    for _ in range(20):
        connection, answer = open_stream(job, last)
        for number, event in enumerate(events(answer)):
            last = event[0]
            if event[1] == "stdout":
                t.ok(event[2]["offset"] == len(data), "goes on where it was") if event[2]["offset"] != len(data) else None
                data += event[2]["text"].encode()
            if event[1] == "finished":
                break
            if number >= 10:
                break
        connection.close()
        count += 1
        if event[1] == "finished":
            break
    while event[1] != "finished":
        rest = stream(job, last)
        data += b"".join(e[2]["text"].encode() for e in rest if e[1] == "stdout")
        event = rest[-1]
    t.ok(data == want and count > 2, "a client that comes back gets every byte once", "%d %d" % (len(data), len(want)))
    for bad in ("x", "9-0-0", "-1", "1-99999999999999-0"):
        t.equal(stream(job, bad)[-1][1], "finished", "an id that is none of ours: %s" % bad)


def test_bytes(t):
    job = post("head -c 300000 /dev/urandom | tee f; printf 'a\\377b' >&2", outputs=["f"])
    live = stream(job)
    whole = base64.b64decode(daemon.ask("GET", JOBS + "/" + job["id"])[1]["result"]["stdout_base64"])
    t.ok(output(live) == whole and len(whole) == 300000, "bytes that are no text, while it runs")
    t.ok(output(stream(job)) == whole, "and afterwards")
    t.equal(output(live, "stderr"), b"a\377b", "of both streams")


def test_waiting(t):
    job = post("sleep 300")
    second = post("echo never", workspace_id="w")
    connection, answer = open_stream(second)
    found = []
    thread = threading.Thread(target=lambda: found.extend(events(answer)))
    thread.start()
    tap.wait_until(lambda: found, 10)
    t.equal([e[1] for e in found], ["queued"], "one that waits")
    daemon.ask("DELETE", JOBS + "/" + second["id"])
    thread.join(10)
    t.equal(([e[1] for e in found], found[-1][2]["cause"]), (["queued", "finished"], "cancelled"), "and is cancelled")
    connection.close()
    daemon.ask("DELETE", JOBS + "/" + job["id"])


def test_slow_reader(t):
    before = memory()
    job = post("head -c 900000 /dev/zero | tr '\\0' x; echo; sleep 1")
    readers = []
    for _ in range(20):
        s = socket.socket(socket.AF_UNIX)
        s.connect(daemon.socket)
        s.sendall(b"GET %s/%s/events HTTP/1.1\r\nHost: x\r\n\r\n" % (JOBS.encode(), job["id"].encode()))
        readers.append(s)
    t.ok(tap.wait_until(lambda: daemon.ask("GET", JOBS + "/" + job["id"])[1]["state"] == "finished", 30),
         "readers that do not read do not hold the job")
    grown = memory() - before
    if not paths.ASAN:  # AddressSanitizer keeps what was freed
        t.ok(grown < 16 << 20, "nor memory", "%d MB" % (grown >> 20))
    t.equal(daemon.ask("POST", "/v1/execute/command", {"command": "echo x"})[1]["stdout"], "x\n", "nor others")
    for s in readers:
        s.close()
    t.equal(len(output(stream(job))), 900001, "who does read gets all")


def front():
    return [pid for pid, (parent, _, _, name) in leftovers.processes().items()
            if parent == daemon.pid and name == "nsboxd"][0]


def memory():
    return int(leftovers.read("/proc/%d/status" % front()).split("VmRSS:")[1].split()[0]) << 10


def descriptors():
    return len(os.listdir("/proc/%d/fd" % front()))


def test_gone_reader(t):
    job = post("sleep 300")
    running = lambda: daemon.ask("GET", JOBS + "/" + job["id"])[1]["state"] == "running"
    tap.wait_until(running, 10)
    time.sleep(0.5)
    before = descriptors()
    streams = []
    for _ in range(10):
        connection, answer = open_stream(job)
        next(events(answer))
        streams.append(connection)
    t.ok(descriptors() >= before + 10, "ten streams are open")
    for connection in streams:
        connection.sock.close() if connection.sock else None
        connection.close()
    del streams, answer, connection
    t.ok(tap.wait_until(lambda: descriptors() <= before, 10), "none is left when their readers are gone",
         "%d, were %d" % (descriptors(), before))
    t.equal(daemon.ask("GET", JOBS + "/" + job["id"])[1]["state"], "running", "and the job goes on")
    daemon.ask("DELETE", JOBS + "/" + job["id"])


def test_unknown(t):
    t.equal(open_stream({"id": "none"})[1].status, 404, "no such job")
    t.equal(daemon.ask("GET", JOBS + "/none/other")[0], 404, "no such thing of a job")
    t.equal(daemon.ask("POST", JOBS + "/none/events")[0], 405, "no such method")
    if os.getuid() != 0:
        t.note("other users can be tried as root alone")
        return
    code = ("import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
            "s.sendall(('GET %s HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' % sys.argv[2]).encode())\n"
            "print(s.recv(100).split()[1].decode())")
    job = post("true")
    stream(job)
    with service.Daemon(options=["--allow-uid", "12345"]) as other:
        _, job = other.ask("POST", JOBS, {"kind": "command", "command": "sleep 1"})
        for _ in range(2):
            done = subprocess.run(["/usr/bin/python3", "-c", code, other.socket, "%s/%s/events" % (JOBS, job["id"])],
                                  user=12345, group=12345, extra_groups=[], capture_output=True, text=True, cwd="/",
                                  check=False)
            t.equal(done.stdout, "404\n", "a foreign job's events are those of an unknown one")
            tap.wait_until(lambda: other.ask("GET", JOBS + "/" + job["id"])[1]["state"] == "finished", 10)


def test_end(t):
    global daemon
    outer, daemon = daemon, service.Daemon(options=["--runners", "1"])
    try:
        streams = [open_stream(post("sleep 300")) for _ in range(2)]
        found = [[], []]
        threads = [threading.Thread(target=lambda i=i: found[i].extend(events(streams[i][1]))) for i in range(2)]
        for thread in threads:
            thread.start()
        tap.wait_until(lambda: len(found[0]) == 2 and found[1], 10)
        t.equal(daemon.stop(), 0, "the service ends with streams open")
        for thread in threads:
            thread.join(10)
        t.equal((found[0][-1][1], found[0][-1][2].get("cause")), ("finished", "interrupted"), "of what ran the end is told")
        t.equal([e[1] for e in found[1]], ["queued"], "what waits has none")
    finally:
        daemon.stop()
        daemon = outer


if __name__ == "__main__":
    leftovers.become_subreaper()
    with service.Daemon(options=["--runners", "1"]) as daemon:
        status = tap.run([test_life, test_resume, test_bytes, test_waiting, test_slow_reader, test_gone_reader,
                          test_unknown, test_end])
        if status:
            sys.stderr.write(daemon.log()[-2000:])
    sys.exit(status)
