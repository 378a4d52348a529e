#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon through its socket: calls, files, bad input, cancelling, the queue, who may speak."""

import base64
import concurrent.futures
import hashlib
import io
import json
import os
import re
import socket
import subprocess
import sys
import tarfile
import threading
import time
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, paths, service, tap

SKILL = os.path.join(paths.ROOT, "docs", "examples", "report-skill")
FUNCTION = "/v1/execute/python-function"
COMMAND = "/v1/execute/command"
daemon = None


def b64(data):
    return base64.b64encode(data).decode()


def function(code, **more):
    return daemon.ask("POST", FUNCTION, dict({"code": code}, **more))


def command(text, **more):
    return daemon.ask("POST", COMMAND, dict({"command": text}, **more))


# ---------------------------------------------------------------- functions

PAUSE = {"timeout_seconds": 1}
SMALL = {"resources": {"memory_mb": 256}}
NO_START = {"manifest": {"manifestVersion": 1, "process": {"subprocess": "none"}}}
START = "import subprocess\ndef f(): return subprocess.run(['true']).returncode"
FORGE = """
import os
def f():
    os.write(4, b'{"ok":true,"value":"forged"}')
    os._exit(%d)
"""

# name, code, fields of the request, code of the reply, data or message (text, or a test of it)
GOLDEN = [
    ("last function", "def a(): return 1\ndef b(): return 2", {}, 200, 2),
    ("by name", "def a(): return 1\ndef b(): return 2", {"function_name": "a"}, 200, 1),
    ("function_name null", "def a(): return 1", {"function_name": None}, 200, 1),
    ("recursion", "def f(n): return 1 if n < 2 else n * f(n - 1)", {"params": {"n": 5}}, 200, 120),
    ("recursion, compat", "def f(n): return 1 if n < 2 else n * f(n - 1)",
     {"params": {"n": 5}, "compat": True}, 500, "name 'f' is not defined"),
    ("not a function", "X=5", {}, 500, "'int' object is not callable"),
    ("unknown function", "def f(): pass", {"function_name": "g"}, 500,
     "'NoneType' object is not callable"),
    ("empty code", "", {}, 500, "'popitem(): dictionary is empty'"),
    ("extra argument", "def f(): pass", {"params": {"b": 1}}, 500,
     "f() got an unexpected keyword argument 'b'"),
    ("null result", "def f(): pass", {}, 200, None),
    ("Chinese", "def f(**k): return k", {"params": {"键": ["值", 1.5, None]}}, 200,
     {"键": ["值", 1.5, None]}),
    ("big integer", "def f(): return 10 ** 40", {}, 200, 10 ** 40),
    ("nan and infinity", "def f(): return [float('nan'), float('inf')]", {}, 200,
     lambda v: v[0] != v[0] and v[1] == float("inf")),
    ("surrogate and emoji", "def f(): return '\\ud800😀'", {}, 200, "\ud800😀"),
    ("values JSON lacks", "def f(): return {1, }, b'x'", {}, 200, ["{1}", "b'x'"]),
    ("deep", "def f():\n v = 1\n for i in range(900): v = [v]\n return v", {}, 200,
     lambda v: json.dumps(v).count("[") == 900),
    ("too deep", "def f():\n v = 1\n for i in range(5000): v = [v]\n return v", {}, 500,
     lambda m: "recursion" in m),
    ("error", "def f(): raise ValueError('金额 -5')", {}, 500, "金额 -5"),
    ("error and stderr", "import sys\ndef f():\n sys.stderr.write('warn\\n')\n raise ValueError('bad')",
     {}, 500, "bad\nwarn\n"),
    ("syntax error", "def", {}, 500, "invalid syntax (<string>, line 1)"),
    ("sys.exit(0)", "import sys\ndef f(): sys.exit(0)", {}, 500, "Execution interrupted or tampered"),
    ("sys.exit(3)", "import sys\ndef f(): sys.exit(3)", {}, 500, "Unknown exception occurred"),
    ("sys.exit('bye')", "import sys\ndef f(): sys.exit('bye')", {}, 500, "bye\n"),
    ("abort", "import os\ndef f(): os.abort()", {}, 500, "Unknown exception occurred"),
    ("SIGKILL", "import os\ndef f(): os.kill(os.getpid(), 9)", {}, 500, "Unknown exception occurred"),
    ("KeyboardInterrupt", "def f(): raise KeyboardInterrupt", {}, 500,
     lambda m: m.startswith("Traceback (most recent call last):") and "KeyboardInterrupt" in m),
    ("time limit", "import time\ndef f(): time.sleep(60)", PAUSE, 500,
     "Process execution timed out after 1 seconds."),
    ("memory limit", "def f(): return len(bytearray(600 << 20))", SMALL, 500,
     "Cannot allocate more memory: exceeded the limit of 256 MB."),
    ("threads under the memory limit",
     "import threading\ndef f():\n e = threading.Event()\n t = [threading.Thread(target=e.wait) for _ in range(8)]\n"
     " [x.start() for x in t]\n e.set()\n [x.join() for x in t]\n return len(t)", SMALL, 200, 8),
    ("programs by default", START, {}, 200, 0),
    ("programs refused", START, NO_START, 500, lambda m: "Permission denied" in m or "not permitted" in m),
    ("one behaviour of MaxKB alone", "import os\ndef f(n): return len(os.environ) or f(n)",
     {"params": {"n": 1}, "compat": ["environment"]}, 500,
     lambda m: "recursion" in m),
    ("arguments as an expression", "def f(a): return [type(a).__name__, a]",
     {"params_python": "{'a': (1, b'x')}"}, 200, ["tuple", [1, "b'x'"]]),
    ("the interpreter and its modules", "import sys\ndef f(): return [sys.executable, sys.path[-2]]",
     {"python": {"interpreter": "/usr/bin/python3", "path": ["/opt/modules"]}}, 200,
     ["/usr/bin/python3", "/opt/modules"]),
    ("programs refused, compat", START, dict(NO_START, compat=True), 500,
     "Permission denied to create subprocess.\n"),
    ("a forged result is its own", FORGE % 0, {}, 200, "forged"),
    ("a forged result with a bad end", FORGE % 3, {}, 500, "Unknown exception occurred"),
    ("20 MB", "def f(): return 'x' * 20000000", {}, 200, "x" * 20000000),
    ("a result beyond the limit", "def f(): return 'x' * 3000000",
     {"manifest": {"manifestVersion": 1, "resources": {"result": "1Mi"}}}, 500,
     "The result is larger than the limit of 1048576 bytes."),
    ("a module beside the code", "import helper\ndef f(): return helper.X",
     {"files": [{"path": "helper.py", "content": "X = 7"}]}, 200, 7),
]


