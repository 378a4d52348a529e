#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Sessions: their states (every way from one to another, as docs/nsboxd.8 has them), what is kept
and what is not, limits, several commands at once, and who may see them."""

import base64
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, paths, service, tap, terminal

SESSIONS = "/v1/sessions"
walked = set() # (from, to) of the states that were seen
daemon = None
out = tap.Tap()


def run(name, text, **more):
    return daemon.ask("POST", "/v1/execute/command", dict({"session_id": name, "command": text}, **more))


def later(*args, **more):
    """A command in a thread; call the result to have its answer."""
    box = []
    thread = threading.Thread(target=lambda: box.append(run(*args, **more)))
    thread.start()

    def answer():
        thread.join()
        return box[0]
    return answer


def info(name):
    status, answer = daemon.ask("GET", "%s/%s" % (SESSIONS, name))
    return answer if status == 200 else None


def state(name):
    found = info(name)
    return found["state"] if found else None


def reasons(name):
    """Why sessions of this name ended, from the audit."""
    with open(os.path.join(daemon.data, "audit.log"), encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    return [l.get("why") for l in lines if l.get("event") == "session-end" and l.get("what") == name]


def went(*states):
    walked.update(zip(states, states[1:]))


def table():
    """The ways that docs/nsboxd.8 lists."""
    page = leftovers.read(os.path.join(paths.ROOT, "docs/nsboxd.8"))
    part = page[page.index('.Bl -column "making"'):]
    ways, last = set(), None
    for name, to in re.findall(r"^\.It (new|making|up|\\&) Ta (\w+) Ta", part[:part.index(".El")], re.M):
        last = last if name == "\\&" else name
        ways.add((last, to))
    return ways


def inits():
    return named("nsbox-spawn", below=True)


def named(name, below=False):
    """Processes of the service by name; below: that one's children."""
    parents = [pid for (pid, _), found in leftovers.descendants(daemon.pid).items() if found == name]
    if not below:
        return parents
    return [pid for pid, (parent, _, _, _) in leftovers.processes().items() if parent in parents]


# ---------------------------------------------------------------- states

def walk_up():
    status, made = daemon.ask("POST", SESSIONS, {"session_id": "walk"})
    out.equal(status, 201, "a session is made")
    out.equal(made["session"]["state"], "up", "and is up when that is told")
    out.equal(made["session"]["commands"], 0, "no command has run")
    status, again = run("walk", "echo $((6*7))")
    out.equal((status, again["stdout"], again["session"]["created"]), (200, "42\n", False), "a command runs in it")
    status, first = run("walk2", "true")
    out.equal((status, first["session"]["created"]), (200, True), "a command makes the one it names")
    out.equal(sorted(s["id"] for s in daemon.ask("GET", SESSIONS)[1]["sessions"]), ["walk", "walk2"], "both are listed")


def new_and_forgotten():
    """new -> over: its only job is cancelled while it waits in the queue."""
    block = [later("block%d" % i, "sleep 4") for i in range(2)]
    tap.wait_until(lambda: all(state("block%d" % i) == "up" for i in range(2)), 10)
    job = daemon.ask("POST", "/v1/jobs", {"kind": "command", "session_id": "waits", "command": "true"})[1]
    out.equal(state("waits"), "new", "one whose job waits is new")
    daemon.ask("DELETE", "/v1/jobs/%s" % job["id"])
    out.equal(state("waits"), None, "and is forgotten when that is cancelled")
    went("new", "over")
    # new -> making -> up, as soon as there is a runner
    job = daemon.ask("POST", "/v1/jobs", {"kind": "command", "session_id": "waits", "command": "echo ran"})[1]
    for b in block:
        b()
    tap.wait_until(lambda: state("waits") == "up", 10)
    out.equal(state("waits"), "up", "it is made when its turn has come")
    went("new", "making", "up")


