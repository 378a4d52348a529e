#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The drop-in for MaxKB, tools: installed by its .pth file beside stand-ins for MaxKB's modules. On the tier that the host
has; maxkb-kits.t has the golden outcomes and the many threads on the others.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, maxkb, paths, service, tap
from nsboxtest.golden import START, error, error_like, many, outcomes, value

place = paths.scratch("nsbox-maxkb-")
site = None
daemon = None
server = None


def start(**variables):
    return maxkb.MaxKB(site, **dict({"NSBOX_SOCKET": daemon.socket, "NSBOX_PYTHON": "/usr/bin/python3"},
                                    **variables))


def test_golden(t):
    for name, good, answer in outcomes(server):
        t.ok(good, name, answer)


def test_many(t):
    wrong = many(server)
    t.ok(not wrong, "200 threads at once, each with its answer", str(wrong[:3]))


OUTSIDE = """
import socket
def f():
    try:
        socket.create_connection(("192.0.2.1", 80), 5)
    except OSError:
        return "no"
"""

# variables, code, what has to come back
SETTINGS = [
    ("the old way of recursion", {"NSBOX_COMPAT": "recursion"},
     "def f(n=2): return 1 if n < 2 else n * f(n - 1)", error("name 'f' is not defined")),
    ("programs forbidden", {"SANDBOX_PYTHON_ALLOW_SUBPROCESS": "0"}, START,
     error_like(lambda m: "ermission denied" in m or "not permitted" in m)),
    ("forbidden, and caught", {"SANDBOX_PYTHON_ALLOW_SUBPROCESS": "0"},
     "import os\ndef f():\n try: os.execv('/bin/true', ['true'])\n except PermissionError: return 'caught'",
     value("caught")),
    ("forbidden, the old way", {"SANDBOX_PYTHON_ALLOW_SUBPROCESS": "0", "NSBOX_COMPAT": "subprocess"}, START,
     error("Permission denied to create subprocess.\n")),
    ("programs allowed", {"SANDBOX_PYTHON_ALLOW_SUBPROCESS": "1"}, START, value(0)),
    ("time limit", {"SANDBOX_PYTHON_PROCESS_LIMIT_TIMEOUT_SECONDS": "1"}, "import time\ndef f(): time.sleep(60)",
     error("Process execution timed out after 1 seconds.")),
    ("time limit, translated", {"SANDBOX_PYTHON_PROCESS_LIMIT_TIMEOUT_SECONDS": "1", "GERMAN": "1"},
     "import time\ndef f(): time.sleep(60)", error("Nach 1 Sekunden abgebrochen.")),
    ("memory limit", {"SANDBOX_PYTHON_PROCESS_LIMIT_MEM_MB": "64"}, "def f(): return len(bytearray(100 << 20))",
     error("Cannot allocate more memory: exceeded the limit of 64 MB.")),
    ("address space is free", {"SANDBOX_PYTHON_PROCESS_LIMIT_MEM_MB": "64"},
     "import mmap\ndef f(): return len(mmap.mmap(-1, 1 << 30))", value(1 << 30)),
    ("processors", {"SANDBOX_PYTHON_PROCESS_LIMIT_CPU_CORES": "1"},
     "import os\ndef f(): return len(os.sched_getaffinity(0))", value(1)),
    ("more processors than there are", {"SANDBOX_PYTHON_PROCESS_LIMIT_CPU_CORES": "1000000"}, "def f(): return 1",
     value(1)),
    ("processes", {"NSBOX_PIDS": "4"}, "import os, time\ndef f():\n try:\n  for i in range(8):\n"
     "   if os.fork() == 0: time.sleep(9)\n except BlockingIOError: return 'full'", value("full")),
    ("no network asked for", {"NSBOX_NETWORK": "none"}, OUTSIDE, value("no")),
    ("bans that are none", {"SANDBOX_PYTHON_BANNED_HOSTS": "127.0.0.0/8,::/0,0.0.0.0/32,10.1.2.3,maxkb,.*\\.example"},
     "def f(): return 1", value(1)),
    ("an unknown network", {"NSBOX_NETWORK": "all"}, "def f(): return 1",
     error_like(lambda m: "MAXKB_NSBOX_NETWORK is 'all', not open or none" in m)),
    ("package paths", {"SANDBOX_PYTHON_PACKAGE_PATHS": "/opt/standin/three"},
     "import sys\ndef f(): return [p for p in sys.path if 'standin' in p]", value(["/opt/standin/three"])),
    ("an interpreter that the image lacks", {"NSBOX_PYTHON": "/opt/standin/python"}, "def f(): return 1",
     error_like(lambda m: "/opt/standin/python" in m and "No such file" in m)),
    ("an image that is not there", {"NSBOX_IMAGE": "standin"}, "def f(): return 1",
     error_like(lambda m: m.startswith("nsbox") and "standin" in m)),
    ("MaxKB's own executor", {"TOOL_EXECUTOR_BACKEND": "local"}, "def f(): return 1",
     value("run by MaxKB itself")),
    ("an unknown executor", {"TOOL_EXECUTOR_BACKEND": "docker"}, "def f(): return 1",
     error("nsbox does not run this: MAXKB_TOOL_EXECUTOR_BACKEND is 'docker', not nsbox or local")),
    ("a limit that is no number", {"SANDBOX_PYTHON_PROCESS_LIMIT_MEM_MB": "a lot"}, "def f(): return 1",
     error_like(lambda m: "SANDBOX_PYTHON_PROCESS_LIMIT_MEM_MB is 'a lot', not a number" in m)),
    ("an unknown behaviour", {"NSBOX_COMPAT": "all"}, "def f(): return 1",
     error_like(lambda m: "MAXKB_NSBOX_COMPAT names 'all'" in m)),
    ("no service", {"NSBOX_SOCKET": "/nonexistent/nsbox.sock"}, "def f(): return 1",
     error("nsbox did not run the tool: the service at /nonexistent/nsbox.sock cannot be reached (No such file or "
           "directory); start nsboxd, or set MAXKB_TOOL_EXECUTOR_BACKEND=local to have MaxKB's own executor back.")),
    ("no service on TCP", {"NSBOX_URL": "http://127.0.0.1:9"}, "def f(): return 1",
     error_like(lambda m: "http://127.0.0.1:9 cannot be reached (Connection refused)" in m)),
    ("no token", {"NSBOX_URL": "http://127.0.0.1:9", "NSBOX_TOKEN_FILE": "/nonexistent/token"}, "def f(): return 1",
     error_like(lambda m: "token file /nonexistent/token cannot be read" in m)),
    ("more memory than any host has", {"SANDBOX_PYTHON_PROCESS_LIMIT_MEM_MB": "900000000"}, "def f(): return 1",
     error_like(lambda m: m.startswith("nsbox did not run the tool: /"))),
]


