#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Words of skill.json in a run: each makes a difference that the same command shows without it."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import paths, tap

SERVER = "import socket; s = socket.create_server(('127.0.0.1', 0)); print('listens')"
THREAD = "import threading; t = threading.Thread(target=print, args=('threads',)); t.start(); t.join()"
DIAG = "import socket; socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4); print('diag')"
JIT = "import mmap; mmap.mmap(-1, 4096, prot=7); print('jit')"
TRACE = ("import ctypes; c = ctypes.CDLL(None, use_errno=True); r = c.ptrace(0, 0, 0, 0); "
         "print('traced' if r == 0 else ctypes.get_errno())")
QUEUE = "import ctypes; c = ctypes.CDLL(None); print('queue' if c.msgget(0, 0o1600) >= 0 else 'none')"

HOST = {"host": "a.example", "ports": [1], "description": "test"}

# name, manifest, the twin's manifest, program, what the first prints (a part), what the twin prints
ROWS = [
    ("listen", {"process": {"listen": False}}, {}, ["python3", "-c", SERVER], "not permitted", "listens"),
    ("threads", {"process": {"threads": False}}, {}, ["python3", "-c", THREAD], "can't start new thread", "threads"),
    ("netlink", {}, {"process": {"netlink": True}}, ["python3", "-c", DIAG], "not supported", "diag"),
    ("jit", {"process": {"jit": False}}, {}, ["python3", "-c", JIT], "not permitted", "jit"),
    ("jit in strict", {"profile": "strict"}, {"profile": "strict", "process": {"jit": True}},
     ["python3", "-c", JIT], "not permitted", "jit"),
    ("ptrace", {"profile": "network"}, {}, ["python3", "-c", TRACE], "1", "traced"),
    ("groups", {}, {"syscalls": {"groups": ["@ipc"]}}, ["python3", "-c", QUEUE], "none", "queue"),
    ("user", {}, {"process": {"user": "root"}}, ["sh", "-c", "echo uid=$(id -u)."], "uid=1000.", "uid=0."),
    ("profile build", {"profile": "standard"}, {"profile": "build"}, ["sh", "-c", "id -u; id -un"], "1000\n", "0\nroot"),
    ("hostname", {}, {"determinism": {"hostname": "here"}}, ["uname", "-n"], "sandbox", "here"),
    ("optional path", {"filesystem": {"read": ["/srv/none"]}},
     {"filesystem": {"read": [{"path": "/srv/none", "optional": True}]}}, ["echo", "started"], "/srv/none", "started"),
    ("optional refusal", {"filesystem": {"write": ["/etc/x"]}},
     {"filesystem": {"write": [{"path": "/etc/x", "optional": True}]}}, ["echo", "started"], "belongs to the image", "started"),
    ("port 53 over UDP", {"network": {"mode": "allowlist", "allow": [{**HOST, "protocol": "udp", "ports": [53]}]}},
     {"network": {"mode": "allowlist", "allow": [{**HOST, "protocol": "udp", "ports": [54]}]}}, ["echo", "started"], "cannot be granted", "started"),
    ("least kernel", {"compatibility": {"kernel": ">=999"}}, {"compatibility": {"kernel": ">=5.13"}},
     ["echo", "started"], "/compatibility/kernel", "started"),
    ("user namespaces", {"process": {"userns": True}}, {"process": {"userns": False}},
     ["echo", "started"], "never granted", "started"),
]


def run(directory, manifest, program):
    path = directory + "/skill.json"
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"manifestVersion": 1, **manifest}, f)
    done = subprocess.run([paths.NSBOX, "run", "--manifest", path, "--", *program], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=60, check=False)
    return done.stdout + done.stderr


def test_words(t):
    directory = paths.scratch("nsbox-manifest-")
    for name, manifest, twin, program, first, second in ROWS:
        got, other = run(directory, manifest, program), run(directory, twin, program)
        t.ok(first in got and second not in got, name, got)
        t.ok(second in other and first not in other, name + ", its twin", other)


def test_receipt(t):
    """What was optional and refused is told, and what was granted too."""
    directory = paths.scratch("nsbox-manifest-")
    path, receipt = directory + "/skill.json", directory + "/receipt"
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"manifestVersion": 1, "resources": {"pids": 20},
                   "filesystem": {"write": [{"path": "/etc/x", "optional": True}]}}, f)
    done = subprocess.run([paths.NSBOX, "run", "-v", "--result", receipt, "--manifest", path, "--", "true"],
                          capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
    with open(receipt, encoding="utf-8") as f:
        told = json.load(f)
    why = "/etc belongs to the image, which is read-only"
    t.equal(told["granted"], [{"pointer": "/resources/pids", "value": "20"}], "granted")
    t.equal(told["refused"], [{"pointer": "/filesystem/write/0", "value": "/etc/x", "why": why}], "refused")
    t.ok("refused   /filesystem/write/0: /etc/x: " + why in done.stderr, "refused, for people", done.stderr)


def test_executable(t):
    """files.executable by pattern, in a skill that lost its modes."""
    for executable, want in ((["bin/*.sh", "deep/**"], "run one\nrun two\n"), (["bin/*.sh"], "denied"), ([], "denied"),
                             (["bin/*.py"], "no file matches")):
        skill = paths.scratch("nsbox-manifest-")
        for name in ("bin/one.sh", "deep/er/two.sh"):
            os.makedirs(os.path.dirname(os.path.join(skill, name)), exist_ok=True)
            with open(os.path.join(skill, name), "w", encoding="utf-8") as f:
                f.write("#!/bin/sh\necho run ${0##*/}\n".replace("${0##*/}", name.split("/")[-1][:3]))
        with open(skill + "/skill.json", "w", encoding="utf-8") as f:
            json.dump({"manifestVersion": 1, "name": "s", "files": {"executable": executable}}, f)
        done = subprocess.run([paths.NSBOX, "run", "--skill", skill, "--", "sh", "-c", "bin/one.sh; deep/er/two.sh"], capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=60, check=False)
        t.ok(want in done.stdout + done.stderr, "executable: %s: %s" % (executable, want.split("\n", 1)[0]), done.stdout + done.stderr)


if __name__ == "__main__":
    sys.exit(tap.run([test_words, test_receipt, test_executable]))