def not_made():
    status, answer = run("bad", "true", manifest={"manifestVersion": 1, "name": "x", "nonsense": 1})
    out.equal((status, state("bad")), (400, None), "making -> over: a manifest that is wrong")
    went("making", "over")
    status, answer = run("bad2", "true", manifest={
        "manifestVersion": 1, "name": "x", "filesystem": {"read": ["/no/such/place"]}})
    out.ok(status >= 400 and state("bad2") is None, "up -> over: a set-up that fails", str(answer)[:300])
    out.equal(run("bad", "true")[0], 200, "the name can be used again")


def cancelled_while_made():
    """making -> over: its first job is cancelled while its files, many of them, are put in; another waits for it."""
    for count in (4000, 16000, 60000):
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            for i in range(count):
                tar.addfile(tarfile.TarInfo("f%d" % i))
        body = {"kind": "command", "session_id": "slow", "command": "true"}
        first = daemon.ask("POST", "/v1/jobs", dict(body, archive_base64=base64.b64encode(data.getvalue()).decode()))[1]["id"]
        tap.wait_until(lambda: state("slow") != "new", 60)
        second = daemon.ask("POST", "/v1/jobs", body)[1]["id"]
        seen = state("slow")
        daemon.ask("DELETE", "/v1/jobs/" + first)
        ends = [daemon.ask("GET", "/v1/jobs/%s?wait=60" % j)[1] for j in (first, second)]
        if seen == "making" and ends[0]["cause"] == "cancelled" and state("slow") is None:
            break
        daemon.ask("DELETE", SESSIONS + "/slow")
    out.equal((seen, ends[0]["cause"], state("slow")), ("making", "cancelled", None), "making -> over: cancelled")
    out.ok("was not made" in str(ends[1]["result"]), "what waited for it hears why", str(ends[1])[:300])
    went("making", "over")


def fails_when_up():
    """up -> over: nsbox-spawn, held up, is told to make it, and then cannot."""
    spawn = named("nsbox-spawn")[0]
    os.kill(spawn, signal.SIGSTOP)
    try:
        job = daemon.ask("POST", "/v1/jobs", {"kind": "command", "session_id": "fails", "command": "true", "manifest": {
            "manifestVersion": 1, "name": "x", "filesystem": {"read": ["/no/such/place"]}}})[1]["id"]
        out.ok(tap.wait_until(lambda: state("fails") == "up", 60), "one that nsbox-spawn was told of is up")
    finally:
        os.kill(spawn, signal.SIGCONT)
    end = daemon.ask("GET", "/v1/jobs/%s?wait=60" % job)[1]
    out.ok(end["status"] >= 400 and state("fails") is None, "up -> over: its set-up failed", str(end)[:300])
    out.ok("/no/such/place" in reasons("fails")[0], "the audit says why", str(reasons("fails")))
    went("up", "over")


def queued_when_over():
    """up -> over: also for a command whose turn has not come, which is not to make it again."""
    before = set(inits())
    run("waited-for", "true")
    init = [p for p in inits() if p not in before]
    busy = [daemon.ask("POST", "/v1/jobs", {"kind": "command", "command": "sleep 600"})[1]["id"] for _ in range(2)]
    tap.wait_until(lambda: daemon.ask("GET", "/healthz")[1]["queue"]["running"] == 2, 20)
    running = later("waited-for", "true")
    out.ok(tap.wait_until(lambda: daemon.ask("GET", "/healthz")[1]["queue"]["waiting"] == 1, 20), "a command of a session waits for its turn")
    os.kill(init[0], signal.SIGKILL)
    tap.wait_until(lambda: state("waited-for") is None, 10)
    for job in busy:
        daemon.ask("DELETE", "/v1/jobs/" + job)
    out.equal(running()[1].get("cause"), "interrupted", "up -> over: its init ended, and with it what waits")


