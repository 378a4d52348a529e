#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The drop-in for MaxKB, skills: commands through SandboxShellBackend, and what becomes of its directory."""

import os
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, maxkb, paths, service, tap

place = paths.scratch("nsbox-maxkb-shell-")
secret = os.path.join(place, "secret")
site = None
daemon = None
server = None
count = 0


def tree():
    """As MaxKB lays out a conversation's directory: a skill that was unpacked without execute bits."""
    global count
    count += 1
    root = os.path.join(place, "chat-%d" % count)
    skill = os.path.join(root, "skills", "report")
    os.makedirs(skill)
    for name, text in (("SKILL.md", "# report\n"), ("run.sh", "#!/bin/sh\necho from a script $1\n"),
                       ("tool.py", "import sys\nprint('from python', sys.argv[1:])\n"), (".env", "KEY=值\n")):
        with open(os.path.join(skill, name), "w", encoding="utf-8") as f:
            f.write(text)
    shutil.copy("/bin/true", os.path.join(skill, "binary"))
    os.chmod(os.path.join(skill, "binary"), 0o644)
    return root


def run(command, root=None, **more):
    return server.tell(dict(more, shell=command, root=root or tree()))["value"]


def read(*names):
    with open(os.path.join(*names), encoding="utf-8") as f:
        return f.read()


# command, output, exit code; /skills/report is the skill
LINES = [
    ("echo hello", "hello\n", 0),
    ("ls /skills/report", "SKILL.md\nbinary\nrun.sh\ntool.py\n", 0),
    ("/skills/report/run.sh 一", "from a script 一\n", 0),
    ("cd skills/report && ./binary && python3 tool.py a 'b c'", "from python ['a', 'b c']\n", 0),
    ("x=5; for i in 1 2; do echo $((x * i)); done", "5\n10\n", 0),
    ("echo a b c | tr ' ' '\\n' | sort -r | head -1", "c\n", 0),
    ("cat <<E\n$(echo inside)\nE", "inside\n", 0),
    ("echo one >f; echo two >>f; cat < f; ls skills/rep*/*.py", "one\ntwo\nskills/report/tool.py\n", 0),
    ("export A=b; sh -c 'echo $A'; B=c sh -c 'echo $B'", "b\nc\n", 0),
    ("cat skills/report/.env", "KEY=值\n", 0),
    ("true", "<no output>", 0),
    ("echo out; echo err >&2; echo more >&2", "out\n\n[stderr] err\n[stderr] more", 0),
    ("echo both 2>&1 >&1; ls /nonexistent 2>&1 | wc -l", "both\n1\n", 0),
    ("echo bad; exit 3", "bad\n\nExit code: 3", 3),
    ("nosuchcommand 2>/dev/null", "<no output>\n\nExit code: 127", 127),
    ("kill -9 $$", "[stderr] Killed\n\nExit code: 137", 137),
    ("id -u; id -g", "1000\n1000\n", 0),
    ("echo $PYTHONPATH", "/opt/standin/one:/opt/standin/two\n", 0),
    ("read x; echo end:$x", "end:\n", 0),
    ("printf '\\377\\376'", "\ufffd\ufffd", 0),
]


def test_lines(t):
    root = tree()
    for command, output, status in LINES:
        got = run(command, root)
        t.equal((got["output"], got["exit_code"], got["truncated"]), (output, status, False), "%r" % command)


def test_directory(t):
    root = tree()
    run("mkdir -p out/deep; echo 表 > out/deep/report.txt; printf '\\0\\1' > out/data.bin; echo s > skills/report/state",
        root)
    t.equal(read(root, "out", "deep", "report.txt"), "表\n", "what a command writes is there for file tools")
    t.equal(read(root, "skills", "report", "state"), "s\n", "beside a skill's code, too")
    with open(os.path.join(root, "out", "data.bin"), "rb") as f:
        t.equal(f.read(), b"\0\1", "byte for byte")
    with open(os.path.join(root, "note.txt"), "w", encoding="utf-8") as f:
        f.write("by a file tool\n")
    t.equal(run("cat note.txt; cat /note.txt", root)["output"], "by a file tool\nby a file tool\n",
            "and what they write for commands, by either path")
    run("echo x > /tmp/scratch.txt", root)
    t.equal((read(root, "tmp", "scratch.txt"), run("cat /tmp/scratch.txt", root)["output"]), ("x\n", "x\n"),
            "/tmp is the same to both, and stays")
    run("rm out/data.bin; mv note.txt moved.txt", root)
    t.equal((os.path.exists(os.path.join(root, "out", "data.bin")), os.path.exists(os.path.join(root, "note.txt")),
             read(root, "moved.txt")), (False, False, "by a file tool\n"), "what is removed or moved is so here")
    t.equal(read(root, "skills", "report", ".env"), "KEY=值\n", "what nobody touched stays")