def test_golden(t):
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda row: function(row[1], **row[2]), GOLDEN))
    for (name, _, _, want_code, want), (status, reply) in zip(GOLDEN, replies):
        if status != 200:
            t.ok(False, "function: " + name, "HTTP %d %s" % (status, reply))
            continue
        got = reply["data"] if reply["code"] == 200 else reply["msg"]
        good = want(got) if callable(want) else got == want
        t.ok(good and reply["code"] == want_code, "function: " + name,
             "code %s, got %.300r" % (reply["code"], got))


def test_report(t):
    status, reply = function("import os\ndef f():\n print('out')\n return os.getuid()")
    t.equal((status, reply["data"], reply["stdout"], reply["cause"]), (200, 1000, "out\n", "exit"),
            "value, output and cause are apart")
    enforced = {e["layer"]: e for e in reply["enforced"]}
    for layer in ("user", "mount", "pid", "net", "noNewPrivileges", "capabilities", "seccomp", "witness"):
        t.equal(enforced.get(layer, {}).get("state"), "enforced", "layer %s is enforced" % layer)
    t.ok(reply["witness"] and set(reply["witness"].values()) == {"held"}, "every witness held",
         str(reply["witness"]))
    t.ok(all(e.get("reason") for e in reply["notEnforced"]), "what is missing has a reason",
         str(reply["notEnforced"]))
    t.ok(len(reply["policy_sha256"]) == 64 and reply["limits"]["memory"] == 512 << 20,
         "policy and limits are reported")


# ---------------------------------------------------------------- commands and files


