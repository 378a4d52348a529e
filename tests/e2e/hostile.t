#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Attacks on the service from its two hostile sides: what runs, and who sends requests.

Each attack has a twin, the same act in its honest form, which works. After each the service answers
and holds no more memory or descriptors than before. What an attacker says at the level of HTTP is in
daemon.t; archives one by one are in tests/unit/test_unpack.py.
"""

import array
import base64
import http.client
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, paths, service, tap

FUNCTION, COMMAND, JOBS = "/v1/execute/python-function", "/v1/execute/command", "/v1/jobs"
TOKENS = {"red": "r" * 32, "blue": "b" * 32}
MANIFEST = {"manifestVersion": 1, "name": "hostile"}
place = daemon = port = None


def command(text, **more):
    return daemon.ask("POST", COMMAND, dict({"command": text}, **more))


def function(code, **more):
    return daemon.ask("POST", FUNCTION, dict({"code": code}, **more))


def team(name, method, path, body=None):
    """(status, answer) of a request over TCP, with the token of a workspace."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None,
                           {"Authorization": "Bearer " + TOKENS[name]})
        answer = connection.getresponse()
        raw = answer.read()
        try:
            return answer.status, json.loads(raw)
        except ValueError:
            return answer.status, raw.decode("utf-8", "replace")
    finally:
        connection.close()


def front():
    """Resident memory in MiB and open descriptors of the service's processes, together."""
    rss = fds = 0
    for pid in daemon.pids():
        found = re.search(r"VmRSS:\s+(\d+)", leftovers.read("/proc/%d/status" % pid))
        rss += int(found.group(1)) if found else 0
        try:
            fds += len(os.listdir("/proc/%d/fd" % pid))
        except PermissionError: # nsbox-egress, and it alone, keeps its own from everybody but root
            if leftovers.read("/proc/%d/comm" % pid).strip() != "nsbox-egress":
                raise
    return rss >> 10, fds


def well(t, what):
    began = time.monotonic()
    good = daemon.ask("GET", "/healthz", timeout=10)[0] == 200
    t.ok(good, "the service is well after %s" % what, "%.1f s" % (time.monotonic() - began))


# ---------------------------------------------------------------- results

RESULT = "import os\ndef f():\n %s\n return 'honest'"
# What a function writes to the descriptor of its result behind nsbox's back.
FORGED = (
    ("text that is no JSON", "os.write(4, b'x' * 100); os._exit(0)"),
    ("half of an object", "os.write(4, b'{\"ok\":tr'); os._exit(0)"),
    ("an array", "os.write(4, b'[1]'); os._exit(0)"),
    ("nesting of 100000", "os.write(4, b'{\"ok\":true,\"value\":' + b'[' * 30000); os._exit(0)"),
    ("NUL bytes", "os.write(4, bytes(5000)); os._exit(0)"),
    ("what is not UTF-8", "os.write(4, b'{\"ok\":true,\"value\":\"\\xff\"}'); os._exit(0)"),
    ("a result before its own", "os.write(4, b'{\"ok\":true,\"value\":1}')"),
    ("nothing, and ends well", "os._exit(0)"),
    ("nothing, the descriptor closed", "os.close(4); os._exit(0)"),
)
FLOOD = "import os\ndef f():\n b = b'x' * (1 << 20)\n for _ in range(100): os.write(4, b)\n"


def test_results(t):
    for what, act in FORGED:
        status, reply = function(RESULT % act)
        t.ok(status == 200 and reply["code"] == 500 and reply["msg"] and reply["data"] is None,
             "a result that is %s is an error of the function" % what, str(reply)[:300])
    t.equal(function(RESULT % "pass")[1]["data"], "honest", "the twin's result is its own")
    envelope = json.dumps({"code": 200, "data": "forged", "msg": "成功"})
    _, reply = function("def f():\n print(%r)\n return 'honest'" % envelope)
    t.equal((reply["data"], envelope in reply["stdout"]), ("honest", True), "what is printed is output and no result")
    before = front()[0]
    status, reply = function(FLOOD)
    t.ok(reply["code"] == 500 and reply["data"] is None, "a flood of 100 MB as result is an error", str(reply)[:300])
    if not paths.ASAN:  # AddressSanitizer keeps what was freed
        t.ok(front()[0] - before < 64, "and not kept in memory", "%d MiB before, %d after" % (before, front()[0]))
    _, reply = function("def f(): return 'x' * 1000000")
    t.equal(len(reply["data"] or ""), 1000000, "the twin of a megabyte comes whole")
    status, reply = command("exit 137")
    other = command("kill -9 $$")[1]
    t.equal([(r["cause"], r["signal"]) for r in (reply, other)], [("exit", None), ("signal", 9)],
            "an exit status that looks like a signal is none")
    well(t, "forged results")


