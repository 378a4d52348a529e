#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A narrower policy in a session that there is: for one command, and for all that come (PATCH). Each refusal
by the kernel has its twin: the same act under what the session was made with."""

import base64
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import paths, service, tap

BASE = {
    "manifestVersion": 1,
    "filesystem": {"write": ["/srv/data", "/srv/more", "/mnt/data"], "mask": ["/etc/hostname"]},
    "env": {"set": {"SAYS": "base"}},
    "resources": {"openFiles": 512, "memory": "256Mi", "stdout": "64Ki"},
    "timeouts": {"wall": "60s"},
}
daemon = None
out = tap.Tap()

# Each says "yes" where it works, else the errno.
ACTS = {
    "jit": "import mmap; mmap.mmap(-1, 4096, prot=7)",
    "ptrace": "import ctypes, os; l = ctypes.CDLL(None, use_errno=True)\nif l.ptrace(0, 0, 0, 0): raise OSError(ctypes.get_errno(), '')",
    "threads": "import ctypes, os; l = ctypes.CDLL(None, use_errno=True)\nimport threading; threading.Thread(target=int).start()",
    "listen": "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()",
    "write": "open('/srv/data/f', 'w')",
    "opt": "open('/mnt/data/f', 'w')",
    "more": "open('/srv/more/f', 'w')",
    "read": "open('/srv/data/seen').read()",
    "work": "open('/workspace/f', 'w')",
    "home": "import os; open(os.environ['HOME'] + '/f', 'w')",
    "files": "import os; a = [os.open('/dev/null', 0) for i in range(100)]",
    "size": "open('/workspace/big', 'wb').write(bytes(3 << 20))",
}


def eq(got, want, text, more=""):
    out.ok(got == want, text, "%r, not %r %s" % (got, want, more))


def manifest(base=None, **changes):
    """The session's with members replaced: {"process": {"jit": False}} or filesystem__write=[...]."""
    m = json.loads(json.dumps(base or BASE))
    for key, value in changes.items():
        at = m
        *way, last = key.split("__")
        for step in way:
            at = at.setdefault(step, {})
        at[last] = value
    return m


def run(command, session="s", **more):
    argv = ["sh", "-c", command] if isinstance(command, str) else command
    return daemon.ask("POST", "/v1/execute/command", {"session_id": session, "command": argv, **more})


def act(name, policy=None, session="s"):
    code = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\ntry:\n    %s\n    print('yes')\nexcept OSError as e: print(e.errno)\nexcept RuntimeError: print('thread')" % \
        ACTS[name].replace("\n", "\n    ")
    status, answer = run(["python3", "-c", code], session, **({"manifest": policy} if policy else {}))
    return answer["stdout"].strip() if status == 200 else "%s %s" % (status, answer.get("error"))


def make(name, policy=BASE):
    status, answer = daemon.ask("POST", "/v1/sessions", {"session_id": name, "manifest": policy})
    eq(status, 201, "a session is made", repr(answer))
    return answer


def by_the_kernel():
    make("s")
    run("touch /srv/data/seen")
    for name, change, errno in (
            ("jit", {"process__jit": False}, "1"), ("ptrace", {"process__ptrace": False}, "1"),
            ("threads", {"process__threads": False}, "thread"), ("listen", {"process__listen": False}, None),
            ("write", {"filesystem__write": ["/srv/more", "/mnt/data"]}, "13"), ("opt", {"filesystem__write": ["/srv/data", "/srv/more"]}, "13"),
            ("read", {"filesystem__write": ["/srv/more", "/mnt/data"]}, "13"),
            ("files", {"resources__openFiles": 64}, "24"), ("size", {"resources__fileSize": "2Mi"}, "27")):
        got = act(name, manifest(**change))
        out.ok(got == errno if errno else got in ("1", "13", "38"), "%s: refused to a command without it" % name, repr(got))
        eq(act(name), "yes", "%s: the next one of the session has it" % name)
    narrow = manifest(filesystem__write=["/srv/more", "/mnt/data"])
    eq([act(n, narrow) for n in ("more", "work", "home", "opt")], ["yes"] * 4, "what a manifest leaves is there")
    readable = manifest(filesystem={"write": ["/srv/more", "/mnt/data"], "read": ["/srv/data"], "mask": ["/etc/hostname"]})
    eq([act(n, readable) for n in ("read", "write")], ["yes", "13"], "what could be written may be read only")