def test_hostile(t):
    root = tree()
    command = ("ln -s %s link; ln -s / up; mkfifo pipe; ln -s %s skills/report/ln; echo kept > kept; "
               "rm -r skills/report/tool.py; ln -s %s skills/report/tool.py" % (secret, place, secret))
    got = run(command, root)
    t.equal(got["exit_code"], 0, "links, pipes: a run may make what it likes")
    names = sorted(name for where, dirs, files in os.walk(root) for name in dirs + files
                   if os.path.islink(os.path.join(where, name)) or not os.path.exists(os.path.join(where, name)))
    t.equal(names, [], "none of them gets out")
    t.equal(read(root, "kept"), "kept\n", "what lies beside them does")
    owners = {os.lstat(os.path.join(where, name)).st_uid for where, dirs, files in os.walk(root) for name in dirs + files}
    t.equal(owners, {os.geteuid()}, "all that is here is MaxKB's own")
    t.equal(read(secret), "the secret of this test\n", "and nothing else was touched")
    got = run("cat %s; cat link; ls %s" % (secret, place), root)
    t.ok("the secret" not in got["output"] and got["exit_code"], "nothing of the host is seen", str(got))
    os.symlink(secret, os.path.join(root, "mine"))
    t.ok("the secret" not in run("cat mine", root)["output"], "a link that somebody made here does not lead out either")


def test_limits(t):
    t.equal(run("")["output"], "Error: Command must be a non-empty string.", "no command")
    error = server.tell({"shell": "true", "root": tree(), "timeout": 0})
    t.equal((error["type"], error["error"]), ("ValueError", "timeout must be positive, got 0"), "a limit of 0")
    root = tree()
    got = run("echo start; echo kept > early; sleep 60", root, timeout=1)
    t.equal((got["output"], got["exit_code"]), (
        "Error: Command timed out after 1 seconds (custom timeout). The command may be stuck or require more time.",
        124), "a limit of its own")
    t.equal(read(root, "early"), "kept\n", "what was written before it is there")
    got = run("sleep 60", default_timeout=1)
    t.equal(got["output"], "Error: Command timed out after 1 seconds. For long-running commands, re-run using the "
            "timeout parameter.", "the default limit")
    got = run("head -c 200000 /dev/zero | tr '\\0' x")
    t.equal((len(got["output"]), got["truncated"], got["output"][99999:]),
            (100000 + len("\n\n... Output truncated at 100000 bytes."), True,
             "x\n\n... Output truncated at 100000 bytes."), "long output is cut")
    with maxkb.MaxKB(site, NSBOX_SOCKET=daemon.socket, NSBOX_SKILL_MEM_MB="64") as other:
        got = other.tell({"shell": "python3 -c 'len(bytearray(500 << 20))'", "root": tree()})["value"]
    t.ok(got["exit_code"] == 137 and "[nsbox] the command used more memory than 64 MB (MAXKB_NSBOX_SKILL_MEM_MB)"
         in got["output"], "too much memory", str(got)[:500])
    with maxkb.MaxKB(site, NSBOX_SOCKET="/nonexistent") as other:
        got = other.tell({"shell": "true", "root": tree()})["value"]
    t.ok(got["exit_code"] == 1 and got["output"].startswith("Error executing command (nsbox): the service at"),
         "no service", str(got))
    with maxkb.MaxKB(site, NSBOX_SOCKET=daemon.socket, TOOL_EXECUTOR_BACKEND="local") as other:
        t.equal(other.tell({"shell": "true", "root": tree()})["value"]["output"], "run by MaxKB itself", "the switch back")


def test_shape(t):
    apps = os.path.join(place, "apps")
    shutil.copytree(os.path.join(maxkb.STANDINS, "apps"), apps, ignore=shutil.ignore_patterns("__pycache__"))
    path = os.path.join(apps, "application", "flow", "backend", "sandbox_shell.py")
    with open(path, encoding="utf-8") as f:
        text = f.read().replace("def execute(self, command: str, *", "def execute(self, command: str, shell, *")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    with maxkb.MaxKB(site, apps, NSBOX_SOCKET=daemon.socket) as other:
        got = other.tell({"shell": "true", "root": tree()})
        said = other.end()
    t.ok("takes (command, shell, timeout)" in got.get("error", "") and "NOT READY: skills do not run" in said,
         "an unknown shape is closed", "%s\n%s" % (got, said))


def main():
    global daemon, server, site
    leftovers.become_subreaper()
    with open(secret, "w", encoding="ascii") as f:
        f.write("the secret of this test\n")
    site = maxkb.install(os.path.join(place, "site"))
    with service.Daemon() as daemon, maxkb.MaxKB(site, NSBOX_SOCKET=daemon.socket,
                                                 NSBOX_PYTHON="/usr/bin/python3") as server:
        status = tap.run([test_lines, test_directory, test_hostile, test_limits, test_shape])
        if status:
            sys.stderr.write(daemon.log()[-3000:])
    return status


if __name__ == "__main__":
    sys.exit(main())