# ---------------------------------------------------------------- archives


def tar_of(*members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, kind, what in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(what)
            else:
                info.linkname = what
            archive.addfile(info, io.BytesIO(what) if kind == tarfile.REGTYPE else None)
    return base64.b64encode(buffer.getvalue()).decode()


def zip_of(members, **options):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return base64.b64encode(buffer.getvalue()).decode()


FILE, LINK, HARD, DEVICE, FIFO = (tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)


def hostile_archives(canary):
    return (
        ("a link that leads out", tar_of(("out", LINK, os.path.dirname(canary)), ("out/planted", FILE, b"x"))),
        ("an absolute name", tar_of((canary + ".planted", FILE, b"x"))),
        ("a name that climbs", zip_of([("a/../../../../../" + canary + ".planted", b"x")])),
        ("a hard link to a file outside", tar_of(("h", HARD, canary))),
        ("a device", tar_of(("null", DEVICE, ""))),
        ("a FIFO", tar_of(("pipe", FIFO, ""))),
        ("a name of 300 characters", tar_of(("x" * 300, FILE, b"x"))),
        ("a name with an escape sequence", zip_of([("a\x1b[2J", b"x")])),
        ("400 MiB of zeros in 400 KiB", zip_of([("zeros", bytes(400 << 20))])),
    )


def test_archives(t):
    canary = os.path.join(place, "canary")
    with open(canary, "w", encoding="ascii") as f:
        f.write("untouched")
    before = front()[0]
    for what, archive in hostile_archives(canary):
        for field, body in (("archive_base64", {"archive_base64": archive, "command": "ls -A; cat h 2>&1"}),
                            ("skill", {"skill": {"archive_base64": archive}, "command": "true"})):
            status, reply = daemon.ask("POST", COMMAND, body)
            t.ok(status == 400 and reply["error"]["pointer"].startswith("/" + field) and "stdout" not in str(reply.get("data")),
                 "%s in %s is refused" % (what, field), "HTTP %s %s" % (status, str(reply)[:300]))
    t.equal((leftovers.read(canary), [n for n in os.listdir(place) if "planted" in n]), ("untouched", []),
            "nothing was read, changed or made outside")
    t.ok(front()[0] - before < 64, "and no archive is kept", "%d MiB before, %d after" % (before, front()[0]))
    honest = (tar_of(("dir/f", FILE, b"honest"), ("l", LINK, "dir/f")), zip_of([("dir/f", b"honest"), ("l", b"honest")]))
    for archive in honest:
        t.equal(command("cat l", archive_base64=archive)[1]["stdout"], "honest", "the twin is unpacked")
    well(t, "hostile archives")


# ---------------------------------------------------------------- outputs


def test_outputs(t):
    make = ("ln -s /etc/passwd link; mkfifo pipe; echo honest >good; ln good hard; mkdir d; ln -s / d/root;"
            "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; : >'n\nl'; : >$(printf 'e\\033[2J')")
    began = time.monotonic()
    status, reply = command(make, outputs=["**"])
    got = {o["path"]: o for o in reply.get("outputs", ())}
    took = time.monotonic() - began
    t.ok(status == 200 and "good" in got and base64.b64decode(got["good"]["content_base64"]) == b"honest\n",
         "the twin among hostile outputs comes", str(reply)[:300])
    t.equal(sorted({"link", "pipe", "sock", "d/root"} & set(got)), [], "no link, FIFO or socket does")
    t.ok("root:" not in json.dumps(reply) and took < 20, "and nothing is read through or waited for", "%.1f s" % took)
    for what, text in (("a sparse file of a tebibyte", "truncate -s 1T big || truncate -s 200M big"),
                       ("ten thousand files", "i=0; while [ $i -lt 10000 ]; do : >f$i; i=$((i+1)); done"),
                       ("a tree of 600 levels", "python3 -c 'import os\nfor _ in range(600): os.mkdir(\"d\"); os.chdir(\"d\")\nopen(\"f\", \"w\")'")):
        began, before = time.monotonic(), front()[0]
        status, reply = command(text, outputs=["**"])
        t.ok(status in (200, 400, 422, 500, 503) and time.monotonic() - began < 60 and front()[0] - before < 200,
             "%s: an answer, in time and bounds" % what, "HTTP %s %s" % (status, str(reply)[:200]))
    well(t, "hostile outputs")


# ---------------------------------------------------------------- ids, and what belongs to others


def test_ids(t):
    status, job = team("red", "POST", JOBS, {"kind": "command", "command": "echo secret; sleep 600", "outputs": ["*"]})
    t.equal(status, 202, "a job of one workspace")
    mine = JOBS + "/" + job["id"]
    for path in (mine, mine + "/events", "/v1/receipts/" + job["id"]):
        foreign, unknown = team("blue", "GET", path), team("blue", "GET", path.replace(job["id"], "job-1-1"))
        same = json.dumps(foreign[1]).replace(job["id"], "") == json.dumps(unknown[1]).replace("job-1-1", "")
        t.ok(foreign[0] == unknown[0] == 404 and same, "another workspace is told the same as of an id that never was: %s"
             % path.replace(job["id"], "ID"), "%r %r" % (foreign, unknown))
    t.equal(team("blue", "DELETE", mine)[0], 404, "it cannot cancel it either")
    t.equal(job["id"] in str(team("blue", "GET", JOBS)[1]), False, "nor see it listed")
    t.equal(team("blue", "POST", COMMAND, {"command": "true", "workspace_id": "red"})[0], 403, "nor work in its name")
    t.equal(team("red", "GET", mine)[1]["state"] in ("queued", "running"), True, "the twin: its owner sees it")
    for forged in ("..%2f..%2fetc%2fpasswd", "a%2fb", ".", "..", "%00", "x" * 3000, "job-99999999999999999999-1", "job--1",
                   "'%20or%201=1--", "%0d%0aX-Forged:%201", "job-%D9%A1-1"):
        for prefix in (JOBS, "/v1/receipts"):
            status, reply = team("red", "GET", "%s/%s" % (prefix, forged))
            t.ok(400 <= status < 500 and "root:" not in str(reply) and "rows" not in str(reply),
                 "a forged id is none: %s/%s" % (prefix, forged[:24]), "HTTP %s %s" % (status, str(reply)[:200]))
    t.ok(team("red", "DELETE", mine)[0] in (200, 202), "the twin: its owner cancels it")
    t.ok(tap.wait_until(lambda: team("red", "GET", mine)[1]["state"] == "finished", 20), "and it ends")
    t.equal((team("red", "GET", "/v1/receipts/" + job["id"])[0], team("blue", "GET", "/v1/receipts/" + job["id"])[0]), (200, 404),
            "its receipt is for its owner alone")


# ---------------------------------------------------------------- floods


def test_flood(t):
    """One workspace fills its queue; another is served as if there were none."""
    answers = [team("red", "POST", JOBS, {"kind": "command", "command": "sleep 600", "trace_id": str(n)}) for n in range(60)]
    taken = [a["id"] for status, a in answers if status == 202]
    refused = [a for status, a in answers if status == 429]
    t.ok(len(taken) == 10 + 1 and refused and "full" in str(refused[0]), "a queue is full at its limit: 429",
         "%d taken, %d refused" % (len(taken), len(refused)))
    began = time.monotonic()
    status, reply = team("blue", "POST", COMMAND, {"command": "echo served"})
    t.equal((status, reply.get("stdout")), (200, "served\n"), "the twin: another workspace is served meanwhile")
    t.ok(time.monotonic() - began < 20, "without waiting for the first", "%.1f s" % (time.monotonic() - began))
    for number in reversed(taken):
        team("red", "DELETE", JOBS + "/" + number)
    t.ok(tap.wait_until(lambda: daemon.ask("GET", "/healthz")[1]["queue"]["running"] == 0, 30), "and all are cancelled")


def test_noise(t):
    """A program that makes all the noise it can, while the service is asked."""
    storm = ("import os, signal\nfor s in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(s, signal.SIG_IGN)\n"
             "for _ in range(300):\n"
             " for target in (0, -1, 1):\n"
             "  for s in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):\n"
             "   try: os.kill(target, s)\n"
             "   except OSError: pass\n"
             " if os.fork() == 0: os._exit(0)\n"
             "os.kill(-1, signal.SIGKILL)\nprint('alive')\n")
    status, job = daemon.ask("POST", JOBS, {"kind": "command", "argv": ["python3", "-c", storm]})
    worst = 0.0
    while daemon.ask("GET", JOBS + "/" + job["id"])[1]["state"] != "finished":
        began = time.monotonic()
        daemon.ask("GET", "/healthz")
        worst = max(worst, time.monotonic() - began)
    done = daemon.ask("GET", JOBS + "/" + job["id"])[1]
    t.ok(status == 202 and done["cause"] in ("exit", "signal", "pids"), "a storm of signals ends itself alone", str(done)[:300])
    t.ok(worst < 5, "the service answers all the while", "%.2f s" % worst)
    before = front()[0]
    reply = command("yes '<0>nsboxd forged' | head -c 100000000; yes x | head -c 100000000 >&2")[1]
    t.ok(reply["stdout_truncated"] or reply["cause"] == "output", "200 MB of output are cut", str(reply)[:200])
    if not paths.ASAN:  # AddressSanitizer keeps what was freed
        t.ok(front()[0] - before < 64, "and not kept", "%d MiB before, %d after" % (before, front()[0]))
    t.equal(command("echo short")[1]["stdout"], "short\n", "the twin comes whole")


# ---------------------------------------------------------------- the socket


def test_descriptors(t):
    """Descriptors sent along with a request are not kept."""
    before = front()[1]
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with open("/dev/null", "rb") as null:
        for _ in range(20):
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(20)
                s.connect(daemon.socket)
                sent = array.array("i", [null.fileno()] * 200)
                s.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)])
                answer = s.recv(65536)
    t.ok(answer.startswith(b"HTTP/1.1 200"), "a request with 200 descriptors is answered", repr(answer[:80]))
    t.ok(tap.wait_until(lambda: front()[1] <= before + 2, 5), "and none of 4000 is kept", "%d before, %d after" % (before, front()[1]))


