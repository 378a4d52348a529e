#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What passes between the caller and a run: bytes that stall, files handed over, hostile names.

The tool supervises and relays in one thread, so a byte that cannot move must never hold up a limit
or a signal; and what the payload is given must be nothing it can do more with than read or write.
"""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, paths, tap

PYTHON = "/usr/bin/python3"


def start(*argv, options=(), **kwargs):
    return subprocess.Popen(cli.command(*argv, options=["--no-tty", *options]), **kwargs)


def ends_within(process, seconds):
    began = time.monotonic()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return time.monotonic() - began


# ---------------------------------------------------------------- bytes that stall


def test_unread_input(t):
    """400 kB for a program that reads none of it: the time limit holds, and so does TERM."""
    for name, options, end in (("the time limit", ["--timeout", "2"], None),
                               ("TERM", [], signal.SIGTERM)):
        ours, theirs = socket.socketpair()
        run = start("sleep", "30", options=options, stdin=theirs, stderr=subprocess.DEVNULL)
        theirs.close()
        ours.setblocking(False)
        try:
            ours.sendall(b"x" * 400000)
        except (BlockingIOError, BrokenPipeError):
            pass
        if end:
            time.sleep(1)
            run.send_signal(end)
        took = ends_within(run, 15)
        ours.close()
        t.ok(took < 10 and run.returncode == 143, "%s ends a run whose input nobody reads" % name,
             "status %s after %.1f s" % (run.returncode, took))


def test_endless_input(t):
    with open("/dev/zero", "rb") as zero:
        run = start("sleep", "30", options=["--timeout", "2"], stdin=zero, stderr=subprocess.DEVNULL)
        took = ends_within(run, 15)
    t.ok(took < 10 and run.returncode == 143, "an endless input does not hold up the start or the end",
         "status %s after %.1f s" % (run.returncode, took))


def test_unread_output(t):
    """Nobody reads the output: what the program leaves behind is ended in time all the same."""
    late = os.path.join(paths.scratch("nsbox-relay-"), "late")
    with open(late, "wb") as err:
        run = start("sh", "-c", "(sleep 4; echo late >&2) & head -c 300000 /dev/zero; wait",
                    options=["--timeout", "1"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err)
        time.sleep(6)
        got = len(run.stdout.read())
        run.wait(10)
    with open(late, encoding="utf-8") as f:
        said = f.read()
    t.ok("late" not in said, "the time limit holds while a reader stalls", said)
    t.ok(got >= 65536, "what was written in time is delivered", "%d bytes" % got)


def test_bytes_are_whole(t):
    data = os.urandom(3000000)
    for name, source in (("a pipe", None), ("a file", "file")):
        if source:
            place = os.path.join(paths.scratch("nsbox-relay-"), "data")
            with open(place, "wb") as f:
                f.write(data)
            with open(place, "rb") as f:
                done = subprocess.run(cli.command("cat", options=["--no-tty"]), stdin=f, capture_output=True,
                                      timeout=60, check=False)
        else:
            done = subprocess.run(cli.command("cat", options=["--no-tty"]), input=data, capture_output=True,
                                  timeout=60, check=False)
        t.ok(done.stdout == data, "3 MB from %s come through unchanged" % name, "%d bytes" % len(done.stdout))


def test_reader_goes(t):
    done = subprocess.run(["sh", "-c", "%s run --no-tty -- yes | head -n 1" % paths.NSBOX],
                          capture_output=True, timeout=30, check=False)
    t.ok(done.stdout == b"y\n", "a reader that goes ends the writer", repr(done))


def test_closed_numbers(t):
    """With 0, 1 or 2 closed no descriptor of the tool's own may take the number."""
    for closed in (">&-", "2>&-", ">&- 2>&- <&-"):
        done = subprocess.run(["sh", "-c", "timeout 20 %s run --no-tty -- sh -c 'echo x; echo y >&2; exit 3' %s"
                               % (paths.NSBOX, closed)], capture_output=True, timeout=60, check=False)
        t.ok(done.returncode == 3, "the run ends with %s" % closed, repr(done))


def test_lost_output(t):
    for name, argv in (("a program's output", "-- echo x"), ("a report", "--result - -- true")):
        done = subprocess.run(["sh", "-c", "%s run --no-tty %s >/dev/full" % (paths.NSBOX, argv)],
                              capture_output=True, timeout=60, check=False)
        t.ok(done.returncode == 125 and b"No space left" in done.stderr, "%s that is lost is an error" % name,
             repr(done))
    done = cli.run("echo", "x")
    t.ok(done.status == 0 and done.out == "x\n", "twin: with room it is not", repr(done))


# ---------------------------------------------------------------- files handed over


CHANGE = "import os\nfor n in (0, 1, 2):\n  try: os.fchmod(n, 0o777)\n  except OSError: pass\n"


def test_files_are_not_handed_over(t):
    place = paths.scratch("nsbox-relay-")
    names = [os.path.join(place, n) for n in ("in", "out", "err")]
    for n in names:
        with open(n, "w", encoding="utf-8") as f:
            f.write("x\n")
        os.chmod(n, 0o600)

    def modes():
        return [stat.S_IMODE(os.stat(n).st_mode) for n in names]

    def run(argv):
        with open(names[0], "rb") as i, open(names[1], "ab") as o, open(names[2], "ab") as e:
            subprocess.run(argv, stdin=i, stdout=o, stderr=e, timeout=60, check=False)

    run(cli.command(PYTHON, "-c", CHANGE, options=["--no-tty"]))
    t.equal(modes(), [0o600] * 3, "the payload cannot change the caller's files through 0, 1 and 2")
    run([PYTHON, "-c", CHANGE])
    t.equal(modes(), [0o777] * 3, "twin: outside, the same descriptors let it")