def links():
    """A session's programs cannot lead the rules of a later one elsewhere."""
    run("rm -rf /srv/more; mkdir -p /srv/more; echo 1 > /srv/data/secret")
    status, answer = run("cat /srv/more/../data/secret", manifest=manifest(filesystem__write=["/srv/more", "/mnt/data"]))
    eq((status, answer["exit_code"]), (200, 1), "not by another spelling", repr(answer))
    run("cd /workspace && rm -rf link && ln -s /srv/data link")
    status, answer = run("cat /workspace/link/secret", manifest=manifest(filesystem__write=["/srv/more", "/mnt/data"]))
    eq(answer["exit_code"], 1, "nor by a link", repr(answer))
    eq(run("cat /workspace/link/secret")[1]["stdout"], "1\n", "which leads there")


def rules_of_links():
    within = manifest(filesystem__write=["/srv/data/sub", "/srv/more", "/mnt/data"])
    run("mkdir /srv/data/sub; echo 1 > /srv/data/sub/f")
    answer = run("cat /srv/data/sub/f; cat /srv/data/secret", manifest=within)[1]
    eq((answer["stdout"], answer["exit_code"]), ("1\n", 1), "a directory within one that goes")
    run("rm -r /srv/data/sub; ln -s /srv/data /srv/data/sub")
    answer = run("cat /srv/data/secret", manifest=within)[1]
    out.ok(answer["cause"] == "sandbox" and "no link may lead" in answer["msg"], "a link in its place is refused", repr(answer))
    run("rm /srv/data/sub")
    eq(run("ls /srv/data/sub", manifest=within)[1]["exit_code"], 2, "and nothing in its place grants nothing")


def amounts():
    status, answer = run("echo $SAYS; yes | head -c 40000", manifest=manifest(env__set={"OTHER": "x"}, resources__stdout="8Ki"))
    eq((status, answer["stdout_truncated"], answer["stdout"][:4]), (200, True, "\ny\ny"), "its own variables and room for output")
    answer = run("echo $SAYS; yes | head -c 40000")[1]
    eq((answer["stdout_truncated"], answer["stdout"][:5]), (False, "base\n"), "the session's are what they were")
    answer = run("sleep 60", manifest=manifest(timeouts__wall="1s"))[1]
    eq((answer["cause"], answer["duration_ms"] < 30000), ("wallTime", True), "a shorter time")
    status, answer = run("true", manifest=manifest(timeouts__wall="1s"), timeout_seconds=2)
    out.ok(status == 400 and answer["error"]["pointer"] == "/timeout_seconds" and "1000 ms" in answer["error"]["message"], "which the request cannot lengthen", repr(answer))
    status, answer = run("cat", manifest=manifest(process__jit=False), stdin="in")
    eq((status, answer["stdout"]), (200, "in"), "with standard input")


def told():
    """Receipt, denials and trace of such a command are its own."""
    policy = manifest(process__jit=False, filesystem__write=["/srv/more", "/mnt/data"])
    code = "import mmap\ntry: mmap.mmap(-1, 4096, prot=7)\nexcept OSError: pass\ntry: open('/srv/data/seen')\nexcept OSError: pass"
    status, answer = run(["python3", "-c", code], manifest=policy, trace=True)
    calls = [d for d in answer["denials"] if "mmap" in json.dumps(d)]
    out.ok(calls and any("/process/jit" in json.dumps(d) for d in calls), "what its own filter refused, and what would allow it", repr(answer["denials"]))
    out.ok(any("/srv/data/seen" in json.dumps(d) for d in answer["denials"]), "a file that its own rules refused", repr(answer["denials"]))
    plain = run(["python3", "-c", code], trace=True)[1]
    out.ok("mmap" not in json.dumps(plain["denials"]) and "/srv/data/seen" not in json.dumps(plain["denials"]), "none of it in the session's own", repr(plain["denials"]))
    receipts = [daemon.ask("GET", "/v1/receipts/" + a["receipt_id"])[1] for a in (answer, plain)]
    session = daemon.ask("GET", "/v1/sessions/s")[1]
    one, other = ([r[k] for k in ("policy_sha256", "plan_sha256", "manifest_sha256")] for r in receipts)
    out.ok(all(a != b for a, b in zip(one, other)), "the receipt names its own policy, plan and manifest", repr(receipts))
    eq(other[0], session["policy_sha256"], "the other's has the session's")


