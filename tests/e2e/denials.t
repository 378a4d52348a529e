#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Refused system calls in `denials`, by both interfaces; and what a denial says would allow the call does."""

import copy
import json
import os
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, leftovers, service, tap

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


def check(t, run, by, rows):
    for act, manifest, error, call, pointer, value in rows:
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
    check(t, by_cli, "cli", ROWS)
    t.equal(by_cli("getpid", {}), ("done", []), "what is not refused is not told")


def test_daemon(t):
    run = ByDaemon()
    try:
        check(t, run, "daemon", ROWS[::2])
        _, answer = run.service.ask("POST", "/v1/execute/command",
                                    {"argv": ["python3", "-c", PROGRAM, "shm"], "session_id": "one"})
        first = answer["receipt_id"]
        t.equal([(d["name"], d["times"]) for d in answer["denials"]], [("shmget", 1)], "a command of a session tells its own")
        _, answer = run.service.ask("POST", "/v1/execute/command",
                                    {"argv": ["python3", "-c", PROGRAM, "getpid"], "session_id": "one"})
        t.equal(answer["denials"], [], "and not another's")
        _, receipt = run.service.ask("GET", "/v1/receipts/" + first)
        t.equal([d["name"] for d in receipt["denials"]], ["shmget"], "the receipt has them")
        text = run.service.ask("GET", "/metrics")[1]
        counts = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        t.ok(int(counts["nsbox_denied_calls_total"]) >= 4 and counts["nsbox_denied_network_total"] == "0",
             "and they are counted", repr(counts))
    finally:
        run.service.stop()


# ---------------------------------------------------------------- files

OPENS = r"""
import errno, os
def opens(ask=""):
    out = []
    os.makedirs("ro", exist_ok=True)
    for path, flags in (("/nowhere/x", os.O_RDONLY), ("here", os.O_RDONLY), ("new", os.O_CREAT | os.O_WRONLY),
                        ("/usr/new", os.O_CREAT | os.O_WRONLY), ("/.nsbox/witness", os.O_RDONLY),
                        ("/usr/bin/env", os.O_WRONLY), ("/etc/passwd", os.O_RDONLY), ("ro/x", os.O_CREAT | os.O_WRONLY)):
        try:
            os.close(os.open(path, flags))
            out.append("done")
        except OSError as e:
            out.append(errno.errorcode[e.errno])
    return " ".join(out)
"""
MET = "ENOENT ENOENT done EROFS EACCES EACCES done EROFS"
TOLD = {("open", "/nowhere/x", "ENOENT"), ("open", "here", "ENOENT"), ("write", "/usr/new", "EROFS"),
        ("open", "/.nsbox/witness", "EACCES"), ("write", "/usr/bin/env", "EACCES"), ("write", "ro/x", "EROFS")}
FROZEN = {"filesystem": {"readOnly": ["${work}/ro"]}}


def told(denials):
    """What is said of names that the test opens, those in the working directory without it."""
    names = {n for _, n, _ in TOLD} | {"new", "/etc/passwd"}
    rows = {(d["what"], d["name"].replace("/workspace/", ""), d["error"]): d for d in denials if d["layer"] == "files"}
    return {k: d for k, d in rows.items() if k[1] in names}


def trace_by_cli(manifest, *options):
    done = cli.run("python3", "-c", OPENS + "print(opens())", manifest=manifest, options=["--put", "/etc/hostname:ro/y", *options])
    return done.out.strip() or repr(done), done.report["denials"]


def test_trace_cli(t):
    met, denials = trace_by_cli(FROZEN)
    t.equal((met, denials), (MET, []), "without --trace no file is told of")
    met, denials = trace_by_cli(FROZEN, "--trace")
    rows = told(denials)
    t.equal(met, MET, "with it the program sees the same")
    t.equal(set(rows), TOLD, "and what it could not open is told")
    change = rows[("write", "ro/x", "EROFS")]
    t.equal((change["pointer"], change["op"]), ("/filesystem/readOnly/0", "remove"), "with what would allow it")
    t.equal(rows[("write", "/usr/new", "EROFS")]["pointer"], None, "or that nothing would")
    met, denials = trace_by_cli({}, "--trace")
    t.equal((met.split()[-1], ("write", "ro/x", "EROFS") in told(denials)), ("done", False), "which it does")


def test_trace_full(t):
    """More names than are told apart: the others are counted."""
    code = "import os\nfor i in range(%d):\n    try: os.open('/nowhere/%%d' %% i, 0)\n    except OSError: pass"
    for many, rest in ((20, False), (400, True)):
        denials = cli.run("python3", "-c", code % many, options=["--trace"]).report["denials"]
        told_apart = sum(1 for d in denials if d["name"] and d["name"].startswith("/nowhere/"))
        others = [d["times"] for d in denials if d["layer"] == "files" and d["name"] is None]
        if not rest:
            t.equal((told_apart, others), (many, []), "few names are told one by one")
        else:
            t.equal((told_apart < many, len(others)), (True, 1), "many are not")
            t.equal(told_apart + sum(others), many, "and none is lost of the count")


