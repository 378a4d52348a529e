#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A workspace that is a directory of the host (filesystem.workspace "rw"): what is written there, whose it is, who may
share what, and that names which change under a run lead nowhere else. Each refusal has its twin."""

import base64
import json
import os
import shutil
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, paths, service, tap

PLACE = paths.scratch("shared-")
ROOT = os.geteuid() == 0
OWNER = 54321 if ROOT else os.getuid()
RW = {"filesystem": {"workspace": "rw"}}
ROUNDS = int(os.environ.get("SHARED_ROUNDS") or 6)
os.chmod(PLACE, 0o755)


def directory(name):
    path = os.path.join(PLACE, name)
    os.makedirs(path)
    own(path)
    return path


def own(path):
    if ROOT:
        os.chown(path, OWNER, OWNER)


def text(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def write(path, content):
    with open(path, "w", encoding="utf-8") as f:
        f.write(content)
    own(path)


def run(script, share=None, manifest=None, options=()):
    return cli.run("sh", "-c", script, manifest=RW if manifest is None else manifest,
                   options=[*options, *(["--share", share] if share else [])])


# ---------------------------------------------------------------- nsbox run


def test_run(t):
    ws = directory("run")
    write(ws + "/old", "outside")
    got = run("cat old; echo inside >new; mkdir d; echo x >d/f; rm old; stat -c %u:%g . new", ws)
    t.equal((got.status, got.out), (0, "outside1000:1000\n1000:1000\n"), "a run reads and changes it as its own user")
    found = {n: (os.stat(os.path.join(ws, n)).st_uid, os.stat(os.path.join(ws, n)).st_gid) for n in os.listdir(ws)}
    gid = OWNER if ROOT else os.getgid()
    t.equal(found, {"new": (OWNER, gid), "d": (OWNER, gid)}, "what it made is the directory's owner's, what it removed is gone")
    t.equal(text(ws + "/new"), "inside\n", "and stays")
    twin = run("ls; echo mine >own", manifest={})
    t.equal((twin.status, twin.out, os.path.exists(ws + "/own")), (0, "", False), "the twin without it has a workspace of its own")
    write(os.path.join(PLACE, "above"), "not shared")
    os.symlink(os.path.join(PLACE, "above"), ws + "/link")
    got = run("ls /workspace/..; cat link; cat ../above; touch /usr/x", ws)
    t.ok("above" not in got.out and "not shared" not in got.out and "Read-only" in got.err, "nothing above it is shared", got)


def test_limits(t):
    """What holds for other writable places holds here."""
    ws = directory("limits")
    script = "printf '#!/bin/sh\\necho ran\\n' >p; chmod 755 p; ./p"
    t.equal(run(script, ws).out, "ran\n", "programs may be started from it")
    got = run(script, ws, {**RW, "profile": "strict", "process": {"subprocess": "any"}})
    t.ok("ran" not in got.out and got.status == 126, "not where the profile says so", got)
    got = run("touch a b; ls", ws, {"filesystem": {"workspace": "rw", "readOnly": ["${work}/keep"]}})
    t.ok(got.status == 0, "a path below it that may be read-only and is not there is none", got)
    os.mkdir(ws + "/keep")
    own(ws + "/keep")
    got = run("touch keep/x || touch ok", ws, {"filesystem": {"workspace": "rw", "readOnly": ["${work}/keep"]}})
    t.equal((os.listdir(ws + "/keep"), os.path.exists(ws + "/ok")), ([], True), "one that is there is kept")


SET_ID = """
import os, sys
os.chdir(sys.argv[1])
def tried(name, act):
    try: act(); return name + " done"
    except OSError as e: return "%s %d" % (name, e.errno)
os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o755)); fd = os.open("f", os.O_RDONLY)
print(tried("open", lambda: os.close(os.open("s", os.O_CREAT | os.O_WRONLY, 0o4755))), tried("mknod", lambda: os.mknod("n", 0o104755)),
      tried("chmod", lambda: os.chmod("f", 0o4755)), tried("fchmod", lambda: os.fchmod(fd, 0o2755)),
      tried("sticky", lambda: os.chmod("f", 0o1755)), tried("reopened", lambda: os.close(os.open("f", os.O_RDWR))), sep="\\n")
