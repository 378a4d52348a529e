#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a program sees from inside a run, and what the host sees of it.

Every refusal has its twin: the same act, tried where the rule is not, works.
"""

import errno
import json
import os
import pathlib
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, leftovers, paths, tap

PYTHON = "/usr/bin/python3"
CANARY = "nsbox-canary-%d" % os.getpid()
SKILL = os.path.join(paths.ROOT, "docs", "examples", "report-skill")


def outside(*argv, **options):
    """The same program on the host, without nsbox."""
    done = subprocess.run(argv, capture_output=True, check=False, **options)
    return cli.Run(done.returncode, done.stdout.decode(), done.stderr.decode(), None)


def status_fields(text):
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


# ---------------------------------------------------------------- identity


def test_ids_on_the_host(t):
    child = subprocess.Popen(cli.command("sleep", "60", options=["--no-tty"]), stdin=subprocess.DEVNULL)
    try:
        def sleeper():
            return [pid for (pid, _), name in leftovers.descendants(child.pid).items() if name == "sleep"]
        found = tap.wait_until(sleeper, 10)
        if not t.ok(bool(found), "the payload is in sight from outside"):
            return
        fields = status_fields(leftovers.read("/proc/%d/status" % found[0]))
        uids, gids = fields["Uid"].split(), fields["Gid"].split()
        if os.getuid() == 0:
            t.ok("0" not in uids, "its ids on the host are not 0", "Uid %s" % uids)
            t.ok(all(int(u) >= 65536 for u in uids), "they are no id of a user of the host", "Uid %s" % uids)
        else:
            t.equal(set(uids), {str(os.getuid())}, "its id on the host is the caller's own")
        t.ok("0" not in gids, "no group id of it is 0", "Gid %s" % gids)
        t.ok("0" not in fields["Groups"].split(), "group 0 is not among its groups", fields["Groups"])
        t.equal(len(fields["NSpid"].split()), len(nspid_here()) + 1, "it is in a pid namespace below ours")
    finally:
        child.kill()
        child.wait()


def nspid_here():
    return status_fields(leftovers.read("/proc/self/status"))["NSpid"].split()


def test_locked_down(t):
    r = cli.run("cat", "/proc/self/status")
    fields = status_fields(r.out)
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        t.equal(fields.get(name), "0" * 16, "%s is empty" % name)
    t.equal(fields.get("NoNewPrivs"), "1", "no_new_privs is set")
    t.equal(fields.get("Seccomp"), "2", "a filter is loaded")
    t.ok(fields.get("Uid", "0").split()[0] != "0", "the uid inside is not 0", fields.get("Uid", ""))


def test_report(t):
    r = cli.run("true")
    layers = {e["layer"]: e for e in r.report["enforced"]}
    for name in ("user", "mount", "pid", "net", "ipc", "uts", "root", "noNewPrivileges", "capabilities",
                 "seccomp", "witness"):
        t.ok(name in layers, "the report lists %s as enforced" % name, repr(r.report))
    t.equal(r.report["cause"], "exit", "cause of an ordinary end")


# ---------------------------------------------------------------- what can be seen

LIST_COMMANDS = """
import glob, os
for p in glob.glob('/proc/[0-9]*/cmdline'):
    try: print(open(p, 'rb').read().replace(b'\\0', b' ').decode())
    except OSError: pass
