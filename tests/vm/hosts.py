# SPDX-License-Identifier: Apache-2.0
"""The hosts of the matrix: how a machine becomes each, what the doctor has to find and runs to do.

Hosts with the same kernel parameters share a boot and are tried in the order of the table. A host
that lacks something says so twice: in the doctor's findings with a remedy, and in a run, which is
refused with that remedy or lists the layer under notEnforced.
"""

import glob
import json
import os
import platform
import sys
import traceback

from machine import Machine, lacking, names, own_mounts, must

# What the kernels of the matrix lack by their age, besides what a host takes away: Landlock's ABI.
BY_ABI = {"landlockTcp": 4, "landlockScopes": 6, "landlockFs": 1}
NO_LANDLOCK = set(BY_ABI)
DEFAULT_BOOT = "lsm=landlock,lockdown,yama,apparmor,bpf"


def version(series):
    """[major, minor] of a series or of a release, which may go on as 6.12.117+deb12-cloud-amd64 does."""
    return [int(part) for part in series.split(".")[:2]]


class Host:
    def __init__(self, name, title, prepare, expect, boot=DEFAULT_BOOT, lacks=(), user_lacks=None,
                 tier="cgroup", user_tier="namespace", remedy="", until="", archs=("amd64", "arm64"),
                 refused="", seconds=300):
        self.name, self.title, self.prepare, self.expect, self.boot = name, title, prepare, expect, boot
        self.lacks, self.tier, self.user_tier, self.remedy = set(lacks), tier, user_tier, remedy
        self.until, self.archs, self.refused = until, archs, refused
        self.seconds = seconds  # that it may take, on a machine that has other things to do
        # A user of these machines has no control groups of its own.
        self.user_lacks = self.lacks | {"cgroupLimits"} if user_lacks is None else set(user_lacks)

    def on(self, arch, series):
        """Is there such a host with this kernel?"""
        return arch in self.archs and (not self.until or version(series) < version(self.until))

    def missing(self, abi, user):
        aged = {layer for layer, needs in BY_ABI.items() if abi < needs}
        # Without namespaces a run's own id outside is a layer, which takes root.
        own = {"ownId"} if user and self.user_tier == "process" else set()
        return aged | own | (self.user_lacks if user else self.lacks)


# ---------------------------------------------------------------- what holds on every host


def findings(t, m, host, user):
    """The doctor finds what this host is made to lack, and nothing else."""
    who = "a user" if user else "root"
    found = m.doctor(user)
    lacks = lacking(found)
    t.equal(set(lacks), host.missing(found["landlockAbi"], user), "%s: the doctor finds what is missing" % who)
    t.ok(all(lacks.values()) and "(Success)" not in repr(lacks), "%s: each with a remedy" % who, repr(lacks))
    tier = host.user_tier if user else host.tier
    t.equal(found["tier"], tier, "%s: the tier" % who)
    good = m.nsbox("doctor", "--require", "namespace", user=user).returncode == 0
    t.equal(good, tier in ("namespace", "cgroup"), "%s: doctor --require namespace agrees" % who)
    if host.remedy and (host.user_lacks if user else host.lacks):
        t.ok(any(host.remedy in (r or "") for r in lacks.values()), "%s: a remedy names %s" % (who, host.remedy),
             repr(lacks))
    return found