def test_commands(t):
    _, reply = command("echo a b; echo err >&2; exit 3")
    t.equal((reply["stdout"], reply["stderr"], reply["exit_code"]), ("a b\n", "err\n", 3), "a shell command")
    _, reply = command(["printf", "%s|", "a b", "", "ü"])
    t.equal(reply["stdout"], "a b||ü|", "an argument vector")
    _, reply = command("cat; echo $X; pwd", stdin="in\n", env={"X": "y z"}, cwd="/tmp")
    t.equal(reply["stdout"], "in\ny z\n/tmp\n", "standard input, environment, working directory")
    _, reply = command("cat", stdin_base64=b64(b"\0\xff"))
    t.equal((base64.b64decode(reply["stdout_base64"]), reply["stdout"]), (b"\0\xff", "\0\ufffd"),
            "output that is not UTF-8")
    _, reply = command("no-such-program-xyz")
    t.equal(reply["exit_code"], 127, "the shell does not find it")
    _, reply = command(["no-such-program-xyz"])
    t.ok(reply["exit_code"] == 127 and reply["cause"] == "exec" and "no-such-program-xyz" in reply["stderr"],
         "nsbox does not find it", str(reply)[:300])
    _, reply = command("kill -SEGV $$")
    t.equal((reply["cause"], reply["signal"], reply["exit_code"]), ("signal", 11, 139), "death by signal")
    _, reply = command("sleep 60 & echo done")
    t.ok(reply["stdout"] == "done\n" and reply["duration_ms"] < 5000,
         "what is left in the background does not hold the reply")
    _, reply = command("head -c 3000000 /dev/zero")
    t.equal((len(reply["stdout"]), reply["stdout_truncated"], reply["cause"]), (1 << 20, True, "exit"),
            "output beyond the limit is cut, the run goes on")
    _, reply = command("cat /dev/zero", timeout_seconds=60)
    t.equal(reply["cause"], "output", "output without end ends the run")
    _, reply = command("test -t 1 && stty size", tty=True)
    t.equal(reply["stdout"], "24 80\r\n", "a terminal")


def archive_of(members, kind="tar"):
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as z:
            for name, data in members:
                z.writestr(name, data)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name, data in members:
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(data), 0o755
                archive.addfile(info, io.BytesIO(data))
    return b64(buffer.getvalue())


def test_files(t):
    data = bytes(range(256)) * 400
    _, reply = command(
        "cat dir/a; ls -l run.sh | cut -c1-10; readlink ln; ./run.sh >out/r; cp bin out/; ln -s r out/l",
        files=[{"path": "dir/a", "content": "text\n"}, {"path": "bin", "content_base64": b64(data)},
               {"path": "run.sh", "content": "#!/bin/sh\necho ran\n", "mode": "0755"},
               {"path": "ln", "symlink": "dir/a"}, {"path": "out/.keep", "content": ""}],
        outputs=["out/*"])
    t.equal(reply["stdout"], "text\n-rwxr-xr-x\ndir/a\n", "files, modes and links are in place")
    got = {o["path"]: o for o in reply["outputs"]}
    t.equal(sorted(got), ["out/.keep", "out/bin", "out/r"], "the outputs that match, and no link")
    t.ok(base64.b64decode(got["out/bin"]["content_base64"]) == data
         and got["out/bin"]["sha256"] == hashlib.sha256(data).hexdigest() and got["out/bin"]["size"] == len(data),
         "an output is the same bytes, with size and hash")
    for kind in ("tar", "zip"):
        _, reply = command("cat a/b c", archive_base64=archive_of([("a/b", b"1"), ("c", b"2")], kind),
                           files=[{"path": "c", "content": "3"}])
        t.equal(reply["stdout"], "13", "a %s archive is unpacked, single files win" % kind)
    status, reply = command("true", archive_base64=archive_of([("ok", b"1"), ("../escape.txt", b"2")]))
    t.ok(status == 400 and "escape.txt" in reply["error"]["message"]
         and reply["error"]["pointer"] == "/archive_base64", "an archive that leads out is refused", str(reply))
    status, reply = command("true", archive_base64=b64(b"no archive at all"))
    t.ok(status == 400 and reply["error"]["pointer"] == "/archive_base64", "what is no archive is refused",
         str(reply))


