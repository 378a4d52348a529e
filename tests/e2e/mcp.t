#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The Model Context Protocol as the service speaks it: both eras, the transports, the tools of a session, and what
clients do wrong. tests/e2e/heavy/mcp-sdk.t is the same with clients written elsewhere."""

import base64
import json
import os
import sys

import jsonschema

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import mcp, service, tap

daemon = None
PLACE = "/mcp/team/box"
SLEEP = "echo $$ > /workspace/pid; echo going; sleep 300"


def jobs(state=None):
    return [j for j in daemon.ask("GET", "/v1/jobs")[1]["jobs"] if state is None or j["state"] == state]


def client(version=mcp.LATEST_WITH_SESSIONS, path=PLACE):
    made = mcp.Client(daemon.socket, path)
    made.initialize(version)
    return made


# ------------------------------------------------------------------ the handshake


def test_versions(t):
    for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
        c = mcp.Client(daemon.socket, PLACE)
        reply = c.initialize(version)
        result = reply.answer()["result"]
        t.ok(result["protocolVersion"] == version and c.headers["Mcp-Session-Id"].isprintable() and
             result["serverInfo"]["name"] == "nsbox" and "tools" in result["capabilities"],
             "initialize of %s" % version, repr(reply))
        listed = c.ask("tools/list")
        t.ok(len(listed.answer()["result"]["tools"]) == 7, "and its tools", repr(listed))
        t.equal(c.send(None, method="DELETE").status, 200, "and its end")
        t.equal(c.ask("ping").status, 404, "after which the session is unknown")
    c = mcp.Client(daemon.socket, PLACE)
    t.equal(c.initialize("2099-01-01").answer()["result"]["protocolVersion"], "2025-11-25",
            "what is not known is answered with the newest that has sessions")
    reply = c.send(c.message("ping"), headers={"MCP-Protocol-Version": "2099-01-01"})
    t.ok(reply.status == 400 and reply.answer()["error"]["code"] == -32022, "a later request's version is checked",
         repr(reply))
    t.equal(c.ask("ping").answer()["result"], {}, "and the right one works")
    reply = c.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x"}})
    t.equal(reply.status, 400, "a session is initialized once")
    reply = mcp.Client(daemon.socket, PLACE).ask("initialize", {"capabilities": {}})
    t.ok(reply.answer()["error"]["code"] == -32602, "initialize without a version is refused", repr(reply))


def test_modern(t):
    c = mcp.Modern(daemon.socket, PLACE)
    reply = c.ask("server/discover")
    found = reply.answer()["result"]
    t.ok(found["supportedVersions"][0] == mcp.MODERN and len(found["supportedVersions"]) == 5 and
         found["resultType"] == "complete" and found["ttlMs"] == 0 and
         found["_meta"][mcp.META + "serverInfo"]["name"] == "nsbox" and "Mcp-Session-Id" not in reply.headers,
         "server/discover", repr(reply))
    found = c.call("run_command", {"command": "echo hi"})
    t.ok(found["resultType"] == "complete" and found["structuredContent"]["stdout"] == "hi\n" and
         found["isError"] is False, "a tool without a session of the protocol", repr(found))
    for why, more, status, code in (
            ("an unknown version", {"meta": {mcp.META + "protocolVersion": "1900-01-01"},
                                    "headers": {"MCP-Protocol-Version": "1900-01-01"}}, 400, -32022),
            ("a header of another version", {"headers": {"MCP-Protocol-Version": "2025-11-25"}}, 400, -32020),
            ("no such header", {"headers": {"MCP-Protocol-Version": None}}, 400, -32020),
            ("a header of another method", {"headers": {"Mcp-Method": "tools/list"}}, 400, -32020),
            ("a header of another tool", {"headers": {"Mcp-Name": "read_file"}}, 400, -32020),
            ("no capabilities", {"meta": {mcp.META + "clientCapabilities": None}}, 400, -32602),
            ("no version in _meta", {"meta": {mcp.META + "protocolVersion": None}}, 400, -32602)):
        reply = c.ask("tools/call", {"name": "run_command", "arguments": {"command": "true"}}, **more)
        t.ok(reply.status == status and reply.answer()["error"]["code"] == code, "refused: " + why, repr(reply))
    name = "=?base64?%s?=" % base64.b64encode(b"run_command").decode()
    reply = c.ask("tools/call", {"name": "run_command", "arguments": {"command": "true"}}, headers={"Mcp-Name": name})
    t.ok(reply.status == 200 and reply.answer()["result"]["isError"] is False, "a name in base64 is the same name",
         repr(reply))
    for method in ("ping", "initialize", "no/such"):
        reply = c.ask(method)
        t.ok(reply.status == 404 and reply.answer()["error"]["code"] == -32601, method + " is no method there",
             repr(reply))
    reply = c.ask("tools/call", {"name": "run_command", "arguments": {"command": "sleep 1"}},
                  meta={"progressToken": "p"})
    told = [m["params"] for m in reply.messages if m.get("method") == "notifications/progress"]
    t.ok(reply.type == "text/event-stream" and told and told[0]["progressToken"] == "p" and reply.answer() and
         not any("id" in e for e in reply.events), "with a progressToken it is a stream, which cannot be resumed",
         repr(reply))


# ------------------------------------------------------------------ what clients do wrong


def test_wrong(t):
    c = client()
    for why, body, status, code in (
            ("bad JSON", b"{", 400, -32700), ("two values", b"{} {}", 400, -32700),
            ("a lone number", b"7", 400, -32600), ("no version", {"id": 1, "method": "ping"}, 400, -32600),
            ("an id that is an object", {"jsonrpc": "2.0", "id": {}, "method": "ping"}, 400, -32600),
            ("an id that is null", {"jsonrpc": "2.0", "id": None, "method": "ping"}, 400, -32600),
            ("params that are a list", {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}, 400, -32602),
            ("too deep", b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":%s}}' % (b"[" * 70 + b"]" * 70),
             400, -32700),
            ("several at once, after 2025-03-26", [c.message("ping"), c.message("ping")], 400, -32600)):
        reply = c.send(body)
        t.ok(reply.status == status and reply.answer()["error"]["code"] == code, "refused: " + why, repr(reply))
    for why, method, params, code in (
            ("an unknown method", "no/such", None, -32601),
            ("an unknown tool", "tools/call", {"name": "rm"}, -32602),
            ("no tool", "tools/call", {}, -32602),
            ("arguments that are a list", "tools/call", {"name": "run_command", "arguments": []}, -32602),
            ("a cursor that is not ours", "tools/list", {"cursor": "x"}, -32602)):
        reply = c.ask(method, params)
        t.ok(reply.answer()["error"]["code"] == code, "refused: " + why, repr(reply))
    for why, headers, status in (
            ("a page elsewhere", {"Origin": "http://evil.example"}, 403),
            ("one that begins like ours", {"Origin": "http://localhost.evil.example"}, 403),
            ("one without a host", {"Origin": "null"}, 403),
            ("a page of this machine", {"Origin": "http://localhost:3000"}, 200),
            ("one by its address", {"Origin": "http://127.0.0.1"}, 200),
            ("one that the operator names", {"Origin": "https://chat.example:8443"}, 200),
            ("that with another port", {"Origin": "https://chat.example"}, 403),
            ("no session", {"Mcp-Session-Id": None}, 400),
            ("a wrong session", {"Mcp-Session-Id": "mcp-0"}, 404)):
        t.equal(c.send(c.message("ping"), headers=headers).status, status, why)
    other = mcp.Client(daemon.socket, "/mcp/team/other", c.headers)
    t.equal(other.ask("ping").status, 404, "a session is one of its path")
    t.equal(c.send({"jsonrpc": "2.0", "id": 5, "result": {}}).status, 202, "an answer that nobody asked for")
    for path in ("/mcp/team", "/mcp/team/", "/mcp//box", "/mcp/team/box/more", "/mcp/team/.box", "/mcp/tools/none"):
        reply = mcp.Client(daemon.socket, path).initialize()
        t.equal(reply.status, 404, "no such place: " + path)
    t.equal(c.send(None, method="PUT").status, 405, "no such method of HTTP")
    t.equal(c.send(None, method="GET", accept="application/json").status, 406, "GET gives events alone")


def test_batch(t):
    c = client("2025-03-26")
    messages = [c.message("ping", ident="a"), {"jsonrpc": "2.0", "method": "notifications/x"},
                c.message("tools/call", {"name": "run_command", "arguments": {"command": "echo b"}}, ident="b"),
                c.message("no/such", ident="c"), {"jsonrpc": "2.0", "id": {}}]
    for accept in (mcp.ACCEPT, "application/json"):
        reply = c.send(messages, accept=accept)
        t.ok(reply.answer("a") and reply.answer("b")["result"]["content"] and
             reply.answer("c")["error"]["code"] == -32601 and len(reply.messages) == 4 and
             reply.type == accept.split(", ")[-1], "several at once, as " + accept, repr(reply))
    t.equal(c.send([messages[1]]).status, 202, "notifications alone")
    t.equal(c.send([]).status, 400, "none at all")
    t.equal(c.send([messages[0]] * 33).status, 400, "too many")


# ------------------------------------------------------------------ tools


def test_tools(t):
    c = client()
    listed = {x["name"]: x for x in c.ask("tools/list").answer()["result"]["tools"]}
    t.equal(sorted(listed), ["edit_file", "list_files", "read_file", "run_command", "run_python", "search_files",
                             "write_file"], "the tools")
    for tool in listed.values():
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        jsonschema.Draft202012Validator.check_schema(tool["outputSchema"])

    def call(name, is_error=False, why=None, **arguments):
        if why is None:
            jsonschema.validate(arguments, listed[name]["inputSchema"])
        result = c.call(name, arguments)
        structured = result.get("structuredContent")
        t.ok(result.get("isError") is is_error, "%s: %s" % (name, why or ("fails" if is_error else "works")),
             repr(result)[:800])
        if structured is not None:
            jsonschema.validate(structured, listed[name]["outputSchema"])
            t.ok(json.loads(result["content"][0]["text"]) == structured, "and says the same as text")
            return structured
        return result["content"][0]["text"]

    # The file comes first: the session's sandbox is made for it.
    t.equal(call("write_file", path="a/b.txt", content="one\ntwo\nthree\n")["size"], 14, "its size")
    found = call("run_command", command="cat a/b.txt; echo x >&2; exit 3", is_error=True)
    t.ok(found["stdout"] == "one\ntwo\nthree\n" and found["stderr"] == "x\n" and found["exit_code"] == 3 and
         found["cause"] == "exit", "what came before its end is told", repr(found))
    t.equal(call("run_command", command="pwd; cat", cwd="/workspace/a", stdin="in", env={"V": "1"})["stdout"],
            "/workspace/a\nin", "directory and input")
    t.equal(call("run_python", code="print(6 * 7)\nopen('p', 'w').write('q')")["stdout"], "42\n", "Python")
    t.equal(call("run_python", code="print(input())", stdin="line\n")["stdout"], "line\n", "Python that reads")
    t.equal(call("run_python", code="1 / 0", is_error=True)["exit_code"], 1, "Python that fails")
    t.equal(call("run_command", command="sleep 60", timeout_seconds=0.3, is_error=True)["cause"], "wallTime",
            "a deadline")
    t.equal(call("read_file", path="/workspace/p")["content"], "q", "what Python wrote")
    found = call("read_file", path="a/b.txt", offset=2, limit=1)
    t.ok(found["content"] == "two\n" and found["lines"] == 3, "a line of a file", repr(found))
    t.equal(call("read_file", path="a/b.txt", offset=9)["content"], "", "lines behind the end")
    call("write_file", path="raw", content=base64.b64encode(b"\xff\0").decode(), encoding="base64")
    t.equal(call("read_file", path="raw")["content"], "/wA=", "bytes")
    call("write_file", path="empty", content="")
    t.equal(call("read_file", path="empty")["content"], "", "an empty file")
    call("run_command", command="head -c 2000000 /dev/zero | tr '\\0' x > big")
    t.ok(call("read_file", path="big")["truncated"], "a big file's beginning")
    t.ok("by a command" in call("edit_file", path="big", old_text="x", new_text="y", is_error=True), "is not edited")
    t.equal(call("edit_file", path="a/b.txt", old_text="two", new_text="2")["replaced"], 1, "how often")
    t.ok("3 times" in call("edit_file", path="a/b.txt", old_text="e", new_text="E", is_error=True), "ambiguous")
    t.equal(call("edit_file", path="a/b.txt", old_text="e", new_text="E", replace_all=True)["replaced"], 3, "all")
    t.ok("0 times" in call("edit_file", path="a/b.txt", old_text="nine", new_text="", is_error=True), "not there")
    t.ok("no text" in call("edit_file", path="raw", old_text="a", new_text="", is_error=True), "bytes are no text")
    t.equal(call("read_file", path="a/b.txt")["content"], "onE\n2\nthrEE\n", "what became of it")
    t.ok({"a", "p"} <= {e["path"] for e in call("list_files")["entries"]}, "the working directory")
    t.ok("a/b.txt" in {e["path"] for e in call("list_files", recursive=True)["entries"]}, "and below")
    t.equal([e["path"] for e in call("search_files", glob="**/*.txt")["entries"]], ["a/b.txt"], "by name")
    t.equal([(m["path"], m["line"]) for m in call("search_files", text="THREE", ignore_case=True)["matches"]],
            [("a/b.txt", 3)], "by content")
    t.ok("No such file" in call("read_file", path="none", is_error=True), "no such file")
    t.ok("text, or a glob" in call("search_files", is_error=True), "nothing to search for")
    for name, why, arguments in (("read_file", "no path", {}), ("read_file", "an unknown key", {"path": "x", "y": 1}),
                                 ("run_command", "a list", {"command": ["ls"]}), ("run_python", "no text", {"code": 3}),
                                 ("run_command", "no number", {"command": "ls", "timeout_seconds": "1"}),
                                 ("write_file", "no encoding", {"path": "x", "content": "", "encoding": "latin"}),
                                 ("write_file", "no base64", {"path": "x", "content": "*", "encoding": "base64"})):
        t.ok(isinstance(call(name, True, why, **arguments), str), "is told in words")


def test_own_session(t):
    """One sandbox with the rest of the interface, and none with another session's."""
    c = client(path="/mcp/team/shared")
    c.call("write_file", {"path": "x", "content": "y"})
    answer = daemon.ask("POST", "/v1/execute/command", {"workspace_id": "team", "session_id": "shared",
                                                        "command": "cat x"})[1]
    t.equal(answer["stdout"], "y", "the interface's session is the tools' session")
    t.ok(client(path="/mcp/team/another").call("read_file", {"path": "x"})["isError"], "and no other")


