#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of different versions do not work together: what happens when some are replaced under others."""

import os
import shutil
import socket
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import paths, service, tap

# What confines itself leaves the leak detector no way to look.
LEAKS = {"ASAN_OPTIONS": "detect_leaks=0"} if paths.ASAN else {}
OURS = subprocess.run([paths.NSBOX, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
THEIRS = "9" * len(OURS)
MAGIC = 0x316C6572


def programs(place, other=()):
    """A copy of the product, some of whose programs were built as another version."""
    os.mkdir(place, 0o755)
    build = os.path.dirname(paths.NSBOX)
    for name in os.listdir(build):
        if name.startswith("nsbox") and os.access(os.path.join(build, name), os.X_OK):
            path = shutil.copy(os.path.join(build, name), place)
            if name in other:
                with open(path, "r+b") as f:
                    whole = f.read()
                    assert OURS.encode() + b"\0" in whole
                    f.seek(0)
                    f.write(whole.replace(OURS.encode() + b"\0", THEIRS.encode() + b"\0"))
    return place


def manifest(place):
    path = os.path.join(place, "network.json")
    with open(path, "w", encoding="ascii") as f:
        f.write('{"manifestVersion": 1, "name": "n", "profile": "network", "network": {"mode": "allowlist",'
                ' "allow": [{"host": "a.example", "ports": [1], "description": "d"}]}}')
    return path


def test_service(t):
    for other in ((), ("nsbox-spawn",), ("nsbox-egress",)):
        place = programs(os.path.join(DIR, "s" + "".join(other)), other)
        if not other:
            with service.Daemon(options=["--libexec", place]) as daemon:
                works = daemon.ask("POST", "/v1/execute/python-function", {"code": "def f(): return 1"})
                t.equal(works[0], 200, "a service of programs of one version works")
            continue
        done = subprocess.run([paths.NSBOXD, "--libexec", place, "--socket", place + "/sock", "--data-dir", place + "/data"],
                              capture_output=True, stdin=subprocess.DEVNULL, text=True, check=False, timeout=120)
        t.ok(done.returncode > 0, "a service with %s of another version does not start" % " and ".join(other), repr(done))
        t.ok(OURS in done.stderr and THEIRS in done.stderr and "restart the service" in done.stderr,
             "says which versions meet and what to do", done.stderr)


def test_run(t):
    for other in ((), ("nsbox-egress",)):
        place = programs(os.path.join(DIR, "r" + "".join(other)), other)
        done = subprocess.run([place + "/nsbox", "run", "--manifest", manifest(DIR), "--", "true"], capture_output=True,
                              stdin=subprocess.DEVNULL, text=True, check=False, timeout=120)
        t.equal(done.returncode, 125 if other else 0, "nsbox run with a network, %s" % (other or "all of one version",))
        if other:
            t.ok(OURS in done.stderr and THEIRS in done.stderr, "says which versions meet", done.stderr)


def greet(name, packet):
    """Start it with a socket, say this: (exit status or None if it works on, its first packet, its errors)."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = subprocess.Popen([os.path.join(paths.BUILD, name), "--fd", str(theirs.fileno())], pass_fds=[theirs.fileno()],
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             env={**os.environ, "NSBOX_STATE_DIR": DIR + "/state", **LEAKS})
    with mine:
        theirs.close()
        mine.settimeout(60)
        mine.send(packet)
        first = mine.recv(4096)
        try:
            on = bool(mine.recv(1 << 16))  # what its host can do, or that it is ready: it goes on
            while packet != release(OURS) and mine.recv(1 << 16):
                pass
        except ConnectionResetError:
            on = False
    errors = child.communicate(timeout=60)[1]
    return (None if on and not child.returncode else child.returncode), first, errors


def release(version):
    return struct.pack("=I60s", MAGIC, version.encode())


def test_each(t):
    """Each program by itself refuses who started it, whoever would refuse it as well."""
    for name in ("nsbox-spawn", "nsbox-egress"):
        status, first, errors = greet(name, release(OURS))
        t.equal((status, first, errors), (None, release(OURS), ""), name + " works with its own version")
        for what, packet in (("another version", release(THEIRS)), ("none", struct.pack("=II", 0x31727773, 8))):
            status, first, errors = greet(name, packet)
            t.ok(status == 1 and first == release(OURS) and OURS in errors and "restart the service" in errors,
                 "%s ends where it is started by %s" % (name, what), repr((status, first, errors)))


if __name__ == "__main__":
    DIR = paths.scratch("rel-")
    os.chmod(DIR, 0o755)
    sys.exit(tap.run([test_service, test_run, test_each]))