def skill_archive(top):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(SKILL, arcname=top)
    return b64(buffer.getvalue())


def test_skill(t):
    for top in (".", "report-skill"):
        skill = {"archive_base64": skill_archive(top), "name": "report"}
        status, reply = daemon.ask("POST", COMMAND, {"skill": skill})
        t.equal((status, [o["path"] for o in reply.get("outputs", ())]), (200, ["out/report.txt"]),
                "a skill's entry point, its files below %s" % top)
    skill = {"archive_base64": skill_archive("other")}
    _, reply = daemon.ask("POST", COMMAND, {"skill": dict(skill, entrypoint="summary")})
    t.ok(reply["exit_code"] == 0 and reply["stdout"], "another entry point", str(reply)[:400])
    status, reply = daemon.ask("POST", COMMAND, {"skill": dict(skill, entrypoint="nope")})
    t.ok(status == 400 and "summary" in reply["error"]["message"], "an entry point that is not there",
         str(reply))
    _, reply = daemon.ask("POST", COMMAND, {"skill": skill, "command": "pwd; ls; touch f && echo yes"})
    t.equal(reply["stdout"], "/skills/other\nSKILL.md\ndata\nscripts\nskill.json\nyes\n",
            "a command in the skill's directory")
    fixed = {"archive_base64": archive_of([("skill.json", b'{"manifestVersion":1}')])}
    _, reply = daemon.ask("POST", COMMAND, {"skill": fixed, "command": "touch f || echo no"})
    t.equal(reply["stdout"], "no\n", "which is read-only where its manifest does not say otherwise")
    plain = archive_of([("SKILL.md", b"# s\n"), ("s.sh", b"#!/bin/sh\necho hello >here && cat here\n")])
    for more in ({}, {"timeout_seconds": 9}):
        _, reply = daemon.ask("POST", COMMAND, dict({"skill": {"archive_base64": plain}, "command": "./s.sh"}, **more))
        t.equal(reply["stdout"], "hello\n", "a skill without a manifest may write beside its code %s" % more)


# ---------------------------------------------------------------- bad input

