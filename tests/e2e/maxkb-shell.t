#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The drop-in for MaxKB, skills: commands and file tools through SandboxShellBackend, in a session for each directory."""

import os
import re
import shutil
import sys
import time
from itertools import chain

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, maxkb, paths, service, tap, tiers

place = paths.scratch("nsbox-maxkb-shell-")
secret = os.path.join(place, "secret")
site = None
tier = None
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


# Without mounts a run's places are below $NSBOX_ROOT, and a text that names them otherwise means the host's: docs/maxkb.md,
# kit a. There commands say it that way, and what they tell is cut; nothing else of a test is another.
PLACES = re.compile(r"(?<![\w./])/(skills|tmp|workspace)\b(?!/nsbox-)")
TOLD = re.compile(r"/\S*/process/\d+(?=/(?:skills|tmp|workspace)\b)")


def run(command, root=None, **more):
    if tier == "process":
        command = PLACES.sub(r"$NSBOX_ROOT/\1", command.replace("cat /note.txt", "cat /workspace/note.txt"))
    got = server.tell(dict(more, shell=command, root=root or tree()))["value"]
    if tier == "process" and isinstance(got, dict):
        got["output"] = TOLD.sub("", got["output"])
    return got


def tool(name, root, *args):
    """A file tool's answer."""
    answer = server.tell({"files": name, "root": root, "args": args})
    return answer["value"] if "value" in answer else {"raised": answer}


def content(path, root):
    return (tool("read", root, path)["file_data"] or {}).get("content")


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


# What comes out on a tier instead, as a pattern: without a user namespace a run is outside who it is inside.
INSTEAD = {("process", "id -u; id -g"): r"(\d{6,})\n\1\n"}


def test_lines(t):
    root = tree()
    for command, output, status in LINES:
        got = run(command, root)
        pattern = INSTEAD.get((tier, command))
        if pattern and re.fullmatch(pattern, got["output"]):
            output = got["output"]
        t.equal((got["output"], got["exit_code"], got["truncated"]), (output, status, False), "%r" % command)


def test_files(t):
    """Commands and file tools, by the same paths."""
    root = tree()
    run("mkdir -p out/deep; echo 表 > out/deep/report.txt; printf '\\377\\1' > out/data.bin; echo s > /skills/report/state; "
        "echo x > /tmp/scratch.txt", root)
    t.equal(content("/out/deep/report.txt", root), "表\n", "what a command writes is there for file tools")
    t.equal(content("/skills/report/state", root), "s\n", "beside a skill's code, too")
    t.equal(content("/tmp/scratch.txt", root), "x\n", "/tmp is the same to both")
    t.equal(content("/workspace/out/deep/report.txt", root), "表\n", "and so is the place that pwd tells")
    t.equal(tool("read", root, "/out/data.bin")["file_data"], {"content": "/wE=", "encoding": "base64"}, "byte for byte")
    t.equal(tool("write", root, "/note.txt", "by a file tool\n")["path"], "/note.txt", "a file tool writes")
    t.equal(run("cat note.txt; cat /note.txt", root)["output"], "by a file tool\n" * 2, "and commands read it, by either path")
    t.ok("already exists" in tool("write", root, "/note.txt", "")["error"], "a file that is there stays")
    t.equal(tool("edit", root, "/skills/report/SKILL.md", "report", "rapport")["occurrences"], 1, "a skill's file is edited")
    t.equal(run("cat /skills/report/SKILL.md", root)["output"], "# rapport\n", "for commands as well")
    t.equal(sorted((e["path"], e["is_dir"]) for e in tool("ls", root, "/")["entries"]),
            [("/note.txt", False), ("/out", True), ("/skills", True), ("/tmp", True)], "the root")
    t.equal([(e["path"], e["is_dir"]) for e in tool("ls_info", root, "/skills")], [("/skills/report", True)], "skills, as they are looked for")
    t.equal(tool("download_files", root, ["/skills/report/.env", "/none"]),
            [{"path": "/skills/report/.env", "content": "KEY=值\n", "error": None},
             {"path": "/none", "content": None, "error": "file_not_found"}], "and taken")
    t.equal([tool("ls_info", root, "/none"), bool(tool("ls", root, "/none")["error"])], [[], True], "of nothing there is nothing")
    t.equal([e["path"] for e in tool("glob", root, "*.txt")["matches"]], ["/note.txt", "/out/deep/report.txt", "/tmp/scratch.txt"],
            "names in all of the root")
    t.equal([e["path"] for e in tool("glob", root, "/skills/**/*.py")["matches"]], ["/skills/report/tool.py"], "below a skill")
    t.equal(sorted((m["path"], m["line"]) for m in tool("grep", root, "from")["matches"]),
            [("/skills/report/run.sh", 2), ("/skills/report/tool.py", 2)], "text in all of the root")
    t.equal(tool("grep_raw", root, "by a file", "/", "*.txt")[0]["text"], "by a file tool", "in files of a name")
    t.equal(tool("upload_files", root, [("/up/é.txt", "é")])[0]["error"], None, "upload")
    t.equal(run("cat up/é.txt; rm -r up; mv note.txt moved.txt", root)["output"], "é", "a command sees, removes and moves")
    t.ok("No such file" in tool("read", root, "/note.txt")["error"] and content("/moved.txt", root), "and so it is for file tools")
    t.equal(tool("delete", root, "/moved.txt")["error"], None, "removed")
    t.equal(tool("outputs", root), [["/out/data.bin", 2], ["/out/deep/report.txt", 4], ["/skills/report/SKILL.md", 10],
                                    ["/skills/report/state", 2]], "what is new or another than what went in is listed")
    t.equal([read(root, "skills", "report", "SKILL.md"), sorted(os.listdir(root))], ["# report\n", ["skills"]],
            "MaxKB's own directory stays as it was")
    with maxkb.MaxKB(site, NSBOX_SOCKET="/nonexistent") as other:
        got = [other.tell({"files": name, "root": root, "args": ["/"]}) for name in ("ls_info", "ls")]
    t.ok("cannot be reached" in got[0]["error"] and "cannot be reached" in got[1]["value"]["error"], "no service: said, not empty", str(got))


