# SPDX-License-Identifier: Apache-2.0
"""What MaxKB's executor makes of code, as its callers know it."""

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
    ("generator", "def f(): yield 1", "{}", {}, lambda a: str(a.get("value")).startswith("<generator object f at ")),
    ("coroutine", "async def f(): return 1", "{}", {}, lambda a: str(a.get("value")).startswith("<coroutine object f at ")),
    ("odd keys", "def f(): return {1: 2, True: 3, None: 4}", "{}", {}, value({"1": 3, "null": 4})),
    ("tuple key", "def f(): return {(1, 2): 3}", "{}", {},
     error("keys must be str, int, float, bool or None, not tuple")),
    ("circular list", "def f():\n a = []\n a.append(a)\n return a", "{}", {},
     error("Circular reference detected")),
    ("nan and infinity", "def f(): return [float('nan'), float('inf')]", "{}", {},
     lambda a: "value" in a and a["value"][0] != a["value"][0] and a["value"][1] == float("inf")),
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
     lambda a: "value" in a and a["value"][:2] == [True, True] and 0 not in a["value"][2]),
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


def outcomes(server, rows=None):
    """(name, whether it is right, what came back) of each, asked by a few threads at once."""
    rows = rows or GOLDEN
    answers = server.tell({"calls": [dict(more, call=code, keywords=keywords) for _, code, keywords, more, _ in rows]})
    for (name, _, _, _, good), answer in zip(rows, answers):
        yield name, good(answer), str(answer)[:1000]


def many(server):
    """As many calls at once as MaxKB's server has threads; what came back that is not its own answer."""
    answers = server.tell({"many": 200, "code": "def f(n): return n * n"})
    return [(n, answer) for n, answer in enumerate(answers) if answer != {"value": n * n}]
