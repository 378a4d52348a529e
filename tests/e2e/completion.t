#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Completion in the three shells themselves: it offers what --help says, and nothing else."""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import paths, tap

SCRIPTS = os.path.join(paths.ROOT, "nsbox", "completion")
BIN = os.path.dirname(paths.NSBOX)
ENV = dict(os.environ, PATH=BIN + ":" + os.environ["PATH"], TERM="dumb", LC_ALL="C.UTF-8")


def help_of(*words):
    return subprocess.run([paths.NSBOX, *words, "--help"], capture_output=True, text=True, check=True).stdout


def commands():
    return re.findall(r"^  ([a-z]+)  ", help_of().split("\n\n")[1], re.M)


def options(*words):
    return set(re.findall(r"^ +(?:-., )? *(--[a-z-]+)", help_of(*words), re.M))


def bash(*words):
    """What bash offers for the last word."""
    script = ('. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _nsbox; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, "bash", os.path.join(SCRIPTS, "nsbox.bash"), "nsbox", *words],
                          env=ENV, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def fish(line):
    done = subprocess.run(["fish", "--no-config", "-c", 'source $argv[1]; complete -C $argv[2]',
                           os.path.join(SCRIPTS, "nsbox.fish"), line],
                          env=dict(ENV, HOME=HOME), capture_output=True, text=True, check=True)
    return {row.split("\t")[0] for row in done.stdout.splitlines()}


class Zsh:
    """An interactive zsh on a terminal of its own: its completion cannot be asked otherwise."""

    def __init__(self):
        pid, self.fd = pty.fork()
        if pid == 0:
            os.execvpe("zsh", ["zsh", "-f", "-i"], dict(ENV, HOME=HOME))
        self.pid = pid
        self.say("PS1='%%'; unset zle_bracketed_paste; fpath=(%s $fpath); autoload -U compinit; "
                 "compinit -u -D; print read''y\n" % SCRIPTS)
        self.until(r"ready\r?\n")

    def say(self, text):
        os.write(self.fd, text.encode())

    def until(self, pattern, seconds=60):
        seen, end = "", time.monotonic() + seconds
        while not re.search(pattern, seen) and time.monotonic() < end:
            if select.select([self.fd], [], [], 1)[0]:
                seen += os.read(self.fd, 65536).decode("utf-8", "replace")
        return seen

    def close(self):
        os.close(self.fd)
        os.waitpid(self.pid, 0)


def test_bash(t):
    names = set(commands())
    t.ok({"run", "doctor", "session"} <= names, "--help lists the commands", str(names))
    t.equal(bash(""), names, "bash offers every command")
    t.equal(bash("do"), {"doctor"}, "and completes one")
    t.ok({"list", "cancel"} <= bash("job", ""), "verbs of a command")
    t.equal(bash("policy", "li"), {"lint"}, "and one of them")
    t.equal(bash("run", "--"), options("run"), "every option of a command")
    t.ok("--memory" not in bash("doctor", "--") and bash("doctor", "--") == options("doctor"), "and no other's")
    t.equal(bash("run", "--skill", ""), set(), "an option's value is a file: the shell's own business")
    t.equal(bash("run", "--", "ls", "--"), set(), "nothing of ours after --")


def test_fish(t):
    t.equal(fish("nsbox "), set(commands()), "fish offers every command")
    t.equal(fish("nsbox policy li"), {"lint"}, "a verb")
    t.equal(fish("nsbox doctor --"), options("doctor"), "options")


def test_zsh(t):
    z = Zsh()
    z.say("nsbox doct\t")
    t.ok("or " in z.until(r"or "), "zsh completes a command")
    z.say("\x15nsbox policy lin\t")
    t.ok("t " in z.until(r"t $"), "a verb")
    z.say("\x15nsbox doctor --\t\t")
    seen = z.until(r"--require[\s\S]*\n")
    t.ok("--require" in seen, "options", repr(seen))
    z.close()


if __name__ == "__main__":
    HOME = tempfile.mkdtemp()
    try:
        sys.exit(tap.run([test_bash, test_fish, test_zsh]))
    finally:
        shutil.rmtree(HOME)