def test_links(t):
    """A link that a command leaves where a file tool of MaxKB's will look."""
    root = tree()
    got = run("ln -s %s link; ln -s %s skills/report/ln; mkfifo pipe; rm skills/report/tool.py; ln -s %s skills/report/tool.py; "
              "echo plain > plain" % (secret, place, secret), root)
    t.equal(got["exit_code"], 0, "a command may make what it likes")
    t.ok(content("/plain", root) == "plain\n" and not tool("edit", root, "/plain", "plain", "edited")["error"] and
         content("/plain", root) == "edited\n", "an ordinary file is read and written")
    for path in ("/link", "/skills/report/tool.py", "/skills/report/ln/secret", "/pipe", secret):
        got = tool("read", root, path)
        t.ok(got["error"] and not got["file_data"], "%s: not read" % path.replace(secret, "/SECRET"), str(got))
    tool("edit", root, "/link", "secret", "changed")
    tool("write", root, "/link", "changed")
    tool("upload_files", root, [("/link", "changed"), ("/skills/report/ln/new", "changed")])
    t.equal([read(secret), os.path.exists(os.path.join(place, "new"))], ["the secret of this test\n", False],
            "nor written through")
    got = run("cat %s; ls %s" % (secret, place), root)
    t.ok("the secret" not in got["output"] and got["exit_code"], "nothing of the host is seen by a command", str(got))
    # The same file tools with the rights of MaxKB's process, on a directory with such a link.
    os.symlink(secret, os.path.join(root, "mine"))
    with maxkb.MaxKB(site, NSBOX_SOCKET=daemon.socket, TOOL_EXECUTOR_BACKEND="local") as other:
        ask = lambda name, *args: other.tell({"files": name, "root": root, "args": args})["value"]
        t.equal(ask("read", "/mine")["file_data"]["content"], "the secret of this test\n", "MaxKB's own read such a link")
        ask("edit", "/mine", "secret", "Secret")
    t.equal(read(secret), "the Secret of this test\n", "and write through it")
    with open(secret, "w", encoding="ascii") as f:
        f.write("the secret of this test\n")
    root = tree()
    os.symlink(secret, os.path.join(root, "mine"))
    t.ok("the secret" not in run("cat mine", root)["output"] and tool("read", root, "/mine")["error"],
         "a link that was there before goes in no further than its name")


def sessions():
    return {row["id"]: row for row in daemon.ask("GET", "/v1/sessions")[1]["sessions"]}


def mine(root):
    return [name for name in sessions() if os.path.basename(root) in name]


def test_session(t):
    root = tree()
    run("(while :; do date +%s.%N > beat; sleep 0.1; done) >/dev/null 2>&1 & echo $! > pid; export A=b; cd /tmp", root)
    t.equal(run("kill -0 $(cat pid) && echo lives; echo $A; pwd", root)["output"], "lives\n\n/workspace\n",
            "what a command has started in the background lives on; variables and place are its own")
    t.equal(len(mine(root)), 1, "one session for all that has to do with a directory")
    long = "sleep 600 & echo $! > theirs; sleep 600"
    t.equal(server.tell({"shell": long, "root": root, "cancel": 1})["value"], "given up", "a caller that gives up")
    look = "kill -0 $(cat theirs) 2>/dev/null || echo ended; kill -0 $(cat pid) && echo lives"
    t.ok(tap.wait_until(lambda: run(look, root)["output"] == "ended\nlives\n", 20),
         "ends what its command has started, and nothing else", str(run(look, root)))
    server.tell({"vanish": root})
    t.ok(tap.wait_until(lambda: not mine(root), 20), "with the directory the session goes")
    got = run("true", root)
    t.ok("directory is gone" in got["output"] and got["exit_code"] == 1, "and nothing runs there any more", str(got))
    os.makedirs(root)
    t.equal(run("ls -A; cat beat", root)["exit_code"], 1, "a new directory of the name has a session of its own")
    with maxkb.MaxKB(site, NSBOX_SOCKET=daemon.socket, NSBOX_PYTHON="/usr/bin/python3") as other:
        root = tree()
        other.tell({"shell": "mkdir out; echo 12345 > 'out/b\na'; echo 1 > out/c; sleep 600 >/dev/null 2>&1 &", "root": root})
        t.equal(len(mine(root)), 1, "another process")
        other.tell({"shell": "sleep 100", "root": root, "later": True})
        tap.wait_until(lambda: sessions()[mine(root)[0]]["running"], 20)
        began = time.monotonic()
        said = other.end()
    t.equal(mine(root), [], "its end is that of its sessions")
    t.ok(time.monotonic() - began < 60, "which it does not wait for")
    t.ok('leaves "/out/b\\na" (6 bytes), "/out/c" (2 bytes)' in said, "and tells what they leave", said)
    other = maxkb.MaxKB(site, NSBOX_SOCKET=daemon.socket)
    other.tell({"shell": "true", "root": root})
    other.process.kill()
    other.end()
    t.equal(len(mine(root)), 1, "one that is killed leaves them to the service")


def test_idle(t):
    with service.Daemon(options=["--session-idle", "1"]) as idle, \
            maxkb.MaxKB(site, NSBOX_SOCKET=idle.socket, NSBOX_PYTHON="/usr/bin/python3") as other:
        root = tree()
        other.tell({"shell": "echo 1 > kept", "root": root})
        t.ok(tap.wait_until(lambda: not idle.ask("GET", "/v1/sessions")[1]["sessions"], 30), "the service ends what is idle")
        got = other.tell({"shell": "ls /skills/report/run.sh kept 2>/dev/null", "root": root})["value"]["output"]
        t.equal(got, "/skills/report/run.sh\n\n[nsbox] the session had ended, and this is a new one: what commands had "
                "written before is gone\n\nExit code: 2", "the next use makes another, and says so")
        t.equal(other.tell({"shell": "true", "root": root})["value"]["output"], "<no output>", "once")
        tap.wait_until(lambda: not idle.ask("GET", "/v1/sessions")[1]["sessions"], 30)
        t.equal(other.tell({"files": "read", "root": root, "args": ["/skills/report/SKILL.md"]})["value"]["file_data"]["content"],
                "# report\n", "a file tool as well")


def test_limits(t):
    t.equal(run("")["output"], "Error: Command must be a non-empty string.", "no command")
    error = server.tell({"shell": "true", "root": tree(), "timeout": 0})
    t.equal((error["type"], error["error"]), ("ValueError", "timeout must be positive, got 0"), "a limit of 0")
    root = tree()
    got = run("echo start; echo kept > early; sleep 60", root, timeout=1)
    t.equal((got["output"], got["exit_code"]), (
        "Error: Command timed out after 1 seconds (custom timeout). The command may be stuck or require more time.",
        124), "a limit of its own")
    t.equal(content("/early", root), "kept\n", "what was written before it is there")
    got = run("sleep 60", default_timeout=1)
    t.equal(got["output"], "Error: Command timed out after 1 seconds. For long-running commands, re-run using the "
            "timeout parameter.", "the default limit")
    got = run("head -c 200000 /dev/zero | tr '\\0' x")
    t.equal((len(got["output"]), got["truncated"], got["output"][99999:]),
            (100000 + len("\n\n... Output truncated at 100000 bytes."), True,
             "x\n\n... Output truncated at 100000 bytes."), "long output is cut")
    with maxkb.MaxKB(site, NSBOX_SOCKET=daemon.socket, NSBOX_SKILL_MEM_MB="64") as other:
        got = other.tell({"shell": "python3 -c 'len(bytearray(500 << 20))'", "root": tree()})["value"]
    # Without namespaces RLIMIT_DATA comes before the watchdog, and the command itself says so.
    status, text = (1, "MemoryError") if tier == "process" else (
        137, "[nsbox] the command used more memory than 64 MB (MAXKB_NSBOX_SKILL_MEM_MB)")
    t.ok(got["exit_code"] == status and text in got["output"], "too much memory", str(got)[:500])
    with maxkb.MaxKB(site, NSBOX_SOCKET="/nonexistent") as other:
        got = other.tell({"shell": "true", "root": tree()})["value"]
    t.ok(got["exit_code"] == 1 and got["output"].startswith("Error executing command (nsbox): the service at"),
         "no service", str(got))
    with maxkb.MaxKB(site, NSBOX_SOCKET=daemon.socket, TOOL_EXECUTOR_BACKEND="local") as other:
        t.equal(other.tell({"shell": "true", "root": tree()})["value"]["output"], "run by MaxKB itself", "the switch back")


EACH_TIER = [test_lines, test_files, test_links, test_session, test_limits]


def test_shape(t):
    apps = os.path.join(place, "apps")
    shutil.copytree(os.path.join(maxkb.STANDINS, "apps"), apps, ignore=shutil.ignore_patterns("__pycache__"))
    path = os.path.join(apps, "application", "flow", "backend", "sandbox_shell.py")
    with open(path, encoding="utf-8") as f:
        text = f.read().replace("def execute(self, command: str, *", "def execute(self, command: str, shell, *")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    with maxkb.MaxKB(site, apps, NSBOX_SOCKET="/nonexistent") as other:
        got = other.tell({"shell": "true", "root": tree()})
        asked = {name: other.tell({"files": name, "root": tree(), "args": args})
                 for name, args in (("ls", ["/"]), ("read", ["/skills/report/SKILL.md"]), ("aread", ["/skills/report/SKILL.md"]))}
        said = other.end()
    t.ok("takes (command, shell, timeout)" in got.get("error", "") and "NOT READY: skills do not run" in said,
         "an unknown shape is closed", "%s\n%s" % (got, said))
    t.equal([name for name, answer in asked.items() if "takes (command, shell, timeout)" not in answer.get("error", "")], [],
            "and so are its file tools: none works on MaxKB's own directory")


def use(name, service_there):
    global tier, daemon, server
    end()
    tier, daemon = name, service_there
    server = maxkb.MaxKB(site, NSBOX_SOCKET=daemon.socket, NSBOX_PYTHON="/usr/bin/python3")


def end():
    if server:
        server.end()


def main():
    global site
    leftovers.become_subreaper()
    with open(secret, "w", encoding="ascii") as f:
        f.write("the secret of this test\n")
    site = maxkb.install(os.path.join(place, "site"))
    try:
        return tap.run(chain(tiers.each(place, EACH_TIER, use), [test_idle, test_shape]))
    finally:
        end()


if __name__ == "__main__":
    sys.exit(main())
