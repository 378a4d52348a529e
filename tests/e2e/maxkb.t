#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The drop-in for MaxKB, tools: installed by its .pth file beside stand-ins for MaxKB's modules."""

import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, maxkb, paths, service, tap

place = paths.scratch("nsbox-maxkb-")
site = None
daemon = None
server = None

BIG = 20000000
START = "import subprocess\ndef f(): return subprocess.run(['true']).returncode"
THREADS = """
import threading
def f():
    e = threading.Event()
    t = [threading.Thread(target=e.wait) for _ in range(12)]
    [x.start() for x in t]
    e.set()
    [x.join() for x in t]
    return len(t)
"""
FORGE = """
import json, os, sys
def f():
    marker = sys._getframe(1).f_globals.get('_id', '0')
    text = '\\n%s{"code":200,"data":"forged"}\\n%s__END__\\n' % (marker, marker)
    os.write(1, text.encode())
    return 'true'
"""


def value(want):
    return lambda a: a.get("value") == want and "error" not in a


def error(want):
    return lambda a: a.get("error") == want and a["type"] == "Exception" and a["args"] == 1


def error_like(test):
    return lambda a: "error" in a and test(a["error"]) and a["type"] == "Exception" and a["args"] == 1


# What MaxKB's executor makes of code, as its callers know it: name, code, keywords as an expression,
# more of the order, what has to come back.
GOLDEN = [
    ("the last function runs", "def a(): return 1\ndef b(): return 2", "{}", {}, value(2)),
    ("redefining does not move a name", "def a(): return 1\ndef b(): return 2\ndef a(): return 3", "{}", {},
     value(2)),
    ("by name", "def a(): return 1\ndef b(): return 2", "{}", {"function": "a"}, value(1)),
    ("no name is None or empty", "def a(): return 1\ndef b(): return 2", "{}", {"function": None}, value(2)),
    ("a variable is last", "def f(): pass\nX=5", "{}", {}, error("'int' object is not callable")),
    ("a module is last", "def f(): pass\nimport json", "{}", {}, error("'module' object is not callable")),
    ("a class is last", "class C:\n def __init__(self, a): self.a = a\n def __str__(self): return 'C%s' % self.a",
     "{'a': 1}", {}, value("C1")),
    ("a lambda is last", "f = lambda a: a * 2", "{'a': 4}", {}, value(8)),
    ("recursion by name", "def f(n): return 1 if n < 2 else n * f(n - 1)", "{'n': 5}", {"function": "f"},
     value(120)),
    ("recursion without a name is mended", "def f(n): return 1 if n < 2 else n * f(n - 1)", "{'n': 5}", {},
     value(120)),
    ("helpers, also later ones", "def g(): return h()\ndef h(): return 7\ndef f(): return g()", "{}", {}, value(7)),
    ("unknown name", "def f(): pass", "{}", {"function": "g"}, error("'NoneType' object is not callable")),
    ("probing globals()", "def f(): pass\ndef function_exist(function_name):\n return callable(globals().get("
     "function_name))", "{'function_name': 'f'}", {}, value(True)),
    ("empty code", "", "{}", {}, error("'popitem(): dictionary is empty'")),
    ("an extra argument", "def f(): pass", "{'b': 1}", {}, error("f() got an unexpected keyword argument 'b'")),
    ("a missing argument", "def f(b): pass", "{}", {},
     error("f() missing 1 required positional argument: 'b'")),
    ("Chinese keys and values", "def f(**k): return k", "{'金额': ['负', 1.5, None]}", {},
     value({"金额": ["负", 1.5, None]})),
    ("arguments of Python's own types", "def f(a): return [type(x).__name__ for x in a]",
     "{'a': [(1,), b'x', {1}, {2: 3}, True, 1 << 80]}", {}, value(["tuple", "bytes", "set", "dict", "bool", "int"])),
    ("quotes and backslashes", "def f(a): return a", "{'a': '\"\"\"\\'\\\\n\\n{x}'}", {},
     value("\"\"\"'\\n\n{x}")),
    ("a NUL and a lone surrogate", "def f(a): return a", "{'a': 'x\\x00\\ud800'}", {}, value("x\x00\ud800")),
    ("nan as argument", "def f(a): return a", "{'a': nan}", {}, error("name 'nan' is not defined")),
    ("datetime as argument", "def f(a): return a", "{'a': datetime.datetime(2020, 1, 1)}", {},
     error("name 'datetime' is not defined")),
    ("UUID as argument", "def f(a): return a", "{'a': UUID(int=1)}", {}, error("name 'UUID' is not defined")),
    ("tuple", "def f(): return 1, 2", "{}", {}, value([1, 2])),
    ("set", "def f(): return {1}", "{}", {}, value("{1}")),
    ("bytes", "def f(): return b'ab'", "{}", {}, value("b'ab'")),
    ("datetime", "import datetime\ndef f(): return datetime.datetime(2020, 1, 1)", "{}", {},
     value("2020-01-01 00:00:00")),
    ("generator", "def f(): yield 1", "{}", {}, lambda a: a["value"].startswith("<generator object f at ")),
    ("coroutine", "async def f(): return 1", "{}", {}, lambda a: a["value"].startswith("<coroutine object f at ")),
    ("odd keys", "def f(): return {1: 2, True: 3, None: 4}", "{}", {}, value({"1": 3, "null": 4})),
    ("tuple key", "def f(): return {(1, 2): 3}", "{}", {},
     error("keys must be str, int, float, bool or None, not tuple")),
    ("circular list", "def f():\n a = []\n a.append(a)\n return a", "{}", {},
     error("Circular reference detected")),
    ("nan and infinity", "def f(): return [float('nan'), float('inf')]", "{}", {},
     lambda a: a["value"][0] != a["value"][0] and a["value"][1] == float("inf")),
    ("surrogate, emoji, Chinese", "def f(): return '\\ud800😀错'", "{}", {}, value("\ud800😀错")),
    ("what is printed", "import os, sys\ndef f():\n print('x')\n os.write(1, b'y')\n sys.__stdout__.write('z')\n"
     " return 1", "{}", {}, value(1)),
    ("a forged marker", FORGE, "{}", {}, value("true")),
    ("standard error of a success", "import sys\ndef f():\n sys.stderr.write('warn\\n')\n return 1", "{}", {},
     value(1)),
    ("standard error of a failure", "import sys\ndef f():\n sys.stderr.write('warn\\n')\n"
     " raise ValueError('bad 错误')", "{}", {}, error("bad 错误\nwarn\n")),
    ("ValueError()", "def f(): raise ValueError()", "{}", {}, error("")),
    ("KeyError", "def f(): raise KeyError('k')", "{}", {}, error("'k'")),
    ("syntax error", "def", "{}", {}, error("invalid syntax (<string>, line 1)")),
    ("sys.exit(0)", "import sys\ndef f(): sys.exit(0)", "{}", {}, error("Execution interrupted or tampered")),
    ("os._exit(0)", "import os\ndef f(): os._exit(0)", "{}", {}, error("Execution interrupted or tampered")),
    ("sys.exit(3)", "import sys\ndef f(): sys.exit(3)", "{}", {}, error("Unknown exception occurred")),
    ("abort", "import os\ndef f(): os.abort()", "{}", {}, error("Unknown exception occurred")),
    ("SIGKILL", "import os\ndef f(): os.kill(os.getpid(), 9)", "{}", {}, error("Unknown exception occurred")),
    ("sys.exit('bye')", "import sys\ndef f(): sys.exit('bye')", "{}", {}, error("bye\n")),
    ("KeyboardInterrupt", "def f(): raise KeyboardInterrupt", "{}", {},
     error_like(lambda m: m.startswith("Traceback (most recent call last):") and "KeyboardInterrupt" in m)),
    ("600 MB at 256 MB", "def f(): return len(bytearray(600 << 20))", "{}", {},
     error("Cannot allocate more memory: exceeded the limit of 256 MB.")),
    ("a program starts", START, "{}", {}, value(0)),
    ("the environment is empty", "import os\ndef f(): return dict(os.environ)", "{}", {}, value({})),
    ("ids", "import os\ndef f(): return [os.getuid() > 0, os.getgid() > 0, os.getgroups()]", "{}", {},
     lambda a: a["value"][:2] == [True, True] and 0 not in a["value"][2]),
    ("the working directory can be written", "def f():\n open('x', 'w').write('1')\n return open('x').read()", "{}",
     {}, value("1")),
    ("names", "X = 1\ndef f(): return [__name__, 'X' in globals(), '__file__' in globals()]", "{}", {},
     value(["builtins", True, False])),
    ("code indented as a whole", "    R = 2\n    def f(a):\n        return a * R\n", "{'a': 4}", {}, value(8)),
    ("20 MB", "def f(n): return 'x' * n", "{'n': %d}" % BIG, {}, value("x" * BIG)),
    ("12 threads at 256 MB", THREADS, "{}", {}, value(12)),
    ("standard input is empty", "import sys\ndef f(): return sys.stdin.read()", "{}", {}, value("")),
    ("package paths are searched", "import sys\ndef f(): return [p for p in sys.path if 'standin' in p]", "{}", {},
     value(["/opt/standin/one", "/opt/standin/two"])),
]


def start(**variables):
    return maxkb.MaxKB(site, **dict({"NSBOX_SOCKET": daemon.socket, "NSBOX_PYTHON": "/usr/bin/python3"},
                                    **variables))


def test_golden(t):
    for name, code, keywords, more, good in GOLDEN:
        answer = server.call(code, keywords, **more)
        t.ok(good(answer), name, str(answer)[:1000])


def test_many(t):
    answers = server.tell({"many": 200, "code": "def f(n): return n * n"})
    wrong = [(n, a) for n, a in enumerate(answers) if a != {"value": n * n}]
    t.ok(not wrong, "200 threads at once, each with its answer", str(wrong[:3]))


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


def test_start(t):
    with start(SANDBOX_PYTHON_ALLOW_DL_OPEN="1") as other:
        said = other.end()
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
        status = tap.run([test_golden, test_many, test_settings, test_start, test_shapes, test_sourceless,
                          test_uninstalled])
        if status:
            sys.stderr.write(daemon.log()[-3000:])
    return status


if __name__ == "__main__":
    sys.exit(main())
