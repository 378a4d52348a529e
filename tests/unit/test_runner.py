#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TAP: the Python runner on its own, outside any sandbox: one table of calls and outcomes."""
import base64
import json
import os
import struct
import subprocess
import sys

RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../nsbox/runner/python.py")


def wire(request, result):
    """Descriptors 3 and 4 for the child; both may sit on one of these numbers already."""
    high_request, high_result = (os.dup2(fd, n) for fd, n in ((request, 50), (result, 51)))
    os.dup2(high_request, 3)
    os.dup2(high_result, 4)
    os.closerange(5, 60)


def run(code, params=None, function=None, **more):
    request = {"code": code, "function": function, "params": params or {}, "memory_mb": 256,
               "noexec": None, "compat": []}
    request.update(more)
    fd = os.memfd_create("request")
    os.write(fd, json.dumps(request).encode())
    os.lseek(fd, 0, os.SEEK_SET)
    reader, writer = os.pipe()
    child = subprocess.Popen([sys.executable, "-I", RUNNER], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, close_fds=False,
                             preexec_fn=lambda: wire(fd, writer))
    os.close(writer)
    os.close(fd)
    with os.fdopen(reader, "rb") as stream:
        frame = stream.read()
    out, err = child.communicate()
    return child.returncode, frame.decode(), out.decode(), err.decode()


def ok(value):
    text = json.dumps(value, ensure_ascii=True)
    return lambda status, frame, out, err: status == 0 and frame == '{"ok":true,"value":%s}' % text


def fails(message):
    return lambda status, frame, out, err: (
        status == 0 and json.loads(frame) == {"ok": False, "msg": message})


def starts(prefix):
    return lambda status, frame, out, err: (
        frame.startswith('{"ok":true,') and json.loads(frame)["value"].startswith(prefix))


def no_result(status_wanted, err_wanted):
    return lambda status, frame, out, err: (
        frame == "" and status == status_wanted and err_wanted in err)


# ld [nr]; execve or execveat -> errno 13 (EACCES); else allow. x86-64 numbers.
NUMBERS = {"x86_64": (59, 322), "aarch64": (221, 281)}[os.uname().machine]
NOEXEC = base64.b64encode(b"".join(struct.pack("<HBBI", *i) for i in (
    (0x20, 0, 0, 0), (0x15, 1, 0, NUMBERS[0]), (0x15, 0, 1, NUMBERS[1]),
    (0x06, 0, 0, 0x0005000D), (0x06, 0, 0, 0x7FFF0000)))).decode()
START = "import subprocess\ndef f():\n return subprocess.run(['true']).returncode"
CATCH = """
import subprocess
def f():
    try: subprocess.run(['true'])
    except PermissionError as e: return 'caught'
"""
THREAD = """
import subprocess, threading
def f():
    out = []
    def g():
        try: subprocess.run(['true']); out.append('ran')
        except PermissionError: out.append('refused')
    t = threading.Thread(target=g); t.start(); t.join()
    return out
"""
FORKED = "import os\ndef f():\n    pid = os.fork()\n    if pid: os.waitpid(pid, 0)\n    return bool(pid)"

