#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The drop-in for MaxKB, tools as MCP servers: started as MaxKB's client starts them, spoken to over
standard input and output, ended in every way there is."""

import json
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, maxkb, paths, tap, tiers

place = paths.scratch("nsbox-maxkb-mcp-")
site = None
tier = None
daemon = None

TOOL = """
import os, sys, time

def _helper(a):
    return a * 2

def double(a):
    return _helper(a)

def noise(n):
    sys.stdout.write("x" * n + "\\n")
    print("中文")
    return "quiet"

def where():
    return {"env": dict(os.environ), "uid": os.getuid(), "host": os.path.exists("/proc/1/root/etc/shadow")}

def sleep(n):
    time.sleep(n)

def fill(n):
    return len(bytearray(n << 20))

def leave(n):
    sys.stdout.write("half a line")
    sys.stdout.flush()
    os._exit(n)

def errors():
    os.write(2, b"to standard error\\n")
    return 1
"""


class Client:
    """A client as the protocol's own are: newline-delimited JSON, what is no JSON is skipped."""

    def __init__(self, code=TOOL, **variables):
        variables = dict({"NSBOX_SOCKET": daemon.socket, "NSBOX_PYTHON": "/usr/bin/python3"}, **variables)
        with maxkb.MaxKB(site, **variables) as server:
            self.described = server.tell({"mcp": code, "id": "tool-7"})["value"]
        config = self.described["config"]
        self.raw = b""
        self.process = subprocess.Popen(
            [config["command"], *config["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            cwd=config["cwd"], env=dict({"PATH": os.environ["PATH"], "HOME": "/root"}, **config["env"]),
            start_new_session=True)
        self.number = 0

    def send(self, method, params=None, answer=True):
        message = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        if answer:
            self.number += 1
            message["id"] = self.number
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self):
        """The answer to the last request; None: the connection is closed."""
        for line in iter(self.process.stdout.readline, b""):
            self.raw += line
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if message.get("id") == self.number:
                return message
        return None

    def ask(self, method, params=None):
        self.send(method, params)
        return self.receive()

    def greet(self):
        answer = self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {}})
        self.send("notifications/initialized", answer=False)
        return answer

    def call(self, name, **arguments):
        answer = self.ask("tools/call", {"name": name, "arguments": arguments})
        if "result" in answer:
            return json.loads(answer["result"]["content"][0]["text"])
        return answer["error"]

    def close(self):
        """As the protocol's clients do; status and standard error."""
        self.process.stdin.close()
        try:
            status = self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            status = "killed"
        text = self.process.stderr.read().decode()
        self.process.stdout.close()
        self.process.stderr.close()
        return status, text


def idle():
    return tap.wait_until(lambda: daemon.ask("GET", "/healthz")[1]["queue"]["running"] == 0, 15)


def test_talk(t):
    client = Client()
    config = client.described["config"]
    t.equal((client.described["type"], config["transport"]), ("InternalMCPConfig", "stdio"), "MaxKB's type is kept")
    t.ok("LD_PRELOAD" not in config["env"], "nothing is preloaded", str(config["env"]))
    with maxkb.MaxKB(site, NSBOX_SOCKET=daemon.socket, SANDBOX_HOME=place) as other:
        kept = other.tell({"mcp": "def double(a): return a * 2", "id": "x"})["value"]["config"]["cwd"]
    t.equal((kept, config["cwd"]), (place, "/"), "and the directory, unless MaxKB has not made it")
    t.equal(client.greet()["result"]["serverInfo"]["name"], "standin", "a server answers")
    t.equal([tool["name"] for tool in client.ask("tools/list")["result"]["tools"]],
            ["double", "noise", "where", "sleep", "fill", "leave", "errors"], "with its tools")
    t.equal(client.call("double", a="中"), {"result": "中中", "tool_id": "tool-7"}, "and calls them")
    got = client.call("where")["result"]
    t.ok(got["env"] == {} and tiers.is_payload(tier, got["uid"]) and not got["host"], "in a sandbox, its environment empty", str(got))
    text = "é" * 300000
    t.ok(client.call("double", a=text)["result"] == text * 2, "megabytes pass both ways")
    client.raw = b""
    t.equal(client.call("noise", n=70000)["result"], "quiet", "what tools print does not disturb")
    t.ok(client.raw.startswith(b"x" * 70000 + b"\n" + "中文\n".encode()), "and comes byte for byte")
    t.equal(client.call("errors")["result"], 1, "standard error")
    status, said = client.close()
    t.equal((status, said), (0, "to standard error\n"), "passes too, and the end of input is the end")
    t.ok(idle(), "nothing is left running")


