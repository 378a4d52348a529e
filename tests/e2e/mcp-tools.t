#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Registered functions as tools of the Model Context Protocol (/v1/tools, /mcp/tools/ID), and `nsbox mcp`."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

import jsonschema

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import mcp, paths, service, tap

daemon = None
SOURCE = '''
import math
from typing import Literal, Optional

open("/workspace/top", "w").write("x")

def area(r: float, unit: Literal["m", "cm"] = "m", tags: Optional[list[str]] = None, *, deep: "dict[str, int]" = {}) -> float:
    """Area of a circle.

    In units of r."""
    return _square(r) * math.pi

def _square(x):
    return x * x

def greet(name, greeting="Hello", **more):
    return {"text": "%s, %s" % (greeting, name), "more": sorted(more)}

def fail(why: str):
    print("before")
    raise ValueError(why)

async def later():
    pass

def odd(x, /):
    pass

class Box:
    def method(self):
        pass
'''


def put(name, **body):
    return daemon.ask("PUT", "/v1/tools/" + name, body)


def test_register(t):
    status, tool = put("geo", workspace_id="w", code=SOURCE, params={"greeting": "Hi"})
    t.equal(status, 201, "a tool is registered")
    functions = {f["name"]: f for f in tool["functions"]}
    t.equal(list(functions), ["area", "greet", "fail"], "every public function at the top is one tool")
    t.equal(sorted(x["name"] for x in tool["left_out"]), ["later", "odd"], "and those that cannot be are told")
    t.equal(functions["area"]["description"], "Area of a circle.\n\nIn units of r.", "described by its docstring")
    t.equal(functions["area"]["inputSchema"],
            {"type": "object", "required": ["r"], "additionalProperties": False, "properties": {
                "r": {"type": "number"}, "unit": {"enum": ["m", "cm"], "default": "m"},
                "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
                "deep": {"type": "object", "additionalProperties": {"type": "integer"}, "default": {}}}},
            "its annotations are its schema")
    t.ok("Hi" not in json.dumps(tool) and functions["greet"]["inputSchema"]["required"] == ["name"],
         "what the owner gives is not told to the model", json.dumps(tool))
    for f in tool["functions"]:
        jsonschema.Draft202012Validator.check_schema(f["inputSchema"])
    t.equal(put("geo", workspace_id="w", code=SOURCE, params={"greeting": "Hi"})[0], 200, "again: in its place")
    t.equal([x["id"] for x in daemon.ask("GET", "/v1/tools")[1]["tools"]], ["geo"], "the list")
    t.equal(daemon.ask("GET", "/v1/tools/geo")[1]["code"], SOURCE, "its source comes back")
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}, "required": ["name"]}
    status, tool = put("own", code="def f(name): return name", schema={"f": schema})
    t.ok(status == 201 and tool["functions"][0]["inputSchema"] == schema, "a schema of one's own", repr(tool))


def test_refused(t):
    for why, status, body, words in (
            ("no source", 400, {}, "/code"), ("a number", 400, {"code": 1}, "/code"),
            ("bad syntax", 400, {"code": "def f(:\n"}, "line 1"), ("no function", 400, {"code": "x = 1"}, "no public"),
            ("private ones alone", 400, {"code": "def _f(): pass"}, "no public"),
            ("a NUL", 400, {"code": "def f(): pass\0"}, ""),
            ("too deep", 400, {"code": "def f(): return " + "(" * 5000 + ")" * 5000}, "/code"),
            ("too many functions", 400, {"code": "\n".join("def f%d(): pass" % i for i in range(65))}, "more than 64"),
            ("too much", 400, {"code": "#" * (1 << 20) + "\ndef f(): pass"}, "1048576"),
            ("a schema of no function", 400, {"code": "def f(): pass", "schema": {"g": {}}}, "g"),
            ("an unknown key", 400, {"code": "def f(): pass", "secrets": {"a": "b"}}, "/secrets"),
            ("a wrong time", 400, {"code": "def f(): pass", "timeout_seconds": "1"}, "/timeout_seconds"),
            ("a wrong manifest", 400, {"code": "def f(): pass", "manifest": []}, "/manifest")):
        got, answer = put("bad", **body)
        t.ok(got == status and words in json.dumps(answer), "refused: " + why, repr((got, answer)))
    t.equal(put(".bad", code="def f(): pass")[0], 400, "refused: an id")
    t.equal(daemon.ask("GET", "/v1/tools/bad")[0], 404, "nothing of that is there")
    t.equal(put("good", code="def f(): pass\n" + "#" * 500000)[0], 201, "the same without what was wrong works")
    t.equal(daemon.ask("DELETE", "/v1/tools/good")[0], 200, "and can be removed")
    t.equal(mcp.Client(daemon.socket, "/mcp/tools/good").initialize().status, 404, "and is then no place")


