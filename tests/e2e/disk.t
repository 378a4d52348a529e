#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""resources.disk on both kinds of upper layer: in memory, and, where it is more than memory, on disk. Both have
an end (ENOSPC, cause disk) with memory below its own, and nothing is left of either."""

import glob
import json
import os
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import images, paths, service, tap

PLACE = paths.scratch("disk-")
os.chmod(PLACE, 0o755)
STATE = os.path.join(PLACE, "state")
ENV = {**os.environ, "NSBOX_STATE_DIR": STATE}
PRIVILEGED = os.geteuid() == 0
ENOSYS = os.path.join(paths.BUILD, "tests", "tools", "enosys")
BIG = {"memory": "32Mi", "disk": "48Mi"}
SMALL = {"memory": "32Mi", "disk": "12Mi"}


def manifest(resources, **more):
    path = os.path.join(PLACE, "skill.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"manifestVersion": 1, "resources": resources, **more}, f)
    return path


def run(resources, script, *options, **more):
    report = os.path.join(PLACE, "report")
    if os.path.exists(report):
        os.unlink(report)
    done = subprocess.run([paths.NSBOX, "run", "--manifest", manifest(resources, **more), "--result", report, *options,
                           "--", "sh", "-c", script], env=ENV, capture_output=True, timeout=120 * tap.slow(), check=False)
    found = None
    if os.path.exists(report):
        with open(report, encoding="utf-8") as f:
            found = json.load(f)
    return done.returncode, done.stdout.decode(), done.stderr.decode(), found


def devices():
    """Loop devices with a file of our state directory behind them."""
    found = []
    for name in glob.glob("/sys/block/loop*/loop/backing_file"):
        try:
            with open(name, encoding="utf-8") as f:
                found += [name] if f.read().startswith(STATE) else []
        except OSError:
            pass
    return found


def nothing_left():
    return tap.wait_until(lambda: not devices(), 60)


def fills(t, resources, mb, kind):
    status, out, err, rep = run(resources, "head -c %dM /dev/zero >f; stat -c %%s f; head -c %dM /dev/zero >g; "
                                "cat f g | wc -c; exit 7" % (mb // 2, mb))
    sizes = [int(x) for x in out.split()]
    t.ok(status == 7 and len(sizes) == 2 and sizes[0] == mb // 2 << 20, "%s: half of it can be written" % kind, out + err)
    t.ok(len(sizes) == 2 and 0.9 * mb < sizes[1] / (1 << 20) < 1.05 * mb, "%s: all of it, and no more" % kind, out)
    t.ok("No space left" in err, "%s: beyond it writes get ENOSPC" % kind, err)
    t.equal((rep or {}).get("cause"), "disk", "%s: and the cause is disk" % kind)
    t.ok(rep and rep["oom_kills"] == 0 and rep["memory_peak"] <= 32 << 20, "%s: memory stays below its limit" % kind, str(rep)[:500])


def test_memory(t):
    fills(t, SMALL, 12, "in memory")


def test_disk(t):
    if not PRIVILEGED:
        status, _, err, _ = run(BIG, "true")
        t.ok(status == 125 and "root of the host" in err and "resources.disk" in err,
             "refused where it cannot be had, with what it takes", err)
        t.equal(run(SMALL, "true")[0], 0, "twin: within memory it can")
        return
    fills(t, BIG, 48, "on disk")
    t.ok(nothing_left(), "nothing is left of it", str(devices()))
    files = "i=0; while [ $i -lt 200000 ] && echo -n >f$i; do i=$((i+1)); done 2>/dev/null; echo $i; exit 1"
    _, out, _, rep = run({"memory": "32Mi", "disk": "33Mi"}, files, timeouts={"wall": "900s"})
    t.ok(0 < int(out or 0) < 200000 and rep["cause"] == "disk", "inodes have an end, too", out)
    status, out, err, _ = run(BIG, "rm -rf /usr/x; mkdir a; echo 1 >a/f; mv a b; ln -s b l; cat l/f; rm -r b; ls; id -u; "
                              "test -w /etc || echo closed")
    t.equal((status, out), (0, "1\nl\n1000\nclosed\n"), "it is a root like any other")
    status, _, err, _ = run(BIG, "true", profile="strict")
    t.ok(status == 125 and "read-only" in err, "refused: under a root that is read-only", err)


def test_images(t):
    tree = images.busybox_tree(os.path.join(PLACE, "tree"))
    os.makedirs(tree + "/data/sub")
    with open(tree + "/data/sub/f", "w", encoding="utf-8") as f:
        f.write("of the image\n")
    subprocess.run([paths.NSBOX, "image", "import", "img", tree], env=ENV, check=True, capture_output=True)
    if not PRIVILEGED:
        return
    script = "rm -r /data/sub && mkdir /data/sub && ls -A /data/sub && echo new >/data/sub/g && cat /data/sub/*"
    t.equal(run(BIG, script, "--image", "img", profile="build")[:2], (0, "new\n"), "whiteouts and opaque directories on disk")


def test_submount(t):
    """An image's directory in which another file system is mounted, as /proc is: that is an empty directory then."""
    if not PRIVILEGED:
        return
    tree = images.busybox_tree(os.path.join(PLACE, "mounted"))
    os.makedirs(tree + "/mnt")
    subprocess.run(["mount", "-t", "tmpfs", "none", tree + "/mnt"], check=True)
    try:
        with open(tree + "/mnt/marker.txt", "w", encoding="ascii") as f:
            f.write("marker\n")
        subprocess.run([paths.NSBOX, "image", "import", "mounted", tree], env=ENV, check=True, capture_output=True)
    finally:
        subprocess.run(["umount", tree + "/mnt"], check=True)
    t.equal(run(SMALL, "echo works; ls -A /mnt | wc -l", "--image", "mounted")[:2], (0, "works\n0\n"),
            "an image of a directory with another file system in it")