# ------------------------------------------------------------------ streams


def test_progress(t):
    c = client()
    stream = c.open_call("run_command", {"command": "until test -e go2; do sleep 0.1; done"}, token=7)
    told = stream.message()
    t.ok(told["method"] == "notifications/progress" and told["params"]["progressToken"] == 7, "progress at once",
         repr(told))
    second = stream.message()
    t.ok(second["params"]["progress"] > told["params"]["progress"] and second["params"]["message"],
         "and it grows", repr(second))
    c.call("write_file", {"path": "go2", "content": ""})
    while "result" not in told:
        told = stream.message()
    t.ok(told["result"]["isError"] is False and stream.message() is None, "until the answer, which is the last")
    stream.close()


def test_cancel(t):
    c = client(path="/mcp/team/cancel")
    stream = c.open_call("run_command", {"command": SLEEP}, ident="one")
    t.ok(tap.wait_until(lambda: c.call("read_file", {"path": "pid"}).get("isError") is False, 60), "it runs")
    running = [j["id"] for j in jobs("running")]
    t.equal(c.tell("notifications/cancelled", {"requestId": "other"}).status, 202, "another id ends nothing")
    t.ok(jobs("running"), "it still runs")
    t.equal(c.tell("notifications/cancelled", {"requestId": "one", "reason": "enough"}).status, 202, "its own does")
    t.equal(stream.message(), None, "there is no answer, and the stream ends")
    t.ok(tap.wait_until(lambda: not set(running) & {j["id"] for j in jobs("running")}, 60), "the job has ended")
    causes = {j["id"]: j.get("cause") for j in jobs("finished")}
    t.equal([causes.get(i) for i in running], ["cancelled"], "as cancelled")
    stream.close()
    m = mcp.Modern(daemon.socket, "/mcp/team/cancel")
    params = {"name": "run_command", "arguments": {"command": SLEEP.replace("pid", "pid2")},
              "_meta": {mcp.META + "protocolVersion": mcp.MODERN, mcp.META + "clientCapabilities": {}}}
    head = {"MCP-Protocol-Version": mcp.MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "run_command"}
    for token in (None, "p"):
        if token:
            params["_meta"]["progressToken"] = token
        connection = service.UnixConnection(daemon.socket, 60)
        connection.request("POST", m.path, json.dumps(m.message("tools/call", params)),
                           {"Accept": mcp.ACCEPT, **head})
        t.ok(tap.wait_until(lambda: jobs("running"), 60), "a call that stands for itself runs")
        connection.close() if token is None else connection.sock.close()
        if token:
            connection.close()
        t.ok(tap.wait_until(lambda: not jobs("running"), 60), "and ends with its connection")