def test_call(t):
    c = mcp.Client(daemon.socket, "/mcp/tools/geo")
    hello = c.initialize().answer()["result"]
    t.ok(hello["capabilities"]["tools"]["listChanged"] is True, "the list may change", repr(hello))
    listed = {x["name"]: x for x in c.ask("tools/list").answer()["result"]["tools"]}
    t.equal(list(listed), ["area", "greet", "fail"], "its tools are its functions")
    result = c.call("area", {"r": 2})
    jsonschema.validate(result["structuredContent"], listed["area"]["outputSchema"])
    t.ok(abs(result["structuredContent"]["result"] - 12.566) < 0.01 and result["isError"] is False and
         json.loads(result["content"][0]["text"]) == result["structuredContent"] and
         result["structuredContent"]["tool_id"] == "geo", "a result, and whose it is", repr(result))
    t.equal(c.call("greet", {"name": "you", "x": 1})["structuredContent"]["result"], {"text": "Hi, you", "more": ["x"]},
            "the owner's values are taken")
    t.equal(c.call("greet", {"name": "you", "greeting": "Yo"})["structuredContent"]["result"]["text"], "Yo, you",
            "where the call does not give its own")
    result = c.call("fail", {"why": "because"})
    told = json.loads(result["content"][0]["text"])
    t.ok(result["isError"] is True and told["msg"] == "because" and told["stdout"] == "before\n" and
         "structuredContent" not in result, "an exception is an error, with what came before", repr(result))
    t.ok(c.call("area", {"x": 2})["isError"] is True, "a wrong argument is an error")
    for name in ("_square", "later", "Box", "run_command"):
        reply = c.ask("tools/call", {"name": name, "arguments": {}})
        t.equal(reply.answer()["error"]["code"], -32602, "no tool: " + name)
    result = mcp.Modern(daemon.socket, "/mcp/tools/geo").call("area", {"r": 1})
    t.ok(result["resultType"] == "complete" and result["isError"] is False, "in the other era", repr(result))


def test_changes(t):
    c = mcp.Client(daemon.socket, "/mcp/tools/changing")
    put("changing", code="def a(): pass")
    c.initialize()
    own = c.get()
    m = mcp.Modern(daemon.socket, "/mcp/tools/changing")
    body = m.message("subscriptions/listen", {"notifications": {"toolsListChanged": True, "promptsListChanged": True},
                                              "_meta": {mcp.META + "protocolVersion": mcp.MODERN,
                                                        mcp.META + "clientCapabilities": {}}}, "sub")
    listening = mcp.Stream(daemon.socket, "POST", m.path, body,
                           {"MCP-Protocol-Version": mcp.MODERN, "Mcp-Method": "subscriptions/listen"})
    first = listening.message()
    t.ok(first["method"] == "notifications/subscriptions/acknowledged" and
         first["params"]["notifications"] == {"toolsListChanged": True} and
         first["params"]["_meta"][mcp.META + "subscriptionId"] == "sub", "a subscription", repr(first))
    put("other", code="def a(): pass")
    put("changing", code="def b(): pass")
    for name, stream in (("the session's stream", own), ("the subscription", listening)):
        message = stream.message()
        t.equal(message["method"], "notifications/tools/list_changed", name + " hears of a change")
        stream.close()
    t.equal([x["name"] for x in c.ask("tools/list").answer()["result"]["tools"]], ["b"], "and there is the new list")
    for name in ("changing", "other"):
        daemon.ask("DELETE", "/v1/tools/" + name)