# Without namespaces RLIMIT_DATA comes before the watchdog: a call for memory fails, and nobody had to end the server.
FULL = {"process": "ended: it wanted"}


def test_ends(t):
    rows = [
        ("out of memory", {}, "fill", {"n": 600},
         lambda m: FULL.get(tier, "was ended: it used") + " more memory than 256 MB "
                   "(MAXKB_SANDBOX_PYTHON_PROCESS_LIMIT_MEM_MB)" in m, 1),
        ("out of time", {"SANDBOX_PYTHON_PROCESS_LIMIT_TIMEOUT_SECONDS": "1"}, "sleep", {"n": 60},
         lambda m: "it ran longer than 1 seconds" in m, 1),
        ("exit", {}, "leave", {"n": 3}, lambda m: "the MCP server ended (exit status 3)" in m, 3),
        ("exit 0", {}, "leave", {"n": 0}, lambda m: "the MCP server ended without an answer" in m, 0)]
    for name, variables, tool, arguments, good, want in rows:
        client = Client(**variables)
        client.greet()
        answer = client.call(tool, **arguments)
        status, said = client.close()
        t.ok(answer.get("code") == -32000 and good(answer["message"]), "the end's reason is an answer: " + name,
             str(answer))
        t.ok(want == 0 or good(said), "and on standard error", said)
        t.ok(status in (want, 137, 143), "and the status is the server's", str(status))


PROGRAMS = """
import os, subprocess

def start(how):
    try:
        return {"run": lambda: subprocess.run(["true"]).returncode, "system": lambda: os.system("true"),
                "spawn": lambda: os.spawnv(os.P_WAIT, "/bin/true", ["true"])}[how]()
    except PermissionError as error:
        return "refused: " + error.strerror
"""


def test_programs(t):
    for variables, want in (({}, 0), ({"SANDBOX_PYTHON_ALLOW_SUBPROCESS": "1"}, 0),
                            ({"SANDBOX_PYTHON_ALLOW_SUBPROCESS": "0"}, "refused: Permission denied to create subprocess")):
        client = Client(PROGRAMS, **variables)
        client.greet()
        t.equal([client.call("start", how=how)["result"] for how in ("run", "system", "spawn")], [want] * 3,
                "starting programs, with %s" % variables)
        client.close()


def test_signals(t):
    client = Client()
    client.greet()
    client.send("tools/call", {"name": "sleep", "arguments": {"n": 60}})
    began = time.monotonic()
    os.killpg(client.process.pid, signal.SIGTERM)
    t.equal(client.close()[0], -signal.SIGTERM, "SIGTERM ends it")
    t.ok(idle() and time.monotonic() - began < 10, "and the sandbox with it")
    client = Client()
    client.greet()
    client.process.kill()
    client.close()
    t.ok(idle(), "so does SIGKILL")
    # A client that is killed ends nothing itself: its pipe closes, and its child has another parent.
    script = ("import os, subprocess, sys, time\np = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)\n"
              "p.stdin.write(%r); p.stdin.flush(); time.sleep(1); os.kill(os.getpid(), 9)\n" % (
                  b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sleep","arguments":{"n":60}}}\n'))
    config = client.described["config"]
    subprocess.run([sys.executable, "-c", script, config["command"], *config["args"]], env=config["env"], check=False)
    t.ok(idle(), "and the death of the client, in the middle of a call")


def test_refused(t):
    client = Client(NSBOX_SOCKET="/nonexistent/nsbox.sock")
    answer = client.ask("initialize")
    t.ok("the service at /nonexistent/nsbox.sock cannot be reached" in answer["error"]["message"],
         "no service: the first request is answered with the reason", str(answer))
    status, said = client.close()
    t.ok(status == 1 and "cannot be reached" in said, "which is on standard error as well", said)
    client = Client(NSBOX_IMAGE="standin")
    answer = client.ask("initialize")
    t.ok("standin" in answer["error"]["message"], "no such image: likewise", str(answer))
    client.close()


def use(name, service):
    global tier, daemon
    tier, daemon = name, service


def main():
    global site
    leftovers.become_subreaper()
    site = maxkb.install(os.path.join(place, "site"))
    return tap.run(tiers.each(place, [test_talk, test_ends, test_programs, test_signals, test_refused], use))


if __name__ == "__main__":
    sys.exit(main())
