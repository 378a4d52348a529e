#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""nsbox doctor: what it finds on this host, in containers as engines make them, and behind refusals.

Where it says that a tier is reached a run works there; where it says that it is not, none does.
"""

import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import container, paths, tap

ENOSYS_TOOL = os.path.join(paths.BUILD, "tests", "tools", "enosys")
USERNS = {"user", "mount", "pid", "net", "ipc", "uts", "cgroupNamespace", "root", "overlay", "proc", "nftables"}


def here(argv, **_):
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)


def doctor(run, **how):
    """Its report; with the tier that a run needs required, the exit status has to agree."""
    done = run([paths.NSBOX, "doctor", "--json", "--require", "namespace"], **how)
    report = json.loads(done.stdout) if done.stdout else {"tier": "?", "error": done.stderr.decode()}
    agrees = done.returncode == (0 if report["tier"] in ("namespace", "cgroup") else 1)
    return report if agrees else {"tier": "exit status %d" % done.returncode, "error": repr(report)}


def missing(report):
    return {r["layer"] for r in report["layers"] if not r["available"]}


def remedy(report, layer):
    return next(r["remedy"] for r in report["layers"] if r["layer"] == layer) or ""


# ---------------------------------------------------------------- this host


def test_here(t):
    report = doctor(here)
    order = ["none", "process", "namespace", "cgroup"]
    t.ok(report["tier"] in order, "a tier", repr(report))
    t.equal(report["idMap"], "range" if os.getuid() == 0 else "single", "the kind of id map")
    t.equal(bool(report["idMapRemedy"]), os.getuid() != 0, "a single id has its remedy")
    for r in report["layers"]:
        t.ok(r["available"] == (r["remedy"] is None), "%s: there, or with a remedy" % r["layer"])
    for tier in order[1:]:
        status = here([paths.NSBOX, "doctor", "--require", tier]).returncode
        t.equal(status, 0 if order.index(tier) <= order.index(report["tier"]) else 1, "--require %s" % tier)
    t.equal(here([paths.NSBOX, "doctor", "--require", "best"]).returncode, 125, "--require of no tier")
    if report["tier"] == "cgroup":
        t.equal(report["next"], None, "nothing is above the highest tier")
    else:
        t.ok(report["next"]["fixes"], "what gives the next tier", repr(report["next"]))
    text = here([paths.NSBOX, "doctor"]).stdout.decode()
    t.ok(text.startswith("tier      %s\n" % report["tier"]), "the same as text", text)
    t.equal({line.split()[1] for line in text.splitlines() if line.startswith("MISSING ")}, missing(report),
            "the same layers")


# ---------------------------------------------------------------- refusals, one by one

FAULTS = (
    ("clone3", "process", USERNS, "user", "seccomp profile refuses namespaces"),
    ("clone3:ENOSPC", "process", USERNS, "user", "user.max_user_namespaces"),
    ("landlock_create_ruleset", "namespace", {"landlockFs", "landlockTcp", "landlockScopes"}, "landlockFs", "Linux 5.13"),
    ("landlock_create_ruleset:EOPNOTSUPP", "namespace", {"landlockFs", "landlockTcp", "landlockScopes"}, "landlockFs",
     "lsm="),
)


def test_faults(t):
    usual = missing(doctor(here))
    for fault, tier, layers, layer, words in FAULTS:
        def behind(argv, fault=fault, **_):
            return here([ENOSYS_TOOL, fault, "--", *argv])
        report = doctor(behind)
        t.ok(report["tier"] == tier or tier == "namespace" and report["tier"] == "cgroup", "tier behind %s" % fault,
             repr(report))
        # Without namespaces a run's own id outside is a layer, which takes root.
        own = {"ownId"} if tier == "process" and os.geteuid() else set()
        t.equal(missing(report), usual | layers | own, "what is missing behind %s" % fault)
        t.ok(words in remedy(report, layer), "and its remedy", remedy(report, layer))
    t.ok("6.12" in [k["linux"] for k in report["newerKernels"]], "without Landlock newer kernels have something to add")


# Settings of kernels that others build, in a /proc/sys/kernel of the test's own, and the refusal they bring.
SETTINGS = (("apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0", True),
            ("unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1", False))
SET = 'mount -t tmpfs none /proc/sys/kernel && echo "$2" >"/proc/sys/kernel/$1" && shift 2 && exec "$@"'


def test_settings(t):
    if os.getuid() != 0:
        t.note("mounting over /proc/sys takes root")
        return
    for name, value, words, profile in SETTINGS:
        def set_up(argv, name=name, value=value, **_):
            return here(["unshare", "-m", "sh", "-c", SET, "sh", name, value, ENOSYS_TOOL, "clone3:EACCES", "--", *argv])
        report = doctor(set_up)
        t.equal(report["tier"], "process", "%s: no namespaces" % name) or t.note(repr(report))
        t.ok(words in remedy(report, "user"), "%s: the setting that gives them" % name, remedy(report, "user"))
        text = report["apparmorProfile"] or ""
        named = re.findall(r"^profile \S+ (/\S+) flags=\(unconfined\) \{\n  userns,\n\}$", text, re.M)
        t.equal(len(named), 2 if profile else 0, "%s: a profile where that is what it takes" % name) or t.note(text)
        t.ok(all(os.access(path, os.X_OK) for path in named), "%s: of programs that are there" % name, text)
        shown = set_up([paths.NSBOX, "doctor"]).stdout.decode()
        t.equal("apparmor_parser -r" in shown, profile, "%s: the same as text" % name)


# ---------------------------------------------------------------- containers

# seccomp, masked, user -> tier, layers that are missing, a layer and words of its remedy
CONTAINERS = (
    ("default", True, 0, "process", USERNS, "user", "--security-opt seccomp=PROFILE"),
    ("default", True, 1000, "process", USERNS | {"ownId"}, "user", "--security-opt seccomp=PROFILE"),
    ("unconfined", True, 0, "namespace", {"proc"}, "proc", "--security-opt systempaths=unconfined"),
    ("unconfined", True, 1000, "namespace", {"proc"}, "proc", "--security-opt systempaths=unconfined"),
    ("unconfined", False, 0, "namespace", set(), "cgroupLimits", "mount the control groups writable"),
    ("unconfined", False, 1000, "namespace", set(), "cgroupLimits", "mount the control groups writable"),
)


def test_containers(t):
    why = container.available()
    if why:
        t.ok(os.getuid() != 0 or not tap.must_work(), "containers", why)
        return
    usual = missing(doctor(here))
    for seccomp, masked, user, tier, layers, layer, words in CONTAINERS:
        how = {"seccomp": seccomp, "masked": masked, "user": user}
        name = "%s profile, %s /proc, user %d" % (seccomp, "masked" if masked else "open", user)
        report = doctor(container.run, **how)
        if not t.equal(report["tier"], tier, "%s: tier" % name):
            t.note(repr(report))
            continue
        t.equal(missing(report), usual | layers | {"cgroupLimits"}, "%s: what is missing" % name)
        t.ok(words in remedy(report, layer), "%s: the remedy" % name, remedy(report, layer))
        t.equal(report["next"]["tier"], "namespace" if tier == "process" else "cgroup", "%s: the next tier" % name)
        done = container.run([paths.NSBOX, "run", "--no-tty", "--", "echo", "ran"], **how)
        t.equal(done.stdout == b"ran\n", tier != "process", "%s: a run agrees" % name) or t.note(done.stderr.decode())


def test_selftest_in_a_container(t):
    """The probes hold in there as well, without a /proc to help them."""
    if container.available():
        return
    done = container.run([paths.NSBOX, "selftest", "--tap", "--only", "B04", "--only", "D13", "--only", "E01", "--only",
                          "G01-loopback", "--only", "W01"], seccomp="unconfined")
    lines = done.stdout.decode().splitlines()
    t.ok(done.returncode == 0 and len(lines) == 6 and all(line.startswith("ok") for line in lines[:-1]),
         "the selftest holds in a container", repr(done))


if __name__ == "__main__":
    sys.exit(tap.run([v for k, v in list(globals().items()) if k.startswith("test_")]))
