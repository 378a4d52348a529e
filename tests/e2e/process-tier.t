#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""nsbox run --tier process: what holds a run without namespaces, what of it is said to be missing, and what is refused
by name. On this host, where the tier is asked for, and in a container as Docker starts one, where there is no other.

Where something is refused, a twin beside it shows that it works without the sandbox, or with namespaces.
"""

import glob
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, docker, leftovers, paths, tap

ROOT = os.geteuid() == 0
TIER = ("--tier", "process")
ABSENT = {"user", "mount", "pid", "net", "ipc", "uts", "cgroupNamespace", "root", "overlay", "proc", "nftables",
          "cgroupLimits"}
place = paths.scratch("nsbox-process-tier-")
os.chmod(place, 0o755)  # what is not reached in it is not for want of a mode

# An argument that is as a whole a path of /tmp would name the run's own.
AS_TEXT = "path:"

# What a program tries: {name: worked}. The same text runs outside, where most of it works.
ACTS = r"""
import ctypes, json, os, socket, subprocess, sys
secret, owner = sys.argv[1].removeprefix("path:"), int(sys.argv[2])
def tried(act):
    try:
        return act() is not False
    except OSError:
        return False
def new_namespace():
    return subprocess.run(["unshare", "-U", "true"], stderr=subprocess.DEVNULL).returncode == 0
def abstract():
    with socket.socket(socket.AF_UNIX) as s:
        s.bind("\0nsbox-test-%d" % os.getpid())
print(json.dumps({
    "a secret": tried(lambda: open(secret).read()),
    "the list of a directory": tried(lambda: os.listdir(os.path.dirname(secret))),
    "the users of the host": tried(lambda: open("/etc/passwd").read()),
    "a file in the host's /tmp": tried(lambda: os.close(os.open("/tmp/nsbox-test-%d" % os.getpid(), os.O_CREAT | os.O_RDWR))),
    "variables of the owner": tried(lambda: open("/proc/%d/environ" % owner).read()),
    "memory of the owner": tried(lambda: open("/proc/%d/mem" % owner, "rb")),
    "a signal to the owner": tried(lambda: os.kill(owner, 0)),
    "an internet socket": tried(lambda: socket.socket(socket.AF_INET).close()),
    "a datagram socket": tried(lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()),
    "a Unix socket": tried(lambda: socket.socket(socket.AF_UNIX).close()),
    "an abstract socket": tried(abstract),
}))
"""

# What has to work: ordinary programs do not notice.
WORKS = r"""
import ctypes, json, multiprocessing, os, sqlite3, subprocess, sys, tempfile, threading
def f():
    threads = [threading.Thread(target=os.getpid) for _ in range(16)]
    for t in threads: t.start()
    for t in threads: t.join()
    with tempfile.NamedTemporaryFile() as t:
        here = t.name.startswith(os.environ["NSBOX_ROOT"] + "/tmp/")
    with open("a", "w") as a: a.write("x")
    os.mkdir("d"); os.rename("a", "d/b")
    db = sqlite3.connect("db"); db.execute("create table t(x)"); db.commit()
    left, right = multiprocessing.Pipe()
    child = multiprocessing.Process(target=right.send, args=(7,)); child.start(); got = left.recv(); child.join()
    return [here, os.getcwd() == os.environ["NSBOX_ROOT"] + "/workspace", os.path.isdir(os.environ["HOME"]), got,
            subprocess.run("echo $((6*7)) | cat", shell=True, capture_output=True, text=True).stdout,
            open("/proc/self/status").readline().split()[1] != ""]