def test_resume(t):
    c = client(path="/mcp/team/resume")
    stream = c.open_call("run_command", {"command": "until test -e go; do sleep 0.1; done; echo done"},
                         ident="r", token="t")
    first = stream.event()
    t.ok(first.get("id") and not first.get("data"), "the first event says where to come back", repr(first))
    stream.event()
    last = stream.last_id
    stream.close()
    c.call("write_file", {"path": "go", "content": ""})
    # The old connection's end and the new connection's beginning race: 409 is "not yet".
    again = tap.wait_until(lambda: next((s for s in [c.get(last)] if s.status != 409), None), 60)
    seen = []
    while not (seen and seen[-1].get("id") == "r"):
        seen.append(again.message())
        if seen[-1] is None:
            break
    t.ok(seen[-1] and seen[-1]["result"]["structuredContent"]["stdout"] == "done\n",
         "the answer comes to who comes back", repr(seen))
    t.ok(all(m["params"]["progress"] > 1 for m in seen[:-1]), "and what was seen does not come again", repr(seen))
    again.close()
    late = tap.wait_until(lambda: next((s for s in [c.get(last)] if s.status != 409), None), 60)
    messages = []
    while True:
        message = late.message()
        if message is None:
            break
        messages.append(message)
    t.ok(messages and messages[-1].get("id") == "r", "again when all is over", repr(messages))
    late.close()
    for why, ident, status in (("no id", "x", 400), ("an unknown stream", "999-1", 404)):
        s = c.get(ident)
        t.equal(s.status, status, "refused: " + why)
        s.close()
    own = c.get()
    t.equal(own.status, 200, "the session's own stream")
    other = c.get()
    t.equal(other.status, 409, "is read once")
    other.close()
    own.close()


