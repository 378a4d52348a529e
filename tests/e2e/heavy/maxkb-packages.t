#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The drop-in for MaxKB under its default limits (256 MB, one processor): packages of Debian's that tools
want, what the standard library offers, and a skill with programs, on each tier. MaxKB's own sandbox broke most of it."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, maxkb, paths, tap, tiers

place = paths.scratch("nsbox-maxkb-heavy-")
site = None
tier = None
server = None

# name, body of f(), value
TOOLS = [
    ("numpy", "import numpy as np\n return float((np.ones((200, 200)) @ np.ones((200, 200))).sum())", 8e6),
    ("pandas", "import pandas as pd\n d = pd.DataFrame({'城市': ['甲', '乙', '甲'], 'n': [1, 2, 3]})\n"
     " return d.groupby('城市')['n'].sum().to_dict()", {"乙": 2, "甲": 4}),
    ("cryptography", "from cryptography.fernet import Fernet\n k = Fernet(Fernet.generate_key())\n"
     " return k.decrypt(k.encrypt('密'.encode())).decode()", "密"),
    ("ctypes", "import ctypes\n return ctypes.CDLL(None).abs(-5)", 5),
    ("cffi", "import cffi\n f = cffi.FFI()\n f.cdef('int abs(int);')\n return f.dlopen(None).abs(-5)", 5),
    ("matplotlib, Chinese", "import matplotlib\n matplotlib.use('Agg')\n import matplotlib.pyplot as plt, warnings\n"
     " plt.rcParams['font.sans-serif'] = ['WenQuanYi Micro Hei']\n"
     " with warnings.catch_warnings(record=True) as w:\n  warnings.simplefilter('always')\n"
     "  plt.title('营业额'); plt.plot([1, 2]); plt.savefig('p.png')\n"
     " return [open('p.png', 'rb').read(4) == b'\\x89PNG', [str(x.message) for x in w if 'lyph' in str(x.message)]]",
     [True, []]),
    ("multiprocessing", "import multiprocessing as m\n with m.Pool(2) as p: return p.map(abs, [-1, -2, -3])", [1, 2, 3]),
    ("asyncio with a child", "import asyncio\n async def g():\n  p = await asyncio.create_subprocess_exec('echo', 'x', "
     "stdout=-1)\n  return (await p.communicate())[0].decode()\n return asyncio.run(g())", "x\n"),
    ("asyncio, server and client", "import asyncio\n async def g():\n  async def on(r, w):\n   w.write(await r.read(2)); "
     "w.close()\n  s = await asyncio.start_server(on, '127.0.0.1', 0)\n  r, w = await asyncio.open_connection("
     "*s.sockets[0].getsockname())\n  w.write(b'ab')\n  return (await r.read()).decode()\n return asyncio.run(g())", "ab"),
    ("sqlite3, write-ahead log", "import sqlite3\n d = sqlite3.connect('a.db')\n d.execute('pragma journal_mode=wal')\n"
     " d.execute('create table t(a)'); d.execute(\"insert into t values('值')\"); d.commit()\n"
     " return d.execute('select a from t').fetchone()[0]", "值"),
    ("lxml", "from lxml import etree\n return etree.fromstring('<a><b>值</b></a>').findtext('b')", "值"),
    ("PIL", "from PIL import Image\n Image.new('RGB', (9, 8)).save('a.png')\n return Image.open('a.png').size", [9, 8]),
    ("openpyxl", "import openpyxl\n b = openpyxl.Workbook(); b.active['A1'] = '值'; b.save('a.xlsx')\n"
     " return openpyxl.load_workbook('a.xlsx').active['A1'].value", "值"),
    ("docx", "import docx\n d = docx.Document(); d.add_paragraph('值'); d.save('a.docx')\n"
     " return docx.Document('a.docx').paragraphs[0].text", "值"),
    ("20 threads", "import threading\n e = threading.Event()\n t = [threading.Thread(target=e.wait) for _ in range(20)]\n"
     " [x.start() for x in t]; e.set(); [x.join() for x in t]\n return len(t)", 20),
    ("subprocess", "import subprocess\n return subprocess.run('echo a | tr a b', shell=True, capture_output=True, "
     "text=True).stdout", "b\n"),
    ("ssl", "import ssl\n return len(ssl.create_default_context().get_ca_certs()) > 50", True),
    ("time zones", "import zoneinfo, datetime\n return datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("
     "'Asia/Shanghai')).utcoffset().seconds", 28800),
    ("temporary files", "import tempfile\n f = tempfile.NamedTemporaryFile('w+')\n f.write('x'); f.flush()\n"
     " return open(f.name).read()", "x"),
]

