# SPDX-License-Identifier: Apache-2.0
"""A fresh Debian to install into: a root made by mmdebstrap, and programs run in it by runc as a
machine of its own. All capabilities that there are, no filter, nothing masked, and no network: what
keeps a program from working in there is the root, not a container's fences. Root only.
"""

import hashlib
import json
import os
import re
import subprocess

from . import docker, paths, tap

BUILD = os.path.join(paths.ROOT, "build")
ENV = {"PATH": paths.IMAGE_PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}


def capabilities():
    """The names of this process's bounding set, as runc wants them."""
    shown = subprocess.run(["capsh", "--decode=" + re.search(r"CapBnd:\s*(\w+)", open("/proc/self/status", encoding="ascii").read())[1]],
                           capture_output=True, text=True, check=True).stdout
    return [name.upper() for name in shown.strip().split("=", 1)[1].split(",")]


def depends(deb):
    """The names of packages that a package file depends on: the first of alternatives."""
    shown = subprocess.run(["dpkg-deb", "--field", deb, "Depends"], capture_output=True, text=True, check=True).stdout
    return [re.match(r"[\w.+-]+", part.strip())[0] for part in shown.split(",") if part.strip()]


def archive(packages, suite="bookworm"):
    """The tar of a minimal Debian with these packages, made once; skips the file where there is no mirror."""
    packages = sorted(set(packages))
    path = os.path.join(BUILD, "debian-%s.tar" % hashlib.sha256(" ".join([suite, *packages]).encode()).hexdigest()[:12])
    if not os.path.exists(path):
        made = subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "--include=" + ",".join(packages), suite,
                               path + ".part.tar"], check=False, stdin=subprocess.DEVNULL)
        if made.returncode:
            tap.skip_all("mmdebstrap could make no Debian: is there a mirror?")
        os.rename(path + ".part.tar", path)
    return path


def unpack(tar, root):
    os.mkdir(root, 0o755)
    subprocess.run(["tar", "-x", "--numeric-owner", "--xattrs", "-f", tar, "-C", root], check=True)


class Debian:
    """The root as a machine; each run() is a boot of it. extra: mounts as (source, destination, options)."""

    def __init__(self, place, root):
        self.place, self.root = place, root

    def run(self, argv, env=None, extra=(), timeout=180, capability=None):
        """(status, output and errors) of a program in it."""
        kept = capabilities() if capability is None else capability
        config = docker.config(argv, None, (), dict(ENV, **(env or {})), True, kept, "/")
        config["root"] = {"path": self.root, "readonly": False}
        config["mounts"] = [m for m in config["mounts"] if m["type"] != "bind"] + [
            docker.mount("bind", where, options, source) for source, where, options in extra] + [
            docker.mount("tmpfs", "/run", ["nosuid", "nodev", "mode=755"]),
            docker.mount("tmpfs", "/tmp", ["nosuid", "nodev", "mode=1777"])]
        for m in config["mounts"]:
            if m["type"] == "cgroup":
                m["options"].remove("ro")
        del config["process"]["rlimits"]  # ours; root may lack the right to raise them
        with open(os.path.join(self.place, "config.json"), "w", encoding="utf-8") as f:
            json.dump(config, f)
        name = "debian-%d-%s" % (os.getpid(), os.urandom(4).hex())
        done = subprocess.run(["runc", "--root", os.path.join(self.place, "state"), "run", "--bundle", self.place, name],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="backslashreplace", timeout=timeout, check=False)
        return done.returncode, done.stdout

    def shell(self, script, **more):
        return self.run(["sh", "-euc", script], **more)


# What package managers and libc write about packages, whichever they are.
RECORDS = re.compile(r"/(var/lib/dpkg(/.*)?|var/log/(dpkg|alternatives)\.log|var/cache/ldconfig(/.*)?|var/cache/man(/.*)?"
                     r"|etc/ld\.so\.cache|etc/(passwd|group|shadow|gshadow|subuid|subgid)-|etc/\.pwd\.lock"
                     r"|(dev|proc|sys|run|tmp)/.*)$")


def contents(root):
    """Path to what is there: type, mode, owner, and content or target. Neither times nor RECORDS."""
    found = {}
    for top, dirs, files in os.walk(root):
        for name in dirs + files:
            path = os.path.join(top, name)
            inside = path[len(root):]
            if RECORDS.fullmatch(inside):
                continue
            st = os.lstat(path)
            what = os.readlink(path) if os.path.islink(path) else ""
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as f:
                    what = hashlib.sha256(f.read()).hexdigest()
            found[inside] = (oct(st.st_mode), st.st_uid, st.st_gid, what)
    return found
