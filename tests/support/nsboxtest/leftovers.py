# SPDX-License-Identifier: Apache-2.0
"""What a run leaves behind: a snapshot before, a comparison after.

Processes are found by descent, not by name: become_subreaper() makes every orphan of this
process's children come back to it, so whatever outlives its owner is in the tree below. All the
rest is listed as it is on the machine before and after; only what stays for some seconds counts,
because the kernel takes a moment to take namespaces down.
"""

import ctypes
import os
import re
import stat
import tempfile

from . import tap

PR_SET_CHILD_SUBREAPER = 36

KINDS = ("no_processes", "no_mounts", "no_cgroups", "no_tmp_dirs", "no_netns", "no_open_fds")


def become_subreaper():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read().decode("utf-8", "surrogateescape")
    except OSError:
        return ""


def processes():
    """pid -> (parent, state, start time, name) of everything in sight."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        text = read("/proc/%s/stat" % name)
        if not text:
            continue
        comm, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        found[int(name)] = (int(fields[1]), fields[0], fields[19], comm)
    return found


def descendants(root):
    """{(pid, start time): name} of what descends from root; zombies of root itself are no processes."""
    all_of = processes()
    children = {}
    for pid, (parent, _, _, _) in all_of.items():
        children.setdefault(parent, []).append(pid)
    found, queue = {}, [root]
    while queue:
        parent = queue.pop()
        for pid in children.get(parent, ()):
            _, state, start, name = all_of[pid]
            queue.append(pid)
            if not (state == "Z" and parent == os.getpid()):
                found[(pid, start)] = "%s%s" % (name, " (zombie)" if state == "Z" else "")
    return found


def in_sandbox(pid):
    """Whether a process lives in a pid namespace below ours: init keeps the name of who cloned it."""
    def depth(of):
        found = re.search(r"^NSpid:(.*)$", read("/proc/%s/status" % of), re.M)
        return len(found.group(1).split()) if found else 0
    return depth(pid) > depth("self")


def reap_orphans(known):
    """Collect zombies that came to this process as a subreaper, but not its own children."""
    for pid, (parent, state, _, _) in processes().items():
        if parent == os.getpid() and state == "Z" and pid not in known:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def mounts(pids):
    """{mount point and kind} of this mount namespace and those of the service's processes."""
    found = set()
    for pid in ["self", *map(str, pids)]:
        for line in read("/proc/%s/mountinfo" % pid).splitlines():
            left, _, right = line.partition(" - ")
            fields = left.split()
            found.add("%s %s %s" % (fields[0], fields[4], right.split()[0]))
    return found


def mine(path):
    """Whether this user can have made it: the same tests may run as root at the same time."""
    try:
        return os.geteuid() == 0 or os.lstat(path).st_uid != 0
    except FileNotFoundError:
        return False


def members(group):
    """Processes in a control group and below it."""
    found = set()
    for where, _, _ in os.walk(group):
        found.update(int(pid) for pid in read(os.path.join(where, "cgroup.procs")).split())
    return found


def cgroups(pids, ours):
    """Control groups below those that this process and the service are in, in every hierarchy.

    Elsewhere on the machine others make and remove theirs. On version 2 the place may be the root.
    A group that holds processes, none of them ours, is in use by somebody else: runs share a place.
    """
    roots = set()
    for pid in ["self", *map(str, pids)]:
        for line in read("/proc/%s/cgroup" % pid).splitlines():
            _, names, path = line.split(":", 2)
            if names:
                roots.update(os.path.join("/sys/fs/cgroup", n.replace("name=", ""), path.lstrip("/"))
                             for n in names.split(","))
            else:
                roots.add(os.path.join("/sys/fs/cgroup", path.strip("/")).rstrip("/"))
                roots.add("/sys/fs/cgroup/nsbox")
    found = set()
    for root in roots:
        for where, dirs, _ in os.walk(root):
            if root == "/sys/fs/cgroup" and "unified" in dirs:
                dirs[:] = []  # version 1: its hierarchies are walked from their own roots
            for name in dirs:
                group = os.path.join(where, name)
                inside = members(group)
                if mine(group) and (not inside or inside & ours):
                    found.add(group)
    return found


