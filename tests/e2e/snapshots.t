#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Snapshots, forks and restored sessions: what they hold and what they do not, who may, limits, what is
left, and that thousands of them leave nothing. SNAPSHOT_CYCLES=1000 is `make soak-snapshots`."""

import os
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, paths, service, tap

SESSIONS, SNAPSHOTS = "/v1/sessions", "/v1/snapshots"
SOAK = "SNAPSHOT_CYCLES" in os.environ
CYCLES = int(os.environ.get("SNAPSHOT_CYCLES") or 6)
daemon = None
out = tap.Tap()


def run(name, text, **more):
    return daemon.ask("POST", "/v1/execute/command", dict({"session_id": name, "command": text}, **more))


def says(name, text):
    return run(name, text)[1].get("stdout")


def make(name, **more):
    return daemon.ask("POST", SESSIONS, dict({"session_id": name}, **more))


def snapshot(name):
    return daemon.ask("POST", "%s/%s/snapshot" % (SESSIONS, name))


def fork(name, new, **more):
    return daemon.ask("POST", "%s/%s/fork" % (SESSIONS, name), dict({"session_id": new}, **more))


def drop(name):
    return daemon.ask("DELETE", "%s/%s" % (SESSIONS, name))[0]


def forget(snap):
    return daemon.ask("DELETE", "%s/%s" % (SNAPSHOTS, snap))[0]


def listed():
    return [s["id"] for s in daemon.ask("GET", SNAPSHOTS)[1]["snapshots"]]


def files():
    """What the service keeps on the disk, by name and size."""
    where = os.path.join(daemon.data, "snapshots")
    return {n: os.path.getsize(os.path.join(where, n)) for n in os.listdir(where)}


# ---------------------------------------------------------------- what they hold

FILL = """
mkdir -p d/deep; echo one >d/deep/f; ln -s d/deep/f link; printf 'x' >"$(printf 'new\\nline\\377')"
chmod 700 d; chmod 500 d/deep; echo hi >~/mine; echo tmp >/tmp/gone; echo run >/run/mark 2>/dev/null
sleep 600 & echo $! >pid
"""
LOOK = """
cat d/deep/f link; stat -c %a d d/deep; ls | od -c | head -3; cat ~/mine; ls /tmp; ps -e | grep -c 'sleep$'
"""


def holds():
    make("one")
    run("one", FILL)
    before = says("one", LOOK)
    status, snap = snapshot("one")
    out.equal(status, 201, "a snapshot is taken")
    out.equal((snap["session_id"], snap["image"], "files alone" in snap["holds"]), ("one", "host", True),
              "and says of what, and that it holds files alone")
    run("one", "echo two >d/deep/f; rm link")
    status, made = make("back", snapshot_id=snap["id"])
    out.equal((status, made.get("session", {}).get("state")), (201, "up"), "a session begins with it")
    after = says("back", LOOK)
    out.equal(after.replace("\n0\n", "\n1\n"), before.replace("gone\n", ""),
              "files, links, modes and odd names are as they were; /tmp and processes are not kept")
    out.equal(says("one", "cat d/deep/f; ls link 2>/dev/null"), "two\n", "the session that it was taken of goes on")
    run("back", "echo three >d/deep/f")
    out.equal((says("one", "cat d/deep/f"), says("back", "cat d/deep/f")), ("two\n", "three\n"),
              "neither sees the other's changes")
    again = make("again", snapshot_id=snap["id"])[0]
    out.equal((again, says("again", "cat d/deep/f")), (201, "one\n"), "it can be gone back to more than once")
    for name in ("back", "again"):
        drop(name)
    return snap["id"]


def forks(snap):
    status, made = fork("one", "two")
    out.equal((status, made.get("session", {}).get("state")), (201, "up"), "a session is forked")
    out.equal(says("two", "cat d/deep/f"), "two\n", "and its fork has its files")
    run("two", "echo fork >d/deep/f")
    out.equal(says("one", "cat d/deep/f"), "two\n", "and its own changes")
    out.equal((listed(), len(files())), ([snap], 1), "a fork leaves no snapshot")
    status, answer = fork("one", "two")
    out.equal(status, 409, "a fork's name that is taken is refused")
    out.equal(len(files()), 1, "and leaves none either")
    out.equal(fork("one", "bad", image="host")[0], 400, "a fork has its session's policy")
    out.equal(fork("nobody", "x")[0], 404, "a session that is none has no fork")
    drop("two")


def frozen():
    """What runs stands still while files are read: a counter in two files is the same in both."""
    run("one", "mkdir -p many; cd many; for i in $(seq 3000); do echo $i >f$i; done")
    run("one", "echo 0 >a0; echo 0 >zz9; setsid sh -c 'i=0; while :; do i=$((i+1)); echo $i >t; mv t a0; echo $i >t; mv t zz9; done' >/dev/null 2>&1 &")
    differ = 0
    for i in range(3):
        fork("one", "calm%d" % i)
        first, last = says("calm%d" % i, "cat a0; cat zz9").split()
        differ += int(first) - int(last) not in (0, 1)
        drop("calm%d" % i)
    out.equal(differ, 0, "what runs stands still while files are read")
    out.ok(tap.wait_until(lambda: says("one", "cat a0; sleep 0.2; cat a0; true").split()[0:1] !=
                          says("one", "cat a0").split(), 30), "and goes on afterwards")
    run("one", "pkill -f 'while :'; rm -r many")
    commands = [threading.Thread(target=run, args=("one", "echo %d >>counted" % i)) for i in range(4)]
    for c in commands:
        c.start()
    answers = [fork("one", "beside")[0]]
    for c in commands:
        c.join()
    out.equal((answers, says("one", "wc -l <counted")), ([201], "4\n"), "commands that come meanwhile wait, and run")
    drop("beside")


# ---------------------------------------------------------------- policy and secrets

def policy():
    manifest = {"manifestVersion": 1, "name": "m", "resources": {"memory": "96Mi"},
                "filesystem": {"readOnly": ["/workspace/fixed"]},
                "secrets": [{"name": "KEY", "source": "k", "inject": "file", "description": "test"}]}
    status, answer = make("kept", manifest=manifest, secrets={"KEY": "s3cr3t"},
                          files=[{"path": "fixed/f", "content": "x"}])
    out.equal(status, 201, "a session with a policy and a secret")
    out.equal(run("kept", "cat /run/secrets/KEY", secrets={"KEY": "s3cr3t"})[1].get("stdout"), "s3cr3t", "has its secret")
    snap = snapshot("kept")[1]["id"]
    with open(os.path.join(daemon.data, "snapshots", snap), "rb") as f:
        out.ok(b"s3cr3t" not in f.read(), "a secret is in no snapshot")
    status, answer = make("bare", snapshot_id=snap)
    out.ok(status >= 400 and "KEY" in str(answer), "one that needs a secret needs it again", str(answer)[:200])
    status, answer = make("again", snapshot_id=snap, secrets={"KEY": "other"})
    out.equal(status, 201, "with it, it is made")
    command = "cat /run/secrets/KEY; echo y >fixed/f || echo refused"
    out.equal(run("again", command, secrets={"KEY": "other"})[1].get("stdout"), "otherrefused\n",
              "under the policy of the first")
    out.equal(daemon.ask("GET", SESSIONS + "/again")[1]["memory_limit"], 96 << 20, "with its limits")
    out.equal(run("again", "true", resources={"memory_mb": 64})[0], 409, "another policy is refused")
    for field, value in (("image", "host"), ("manifest", manifest), ("resources", {"pids": 9})):
        status, answer = make("more", **{"snapshot_id": snap, field: value})
        out.ok(status == 400 and "/" + field in str(answer), "%s beside a snapshot is refused" % field, str(answer))
    out.equal(make("again", snapshot_id=snap)[0], 409, "a session that is there begins with none")
    out.equal(make("x", snapshot_id="snap-0-0")[0], 404, "and none with one that is not there")
    status, answer = make("apart", manifest={"manifestVersion": 1, "filesystem": {"workspace": {"size": "4Mi"}}})
    status, answer = snapshot("apart")
    out.ok(status >= 400 and "workspace.size" in str(answer), "a workspace that would be lost is said to be so", str(answer))
    status, answer = make("strict", manifest={"manifestVersion": 1, "profile": "strict"})
    status, answer = snapshot("strict")
    out.ok(status >= 400 and "read-only" in str(answer), "and a root that cannot be changed", str(answer))
    for name in ("kept", "again", "apart", "strict"):
        drop(name)
    forget(snap)


def changes():
    make("changed")
    run("changed", "echo 1 >f; mkdir d; rm -f /etc/hostname; ln -s f l")
    status, answer = daemon.ask("GET", SESSIONS + "/changed/changes")
    found = {c["path"]: c["kind"] for c in answer["changes"]}
    out.equal((status, {p: found.get("/workspace/" + p) for p in "fdl"}), (200, {"f": "added", "d": "dir", "l": "link"}),
              "the changes of a session are listed")
    drop("changed")


# ---------------------------------------------------------------- others, limits, restarts

def others():
    make("team", workspace_id="a")
    snap = snapshot("team")[1]["id"]
    out.equal(make("t", snapshot_id=snap, workspace_id="b")[0], 404, "a snapshot is its workspace's")
    out.equal(make("t", snapshot_id=snap, workspace_id="a")[0], 201, "which can use it")
    for name in ("team", "t"):
        daemon.ask("DELETE", SESSIONS + "/%s?workspace_id=a" % name)
    out.equal((forget(snap), forget(snap), snap in files()), (200, 404, False), "one that is removed is gone")


def limits_and_restart():
    global daemon  # pylint: disable=global-statement
    old = daemon
    options = ["--snapshots", "2", "--snapshot-mb", "8", "--runners", "2"]
    data = os.path.join(old.dir, "second")
    daemon = service.Daemon(options=options, data=data)
    try:
        make("s")
        run("s", "echo kept >f")
        first = snapshot("s")[1]["id"]
        run("s", "head -c 16M /dev/urandom >big")
        status, answer = snapshot("s")
        out.equal((status, list(files())), (507, [first]), "no more than there is room for, and no rest")
        out.equal(fork("s", "t")[0], 507, "for a fork as well")
        run("s", "rm big")
        snapshot("s")
        status, answer = snapshot("s")
        out.ok(status == 507 and "2 snapshots" in str(answer), "no more than so many", str(answer))
        out.equal(says("s", "cat f"), "kept\n", "the session goes on")
        with open(os.path.join(data, "snapshots", "fork-1-2"), "wb") as f:
            f.write(b"x")
        with open(os.path.join(data, "snapshots", "snap-odd"), "wb") as f:
            f.write(b"x" * 4096)
    finally:
        daemon.stop()
    daemon = service.Daemon(options=options, data=data)
    try:
        out.ok(first in listed() and len(listed()) == 2, "snapshots outlive the service", str(listed()))
        out.equal(("fork-1-2" in files(), "snap-odd" in files()), (False, True),
                  "rests of forks are removed, files that are none left and passed over")
        out.equal((make("s", snapshot_id=first)[0], says("s", "cat f")), (201, "kept\n"), "and sessions begin with them")
    finally:
        daemon.stop()
    daemon = service.Daemon(options=[*options, "--keep-snapshots", "1"], data=data)
    try:
        out.ok(tap.wait_until(lambda: not listed(), 60), "old ones are removed", str(listed()))
        out.equal(list(files()), ["snap-odd"], "with their files")
    finally:
        daemon.stop()
        daemon = old


def cli():
    env = dict(os.environ, NSBOX_SOCKET=daemon.socket)

    def call(*args):
        done = subprocess.run([paths.NSBOX, "session", *args], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()
    call("exec", "tool", "--", "sh", "-c", "echo hi >f")
    status, text, err = call("snapshot", "tool")
    snap = text.strip()
    out.equal((status, snap in listed()), (0, True), "nsbox session snapshot")
    out.ok("tool" in call("snapshots")[1], "nsbox session snapshots")
    out.equal(call("restore", snap, "tool2"), (0, "tool2\n", ""), "nsbox session restore")
    out.equal(call("fork", "tool2", "tool3"), (0, "tool3\n", ""), "nsbox session fork")
    out.equal(call("exec", "tool3", "cat", "f")[1], "hi\n", "has the files")
    out.ok('added    "/workspace/f"' in call("changes", "tool")[1], "nsbox session changes", call("changes", "tool")[1])
    out.equal(call("forget", snap)[0], 0, "nsbox session forget")
    out.equal(call("restore", snap, "tool4")[0], 125, "and it is gone")
    for name in ("tool", "tool2", "tool3"):
        call("delete", name)


# ---------------------------------------------------------------- growth

def held(pid):
    """Descriptors and resident kB of the service's processes, by name."""
    found = {}
    for (child, _), name in leftovers.descendants(pid).items():
        try:
            with open("/proc/%d/status" % child, encoding="ascii", errors="replace") as f:
                kb = next((int(line.split()[1]) for line in f if line.startswith("VmRSS")), 0)
            fds = len(os.listdir("/proc/%d/fd" % child))
        except PermissionError:  # has no right to be looked at, so it is not counted
            fds = 0
        except (FileNotFoundError, ProcessLookupError):
            continue
        found[name] = (found.get(name, (0, 0))[0] + fds, found.get(name, (0, 0))[1] + kb)
    return found