# ---------------------------------------------------------------- hostile names


HOSTILE = "a\x1b]0;TITLE\x07\x1b[2J\nnsbox: forged"


def test_names_are_shown_harmless(t):
    place = paths.scratch("nsbox-relay-")
    report = os.path.join(place, "report")
    done = subprocess.run(
        cli.command(PYTHON, "-c", "import os\nos.symlink('x', %r)\nopen(b'bad\\xff', 'w').close()" % HOSTILE,
                    options=["--no-tty", "--collect", "**", "--output", os.path.join(place, "out"),
                             "--result", report]),
        capture_output=True, timeout=60, check=False)
    t.ok(b"\x1b" not in done.stderr and b"\nnsbox: forged" not in done.stderr,
         "a file's name does not act on the terminal", repr(done.stderr))
    t.ok(b"\\x1b" in done.stderr, "it is shown escaped", repr(done.stderr))
    with open(report, encoding="utf-8") as f: # an error here means that the report is not UTF-8
        outputs = json.load(f)["outputs"]
    t.ok(any(o.get("path_base64") == "YmFk/w==" for o in outputs), "a name that is not UTF-8 is exact in the report",
         repr(outputs))
    done = subprocess.run(cli.command("no\x1b[2Jsuch", options=["--no-tty"]), capture_output=True, timeout=60,
                          check=False)
    t.ok(done.returncode == 127 and b"\x1b" not in done.stderr, "so is a program's name in an error",
         repr(done.stderr))


def test_manifest_of_a_skill(t):
    for name, make in (("FIFO", os.mkfifo), ("link", lambda p: os.symlink("/etc/passwd", p))):
        skill = paths.scratch("nsbox-relay-")
        make(os.path.join(skill, "skill.json"))
        done = subprocess.run(cli.command("true", options=["--no-tty", "--skill", skill]), capture_output=True,
                              timeout=20, check=False)
        t.ok(done.returncode == 125 and b"skill.json" in done.stderr,
             "a %s for a manifest is refused and named" % name, repr(done))


def test_directories(t):
    skill = paths.scratch("nsbox-relay-")
    os.mkdir(os.path.join(skill, "sub"))
    for cwd, want in (("sub", "/skills/s/sub"), ("${skill}/sub", "/skills/s/sub"), ("${tmp}", "/tmp"),
                      ("/workspace", "/workspace")):
        with open(os.path.join(skill, "skill.json"), "w", encoding="utf-8") as f:
            json.dump({"manifestVersion": 1, "name": "s",
                       "entrypoints": {"main": {"command": ["pwd"], "cwd": cwd}}}, f)
        done = subprocess.run([paths.NSBOX, "run", "--no-tty", "--skill", skill], capture_output=True, timeout=60,
                              check=False)
        t.equal(done.stdout.decode().strip(), want, "an entry point's cwd %s" % cwd)
    done = cli.run("pwd", options=["--cwd", "a/b", "--put", "%s:x" % __file__])
    t.ok(done.out == "/workspace/a/b\n", "--cwd may be relative", repr(done))
    done = subprocess.run([paths.NSBOX, "run", "--skill", "/nonexistent"], capture_output=True, timeout=60,
                          check=False)
    t.ok(done.returncode == 125 and b"/nonexistent" in done.stderr, "a skill that is not there is named", repr(done))


# ---------------------------------------------------------------- what counts against the owner


INOTIFY = """
import ctypes
l = ctypes.CDLL(None, use_errno=True)
n = 0
while n < 100 and l.inotify_init1(0) >= 0: n += 1
print(n)
"""


def test_inotify_is_bounded(t):
    inside = cli.run(PYTHON, "-c", INOTIFY)
    t.ok(0 < int(inside.out) <= 16, "a run gets its few inotify instances", repr(inside))
    outside = subprocess.run([PYTHON, "-c", INOTIFY], capture_output=True, check=False)
    t.ok(int(outside.stdout) > 16, "twin: outside there are more", repr(outside))


INFLIGHT = """
import array, os, socket, time
fd = os.open('/dev/null', os.O_RDONLY)
n = 0
try:
    while n < 2000:
        a, b = socket.socketpair()
        for _ in range(100):
            a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd] * 10))])
            n += 10
        keep = globals().setdefault('keep', []) + [a, b]
        globals()['keep'] = keep
except OSError:
    pass
print(n, flush=True)
time.sleep(20)
"""


def test_descriptors_in_flight(t):
    """What one run keeps in flight counts against its owner's user; the next run starts still."""
    hog = start(PYTHON, "-c", INFLIGHT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    held = int(hog.stdout.readline())
    second = cli.run("true")
    hog.terminate()
    hog.communicate(timeout=20)
    t.ok(held >= 500 and second.status == 0, "a second run starts", "%d in flight, %r" % (held, second))


sys.exit(tap.run([test_unread_input, test_endless_input, test_unread_output, test_bytes_are_whole,
                  test_reader_goes, test_closed_numbers, test_lost_output, test_files_are_not_handed_over, test_names_are_shown_harmless,
                  test_manifest_of_a_skill, test_directories, test_inotify_is_bounded, test_descriptors_in_flight]))