"""


def test_set_id(t):
    ws = directory("setid")
    got = cli.run("python3", "-c", SET_ID, "/workspace", manifest=RW, options=["--share", ws])
    t.equal(got.out.split("\n")[:-1], ["open 1", "mknod 1", "chmod 1", "fchmod 1", "sticky done", "reopened done"],
            "set-id bits cannot be left on the host")
    t.equal([n for n in os.listdir(ws) if os.stat(os.path.join(ws, n)).st_mode & 0o6000], [], "and none is there")
    twin = cli.run("python3", "-c", SET_ID, "/workspace", manifest={})
    t.ok("chmod done" in twin.out and "open done" in twin.out, "the twin may, where the file goes with the run", twin)


def test_refusals(t):
    ws = directory("refused")
    got = run("true")
    t.ok(got.status != 0 and "no directory of the host is shared" in got.err, "rw without a directory", got)
    got = run("true", ws, {})
    t.ok(got.status != 0 and "is not \"rw\"" in got.err, "a directory without rw", got)
    got = run("true", "/usr")
    t.ok(got.status != 0 and "belongs to root" in got.err, "root's", got)
    got = run("true", ws + "/nowhere")
    t.ok(got.status != 0 and "nowhere" in got.err, "one that is not there", got)
    write(ws + "/file", "")
    got = run("true", ws + "/file")
    t.ok(got.status != 0 and "Not a directory" in got.err, "a file", got)
    ceiling = os.path.join(PLACE, "ceiling.json")
    write(ceiling, json.dumps({"sharedWorkspace": False}))
    got = run("true", ws, options=["--ceiling", ceiling])
    t.ok(got.status != 0 and "/filesystem/workspace" in got.err and "sharedWorkspace" in got.err, "where the operator does not allow it", got)
    for extra, word in (({"filesystem": {"workspace": {"mode": "rw", "size": "1Mi"}}}, "size"), ({**RW, "profile": "build"}, "user 0")):
        got = run("true", ws, extra)
        t.ok(got.status != 0 and word in got.err, "with " + word, got)
    got = run("true", ws, options=["--save", os.path.join(PLACE, "saved")])
    t.ok(got.status != 0 and "shared" in got.err, "its files cannot be kept with the root's", got)
    if ROOT:
        os.chown(ws, OWNER, 0)
        got = run("true", ws)
        t.ok(got.status != 0 and "group is root's" in got.err, "with root's group", got)
        os.chown(ws, OWNER, OWNER)
    t.equal(run("true", ws).status, 0, "the twin runs")


# ---------------------------------------------------------------- the service


class Service:
    def __enter__(self):
        self.top = directory("service")
        self.ws = directory("service/ws")
        config = os.path.join(PLACE, "nsboxd.json")
        with open(config, "w", encoding="utf-8") as f:
            json.dump({"ceiling": {"sharedWorkspace": True}, "runners": 2,
                       "workspaces": {"team": {"directory": self.ws}, "poor": {"queue": 5}}}, f)
        self.daemon = service.Daemon(options=["--config", config])
        return self

    def __exit__(self, *_):
        self.daemon.stop()

    def command(self, script, workspace="team", manifest=None, **more):
        body = {"command": script, "workspace_id": workspace, "manifest": {"manifestVersion": 1, "name": "s", **(manifest or RW)}, **more}
        return self.daemon.ask("POST", "/v1/execute/command", body)


def test_service(t):
    with Service() as s:
        status, reply = s.command("echo by the service >f; cat given", files=[{"path": "given", "content": "put"}])
        t.equal((status, reply.get("stdout"), text(s.ws + "/f"), text(s.ws + "/given")), (200, "put", "by the service\n", "put"),
                "a workspace's runs share its directory")
        t.equal({os.stat(os.path.join(s.ws, n)).st_uid for n in os.listdir(s.ws)}, {OWNER}, "and all in it is its owner's")
        _, reply = s.command("ls", "poor")
        t.ok("shares no directory" in reply["msg"] and "poor" in reply["msg"], "another workspace has none", str(reply)[:300])
        _, reply = s.command("ls; touch own", "poor", {"filesystem": {"workspace": "overlay"}})
        t.equal((reply["stdout"], os.path.exists(s.ws + "/own")), ("", False), "its twin has its own")
        session(t, s)
        swapped_inside(t, s)
        swapped_above(t, s)


def session(t, s):
    d = s.daemon
    manifest = {"manifestVersion": 1, "name": "s", **RW}
    d.ask("POST", "/v1/sessions", {"session_id": "a", "workspace_id": "team", "manifest": manifest})
    status, reply = d.ask("POST", "/v1/execute/command", {"session_id": "a", "workspace_id": "team", "command": "cat f; echo more >g"})
    t.equal((status, reply.get("stdout"), text(s.ws + "/g")), (200, "by the service\n", "more\n"), "a session has it, too")
    status, _, raw = d.fetch("GET", "/v1/sessions/a/files/workspace/g")
    t.equal((status, raw), (200, b"more\n"), "and its files are had as any other's")
    status, reply = d.ask("POST", "/v1/sessions/a/snapshot")
    t.ok(status >= 400 and "shared" in str(reply), "no snapshot holds it", str(reply)[:200])
    d.ask("DELETE", "/v1/sessions/a")
    t.equal(text(s.ws + "/g"), "more\n", "it outlives the session")


SWAP = """
import os, itertools, sys
for i in itertools.count():
    for make in (lambda: os.symlink(sys.argv[1], "x"), lambda: os.mkdir("x"), lambda: os.symlink("/tmp", "x"), lambda: os.mkfifo("x")):
        try: make()
        except OSError: pass
        try: os.rename("x", "y")
        except OSError: pass
        for gone in (os.unlink, os.rmdir):
            try: gone("y")
            except OSError: pass
