#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The drop-in for MaxKB, external MCP servers: the newest branch's worker in a sandbox that reaches the server
which it is for, and nothing else."""

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, maxkb, outside, paths, service, tap

outside.need("dnsmasq")
DNS = outside.dnsmasq("--address=/test/127.0.0.1")
DNS_OPTION = ["--egress-dns", "127.0.0.1:%d" % DNS.port]
place = paths.scratch("nsbox-maxkb-external-")
site = None
daemon = None
heard = []


class Handler(http.server.BaseHTTPRequestHandler):
    """An MCP server on the network; it tells what it was sent."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        heard.append((self.server.server_address[1], self.headers.get("Authorization"), body))
        answer = json.dumps({"jsonrpc": "2.0", "id": body.get("id"), "result": {"params": body.get("params")}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


def listen():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return "http://mcp.test:%d/mcp" % server.server_address[1]


def describe(url, apps=None, more=(), **variables):
    """(answer of sandbox_connection, what MaxKB's log says); with more addresses, all answers"""
    where = {"apps": apps} if apps else {}
    variables = dict({"NSBOX_SOCKET": daemon.socket, "NSBOX_PYTHON": "/usr/bin/python3"}, **variables)
    with maxkb.MaxKB(site, **where, **variables) as server:
        answers = [server.tell({"external": {"url": one, "transport": "streamable_http", "command": "touch",
                                             "headers": {"Authorization": "Bearer of the test"}}}) for one in (url, *more)]
        return answers if more else answers[0], server.end()


class Worker:
    """Started and greeted as MaxKB's client does it."""

    def __init__(self, url, **variables):
        self.config = describe(url, **variables)[0]["value"]
        self.process = subprocess.Popen(
            [self.config["command"], *self.config["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, cwd=self.config["cwd"], env=dict({"PATH": os.environ["PATH"]}, **self.config["env"]),
            text=True, encoding="utf-8", start_new_session=True)
        self.number = 0

    def ask(self, method, **params):
        self.number += 1
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def greet(self):
        return self.ask("initialize", clientInfo=self.config["session_kwargs"]["client_info"])

    def end(self):
        said = self.process.communicate()[1]
        return self.process.returncode, said


def test_talk(t):
    url = listen()
    worker = Worker(url)
    secret = json.dumps([worker.config["args"], worker.config["env"]])
    t.ok("Bearer" not in secret and "sandbox.so" not in secret, "nothing is preloaded, nothing secret is in sight", secret)
    answer = worker.greet()
    t.equal(answer["result"]["params"], {"clientInfo": {"name": "maxkb-sandbox", "version": "1"}},
            "the server answers, and is not told what the worker was")
    t.equal(answer["result"]["worker"], {"uid": 1000, "preload": None, "maxkb": False, "reads": []},
            "the worker is in a sandbox")
    t.equal(heard[-1][1], "Bearer of the test", "what MaxKB's settings hold is sent")
    t.equal(worker.ask("tools/call", text="中" * 100000)["result"]["params"], {"text": "中" * 100000}, "and calls pass")
    t.equal(worker.end(), (0, ""), "the end of input is the end")


def test_elsewhere(t):
    """The server is reached, so that what is refused is so by the policy; the other one is there, too."""
    url, other = listen(), listen()
    t.ok("result" in Worker(other).greet(), "another server, asked for: reached")
    worker = Worker(url)
    worker.greet()
    count = len(heard)
    answer = worker.ask("tools/call", elsewhere=other)
    t.ok("the MCP server ended" in answer["error"]["message"], "the same from a worker that is not for it: an error",
         str(answer))
    status, said = worker.end()
    t.ok(status == 1 and "MCP sandbox worker failed: the standin saw URLError." in said, "in the worker's words", said)
    t.equal(len(heard), count, "and it has heard nothing")
    worker = Worker(url)
    answer = worker.ask("initialize", elsewhere="http://elsewhere.example/",
                        clientInfo=worker.config["session_kwargs"]["client_info"])
    t.ok("the policy refused the network to elsewhere.example" in answer["error"]["message"],
         "another name: what was refused is said", str(answer))
    worker.end()


def test_refused(t):
    url = listen()
    answer, _ = describe(url, NSBOX_NETWORK="none")
    t.ok("MAXKB_NSBOX_NETWORK is none" in answer.get("error", ""), "no network wanted", str(answer))
    addresses = ("ftp://127.0.0.1/", "http:///x", "http://127.0.0.1:x/")
    for bad, answer in zip(addresses, describe(addresses[0], more=addresses[1:])[0]):
        t.ok("its address is not http:// or https:// and a host" in answer.get("error", ""), "address " + bad, str(answer))
    worker = Worker(url, SANDBOX_PYTHON_BANNED_HOSTS="127.0.0.0/8")
    count = len(heard)
    answer = worker.greet()
    t.ok("error" in answer and len(heard) == count, "a host that MaxKB bans", str(answer))
    worker.end()
    with service.Daemon(options=DNS_OPTION) as strict:
        worker = Worker(url, NSBOX_SOCKET=strict.socket)
        count = len(heard)
        answer = worker.greet()
        t.ok("error" in answer and len(heard) == count, "a service that does not open this network", str(answer))
        worker.end()


def changed(name, *replacements):
    """A copy of the stand-ins: (file, old, new)."""
    apps = os.path.join(place, name)
    shutil.copytree(os.path.join(maxkb.STANDINS, "apps"), apps, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in replacements:
        path = os.path.join(apps, "common", "mcp", name)
        with open(path, encoding="utf-8") as f:
            text = f.read()
        assert old in text
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace(old, new))
    return apps


def test_shapes(t):
    url = listen()
    answer, said = describe(url)
    t.ok("value" in answer and "external MCP servers run in nsbox" in said, "a shape that is known", said)
    rows = [("argument", ("sandbox.py", "sandbox_connection(config)", "sandbox_connection(config, name)"),
             "takes (config, name)"),
            ("remote", ("sandbox.py", "remote_connection", "other_connection"), "it has no remote_connection"),
            ("run", ("sandbox_proxy.py", "def run", "def start"), "sandbox_proxy has no run")]
    for name, change, why in rows:
        more = [("config.py", "remote_connection", "other_connection")] if name == "remote" else []
        answer, said = describe(url, changed(name, change, *more))
        t.ok(why in answer.get("error", "") and "NOT READY: external MCP servers do not run" in said,
             "another shape is closed: " + name, "%s\n%s" % (answer, said))
    answer, said = describe(url, TOOL_EXECUTOR_BACKEND="local")
    t.ok("LD_PRELOAD" in answer["value"]["env"], "MaxKB's own worker is what local gives", str(answer))
    apps = maxkb.sourceless(os.path.join(maxkb.STANDINS, "apps"), os.path.join(place, "sourceless"))
    answer, said = describe(url, apps)
    t.ok("value" in answer and "sandbox_proxy.pyc" in answer["value"]["env"]["NSBOX_MAXKB"], "without source", said)


def main():
    global daemon, site
    leftovers.become_subreaper()
    site = maxkb.install(os.path.join(place, "site"))
    config = os.path.join(place, "ceiling.json")
    with open(config, "w", encoding="ascii") as f:
        json.dump({"openNetworks": ["127.0.0.1"]}, f)
    with service.Daemon(options=["--ceiling", config, *DNS_OPTION]) as daemon:
        status = tap.run([test_talk, test_elsewhere, test_refused, test_shapes])
        if status:
            sys.stderr.write(daemon.log()[-3000:])
    return status


if __name__ == "__main__":
    sys.exit(main())
