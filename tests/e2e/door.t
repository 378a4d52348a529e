#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Who is let in at the service's socket, and how much of it one user can hold."""

import os
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import service, tap

ROOT = os.getuid() == 0
ALLOWED, STRANGER = 54321, 65534
MANY = 800


def health(path):
    """Status line of GET /healthz, and how long it took."""
    began = time.monotonic()
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(path)
        s.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        line = s.makefile("rb").readline().decode().strip()
    return line, time.monotonic() - began


def as_user(uid, work):
    """What work() returns (text), in a process of that user."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        if uid is not None:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
        try:
            os.write(write, str(work()).encode())
        except OSError as e:
            os.write(write, repr(e).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as f:
        text = f.read()
    os.waitpid(pid, 0)
    return text


def hold(path):
    """Keep so many connections open without a word; how many the service lets stay."""
    kept = []
    for _ in range(MANY):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(2)
        try:
            s.connect(path)
            kept.append(s)
        except OSError:
            s.close()
    time.sleep(1)
    alive = 0
    for s in kept:
        s.setblocking(False)
        try:
            s.recv(1)
        except BlockingIOError:
            alive += 1
        except OSError:
            pass
    return kept, alive


def while_held(t, path, uid, most, name):
    """With the connections of a user held, the owner is served at once."""
    ready_r, ready_w = os.pipe()
    done_r, done_w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(done_w)
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        _kept, alive = hold(path)
        os.write(ready_w, b"%d\n" % alive)
        os.read(done_r, 1)
        os._exit(0)
    os.close(ready_w)
    with os.fdopen(ready_r) as f:
        alive = int(f.readline())
    line, took = health(path)
    os.close(done_w)
    os.waitpid(pid, 0)
    t.ok(alive <= most, "%s holds %d connections at most" % (name, most), "%d" % alive)
    t.ok("200" in line and took < 5, "meanwhile root is served", "%s after %.1f s" % (line, took))


def test_users(t):
    with service.Daemon(options=["--allow-uid", str(ALLOWED)]) as daemon:
        t.ok("200" in as_user(ALLOWED, lambda: health(daemon.socket)[0]), "a user that is allowed is served")
        t.ok("403" in as_user(STRANGER, lambda: health(daemon.socket)[0]), "one that is not is told so")
        while_held(t, daemon.socket, STRANGER, 8, "a user that is not allowed")
        while_held(t, daemon.socket, ALLOWED, 128, "a user that is allowed")
        t.ok("200" in as_user(ALLOWED, lambda: health(daemon.socket)[0]), "and is served again when it let go")


def test_owner(t):
    with service.Daemon() as daemon:
        kept = []
        for _ in range(200):
            s = socket.socket(socket.AF_UNIX)
            s.connect(daemon.socket)
            kept.append(s)
        line, took = health(daemon.socket)
        t.ok("200" in line and took < 5, "the owner's share is not bounded like others'", "%s %.1f s" % (line, took))


sys.exit(tap.run([test_users, test_owner] if ROOT else [test_owner]))