def refused():
    for change, pointer in (
            ({"process__subprocess": "any", "syscalls": {"allow": ["io_uring_setup"]}}, "/manifest/syscalls"),
            ({"filesystem__write": BASE["filesystem"]["write"] + ["/srv/third"]}, "/manifest/filesystem/write"),
            ({"resources__openFiles": 1024}, "/manifest/resources/openFiles"),
            ({"timeouts__wall": "61s"}, "/manifest/timeouts/wall"),
            ({"process__netlink": True}, "/manifest/process/netlink"),
            ({"filesystem__mask": []}, "/manifest/filesystem/mask"),
            # narrower, and no single command can have it
            ({"resources__memory": "128Mi"}, "/manifest/resources/memory"),
            ({"resources__pids": 20}, "/manifest/resources/pids"),
            ({"resources__cpu": 0.5}, "/manifest/resources/cpu"),
            ({"filesystem__mask": ["/etc/hostname", "/etc/passwd"]}, "/manifest/filesystem/mask"),
            ({"filesystem__readOnly": ["/srv/data"]}, "/manifest/filesystem/readOnly"),
            ({"filesystem__tmp": {"exec": False}}, "/manifest/filesystem/tmp"),
            ({"timeouts__grace": "500ms"}, "/manifest/timeouts/grace"),
            ({"require": {"overlay": "require", "proc": "require"}}, "/manifest/require/proc"),
            ({"determinism": {"hostname": "other"}}, "/manifest/determinism/hostname"),
            ({"profile": "strict"}, "/manifest/"),
            ({"secrets": [{"name": "A", "source": "a", "description": "x"}]}, "/manifest/secrets"),
            ({"userConfig": {"A": {"type": "string", "default": "x"}}}, "/manifest/secrets"),
            ({"session": {"mode": "session", "ttl": "10s"}}, "/manifest/session"),
            ({"network": {"mode": "allowlist", "allow": [{"host": "a.example", "ports": [443], "description": "x"}]}}, "/manifest/network")):
        status, answer = run("true", manifest=manifest(**change))
        error = answer.get("error") or {}
        out.ok(status in (409, 400) and error.get("pointer", "").startswith(pointer), "refused by name: %s" % json.dumps(change), "%s %r" % (status, answer))
        if "syscalls" not in change and "profile" not in change:
            eq(status, 409, "which is a conflict", repr(error))
    status, answer = run("true", resources={"memory_mb": 100})
    out.ok(status == 409 and answer["error"]["pointer"] == "/resources/memory_mb", "the request's shorthands too", repr(answer))
    status, answer = run("true", manifest={"manifestVersion": 1, "process": {"jit": 3}})
    out.ok(status == 400 and answer["error"]["pointer"] == "/manifest/process/jit", "a malformed one is 400", repr(answer))
    status, answer = run("true", manifest=BASE)
    eq((status, answer["exit_code"]), (200, 0), "the session's own is no other")
    status, answer = run("true", image="other", manifest=BASE)
    eq(status, 409, "another image is another session", repr(answer))
    status, answer = daemon.ask("POST", "/v1/sessions", {"session_id": "s", "manifest": manifest(process__jit=False)})
    out.ok(status == 409 and "PATCH" in answer["error"]["message"], "making it again with another policy does not pretend", repr(answer))