def cycles():
    """The session is forked, the fork becomes the session; and a snapshot of each is gone back to."""
    make("c0")
    run("c0", "mkdir d; for i in $(seq 200); do echo $i >d/f$i; done; head -c 300k /dev/zero >z")
    first, begun = None, None
    for i in range(CYCLES):
        name, new = "c%d" % i, "c%d" % (i + 1)
        status, snap = snapshot(name)
        status2, answer = fork(name, new) if i % 2 else make(new, snapshot_id=snap["id"])
        if (status, status2, drop(name), forget(snap["id"])) != (201, 201, 200, 200):
            out.ok(False, "cycle %d" % i, str((snap, answer))[:500])
            return
        first = first or snap["bytes"]
        if i == min(CYCLES // 2, 50):
            begun = held(daemon.pid)
    last = "c%d" % CYCLES
    out.equal(says(last, "cat d/f* | sort -n | tail -1; ls d | wc -l; stat -c %s z").split(), ["200", "200", "307200"],
              "after %d snapshots and forks the files are what they were" % CYCLES)
    out.equal(snapshot(last)[1]["bytes"], first, "and a snapshot is as large as the first")
    forget(listed()[0])
    drop(last)
    ended = held(daemon.pid)
    grown = {n: (begun[n], ended.get(n)) for n in begun
             if n in ended and (ended[n][0] > begun[n][0] + 8 or ended[n][1] > begun[n][1] + 8192)}
    out.equal(grown, {}, "the service holds no more than half way")
    out.equal(files(), {}, "and nothing is left")


def main():
    global daemon  # pylint: disable=global-statement
    daemon = service.Daemon(options=["--runners", "2"])
    try:
        if not SOAK:
            snap = holds()
            forks(snap)
            frozen()
            drop("one")
            forget(snap)
        for part in (cycles,) if SOAK else (policy, changes, others, cli, cycles, limits_and_restart):
            part()
    finally:
        if out.failed:
            out.note(daemon.log()[-3000:])
        daemon.stop()
    return out.done()


if __name__ == "__main__":
    sys.exit(main())