"""


def test_only_own_processes(t):
    host = subprocess.Popen([PYTHON, "-c", "import time; time.sleep(60)", CANARY])
    try:
        # The child may still be between fork and exec.
        tap.wait_until(lambda: CANARY in leftovers.read("/proc/%d/cmdline" % host.pid), 5)
        t.ok(CANARY in outside(PYTHON, "-c", LIST_COMMANDS).out, "a process of the host is seen outside")
        r = cli.run(PYTHON, "-c", LIST_COMMANDS)
        t.ok(r.status == 0 and "glob" in r.out, "the run sees itself", repr(r))
        t.ok(CANARY not in r.out, "the run does not see it", repr(r))
        # Init's own entry may be hidden.
        pids = {int(p[6:]) for p in cli.run("sh", "-c", "echo /proc/[0-9]*").out.split()} - {1}
        t.equal(len(pids), 1, "there is nobody but it and init")
        kill = "import os; os.kill(%d, 0)" % host.pid
        t.equal(outside(PYTHON, "-c", kill).status, 0, "it can be signalled outside")
        t.ok("ProcessLookupError" in cli.run(PYTHON, "-c", kill).err, "its number means nothing inside")
    finally:
        host.kill()
        host.wait()


def test_loopback_alone(t):
    r = cli.run(PYTHON, "-c", "import socket; print([n for _, n in socket.if_nameindex()])")
    t.equal(r.out, "['lo']\n", "lo is the only interface")
    r = cli.run(PYTHON, "-c", "s=__import__('socket').create_server(('127.0.0.1', 0)); "
                "__import__('socket').create_connection(s.getsockname()); print('up')")
    t.equal(r.out, "up\n", "and it is up")


def serve(family, address):
    """A service of the host that greets; closes with the socket that is returned."""
    server = socket.socket(family)
    server.bind(address)
    server.listen(8)

    def loop():
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            peer.sendall(b"secret")
            peer.close()
    threading.Thread(target=loop, daemon=True).start()
    return server


CONNECT = """
import socket, sys
s = socket.socket(getattr(socket, sys.argv[1])); s.settimeout(5)
a = sys.argv[2].replace('@', chr(0), 1)
s.connect((a, int(sys.argv[3])) if len(sys.argv) > 3 else a)
print(s.recv(10).decode())
"""


def test_host_services_unreachable(t):
    with tempfile.TemporaryDirectory() as place:
        unix = os.path.join(place, "s")
        servers = [serve(socket.AF_INET, ("127.0.0.1", 0)), serve(socket.AF_UNIX, "\0" + CANARY),
                   serve(socket.AF_UNIX, unix)]
        port = str(servers[0].getsockname()[1])
        for name, arguments, refusals in (
                ("a TCP service on the host's loopback", ("AF_INET", "127.0.0.1", port), "ConnectionRefusedError"),
                ("an abstract Unix socket", ("AF_UNIX", "@" + CANARY), "ConnectionRefusedError|PermissionError"),
                ("a Unix socket by path", ("AF_UNIX", unix), "FileNotFoundError")):
            t.equal(outside(PYTHON, "-c", CONNECT, *arguments).out, "secret\n", name + " answers outside")
            r = cli.run(PYTHON, "-c", CONNECT, *arguments)
            t.ok("secret" not in r.out and re.search(refusals, r.err), name + " is not there inside", repr(r))
        for server in servers:
            server.close()


def test_host_files_invisible(t):
    home = os.environ.get("HOME", "/root")
    for place in dict.fromkeys([home, "/tmp", "/var/tmp", "/dev/shm"]):
        path = os.path.join(place, CANARY)
        try:
            pathlib.Path(path).write_text("secret")
        except OSError as problem:
            t.note("%s: %s" % (path, problem))
            continue
        try:
            t.equal(outside("cat", path).out, "secret", "%s is read outside" % path)
            r = cli.run("cat", path)
            t.ok(r.status == 1 and "No such file" in r.err, "and is not there inside", repr(r))
        finally:
            os.unlink(path)
    r = cli.run("sh", "-c", "ls /root /home /var/lib/dpkg /boot /etc/shadow /sys/fs /run/systemd; true")
    t.ok(not r.out.replace("/home:", "").replace("/root:", "").strip() or
         not re.search("shadow|status|vmlinuz|cgroup", r.out), "nothing of the host's state shows", repr(r))


def test_environment_invisible(t):
    env = dict(os.environ, NSBOX_E2E_SECRET=CANARY)
    look = "cat /proc/[0-9]*/environ 2>/dev/null; env"
    t.ok(CANARY in outside("sh", "-c", look, env=env).out, "the variable is seen outside")
    r = cli.run("sh", "-c", look, env=env)
    t.ok(r.status == 0 and "HOME=" in r.out, "the run has an environment", repr(r))
    t.ok(CANARY not in r.out, "the caller's variables are not in it, nor in /proc", repr(r))
    r = cli.run("sh", "-c", "echo $GREETING", options=["--env", "GREETING=hi"], env=env)
    t.equal(r.out, "hi\n", "what was asked for is in it")


def test_descriptors_invisible(t):
    with tempfile.TemporaryFile() as secret:
        secret.write(b"secret")
        secret.flush()
        os.lseek(secret.fileno(), 0, os.SEEK_SET)
        look = "import os; print(sorted(int(f) for f in os.listdir('/proc/self/fd')))"
        fd = secret.fileno()
        t.ok(str(fd) in outside(PYTHON, "-c", look, pass_fds=[fd]).out, "a program outside inherits it")
        r = cli.run(PYTHON, "-c", look, pass_fds=[fd])
        # 3 is the directory that listdir has open.
        t.equal(r.out, "[0, 1, 2, 3]\n", "a run inherits nothing but its three streams")
        r = cli.run(PYTHON, "-c", "import os; os.fstat(%d)" % max(fd, 4), pass_fds=[fd])
        t.ok("Bad file descriptor" in r.err, "its number is free inside", repr(r))


def test_writes(t):
    for path in ("/usr/x", "/usr/bin/x", "/etc/ld.so.cache", "/usr/lib/x"):
        r = cli.run("sh", "-c", ": >%s" % path)
        t.ok(r.status != 0 and re.search("Read-only|Permission denied", r.err) or
             path.startswith("/etc") and r.status == 0, "no write to %s of the host" % path, repr(r))
    r = cli.run("sh", "-c", ": >x && : >/tmp/x && : >$HOME/x && echo fine")
    t.equal(r.out, "fine\n", "working directory, /tmp and HOME can be written")
    t.ok(os.path.exists("/etc/ld.so.cache") and os.path.getsize("/etc/ld.so.cache"), "the host's file is whole")


# ---------------------------------------------------------------- files that come with every run

CHANGE = r"""
set -eu; cd "$1"; f=$2
echo added >>"$f"; tail -n 1 "$f"
echo other >new && mv new "$f"; cat "$f"
rm "$f"; test ! -e "$f" && echo gone
"""
CHANGED = "added\nother\ngone\n"


def test_home_skeleton(t):
    first = cli.run("sh", "-c", "cd && find . -type f | sort && cat $(find . -type f | sort)")
    names = [line for line in first.out.splitlines() if line.startswith("./")]
    if not t.ok(bool(names), "HOME's skeleton holds a file", repr(first)):
        return
    r = cli.run("sh", "-c", 'exec sh -c "$0" sh "$HOME" "$1"', CHANGE, names[0])
    t.equal(r.out, CHANGED, "%s is written, replaced and deleted by a run" % names[0])
    again = cli.run("sh", "-c", "cd && find . -type f | sort && cat $(find . -type f | sort)")
    t.equal(again.out, first.out, "the next run has the original")


def digest(root):
    return {os.path.relpath(p, root): p.read_bytes() for p in sorted(pathlib.Path(root).rglob("*")) if p.is_file()}


def test_skill_files(t):
    with tempfile.TemporaryDirectory() as place:
        skill = os.path.join(place, "notes")
        os.mkdir(skill)
        for name, text in (("SKILL.md", "---\nname: notes\ndescription: notes\n---\n"), ("data.txt", "original\n"),
                           ("skill.json", json.dumps({"manifestVersion": 1, "name": "notes", "description": "notes",
                                                      "filesystem": {"skill": "overlay"}}))):
            pathlib.Path(skill, name).write_text(text)
        before = digest(skill)
        where = cli.run("sh", "-c", "ls /skills/notes", options=["--skill", skill])
        t.equal(where.out.split(), ["SKILL.md", "data.txt", "skill.json"], "the skill is at /skills/notes")
        r = cli.run("sh", "-c", CHANGE, "sh", "/skills/notes", "data.txt", options=["--skill", skill])
        t.equal(r.out, CHANGED, "a file of it is written, replaced and deleted by a run")
        r = cli.run("cat", "/skills/notes/data.txt", options=["--skill", skill])
        t.equal(r.out, "original\n", "the next run has the original")
        t.equal(digest(skill), before, "the directory of the host is as it was")


def test_example_skill(t):
    with tempfile.TemporaryDirectory() as place:
        with tempfile.TemporaryDirectory() as out:
            report = os.path.join(place, "report")
            done = outside(paths.NSBOX, "run", "--skill", SKILL, "--output", out, "--result", report)
            t.equal(done.status, 0, "the example skill runs by its entry point") or t.note(repr(done))
            text = leftovers.read(os.path.join(out, "out", "report.txt"))
            t.ok("lines      5" in text, "and hands back its report", text)
        done = outside(paths.NSBOX, "run", "--skill", SKILL, "--entry", "summary")
        t.ok("words      50" in done.out, "its second entry point, a shell script, runs", repr(done))


# ---------------------------------------------------------------- how it ends


def test_exit_status(t):
    for status in (0, 1, 3, 125, 255):
        t.equal(cli.run("sh", "-c", "exit %d" % status).status, status, "exit %d passes through" % status)
    for name, number in (("TERM", 15), ("KILL", 9), ("SEGV", 11), ("ABRT", 6), ("USR1", 10)):
        r = cli.run("sh", "-c", "kill -%s $$" % name)
        t.equal(r.status, 128 + number, "death by SIG%s is %d" % (name, 128 + number))
        t.equal(r.report["cause"], "signal", "and its cause a signal")
    r = cli.run("no-such-program-anywhere")
    t.equal((r.status, r.report["cause"]), (127, "exec"), "a program that is not there is 127")
    r = cli.run("/etc/passwd")
    t.equal((r.status, r.report["cause"]), (126, "exec"), "a file that is no program is 126")
    r = cli.run("true", options=["--manifest", "/nonexistent/manifest"])
    t.equal(r.status, 125, "an error of nsbox itself is 125")
    t.ok("/nonexistent/manifest" in r.err, "and names the cause", repr(r))


# ---------------------------------------------------------------- terminal and signals


class OnTerminal:
    """A program on a terminal of its own, as a person's shell would start it."""

    def __init__(self, *argv):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvp(argv[0], argv)
        self.seen = b""

    def read_until(self, what, seconds=15.0):
        end = time.monotonic() + seconds
        while what not in self.seen and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    data = os.read(self.fd, 4096)
                except OSError as problem:
                    if problem.errno == errno.EIO:
                        break
                    raise
                if not data:
                    break
                self.seen += data
        return what in self.seen

    def write(self, data):
        os.write(self.fd, data)

    def wait(self, seconds=15.0):
        self.read_until(b"never printed", seconds)
        status = tap.wait_until(lambda: os.waitpid(self.pid, os.WNOHANG)[1:] if self.poll() else None, 5)
        if status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            return None
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status[0])

    def poll(self):
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def test_terminal(t):
    term = OnTerminal(*cli.command("tty", options=["--tty"]))
    t.equal(term.wait(), 0, "tty finds a terminal")
    t.ok(b"/dev/pts/" in term.seen, "with a name inside", repr(term.seen))
    term = OnTerminal(*cli.command("tty", options=["--no-tty"]))
    t.equal(term.wait(), 1, "and none where it was not asked for")

    term = OnTerminal(*cli.command("sh", "-c", "stty size; stty -echo; read line; echo got:$line", options=["--tty"]))
    t.ok(term.read_until(b" "), "it has a size", repr(term.seen))
    time.sleep(0.3)
    term.write(b"typed\n")
    t.equal(term.wait(), 0, "a line that is typed arrives")
    t.ok(b"got:typed" in term.seen, "as typed", repr(term.seen))

    term = OnTerminal(*cli.command("sh", "-c", "trap 'exit 7' INT; echo ready; while :; do sleep 0.1; done",
                                   options=["--tty"]))
    t.ok(term.read_until(b"ready"), "a program waits", repr(term.seen))
    term.write(b"\x03")
    t.equal(term.wait(), 7, "control-C reaches it as SIGINT, and its status comes back")


TRAP = "trap 'echo %s; exit 9' %s; echo ready; while :; do sleep 0.1; done"


def test_signals(t):
    # Who ends nsbox, or takes its terminal away, ends the run: the program hears of both as TERM.
    for name, heard in (("INT", "INT"), ("QUIT", "QUIT"), ("USR1", "USR1"), ("USR2", "USR2"), ("TERM", "TERM"),
                        ("HUP", "TERM")):
        child = subprocess.Popen(cli.command("sh", "-c", TRAP % (heard, heard), options=["--no-tty"]),
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                 start_new_session=True)
        t.equal(child.stdout.readline(), b"ready\n", "a program that handles SIG%s runs" % heard)
        child.send_signal(getattr(signal, "SIG" + name))
        try:
            out, _ = child.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            child.kill()
            out, _ = child.communicate()
        t.equal((out, child.returncode), (heard.encode() + b"\n", 9),
                "SIG%s of nsbox reaches it, and the status is the program's" % name)


if __name__ == "__main__":
    leftovers.become_subreaper()
    sys.exit(tap.run([v for k, v in list(globals().items()) if k.startswith("test_")]))