GOOD = {"code": "def f(): return 1"}
# name, method, path, body (bytes, or JSON), status, pointer, part of the message
BAD = [
    ("malformed JSON", "POST", FUNCTION, b'{"code": ', 400, None, "line 1"),
    ("text behind the end", "POST", FUNCTION, b"{} {}", 400, None, ""),
    ("no body", "POST", FUNCTION, b"", 400, None, ""),
    ("not an object", "POST", FUNCTION, b"[]", 400, "", "expected an object"),
    ("not UTF-8", "POST", FUNCTION, b'{"code": "\xff"}', 400, "/code", "UTF-8"),
    ("duplicate key", "POST", FUNCTION, b'{"code": "a", "code": "b"}', 400, None, "duplicate"),
    ("NUL", "POST", FUNCTION, b'{"code": "\\u0000"}', 400, "/code", "u0000"),
    ("too deep", "POST", FUNCTION, b'{"code":"","params":{"a":%s1%s}}' % (b"[" * 100, b"]" * 100), 400, None, ""),
    ("missing code", "POST", FUNCTION, {}, 400, "/code", "required"),
    ("unknown key", "POST", FUNCTION, dict(GOOD, param={}), 400, "/param", 'did you mean "params"'),
    ("wrong type", "POST", FUNCTION, {"code": 1}, 400, "/code", "expected a string"),
    ("params no object", "POST", FUNCTION, dict(GOOD, params=[1]), 400, "/params", "expected an object"),
    ("arguments twice", "POST", FUNCTION, dict(GOOD, params={}, params_python="{}"), 400,
     "/params_python", "params are given"),
    ("interpreter by name", "POST", FUNCTION, dict(GOOD, python={"interpreter": "python3"}), 400,
     "/python/interpreter", "absolute path"),
    ("unknown behaviour", "POST", FUNCTION, dict(GOOD, compat=["recursio"]), 400, "/compat/0",
     'did you mean "recursion"'),
    ("behaviours as text", "POST", FUNCTION, dict(GOOD, compat="all"), 400, "/compat", "array of words"),
    ("integer out of range", "POST", FUNCTION, dict(GOOD, params={"a": 10 ** 30}), 400, "/params/a", "range"),
    ("timeout 0", "POST", FUNCTION, dict(GOOD, timeout_seconds=0), 400, "/timeout_seconds", "above 0"),
    ("timeout text", "POST", FUNCTION, dict(GOOD, timeout_seconds="1"), 400, "/timeout_seconds", "number"),
    ("timeout above the ceiling", "POST", FUNCTION, dict(GOOD, timeout_seconds=1e8), 400, "/timeout_seconds", ""),
    ("memory above the ceiling", "POST", FUNCTION, dict(GOOD, resources={"memory_mb": 1000000}), 400,
     "/resources/memory_mb", ""),
    ("unknown resource", "POST", FUNCTION, dict(GOOD, resources={"memory": 1}), 400, "/resources/memory", "unknown key"),
    ("network", "POST", FUNCTION, dict(GOOD, network_policy={"mode": "open"}), 400, "/network_policy/mode", "ceiling"),
    ("manifest, unknown key", "POST", FUNCTION,
     dict(GOOD, manifest={"manifestVersion": 1, "resources": {"memori": 1}}), 400,
     "/manifest/resources/memori", "memory"),
    ("manifest, no version", "POST", FUNCTION, dict(GOOD, manifest={}), 400, "/manifest/manifestVersion", "required"),
    ("session", "POST", COMMAND, {"command": "true", "session_id": "x/y"}, 400, "/session_id", "letters, digits"),
    ("image", "POST", COMMAND, {"command": "true", "image": "../x"}, 400, "/image", ""),
    ("unknown image", "POST", COMMAND, {"command": "true", "image": "nope"}, 400, None, "nope"),
    ("no command", "POST", COMMAND, {}, 400, "/command", "required"),
    ("empty command", "POST", COMMAND, {"command": ""}, 400, "/command", "empty"),
    ("command twice", "POST", COMMAND, {"command": "a", "argv": ["a"]}, 400, None, "exclude"),
    ("argv of numbers", "POST", COMMAND, {"argv": ["a", 1]}, 400, "/argv/1", "expected a string"),
    ("path with ..", "POST", COMMAND, {"command": "true", "files": [{"path": "a/../b", "content": ""}]}, 400,
     "/files/0/path", ""),
    ("absolute path", "POST", COMMAND, {"command": "true", "files": [{"path": "/etc/x", "content": ""}]}, 400,
     "/files/0/path", ""),
    ("file without content", "POST", COMMAND, {"command": "true", "files": [{"path": "a"}]}, 400, "/files/0", "content"),
    ("bad base64", "POST", COMMAND, {"command": "true", "files": [{"path": "a", "content_base64": "a"}]}, 400,
     "/files/0/content_base64", "base64"),
    ("bad mode", "POST", COMMAND, {"command": "true", "files": [{"path": "a", "content": "", "mode": "4755"}]}, 400,
     "/files/0/mode", "octal"),
    ("bad variable", "POST", COMMAND, {"command": "true", "env": {"A=B": "c"}}, 400, "/env/A=B", "name"),
    ("skill beside a manifest", "POST", COMMAND,
     {"skill": {"archive_base64": ""}, "manifest": {"manifestVersion": 1}}, 400, "/manifest", "skill"),
    ("job without kind", "POST", "/v1/jobs", GOOD, 400, "/kind", "required"),
    ("job of unknown kind", "POST", "/v1/jobs", dict(GOOD, kind="x"), 400, "/kind", ""),
    ("kind of another path", "POST", COMMAND, {"command": "true", "kind": "python-function"}, 400, "/kind", ""),
    ("no such path", "GET", "/v2/x", None, 404, None, ""),
    ("no such job", "GET", "/v1/jobs/none", None, 404, None, "none"),
    ("no such job to cancel", "DELETE", "/v1/jobs/none", None, 404, None, "none"),
    ("wrong method", "GET", FUNCTION, None, 405, None, "methods"),
    ("a path below a job", "GET", "/v1/jobs/a/b", None, 404, None, ""),
]