def cancel_by_tcp(t, daemon, port):
    """A connection that is closed cancels, where a request stands for itself."""
    body = json.dumps(mcp.Client("", "").message("tools/call", {
        "name": "run_command", "arguments": {"command": "sleep 300"},
        "_meta": {mcp.META + "protocolVersion": mcp.MODERN, mcp.META + "clientCapabilities": {}}}))

    def running():
        return [j for j in daemon.ask("GET", "/v1/jobs")[1]["jobs"] if j["state"] == "running"]
    with socket.create_connection(("127.0.0.1", port), 60) as s:
        s.sendall(("POST /mcp/team/s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nMCP-Protocol-Version: %s\r\n"
                   "Mcp-Method: tools/call\r\nMcp-Name: run_command\r\nContent-Length: %d\r\n\r\n%s"
                   % ("a" * 32, mcp.MODERN, len(body), body)).encode())
        t.ok(tap.wait_until(running, 60), "a call by TCP")
    t.ok(tap.wait_until(lambda: not running(), 60), "ends with its connection")


def test_kept(t):
    """They outlive the service; other clients' do not exist for one."""
    with tempfile.TemporaryDirectory(prefix="kept-") as place:
        os.chmod(place, 0o755)
        tokens = os.path.join(place, "tokens")
        with open(tokens, "w", encoding="utf-8") as f:
            f.write("team %s\nother %s\n" % ("a" * 32, "b" * 32))
        os.chmod(tokens, 0o600)
        data = os.path.join(place, "data")
        with service.Daemon(data=data) as first:
            made = first.ask("PUT", "/v1/tools/x", {"code": "def f(): return 1", "workspace_id": "team"})
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with service.Daemon(data=data, options=["--tcp", "127.0.0.1:%d" % port, "--tokens", tokens]) as second:
            t.ok(made[0] == 201 and second.ask("GET", "/v1/tools/x")[1]["functions"] == made[1]["functions"],
                 "a tool is there after a restart", repr(made))
            result = mcp.Modern(second.socket, "/mcp/tools/x").call("f")
            t.equal(result["structuredContent"]["result"], 1, "and works")
            for token, want in (("a" * 32, 200), ("b" * 32, 404), (None, 401)):
                got = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}",
                                      *(["-H", "Authorization: Bearer " + token] if token else []),
                                      "http://127.0.0.1:%d/v1/tools/x" % port], capture_output=True, text=True, check=False)
                t.equal(got.stdout, str(want), "by TCP, its workspace: %s" % want)
            cancel_by_tcp(t, second, port)
            body = json.dumps(mcp.Client("", "").message("initialize", {
                "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x"}}))
            for token, path, want in (("a" * 32, "/mcp/tools/x", 200), ("b" * 32, "/mcp/tools/x", 404),
                                      ("a" * 32, "/mcp/team/s", 200), (None, "/mcp/team/s", 401)):
                got = subprocess.run(["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-d", body,
                                      *(["-H", "Authorization: Bearer " + token] if token else []),
                                      "http://127.0.0.1:%d%s" % (port, path)], capture_output=True, text=True, check=False)
                t.equal(got.stdout, str(want), "%s by TCP: %s" % (path, want))


# ------------------------------------------------------------------ stdio


