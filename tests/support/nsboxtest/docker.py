# SPDX-License-Identifier: Apache-2.0
"""A container as Docker starts one, by runc, on hosts without Docker: its capabilities, its masked and
read-only places, its read-only control groups, and a seccomp profile in Docker's own format.

The root is the host's own programs, read-only, with directories of its own to write to.
"""

import json
import os
import platform
import shutil
import subprocess

from . import paths

PROFILE = os.path.join(paths.ROOT, "maxkb", "kits", "nsbox-docker-seccomp.json")
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
ENOSYS = 38

CAPABILITIES = ["CAP_" + name for name in (
    "CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL "
    "AUDIT_WRITE").split()]
MASKED = ["/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
          "/proc/sched_debug", "/proc/scsi", "/proc/timer_list", "/proc/timer_stats",
          "/sys/devices/virtual/powercap", "/sys/firmware"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]


def is_ours(rule):
    return rule.get("comment", "").startswith("nsbox: ")


def shipped(without=()):
    """The profile that is shipped, perhaps without some of the calls that nsbox adds."""
    with open(PROFILE, encoding="utf-8") as f:
        profile = json.load(f)
    profile["syscalls"] = [rule for rule in profile["syscalls"]
                           if not (is_ours(rule) and set(rule["names"]) & set(without))]
    if "clone3" in without:
        profile["syscalls"].append({"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS})
    return profile


def added():
    """The calls that the shipped profile has beyond Docker's own."""
    return [name for rule in shipped()["syscalls"] if is_ours(rule) for name in rule["names"]]


def default():
    """Docker's own rules."""
    return shipped(without=added())


def applies(rule, capabilities):
    """Docker's conditions on a rule."""
    wants, bars = rule.get("includes", {}), rule.get("excludes", {})
    return not (("arches" in wants and ARCH not in wants["arches"])
                or ("caps" in wants and not set(wants["caps"]) <= set(capabilities))
                or ("arches" in bars and ARCH in bars["arches"])
                or ("caps" in bars and set(bars["caps"]) & set(capabilities)))


def to_oci(profile, capabilities):
    """As Docker hands it to runc."""
    machine = "SCMP_ARCH_" + {"amd64": "X86_64", "arm64": "AARCH64"}[ARCH]
    archs = next([entry["architecture"], *entry["subArchitectures"]] for entry in profile["archMap"]
                 if entry["architecture"] == machine)
    keep = ("names", "action", "args", "errnoRet")
    return {"defaultAction": profile["defaultAction"], "defaultErrnoRet": profile["defaultErrnoRet"],
            "architectures": archs,
            "syscalls": [{key: rule[key] for key in keep if key in rule} for rule in profile["syscalls"]
                         if applies(rule, capabilities)]}


MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


def binds(system):
    """The programs of a root, and this tree where it is."""
    for name in ("usr", "etc"):
        yield os.path.join(system, name), "/" + name, ["rbind", "ro"]
    for name in MERGED:
        path = os.path.join(system, name)
        if os.path.isdir(path) and not os.path.islink(path):
            yield path, "/" + name, ["rbind", "ro"]
    yield paths.ROOT, paths.ROOT, ["rbind", "ro"]


def mount(kind, where, options, source=None):
    return {"type": kind, "destination": where, "source": source or kind, "options": options}


def mounts(extra, system):
    yield mount("proc", "/proc", ["nosuid", "noexec", "nodev"])
    yield mount("tmpfs", "/dev", ["nosuid", "strictatime", "mode=755", "size=65536k"])
    yield mount("devpts", "/dev/pts", ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"])
    yield mount("tmpfs", "/dev/shm", ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"], "shm")
    yield mount("mqueue", "/dev/mqueue", ["nosuid", "noexec", "nodev"])
    yield mount("sysfs", "/sys", ["nosuid", "noexec", "nodev", "ro"])
    yield mount("cgroup", "/sys/fs/cgroup", ["ro", "nosuid", "noexec", "nodev"])
    for source, where, options in [*binds(system), *extra]:
        yield mount("bind", where, options, source)


def config(argv, profile, extra, env, unmasked, capabilities, system):
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0}, "args": argv, "cwd": "/", "terminal": False,
            "env": ["%s=%s" % pair for pair in env.items()],
            "capabilities": {kind: capabilities for kind in ("bounding", "effective", "permitted")},
            "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 4096, "soft": 4096}]},
        "root": {"path": "rootfs", "readonly": False},
        "hostname": "container",
        "mounts": list(mounts(extra, system)),
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount", "cgroup")],
            "maskedPaths": [] if unmasked else MASKED, "readonlyPaths": [] if unmasked else READ_ONLY,
            "seccomp": to_oci(profile, capabilities) if profile else None}}


class Container:
    """A bundle in a directory of its own; run() starts it anew each time.

    unmasked: as --security-opt systempaths=unconfined. extra: (source, destination, options). system: whose
    programs it has.
    """

    def __init__(self, place, profile, extra=(), unmasked=False, capabilities=None, system="/"):
        self.place = place
        self.profile, self.extra, self.unmasked = profile, list(extra), unmasked
        self.capabilities = CAPABILITIES if capabilities is None else capabilities
        self.system = system
        self.name = None
        self.rootfs = os.path.join(place, "rootfs")
        for name in ("proc", "sys", "dev", "tmp", "run", "var/lib", "root", "opt", "home"):
            os.makedirs(os.path.join(self.rootfs, name), exist_ok=True)
        os.chmod(os.path.join(self.rootfs, "tmp"), 0o1777)
        for name in MERGED:
            theirs, link = os.path.join(system, name), os.path.join(self.rootfs, name)
            merged = os.path.islink(theirs) or os.path.isdir(os.path.join(system, "usr", name)) and not os.path.isdir(theirs)
            if merged and not os.path.lexists(link):
                os.symlink("usr/" + name, link)

    def start(self, argv, env=None, **more):
        """A Popen of the container in the foreground."""
        env = dict({"PATH": paths.IMAGE_PATH, "HOME": "/root"}, **(env or {}))
        with open(os.path.join(self.place, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config(argv, self.profile, self.extra, env, self.unmasked, self.capabilities,
                             self.system), f)
        self.name = "box-%d-%s" % (os.getpid(), os.urandom(4).hex())
        return subprocess.Popen([*self.runc(), "run", "--bundle", self.place, self.name], **more)

    def runc(self):
        return [shutil.which("runc", path=paths.IMAGE_PATH), "--root", os.path.join(self.place, "state")]

    def enter(self, argv, env=None, **more):
        """A Popen of one more program in the container that was started last, as `docker exec` has it."""
        env = ["--env=%s=%s" % pair for pair in (env or {}).items()]
        return subprocess.Popen([*self.runc(), "exec", *env, self.name, *argv], **more)

    def run(self, argv, env=None, timeout=120):
        """(status, output, errors) of a program in it."""
        child = self.start(argv, env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True)
        out, err = child.communicate(timeout=timeout)
        return child.returncode, out, err
