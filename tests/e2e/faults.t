#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Each step on the way to a run made to fail, as on a kernel or in a container that lacks the call.

`enosys` puts a filter before `nsbox run`; the program must not run, the exit status is nsbox's own
(125, or 126 where the program itself could not be started), the message names the step, and nothing
is left. What may be missing is listed apart, with what the report says of it then. Here the probe
of the host meets the fault as well, so some are told as a missing layer; tests/kernel/test_faults.c
makes the same calls fail behind a probe that found everything.
"""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, leftovers, paths, tap

ENOSYS = os.path.join(paths.BUILD, "tests", "tools", "enosys")
ROOT = os.getuid() == 0
# The sanitizer's leak detector forks and traces at exit, and its start reads a limit, behind our filters.
ENV = dict(os.environ, ASAN_OPTIONS="detect_leaks=0") if paths.ASAN else None
KINDS = ("no_processes", "no_mounts", "no_cgroups", "no_netns")

# Calls that fail, what the message must hold. Some are made by a privileged owner alone.
FAULTS = [
    ("clone3", "user namespace"),
    ("clone3:EPERM", "user namespace"),
    ("clone3:ENOSPC", "max_user_namespaces"),
    ("memfd_create", "filter"),
    ("socketpair", "control socket"),
    ("socketpair:EMFILE", "control socket"),
    ("epoll_create1", "epoll"),
    ("timerfd_create", "timer"),
    ("close_range", "owner's descriptors"),
    ("setsid", "session"),
    ("mount", "overlay"),
    ("mount:EPERM", "overlay"),
    ("mount:ENODEV", "modprobe overlay"),
    ("pivot_root", "pivot"),
    ("openat2", "upper layer"),
    ("fsopen", "/dev"),
    ("fsconfig:EPERM", "/dev"),
    ("fsmount:EPERM", "/dev"),
    ("open_tree", "/dev"),
    ("move_mount", "/dev"),
    ("mount_setattr", "/dev"),
    ("umount2:EPERM", "host's root"),
    ("fchdir", "pivot"),
    ("sethostname", "host name"),
    ("keyctl:EPERM", "keyring"),
    ("keyctl:EDQUOT", "keyring"),
    ("capset", "capabilities"),
    ("landlock_add_rule", "Landlock"),
    ("landlock_restrict_self", "Landlock"),
    ("seccomp", "seccomp"),
    ("clone", "fork"),
    ("prlimit64", "resource limits"),
    ("getcwd", "working directory"),
    # Several at once, as an old kernel has it: the first step is told.
    ("openat2,open_tree,move_mount,mount_setattr,fsopen", "upper layer"),
]
PRIVILEGED = [
    ("setgroups", "root inside"),
    ("setresuid", "layer 'user'"),
    ("setresgid", "layer 'user'"),
    ("fchown", "upper layer"),
]

# Calls that may fail, the layer that the report lists under notEnforced then (None: none is lost).
TOLERATED = [
    ("acct", None),  # the twin of all above: a call that nobody makes
    ("keyctl", None),  # a kernel without keyrings has none to leak
    ("pidfd_send_signal", None),  # init ends by losing its socket as well
    ("landlock_create_ruleset", "landlockFs"),
    ("landlock_create_ruleset:EOPNOTSUPP", "landlockScopes"),
    ("sendto:EPERM", "nftables"),
]


def faulty(calls, *argv, options=()):
    """`nsbox run` behind the filter; a cli.Run."""
    with tempfile.TemporaryDirectory(prefix="nsbox-faults-") as place:
        report = os.path.join(place, "report")
        command = cli.command(*argv, options=["--no-tty", "--result", report, *options])
        done = subprocess.run([ENOSYS, calls, "--", *command], stdin=subprocess.DEVNULL, env=ENV,
                              capture_output=True, timeout=60, check=False)
        parsed = None
        if os.path.exists(report):
            with open(report, encoding="utf-8") as f:
                parsed = json.load(f)
        return cli.Run(done.returncode, done.stdout.decode(), done.stderr.decode(), parsed)


def manifest(place, text):
    path = os.path.join(place, "manifest.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({**cli.MINIMAL, **text}, f)
    return ["--manifest", path]


def must_not_run(t, before, calls, message, r, statuses=(125,)):
    t.ok("RAN" not in r.out and r.status in statuses, "without %s nothing runs" % calls, repr(r))
    t.ok(message in r.err, "and the message names the step", repr(r))
    left = before.left(KINDS)
    t.equal(left, [], "and nothing is left")


def test_enosys(t):
    """The tool itself: it fails what it is told to, and that alone."""
    probe = "import os, socket; os.getcwd(); socket.socketpair()"
    python = ["/usr/bin/python3", "-c", probe]
    t.equal(subprocess.run(python, check=False).returncode, 0, "the probe works")
    t.equal(subprocess.run([ENOSYS, "acct", "--", *python], check=False).returncode, 0,
            "and behind a filter for another call")
    for calls, words in (("socketpair", "Function not implemented"), ("socketpair:EMFILE", "Too many open files"),
                         ("acct,getcwd:EIO", "Input/output error")):
        done = subprocess.run([ENOSYS, calls, "--", *python], capture_output=True, check=False)
        t.ok(done.returncode == 1 and words in done.stderr.decode(), "enosys %s" % calls, repr(done))
    for bad in ("no_such_call", "mount:ENOSUCH"):
        done = subprocess.run([ENOSYS, bad, "--", "true"], capture_output=True, check=False)
        t.equal(done.returncode, 125, "enosys %s is refused" % bad)
    t.equal(subprocess.run([ENOSYS, "acct", "--", "sh", "-c", "exit 7"], check=False).returncode, 7,
            "the command's status is passed on")


def test_faults(t):
    before = leftovers.Snapshot()
    for calls, message in FAULTS + (PRIVILEGED if ROOT else []):
        if paths.ASAN and calls == "prlimit64":
            continue
        must_not_run(t, before, calls, message, faulty(calls, "sh", "-c", "echo RAN"))


def test_cpus(t):
    """Where one CPU is all there is, there is nothing to narrow."""
    if len(os.sched_getaffinity(0)) < 2:
        return
    before = leftovers.Snapshot()
    with tempfile.TemporaryDirectory(prefix="nsbox-faults-") as place:
        options = manifest(place, {"resources": {"cpu": 1}})
        must_not_run(t, before, "sched_setaffinity", "CPUs",
                     faulty("sched_setaffinity", "sh", "-c", "echo RAN", options=options))


def test_exec(t):
    before = leftovers.Snapshot()
    must_not_run(t, before, "execve (inside)", "sh",
                 cli.run("sh-that-is-not-there", "-c", "echo RAN"), (127,))
    must_not_run(t, before, "an executable file", "passwd", cli.run("/etc/passwd", "echo RAN"), (126,))


def test_tolerated(t):
    before = leftovers.Snapshot()
    for calls, layer in TOLERATED:
        r = faulty(calls, "sh", "-c", "echo RAN")
        t.ok(r.status == 0 and r.out == "RAN\n", "without %s it runs" % calls, repr(r))
        lost = [entry["layer"] for entry in r.report["notEnforced"]] if r.report else None
        enforced = [e["layer"] for e in r.report["enforced"]] if r.report else []
        if layer:
            t.ok(layer in lost and layer not in enforced, "and the report says that %s is not enforced" % layer,
                 repr(r))
        else:
            t.equal(lost, [entry["layer"] for entry in cli.run("true").report["notEnforced"]], "and every layer is as ever")
        t.equal(before.left(KINDS), [], "and nothing is left")


def test_required(t):
    """A layer that is merely preferred, required by the manifest: missing it is an error."""
    before = leftovers.Snapshot()
    with tempfile.TemporaryDirectory(prefix="nsbox-faults-") as place:
        options = manifest(place, {"require": {"landlockFs": "require", "nftables": "require"}})
        r = cli.run("sh", "-c", "echo RAN", options=options)
        t.equal(r.out, "RAN\n", "with all calls the manifest's layers are there")
        for calls, message in (("landlock_create_ruleset", "landlockFs"), ("sendto:EPERM", "nftables")):
            must_not_run(t, before, calls, message,
                         faulty(calls, "sh", "-c", "echo RAN", options=options))


if __name__ == "__main__":
    if not os.access(ENOSYS, os.X_OK):
        tap.skip_all("%s is not built: make tests" % ENOSYS)
    leftovers.become_subreaper()
    sys.exit(tap.run([test_enosys, test_faults, test_cpus, test_exec, test_tolerated, test_required]))