def ends():
    running = later("walk2", "sleep 30")
    tap.wait_until(lambda: (info("walk2") or {}).get("running") == 1, 10)
    out.equal(daemon.ask("DELETE", SESSIONS + "/walk2")[1]["state"], "over", "up -> over: deleted")
    went("up", "over")
    status, answer = running()
    out.equal((status, answer["cause"]), (200, "cancelled"), "what ran in it is cancelled")
    out.equal(daemon.ask("DELETE", SESSIONS + "/walk2")[0], 404, "one that is over is unknown")

    daemon.ask("POST", SESSIONS, {"session_id": "idle", "idle_timeout_seconds": 1})
    out.equal(run("idle", "sleep 1.5; echo done")[1]["stdout"], "done\n", "a command is no idle time")
    out.ok(tap.wait_until(lambda: state("idle") is None, 5), "up -> over: left alone")

    daemon.ask("POST", SESSIONS, {"session_id": "old", "ttl_seconds": 2})
    began = time.monotonic()
    out.equal(run("old", "sleep 30")[1]["cause"], "cancelled", "up -> over: its time is up, also under a command")
    out.ok(time.monotonic() - began < 10, "and at once")

    daemon.ask("POST", SESSIONS, {"session_id": "few", "max_commands": 2})
    run("few", "true")
    out.equal(state("few"), "up", "one of two commands")
    run("few", "true")
    out.equal(state("few"), None, "up -> over: it has had its commands")

    before = set(inits())
    run("dies", "true")
    init = [p for p in inits() if p not in before]
    running = later("dies", "sleep 30")
    tap.wait_until(lambda: (info("dies") or {}).get("running") == 1, 10)
    time.sleep(0.3)
    os.kill(init[0], signal.SIGKILL)
    status, answer = running()
    out.equal(answer.get("cause"), "interrupted", "up -> over: its init ended")
    queued_when_over()
    out.ok(tap.wait_until(lambda: state("dies") is None, 5), "and it is forgotten")
    for name, why in (("walk2", "deleted"), ("idle", "nothing happened in it"), ("old", "its time is up"),
                      ("few", "it has had its commands"), ("dies", "its init ended"), ("waited-for", "its init ended")):
        out.equal(reasons(name), [why], "the audit says why '%s' ended" % name)


# ---------------------------------------------------------------- what is kept

def kept():
    run("kept", "echo one >f; export X=1; setsid sleep 333 >/dev/null 2>&1 & exit 3")
    status, answer = run("kept", "cat f; pgrep -c -x sleep; echo x$X")
    out.equal(answer["stdout"], "one\n1\nx\n", "files and background processes are kept, variables are not")
    status, answer = run("kept", "sleep 60", timeout_seconds=0.5)
    out.equal(answer["cause"], "wallTime", "a command has less time than the session's")
    status, answer = run("kept", "pgrep -c -x sleep; cat f")
    out.equal(answer["stdout"], "1\none\n", "its end leaves the rest alone")
    status, answer = run("kept", "true", timeout_seconds=100000)
    out.equal(status, 400, "more time than the session's is refused")
    status, answer = run("kept", "true", resources={"memory_mb": 64})
    out.equal(status, 409, "another policy is refused")
    out.equal(run("kept", "echo in it", session_must_exist=True)[1]["stdout"], "in it\n", "a command that makes no session")
    for path, body in (("command", {"command": "true"}), ("python-function", {"code": "def f(): return 1"})):
        body.update(session_id="never", session_must_exist=True)
        out.equal((daemon.ask("POST", "/v1/execute/" + path, body)[0], info("never")), (404, None), "%s: where there is none" % path)
    status, answer = run("kept", "cat a", files=[{"path": "a", "content": "b"}])
    out.equal((status, answer.get("stdout")), (200, "b"), "files come with any command")
    status, answer = run("other", "ls; pgrep -c -x sleep")
    out.equal(answer["stdout"], "0\n", "another session sees none of it")
    out.equal(run("../x", "true")[0], 400, "a name that is no name")
    out.equal(run("same", "cat f", files=[{"path": "f", "content": "hi"}], resources={"memory_mb": 64})[1]["stdout"],
            "hi", "the first command brings files and the policy")
    out.equal(run("same", "echo ok", resources={"memory_mb": 64})[1]["stdout"], "ok\n", "the same policy may be said again")


def call(name, code, **more):
    return daemon.ask("POST", "/v1/execute/python-function", dict({"session_id": name, "code": code}, **more))