def test_inside(t):
    """What runs cannot talk to the service, by path, by name or by address."""
    look = ("import socket, sys\n"
            "def tried(family, where):\n"
            " s = socket.socket(family); s.settimeout(5)\n"
            " try: s.connect(where); return 'reached'\n"
            " except OSError as e: return 'refused'\n"
            "print(tried(socket.AF_UNIX, %r), tried(socket.AF_UNIX, '\\0' + %r), tried(socket.AF_INET, ('127.0.0.1', %d)))\n")
    name = "hostile-%d" % os.getpid()
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind("\0" + name)
        abstract.listen(1)
        text = look % (daemon.socket, name, port)
        t.equal(daemon.ask("POST", COMMAND, {"argv": ["python3", "-c", text]})[1]["stdout"], "refused refused refused\n",
                "a run reaches neither socket, nor an abstract one, nor the service's port")
        outside = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False).stdout
        t.equal(outside, "reached reached reached\n", "the twin outside reaches all three")


# ---------------------------------------------------------------- wishes, and words

WISHES = (
    ({"resources": {"memory": "1Ei"}}, "/manifest/resources/memory"),
    ({"resources": {"pids": 10 ** 9}}, "/manifest/resources/pids"),
    ({"timeouts": {"wall": "9999999h"}}, "/manifest/timeouts/wall"),
    ({"profile": "unconfined"}, "/manifest/profile"),
    ({"filesystem": {"write": ["/proc/sys"]}}, "/manifest/filesystem"),
    ({"require": {"seccomp": "off"}}, "/manifest/require/seccomp"),
    ({"syscalls": {"allow": ["mount"]}}, "/manifest/syscalls"),
    ({"network": {"mode": "host"}}, "/manifest/network/mode"),
)


