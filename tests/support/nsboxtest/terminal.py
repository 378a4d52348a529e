# SPDX-License-Identifier: Apache-2.0
"""A program on a terminal, and what somebody types there."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time


def converse(words, lines, env):
    """Exit status and what a terminal of 31 lines of 97 shows, while it gets these lines, each after a prompt."""
    pid, master = pty.fork()
    if pid == 0:
        # The size is there before the program looks at it.
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", 31, 97, 0, 0))
        os.execve(words[0], words, dict(env, TERM="dumb"))
    shown, deadline = "", time.monotonic() + 60
    while time.monotonic() < deadline:
        if lines and re.search(r"[$#] $", shown):
            os.write(master, lines.pop(0).encode() + b"\n")
            shown += "\n"
        if not select.select([master], [], [], 0.1)[0]:
            continue
        try:
            data = os.read(master, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data.decode()
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(master)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown


def watch(words, env, until, then):
    """The same of a program that nobody types to: then() is called once the terminal shows `until`."""
    pid, master = pty.fork()
    if pid == 0:
        os.execve(words[0], words, dict(env, TERM="dumb"))
    shown, called, deadline = "", False, time.monotonic() + 60
    while time.monotonic() < deadline:
        if not called and until in shown:
            called = True
            then()
        if not select.select([master], [], [], 0.1)[0]:
            continue
        try:
            data = os.read(master, 4096)
        except OSError:
            break
        if not data:
            break
        shown += data.decode()
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(master)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown
