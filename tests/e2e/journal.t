#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The queue and its journal: nothing that was accepted is lost or runs twice, whoever is killed when.

NSBOX_ROUNDS says how often the service is killed under load (default 8; `make soak`: 200). That a
job runs once is seen from outside: each opens a file of the host that inotify watches.
"""

import collections
import ctypes
import glob
import os
import random
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, paths, service, tap

JOBS = "/v1/jobs"
ROUNDS = int(os.environ.get("NSBOX_ROUNDS", "8"))
libc = ctypes.CDLL(None, use_errno=True)


def post(daemon, text, key=None, **more):
    headers = {"Idempotency-Key": key} if key else None
    return daemon.ask("POST", JOBS, dict({"kind": "command", "command": text}, **more), 60, headers)


def get(daemon, job):
    return daemon.ask("GET", JOBS + "/" + job["id"])[1]


def finished(daemon, job, seconds=30):
    tap.wait_until(lambda: get(daemon, job)["state"] == "finished", seconds)
    return get(daemon, job)


def running(daemon, n):
    return tap.wait_until(lambda: daemon.ask("GET", "/healthz")[1]["queue"]["running"] == n, 15)


def pair(daemon):
    """(front, nsbox-spawn) of the service."""
    found = {name: pid for pid, (parent, state, _, name) in leftovers.processes().items()
             if parent == daemon.pid and state != "Z"}
    return (found["nsboxd"], found["nsbox-spawn"]) if len(found) == 3 else None


def kill(*pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def back(daemon, old, seconds=30):
    """Until another pair answers."""
    def check():
        try:
            return (set(pair(daemon) or old).isdisjoint(old)
                    and daemon.ask("GET", "/healthz", timeout=5)[0] == 200)
        except OSError:
            return False
    return tap.wait_until(check, seconds)


class Place:
    """A data directory that outlives the services on it."""

    def __enter__(self):
        self.top = tempfile.mkdtemp(prefix="nsbox-journal-")
        os.chmod(self.top, 0o755)
        return os.path.join(self.top, "data")

    def __exit__(self, *_):
        subprocess.run(["rm", "-rf", self.top], check=True)


# ---------------------------------------------------------------- one end at a time


def test_restart(t):
    with Place() as data:
        with service.Daemon(options=["--runners", "1"], data=data) as daemon:
            _, done = post(daemon, "echo early")
            finished(daemon, done)
            _, runs = post(daemon, "sleep 300")
            running(daemon, 1)
            waiting = [post(daemon, "echo $W", env={"W": "w%d" % i})[1] for i in range(3)]
            daemon.ask("DELETE", JOBS + "/" + waiting[1]["id"])
            t.equal(daemon.stop(), 0, "the service ends with jobs in its queue")
        with service.Daemon(options=["--runners", "1"], data=data) as daemon:
            ends = [finished(daemon, w) for w in waiting]
            t.equal([e["result"].get("stdout") for e in ends], ["w0\n", "", "w2\n"],
                    "the next one runs what waited, with its request")
            t.equal(ends[1]["cause"], "cancelled", "and not what was cancelled")
            t.equal(get(daemon, runs)["cause"], "interrupted", "what ran is interrupted")
            t.equal(get(daemon, done)["result"]["stdout"], "early\n", "an older result is still there")
            ids = [j["id"] for j in daemon.ask("GET", JOBS)[1]["jobs"]]
            t.equal(sorted(ids), sorted(j["id"] for j in [done, runs, *waiting]), "all are listed, once")


def test_killed_before_the_answer(t):
    with Place() as data, service.Daemon(options=["--runners", "1"], data=data) as daemon:
        _, runs = post(daemon, "sleep 300")
        running(daemon, 1)
        _, waits = post(daemon, "echo later")
        old = pair(daemon)
        kill(old[0])
        t.ok(back(daemon, old), "killed: a new pair answers", daemon.log())
        t.equal(finished(daemon, runs)["cause"], "interrupted", "killed: what ran is interrupted")
        t.equal(finished(daemon, runs)["result"]["cause"], "interrupted", "killed: with a result that says so")
        t.equal(finished(daemon, waits)["result"]["stdout"], "later\n", "killed: what waited runs")


def test_idempotency(t):
    with Place() as data:
        with service.Daemon(options=["--runners", "1"], data=data) as daemon:
            status, first = post(daemon, "echo one", key="k1", workspace_id="a")
            t.equal(status, 202, "a key is new")
            status, same = post(daemon, "echo one", key="k1", workspace_id="a")
            t.equal((status, same["id"]), (200, first["id"]), "once more gives the same job")
            status, reply = post(daemon, "echo two", key="k1", workspace_id="a")
            t.equal((status, reply["error"]["code"]), (409, "conflict"), "with another request: 409")
            status, other = post(daemon, "echo one", key="k1", workspace_id="b")
            t.ok(status == 202 and other["id"] != first["id"], "another workspace has keys of its own")
            _, traced = post(daemon, "echo t", trace_id="t1")
            status, same = post(daemon, "echo t", trace_id="t1")
            t.equal((status, same["id"]), (200, traced["id"]), "so does a trace_id")
            status, more = post(daemon, "echo u", trace_id="t1")
            t.ok(status == 202 and more["id"] != traced["id"], "but a trace may have many jobs")
            a, b = post(daemon, "echo x")[1], post(daemon, "echo x")[1]
            t.ok(a["id"] != b["id"], "without a key each request is a job")
            status, reply = daemon.ask("POST", "/v1/execute/command", {"command": "true"}, 30,
                                       {"Idempotency-Key": "k"})
            t.equal(status, 400, "a synchronous call has no key")
            finished(daemon, first)
        with service.Daemon(options=["--runners", "1"], data=data) as daemon:
            status, same = post(daemon, "echo one", key="k1", workspace_id="a")
            t.equal((status, same["id"], same["state"]), (200, first["id"], "finished"), "also after a restart")
            answers = []
            threads = [threading.Thread(target=lambda: answers.append(post(daemon, "echo race", key="race")))
                       for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            t.equal(len({reply["id"] for _, reply in answers}), 1, "eight at once: one job")


def test_keep(t):
    with Place() as data, service.Daemon(options=["--keep-results", "2"], data=data) as daemon:
        _, job = post(daemon, "echo kept", key="k")
        t.equal(finished(daemon, job)["result"]["stdout"], "kept\n", "a result is kept")
        t.ok(tap.wait_until(lambda: daemon.ask("GET", JOBS + "/" + job["id"])[0] == 404, 15),
             "for as long as it should be")
        status, again = post(daemon, "echo kept", key="k")
        t.ok(status == 202 and again["id"] != job["id"], "then its key is free")


# ---------------------------------------------------------------- limits


def test_limits(t):
    options = ["--runners", "4", "--workspace-runners", "2", "--workspace-queue", "2"]
    with service.Daemon(options=options) as daemon:
        jobs = [post(daemon, "sleep 300", workspace_id="a") for _ in range(2)]
        running(daemon, 2)
        jobs += [post(daemon, "sleep 300", workspace_id="a") for _ in range(2)]
        t.equal([s for s, _ in jobs], [202] * 4, "two run, two wait")
        status, reply = post(daemon, "true", workspace_id="a")
        t.ok(status == 429 and "workspace 'a'" in reply["error"]["message"], "its queue is full: 429", str(reply))
        status, reply = daemon.ask("POST", "/v1/execute/command", {"command": "echo b", "workspace_id": "b"})
        t.equal((status, reply["stdout"]), (200, "b\n"), "another workspace runs meanwhile")
        t.equal(daemon.ask("GET", "/healthz")[1]["queue"], {"waiting": 2, "max": 1000, "running": 2, "runners": 4},
                "no more than its part runs")
        daemon.ask("DELETE", JOBS + "/" + jobs[0][1]["id"])
        t.ok(tap.wait_until(lambda: get(daemon, jobs[2][1])["state"] == "running", 15), "a free place is used")


def test_priorities(t):
    with service.Daemon(options=["--runners", "1"]) as daemon:
        _, first = post(daemon, "sleep 300")
        running(daemon, 1)
        jobs = {p: post(daemon, "true", priority=p)[1] for p in ("low", "normal", "high")}
        t.equal(jobs["low"]["priority"], "low", "a job says its priority")
        t.equal(post(daemon, "true", priority="urgent")[0], 400, "others are unknown")
        daemon.ask("DELETE", JOBS + "/" + first["id"])
        ends = {p: finished(daemon, j)["started_ms"] for p, j in jobs.items()}
        t.ok(ends["high"] <= ends["normal"] <= ends["low"], "high before normal before low", str(ends))


# ---------------------------------------------------------------- who sees what

def test_who(t):
    if os.getuid() != 0:
        t.note("other users can be tried as root alone")
        return
    options = [w for uid in (12345, 12346, 12347, 12348) for w in ("--allow-uid", str(uid))]
    with service.Daemon(options=options + ["--workspace", "12345=a", "--workspace", "12346=b", "--runners", "1"]) as d:
        def submit(uid, **more):
            return service.ask_as(uid, d, "POST", JOBS, dict({"kind": "command", "command": "sleep 300"}, **more))
        status, mine = submit(12345)
        t.equal((status, mine["workspace_id"]), (202, "a"), "who is tied to a workspace is in it")
        t.equal(submit(12345, workspace_id="a")[0], 202, "and may say so")
        t.equal(submit(12345, workspace_id="b")[0], 403, "but name no other")
        t.equal(submit(12347, workspace_id="a")[0], 403, "nor does anybody else get in")
        status, free = submit(12347, workspace_id="x")
        t.equal(status, 202, "who is tied to none may name others")
        _, roots = post(d, "sleep 300", workspace_id="a")
        place = JOBS + "/" + mine["id"]
        unknown = service.ask_as(12346, d, "GET", JOBS + "/" + "0" * len(mine["id"]))
        for method in ("GET", "DELETE"):
            for uid in (12346, 12347):
                status, reply = service.ask_as(uid, d, method, place)
                same = str(reply).replace(mine["id"], "0" * len(mine["id"])) == str(unknown[1])
                t.ok(status == unknown[0] == 404 and same,
                     "%s of a foreign job by %d is as of an unknown one" % (method, uid), str(reply))
        t.equal(service.ask_as(12348, d, "GET", JOBS + "/" + free["id"])[0], 404, "another free user's job neither")
        t.equal(get(d, mine)["state"] in ("queued", "running"), True, "and nothing happened to it")
        for uid, count in ((12345, 3), (12346, 0), (12347, 1), (12348, 0)):
            t.equal(len(service.ask_as(uid, d, "GET", JOBS)[1]["jobs"]), count, "user %d sees %d jobs" % (uid, count))
        t.equal(len(d.ask("GET", JOBS)[1]["jobs"]), 4, "root sees all")
        t.equal(service.ask_as(12345, d, "DELETE", JOBS + "/" + roots["id"])[1]["cause"], "cancelled",
                "its workspace's jobs are its own, whoever sent them")
        t.equal(service.ask_as(12345, d, "DELETE", place)[0] in (200, 202), True, "and it cancels its own")
        t.equal(finished(d, mine)["cause"], "cancelled", "which ends")
        t.equal(service.ask_as(12346, d, "GET", place)[0], 404, "a foreign one that ended is unknown as well")
        t.equal(service.ask_as(12345, d, "GET", place)[1]["cause"], "cancelled", "and its own is not")


# ---------------------------------------------------------------- the directory


def refused(t, data, what, part):
    done = subprocess.run([paths.NSBOXD, "--socket", os.path.join(os.path.dirname(data), "s"), "--data-dir", data],
                          capture_output=True, text=True, timeout=60, check=False)
    t.ok(done.returncode == 1 and part in done.stderr, what, "%d %s" % (done.returncode, done.stderr))


def test_directory(t):
    with Place() as data:
        with service.Daemon(data=data) as daemon:
            st = os.stat(data)
            t.equal(st.st_mode & 0o7777, 0o700, "the data directory is closed")
            front = os.stat("/proc/%d" % pair(daemon)[0]).st_uid
            owner = int(leftovers.read("/proc/%d/status" % pair(daemon)[0]).split("Uid:")[1].split()[0])
            t.ok(st.st_uid == owner, "and the front's own", "%d %d %d" % (st.st_uid, owner, front))
            modes = {name: os.stat(os.path.join(data, name)).st_mode & 0o7777 for name in os.listdir(data)}
            t.ok("journal.db" in modes and set(modes.values()) == {0o600, 0o700} and modes["snapshots"] == 0o700,
                 "so are its files, and what is in it", str(modes))
            refused(t, data, "a second service on it is told", "in use by another service")
            t.equal(daemon.ask("GET", "/healthz")[0], 200, "and does the first no harm")
        os.chmod(data, 0o750)
        refused(t, data, "one that is open to others is refused", "chmod 700")
        os.chmod(data, 0o700)
        os.rename(data, data + "2")
        os.symlink(data + "2", data)
        refused(t, data, "a link is refused", "Not a directory")
        os.unlink(data)
        with open(data, "w", encoding="ascii"):
            pass
        refused(t, data, "a file is refused", "Not a directory")
        os.unlink(data)
        os.chmod(os.path.dirname(data), 0o777)
        refused(t, data, "a parent that others may write to is refused", "chmod go-w")
        os.chmod(os.path.dirname(data), 0o755)
        os.rename(data + "2", data)
        if os.getuid() == 0:
            os.chown(data, 12345, 12345)
            refused(t, data, "one of somebody else is refused", "belongs to user 12345")
            os.chown(data, st.st_uid, st.st_gid)
        with service.Daemon(data=data) as daemon:
            t.equal(daemon.ask("GET", "/healthz")[0], 200, "as it was it works")


# ---------------------------------------------------------------- a full disk


def fill(path, leave):
    """Take all but so many bytes of a file system."""
    with open(path, "wb", buffering=0) as f:
        while True:
            st = os.statvfs(os.path.dirname(path))
            n = st.f_bavail * st.f_frsize - leave
            if n <= 0 and leave:
                return
            try:
                f.write(b"x" * max(min(n, 1 << 20), 4096))
            except OSError:
                return


def test_full_disk(t):
    if os.getuid() != 0:
        t.note("a file system of a test's own needs root; the unit tests fill a journal")
        return
    if libc.unshare(0x00020000) != 0:  # CLONE_NEWNS: nobody else sees this mount
        raise OSError(ctypes.get_errno(), "unshare")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    with Place() as data:
        disk = os.path.dirname(data)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m,mode=755", "none", disk], check=True)
        try:
            with service.Daemon(options=["--runners", "1"], data=data) as daemon:
                full_disk(t, daemon, os.path.join(disk, "ballast"))
        finally:
            subprocess.run(["umount", "-l", disk], check=True)


def full_disk(t, daemon, ballast):
    _, runs = post(daemon, "sleep 3; head -c 600000 /dev/urandom | base64")
    _, waits = post(daemon, "echo waited")
    running(daemon, 1)
    fill(ballast, 8 << 20)
    status, reply = post(daemon, "true")
    t.ok(status == 503 and "MB are free for the journal" in reply["error"]["message"],
         "a disk that is nearly full: 503 with the reason", str(reply))
    t.equal(daemon.ask("POST", "/v1/execute/command", {"command": "true"})[0], 503, "for synchronous calls as well")
    fill(ballast + "2", 0)
    health = lambda: daemon.ask("GET", "/healthz")
    t.ok(tap.wait_until(lambda: health()[0] == 503, 15), "quite full: the health check says so", str(health()))
    t.equal(health()[1].get("status"), "no journal", "and why")
    time.sleep(1.5)
    t.ok(get(daemon, runs)["state"] == "running" and get(daemon, waits)["state"] == "queued",
         "what cannot be written is not told")
    os.unlink(ballast)
    os.unlink(ballast + "2")
    done = finished(daemon, runs)
    t.ok(done["cause"] == "exit" and len(done["result"]["stdout"]) > 800000, "with room again the result is there",
         str(done)[:300])
    t.equal(finished(daemon, waits)["result"]["stdout"], "waited\n", "what waited runs")
    t.equal(post(daemon, "true")[0], 202, "and jobs are accepted")


# ---------------------------------------------------------------- a slow disk


class Disk:
    """Syncs of the service's journal go through strace, which says how they go."""

    def __init__(self, daemon, how):
        front = pair(daemon)[0]
        threads = tap.wait_until(lambda: [n for n in os.listdir("/proc/%d/task" % front) if leftovers.read(
            "/proc/%d/task/%s/comm" % (front, n)).strip() == "nsboxd-sync"], 20)
        self.state = "/proc/%d/task/%s/stat" % (front, threads[0])
        self.tracer = subprocess.Popen(["strace", "-p", threads[0], "-e", "trace=fdatasync", "-e", "inject=fdatasync:" + how],
                                       stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.attached = "attached" in self.tracer.stderr.readline()

    def waits(self):
        """Until a sync is under way that strace holds up."""
        return tap.wait_until(lambda: leftovers.read(self.state).rpartition(")")[2].split()[0] == "t", 30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.tracer.terminate() # the call that it delays goes on
        self.tracer.communicate()


def in_background(call):
    answers = []

    def take():
        try:
            answers.append(call())
        except (OSError, service.http.client.HTTPException) as error:
            answers.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    return thread, answers


def can_trace(t, disk):
    if not disk.attached:
        t.ok(os.getuid() != 0 or not os.environ.get("NSBOX_MUST_WORK"), "strace may trace the service")
        t.note("strace may not trace the service")
    return disk.attached


def test_slow_disk(t):
    """Who waits for the disk waits alone, and has not happened until it is there."""
    with service.Daemon() as daemon:
        with Disk(daemon, "delay_enter=300s") as disk:
            if not can_trace(t, disk):
                return
            thread, answers = in_background(lambda: post(daemon, "echo slow", key="slow"))
            again, same = in_background(lambda: post(daemon, "echo slow", key="slow"))
            t.ok(disk.waits(), "a job waits for the disk")
            for _ in range(3):
                status, reply = daemon.ask("POST", "/v1/execute/command", {"command": "echo fast"})
                t.equal((status, reply.get("stdout")), (200, "fast\n"), "others do not")
            more, third = in_background(lambda: post(daemon, "echo third"))
            t.equal([j for j in daemon.ask("GET", JOBS)[1]["jobs"] if j["state"] != "finished"], [], "it is not there for anybody")
            t.equal((answers, same, third), ([], [], []), "and not accepted")
        for waiting in (thread, again, more):
            waiting.join(60)
        t.equal([answers[0][0], same[0][0], third[0][0]], [202] * 3, "until the disk has it")
        t.equal(same[0][1]["id"], answers[0][1]["id"], "once, however often it was sent meanwhile")
        t.equal(finished(daemon, answers[0][1])["result"]["stdout"], "slow\n", "then it runs")
        t.equal(finished(daemon, third[0][1])["cause"], "exit", "as does what came while it waited")
        with Disk(daemon, "delay_enter=300s") as disk:
            thread, answers = in_background(lambda: post(daemon, "sleep 300", key="killed"))
            disk.waits()
            old = pair(daemon)
            kill(old[0]) # and then strace, which would keep a thread of it
        t.ok(back(daemon, old), "killed while it waits, the service is back", daemon.log())
        jobs = [j for j in daemon.ask("GET", JOBS)[1]["jobs"] if j["state"] != "finished" or j["cause"] != "exit"]
        status, reply = post(daemon, "sleep 300", key="killed")
        t.equal((len(jobs), status, reply["id"]), (1, 200, jobs[0]["id"]), "with the job that nobody has heard of, once")
        daemon.ask("DELETE", JOBS + "/" + reply["id"])


def test_broken_disk(t):
    """A sync that fails is not tried again: what was written is looked at anew."""
    with service.Daemon() as daemon:
        with Disk(daemon, "error=EIO:when=1") as disk:
            if not can_trace(t, disk):
                return
            old = pair(daemon)
            try:
                status = post(daemon, "echo once", key="b")[0]
            except (OSError, service.http.client.HTTPException):
                status = None
            t.ok(status in (503, None), "a job that the disk did not take is not accepted", str(status))
            t.ok(back(daemon, old), "the service starts anew", daemon.log())
        t.ok("journal: sync" in daemon.log(), "and says why")
        status, job = post(daemon, "echo once", key="b")
        t.ok(status in (200, 202), "then it is accepted")
        t.ok(finished(daemon, job)["cause"] in ("exit", "interrupted"), "and comes to an end")


# ---------------------------------------------------------------- many ends


class Opens(threading.Thread):
    """Counts how often files are opened, by whomever, in whatever mount namespace.

    Some are decoys that no job opens: when one is opened somebody else is reading his way through
    the machine, and what is opened within a second of that does not count.
    """

    def __init__(self, files, decoys):
        super().__init__(daemon=True)
        self.fd = libc.inotify_init1(os.O_CLOEXEC)
        self.seen = []
        self.decoys = set(decoys)
        self.names = {}
        for name in [*files, *decoys]:
            self.names[libc.inotify_add_watch(self.fd, name.encode(), 0x20)] = name  # IN_OPEN
        self.start()

    def run(self):
        while True:
            data = os.read(self.fd, 1 << 16)
            while data:
                wd, _, _, n = struct.unpack_from("iIII", data)
                self.seen.append((time.monotonic(), self.names.get(wd)))
                data = data[16 + n:]

    def count(self):
        """({name: how often}, whether somebody else was reading)."""
        others = [when for when, name in self.seen if name in self.decoys]
        count = collections.Counter(name for when, name in self.seen
                                    if all(abs(when - other) > 1 for other in others))
        return count, bool(others)


class Load:
    """Clients that send jobs, each until it is answered, and callers that wait."""

    def __init__(self, socket, files):
        self.socket = socket
        self.files = files
        self.jobs = {}  # key -> (id, file)
        self.lock = threading.Lock()
        self.sent = 0
        self.stop = False
        self.faults = []
        self.threads = [threading.Thread(target=self.client) for _ in range(3)]
        self.threads.append(threading.Thread(target=self.caller))
        for thread in self.threads:
            thread.start()

    def client(self):
        while not self.stop:
            with self.lock:
                self.sent += 1
                key, path = "key-%d" % self.sent, self.files[self.sent % len(self.files)]
            body = {"kind": "command", "command": ": <%s; sleep 0.0%d" % (path, random.randrange(1, 9)),
                    "workspace_id": "w%d" % (self.sent % 3)}
            until = time.monotonic() + 600 # also when no others are begun: it may be in the journal already
            while time.monotonic() < until:
                try:
                    status, reply = service.ask(self.socket, "POST", JOBS, body, 60, {"Idempotency-Key": key})
                except (OSError, ValueError, service.http.client.HTTPException):
                    time.sleep(0.02)
                    continue
                if status in (200, 202):
                    self.jobs[key] = (reply["id"], path)
                    break
                if status not in (429, 503):
                    self.faults.append((status, reply))
                    break
                time.sleep(0.05)
            time.sleep(random.random() * 0.05)

    def caller(self):
        while not self.stop:
            try:
                status, reply = service.ask(self.socket, "POST", "/v1/execute/command",
                                            {"command": "echo sync", "workspace_id": "s"}, 60)
                if status == 200 and reply["cause"] == "exit" and reply["stdout"] != "sync\n":
                    self.faults.append((status, reply))
            except (OSError, ValueError, service.http.client.HTTPException):
                time.sleep(0.02)

    def end(self):
        self.stop = True
        for thread in self.threads:
            thread.join()


def watched_files():
    """A few hundred files of the host that nobody reads, and that are in the image."""
    found = [f for f in sorted(glob.glob("/usr/share/doc/*/copyright") + glob.glob("/usr/share/doc/*/changelog*"))
             if os.path.isfile(f) and not os.path.islink(f)]
    seen = {}
    for name in found:
        seen.setdefault(os.stat(name).st_ino, name)
    found = list(seen.values())
    random.shuffle(found)  # two such tests at once are to notice each other
    return found[:1600]


def start_service(data, socket):
    daemon = service.Daemon(options=["--runners", "3"], data=data)
    # Clients know one path, whichever service is behind it.
    if os.path.lexists(socket):
        os.unlink(socket)
    os.symlink(daemon.socket, socket)
    return daemon


def one_round(number, daemon, data, socket):
    """Kill somebody at any time; returns the service that then runs, and who was killed."""
    time.sleep(random.random() * 0.4)
    old = tap.wait_until(lambda: pair(daemon), 20)
    what = random.choice(("front", "spawn", "both"))
    if number % 4 == 3:
        kill(daemon.pid, *old)
        daemon.stop()
        return start_service(data, socket), "all"
    kill(*{"front": old[:1], "spawn": old[1:], "both": old}[what])
    if not back(daemon, old):
        raise RuntimeError("the pair did not come back:\n" + daemon.log())
    return daemon, what


def test_kill_rounds(t):
    seed = int(os.environ.get("NSBOX_SEED", str(random.randrange(1 << 30))))
    random.seed(seed)
    t.note("NSBOX_SEED=%d, %d rounds" % (seed, ROUNDS))
    files = watched_files()
    t.ok(len(files) > 100, "there are files to watch", str(len(files)))
    with Place() as data:
        socket = os.path.join(os.path.dirname(data), "socket")
        before = leftovers.Snapshot()
        daemon = start_service(data, socket)
        opens = Opens(files[::2], files[1::2])
        files = files[::2]
        load = Load(socket, files)
        kinds = collections.Counter()
        try:
            for number in range(ROUNDS):
                daemon, what = one_round(number, daemon, data, socket)
                kinds[what] += 1
        finally:
            load.end()
        t.equal(load.faults, [], "no other answer than accepted, full, or restarting")
        quiet = tap.wait_until(lambda: settled(daemon), 120 + len(load.jobs), 0.3)
        t.ok(quiet, "all jobs come to an end", daemon.log()[-3000:])
        ends = check_ends(t, daemon, load)
        daemon.stop()
        t.note("%s, %d jobs, ends %s" % (dict(kinds), len(load.jobs), dict(ends)))
        check_file(t, data, load)
        check_opens(t, opens, load, ends)
        left = [l for l in before.left(["no_processes", "no_mounts", "no_netns"], 20)]
        t.equal(left, [], "no process, mount or namespace is left")
        t.equal(sorted(n for n in os.listdir(data) if not n.startswith(("journal.db", "audit.log"))), ["snapshots"],
                "no file is left")
        t.equal(os.listdir(os.path.join(data, "snapshots")), [], "nor one of another kind")


def settled(daemon):
    try:
        queue = daemon.ask("GET", "/healthz", timeout=10)[1]["queue"]
        return queue["waiting"] == queue["running"] == 0
    except OSError:
        return False


def check_ends(t, daemon, load):
    """Every accepted job is known and at an end."""
    ends, wrong = collections.Counter(), []
    for key, (job, _) in load.jobs.items():
        reply = get(daemon, {"id": job})
        cause = reply.get("cause")
        ends[cause] += 1
        if reply.get("state") != "finished" or cause not in ("exit", "interrupted") \
                or (cause == "exit" and reply["result"]["exit_code"] != 0):
            wrong.append((key, reply))
    t.equal(wrong[:3], [], "every accepted job has finished or was interrupted")
    t.ok(ends["exit"] > ROUNDS and ends["interrupted"] > 0, "both kinds are there", str(dict(ends)))
    return ends


def check_file(t, data, load):
    db = sqlite3.connect(os.path.join(data, "journal.db"))
    total, open_jobs = db.execute("SELECT count(*), coalesce(sum(state < 2), 0) FROM job WHERE NOT sync").fetchone()
    t.equal((total, open_jobs), (len(load.jobs), 0), "accepted = finished + interrupted + queued, and none is queued")
    t.equal(db.execute("SELECT count(*) FROM job WHERE sync AND state < 2").fetchone()[0], 0,
            "synchronous calls are at an end, too")
    t.equal(db.execute("SELECT count(*) FROM request").fetchone()[0], 0, "no request is kept beyond its job")
    t.equal(db.execute("PRAGMA integrity_check").fetchone()[0], "ok", "the file is whole")
    db.close()


def check_opens(t, opens, load, ends):
    """A finished job has opened its file once, an interrupted one at most once."""
    time.sleep(0.5)
    jobs = collections.Counter(path for _, path in load.jobs.values())
    count, others = opens.count()
    twice = {path: (count[path], n) for path, n in jobs.items() if count[path] > n}
    t.equal(twice, {}, "no job ran twice")
    ran = sum(count[path] for path in jobs)
    if others:
        t.note("somebody else read these files: %d runs were seen of %s" % (ran, dict(ends)))
    else:
        t.ok(ends["exit"] <= ran <= sum(ends.values()), "and each that finished ran",
             "%d runs, ends %s" % (ran, dict(ends)))


if __name__ == "__main__":
    leftovers.become_subreaper()
    with service.Daemon() as warm:
        post(warm, "true")
    TESTS = [test_restart, test_killed_before_the_answer, test_idempotency, test_keep, test_limits,
             test_priorities, test_who, test_directory, test_slow_disk, test_broken_disk, test_kill_rounds, test_full_disk]
    sys.exit(tap.run([test for test in TESTS if len(sys.argv) < 2 or test.__name__ in sys.argv[1:]]))