def functions():
    """They see what commands see, and are held by what holds commands."""
    status, answer = call("kept", "def f(add):\n    return open('f').read() + add", params={"add": "!"})
    out.equal((status, answer.get("data"), answer.get("code")), (200, "one\n!", 200), "a function is called in the session")
    out.equal((answer["session"]["created"], answer["cause"]), (False, "exit"), "and the reply says in which")
    code = "def f():\n    import os\n    open('by_function', 'w').write(str(os.getpid()))\n    return os.getuid()"
    out.equal(call("kept", code)[1]["data"], int(run("kept", "id -u")[1]["stdout"]), "it is the user that commands are")
    out.ok(run("kept", "cat by_function")[1]["stdout"].isdigit(), "a command finds what it left")
    out.equal(call("kept", "def f(): raise ValueError('no')")[1]["code"], 500, "its exception is its own")
    out.equal(call("kept", "def f():\n    while True: pass", timeout_seconds=0.5)[1]["cause"], "wallTime", "so is its time")
    out.equal(run("kept", "pgrep -c -x sleep")[1]["stdout"], "1\n", "the session goes on")
    out.equal(call("kept", "def f(): pass", resources={"memory_mb": 64})[0], 409, "it has no policy of its own")
    first = call("byfunction", "def f():\n    import subprocess\n    return subprocess.check_output(['echo', 'ran']).decode()")[1]
    out.equal((first["session"]["created"], first["data"]), (True, "ran\n"), "one may be a session's first, which is made for commands")
    out.equal(run("byfunction", "echo too")[1]["stdout"], "too\n", "and they run in it")
    none = {"manifestVersion": 1, "name": "x", "process": {"subprocess": "none"}}
    status, answer = call("strict", "def f(): return 1", manifest=none)
    out.ok(status == 400 and answer["error"]["pointer"] == "/manifest/process/subprocess",
           "what only a sandbox of its own can hold is refused", str(answer)[:300])
    out.equal(daemon.ask("POST", "/v1/execute/python-function", {"code": "def f(): return 1", "manifest": none})[1].get("data"),
              1, "and can be had there")


def manifest_limits():
    manifest = {"manifestVersion": 1, "name": "m",
                "session": {"mode": "session", "idleTimeout": "2s", "ttl": "50s", "maxCommands": 2}}
    run("mani", "true", manifest=manifest)
    found = info("mani")
    out.equal((found["idle_timeout_seconds"], found["ttl_seconds"], found["max_commands"]), (2, 50, 2),
            "the manifest's limits are the session's")
    status, answer = daemon.ask("POST", "/v1/execute/command", {"command": "echo once", "manifest": manifest})
    out.equal((status, answer.get("stdout")), (200, "once\n"), "such a manifest runs once, too")


def at_once():
    began = time.monotonic()
    first = run("many", "true")
    answers = [later("many", "sleep 1; echo %d" % i) for i in range(2)]
    out.equal(sorted(a()[1]["stdout"] for a in answers), ["0\n", "1\n"], "commands at the same time")
    out.ok(time.monotonic() - began < 10, "%.1f s" % (time.monotonic() - began))
    stop = later("many", "sleep 60")
    mine = tap.wait_until(lambda: [j for j in daemon.ask("GET", "/v1/jobs")[1]["jobs"] if j["state"] == "running"], 60)
    beside = later("many", "sleep 2; echo beside")
    tap.wait_until(lambda: (info("many") or {}).get("running") == 2, 10)
    daemon.ask("DELETE", "/v1/jobs/%s" % mine[0]["id"])
    out.equal(stop()[1]["cause"], "cancelled", "one of them is cancelled")
    out.equal(beside()[1]["stdout"], "beside\n", "and no other")
    out.equal(first[0], 200, "the session goes on")


# ---------------------------------------------------------------- limits and others