def test_settings(t):
    for name, variables, code, good in SETTINGS:
        with start(**variables) as other:
            answer = other.call(code)
            t.ok(good(answer), "settings: " + name, str(answer)[:1000] + "\n" + other.end())


def test_tcp(t):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    tokens, good, bad = (os.path.join(place, name) for name in ("tokens", "good", "bad"))
    for path, text in ((tokens, "maxkb  %s\n" % ("t" * 40)), (good, "t" * 40 + "\n"), (bad, "f" * 40 + "\n")):
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        os.chmod(path, 0o600)
    url = "http://127.0.0.1:%d" % port
    with service.Daemon(options=["--tcp", "127.0.0.1:%d" % port, "--tokens", tokens]):
        with start(NSBOX_URL=url, NSBOX_TOKEN_FILE=good) as other:
            t.equal(other.call("def f(): return 6 * 7"), {"value": 42}, "by TCP, with a token")
        with start(NSBOX_URL=url, NSBOX_TOKEN_FILE=bad) as other:
            answer = other.call("def f(): return 1")
            t.ok(answer.get("error", "").startswith("nsbox did not run the tool: ") and "token" in answer["error"],
                 "with another one: refused", str(answer))
        by_hand(t, url)


def by_hand(t, url):
    """A runner outside the container is asked over HTTP, without the drop-in."""
    def ask(path, body, token="t" * 40, **headers):
        request = urllib.request.Request(url + path, json.dumps(body).encode(), dict(
            headers, **{"Content-Type": "application/json", "Authorization": "Bearer " + token}))
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code

    common = {"workspace_id": "maxkb", "trace_id": "t-1", "timeout_seconds": 20, "resources": {"cpu": 1, "memory_mb": 128},
              "network_policy": {"mode": "none", "allow": []}}
    body = dict(common, code="def f(a): return 1\ndef g(a):\n print('said')\n return {'值': a}", function_name="g", params={"a": 2})
    got = ask("/v1/execute/python-function", body)
    t.equal([got.get(key) for key in ("code", "data", "stdout", "stderr")], [200, {"值": 2}, "said\n", ""], "a function, by HTTP alone")
    t.ok(got["duration_ms"] > 0 and got["sandbox_id"] and "msg" in got, "and what is told of it", str(got))
    got = ask("/v1/execute/python-function", dict(body, function_name="h", trace_id="t-2"))
    t.equal([got["code"], got["data"], got["msg"]], [500, None, "'NoneType' object is not callable"], "its error")
    t.equal(ask("/v1/execute/python-function", body, "f" * 40), 401, "a token that is none")
    body = {"session_id": "chat", "command": "cat in.txt; echo $A; pwd", "cwd": "/workspace/d", "timeout_seconds": 20,
            "env": {"A": "b"}, "files": [{"path": "d/in.txt", "content_base64": "eAo="}]}
    t.equal(ask("/v1/execute/command", body)["stdout"], "x\nb\n/workspace/d\n", "a command in a session")
    t.equal(ask("/v1/execute/command", {"session_id": "chat", "command": "cat d/in.txt"})["stdout"], "x\n", "which is kept")
    hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    t.equal([ask("/mcp/tools/none", hello), ask("/mcp/tools/none", hello, "f" * 40)], [404, 401], "tools by MCP: with the token alone")