# What the tier "process" wants besides, as docs/maxkb.md says for kit a: put before the body or the command.
BESIDES = {"matplotlib, Chinese": "import os; os.environ['HOME'] = os.getcwd()\n ", "git": "export GIT_CONFIG_NOSYSTEM=1; "}
# And what it cannot do: no sockets.
LESS = ["asyncio, server and client"]

WHEEL = """
mkdir -p src/mypack && echo 'X = 7' > src/mypack/__init__.py
printf '[project]\\nname = "mypack"\\nversion = "1"\\n[build-system]\\nrequires = []\\nbuild-backend = "setuptools.build_meta"\\n' > src/pyproject.toml
python3 -m pip wheel -q --no-build-isolation --no-index --no-deps -w . ./src 2>&1 &&
python3 -m pip install -q --no-index --break-system-packages --target site mypack-1-py3-none-any.whl 2>&1 &&
PYTHONPATH=site python3 -c 'import mypack; print(mypack.X)'
"""

# name, command, last line of the output
COMMANDS = [
    ("pip: a wheel built and installed", WHEEL, "7"),
    ("what it installed is there for the next command", "PYTHONPATH=site python3 -c 'import mypack; print(mypack.X)'", "7"),
    ("ffmpeg", "ffmpeg -v error -f lavfi -i testsrc=d=0.2:s=64x64 -f null - && echo done", "done"),
    ("a program of the skill, linked dynamically", "skills/s/dynamic", "dynamic"),
    ("and statically", "skills/s/static", "static"),
    ("node", "node -e 'console.log(1 + 1)'", "2"),
    ("git", "git init -q r && cd r && git -c user.name=a -c user.email=b commit -q --allow-empty -m x && git log --format=%s", "x"),
]


def test_tools(t):
    for name, body, want in TOOLS:
        besides = BESIDES.get(name, "") if tier == "process" else ""
        answer = server.call("def f():\n " + besides + body)
        if tier == "process" and name in LESS:
            t.ok("error" in answer, "%s: not without a network namespace" % name, str(answer))
            continue
        t.equal(answer, {"value": want}, name)


def test_skill(t):
    root = os.path.join(place, "chat-" + tier)
    skill = os.path.join(root, "skills", "s")
    os.makedirs(skill)
    for name, flags in (("dynamic", []), ("static", ["-static"])):
        subprocess.run(["cc", *flags, "-x", "c", "-", "-o", os.path.join(skill, name)], check=True,
                       input=b'#include <stdio.h>\nint main(void) { puts("%s"); }\n' % name.encode())
        os.chmod(os.path.join(skill, name), 0o644)
    for name, command, want in COMMANDS:
        besides = BESIDES.get(name, "") if tier == "process" else ""
        got = server.tell({"shell": besides + command, "root": root})["value"]
        lines = got["output"].split("\n")
        t.ok(got["exit_code"] == 0 and want in lines, name, str(got)[:1500])


def use(name, service):
    global tier, server
    end()
    tier = name
    server = maxkb.MaxKB(site, NSBOX_SOCKET=service.socket, NSBOX_PYTHON="/usr/bin/python3")


def end():
    if server:
        server.end()


def main():
    global site
    leftovers.become_subreaper()
    site = maxkb.install(os.path.join(place, "site"))
    try:
        return tap.run(tiers.each(place, [test_tools, test_skill], use))
    finally:
        end()


if __name__ == "__main__":
    sys.exit(main())