def files(private):
    """Names of the product's in the shared places for temporary files, and whole trees of the private ones.

    The shared places are everybody's; a payload cannot name anything there, and the product and its
    tests put "nsbox" into each name of theirs.
    """
    found = set()
    shared = {"/tmp", "/var/tmp", "/dev/shm", "/run", "/run/lock", "/run/user/%d" % os.getuid(),
              tempfile.gettempdir()}
    for place in shared:
        try:
            found.update(os.path.join(place, name) for name in os.listdir(place)
                         if "nsbox" in name and mine(os.path.join(place, name)))
        except OSError:
            pass
    for place in private:
        for where, dirs, names in os.walk(place):
            found.update(os.path.join(where, name) for name in dirs + names)
    return found


def open_files(pid):
    """[what each descriptor of a process is]; nothing of nsbox-egress where it may not be looked at."""
    place = "/proc/%d/fd" % pid
    found = []
    try:
        numbers = os.listdir(place)
    except PermissionError: # nsbox-egress, and it alone, keeps its own from everybody but root
        if read("/proc/%d/comm" % pid).strip() != "nsbox-egress":
            raise
        return found
    for fd in numbers:
        try:
            target = os.readlink(os.path.join(place, fd))
        except FileNotFoundError:
            continue
        found.append("%s %s" % (fd, target))
    return found


def netns(pids):
    """Network namespaces that are held: by a process of ours, a descriptor of one, or a name."""
    found = set()
    for pid in pids:
        try:
            found.add(os.readlink("/proc/%d/ns/net" % pid))
            found.update(f.split()[1] for f in open_files(pid) if " net:[" in f)
        except OSError:
            pass
    for place in ("/run/netns", "/var/run/netns"):
        if os.path.isdir(place):
            found.update(os.path.join(place, n) for n in os.listdir(place))
    return found


class Snapshot:
    """State of the machine as far as runs could change it.

    service: pids of the long-lived processes (may be empty); private: directories of which
    everything below is watched.
    """

    def __init__(self, service=(), private=()):
        self.service = tuple(service)
        self.private = tuple(private)
        self.before = self.look()

    def look(self):
        tree = descendants(os.getpid())
        for pid in self.service:
            tree.update(descendants(pid))
        pids = {os.getpid(), *self.service, *(pid for pid, _ in tree)}
        fds = {}
        for pid in self.service:
            try:
                fds[pid] = sorted(open_files(pid))
            except FileNotFoundError:
                raise RuntimeError("process %d of the service is gone" % pid) from None
        return {
            "no_processes": {"%d %s" % (k[0], v) for k, v in tree.items()},
            "no_mounts": mounts(self.service),
            "no_cgroups": cgroups(self.service, pids),
            "no_tmp_dirs": files(self.private),
            "no_netns": netns(pids),
            "no_open_fds": fds,
        }

    def difference(self, kind, now):
        if kind != "no_open_fds":
            return sorted(now[kind] - self.before[kind])
        left = []
        for pid, was in self.before[kind].items():
            if len(now[kind][pid]) > len(was):
                left.append("process %d had %d descriptors, has %d: %s"
                            % (pid, len(was), len(now[kind][pid]),
                               sorted(set(now[kind][pid]) - set(was))))
        return left

    def left(self, kinds=KINDS, seconds=20.0):
        """What is left of these kinds after at most so many seconds: [] or sentences."""
        found = []

        def check():
            now = self.look()
            found[:] = ["%s: %s" % (k, d) for k in kinds for d in self.difference(k, now)]
            return not found

        tap.wait_until(check, seconds, 0.2)
        return found


def is_socket(path):
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False