def a_run(t, m, host, user, found):
    """It runs and says what it runs without, or is refused and says why."""
    who = "a user" if user else "root"
    done = m.run("sh", "-c", "echo works", user=user)
    facts = {"host": host.name, "user": user, "kernel": platform.release(), "machine": platform.machine(),
             "abi": found["landlockAbi"], "cgroup": found["cgroupVersion"], "tier": found["tier"],
             "lacks": lacking(found)}
    if host.refused:
        t.ok(done.status == 125 and host.refused in done.err, "%s: a run is refused for its %s" % (who, host.refused),
             repr(done))
        facts.update(runs=False, says=done.err.strip()[:400])
    elif found["tier"] in ("namespace", "cgroup"):
        t.ok(done.status == 0 and done.out.startswith("works\n"), "%s: a run works" % who, repr(done))
        report = done.report or {"enforced": [], "notEnforced": []}
        # Off by default: not missed by a run that does not ask for it.
        missed = host.missing(found["landlockAbi"], user) - {"landlockTcp"}
        t.equal(set(names(report["notEnforced"])), missed, "%s: notEnforced lists what is missing" % who)
        t.ok(not missed & set(names(report["enforced"])), "%s: and enforced does not" % who)
        for layer in sorted(missed):
            refused = m.run("true", user=user, manifest={"require": {layer: "require"}})
            t.ok(refused.status == 125 and layer in refused.err, "%s: where %s is required it is refused" % (who, layer),
                 repr(refused))
        facts.update(runs=True, enforced=names(report["enforced"]), notEnforced=names(report["notEnforced"]))
    else:
        t.ok(done.status == 125 and not done.out, "%s: a run is refused" % who, repr(done))
        t.ok(not host.remedy or host.remedy in done.err, "%s: and says the remedy" % who, repr(done))
        facts.update(runs=False, says=done.err.strip()[:400])
    return facts


def nothing(t, m):
    pass


# ---------------------------------------------------------------- the hosts


def plain(m):
    m.cgroups(2)


def expect_plain(t, m):
    lsm = open("/sys/kernel/security/lsm", encoding="ascii").read().strip().split(",")
    t.ok({"apparmor", "yama", "landlock"} <= set(lsm), "AppArmor, Yama and Landlock are on", repr(lsm))
    with open("/sys/fs/cgroup/cgroup.controllers", encoding="ascii") as f:
        t.ok({"cpu", "memory", "pids", "io", "cpuset"} <= set(f.read().split()), "with all controllers")
    small = {"resources": {"memory": "64Mi", "pids": 16}}
    done = m.run("cat", "/proc/self/cgroup")
    t.ok(done.out.strip().endswith("/run"), "the payload is in its leaf", repr(done))
    t.equal(done.report["limits"]["by"], "cgroup2", "limits are by control groups v2")
    eats = ("dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1")
    t.equal(m.run(*eats, manifest=small).report["cause"], "memory", "memory: ended by the limit")
    t.equal(m.run(*eats).report["cause"], "exit", "memory: the twin with room is not")
    forks = "i=0; while [ $i -lt 40 ]; do sleep 5 & i=$((i+1)); done; echo all"
    many = m.run("sh", "-c", forks, manifest=small)
    t.ok("all" not in many.out and many.report["pids_limit_hits"] > 0, "processes: the 17th is refused", repr(many))
    t.equal(m.run("sh", "-c", forks).out, "all\n", "processes: the twin with room is not")
    done = m.run("sh", "-c", "cd; rm .profile; mkdir .profile; rmdir .profile; ls -a")
    t.equal(done.status, 0, "files of the image can be replaced and removed in HOME")
    slow = m.run("python3", "-c", "b = bytearray(200 << 20); print(sum(b[::4096]))", user=True, manifest=small)
    t.equal(slow.report["cause"], "memory", "memory without control groups: ended by the watchdog")
    left = [p for p, _, _ in os.walk("/sys/fs/cgroup") if os.path.basename(p) == "nsbox"]
    t.equal(left, [], "nothing is left of the groups")
    m.case(t, "host-loopback-setup-denied")


def kernel_tests(t, m, user=False):
    for path in sorted(glob.glob("build/%s/tests/kernel/test_*" % os.environ["VARIANT"])):
        m.tap(t, ("as a user: " if user else "") + os.path.basename(path), path, user=user, NSBOX_MUST_WORK="1")


def selftest(t, m, user=False):
    who = "as a user: " if user else ""
    if "selftest" in m.nsbox("--help").stdout:
        m.tap(t, who + "selftest", os.path.join("build", os.environ["VARIANT"], "nsbox"), "selftest", "--tap", user=user)


def expect_tests(user):
    def expect(t, m):
        selftest(t, m, user)
        kernel_tests(t, m, user)
    return expect


def with_disks(m):
    plain(m)
    must("modprobe", "loop")  # as udev's static nodes do it: /dev/loop-control


# Of images what depends on the kernel; the rest is the same code everywhere.
FILES = {"disk.t": "", "changes.t": "",
         "image.t": "test_members,test_ownership,test_forms,test_many_layers,test_disk,test_in_use"}


