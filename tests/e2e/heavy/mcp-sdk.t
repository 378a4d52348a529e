#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The Model Context Protocol with clients written elsewhere: the official TypeScript SDK, of both eras and over all
transports, and what of its conformance suite is about a server of tools. npm brings them (tests/support/mcp)."""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import paths, service, tap

MATERIAL = os.path.join(paths.ROOT, "tests", "support", "mcp")
# What the suite has for servers that are not made for it; the others want tools, prompts and resources of its own.
SCENARIOS = ("server-initialize", "ping", "tools-list", "server-sse-multiple-streams", "dns-rebinding-protection")
TOKEN = "s" * 40
daemon = None
place = None
port = None


def node(*args, **env):
    return subprocess.run(["node", *args], cwd=place, capture_output=True, text=True, check=False, timeout=300,
                          stdin=subprocess.DEVNULL, env=dict(os.environ, **env))


def install():
    for name in os.listdir(MATERIAL):
        shutil.copy(os.path.join(MATERIAL, name), place)
    return subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error"],
                          cwd=place, capture_output=True, text=True, check=False, timeout=500, stdin=subprocess.DEVNULL)


def test_sdk(t):
    url = "http://127.0.0.1:%d/mcp/team/" % port
    for kind, target in (("http", [url + "http"]), ("sse", [url + "sse"]), ("modern", [url + "modern"]),
                         ("stdio", [paths.NSBOX, "mcp", "--socket", daemon.socket])):
        done = node("sdk.mjs", kind, *target, TOKEN=TOKEN)
        lines = [line for line in done.stdout.splitlines() if re.match(r"(not )?ok ", line)]
        t.ok(len(lines) == 13 and done.returncode == 0, "%s: it comes to its end" % kind, done.stdout + done.stderr[-2000:])
        for line in lines:
            t.ok(line.startswith("ok "), line.split(" - ", 1)[1], done.stdout)
    def running():
        return [j for j in daemon.ask("GET", "/v1/jobs")[1]["jobs"] if j["state"] != "finished"]
    tap.wait_until(lambda: not running(), 60)
    t.equal(running(), [], "nothing that was cancelled still runs")


def suite():
    """The suite's program; on a Node without globSync, which it needs for clients alone, without that."""
    name = os.path.join(place, "node_modules/@modelcontextprotocol/conformance/dist/index.js")
    if node("-e", "process.exit(typeof require('fs').globSync === 'function' ? 0 : 1)").returncode:
        with open(name, encoding="utf-8") as f:
            text = f.read()
        with open(name, "w", encoding="utf-8") as f:
            f.write(re.sub(r"globSync as \w+,", "", text, count=1))
    return name


def test_conformance(t):
    """It knows no tokens: a door of ours adds one."""
    program = suite()
    door = subprocess.Popen(["node", "-e", """
        const http = require("http");
        http.createServer((q, r) => q.pipe(http.request({ host: "127.0.0.1", port: %d, path: q.url, method: q.method,
            headers: { ...q.headers, authorization: "Bearer %s" } }, (a) => { r.writeHead(a.statusCode, a.headers); a.pipe(r); })
            .on("error", () => r.destroy()))).listen(0, "127.0.0.1", function () { console.log(this.address().port); });
        """ % (port, TOKEN)], stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    try:
        url = "http://localhost:%s/mcp/team/conformance" % door.stdout.readline().strip()
        for scenario in SCENARIOS:
            done = node(program, "server", "--url", url, "--scenario", scenario)
            t.ok(done.returncode == 0, "conformance: " + scenario, (done.stdout + done.stderr)[-3000:])
    finally:
        door.kill()
        door.wait()
        door.stdout.close()


def main():
    global daemon, place, port # pylint: disable=global-statement
    if not shutil.which("node") or not shutil.which("npm"):
        tap.skip_all("node and npm are needed: packages nodejs and, where that brings none, npm")
    with tempfile.TemporaryDirectory(prefix="mcp-sdk-") as place:
        os.chmod(place, 0o755)
        done = install()
        if done.returncode:
            tap.skip_all("npm cannot get the clients: " + " ".join(done.stderr.split())[:300])
        tokens = os.path.join(place, "tokens")
        with open(tokens, "w", encoding="utf-8") as f:
            f.write("team %s\n" % TOKEN)
        os.chmod(tokens, 0o600)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with service.Daemon(options=["--tcp", "127.0.0.1:%d" % port, "--tokens", tokens]) as daemon:
            return tap.run([test_sdk, test_conformance])


if __name__ == "__main__":
    sys.exit(main())