def functions():
    body = {"session_id": "s", "code": "def f():\n    import mmap\n    mmap.mmap(-1, 4096, prot=7)\n    return 1", "function_name": "f"}
    ask = lambda **more: daemon.ask("POST", "/v1/execute/python-function", dict(body, **more))
    status, answer = ask()
    eq((status, answer.get("data")), (200, 1), "a function has what the session has", repr(answer))
    status, answer = ask(manifest=manifest(process__jit=False))
    out.ok(status == 200 and answer["code"] != 200 and "not permitted" in answer["msg"], "and under a narrower policy less", repr(answer))


def packed(**files):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
    return base64.b64encode(raw.getvalue()).decode()


def later_files():
    """Files of a later command are there before it runs, or it does not run."""
    make("f", {"manifestVersion": 1})
    run("echo old > there; mkdir dir; echo kept > dir/kept", "f")
    status, answer = run("cat there dir/new dir/kept packed; stat -c %a run", "f", archive_base64=packed(packed=b"of an archive\n", there=b"of it\n"),
                         files=[{"path": "there", "content": "new\n"}, {"path": "dir/new", "content": "x\n"}, {"path": "run", "content": "", "mode": "755"}])
    eq((status, answer.get("stdout")), (200, "new\nx\nkept\nof an archive\n755\n"), "they are put before it runs", repr(answer))
    status, answer = daemon.ask("POST", "/v1/execute/python-function", {"session_id": "f", "code": "def f(): return open('data').read()", "function_name": "f",
                                                                        "files": [{"path": "data", "content": "d"}]})
    eq(answer.get("data"), "d", "a function's too", repr(answer))
    status, answer = run("touch ran", "f", files=[{"path": "first", "content": "1"}, {"path": "dir", "content": "x"}])
    out.ok(status == 409 and "dir" in answer["error"]["message"], "what cannot be put: the file is named", "%s %r" % (status, answer))
    eq(run("ls ran", "f")[1]["exit_code"], 2, "and the command did not run")
    run("ln -s /etc out", "f")
    status, answer = run("true", "f", files=[{"path": "out/passwd", "content": "x"}])
    out.ok(status != 200 and "out" in json.dumps(answer["error"]), "nothing is put through a link of the session's", "%s %r" % (status, answer))
    status, answer = run("true", "f", archive_base64=base64.b64encode(b"no archive").decode())
    out.ok(status == 400 and answer["error"]["pointer"] == "/archive_base64", "an archive that is none", repr(answer))
    status, answer = run("cat m", "f", files=[{"path": "m", "content": "m"}], manifest={"manifestVersion": 1, "process": {"jit": False}})
    eq((status, answer.get("stdout")), (200, "m"), "with a narrower policy", repr(answer))
    status, answer = run("true", "f", files=[{"path": "wide", "content": "m"}], manifest={"manifestVersion": 1, "process": {"netlink": True}})
    eq((status, run("ls wide", "f")[1]["exit_code"]), (409, 2), "with one that is refused nothing is put", repr(answer))
    status, answer = daemon.ask("POST", "/v1/sessions", {"session_id": "f", "files": [{"path": "x", "content": "x"}]})
    eq(status, 409, "making it again puts nothing", repr(answer))
    status, answer = daemon.ask("POST", "/v1/jobs", {"kind": "command", "session_id": "f", "argv": ["cat", "j"], "files": [{"path": "j", "content": "of a job"}]})
    job = answer.get("id")
    done = daemon.ask("GET", "/v1/jobs/%s?wait=60" % job)[1]
    eq((done.get("result") or {}).get("stdout"), "of a job", "an asynchronous one's", repr((status, answer, done)))
    threads = [threading.Thread(target=lambda i=i: got.append(run("cat n%d" % i, "f", files=[{"path": "n%d" % i, "content": str(i)}])[1].get("stdout"))) for i in range(6)]
    got = []
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eq(sorted(got, key=str), [str(i) for i in range(6)], "several at once")


LOOP = "import mmap, os, time\nwhile True:\n    try: mmap.mmap(-1, 4096, prot=7).close(); w = 'yes'\n    except OSError: w = 'no'\n    open('/workspace/%s.new', 'w').write(w); os.rename('/workspace/%s.new', '/workspace/%s'); time.sleep(0.05)"


