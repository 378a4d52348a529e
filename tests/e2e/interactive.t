#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs whose standard input comes as they go on: what goes in and comes out, ends, who leaves."""

import base64
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, service, tap

COMMAND = "/v1/execute/command"
daemon = None


class Run:
    """An interactive run: what it says, event by event, and a place to write to it."""

    def __init__(self, command, **more):
        self.connection = service.UnixConnection(daemon.socket, 60)
        self.connection.request("POST", COMMAND, json.dumps(dict(more, command=command, interactive=True)),
                                {"Content-Type": "application/json"})
        self.answer = self.connection.getresponse()
        self.data = {"stdout": b"", "stderr": b""}
        self.job = None
        self.end = None
        if self.answer.status == 200:
            self.job = self.event()[1]["job_id"]

    def event(self):
        got = {}
        for line in iter(self.answer.readline, b"\n"):
            if not line:
                return None, None
            key, _, value = line.decode().rstrip("\n").partition(": ")
            got[key] = value
        value = json.loads(got["data"])
        if got["event"] in self.data:
            assert value["offset"] == len(self.data[got["event"]])
            self.data[got["event"]] += value["text"].encode() if "text" in value else base64.b64decode(value["base64"])
        if got["event"] == "finished":
            self.end = value
        return got["event"], value

    def until(self, test):
        while not test() and self.event()[0]:
            pass

    def write(self, data):
        return daemon.ask("POST", "/v1/jobs/%s/stdin" % self.job, data)[0]

    def finish(self):
        self.until(lambda: self.end)
        self.connection.close()
        return self.end["result"]


def test_talk(t):
    run = Run("while read x; do echo got $x; done; echo over")
    t.equal(run.write(b"one\n"), 200, "a line is taken")
    run.until(lambda: run.data["stdout"].endswith(b"\n"))
    t.equal(run.data["stdout"], b"got one\n", "and answered while more may come")
    t.equal([run.write(b"tw"), run.write(b"o\n"), run.write(b"")], [200] * 3, "a line in pieces, and the end")
    result = run.finish()
    t.equal((run.data["stdout"], result["cause"], result["exit_code"]), (b"got one\ngot two\nover\n", "exit", 0),
            "is read as it was written")
    t.equal(run.write(b"more\n"), 404, "what has ended is no place to write to")


def test_bytes(t):
    data = bytes(range(256)) * 2000
    run = Run("cat", manifest={"manifestVersion": 1, "resources": {"stdout": "2Mi"}})
    t.equal([run.write(data), run.write(b"")], [200, 200], "half a megabyte at once, perhaps before the program runs")
    run.finish()
    t.ok(run.data["stdout"] == data, "come back byte for byte", "%d bytes" % len(run.data["stdout"]))


def test_deaf(t):
    run = Run("exec <&-; echo closed; sleep 20")
    run.until(lambda: run.data["stdout"])
    t.equal(tap.wait_until(lambda: run.write(b"x") == 409, 5), True, "a program that closed its input: 409")
    t.equal(run.write(b"x"), 409, "and again")
    run.connection.close()
    run = Run("echo up; sleep 20")
    run.until(lambda: run.data["stdout"])
    codes = [run.write(b"x" * 500000) for _ in range(5)]
    t.equal((codes[0], codes[-1]), (200, 429), "a program that does not read: 429 in the end")
    t.equal(run.write(b""), 200, "the end is always taken")
    t.equal(run.write(b"x"), 409, "and nothing after it")
    run.connection.close()