def test_trace_daemon(t):
    daemon = service.Daemon()
    try:
        body = {"code": OPENS, "function_name": "opens", "params": {}, "manifest": {**cli.MINIMAL, **FROZEN},
                "files": [{"path": "ro/y", "content_base64": ""}]}
        _, answer = daemon.ask("POST", "/v1/execute/python-function", body)
        t.equal((answer.get("data"), answer["denials"]), (MET, []), "daemon: without trace no file is told of")
        secret = {"secrets": [{"name": "KEY", "source": "request", "inject": "env", "description": "test"}]}
        _, answer = daemon.ask("POST", "/v1/execute/python-function", {**body, "trace": True})
        t.equal((answer.get("data"), set(told(answer["denials"]))), (MET, TOLD), "daemon: with it the same is met, and told")
        t.ok(all(d["ask"].split()[0] == d["what"] for d in told(answer["denials"]).values()), "daemon: with the question to ask")
        _, receipt = daemon.ask("GET", "/v1/receipts/" + answer["receipt_id"])
        t.equal(receipt["denials"], [], "daemon: names of files are in no receipt")
        _, answer = daemon.ask("POST", "/v1/execute/command", {
            "argv": ["cat", "/nowhere/hunter2xyz"], "trace": True, "redact": True, "secrets": {"KEY": "hunter2xyz"},
            "manifest": {**cli.MINIMAL, **secret}})
        names = [d["name"] for d in answer.get("denials", ()) if d["name"].startswith("/nowhere")]
        t.equal(names, ["/nowhere/***"], "daemon: a secret in a name is redacted")
    finally:
        daemon.stop()


def test_observer_killed(t):
    """Calls that wait for an observer that has gone fail, those that the filter would allow too."""
    program = "read x; cat /etc/passwd; echo $?"
    for options in ([], ["--trace"]):
        child = subprocess.Popen(cli.command("sh", "-c", "echo on; " + program, options=["--no-tty", *options]), text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        t.equal(child.stdout.readline(), "on\n", "the program runs")
        found = [pid for (pid, _), name in leftovers.descendants(child.pid).items() if name == "nsbox-observer"]
        t.equal(len(found), 1, "and has one observer")
        os.kill(found[0], signal.SIGKILL)
        tap.wait_until(lambda: not [n for n in leftovers.descendants(child.pid).values() if n == "nsbox-observer"], 60)
        out, _ = child.communicate("\n", timeout=60)
        good = out.endswith("\n0\n") and "root:" in out
        t.ok(good != bool(options), "what it only refuses goes on without it" if not options else "what it looks at does not", out)


# As a container engine's that has system calls answered by somebody else: its filter lets all pass, and has a
# listener or has not.
CONTAINED = r"""
import ctypes, os, platform, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
rows = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7fff0000))
prog = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(rows)))
fd = libc.syscall({"x86_64": 317, "aarch64": 277}[platform.machine()], 1, int(sys.argv[1]), prog)
assert fd >= 0
if fd: os.set_inheritable(fd, True)
os.execv(sys.argv[2], sys.argv[2:])
"""


def contained(listener, *options):
    """(exit status, notes, standard error) of a run that is refused a call, behind such a filter."""
    with tempfile.TemporaryDirectory() as place:
        report = os.path.join(place, "report")
        done = subprocess.run([sys.executable, "-c", CONTAINED, "8" if listener else "0",
                               *cli.command("python3", "-c", ACTS + "print(sock(17, 3, 0))",
                                            options=["--no-tty", "--result", report, *options])],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
        if not os.path.exists(report):
            return done.returncode, None, None, done.stderr
        with open(report, encoding="utf-8") as f:
            said = json.load(f)
        return done.returncode, [n for n in said["notes"] if "not counted" in n], bool(said["denials"]), done.stderr


def test_another_observer(t):
    status, notes, denials, err = contained(False)
    t.equal((status, notes, denials), (0, [], True), "behind a filter of a container refusals are told")
    status, notes, denials, err = contained(True)
    t.equal((status, denials), (0, False), "behind one with a listener there is nobody to tell of them")
    t.equal(len(notes or ()), 1, "and the report says so")
    t.equal(contained(False, "--trace")[0], 0, "a trace can be had behind a filter")
    status, _, _, err = contained(True, "--trace")
    t.ok(status == 125 and "another observer" in err and "without trace" in err, "and is refused where it cannot", err)


if __name__ == "__main__":
    sys.exit(tap.run([test_another_observer, test_cli, test_daemon, test_trace_cli, test_trace_full, test_trace_daemon, test_observer_killed]))