def test_start(t):
    with start(SANDBOX_PYTHON_ALLOW_DL_OPEN="1") as other:
        said = other.end()
    # The service of the test grants no network but by name.
    with start() as other:
        other.call("def f(): return 1")
        t.ok("tools and skills have no network: /manifest/network/mode" in other.end(), "what the service grants is said")
    with start(NSBOX_NETWORK="open") as other:
        answer = other.call("def f(): return 1")
        t.ok("ceiling" in answer.get("error", ""), "asked for and not granted: refused", str(answer))
    t.ok("nsbox: tools and MCP servers run in nsbox, by the service at " + daemon.socket in said,
         "the start says that tools run in nsbox", said)
    t.ok("MAXKB_SANDBOX_PYTHON_ALLOW_DL_OPEN has no effect: ctypes and cffi load libraries" in said,
         "and why a variable has no effect", said)
    with start(TOOL_EXECUTOR_BACKEND="local") as other:
        said = other.end()
    t.ok("MaxKB's own executor" in said and "NSBOX" not in said, "a switch back is said as well", said)


def changed(name, *replacements):
    """A copy of the stand-ins in which the executor has another shape."""
    apps = os.path.join(place, name)
    shutil.copytree(os.path.join(maxkb.STANDINS, "apps"), apps, ignore=shutil.ignore_patterns("__pycache__"))
    path = os.path.join(apps, "common", "utils", "tool_code.py")
    with open(path, encoding="utf-8") as f:
        text = f.read()
    for old, new in replacements:
        assert old in text
        text = text.replace(old, new)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return apps