# name, code, keyword arguments of run(), what has to come back
TABLE = [
    ("one function", "def foo(a): return a + 1", {"params": {"a": 1}}, ok(2)),
    ("the last of several", "def a(): return 1\ndef b(): return 2", {}, ok(2)),
    ("a redefined name keeps its place", "def a(): return 1\ndef b(): return 2\ndef a(): return 3",
     {}, ok(2)),
    ("a helper further down", "def a(): return b()\ndef b(): return 7", {"function": "a"}, ok(7)),
    ("ends with a number", "def f(): pass\nX=5", {}, fails("'int' object is not callable")),
    ("ends with an import", "def f(): pass\nimport json", {},
     fails("'module' object is not callable")),
    ("ends with a class", "class C:\n def __init__(self, a): self.a = a\n"
     " def __str__(self): return 'C%d' % self.a", {"params": {"a": 4}}, ok("C4")),
    ("ends with a lambda", "f = lambda a: a * 2", {"params": {"a": 4}}, ok(8)),
    ("recursion of the last", "def f(n): return 1 if n < 2 else n * f(n - 1)",
     {"params": {"n": 5}}, ok(120)),
    ("recursion, compat", "def f(n): return 1 if n < 2 else n * f(n - 1)",
     {"params": {"n": 5}, "compat": ["recursion"]}, fails("name 'f' is not defined")),
    ("recursion by name, compat", "def f(n): return 1 if n < 2 else n * f(n - 1)",
     {"params": {"n": 5}, "function": "f", "compat": ["recursion"]}, ok(120)),
    ("unknown function", "def f(): pass", {"function": "g"},
     fails("'NoneType' object is not callable")),
    ("empty code", "", {}, fails("'popitem(): dictionary is empty'")),
    ("a comment alone, compat", "# nothing", {"compat": ["recursion"]},
     fails("'popitem(): dictionary is empty'")),
    ("extra argument", "def f(): pass", {"params": {"b": 1}},
     fails("f() got an unexpected keyword argument 'b'")),
    ("missing argument", "def f(b): pass", {},
     fails("f() missing 1 required positional argument: 'b'")),
    ("Chinese keys and values", "def f(**k): return k", {"params": {"金额": ["负", 1.5, None]}},
     ok({"金额": ["负", 1.5, None]})),
    ("big integer argument", "def f(a): return a + 1", {"params": {"a": 10 ** 40}},
     ok(10 ** 40 + 1)),
    ("nan argument", "def f(a): return a != a", {"params": {"a": float("nan")}}, ok(True)),
    ("tuple", "def f(): return 1, 2", {}, ok([1, 2])),
    ("set", "def f(): return {1}", {}, ok("{1}")),
    ("bytes", "def f(): return b'ab'", {}, ok("b'ab'")),
    ("datetime", "import datetime\ndef f(): return datetime.datetime(2020, 1, 1)", {},
     ok("2020-01-01 00:00:00")),
    ("generator", "def f(): yield 1", {}, starts("<generator object f at ")),
    ("coroutine", "async def f(): return 1", {}, starts("<coroutine object f at ")),
    ("odd keys", "def f(): return {1: 1, True: 2, None: 3, 1.5: 4}", {},
     ok({"1": 2, "null": 3, "1.5": 4})),
    ("tuple key", "def f(): return {(1, 2): 3}", {},
     fails("keys must be str, int, float, bool or None, not tuple")),
    ("circular list", "def f():\n a = []\n a.append(a)\n return a", {},
     fails("Circular reference detected")),
    ("nan and infinity", "def f(): return [float('nan'), float('inf'), -float('inf')]", {},
     lambda status, frame, out, err: frame == '{"ok":true,"value":[NaN, Infinity, -Infinity]}'),
    ("surrogate, emoji, Chinese", "def f(): return '\\ud800😀错'", {}, ok("\ud800😀错")),
    ("print stays on stdout", "def f():\n print('{\"ok\":false}')\n return 1", {},
     lambda status, frame, out, err: frame == '{"ok":true,"value":1}' and out == '{"ok":false}\n'),
    ("error text", "def f(a): raise ValueError('金额不能为负: %s' % a)", {"params": {"a": -5}},
     fails("金额不能为负: -5")),
    ("empty error", "def f(): raise ValueError()", {}, fails("")),
    ("KeyError", "def f(): raise KeyError('k')", {}, fails("'k'")),
    ("error in __str__", "class E(Exception):\n def __str__(self): return 1/0\n"
     "def f(): raise E", {}, fails("E")),
    ("syntax error", "def", {}, fails("invalid syntax (<string>, line 1)")),
    ("error at top level", "import nosuchmodule", {}, fails("No module named 'nosuchmodule'")),
    ("MemoryError", "def f(): raise MemoryError", {},
     fails("Cannot allocate more memory: exceeded the limit of 256 MB.")),
    ("sys.exit(0)", "import sys\ndef f(): sys.exit(0)", {}, no_result(0, "")),
    ("os._exit(0)", "import os\ndef f(): os._exit(0)", {}, no_result(0, "")),
    ("sys.exit(3)", "import sys\ndef f(): sys.exit(3)", {}, no_result(3, "")),
    ("sys.exit('bye')", "import sys\ndef f(): sys.exit('bye')", {}, no_result(1, "bye\n")),
    ("KeyboardInterrupt", "def f(): raise KeyboardInterrupt", {},
     no_result(-2, "Traceback (most recent call last):")),
    ("indented source", "    import math\n    R = 2\n    def f(a):\n        return a * R\n",
     {"params": {"a": 4}}, ok(8)),
    ("blank lines in indented source", "  x = '''\n   \n  '''\n  def f():\n      return x\n", {},
     ok("\n\n")),
    ("names", "X = 1\ndef f(): return [__name__, 'X' in globals(), 'f' in globals()]", {},
     ok(["builtins", True, True])),
    ("environment stays", "import os\ndef f(): return 'PATH' in os.environ", {}, ok(True)),
    ("environment, compat", "import os\ndef f(): return dict(os.environ)", {"compat": ["environment"]},
     ok({})),
    ("arguments as an expression", "def f(**k): return [type(v).__name__ for v in k.values()]",
     {"expression": "{'a': (1, 2), 'b': b'x', 'c': {1: None}, 'd': '\\ud800\\x00'}"},
     ok(["tuple", "bytes", "dict", "str"])),
    ("an expression of what has no name", "def f(a): return a", {"expression": "{'a': nan}"},
     fails("name 'nan' is not defined")),
    ("an expression that is none", "def f(a): return a", {"expression": "{'a': <object>}"},
     fails("invalid syntax (<string>, line 1)")),
    ("more directories of modules", "import sys\ndef f(): return sys.path[-3:-1]",
     {"path": ["/nowhere/a", "/nowhere/b"]}, ok(["/nowhere/a", "/nowhere/b"])),
    ("a directory that is there already", "import sys\ndef f(): return sys.path.count(sys.path[0])",
     {"path": sys.path[1:2]}, ok(1)),
    ("the result's descriptor is closed to programs",
     "import os, subprocess\ndef f(): return [os.path.exists('/proc/self/fd/4'), subprocess.run("
     "['sh', '-c', 'test -e /proc/$$/fd/4'], close_fds=False).returncode]", {}, ok([True, 1])),
    ("no request left open", "import os\ndef f():\n try: os.fstat(3)\n except OSError: return 1",
     {}, ok(1)),
    ("a forked child has no say", FORKED, {}, ok(True)),
    ("a program runs", START, {}, ok(0)),
    ("noexec refuses it", START, {"noexec": NOEXEC},
     lambda status, frame, out, err: "Permission denied" in json.loads(frame)["msg"]),
    ("noexec can be caught", CATCH, {"noexec": NOEXEC}, ok("caught")),
    ("noexec holds in a thread", THREAD, {"noexec": NOEXEC}, ok(["refused"])),
    ("noexec, compat", START, {"noexec": NOEXEC, "compat": ["subprocess"]},
     no_result(126, "Permission denied to create subprocess.\n")),
    ("a filter that cannot be had is an error", "def f(): return 1", {"noexec": "AAAA"},
     fails("the filter that forbids programs is not in force: "
           "the filter is not a whole number of instructions")),
    ("a malformed filter is an error", "def f(): return 1",
     {"noexec": base64.b64encode(b"\0" * 8).decode()},
     fails("the filter that forbids programs is not in force: "
           "[Errno 22] the filter could not be installed")),
    ("20 MB", "def f(): return 'x' * 20000000", {}, ok("x" * 20000000)),
    ("large code and argument", "def f(t):\n pad = '%s'\n return len(t) + len(pad)" % ("p" * 200000),
     {"params": {"t": "A" * 300000}}, ok(500000)),
]


def main():
    print("1..%d" % len(TABLE))
    bad = 0
    for number, (name, code, arguments, holds) in enumerate(TABLE, 1):
        got = run(code, **arguments)
        if holds(*got):
            print("ok %d - %s" % (number, name))
            continue
        bad += 1
        print("not ok %d - %s\n# got %s" % (number, name, [str(g)[:300] for g in got]))
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