def test_killed(t):
    if not PRIVILEGED:
        return
    p = subprocess.Popen([paths.NSBOX, "run", "--manifest", manifest(BIG), "--", "sh", "-c", "echo up; sleep 600"], env=ENV,
                         stdout=subprocess.PIPE)
    t.equal(p.stdout.readline(), b"up\n", "one runs")
    t.equal(len(devices()), 1, "and has a device")
    p.send_signal(signal.SIGKILL)
    p.wait()
    t.ok(nothing_left(), "when its owner is killed nothing is left", str(devices()))


TREE = "rm -r /data/sub && mkdir /data/sub && echo anew || echo not; ls -A /data/sub; read x"


def test_plain_tmpfs(t):
    """A kernel before 6.6, whose tmpfs keeps no user.* attributes: the probe sees none here either."""
    if not os.access(ENOSYS, os.X_OK):
        tap.skip_all("%s is not built: make tests" % ENOSYS)
    plain = [ENOSYS, "setxattr:EOPNOTSUPP", "--", paths.NSBOX, "run", "--manifest", manifest(SMALL, profile="build")]
    twin = plain[3:]
    told = json.loads(subprocess.run([paths.NSBOX, "doctor", "--json"], env=ENV, capture_output=True, check=False).stdout)
    real = told["tmpfsNote"] is not None  # it is one
    for what, argv, image, old in (("an image", plain, "img", True), ("the host's", plain, "host", False), ("the twin", twin, "img", real)):
        disk = old and PRIVILEGED
        report = os.path.join(PLACE, "report")
        p = subprocess.Popen([*argv, "--image", image, "--result", report, "--", "sh", "-c", TREE if image == "img" else "echo anew; read x"],
                             env=ENV, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        word = b"not\n" if real and image == "img" and not disk else b"anew\n"
        t.equal((p.stdout.readline(), len(devices()) == 1), (word, disk), "%s: its upper layer is %s" % (what, "on disk" if disk else "in memory"))
        p.communicate(b"\n")
        with open(report, encoding="utf-8") as f:
            notes = json.load(f)["notes"]
        poor = old and not PRIVILEGED
        t.equal(any("6.6" in n for n in notes), poor, "%s: and the report %s what is lost" % (what, "says" if poor else "has nothing of"))
        t.ok(nothing_left(), "nothing is left of it", str(devices()))
    if not PRIVILEGED:
        done = subprocess.run([*plain, "--image", "img", "--changes", "--", "true"], env=ENV, capture_output=True, check=False)
        t.ok(done.returncode == 125 and b"changes cannot be told" in done.stderr, "refused: to list changes that cannot be told", done.stderr)


def overlaid(where):
    """A state directory on an overlay, as a container's is."""
    for name in ("lower", "upper", "work", "merged"):
        os.makedirs(os.path.join(where, name))
    options = "lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work".format(where)
    subprocess.run(["mount", "-t", "overlay", "-o", options, "none", where + "/merged"], check=True)
    return where + "/merged/state"


def test_on_overlay(t):
    """Images and disks below an overlay, which can be no upper layer itself."""
    if not PRIVILEGED:
        return
    where = os.path.join(PLACE, "overlay")
    env = {**ENV, "NSBOX_STATE_DIR": overlaid(where)}
    try:
        subprocess.run([paths.NSBOX, "image", "import", "img", os.path.join(PLACE, "tree")], env=env, check=True, capture_output=True)
        for resources in (SMALL, BIG):
            done = subprocess.run([paths.NSBOX, "run", "--manifest", manifest(resources, profile="build"), "--image", "img", "--", "sh", "-c", TREE],
                                  env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            t.equal((done.stdout, done.stderr), (b"anew\n", b""), "an image whose layers are on an overlay, disk %s" % resources["disk"])
    finally:
        tap.wait_until(lambda: subprocess.run(["umount", where + "/merged"], capture_output=True, check=False).returncode == 0, 60)


def test_service(t):
    if not PRIVILEGED:
        return
    with service.Daemon(env=ENV, options=["--state-dir", STATE]) as d:
        made = d.ask("POST", "/v1/sessions", {"session_id": "s", "manifest": {"manifestVersion": 1, "resources": BIG}})
        t.equal(made[0], 201, "a session on disk")
        d.ask("POST", "/v1/execute/command", {"session_id": "s", "command": "head -c 40M /dev/urandom >f; sha256sum f >sum"})
        t.equal(d.ask("POST", "/v1/sessions/s/fork", {"session_id": "t"})[0], 201, "and its fork")
        got = d.ask("POST", "/v1/execute/command", {"session_id": "t", "command": "sha256sum -c sum"})[1]
        t.equal((got.get("stdout"), got.get("cause")), ("f: OK\n", "exit"), "have 40 MB with 32 MB of memory")
        t.equal(len(devices()), 2, "each on its own")
    t.ok(nothing_left(), "nothing is left of them", str(devices()))


def main():
    try:
        return tap.run([test_memory, test_disk, test_images, test_plain_tmpfs, test_on_overlay, test_submount, test_killed, test_service])
    finally:
        shutil.rmtree(PLACE, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
