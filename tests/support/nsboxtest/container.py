# SPDX-License-Identifier: Apache-2.0
"""Containers as an engine makes them, by runc: what a host looks like from in there.

A bundle is the machine's own programs, read-only, with fresh /proc, /dev, /tmp; the capabilities, masked
and read-only paths that engines give by default; and a seccomp profile that refuses what the usual one
does: new namespaces and mounts with EPERM, clone3 with ENOSYS because its flags cannot be seen, keys,
bpf, perf, io_uring, modules. seccomp(2) and Landlock are allowed, as they are there.

    container.run(["nsbox", "doctor"], seccomp="default", masked=True, user=0)

Root only. Nothing here talks to an engine.
"""

import json
import os
import shutil
import subprocess
import tempfile

from . import paths

CAPABILITIES = ["CAP_" + name for name in (
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
    "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT")]
MASKED = ["/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/sched_debug",
          "/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap", "/sys/firmware"]
READONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
SHOWN = ["/bin", "/lib", "/lib64", "/sbin", "/usr", "/etc"]

NEW_NAMESPACE = 0x7E020000
EPERM, ENOSYS = 1, 38
REFUSED = [
    "acct", "add_key", "bpf", "clock_adjtime", "clock_settime", "delete_module", "finit_module", "fsconfig", "fsmount",
    "fsopen", "fspick", "init_module", "io_uring_enter", "io_uring_register", "io_uring_setup", "ioperm", "iopl",
    "kexec_file_load", "kexec_load", "keyctl", "lookup_dcookie", "mount", "mount_setattr", "move_mount", "move_pages",
    "name_to_handle_at", "open_by_handle_at", "open_tree", "perf_event_open", "pivot_root", "quotactl", "reboot",
    "request_key", "setdomainname", "sethostname", "setns", "settimeofday", "swapoff", "swapon", "syslog", "umount2",
    "unshare", "userfaultfd", "vhangup",
]


def seccomp_profile():
    """Everything is allowed but what is listed: the refusals are what a program in there meets."""
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64" if os.uname().machine == "x86_64" else "SCMP_ARCH_AARCH64"],
        "syscalls": [
            {"names": REFUSED, "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM},
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS},
            # A rule is one comparison: any of the bits, one by one.
            *({"names": ["clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": EPERM,
               "args": [{"index": 0, "value": bit, "valueTwo": bit, "op": "SCMP_CMP_MASKED_EQ"}]}
              for bit in (1 << n for n in range(32)) if NEW_NAMESPACE & bit),
        ],
    }


def mounts(tree):
    """As engines have them; the control groups read-only."""
    plain = ["nosuid", "noexec", "nodev"]
    found = [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": plain},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755", "size=65536k"]},
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts",
         "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": [*plain, "mode=1777", "size=65536k"]},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": [*plain, "ro"]},
        {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": [*plain, "relatime", "ro"]},
    ]
    for path in ("/tmp", "/run", "/var", "/root"):
        found.append({"destination": path, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=1777"]})
    for path in [p for p in SHOWN if os.path.isdir(p)] + [tree]:
        found.append({"destination": path, "type": "bind", "source": path, "options": ["rbind", "ro"]})
    return found


def bundle(argv, seccomp, masked, user):
    capabilities = CAPABILITIES if user == 0 else []
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False, "cwd": "/tmp", "args": argv, "user": {"uid": user, "gid": user},
            "env": ["PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/tmp"], "noNewPrivileges": False,
            "capabilities": {"bounding": CAPABILITIES, "effective": capabilities, "permitted": capabilities},
        },
        "root": {"path": "rootfs", "readonly": False},
        "hostname": "container",
        "mounts": mounts(paths.ROOT),
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
            "resources": {},
            "maskedPaths": MASKED if masked else [],
            "readonlyPaths": READONLY if masked else [],
            **({"seccomp": seccomp_profile()} if seccomp == "default" else {}),
        },
    }


def available():
    """Why there are no containers here; "" if there are."""
    if os.getuid() != 0:
        return "runc takes root"
    return "" if shutil.which("runc") else "there is no runc"


def run(argv, seccomp="default", masked=True, user=0, timeout=120):
    """One program in a container; a CompletedProcess."""
    with tempfile.TemporaryDirectory(prefix="container-") as place:
        os.mkdir(os.path.join(place, "rootfs"))
        os.chmod(place, 0o755)
        os.chmod(os.path.join(place, "rootfs"), 0o755)
        with open(os.path.join(place, "config.json"), "w", encoding="utf-8") as f:
            json.dump(bundle(argv, seccomp, masked, user), f)
        name = "container-%d-%s" % (os.getpid(), os.path.basename(place)[-8:])
        return subprocess.run(["runc", "--root", os.path.join(place, "state"), "run", "--bundle", place, name],
                              stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False)
