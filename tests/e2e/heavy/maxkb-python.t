#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The drop-in for MaxKB in another Python than the host's: that of a newer Debian, in a root of its own, as
MaxKB's container has one. NSBOX_OTHER_ROOT names a root that is there already, with python3."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import docker, leftovers, maxkb, paths, service, tap
from nsboxtest.golden import GOLDEN

place = paths.scratch("nsbox-maxkb-python-")
SUITE = "trixie"
daemon = None
box = None
site = None


def other_root():
    given = os.environ.get("NSBOX_OTHER_ROOT")
    if given:
        return given
    root = os.path.join(place, "root")
    # Extracted and not configured: a Python is all that is wanted of it.
    subprocess.run(["mmdebstrap", "--variant=extract", "--include=python3", SUITE, root,
                    "http://deb.debian.org/debian"], check=True, stdout=sys.stderr)
    return root


def start(argv, env, **how):
    return box.start(argv, env, **how)


def server(**variables):
    return maxkb.MaxKB(site, python="/usr/bin/python3", start=start, NSBOX_SOCKET=os.path.join(daemon.dir, "nsbox.sock"),
                       NSBOX_PYTHON="/usr/bin/python3", **variables)


def test_version(t):
    version = box.run(["/usr/bin/python3", "--version"])[1].strip()
    own = "Python " + sys.version.split()[0]
    t.ok(version.startswith("Python 3.") and version.split(".")[:2] != own.split(".")[:2],
         "another Python than the host's: %s" % version, own)


def test_golden(t):
    with server() as other:
        for name, code, keywords, more, good in GOLDEN:
            answer = other.call(code, keywords, **more)
            t.ok(good(answer), name, str(answer)[:1000])


def test_many(t):
    with server() as other:
        answers = other.tell({"many": 200, "code": "def f(n): return n * n"})
    wrong = [(n, a) for n, a in enumerate(answers) if a != {"value": n * n}]
    t.ok(not wrong, "200 threads at once, each with its answer", str(wrong[:3]))


def test_rest(t):
    chat = os.path.join(place, "chat")
    os.makedirs(os.path.join(chat, "skills"), exist_ok=True)
    with server() as other:
        got = other.tell({"shell": "echo a > out; echo b 2>&1", "root": chat})
        t.equal((got.get("value", got), os.listdir(chat).count("out")),
                ({"output": "b\n", "exit_code": 0, "truncated": False}, 1), "a skill's command")
        config = other.tell({"mcp": "def double(a): return a * 2", "id": "x"})["value"]["config"]
    messages = ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"double","arguments":{"a":4}}}\n')
    child = box.start([config["command"], *config["args"]], config["env"], stdin=subprocess.PIPE,
                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out = child.communicate(messages, timeout=120)[0]
    t.ok('\\"result\\": 8' in out, "a tool as an MCP server", out)
    with maxkb.MaxKB(site, python="/usr/bin/python3", start=start, NSBOX_SOCKET="/nonexistent") as other:
        t.ok("cannot be reached" in other.call("def f(): pass").get("error", ""), "no service")


def main():
    global daemon, box, site
    if os.geteuid() != 0:
        print("1..0 # SKIP only root can start containers")
        return 0
    leftovers.become_subreaper()
    root = other_root()
    site = maxkb.install(os.path.join(place, "site"))
    with service.Daemon() as daemon:
        extra = [(path, path, ["rbind", "rw"]) for path in (place, daemon.dir)]
        box = docker.Container(os.path.join(place, "box"), docker.default(), extra, system=root)
        status = tap.run([test_version, test_golden, test_many, test_rest])
        if status:
            sys.stderr.write(daemon.log()[-3000:])
    return status


if __name__ == "__main__":
    sys.exit(main())