"""


def write(name, text):
    path = os.path.join(place, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, 0o644)
    return path


def run(*argv, options=(), **more):
    return cli.run(*argv, options=[*TIER, *options], **more)


def test_confined(t):
    secret = write("secret", "the secret of this test")
    argv = ["python3", "-c", ACTS, AS_TEXT + secret, str(os.getpid())]
    inside, outside = run(*argv), subprocess.run(argv, capture_output=True, check=True)
    free = json.loads(outside.stdout)
    t.ok(all(free.values()), "without a sandbox all of it works", str(free))
    t.equal([k for k, worked in json.loads(inside.out or "{}").items() if worked], [], "in the tier process nothing does")
    for path in glob.glob("/tmp/nsbox-test-*"):
        os.unlink(path)


def test_works(t):
    done = cli.run(options=[*TIER, "--python", write("works.py", WORKS)])
    value = (done.report or {}).get("data")
    t.equal(value, [True, True, True, 7, "42\n", True], "threads, processes, files, a database" + ("" if value else repr(done)))


def layers(done, key):
    return {row["layer"] for row in done.report[key]}


def test_told(t):
    done = run("true")
    missing, held = layers(done, "notEnforced"), layers(done, "enforced")
    t.equal(missing - {"landlockScopes"}, ABSENT | (set() if ROOT else {"ownId"}), "the result lists what is missing")
    t.ok({"noNewPrivileges", "capabilities", "seccomp", "landlockFs", "witness"} <= held, "and what holds it", str(held))
    left = set(done.report["notStopped"])
    t.equal((done.report["tier"], left & BY_ID), ("process", set() if ROOT else BY_ID - by_scope(done)),
            "and what is not stopped")
    t.ok({"processes", "host", "paths", "disk", "memory"} <= left, "whoever starts it", str(left))
    twin = cli.run("true")
    t.equal(layers(twin, "notEnforced") & {"user", "mount", "pid", "net"}, set(), "without the option no run is one of that tier")
    t.ok(twin.report["tier"] in ("namespace", "cgroup") and "notStopped" not in twin.report, "and nothing of it is said",
         str(twin.report))
    verbose = subprocess.run([paths.NSBOX, "run", *TIER, "--verbose", "--", "true"], capture_output=True, text=True,
                             check=False)
    t.ok("\nnot stopped from %s;" % " ".join(done.report["notStopped"]) in verbose.stderr, "--verbose names the same",
         verbose.stderr)


# What a user of the run's own closes, and of that what Landlock's scopes close as well.
BY_ID = {"attributes", "groups", "priority", "signals", "outlive"}


def by_scope(done):
    return {"signals", "outlive"} if "landlockScopes" in layers(done, "enforced") else set()


# What is said not to be stopped, each by a deed: {gap: worked}. More memory, more of the processor and a full disk
# are the selftest's and the limits' to show; what takes two containers or an old kernel is not here.
DEEDS = r"""
import ctypes, json, os, sys
path, owner, groups, mounts = sys.argv[1].removeprefix("path:"), int(sys.argv[2]), sys.argv[3], sys.argv[4]
libc = ctypes.CDLL(None)
def tried(act):
    try:
        return bool(act())
    except OSError:
        return False
def set_id():
    os.close(os.open("x", os.O_CREAT)); os.chmod("x", 0o4755)
    return os.stat("x").st_mode & 0o4000 and not os.statvfs(".").f_flag & os.ST_NOSUID