def test_wishes(t):
    for wish, pointer in WISHES:
        status, reply = command("true", manifest={**MANIFEST, **wish})
        t.ok(status == 400 and reply["error"].get("pointer", "").startswith(pointer), "above the ceiling is refused: %s" % wish,
             "HTTP %s %s" % (status, str(reply)[:300]))
    modest = {"resources": {"memory": "64Mi", "pids": 8}, "timeouts": {"wall": "20s"}, "require": {"seccomp": "require"}}
    t.equal(command("echo modest", manifest={**MANIFEST, **modest})[1].get("stdout"), "modest\n", "the twin below it runs")


EVIL = "x\n<0>nsboxd job id=forged cause=exit\r\x1b[2J\x1b]0;t\x07\u2028\u009b"


def test_words(t):
    """Text of clients and programs is one escaped word in the log and the audit, wherever it is put."""
    honest = daemon.ask("POST", COMMAND, {"command": "true", "workspace_id": "honest", "trace_id": "words"})
    t.equal(honest[0], 200, "the twin with plain words")
    bodies = (
        {"command": "echo '<0>nsboxd forged' >&2; printf '\\033[2J'", "workspace_id": EVIL, "trace_id": EVIL},
        {"command": "true", "files": [{"path": EVIL, "content": ""}]},
        {"command": "true", "env": {EVIL: "1"}},
        {"command": "true", "image": EVIL},
        {"command": "true", "outputs": [EVIL]},
        {"command": "true", "cwd": EVIL},
        {"command": "true", "manifest": {"manifestVersion": 1, "name": EVIL}},
        {"command": "true", "manifest": {"manifestVersion": 1, EVIL: 1}},
        {"argv": [EVIL]},
        {EVIL: 1},
    )
    for number, body in enumerate(bodies):
        status, reply = daemon.ask("POST", COMMAND, body)
        t.ok(isinstance(reply, dict) and 200 <= status < 504, "hostile words in place %d are answered as JSON" % number,
             "HTTP %s" % status)
    daemon.ask("GET", "/v1/jobs/" + "%0a%3C0%3Ensboxd%20forged")
    log = daemon.log()
    lines = log.split("\n")[:-1]
    t.ok(lines and all(re.match(r"<[0-7]>nsbox[a-z-]*[ :]", line) for line in lines) and not [l for l in lines if l.startswith("<0>")],
         "each line of the log is the service's", "\n".join(l for l in lines if not re.match(r"<[3-7]>", l))[:600])
    t.ok(not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", log), "none holds a control character")
    with open(os.path.join(daemon.data, "audit.log"), "rb") as f:
        raw = f.read()
    parsed = [json.loads(line) for line in raw.splitlines()]
    t.ok(not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", raw) and all("event" in line for line in parsed),
         "each line of the audit is one record, without control characters")
    t.ok([l for l in parsed if l.get("trace_id") == "words"], "and holds the twin's")


def main():
    global place, daemon, port  # pylint: disable=global-statement
    leftovers.become_subreaper()
    place = tempfile.mkdtemp(prefix="hostile-e2e-")
    os.chmod(place, 0o755)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    tokens = os.path.join(place, "tokens")
    with open(tokens, "w", encoding="ascii") as f:
        f.writelines("%s %s\n" % pair for pair in TOKENS.items())
    os.chmod(tokens, 0o600)
    daemon = service.Daemon(options=["--tcp", "127.0.0.1:%d" % port, "--tokens", tokens, "--runners", "2",
                                     "--workspace-runners", "1", "--workspace-queue", "10"])
    try:
        command("true")
        return tap.run([test_results, test_archives, test_outputs, test_ids, test_flood, test_noise, test_descriptors,
                        test_inside, test_wishes, test_words])
    finally:
        daemon.stop()
        shutil.rmtree(place)


if __name__ == "__main__":
    sys.exit(main())