def expect_files(user):
    """Images and upper layers, where temporary files are on a disk: an old tmpfs keeps no user.* attributes."""
    def expect(t, m):
        for name, only in FILES.items():
            if user and name == "changes.t" and version(platform.release()) < [6, 6]:
                continue  # refused there, which disk.t sees
            m.tap(t, ("as a user: " if user else "") + name, "tests/e2e/" + name, user=user, NSBOX_MUST_WORK="1",
                  TMPDIR="/var/tmp", NSBOX_ONLY=only)
    return expect


NFT_MODULES = ("nf_tables", "nft_reject_inet")


def no_overlay(m):
    m.cgroups(2)
    must("modprobe", "-a", *NFT_MODULES)
    m.without_modules("overlay")


def no_nft(m):
    m.cgroups(2)
    must("modprobe", "overlay")
    m.without_modules("nft_reject_inet", "nft_reject_ipv4", "nft_reject_ipv6", "nft_reject", "nft_redir", "nft_chain_nat",
                      "nf_nat", "nft_ct", "nf_conntrack", "nf_tables")


def no_userns(m):
    m.cgroups(2)
    m.sysctl("user.max_user_namespaces", "0")


def expect_no_userns(t, m):
    m.case(t, "host-userns-forbidden", user=True)


def no_user_userns(m):
    m.cgroups(2)
    if not m.sysctl("kernel.unprivileged_userns_clone", "0"):
        raise RuntimeError("this kernel has no kernel.unprivileged_userns_clone")


def groups_read_only(m):
    # As in a container: the tree is there and nobody may write to it.
    m.cgroups(2, "ro")


def no_groups(m):
    m.cgroups(None)


def groups_v1(m):
    m.cgroups(1)


def expect_groups_v1(t, m):
    done = m.run("true")
    t.equal(done.report["limits"]["by"], "cgroup1", "limits are by control groups v1")
    m.case(t, "host-cgroup1-only")


def masked_proc(m):
    m.cgroups(2)
    for path in ("/proc/kcore", "/proc/keys", "/proc/timer_list"):
        if os.path.exists(path):
            must("mount", "--bind", "/dev/null", path)
    for path in ("/proc/acpi", "/proc/scsi", "/proc/fs"):
        if os.path.isdir(path):
            must("mount", "-t", "tmpfs", "-o", "ro", "none", path)


def expect_masked_proc(t, m):
    listed = m.run("ls", "-A", "/proc")
    t.equal((listed.status, listed.out), (0, ""), "a run has no /proc rather than the host's")
    refused = m.run("true", manifest={"require": {"proc": "require"}})
    t.ok("systempaths=unconfined" in refused.err, "one that needs it is told the container's option", repr(refused))


def state_on_overlay(m):
    m.cgroups(2)
    base = "/run/state"
    for name in ("lower", "upper", "work", "merged"):
        os.makedirs(os.path.join(base, name))
    must("mount", "-t", "overlay", "-o", "lowerdir={0}/lower,upperdir={0}/upper,workdir={0}/work".format(base),
         "none", base + "/merged")
    m.state(base + "/merged")


def state_on_vfat(m):
    m.cgroups(2)
    m.state(m.image("vfat"))


def ptrace_nobody(m):
    m.cgroups(2)
    if not m.sysctl("kernel.yama.ptrace_scope", "3"):
        raise RuntimeError("this kernel has no Yama")


NO_NAMESPACES = {"user", "mount", "pid", "net", "ipc", "uts", "cgroupNamespace", "root", "overlay", "proc", "nftables"}

