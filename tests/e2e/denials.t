#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Refused system calls in `denials`, by both interfaces; and what a denial says would allow the call does."""

import copy
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, service, tap

# The result of a call by number or of an act, as an errno by name.
ACTS = r"""
import ctypes, errno, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)

def name(n):
    return errno.errorcode.get(n, str(n)) if n else "done"

def call(what, *args):
    ctypes.set_errno(0)
    getattr(libc, what)(*[ctypes.c_long(a) for a in args])
    return name(ctypes.get_errno())

def sock(*args):
    import socket
    try:
        socket.socket(*args).close()
    except OSError as e:
        return name(e.errno)
    return "done"

def thread():
    try:
        threading.Thread(target=int).start()
    except RuntimeError:
        return "EPERM"
    return "done"

def bind():
    import socket
    s = socket.socket()
    try:
        s.bind(("127.0.0.1", 0))
    except OSError as e:
        return name(e.errno)
    return "done"

ACTS = {
    "mmap": lambda: call("mmap", 0, 4096, 7, 0x22, -1, 0),
    "ptrace": lambda: call("ptrace", 0, 0, 0, 0),
    "thread": thread,
    "netlink": lambda: sock(16, 3, 4),
    "bind": bind,
    "shm": lambda: call("shmget", 0, 4096, 0o1600),
    "getpid": lambda: call("getpid"),
}
def act(what):
    return ACTS[what]()
"""

PROGRAM = ACTS + "print(act(sys.argv[1]))\n"

STRICT = {"profile": "strict"}
# What is done, what refuses it, the errno, the call it is by name, and what has to be set.
ROWS = [
    ("mmap", STRICT, "EPERM", "mmap", "/process/jit", True),
    ("ptrace", STRICT, "EPERM", "ptrace", "/process/ptrace", True),
    ("thread", {"process": {"threads": False}}, "EPERM", "clone", "/process/threads", True),
    ("netlink", {}, "EAFNOSUPPORT", "socket", "/process/netlink", True),
    ("bind", {"process": {"listen": False}}, "EPERM", "bind", "/process/listen", True),
    ("shm", {}, "EPERM", "shmget", "/syscalls/allow", "shmget"),
]


def applied(manifest, denial):
    """The manifest with what the denial says."""
    out = copy.deepcopy(manifest)
    section, key = denial["pointer"].strip("/").split("/")
    if denial["pointer"] == "/syscalls/allow":
        out.setdefault(section, {}).setdefault(key, []).append(denial["value"])
    else:
        out.setdefault(section, {})[key] = denial["value"]
    return out


def by_cli(act, manifest):
    done = cli.run("python3", "-c", PROGRAM, act, manifest=manifest)
    return (done.out.strip() or repr(done)), (done.report or {}).get("denials")


class ByDaemon:
    def __init__(self):
        self.service = service.Daemon()

    def __call__(self, act, manifest):
        body = {"code": ACTS, "function_name": "act", "params": {"what": act},
                "manifest": {**cli.MINIMAL, **manifest}, "operator": "syscalls" in manifest}
        _, answer = self.service.ask("POST", "/v1/execute/python-function", body)
        return answer.get("data") or repr(answer), answer.get("denials")


def check(t, run, by):
    for act, manifest, error, call, pointer, value in ROWS:
        got, denials = run(act, manifest)
        t.equal(got, error, "%s: %s is refused" % (by, act))
        found = [d for d in denials or () if d["layer"] == "seccomp" and d["name"] == call]
        t.ok(found and (found[0]["error"], found[0]["pointer"], found[0]["value"]) == (error, pointer, value),
             "%s: and told, with what would allow it" % by, repr(denials))
        if not found:
            continue
        got, denials = run(act, applied(manifest, found[0]))
        t.equal(got, "done", "%s: which it does" % by)
        t.ok(not [d for d in denials or () if d["name"] == call], "%s: and then there is no denial" % by, repr(denials))


def test_cli(t):
    check(t, by_cli, "cli")
    t.equal(by_cli("getpid", {}), ("done", []), "what is not refused is not told")


def test_daemon(t):
    run = ByDaemon()
    try:
        check(t, run, "daemon")
        _, answer = run.service.ask("POST", "/v1/execute/command",
                                    {"argv": ["python3", "-c", PROGRAM, "shm"], "session_id": "one"})
        first = answer["receipt_id"]
        t.equal([(d["name"], d["times"]) for d in answer["denials"]], [("shmget", 1)], "a command of a session tells its own")
        _, answer = run.service.ask("POST", "/v1/execute/command",
                                    {"argv": ["python3", "-c", PROGRAM, "getpid"], "session_id": "one"})
        t.equal(answer["denials"], [], "and not another's")
        _, receipt = run.service.ask("GET", "/v1/receipts/" + first)
        t.equal([d["name"] for d in receipt["denials"]], ["shmget"], "the receipt has them")
    finally:
        run.service.stop()


if __name__ == "__main__":
    sys.exit(tap.run([test_cli, test_daemon]))
