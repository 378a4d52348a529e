#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The service's own description of its interface against what it really answers, and against its tables.

NSBOX_BIG_MB: how large a large result is (default 6); `make soak` tries 50.
"""

import base64
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, paths, service, tap

try:
    import jsonschema
except ImportError:
    tap.skip_all("needs python3-jsonschema")

PYTHON, COMMAND, JOBS = "/v1/execute/python-function", "/v1/execute/command", "/v1/jobs"
BIG_MB = int(os.environ.get("NSBOX_BIG_MB", "6"))
ECHO = {"argv": ["echo", "hello"]}


class Described:
    """Asks, and holds every answer against the document."""
    asked = set()  # (path of the document, method) by all of them

    def __init__(self, t, daemon):
        self.t, self.daemon = t, daemon
        self.doc = daemon.ask("GET", "/openapi.json")[1]
        self.resolver = jsonschema.RefResolver.from_schema(self.doc)

    def valid(self, schema, value):
        errors = list(jsonschema.Draft202012Validator(schema, resolver=self.resolver).iter_errors(value))
        return "; ".join("%s: %s" % (e.json_path, e.message[:200]) for e in errors[:3])

    def find(self, path):
        for template in self.doc["paths"]:
            if re.fullmatch(template.replace("{id}", "[^/]+").replace("{path}", ".*").replace("{name}", ".+"), path):
                return template
        return None

    def ask(self, want, method, path, body=None, name="", **more):
        status, reply = self.daemon.ask(method, path, body, **more)
        template = self.find(path.split("?")[0])
        said = self.doc["paths"][template][method.lower()]["responses"].get(str(status)) if template else None
        content = (said or {}).get("content", {})
        wrong = "not described: %s" % reply if said is None else ""
        if "application/json" in content and not (isinstance(reply, str) and len(content) > 1):
            wrong = self.valid(content["application/json"]["schema"], reply)
        self.t.ok(status == want and not wrong, "%s %s: %d %s" % (method, path[:60], want, name),
                  "%d: %s\n%s" % (status, wrong, json.dumps(reply)[:800]))
        self.asked.add((template, method.lower()))
        return reply

    def request_fits(self, path, body):
        schema = self.doc["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        return not self.valid(schema, body)


def test_tables(t, daemon):
    d = Described(t, daemon)
    t.ok(d.doc["openapi"].startswith("3.1."), "it is an OpenAPI 3.1 document")
    source = leftovers.read(os.path.join(paths.ROOT, "daemon/front/api.c"))
    routes = set()
    for method, path, rest in re.findall(r'\{ "(GET|POST|PUT|PATCH|DELETE)", "([^"]+)", \w+, (.*?) \}', source):
        suffix = re.search(r'"(/[^"]*)"', rest)
        whole = rest == "true, NULL, false, true" # all that follows is the id
        routes.add((method.lower(), path + ("{name}" if whole else "{id}" if rest.startswith("true") else "") +
                    (suffix.group(1) if suffix else "") + ("{path}" if rest.endswith("true") and suffix else "")))
    described = {(method, path) for path, item in d.doc["paths"].items() for method in item}
    t.equal(sorted(described ^ routes), [], "its paths are those of the route table")
    table = leftovers.read(os.path.join(paths.ROOT, "daemon/front/request.c"))
    common = set(re.findall(r'^\t\{ "(\w+)", +(?=[^. ])', table[table.index("#define COMMON_FIELDS"):table.index("python_fields")], re.M))
    for name, schema in (("python_fields", "PythonRequest"), ("command_fields", "CommandRequest"), ("session_fields", "SessionRequest")):
        part = table[table.index(name + "[]"):]
        part = part[:part.index("};")]
        fields = set(re.findall(r'^\t\{ "(\w+)", +(?=[^. ])', part, re.M)) | (common if "COMMON_FIELDS" in part else set())
        t.equal(sorted(fields ^ set(d.doc["components"]["schemas"][schema]["properties"])), [],
                "fields of %s are those of the request's table" % schema)


def test_replies(t, daemon):
    d = Described(t, daemon)
    d.ask(200, "GET", "/openapi.json")
    d.ask(200, "GET", "/healthz")
    d.ask(200, "GET", "/v1/capabilities")
    d.ask(200, "GET", "/v1/images")
    d.ask(200, "GET", "/v1/images/host")
    d.ask(404, "GET", "/v1/images/no/such:one")
    d.ask(200, "GET", "/ui")
    d.ask(200, "GET", "/ui/ui.js")
    d.ask(404, "GET", "/ui/none")
    d.ask(200, "GET", "/v1/daemon")
    d.ask(200, "POST", "/v1/daemon/reload")
    d.ask(200, "GET", "/metrics")
    call = {"code": "def f(a): return {'x': [a, None, 1.5]}", "params": {"a": 1}, "trace_id": "t"}
    t.ok(d.request_fits(PYTHON, call), "the request is as described")
    d.ask(200, "POST", PYTHON, call, "a value")
    d.ask(200, "POST", PYTHON, {"code": "def f(): raise ValueError(1)"}, "an exception")
    d.ask(200, "POST", COMMAND, dict(ECHO, outputs=["*"], files=[{"path": "a", "content": "1"}]), "with a file")
    d.ask(200, "POST", COMMAND, {"argv": ["sh", "-c", "printf '\\377'; kill -9 $$"]}, "bytes and a signal")
    d.ask(200, "POST", COMMAND, {"argv": ["/nowhere"]}, "no program")
    d.ask(200, "POST", COMMAND, {"argv": ["sleep", "9"], "timeout_seconds": 0.2}, "too long")
    r = d.ask(200, "POST", COMMAND, {"argv": ["sh", "-c", "for i in 1 2 3 4 5 6; do sleep 1 & done; wait"], "resources": {"pids": 4}},
              "a limit that is met")
    t.ok(not r["limits"]["by"].startswith("cgroup") or
         [x for x in r["denials"] if x["pointer"] == "/resources/pids" and x["times"] > 0], "is among the denials", "%r" % r["denials"])
    r = d.ask(200, "POST", COMMAND, {"argv": ["true"], "resources": {"pids": 4}}, "one that is not")
    t.equal(r["denials"], [], "is not")
    d.ask(400, "POST", COMMAND, {"argv": []}, "no argument")
    d.ask(400, "POST", COMMAND, {"argv": ["x"], "nonsense": 1}, "an unknown field")
    t.ok(not d.request_fits(COMMAND, {"argv": ["x"], "nonsense": 1}), "the document refuses it, too")
    d.ask(400, "POST", COMMAND, b"{", "no JSON")
    d.ask(400, "POST", COMMAND, dict(ECHO, manifest={"manifestVersion": 1, "profile": "lax"}), "a wrong manifest")
    d.ask(501, "POST", COMMAND, dict(ECHO, manifest={"manifestVersion": 1, "session": {"warm": True}}), "what cannot be had")
    d.ask(413, "POST", COMMAND, None, "a body that is too large", headers={"Content-Length": "100000000"})
    job = d.ask(202, "POST", JOBS, dict(ECHO, kind="command"), headers={"Idempotency-Key": "k"})
    d.ask(200, "POST", JOBS, dict(ECHO, kind="command"), "again", headers={"Idempotency-Key": "k"})
    d.ask(409, "POST", JOBS, {"argv": ["x"], "kind": "command"}, "another", headers={"Idempotency-Key": "k"})
    d.ask(400, "POST", JOBS, ECHO, "without its kind")
    one = JOBS + "/" + job["id"]
    t.equal(d.ask(200, "GET", one + "?wait=20", None, "until it has ended").get("state"), "finished", "it has ended")
    d.ask(400, "GET", one + "?wait=soon")
    d.ask(200, "GET", JOBS)
    d.ask(200, "GET", one)
    d.ask(200, "GET", one + "/events")
    d.ask(200, "GET", "/v1/receipts/" + job["id"])
    d.ask(200, "DELETE", one, None, "of one that has ended")
    for path in (JOBS + "/none", JOBS + "/none/events", "/v1/receipts/none"):
        d.ask(404, "GET", path)
    d.ask(404, "DELETE", JOBS + "/none")
    d.ask(404, "POST", JOBS + "/none/stdin", b"x")
    d.ask(400, "POST", JOBS, {"kind": "command", "argv": ["cat"], "interactive": True}, "that nobody would feed")
    fed = {}
    feeder = threading.Thread(target=lambda: fed.update(text=d.ask(200, "POST", COMMAND, {"argv": ["cat"], "interactive": True})))
    feeder.start()
    running = lambda: [j for j in d.daemon.ask("GET", JOBS)[1]["jobs"] if j["state"] == "running"]
    tap.wait_until(running, 10)
    one = JOBS + "/" + running()[0]["id"]
    d.ask(200, "POST", one + "/stdin", b"some input\n")
    d.ask(200, "POST", one + "/stdin", b"", "and that is all")
    feeder.join()
    t.ok("some input" in fed["text"], "an interactive run reads what comes", fed["text"])
    slow = d.ask(202, "POST", JOBS, {"kind": "command", "argv": ["sh", "-c", "echo said; sleep 60"]})
    one = JOBS + "/" + slow["id"]
    tap.wait_until(lambda: d.daemon.ask("GET", one)[1]["state"] == "running", 10)
    d.ask(409, "POST", one + "/stdin", b"x", "to one that takes none")
    began = time.monotonic()
    t.equal(d.ask(200, "GET", one + "?wait=1", None, "at most a second").get("state"), "running", "it runs")
    t.ok(0.9 < time.monotonic() - began < 5, "a wait has its end", "%.1f s" % (time.monotonic() - began))
    waiter = threading.Thread(target=lambda: d.ask(200, "GET", one + "?wait=60", None, "while it is cancelled"))
    waiter.start()
    time.sleep(0.3)
    d.ask(202, "DELETE", one)
    waiter.join()
    r = d.ask(200, "GET", one)
    t.equal((r["cause"], r["result"]["stdout"]), ("cancelled", "said\n"), "what it said is there")
    d.ask(202, "POST", "/v1/daemon/drain")
    missing = {(p, m) for p, item in d.doc["paths"].items() for m in item} - d.asked
    t.equal(sorted(missing), [], "every operation was asked")


SESSIONS = "/v1/sessions"


def test_sessions(t, daemon):
    d = Described(t, daemon)
    made = {"session_id": "s", "idle_timeout_seconds": 60, "ttl_seconds": 600, "max_commands": 9, "resources": {"memory_mb": 200}}
    t.ok(d.request_fits(SESSIONS, made), "the request is as described")
    d.ask(201, "POST", SESSIONS, made)
    d.ask(409, "POST", SESSIONS, dict(made, resources={"memory_mb": 100}), "on other terms")
    d.ask(400, "POST", SESSIONS, {"session_id": "a/b"}, "no name")
    d.ask(400, "POST", SESSIONS, {"session_id": "x", "manifest": {"manifestVersion": 1, "profile": "lax"}}, "a wrong manifest")
    d.ask(501, "POST", SESSIONS, {"session_id": "x", "manifest": {"manifestVersion": 1, "session": {"warm": True}}}, "what cannot be had")
    t.equal(d.ask(200, "POST", COMMAND, dict(ECHO, session_id="s")).get("session", {}).get("commands"), 1, "a command in it")
    d.ask(200, "GET", SESSIONS)
    d.ask(200, "GET", SESSIONS + "/s")
    d.ask(200, "PATCH", SESSIONS + "/s", {"network_policy": {"mode": "none"}}, "to what it is")
    d.ask(409, "PATCH", SESSIONS + "/s", {"network_policy": {"mode": "allowlist", "allow": ["x.example:443"]}}, "to more")
    d.ask(400, "PATCH", SESSIONS + "/s", {"state": "over"}, "with something else")
    d.ask(404, "PATCH", SESSIONS + "/none", {"network_policy": {"mode": "none"}})
    d.ask(404, "GET", SESSIONS + "/none")
    d.ask(404, "DELETE", SESSIONS + "/none")
    files = SESSIONS + "/s/files/workspace"
    d.ask(201, "POST", files + "/d/e?mkdir&parents")
    d.ask(201, "PUT", files + "/d/f?mode=0600", b"some text\nmore text\n")
    d.ask(409, "PUT", files + "/d/f?exclusive", b"x", "that is there")
    d.ask(400, "PUT", files + "/d/f?mode=9", b"x", "with no mode")
    d.ask(404, "PUT", files + "/none/f", b"x", "in no directory")
    d.ask(400, "PUT", files + "/d?archive", b"no archive", "that is no archive")
    for query, name in (("/d/f", "content"), ("/d/f?stat", "about it"), ("/d?list", "a list"), ("?list&recursive", "all"),
                        ("?glob=**", "by pattern"), ("?grep=more", "by text"), ("/d?archive", "a tar file")):
        d.ask(200, "GET", files + query, None, name)
    d.ask(206, "GET", files + "/d/f", None, "a part", headers={"Range": "bytes=2-5"})
    d.ask(416, "GET", files + "/d/f", None, "a part that is not there", headers={"Range": "bytes=999-"})
    d.ask(404, "GET", files + "/none")
    d.ask(404, "GET", SESSIONS + "/none/files/workspace", None, "of no session")
    d.ask(201, "POST", files + "/d/f?move_to=/workspace/g")
    d.ask(400, "POST", files + "/d", None, "that says nothing")
    d.ask(200, "DELETE", files + "/g")
    d.ask(404, "DELETE", files + "/g", None, "again")
    d.ask(200, "DELETE", files + "/d?recursive")
    d.ask(200, "GET", SESSIONS + "/s/changes")
    snap = d.ask(201, "POST", SESSIONS + "/s/snapshot")
    source = {"workspace_id": "w", "code": "def f(a: int, b='x'):\n    return a\n", "params": {"b": "y"}, "timeout_seconds": 5}
    t.ok(not d.valid({"$ref": "#/components/schemas/ToolRequest"}, source), "a tool is as described")
    d.ask(201, "PUT", "/v1/tools/t", source)
    d.ask(200, "PUT", "/v1/tools/t", source, "again")
    d.ask(400, "PUT", "/v1/tools/u", {"code": "def f(:"})
    d.ask(200, "GET", "/v1/tools/t")
    d.ask(200, "GET", "/v1/tools")
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "0"}}}
    t.ok(not d.valid({"$ref": "#/components/schemas/McpMessage"}, hello), "so is a message of MCP")
    d.ask(200, "POST", "/mcp/tools/t", hello)
    d.ask(400, "POST", "/mcp/tools/t", {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    d.ask(406, "GET", "/mcp/w/s")
    d.ask(404, "DELETE", "/mcp/w/s", headers={"Mcp-Session-Id": "none"})
    d.ask(200, "DELETE", "/v1/tools/t")
    d.ask(404, "DELETE", "/v1/tools/t", None, "again")
    d.ask(200, "GET", "/v1/snapshots")
    d.ask(200, "GET", "/v1/snapshots/" + snap["id"])
    d.ask(201, "POST", SESSIONS, {"session_id": "again", "snapshot_id": snap["id"]}, "of a snapshot")
    d.ask(201, "POST", SESSIONS + "/s/fork", {"session_id": "other"})
    d.ask(400, "POST", SESSIONS + "/s/fork", {"session_id": "a/b"}, "to no name")
    d.ask(409, "POST", SESSIONS + "/s/commit", {"image": "x"}, "in the host's own image")
    d.ask(404, "POST", SESSIONS + "/none/snapshot")
    d.ask(200, "DELETE", "/v1/snapshots/" + snap["id"])
    d.ask(404, "DELETE", "/v1/snapshots/" + snap["id"], None, "again")
    for name in ("again", "other"):
        d.ask(200, "DELETE", SESSIONS + "/" + name)
    job = d.ask(202, "POST", JOBS, {"kind": "command", "session_id": "s", "argv": ["sh", "-c", "echo x >o"], "outputs": ["o"]})
    one = JOBS + "/" + job["id"]
    d.ask(200, "GET", one + "?wait=60", None, "in a session")
    t.equal(d.ask(200, "GET", one + "/outputs/o"), "x\n", "an output by its place")
    d.ask(404, "GET", one + "/outputs/p")
    r = d.ask(200, "POST", COMMAND, {"session_id": "s", "argv": ["ls"]}, "after it")
    t.equal(([o["path"] for o in r["outputs"]], r["stdout"]), ([], "o\n"), "what a command hands back is its own wish")
    d.ask(400, "POST", COMMAND, {"session_id": "s", "argv": ["ls"], "outputs": [""]}, "an empty pattern")
    d.ask(409, "POST", COMMAND, {"session_id": "s", "argv": ["ls"], "network_policy": {"mode": "allowlist", "allow": ["x.example"]}},
          "with another network")
    d.ask(200, "GET", "/v1/receipts/" + job["id"], None, "in a session")
    d.ask(200, "DELETE", SESSIONS + "/s")


def test_others(t):
    """Refusals that take another service: one that is full, one that this client may not use, no route."""
    with service.Daemon(options=["--runners", "1", "--queue", "1", "--drain", "0"]) as daemon:
        d = Described(t, daemon)
        _, running = daemon.ask("POST", JOBS, {"kind": "command", "argv": ["sleep", "30"]})
        tap.wait_until(lambda: daemon.ask("GET", JOBS + "/" + running["id"])[1]["state"] == "running", 10)
        d.ask(202, "POST", JOBS, {"kind": "command", "argv": ["true"]}, "into the queue")
        d.ask(429, "POST", JOBS, {"kind": "command", "argv": ["true"]}, "into a full one")
        d.ask(429, "POST", COMMAND, ECHO, "the same for who waits")
        status, r = daemon.ask("PUT", JOBS)
        t.ok(status == 405 and not d.valid(d.doc["components"]["schemas"]["Failure"], r), "another method: 405")
        status, r = daemon.ask("GET", "/v2/")
        t.ok(status == 404 and not d.valid(d.doc["components"]["schemas"]["Failure"], r), "another path: 404")


def rss(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", leftovers.read("/proc/%d/status" % pid)).group(1)) / 1024


def test_big(t, daemon):
    """As a value in base64 and as output: whole, and not kept."""
    front = next(pid for (pid, _), name in leftovers.descendants(daemon.pid).items() if name == "nsboxd")
    daemon.ask("POST", COMMAND, ECHO)
    before = rss(front)
    size = BIG_MB << 20
    manifest = {"manifestVersion": 1, "resources": {"memory": "700Mi", "stdout": "64Mi", "result": "128Mi"}}
    status, r = daemon.ask("POST", PYTHON, {"code": "import base64\ndef f(n): return base64.b64encode(b'\\0' * n).decode()",
                                            "params": {"n": size}, "manifest": manifest})
    t.ok(status == 200 and r.get("data") == base64.b64encode(bytes(size)).decode(), "a value of %d MiB, as base64" % BIG_MB, str(r)[:300])
    status, r = daemon.ask("POST", COMMAND, {"argv": ["sh", "-c", "head -c %d /dev/zero | tr '\\0' a" % size], "manifest": manifest})
    t.ok(status == 200 and r.get("stdout") == "a" * size, "%d MiB on standard output" % BIG_MB, str(r)[:300])
    status, r = daemon.ask("POST", COMMAND, {"argv": ["sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' a; echo done >&2"]})
    t.ok(status == 200 and r["stdout_truncated"] and len(r["stdout"]) == 1 << 20, "of much more, what the limit says", str(r)[-300:])
    t.ok(tap.wait_until(lambda: rss(front) < before + 40, 10), "none of it is kept in memory",
         "%.0f MB before, %.0f MB afterwards" % (before, rss(front)))


def test_logs(t, nsbox, daemon):
    status, job, err = nsbox("submit", "--", "sh", "-c", "echo one; echo two >&2; while [ ! -e go ]; do sleep .1; done; exit 3",)
    t.equal(status, 0, "a job that goes on: " + err)
    job = job.strip()
    with subprocess.Popen([paths.NSBOX, "job", "logs", job], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=dict(os.environ, NSBOX_SOCKET=daemon.socket)) as logs:
        t.equal((logs.stdout.readline(), logs.stderr.readline()), ("one\n", "two\n"), "nsbox job logs prints while it runs")
        t.ok(logs.poll() is None and daemon.ask("GET", JOBS + "/" + job)[1]["state"] == "running", "and waits for more")
        t.equal(nsbox("cancel", job)[0], 0, "nsbox job cancel")
        t.equal((logs.wait(60), logs.stdout.read(), logs.stderr.read()), (0, "", ""), "until its end")
    t.equal(nsbox("logs", job), (0, "one\n", "two\n"), "it is there afterwards, too")
    t.equal(nsbox("logs", "none"), (125, "", "nsbox: no job has the id 'none'\n"), "there are none of others")
    t.ok(job in nsbox("list")[1], "nsbox job list has it")


def test_progress(t, daemon):
    """What a person sees at a terminal, who waits; and that what is read by a program is not disturbed."""
    for verb in (["job", "run", "--"], ["session", "exec", "progress", "--"]):
        master, slave = pty.openpty()
        with subprocess.Popen([paths.NSBOX, *verb, "sh", "-c", "sleep 1; echo out"], stdout=subprocess.PIPE, stderr=slave,
                              env=dict(os.environ, NSBOX_SOCKET=daemon.socket)) as run:
            os.close(slave)
            seen = b""
            try:
                while True:
                    seen += os.read(master, 4096)
            except OSError:
                pass # all that had it open are gone
            out = run.stdout.read()
        os.close(master)
        t.ok(b"nsbox: running, 0." in seen and seen.endswith(b"\r\x1b[K"), "nsbox %s: a line tells the time, and goes" % verb[0],
             repr(seen[-200:]))
        t.equal((run.returncode, out), (0, b"out\n"), "the output is as ever")


def test_cli(t, daemon):
    place = tempfile.mkdtemp(prefix="api-e2e-")
    try:
        os.mkdir(place + "/in")
        for name in ("in/a", "b"):
            with open(os.path.join(place, name), "w", encoding="utf-8") as f:
                f.write("content of %s\n" % name)

        def nsbox(*args):
            r = subprocess.run([paths.NSBOX, "job", *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
                               env=dict(os.environ, NSBOX_SOCKET=daemon.socket), timeout=60, cwd=place)
            return r.returncode, r.stdout, r.stderr

        files = ["--put", "in:d", "--put", "b"]
        copy = ["--collect", "out/**", "--", "sh", "-c", "mkdir -p out/x; cat d/a b | tee out/x/y"]
        both = "content of in/a\ncontent of b\n"
        status, out, err = nsbox("run", *files, "--output", "got", *copy)
        t.equal((status, out), (0, both), "nsbox job run --put: " + err)
        t.equal(leftovers.read(place + "/got/out/x/y"), both, "and --output")
        status, job, err = nsbox("submit", *files, *copy)
        status, out, err = nsbox("wait", "--output", "later", job.strip())
        t.equal((status, out, leftovers.read(place + "/later/out/x/y")), (0, both, both), "nsbox job submit, wait: " + err)
        status, job, err = nsbox("submit", "--", "sh", "-c", "sleep 1; exit 7")
        t.equal(nsbox("wait", job.strip())[0], 7, "nsbox job wait ends as the job did")
        t.equal(nsbox("submit", "--output", "x", "--", "true")[0], 125, "a job that waits has no outputs yet")
        t.equal(nsbox("wait", "none")[0], 125, "nor is there one of any name")
        test_logs(t, nsbox, daemon)
        test_progress(t, daemon)
    finally:
        shutil.rmtree(place)


def main():
    with service.Daemon() as daemon:
        done = tap.run([lambda t: test_tables(t, daemon), lambda t: test_big(t, daemon), lambda t: test_cli(t, daemon),
                        lambda t: test_sessions(t, daemon),
                        lambda t: test_replies(t, daemon), test_others])
    return done


sys.exit(main())