def test_bad_input(t):
    other = threading.Thread(target=lambda: results.append(command("sleep 3; echo fine")))
    results = []
    other.start()
    for name, method, path, body, want, pointer, part in BAD:
        status, reply = daemon.ask(method, path, body)
        error = reply.get("error") if isinstance(reply, dict) else None
        good = (status == want and error and error["code"] and error["message"] and part in error["message"]
                and (pointer is None or error.get("pointer") == pointer))
        t.ok(good, "bad input: %s: %d%s" % (name, want, " at '%s'" % pointer if pointer else ""),
             "HTTP %d %s" % (status, str(reply)[:400]))
    other.join()
    t.equal(results and results[0][1]["stdout"], "fine\n", "another job was not touched")
    t.equal(function(GOOD["code"])[1]["data"], 1, "the good twin works")


def raw(data, half_close=False):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(30)
        s.connect(daemon.socket)
        try:
            s.sendall(data)
            if half_close:
                s.shutdown(socket.SHUT_WR)
        except BrokenPipeError:
            pass
        got = b""
        while True:
            try:
                chunk = s.recv(65536)
            except ConnectionResetError:
                break
            if not chunk:
                return got
            got += chunk
        return got


def test_http(t):
    head = b"POST /v1/execute/command HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    got = raw(head + b"Content-Length: 99999999\r\n\r\n")
    t.ok(got.startswith(b"HTTP/1.1 413 "), "a body that is announced too large: 413 at once", repr(got[:80]))
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    got = raw(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 81 + b"0\r\n\r\n")
    t.ok(got.startswith(b"HTTP/1.1 413 "), "a body that becomes too large: 413", repr(got[:80]))
    got = raw(b"\x16\x03\x01 nonsense\r\n\r\n")
    t.ok(b"HTTP/1.1 200" not in got, "what is no HTTP gets no 200", repr(got[:80]))
    body = b'{"command":"sleep 1; echo late"}'
    got = raw(head + b"Content-Length: %d\r\n\r\n" % len(body) + body, half_close=True)
    t.ok(b'"stdout":"late\\n"' in got, "a client that only closed its sending side gets its answer", repr(got[:80]))
    pad = " " * (70 << 20)
    t.equal(command("echo big" + pad[:1000], stdin=pad)[1]["stdout"], "big\n", "a body of 70 MB is taken")
    t.equal(daemon.ask("GET", "/healthz")[0], 200, "the daemon is well after all this")


# ---------------------------------------------------------------- jobs


def running(n):
    return lambda: daemon.ask("GET", "/healthz")[1]["queue"]["running"] == n


def sleepers():
    return [pid for (pid, _), name in leftovers.descendants(daemon.pid).items() if name == "sleep"]


def wait_job(path):
    tap.wait_until(lambda: daemon.ask("GET", path)[1]["state"] == "finished", 30)
    return daemon.ask("GET", path)[1]


def test_jobs(t):
    status, job = daemon.ask("POST", "/v1/jobs", {"kind": "python-function", "code": "def f(): return [1]",
                                                  "workspace_id": "w", "trace_id": "t1"})
    t.ok(status == 202 and job["state"] in ("queued", "running"), "a job is taken", str(job))
    done = wait_job("/v1/jobs/" + job["id"])
    t.equal((done["result"]["data"], done["status"], done["trace_id"]), ([1], 200, "t1"), "its result is kept")
    t.ok(job["id"] in [j["id"] for j in daemon.ask("GET", "/v1/jobs")[1]["jobs"]], "it is listed")
    status, job = daemon.ask("POST", "/v1/jobs", {"kind": "skill", "skill": {
        "archive_base64": skill_archive("."), "entrypoint": "summary"}})
    t.equal(wait_job("/v1/jobs/" + job["id"])["result"]["exit_code"], 0, "a skill as a job")
    status, job = daemon.ask("POST", "/v1/jobs", {"kind": "command", "command": "true", "manifest": {}})
    done = wait_job("/v1/jobs/" + job["id"])
    t.equal((status, done["status"], done["result"]["error"]["pointer"]), (202, 400, "/manifest/manifestVersion"),
            "a refused job says why")


