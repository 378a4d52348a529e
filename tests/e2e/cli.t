#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The command line as a whole: every verb has its help, every answer a form for programs, and a shell is a shell."""

import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import paths, service, tap, terminal

# What has no --json, and why.
NO_JSON = {
    ("mcp",): "speaks JSON and nothing else",
    ("session", "get"): "its answer is the file",
    ("session", "download"): "its answer is the archive",
    ("session", "shell"): "is a conversation",
    ("skill", "init"): "its answer is a manifest",
    ("skill", "run"): "takes no options: it is `nsbox run --skill` in short",
}
place = paths.scratch("nsbox-cli-")
os.chmod(place, 0o755)


def nsbox(*words, **more):
    env = dict(os.environ, NSBOX_STATE_DIR=place + "/state", **more.pop("env", {}))
    return subprocess.run([paths.NSBOX, *words], capture_output=True, text=True, env=env, check=False,
                          **dict({"stdin": subprocess.DEVNULL, "timeout": 60}, **more))


def listed(text):
    """The names in the first list of a help."""
    return re.findall(r"^  ([a-z]+) ", text.split(":\n", 1)[1].split("\n\n")[0], re.M)


def verbs():
    for command in listed(nsbox("--help").stdout):
        text = nsbox(command, "--help").stdout
        if "\nVerbs:\n" in text:
            yield from ((command, verb) for verb in listed(text[text.index("Verbs:"):]))
        else:
            yield (command,)


def test_help(t):
    every = list(verbs())
    t.ok(len(every) > 40, "verbs", str(every))
    wrong, mute = [], set()
    for words in every:
        done = nsbox(*words, "--help")
        if words != ("skill", "run"):
            good = done.returncode == 0 and done.stdout.startswith("Usage: nsbox " + " ".join(words)) and not done.stderr
            if not good or "\033" in done.stdout:
                wrong.append("%s: %d %s%s" % (words, done.returncode, done.stdout, done.stderr))
        if "--json" not in done.stdout:
            mute.add(words)
        done = nsbox(*words, "--no-such-option")
        if done.returncode != 125 or "nsbox " + words[0] not in done.stderr:
            wrong.append("%s --no-such-option: %d %s" % (words, done.returncode, done.stderr))
    t.equal(wrong, [], "each has its help, and an unknown option names it")
    t.equal(mute - set(NO_JSON), set(), "each answers in JSON but those that have a reason not to")
    t.equal({words for words in NO_JSON if words in every and words not in mute}, set(), "and those do not")


def parsed(t, what, *words):
    done = nsbox(*words)
    try:
        value = json.loads(done.stdout)
    except ValueError:
        value = None
    t.ok(done.returncode == 0 and value is not None, what + " in JSON", done.stdout + done.stderr)
    return value


def test_images(t):
    os.makedirs(place + "/root/bin")
    with open(place + "/root/bin/x", "w", encoding="ascii"):
        pass
    got = parsed(t, "image import", "image", "import", "--json", "one", place + "/root")
    t.ok(got["name"] == "one" and re.fullmatch("[0-9a-f]{64}", got["id"]), "names what there is now", str(got))
    shown = parsed(t, "image inspect", "image", "inspect", "--json", "one")
    t.equal(shown["id"], got["id"], "which inspect finds")
    t.equal(parsed(t, "image rm", "image", "rm", "--json", "one"), [{"name": "one", "files_in_use": False}], "rm says what went")
    t.equal(parsed(t, "image gc", "image", "gc", "--json"), {"images": 0, "layers": 0, "unfinished": 0, "importing": False},
            "gc what it found")


def test_run(t):
    done = nsbox("run", "--json", "--", "sh", "-c", "exit 3")
    report = json.loads(done.stdout)
    t.equal((done.returncode, report["cause"], report["exit_code"]), (3, "exit", 3), "run --json: the report")


def test_daemon(t):
    with service.Daemon() as daemon:
        def verb(*words):
            return nsbox(*words[:2], "--socket", daemon.socket, *words[2:])

        job = json.loads(verb("job", "submit", "--json", "--", "sh", "-c", "echo out; echo err >&2").stdout)["id"]
        events = [json.loads(line) for line in verb("job", "logs", "--json", job).stdout.splitlines()]
        t.equal((events[0]["event"], events[-1]["event"]), ("queued", "finished"), "job logs --json: a job's events, a line each")
        t.ok({"out\n", "err\n"} <= {e["data"].get("text") for e in events}, "with what it wrote", str(events))
        t.ok("out\n" == verb("job", "logs", job).stdout, "without: its output")
        verb("session", "create", "one")
        for words in (("mkdir", "one", "/workspace/d"), ("mv", "one", "/workspace/d", "/workspace/e"),
                      ("put", "one", place + "/root/bin/x", "/workspace/x"), ("rm", "one", "/workspace/x")):
            done = verb("session", words[0], "--json", *words[1:])
            t.ok(done.returncode == 0 and isinstance(json.loads(done.stdout), dict), "session %s --json" % words[0],
                 done.stdout + done.stderr)
        t.ok(re.fullmatch(r"directory .* e\n", verb("session", "ls", "one").stdout), "and it was done")
        audit = os.path.join(daemon.data, "audit.log")
        with open(audit, encoding="utf-8") as f:
            lines = f.readlines()
    whole, broken = place + "/whole", place + "/broken"
    for path, kept in ((whole, lines), (broken, lines[:1] + lines[2:])):
        with open(path, "w", encoding="utf-8") as f:
            f.writelines(kept)
    got = parsed(t, "audit verify", "audit", "verify", "--json", whole)
    t.ok(got["whole"] and got["lines"] == got["last"] == len(lines) and got["first"] == 1, "says that it is whole", str(got))
    done = nsbox("audit", "verify", "--json", broken)
    t.ok(done.returncode == 1 and json.loads(done.stdout)["whole"] is False and broken in json.loads(done.stdout)["error"],
         "or where it is not", done.stdout)


def test_shell(t):
    done = nsbox("shell", stdin=None, input="id -u; echo $(pwd)\nexit 5\n")
    t.equal((done.returncode, done.stdout), (5, "1000\n/workspace\n"), "a shell that reads lines")
    status, shown = terminal.converse([paths.NSBOX, "shell"], ["tty; echo 4$((1+1))", "exit 7"], os.environ)
    t.ok(status == 7 and "/dev/pts/" in shown and "42" in shown, "on a terminal: a prompt, and a terminal of its own",
         "%s %s" % (status, shown))
    done = nsbox("shell", "--", "ls")
    t.ok(done.returncode == 125 and "nsbox run -- ls" in done.stderr, "takes no program, and says what does", done.stderr)


if __name__ == "__main__":
    sys.exit(tap.run([test_help, test_images, test_run, test_daemon, test_shell]))