HOSTS = [
    Host("plain", "as Debian boots it: control groups v2, AppArmor, Yama, Landlock", plain, expect_plain),
    Host("tests", "the same, with the selftest and the kernel tests as root", plain, expect_tests(False), seconds=3600),
    Host("tests-user", "the same, as a user", plain, expect_tests(True), seconds=3600),
    Host("files", "the same, with the tests of images, upper layers and disks as root", with_disks, expect_files(False), seconds=1800),
    Host("files-user", "the same, as a user", with_disks, expect_files(True), seconds=1800),
    Host("no-overlay", "no overlay module", no_overlay, nothing, lacks={"overlay"}, tier="process",
         user_tier="process", remedy="modprobe overlay"),
    Host("no-nftables", "no nf_tables modules", no_nft, nothing, lacks={"nftables"}, remedy="modprobe nf_tables"),
    Host("no-userns", "user.max_user_namespaces=0", no_userns, expect_no_userns, lacks=NO_NAMESPACES,
         tier="process", user_tier="process", remedy="user.max_user_namespaces"),
    Host("no-user-userns", "kernel.unprivileged_userns_clone=0", no_user_userns, expect_no_userns,
         user_lacks=NO_NAMESPACES | {"cgroupLimits"}, user_tier="process",
         remedy="kernel.unprivileged_userns_clone"),
    Host("cgroup-read-only", "control groups v2, mounted read-only", groups_read_only,
         lambda t, m: m.case(t, "host-cgroup2-read-only"), lacks={"cgroupLimits"}, tier="namespace"),
    Host("cgroup-none", "no control groups", no_groups, nothing, lacks={"cgroupLimits"}, tier="namespace"),
    Host("masked-proc", "paths of /proc are covered, as in a container", masked_proc,
         expect_masked_proc, lacks={"proc"}, remedy="systempaths=unconfined"),
    Host("state-on-overlay", "the state directory is on an overlay", state_on_overlay,
         lambda t, m: m.case(t, "host-state-on-overlay")),
    Host("state-on-vfat", "the state directory is on vfat", state_on_vfat,
         lambda t, m: m.case(t, "host-state-on-network-fs"), refused="file system"),
    Host("no-landlock", "Landlock is not in the list of security modules", plain,
         lambda t, m: m.case(t, "host-without-landlock"), boot="lsm=lockdown,yama,apparmor,bpf",
         lacks=NO_LANDLOCK, remedy="lsm="),
    Host("no-ipv6", "ipv6.disable=1", plain, nothing, boot=DEFAULT_BOOT + " ipv6.disable=1"),
    Host("ptrace-3", "kernel.yama.ptrace_scope=3: nobody may trace", ptrace_nobody, nothing,
         boot=DEFAULT_BOOT + " nsbox.last"),
    # Debian builds kernels without the memory controller of v1 since 6.12.
    Host("cgroup-v1", "control groups v1 alone", groups_v1, expect_groups_v1, boot=DEFAULT_BOOT + " nsbox.v1", until="6.12"),
]


def by_name(name):
    return next(host for host in HOSTS if host.name == name)


# ---------------------------------------------------------------- in the guest


def attempt(t, host):
    m = Machine()
    try:
        own_mounts()
        host.prepare(m)
        for user in (False, True):
            found = findings(t, m, host, user)
            facts = a_run(t, m, host, user, found)
            t.line("#= " + json.dumps(facts))
        host.expect(t, m)
    except Exception:  # pylint: disable=broad-except
        t.ok(False, "can be tried", traceback.format_exc())
    finally:
        m.close()


class Prefixed:
    """Tests of one host, numbered with those of the others."""

    def __init__(self, tap, name):
        self.tap, self.name = tap, name
        self.line, self.note = tap.line, tap.note

    def ok(self, good, name, why=""):
        return self.tap.ok(good, "%s: %s" % (self.name, name), why)

    def equal(self, got, want, name):
        return self.tap.equal(got, want, "%s: %s" % (self.name, name))


def run(wanted):
    """Each host in a process of its own; the count travels back in a pipe."""
    from nsboxtest import tap  # pylint: disable=import-outside-toplevel

    os.chdir("/src")
    t = tap.Tap()
    for name in wanted:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            attempt(Prefixed(t, name), by_name(name))
            os.write(writing, b"%d %d" % (t.count, t.failed))
            os._exit(0)
        os.close(writing)
        said = os.read(reading, 64).split()
        os.waitpid(child, 0)
        if len(said) == 2:
            t.count, t.failed = int(said[0]), int(said[1])
        else:
            t.ok(False, "%s: ended" % name)
        os.close(reading)
    t.done()
    sys.stdout.flush()