def test_cancel(t):
    _, job = daemon.ask("POST", "/v1/jobs", {"kind": "command", "command": "trap '' TERM; sleep 300 & echo on; sleep 300"})
    t.ok(tap.wait_until(lambda: len(sleepers()) == 2, 10), "the job runs")
    began = time.monotonic()
    status, _ = daemon.ask("DELETE", "/v1/jobs/" + job["id"])
    done = wait_job("/v1/jobs/" + job["id"])
    t.equal((status, done["cause"], done["result"]["stdout"]), (202, "cancelled", "on\n"), "it is cancelled")
    t.ok(time.monotonic() - began < 10, "promptly, although it ignores TERM")
    t.ok(tap.wait_until(lambda: not sleepers(), 10), "its tree is gone")
    t.equal(daemon.ask("DELETE", "/v1/jobs/" + job["id"])[0], 200, "once more does nothing")


def test_closed_connection(t):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.connect(daemon.socket)
    body = b'{"command":"sleep 300"}'
    s.sendall(b"POST /v1/execute/command HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    t.ok(tap.wait_until(lambda: len(sleepers()) == 1, 10), "the call runs")
    s.close()
    t.ok(tap.wait_until(lambda: not sleepers(), 10), "it ends when its caller hangs up")
    t.ok(tap.wait_until(running(0), 10), "its place is free again")


def test_queue(t):
    global daemon
    outer, daemon = daemon, service.Daemon(options=["--runners", "1", "--queue", "3"])
    try:
        def post(workspace, text="true"):
            return daemon.ask("POST", "/v1/jobs", {"kind": "command", "command": text, "workspace_id": workspace})
        _, first = post("a", "sleep 300")
        tap.wait_until(running(1), 10)
        waiting = [post(w)[1]["id"] for w in ("a", "a", "b")]
        status, reply = post("b")
        t.ok(status == 429 and "full" in reply["error"]["message"], "a full queue: 429", "%d %s" % (status, reply))
        t.equal(daemon.ask("POST", COMMAND, {"command": "true"})[0], 429, "for synchronous calls as well")
        t.ok(b"Retry-After: " in raw(b"POST /v1/execute/command HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                     b"Content-Length: 18\r\n\r\n{\"command\":\"true\"}"), "with Retry-After")
        daemon.ask("DELETE", "/v1/jobs/" + waiting[1])
        done = daemon.ask("GET", "/v1/jobs/" + waiting[1])[1]
        t.equal((done["state"], done["cause"]), ("finished", "cancelled"), "a waiting job is cancelled at once")
        status, last = post("c")
        t.equal(status, 202, "which makes a place free")
        daemon.ask("DELETE", "/v1/jobs/" + first["id"])
        t.equal([wait_job("/v1/jobs/" + i)["cause"] for i in (waiting[0], waiting[2], last["id"])], ["exit"] * 3,
                "the waiting ones run")
    finally:
        daemon.stop()
        daemon = outer


# ---------------------------------------------------------------- who may speak

ASK = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b"GET /healthz HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n")
print(s.recv(100).split()[1].decode())
"""


def ask_as(uid, sock):
    done = subprocess.run(["/usr/bin/python3", "-c", ASK, sock], user=uid, group=uid, extra_groups=[],
                          capture_output=True, text=True, cwd="/", check=False)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def test_peers(t):
    status, reply = daemon.ask("POST", COMMAND, {"command": "true", "operator": True})
    t.equal(status, 200, "whom the service belongs to may vouch for system calls")
    if os.getuid() != 0:
        t.note("other users can be tried as root alone")
        return
    t.ok("PermissionError" in ask_as(12345, daemon.socket), "the file mode keeps others out")
    os.chmod(daemon.socket, 0o666)
    t.equal(ask_as(12345, daemon.socket), "403", "and so do their credentials")
    for option, who in (("--allow-uid", 12345), ("--allow-gid", 12345)):
        with service.Daemon(options=[option, str(who)]) as open_one:
            t.equal(ask_as(12345, open_one.socket), "200", "%s lets one in" % option)
            if option == "--allow-uid":
                t.equal(ask_as(12346, open_one.socket), "403", "and nobody else")
            else:
                t.ok("PermissionError" in ask_as(12346, open_one.socket), "and nobody else")


def test_processes(t):
    table = leftovers.processes()
    pair = {name: pid for pid, (parent, _, _, name) in table.items() if parent == daemon.pid}
    front, spawn, egress = (leftovers.read("/proc/%d/status" % pair[n]) for n in ("nsboxd", "nsbox-spawn", "nsbox-egress"))
    t.ok(all("NoNewPrivs:\t1" in status for status in (front, spawn, egress)), "all three gain no privileges")
    t.ok("CapEff:\t0000000000000000" in egress and "CapPrm:\t0000000000000000" in egress and "Seccomp:\t2" in egress,
         "nsbox-egress has no capability, and a filter of its own")
    if os.getuid() == 0:
        t.ok("Uid:\t0\t" not in egress, "nsbox-egress is not root")
    t.ok("CapEff:\t0000000000000000" in front and "CapPrm:\t0000000000000000" in front,
         "the front has no capability")
    if os.getuid() == 0:
        t.ok("Uid:\t0\t" not in front, "the front is not root")
    t.ok(tap.wait_until(lambda: len(leftovers.descendants(daemon.pid)) == 3, 10),
         "no worker and no sandbox is left", str(leftovers.descendants(daemon.pid)))


def start(*options):
    """A service that should not come up: exit status and what it says."""
    done = subprocess.run([paths.NSBOXD, *options], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def test_start(t):
    status, said = start("--socket", daemon.socket)
    t.ok(status == 1 and "a service listens on" in said, "a socket in use is refused", said)
    t.equal(daemon.ask("GET", "/healthz")[0], 200, "and stays the other's")
    with service.Daemon() as other:
        t.equal(other.ask("GET", "/healthz")[0], 200, "another socket is not")
    free = os.path.join(daemon.dir, "free.sock")
    status, said = start("--socket", free, "--user", "no-such-user-xyz")
    t.ok(status == 1 and "useradd" in said, "a user that is not there: the remedy is named", said)
    status, said = start("--socket", free, "--libexec", daemon.dir)
    t.ok(status == 1 and "did not start" in said, "without nsbox-spawn it does not start", said)
    t.ok(not os.path.exists(free), "and leaves no socket")
    for wrong in (["--no-such-option"], ["--runners", "0"], ["--queue", "x"], ["--libexec", "rel"], ["word"]):
        t.equal(start("--socket", free, *wrong)[0], 2, "usage: %s" % " ".join(wrong))
    done = subprocess.run([os.path.join(os.path.dirname(paths.NSBOXD), "nsbox-spawn")], capture_output=True,
                          text=True, stdin=subprocess.DEVNULL, check=False)
    t.ok(done.returncode == 2 and "by nsboxd" in done.stderr, "nsbox-spawn is not started by hand", done.stderr)


def test_manual(t):
    manual = open(os.path.join(paths.ROOT, "docs", "nsboxd.8"), encoding="utf-8").read()
    shown = subprocess.run([paths.NSBOXD, "--help"], capture_output=True, text=True, check=True).stdout
    for option in re.findall(r"^  --([a-z-]+)", shown, re.M):
        t.ok("Fl \\-" + option in manual, "the manual knows --%s" % option)
    words = set(re.findall(r"[A-Za-z0-9_]+", manual))
    reply = function("def f(): pass", trace_id="t")[1]
    t.equal(sorted(set(reply) - words), [], "the manual knows every field of a reply")
    source = "".join(open(os.path.join(paths.ROOT, "daemon", "front", name), encoding="utf-8").read()
                     for name in ("request.c", "request_read.c"))
    keys = set(re.findall(r'^\t\{ "([a-z_0-9]+)",', source, re.M)) - {"session_id", "allow"}
    t.ok(len(keys) > 25, "the request's tables are found", str(keys))
    t.equal(sorted(keys - words), [], "the manual knows every field of a request")


def main():
    global daemon
    leftovers.become_subreaper()
    with service.Daemon() as daemon:
        function(GOOD["code"])
        status = tap.run([test_golden, test_report, test_commands, test_files, test_skill, test_bad_input, test_http,
                          test_jobs, test_cancel, test_closed_connection, test_queue, test_peers, test_processes, test_start,
                          test_manual])
        if status:
            sys.stderr.write(daemon.log())
    return status


if __name__ == "__main__":
    sys.exit(main())