def test_shapes(t):
    rows = [("two", [(", function_name=None", "")], value(1), "run in nsbox"),
            ("four", [("function_name=None", "function_name=None, tenant=None")],
             error_like(lambda m: "takes (code_str, keywords, function_name, tenant)" in m), "NOT READY"),
            ("built", [("def __init__(self):", "def __init__(self, sandbox=False):")],
             error_like(lambda m: "ToolExecutor() takes arguments" in m), "NOT READY")]
    for name, replacements, good, said in rows:
        with maxkb.MaxKB(site, changed(name, *replacements), NSBOX_SOCKET=daemon.socket) as other:
            answer = other.call("def f(): return 1")
            log = other.end()
        t.ok(good(answer) and said in log, "shape: " + name, "%s\n%s" % (answer, log))


def test_sourceless(t):
    apps = maxkb.sourceless(os.path.join(maxkb.STANDINS, "apps"), os.path.join(place, "sourceless"))
    with maxkb.MaxKB(site, apps, NSBOX_SOCKET=daemon.socket) as other:
        t.equal(other.call("def f(): return 6 * 7"), {"value": 42}, "modules without source are patched")


def test_manual(t):
    """docs/maxkb*.md have what `python3 -m nsbox_maxkb variables` says."""
    done = subprocess.run([sys.executable, "-m", "nsbox_maxkb", "variables"], cwd=maxkb.PACKAGE, capture_output=True,
                          text=True, check=True)
    keys = re.findall(r"^MAXKB_(\w+)", done.stdout, re.M)
    t.ok(len(keys) > 20, "there are variables", done.stdout)
    for page in ("maxkb.md", "maxkb.zh-CN.md"):
        with open(os.path.join(paths.ROOT, "docs", page), encoding="utf-8") as f:
            text = f.read()
        t.equal([key for key in keys if "| `%s` |" % key not in text], [], "%s has them all" % page)
    with open(os.path.join(paths.ROOT, "docs", "maxkb.md"), encoding="utf-8") as f:
        text = f.read()
    words = re.findall(r"^    ([a-z ]+): (.*)$", done.stdout, re.M)
    t.equal([w for w in words if "| %s | %s |" % w not in text], [], "in the same words")


def test_check(t):
    env = dict(os.environ, MAXKB_NSBOX_SOCKET=daemon.socket, MAXKB_NSBOX_PYTHON="/usr/bin/python3")
    check = [sys.executable, "-m", "nsbox_maxkb", "check"]
    done = subprocess.run(check, cwd=maxkb.PACKAGE, env=env, capture_output=True, text=True, check=False)
    t.ok(done.returncode == 0 and re.search(r"^a tool ran +Python 3", done.stdout, re.M) and "seccomp" in done.stdout,
         "check: a tool ran, and what held it", done.stdout + done.stderr)
    env["MAXKB_NSBOX_SOCKET"] = "/nonexistent"
    done = subprocess.run(check, cwd=maxkb.PACKAGE, env=env, capture_output=True, text=True, check=False)
    t.ok(done.returncode == 1 and "cannot be reached" in done.stdout, "check: no service", done.stdout)


def test_uninstalled(t):
    other_site = maxkb.install(os.path.join(place, "site-2"), os.path.join(place, "package"))
    with maxkb.MaxKB(other_site, NSBOX_SOCKET=daemon.socket) as other:
        t.equal(other.call("def f(): return 1"), {"value": "run by MaxKB itself"},
                "a .pth file whose package is gone does nothing")
        t.equal(other.end(), "", "and says nothing")
    empty = os.path.join(place, "site-3")
    os.mkdir(empty)
    with maxkb.MaxKB(empty, NSBOX_SOCKET=daemon.socket) as other:
        t.equal(other.call("def f(): return 1"), {"value": "run by MaxKB itself"}, "nor does none")


def main():
    global daemon, server, site
    leftovers.become_subreaper()
    site = maxkb.install(os.path.join(place, "site"))
    # As many as MaxKB's server has threads: each call has to get its answer, whoever waits.
    with service.Daemon() as daemon, start() as server:
        status = tap.run([test_golden, test_many, test_settings, test_tcp, test_start, test_shapes, test_sourceless,
                          test_manual, test_check, test_uninstalled])
        if status:
            sys.stderr.write(daemon.log()[-3000:])
    return status


if __name__ == "__main__":
    sys.exit(main())