def test_old_transport(t):
    """HTTP+SSE of 2024-11-05: one stream for everything, and a place to write to."""
    stream = mcp.Stream(daemon.socket, "GET", "/mcp/team/old", None, {"Accept": "text/event-stream"})
    first = stream.event()
    t.ok(first["event"] == "endpoint" and first["data"].startswith("/mcp/team/old?sessionId="), "where to write",
         repr(first))
    c = mcp.Client(daemon.socket, first["data"])
    reply = c.ask("initialize", {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "x"}})
    t.ok(reply.status == 202, "a message is taken", repr(reply))
    t.equal(stream.message()["result"]["protocolVersion"], "2024-11-05", "and answered on the stream")
    c.ask("tools/call", {"name": "run_command", "arguments": {"command": SLEEP}})
    t.ok(tap.wait_until(lambda: jobs("running"), 60), "a call runs")
    c.ask("ping")
    t.equal(stream.message()["result"], {}, "meanwhile others are answered")
    c.tell("notifications/cancelled", {"requestId": c.number - 1})
    t.ok(tap.wait_until(lambda: not jobs("running"), 60), "it is cancelled")
    c.ask("tools/call", {"name": "run_command", "arguments": {"command": SLEEP}})
    t.ok(tap.wait_until(lambda: jobs("running"), 60), "another runs")
    stream.close()
    t.ok(tap.wait_until(lambda: not jobs("running"), 60), "and ends with the stream")
    t.ok(tap.wait_until(lambda: c.ask("ping").status == 404, 60), "as the session does")