def limits():
    global daemon  # pylint: disable=global-statement
    daemon = service.Daemon(options=["--sessions", "2", "--runners", "4"])
    try:
        run("a", "true")
        run("b", "true")
        status, answer = run("c", "true")
        out.equal((status, answer["error"]["code"]), (429, "limit"), "no more sessions than configured")
        out.equal(run("a", "echo on")[1]["stdout"], "on\n", "those that are there go on")
        daemon.ask("DELETE", SESSIONS + "/b")
        out.equal(run("c", "true")[0], 200, "the place of one that ended is free")
        slow = [later("a", "sleep 3") for _ in range(8)]
        tap.wait_until(lambda: info("a")["running"] == 8, 10)
        out.equal(run("a", "true")[0], 429, "no more commands in one than configured")
        for s in slow:
            s()
        workspaces()
        crash()
    finally:
        daemon.stop()


def workspaces():
    run("c", "echo secret >f", workspace_id="")
    status, answer = daemon.ask("POST", "/v1/execute/command", {
        "session_id": "a", "command": "cat f; ls", "workspace_id": "team"})
    out.equal(status, 429, "a name in another workspace is another session")
    daemon.ask("DELETE", SESSIONS + "/c")
    daemon.ask("POST", SESSIONS, {"session_id": "a", "workspace_id": "team"})
    out.equal(daemon.ask("GET", SESSIONS + "/a")[0], 409, "who sees both has to say which")
    found = daemon.ask("GET", SESSIONS + "/a?workspace_id=team")[1]
    out.equal(found["workspace_id"], "team", "and then has it")
    daemon.ask("DELETE", SESSIONS + "/a?workspace_id=team")
    out.equal(daemon.ask("GET", SESSIONS + "/a")[1]["workspace_id"], "", "the other is still there")


def crash():
    """nsbox-spawn is killed: sessions end, and what ran in them was interrupted."""
    running = later("a", "sleep 60")
    job = daemon.ask("POST", "/v1/jobs", {"kind": "command", "session_id": "a", "command": "sleep 60"})[1]
    tap.wait_until(lambda: info("a")["running"] == 2, 10)
    time.sleep(0.3)
    os.kill(named("nsbox-spawn")[0], signal.SIGKILL)
    out.equal(running()[1].get("cause"), "interrupted", "a command is interrupted when nsbox-spawn dies")
    tap.wait_until(daemon.ready, 20)
    out.equal(daemon.ask("GET", SESSIONS)[1]["sessions"], [], "no session outlives it")
    out.equal(daemon.ask("GET", "/v1/jobs/%s" % job["id"])[1].get("cause"), "interrupted", "the journal says so, too")


