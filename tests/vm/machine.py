# SPDX-License-Identifier: Apache-2.0
"""A virtual machine seen from inside: changing it for one host of the matrix, running nsbox there.

Each host is tried in a process with a mount namespace of its own, so mounts need no undoing; what is
the whole kernel's (settings, modules) is undone by close().
"""

import ctypes
import json
import os
import re
import subprocess
import tempfile

from nsboxtest import cli, paths

USER = 1000
CLONE_NEWNS = 0x00020000
CGROUPS = "/sys/fs/cgroup"


def call(*argv, **options):
    return subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False, **options)


def must(*argv):
    done = call(*argv)
    if done.returncode:
        raise RuntimeError("%s: %s" % (" ".join(argv), done.stderr.strip()))
    return done.stdout


def own_mounts():
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "unshare")
    must("mount", "--make-rprivate", "/")


class Machine:
    def __init__(self):
        self.undo = []
        self.states = {}

    def close(self):
        for step in reversed(self.undo):
            step()
        self.undo = []

    # ------------------------------------------------------------ changing it

    def sysctl(self, name, value):
        """Set it until close(); False where this kernel does not have it."""
        path = "/proc/sys/" + name.replace(".", "/")
        if not os.path.exists(path):
            return False
        with open(path, encoding="ascii") as f:
            before = f.read()
        self.undo.append(lambda: write(path, before, best_effort=True))
        write(path, value)
        return True

    def without_modules(self, *names):
        """No such module, and no way to get it."""
        # Namespaces that used one are taken down later than their last process.
        call("modprobe", "-r", *names)
        for _ in range(50):
            if not any(loaded(name) for name in names):
                break
            call("sleep", "0.2")
            call("modprobe", "-r", *names)
        left = [name for name in names if loaded(name)]
        if left:
            raise RuntimeError("modules in use: %s" % left)
        if not self.sysctl("kernel.modprobe", "/nonexistent"):
            raise RuntimeError("this kernel has no kernel.modprobe")

    def cgroups(self, version, options="rw"):
        """Control groups as this host has them: 1, 2 or None."""
        call("umount", "-R", CGROUPS)
        if version == 2:
            must("mount", "-t", "cgroup2", "-o", options, "none", CGROUPS)
        elif version == 1:
            must("mount", "-t", "tmpfs", "none", CGROUPS)
            for name in ("memory", "pids", "cpu", "cpuset", "freezer"):
                os.mkdir(os.path.join(CGROUPS, name))
                must("mount", "-t", "cgroup", "-o", name, "none", os.path.join(CGROUPS, name))

    def image(self, kind, *options, megabytes=64):
        """An empty file system in a file, and its directory; everybody's, where it knows no owners."""
        place = tempfile.mkdtemp(prefix="fs-", dir="/var/tmp")
        with open(place + ".img", "wb") as f:
            f.truncate(megabytes << 20)
        must("mkfs." + kind, place + ".img")
        must("modprobe", "-a", "loop", kind)
        device = must("losetup", "--find", "--show", place + ".img").strip()
        must("mount", "-t", kind, *options, device, place)
        return place

    def state(self, base):
        """Where root and the user keep their state: a directory of each below base."""
        for user, name in ((0, "root"), (USER, "user")):
            path = os.path.join(base, name)
            os.makedirs(path, exist_ok=True)
            try:
                os.chown(path, user, user)
                os.chmod(path, 0o711)
            except PermissionError:
                pass  # a file system without owners
        self.states = {False: os.path.join(base, "root"), True: os.path.join(base, "user")}

    # ------------------------------------------------------------ running in it

    def as_caller(self, user):
        env = dict(os.environ)
        if user in self.states:
            env["NSBOX_STATE_DIR"] = self.states[user]
        if not user:
            return {"env": env}
        env.update(HOME="/home/user", TMPDIR="/tmp")
        return {"env": env, "user": USER, "group": USER, "extra_groups": []}

    def nsbox(self, *argv, user=False):
        return call(paths.NSBOX, *argv, **self.as_caller(user))

    def doctor(self, user=False):
        return json.loads(self.nsbox("doctor", "--json", user=user).stdout)

    def run(self, *argv, user=False, manifest=None, options=()):
        """nsbox run; a cli.Run."""
        with tempfile.TemporaryDirectory(prefix="m-", dir="/tmp") as place:
            os.chmod(place, 0o777)
            report, path = os.path.join(place, "report"), os.path.join(place, "manifest.json")
            options = ["--result", report, "--no-tty", *options]
            if manifest is not None:
                with open(path, "w", encoding="utf-8") as f:
                    json.dump({**cli.MINIMAL, **manifest}, f)
                options += ["--manifest", path]
            done = call(*cli.command(*argv, options=options), stdin=subprocess.DEVNULL, **self.as_caller(user))
            parsed = None
            if os.path.exists(report):
                with open(report, encoding="utf-8") as f:
                    parsed = json.load(f)
            return cli.Run(done.returncode, done.stdout, done.stderr, parsed)

    def tap(self, t, name, *argv, user=False, **env):
        """A program that prints TAP: each of its tests is one here."""
        settings = self.as_caller(user)
        settings["env"].update(env)
        done = call(*argv, cwd=paths.ROOT, **settings)
        tests = re.findall(r"^(not )?ok\s+\d*[ -]*(.*)$", done.stdout, re.M)
        for bad, what in tests:
            t.ok(not bad, "%s: %s" % (name, what.strip()))
        failed = any(bad for bad, _ in tests)
        if failed or done.returncode or not tests:
            t.note("\n".join(line for line in done.stdout.splitlines() if not line.startswith("ok "))[-4000:])
            t.note(done.stderr[-2000:])
        if not tests:
            t.ok(bool(re.search(r"^1\.\.0 # SKIP", done.stdout, re.M)), "%s ran" % name)
        elif done.returncode and not failed:
            t.ok(False, "%s: exit status %d" % (name, done.returncode))

    def case(self, t, name, via="both", user=False):
        """A case that asks for a prepared machine, which this one is."""
        self.tap(t, "case", "tests/e2e/run-cases", "--prepared", "--via", via,
                 "tests/vm/cases/%s.json" % name, user=user)


def write(path, value, best_effort=False):
    try:
        with open(path, "w", encoding="ascii") as f:
            f.write(value)
    except OSError:
        if not best_effort:
            raise


def loaded(module):
    return os.path.isdir("/sys/module/%s/holders" % module) and os.path.exists("/sys/module/%s/initstate" % module)


def lacking(doctor):
    """{layer: remedy} of what a host does not have."""
    return {row["layer"]: row["remedy"] for row in doctor["layers"] if not row["available"]}


def names(rows):
    return [row["layer"] if isinstance(row, dict) else row for row in rows]