def background(name):
    run(["sh", "-c", 'python3 -c "$0" >/dev/null 2>&1 &', LOOP % (name, name, name)], "p")


def says(name):
    run("rm -f /workspace/" + name, "p")
    return tap.wait_until(lambda: run("cat /workspace/%s 2>/dev/null" % name, "p")[1]["stdout"], 60)


def patch():
    make("p")
    first = daemon.ask("GET", "/v1/sessions/p")[1]["policy_sha256"]
    background("old")
    eq((act("jit", session="p"), says("old")), ("yes", "yes"), "before: a command and what runs behind it")
    narrow = manifest(process__jit=False, filesystem__write=["/srv/more", "/mnt/data"])
    status, answer = daemon.ask("PATCH", "/v1/sessions/p", {"manifest": narrow})
    out.ok(status == 200 and answer["policy_sha256"] != first, "the session is narrowed", repr(answer))
    eq((act("jit", session="p"), act("write", session="p"), act("more", session="p")), ("1", "13", "yes"), "new commands have less")
    eq(says("old"), "yes", "what ran before keeps what it had")
    background("new")
    eq(says("new"), "no", "and what starts now has not")
    receipt = daemon.ask("GET", "/v1/receipts/" + run("true", "p")[1]["receipt_id"])[1]
    eq(receipt["policy_sha256"], answer["policy_sha256"], "their receipts name the narrower policy")
    for wide in (BASE, manifest(narrow, process__jit=True)):
        status, answer = daemon.ask("PATCH", "/v1/sessions/p", {"manifest": wide})
        out.ok(status == 409 and answer["error"]["pointer"].startswith("/manifest/"), "it is not widened again", repr(answer))
        status, answer = run("true", "p", manifest=wide)
        out.ok(status == 409 and answer["error"]["pointer"].startswith("/manifest/"), "nor for one command", repr(answer))
    eq((act("jit", session="p"), act("listen", manifest(narrow, process__listen=False), "p") != "yes"), ("1", True), "one command can have less still")
    status, answer = daemon.ask("POST", "/v1/sessions/p/fork", {"session_id": "copy"})
    eq(status, 201, "a fork of it", repr(answer))
    eq((act("jit", session="copy"), act("more", session="copy")), ("1", "yes"), "has no more than it")
    for body in ({}, {"manifest": 3}, {"manifest": narrow, "argv": ["x"]}):
        eq(daemon.ask("PATCH", "/v1/sessions/p", body)[0], 400, "a malformed wish: %r" % (body,))
    with open(os.path.join(daemon.data, "audit.log"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    eq(len([l for l in lines if l["event"] == "session-tighten" and l["what"] == "p"]), 1, "the one change is in the audit")


def tool():
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(manifest(process__jit=False), f)
        f.flush()
        make("t")
        nsbox = lambda *argv: subprocess.run([paths.NSBOX, "session", *argv], capture_output=True, text=True, check=False)
        probe = ["python3", "-c", "import mmap; mmap.mmap(-1, 4096, prot=7)"]
        done = [nsbox("exec", "--socket", daemon.socket, *more, "t", "--", *probe).returncode for more in ((), ("--manifest", f.name), ())]
        eq(done, [0, 1, 0], "nsbox session exec --manifest: for one command")
        done = nsbox("narrow", "--socket", daemon.socket, "--manifest", f.name, "t")
        eq((done.returncode, nsbox("exec", "--socket", daemon.socket, "t", "--", *probe).returncode), (0, 1), "nsbox session narrow --manifest: for all that come", done.stderr)


def main():
    global daemon  # pylint: disable=global-statement
    daemon = service.Daemon()
    try:
        for part in (by_the_kernel, links, rules_of_links, amounts, told, refused, functions, later_files, patch, tool):
            part()
    finally:
        if out.failed:
            out.note(daemon.log()[-3000:])
        daemon.stop()
    return out.done()


if __name__ == "__main__":
    sys.exit(main())