def test_terminal(t):
    run = Run("tty; stty size; read x; echo got $x; cat; echo over", tty=True, tty_rows=33, tty_cols=101)
    t.equal(run.write(b"one\n"), 200, "a line, perhaps before there is a terminal")
    run.until(lambda: b"got" in run.data["stdout"])
    t.equal([run.write(b"two\n"), run.write(b"")], [200] * 2, "a line, and the end")
    result = run.finish()
    t.equal((result["cause"], result["exit_code"], run.data["stderr"]), ("exit", 0, b""), "a terminal's end is typed")
    text = run.data["stdout"].decode()
    t.ok(text.startswith("/dev/pts/") or text.startswith("one\r\n/dev/pts/"), "it is a terminal", repr(text))
    t.ok("\r\n33 101\r\n" in text and "got one\r\n" in text and text.count("two\r\n") == 2 and text.endswith("over\r\n"),
         "of the size that was asked for, which shows what is typed", repr(text))
    run = Run("trap 'echo stopped; exit 3' INT; echo up; while :; do sleep 0.1; done", tty=True)
    run.until(lambda: b"up" in run.data["stdout"])
    run.write(b"\3")
    result = run.finish()
    t.ok(result["exit_code"] == 3 and b"stopped" in run.data["stdout"], "^C is a signal there", str(result))
    run = Run("trap 'exit 3' INT; read x; echo $x | od -An -c", manifest={"manifestVersion": 1})
    run.write(b"\3\n")
    result = run.finish()
    t.ok(result["exit_code"] == 0 and b"003" in run.data["stdout"], "and a byte where there is none", str(run.data))


def test_gone(t):
    run = Run("echo up; sleep 60")
    run.until(lambda: run.data["stdout"])
    run.answer.close()
    run.connection.close()
    t.ok(tap.wait_until(lambda: daemon.ask("GET", "/v1/jobs/" + run.job)[1]["state"] == "finished", 10),
         "who leaves ends the run")
    t.equal(daemon.ask("GET", "/v1/jobs/" + run.job)[1]["cause"], "cancelled", "as cancelled")
    run = Run("echo up; read x; echo $x")
    run.until(lambda: run.data["stdout"])
    code, job = daemon.ask("DELETE", "/v1/jobs/" + run.job)
    t.equal((code, run.finish()["cause"]), (202, "cancelled"), "and so does DELETE, which the stream tells")


def test_refused(t):
    rows = [("a size without a terminal", {"tty_rows": 9}, 400, "/tty_rows"),
            ("a terminal of no size", {"tty": True, "tty_cols": 0}, 400, "/tty_cols"), ("other input", {"stdin": "x"}, 400, "/interactive"),
            ("no boolean", {"interactive": 1}, 400, "/interactive")]
    for name, more, want, pointer in rows:
        code, answer = daemon.ask("POST", COMMAND, dict({"command": "true", "interactive": True}, **more))
        t.equal((code, answer["error"]["pointer"]), (want, pointer), "refused: " + name)
    code, answer = daemon.ask("POST", "/v1/jobs", {"kind": "command", "command": "true", "interactive": True})
    t.ok(code == 400 and "a caller that stays" in answer["error"]["message"], "refused: as a job of its own",
         str(answer))
    run = Run("true", manifest={"manifestVersion": 1, "nme": "x"})
    result = run.finish()
    t.ok(run.end["status"] == 400 and "did you mean" in result["error"]["message"],
         "a wrong manifest ends the stream", str(run.end))
    job = daemon.ask("POST", "/v1/jobs", {"kind": "command", "command": "sleep 5"})[1]["id"]
    t.equal(daemon.ask("POST", "/v1/jobs/%s/stdin" % job, b"x")[0], 409, "refused: input for another job")
    daemon.ask("DELETE", "/v1/jobs/" + job)
    t.equal(daemon.ask("POST", "/v1/jobs/job-0-0/stdin", b"x")[0], 404, "refused: input for none")


def main():
    global daemon
    leftovers.become_subreaper()
    with service.Daemon() as daemon:
        status = tap.run([test_talk, test_bytes, test_deaf, test_terminal, test_gone, test_refused])
        if status:
            sys.stderr.write(daemon.log()[-3000:])
    return status


if __name__ == "__main__":
    sys.exit(main())