print(json.dumps({
    "processes": tried(lambda: open("/proc/%d/cmdline" % owner).read()),
    "host": tried(lambda: open("/proc/self/mountinfo").readline().split()[0] == mounts),
    "paths": tried(lambda: os.stat(path)),
    "userLimits": tried(lambda: all(libc.inotify_init1(0) >= 0 for _ in range(40))),
    "setId": tried(set_id),
    "attributes": tried(lambda: os.chmod(path, 0o600) or True),
    "groups": bool(groups) and groups == repr(os.getgroups()),
    "priority": tried(lambda: os.setpriority(os.PRIO_PROCESS, owner, os.getpriority(os.PRIO_PROCESS, owner)) or True),
    "signals": tried(lambda: os.kill(owner, 0) or True),
}))
"""


def test_gaps(t):
    """The list is neither longer nor shorter than what is true, and with namespaces nothing of it is."""
    path = write("of-the-caller", "x")
    groups = repr(os.getgroups()) if os.getgroups() else ""
    argv = ["python3", "-c", DEEDS, AS_TEXT + path, str(os.getpid()), groups,
            leftovers.read("/proc/self/mountinfo").split()[0]]
    done = run(*argv)
    worked = json.loads(done.out or "{}")
    said = {gap: gap in done.report["notStopped"] for gap in worked}
    if not groups:  # a caller who has none cannot tell
        worked["groups"] = said.get("groups")
    t.equal(len(said), 9, "nine deeds are tried") or t.note(done.err)
    t.equal(worked, said, "what is said not to be stopped works, and nothing else does") or t.note(done.err)
    t.equal(os.stat(path).st_mode & 0o777, 0o644 if ROOT else 0o600,
            "the mode of a file of the caller's is changed by its user alone")
    done = cli.run(*argv)
    worked = json.loads(done.out or '{"nothing": true}')
    t.equal([gap for gap, did in worked.items() if did], [], "with namespaces none of it works") or t.note(done.err)


REFUSED = [
    ({"network": {"mode": "open"}}, "/network/mode"),
    ({"network": {"mode": "allowlist", "allow": [{"host": "example.com", "ports": [443], "description": "x"}]}}, "/network/allow/0"),
    ({"filesystem": {"mask": ["/tmp/x"]}}, "/filesystem/mask"),
    ({"filesystem": {"readOnly": ["/tmp/x"]}}, "/filesystem/readOnly"),
    ({"filesystem": {"write": ["/var/x"]}}, "/filesystem/write/0"),
    ({"resources": {"disk": "10Mi"}}, "/resources/disk"),
    ({"syscalls": {"allow": ["socket"]}}, "/syscalls"),
    ({"process": {"listen": True}}, "/process/listen"),
    ({"profile": "build"}, "/profile"),
    ({"require": {"net": "require"}}, "/require/net"),
    ({"minTier": "namespace"}, "/minTier"),
    ({"determinism": {"hostname": "x"}}, "/determinism/hostname"),
]


def test_refused(t):
    for manifest, place_of_it in REFUSED:
        done = run("true", manifest=manifest)
        t.ok(done.status == 125 and place_of_it + ": " in done.err and "tier" in done.err,
             "%s is refused by name" % place_of_it, repr(done))
    for options in (["--changes"], ["--tty"], ["--image", "no-such"]):
        done = run("true", options=options)
        t.ok(done.status in (125, 126) and done.report is None or done.report["cause"] == "sandbox",
             "%s is refused" % options[0], repr(done))
    done = run("true", manifest={"network": {"mode": "allowlist", "allow": [
        {"host": "example.com", "ports": [443], "description": "x", "optional": True}]}})
    t.equal(done.status, 0, "and an optional host is only left out")


def alive(mark):
    found = subprocess.run(["pgrep", "-f", "^sleep " + mark], capture_output=True, check=False)
    return len(found.stdout.split())


TREE = "setsid sleep {0} & (setsid sleep {0} &) ; (sh -c 'trap \"\" TERM; sleep {0} & wait' &) ; sleep {0}"


def test_ends(t):
    mark = "3%06d" % os.getpid()
    script = TREE.format(mark)
    control = subprocess.Popen(["sh", "-c", script], start_new_session=True)
    deadline = time.monotonic() + 60
    while alive(mark) < 4 and time.monotonic() < deadline:
        time.sleep(0.05)
    t.equal(alive(mark), 4, "without a sandbox there are four of them")
    control.kill()
    control.wait()
    t.ok(alive(mark) >= 3, "and orphans outlive their parent")
    subprocess.run(["pkill", "-KILL", "-f", "^sleep " + mark], check=False)
    done = run("sh", "-c", script, options=["--timeout", "1"])
    t.equal((done.report["cause"], alive(mark)), ("wallTime", 0), "in the tier process none is left after the time limit")
    done = run("sh", "-c", "(setsid sleep %s &); exit 3" % mark)
    t.equal((done.status, alive(mark)), (3, 0), "nor after the end of the program")
    owner = subprocess.Popen([paths.NSBOX, "run", *TIER, "--no-tty", "--", "sh", "-c", "sleep %s & sleep %s" % (mark, mark)])
    while alive(mark) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    owner.kill()
    owner.wait()
    while alive(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    t.equal(alive(mark), 0, "nor after the death of the owner")


def test_limits(t):
    small = {"resources": {"memory": "64Mi", "pids": 16}, "timeouts": {"wall": "20s"}}
    text = "try:\n x = bytearray(100 << 20)\n print('got it')\nexcept MemoryError:\n print('refused')"
    t.equal(run("python3", "-c", text, manifest=small).out, "refused\n", "more data than the limit is refused")
    t.equal(subprocess.run(["python3", "-c", text], capture_output=True, check=True).stdout, b"got it\n", "its twin gets it")
    shared = "import mmap, time\nm = mmap.mmap(-1, 96 << 20)\nfor i in range(0, 96 << 20, 4096): m[i] = 1\ntime.sleep(15)"
    t.equal(run("python3", "-c", shared, manifest=small).report["cause"], "memory", "shared memory is the watchdog's")
    many = "import os, time\nn = 0\ntry:\n while n < 64:\n  if os.fork() == 0: time.sleep(15); os._exit(0)\n  n += 1\nfinally: print(n)\ntime.sleep(2)"
    done = run("python3", "-c", many, manifest=small)
    t.ok(done.report["cause"] == "pids" or (done.out.strip() or "99") < "16", "processes are limited", repr(done))


def test_files(t):
    skill = os.path.join(place, "skill")
    os.makedirs(skill, exist_ok=True)
    write("skill/skill.json", json.dumps({"manifestVersion": 1, "name": "demo", "files": {"executable": ["tool"]},
                                          "entrypoints": {"main": {"command": ["./tool", "/tmp"]}},
                                          "outputs": [{"glob": "out/*"}]}))
    write("skill/tool", "#!/bin/sh\ntest -d \"$1\" || exit 9\ntouch x 2>/dev/null && exit 8\ncd $NSBOX_ROOT/workspace && mkdir -p out && echo made >out/a; pwd\n")
    done = cli.run(options=[*TIER, "--skill", skill])
    t.ok(done.status == 0 and done.out.endswith("/workspace\n"),
         "a skill is copied in, read-only, its program made executable, an argument given as the real path", repr(done))
    out = os.path.join(place, "outputs")
    os.makedirs(out, exist_ok=True)
    done = run("sh", "-c", "mkdir o; echo made >o/a; ln -s /etc/passwd o/b", options=["--output", out, "--collect", "o/*"])
    t.equal((done.status, sorted(os.listdir(out + "/o"))), (0, ["a"]), "outputs are collected, links are not followed")
    state = os.environ.get("NSBOX_STATE_DIR") or ("/var/lib/nsbox" if ROOT else os.path.expanduser("~/.local/state/nsbox"))
    where = run("sh", "-c", "mkdir -p a/b; chmod 0 a/b a; echo $NSBOX_ROOT").out.strip()
    t.ok(where.startswith(os.environ.get("XDG_STATE_HOME", state)) and not os.path.exists(where + "/workspace/a"),
         "the run's directory is gone after it", where)


def test_container(t):
    if not ROOT:
        t.note("containers are started by root: its half tries them")
        return
    shown = os.path.join(place, "shown")
    os.makedirs(shown)
    with open(os.path.join(shown, "works.py"), "w", encoding="utf-8") as f:
        f.write(WORKS)
    box = docker.Container(os.path.join(place, "box"), docker.default(), [(shown, "/opt/shown", ["rbind", "ro"])])
    nsbox = os.path.join(paths.BUILD, "nsbox")
    status, out, err = box.run([nsbox, "run", "--", "echo", "ran"])
    t.ok(status == 125 and not out and "seccomp=PROFILE" in err, "the stock container: refused where nobody accepts it", err)
    status, out, err = box.run([nsbox, "run", *TIER, "--result", "/tmp/r", "--", "sh", "-c",
                                "id -u; cat /proc/1/environ /etc/passwd; sleep 300 & exit 0"])
    t.ok(status == 0 and int(out or 0) > 1000 and err.count("Permission denied") == 2,
         "with --tier process it runs, as a user of its own", "%d %s %s" % (status, out, err))
    status, out, err = box.run([nsbox, "run", *TIER, "--python", "/opt/shown/works.py"])
    t.equal((status, json.loads(out or "null")), (0, [True, True, True, 7, "42\n", True]), "and what has to work does" + err)
    status, out, err = box.run([nsbox, "doctor", "--json"])
    found = json.loads(out)
    t.equal(found["tier"], "process", "which is the tier that the doctor finds")
    told = {row["name"]: row["text"] for row in found["notStopped"]}
    t.ok({"processes", "host", "paths", "disk", "memory"} <= set(told) and not BY_ID & set(told),
         "it lists what is then not stopped", str(told))
    status, out, err = box.run([nsbox, "doctor"])
    t.ok("is not stopped from\n" in out and all("  %-14s %s\n" % pair in out for pair in told.items()), "the same as text", out)
    status, out, err = box.run([nsbox, "run", *TIER, "--result", "-", "--", "true"])
    t.equal(json.loads(out).get("notStopped"), list(told), "and the same that a run's result names") or t.note(err)
    out = subprocess.run([paths.NSBOX, "doctor", "--json"], capture_output=True, check=True).stdout
    t.equal(json.loads(out)["notStopped"], [], "outside the container nothing of it is said")
    text = subprocess.run([paths.NSBOX, "doctor"], capture_output=True, text=True, check=True).stdout
    t.ok("not stopped" not in text, "nor as text", text)
    status, out, err = box.run([nsbox, "selftest", "--json", "--tier", "process", "--only", "B04", "--only", "C10",
                                "--only", "W01"])
    verdicts = {p["id"]: p["verdict"] for p in json.loads(out)["probes"]} if out.startswith("{") else err
    t.equal((status, verdicts), (0, {"B04": "held", "C10": "declared", "C10-links": "held", "W01": "held"}),
            "the selftest agrees")
    status, out, err = box.run([nsbox, "selftest", "--only", "B04"])
    t.ok(status == 125 and "--tier process" in err, "and is not of that tier unasked", out + err)
    box.capabilities = [c for c in docker.CAPABILITIES if c not in ("CAP_SETUID", "CAP_SETGID")]
    status, out, err = box.run([nsbox, "run", *TIER, "--", "true"])
    t.ok(status == 125 and "CAP_SETUID" in err, "root without its capabilities is refused, with the remedy", err)


def main():
    leftovers.become_subreaper()
    return tap.run([test_confined, test_works, test_told, test_gaps, test_refused, test_ends, test_limits, test_files,
                    test_container])


if __name__ == "__main__":
    sys.exit(main())