def bridge(*args):
    return subprocess.Popen([paths.NSBOX, "mcp", "--socket", daemon.socket, *args], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def say(process, message):
    process.stdin.write((message if isinstance(message, str) else json.dumps(message)).encode() + b"\n")
    process.stdin.flush()


def hear(process):
    return json.loads(process.stdout.readline())


def sessions():
    return [s["id"] for s in daemon.ask("GET", "/v1/sessions")[1]["sessions"]]


def test_stdio(t):
    make = mcp.Client("", "")
    hello = make.message("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x"}}, 0)
    p = bridge()
    say(p, hello)
    t.equal(hear(p)["result"]["protocolVersion"], "2025-06-18", "initialize")
    say(p, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    say(p, "no JSON")
    t.equal(hear(p)["error"]["code"], -32700, "what is no JSON is answered")
    call = make.message("tools/call", {"name": "run_command", "arguments": {"command": "echo é > f; cat f"},
                                       "_meta": {"progressToken": 1}}, "c")
    say(p, call)
    told = hear(p)
    t.equal(told["method"], "notifications/progress", "progress")
    while "id" not in told:
        told = hear(p)
    t.equal(told["result"]["structuredContent"]["stdout"], "é\n", "a tool")
    modern = {mcp.META + "protocolVersion": mcp.MODERN, mcp.META + "clientCapabilities": {}}
    say(p, make.message("server/discover", {"_meta": modern}, "d"))
    t.equal(hear(p)["result"]["supportedVersions"][0], mcp.MODERN, "a message of the other era")
    say(p, make.message("server/discover", {"_meta": dict(modern, **{mcp.META + "protocolVersion": "1900-01-01"})}, "v"))
    t.equal(hear(p)["error"]["code"], -32022, "one of no era")
    t.equal(len(sessions()), 1, "it has a sandbox of its own")
    say(p, make.message("tools/call", {"name": "run_command", "arguments": {"command": "sleep 0.3; echo late"}}, "e"))
    p.stdin.close()
    t.equal(hear(p)["result"]["structuredContent"]["stdout"], "late\n", "at the end of the input what is due is waited for")
    t.equal((p.wait(60), p.stdout.read(), p.stderr.read()), (0, b"", b""), "and nothing else is printed")
    t.ok(tap.wait_until(lambda: not sessions(), 60), "the sandbox is gone")
    p = bridge("--session", "kept", "--workspace", "w")
    say(p, hello)
    hear(p)
    say(p, make.message("tools/call", {"name": "run_command", "arguments": {"command": "sleep 300"}}, "f"))
    t.ok(tap.wait_until(lambda: [j for j in daemon.ask("GET", "/v1/jobs")[1]["jobs"] if j["state"] == "running"], 60), "a long one")
    p.send_signal(signal.SIGTERM)
    t.equal(p.wait(60), 128 + signal.SIGTERM, "a signal ends it")
    t.ok(tap.wait_until(lambda: not [j for j in daemon.ask("GET", "/v1/jobs")[1]["jobs"] if j["state"] != "finished"], 60),
         "and what ran")
    t.equal(sessions(), ["kept"], "a session that was named stays")
    for stream in (p.stdin, p.stdout, p.stderr):
        stream.close()
    p = bridge("--tool", "geo")
    out, _ = p.communicate("\n".join(json.dumps(m) for m in (hello, make.message("tools/list", ident=1))).encode() + b"\n", 60)
    t.equal([x["name"] for x in json.loads(out.splitlines()[1])["result"]["tools"]], ["area", "greet", "fail"],
            "a registered tool's functions")
    for why, args, words in (("no such tool", ["--tool", "none"], b"no tool has this id"),
                             ("no name", ["--session", "/"], b"path is"), ("both", ["--tool", "a", "--session", "b"], b"goes without"),
                             ("an argument", ["x"], b"unexpected argument"),
                             ("no service", ["--socket", "/none"], b"is nsboxd running?")):
        p = bridge(*args)
        out, err = p.communicate(b"", 60)
        t.ok(p.returncode == 125 and words in err and not out, "refused: " + why, repr((p.returncode, out, err)))


def main():
    global daemon # pylint: disable=global-statement
    with service.Daemon() as daemon:
        return tap.run([test_register, test_refused, test_call, test_changes, test_kept, test_stdio])


if __name__ == "__main__":
    sys.exit(main())