# ------------------------------------------------------------------ bounds


def test_limits(t):
    c = mcp.Client(daemon.socket, "/mcp/team/many")
    made = []
    while len(made) < 100:
        reply = c.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x"}})
        if reply.status != 200:
            break
        made.append(reply.headers["Mcp-Session-Id"])
    t.ok(reply.status == 429 and "too many" in reply.answer()["error"]["message"] and made,
         "sessions of one client are bounded", repr(reply))
    for ident in made:
        c.send(None, headers={"Mcp-Session-Id": ident}, method="DELETE")
    t.equal(c.initialize().status, 200, "one that ends makes room")


def test_calls(t):
    # A session takes eight commands at once.
    clients = [client(path="/mcp/team/calls%d" % i) for i in range(9)]
    c = clients.pop()
    open_calls = [each.open_call("run_command", {"command": "sleep 300"}, ident="c%d" % i, token=i)
                  for each in clients for i in range(8)]
    t.equal({s.status for s in open_calls}, {200}, "64 calls of one client go on, running or waiting")
    reply = c.ask("tools/call", {"name": "list_files", "arguments": {}})
    t.ok("64 calls of this client go on" in reply.answer().get("error", {}).get("message", ""), "one more is refused", repr(reply))
    t.equal(c.ask("ping").answer()["result"], {}, "other requests are not")
    for each in clients:
        each.send(None, method="DELETE")
    for stream in open_calls:
        stream.close()
    t.ok(tap.wait_until(lambda: not jobs("running") + jobs("queued"), 60), "all end with their sessions")
    t.ok(c.call("list_files")["isError"] is False, "and there is room again")


def test_kept(t):
    """Of streams that are over, the last 32 can be come back to."""
    c = client(path="/mcp/team/kept")
    last = []
    for i in range(34):
        stream = c.open_call("list_files", ident=i, token=i)
        while stream.message():
            pass
        last.append(stream.last_id.split("-")[0] + "-1")
        stream.close()
    found = []
    for ident in (last[0], last[1], last[2], last[-1]):
        stream = c.get(ident)
        found.append(stream.status)
        stream.close()
    t.equal(found, [404, 404, 200, 200], "the oldest are forgotten, the others are there")


def main():
    global daemon # pylint: disable=global-statement
    with service.Daemon(options=["--mcp-origin", "https://chat.example:8443"]) as daemon:
        return tap.run([test_versions, test_modern, test_wrong, test_batch, test_tools, test_own_session,
                        test_progress, test_cancel, test_resume, test_old_transport, test_limits, test_calls, test_kept])


if __name__ == "__main__":
    sys.exit(main())