def cli():
    nsbox = [paths.NSBOX, "session"]
    env = dict(os.environ, NSBOX_SOCKET=daemon.socket)

    def call(*args):
        done = subprocess.run([*nsbox, *args], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        return done.returncode, done.stdout.decode(), done.stderr.decode()
    out.equal(call("create", "--max-commands", "9", "tool"), (0, "tool\n", ""), "nsbox session create")
    out.equal(call("exec", "tool", "--", "sh", "-c", "echo hi >f; exit 4"), (4, "", ""), "nsbox session exec has the status")
    out.equal(call("exec", "tool", "cat", "f")[1], "hi\n", "and the output")
    with tempfile.NamedTemporaryFile("w", suffix=".py") as source:
        source.write("def f(x):\n    return open('f').read() * x\n")
        source.flush()
        out.equal(call("exec", "--python", source.name, "--params", '{"x": 2}', "tool")[:2], (0, '"hi\\nhi\\n"\n'),
                "nsbox session exec --python")
    status, text, _ = call("list")
    out.ok(status == 0 and "\ntool " in text, "nsbox session list", text)
    status, text, _ = call("info", "--json", "tool")
    out.equal((status, json.loads(text)["max_commands"]), (0, 9), "nsbox session info --json")
    out.equal(call("delete", "tool")[0], 0, "nsbox session delete")
    out.equal(call("info", "tool")[0], 125, "and it is gone")
    status, _, err = call("info", "no/name")
    out.ok(status == 125 and "no session's name" in err, "a name that is none", err)
    status, _, err = call("exec", "tool")
    out.ok(status == 125 and "what is to be run" in err, "nothing to run", err)


def shell():
    env = dict(os.environ, NSBOX_SOCKET=daemon.socket)

    def call(*args, **more):
        return subprocess.run([paths.NSBOX, "session", "shell", *args], env=env, capture_output=True, text=True,
                              check=False, timeout=60, **more)
    done = call("talk", input="echo in $PWD >f; echo $((40+2)); echo bad >&2; exit 5\n")
    out.equal((done.returncode, done.stdout, done.stderr), (5, "42\n", "bad\n"), "a shell that reads lines")
    done = call("talk", "--", "cat", "f", "-", input="two\n")
    out.equal((done.returncode, done.stdout), (0, "in /workspace\ntwo\n"),
              "another program, in the same sandbox, which sees the end of its input")
    status, shown = terminal.converse([paths.NSBOX, "session", "shell", "talk"],
                                ["tty; stty size; cat f", "sleep 60 & echo in the back", "exit 7"], env)
    out.ok(status == 7 and "/dev/pts/" in shown and "31 97" in shown and "in /workspace" in shown,
           "on a terminal: a prompt, and a terminal of its own, of our size", "%s %r" % (status, shown))
    out.equal(run("talk", "cat f")[1]["stdout"], "in /workspace\n", "the session lives on")
    with subprocess.Popen([paths.NSBOX, "session", "shell", "talk"], env=env, stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE) as child:
        child.stdin.write(b"echo up\n")
        child.stdin.flush()
        out.equal((child.stdout.readline(), info("talk")["running"]), (b"up\n", 1), "a shell is a command that runs")
        child.terminate()
        out.equal(child.wait(60), 143, "who ends the tool")
    out.ok(tap.wait_until(lambda: info("talk")["running"] == 0, 60), "ends the shell")
    done = call("no/name", input="")
    out.ok(done.returncode == 125 and "no session's name" in done.stderr, "a name that is none", done.stderr)
    done = call("-t", "99999", "talk", input="")
    out.ok(done.returncode == 125 and "/timeout_seconds" in done.stderr, "what the session has not is refused", done.stderr)
    daemon.ask("DELETE", SESSIONS + "/talk")


def progress():
    """A line on a terminal while something runs, and nothing of it afterwards or elsewhere."""
    held = ["sh", "-c", "until [ -e go ]; do sleep 0.1; done; rm go; echo over"]
    go = lambda: run("line", ["touch", "go"])
    run("line", ["true"])
    at = ["--socket", daemon.socket]
    status, shown = terminal.watch([paths.NSBOX, "session", "exec", *at, "line", "--", *held], os.environ, "nsbox: running, ", go)
    out.ok(status == 0 and re.search(r"\r\x1b\[Knsbox: running, \d+\.\d s", shown), "session exec shows that it runs, and how long", repr(shown))
    out.equal(re.sub(r".*\r\x1b\[K", "", shown.replace("\r\n", "\n").replace("\n", "|")), "over|", "and takes the line away")
    job = daemon.ask("POST", "/v1/jobs", {"kind": "command", "session_id": "line", "argv": held})[1]["id"]
    status, shown = terminal.watch([paths.NSBOX, "job", "wait", *at, job], os.environ, "running, ", go)
    out.ok(status == 0 and re.search(r"\r\x1b\[Krunning, \d+ s", shown) and "over" in shown.rpartition("\x1b[K")[2], "and so does job wait", repr(shown))
    done = subprocess.run([paths.NSBOX, "session", "exec", *at, "line", "--", "sleep", "1"], capture_output=True, check=False)
    out.equal((done.returncode, done.stdout, done.stderr), (0, b"", b""), "where there is no terminal there is no line")


def main():
    global daemon  # pylint: disable=global-statement
    daemon = service.Daemon(options=["--runners", "2"])
    try:
        for part in (walk_up, new_and_forgotten, not_made, cancelled_while_made, fails_when_up, ends, kept, functions, manifest_limits, at_once, cli, shell, progress):
            part()
        out.equal(walked, table(), "all ways of the table in the manual were gone, and no other")
    finally:
        if out.failed:
            out.note(daemon.log()[-3000:])
        daemon.stop()
    limits()
    return out.done()


if __name__ == "__main__":
    sys.exit(main())