"""


def swapped_inside(t, s):
    """A run swaps a name in the directory while others begin that put files there, and list and fetch what it has."""
    canary = directory("canary")
    write(canary + "/f", "untouched")
    d = s.daemon
    status, job = d.ask("POST", "/v1/jobs", {"kind": "command", "argv": ["nice", "python3", "-c", SWAP, canary], "workspace_id": "team",
                                             "manifest": {"manifestVersion": 1, "name": "s", **RW}})
    t.equal(status, 202, "a run that swaps names in it")
    t.ok(tap.wait_until(lambda: d.ask("GET", "/v1/jobs/" + job["id"])[1]["state"] == "running", 60), "runs")
    answers = []
    for _ in range(ROUNDS):
        status, reply = s.command("cat x/f; ls x", files=[{"path": "x/f", "content": "put"}], outputs=["x/**"])
        got = [base64.b64decode(o.get("content_base64", "")) for o in reply.get("outputs", ())]
        answers.append(status in (200, 400, 409, 422, 500, 503) and "untouched" not in str(reply) and b"untouched" not in got)
    t.equal(answers, [True] * ROUNDS, "others get an answer, and nothing of the host's")
    t.equal((sorted(os.listdir(canary)), text(canary + "/f")), (["f"], "untouched"), "nothing was written where a link led")
    d.ask("DELETE", "/v1/jobs/" + job["id"])
    t.ok(tap.wait_until(lambda: d.ask("GET", "/v1/jobs/" + job["id"])[1]["state"] == "finished", 60), "it ends")


def swapped_above(t, s):
    """Who can rename above the directory swaps a part of its path for a link while runs begin."""
    other = directory("other/ws")
    stop = threading.Event()

    def swap():
        while not stop.is_set():
            os.rename(s.top, s.top + ".away")
            os.symlink(os.path.dirname(other), s.top)
            os.unlink(s.top)
            os.rename(s.top + ".away", s.top)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        replies = [s.command("echo n >>runs")[1] for _ in range(ROUNDS)]
    finally:
        stop.set()
        swapper.join()
    good = [r for r in replies if r.get("cause") == "exit"]
    t.equal((os.listdir(other), [r["msg"] for r in replies if r not in good and "share" not in r["msg"]]), ([], []),
            "a link on the way is never followed: the directory itself, or an error that names it")
    found = os.path.join(s.ws, "runs")
    t.equal(text(found).count("n") if os.path.exists(found) else 0, len(good), "%d runs had the directory" % len(good))


def main():
    try:
        return tap.run([test_run, test_limits, test_set_id, test_refusals, test_service])
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
