# SPDX-License-Identifier: Apache-2.0
"""A program: one MCP server in a sandbox. What comes on standard input goes to it, what it writes comes
out here, byte for byte and at once.

    python3 -I -S stdio.py -- PYTHON -c CODE

In the environment, NSBOX_MAXKB={"settings": ...} and of the run, where it differs from a tool's: "network" of
its manifest, "files" of its working directory {name: path here}, "subprocess".

Two threads: one reads standard input, the other the events of the run. When this process goes, however,
its connection goes and with it the run. When the run goes before its time, requests that it leaves
unanswered are answered here, with the reason: clients know a closed connection only as that.
"""
import base64
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# pylint: disable=wrong-import-position
from nsbox_maxkb import client, settings as settings_module

CHUNK = 1 << 16
LINE_MAX = 64 << 20  # a line that is longer is passed on, but not looked at
FAILED = -32000      # JSON-RPC: the server's own errors begin here

# MaxKB's program gives its ids up first; here it never had them.
PRELUDE = """
import os, sys
for name in ("setgid", "setuid", "setgroups"):
    setattr(os, name, lambda *_: None)
code = sys.argv.pop()
exec(code)
"""

# No programs: the policy leaves those that the image has, as for every command; Python starts none of them.
NO_PROGRAMS = """
def no_programs(event, _):
    if event in ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen"):
        raise PermissionError(13, "Permission denied to create subprocess")
sys.addaudithook(no_programs)
"""

CAUSES = {
    "wallTime": "it ran longer than {seconds} seconds "
                "(MAXKB_SANDBOX_PYTHON_PROCESS_LIMIT_TIMEOUT_SECONDS)",
    "memory": "it used more memory than {memory_mb} MB (MAXKB_SANDBOX_PYTHON_PROCESS_LIMIT_MEM_MB)",
    "pids": "it had more than {pids} processes and threads (MAXKB_NSBOX_PIDS)",
    "policy": "it made a system call that the policy forbids",
    "cancelled": "it was cancelled",
    "interrupted": "the service went away",
}


def write_all(fd, data):
    while data:
        data = data[os.write(fd, data):]


def encoded(path):
    with open(path, "rb") as f:
        return base64.b64encode(f.read()).decode("ascii")


class Lines:
    """The messages in a stream that comes in pieces."""

    def __init__(self, seen):
        self.seen = seen
        self.pieces = []
        self.size = 0

    def add(self, data):
        *whole, rest = data.split(b"\n")
        for line in whole:
            self.keep(line)
            self.look(b"".join(self.pieces))
            self.pieces, self.size = [], 0
        self.keep(rest)

    def keep(self, piece):
        self.size += len(piece)
        if self.size <= LINE_MAX:
            self.pieces.append(piece)

    def look(self, line):
        try:
            message = json.loads(line)
        except ValueError:
            return
        if isinstance(message, dict) and "id" in message:
            self.seen(message)


class Server:
    def __init__(self, settings, argv, more=None):
        self.settings = settings
        self.more = more or {}
        self.argv = argv
        self.lock = threading.Lock()
        self.open = {}     # ids of requests without an answer, as JSON; a dict keeps their order
        self.trouble = None  # why there is no server to answer
        self.ended = b"\n"   # the last byte that was written
        self.said = b""      # the end of standard error
        self.job = None
        self.link = None     # for input
        self.feeding = False
        self.over = threading.Event()  # nobody asks any more

    # ------------------------------------------------------------ what is said

    def asked(self, message):
        if "method" not in message:
            return
        with self.lock:
            self.open[json.dumps(message["id"])] = True
        if self.trouble:
            self.give_up()

    def answered(self, message):
        if "method" not in message:
            with self.lock:
                self.open.pop(json.dumps(message["id"]), None)

    def give_up(self):
        """Answer in the server's place what waits for an answer."""
        with self.lock:
            left, self.open = self.open, {}
            for number in left:
                text = '{"jsonrpc": "2.0", "id": %s, "error": {"code": %d, "message": %s}}\n' % (
                    number, FAILED, json.dumps(self.trouble))
                if self.ended != b"\n":
                    text = "\n" + text
                write_all(1, text.encode("ascii"))
                self.ended = b"\n"

    # ------------------------------------------------------------ input

    def post(self, data):
        """One piece, as often as it takes; False: nobody reads any more."""
        self.link = self.link or client.connect(self.settings, 60)
        connection, headers = self.link
        while True:
            connection.request("POST", "/v1/jobs/%s/stdin" % self.job, data, headers)
            answer = connection.getresponse()
            answer.read()
            if answer.status != 429:
                return answer.status == 200
            time.sleep(0.02)

    def send(self, data):
        for _ in range(2):  # the service closes a connection that was idle for a minute
            try:
                return self.post(data)
            except (OSError, client.http.client.HTTPException):
                self.link[0].close()
        return False

    def start_feeding(self):
        if not self.feeding:
            self.feeding = True
            threading.Thread(target=self.feed, daemon=True).start()

    def feed(self):
        parent = os.getppid()
        lines = Lines(self.asked)
        reads = True
        while True:
            data = os.read(0, CHUNK)
            lines.add(data)
            if reads and not self.trouble:
                reads = self.send(data)
            if not data:
                break
        self.over.set()
        # Who has closed our input waits for the end, and ends us where it does not come. Is there anybody?
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    # ------------------------------------------------------------ output

    def pass_on(self, fd, value, lines):
        data = value["text"].encode("utf-8") if "text" in value else base64.b64decode(value["base64"])
        if lines:
            lines.add(data)
        with self.lock:
            write_all(fd, data)
            if fd == 1 and data:
                self.ended = data[-1:]
            elif data:
                self.said = (self.said + data)[-4096:]

    def events(self, answer):
        """(name, data) of each event."""
        rest = b""
        while True:
            data = answer.read1(CHUNK)
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n\n")
            for event in whole:
                fields = dict(line.split(b": ", 1) for line in event.split(b"\n"))
                yield fields[b"event"].decode(), json.loads(fields[b"data"])

    def body(self):
        python, flag, code = self.argv
        manifest = settings_module.Settings.manifest(self.settings, "maxkb-mcp")
        prelude = PRELUDE
        if not self.more.get("subprocess", self.settings.subprocess):
            manifest["process"]["subprocess"] = "skill"
            prelude = PRELUDE.replace("\ncode =", NO_PROGRAMS + "code =")
        manifest["resources"]["stdout"] = "%dMi" % self.settings.result_mb
        if "network" in self.more:
            manifest["network"] = self.more["network"]
        body = {"argv": [python, flag, prelude, code], "interactive": True, "manifest": manifest}
        if self.settings.image:
            body["image"] = self.settings.image
        if "files" in self.more:
            body["files"] = [{"path": name, "content_base64": encoded(path)}
                             for name, path in self.more["files"].items()]
        return body

    def run(self):
        """The run from beginning to end: its result, as the service gives it."""
        connection, headers = client.connect(self.settings, None)
        try:
            connection.connect()
        except OSError as error:
            raise client.unreachable(self.settings, error) from None
        connection.request("POST", "/v1/execute/command", json.dumps(self.body()),
                           dict(headers, **{"Content-Type": "application/json"}))
        answer = connection.getresponse()
        if answer.status != 200:
            raise client.Refused(client.why(json.loads(answer.read())))
        lines = Lines(self.answered)
        for name, value in self.events(answer):
            if name == "queued":
                self.job = value["job_id"]
                self.start_feeding()
            elif name == "stdout":
                self.pass_on(1, value, lines)
            elif name == "stderr":
                self.pass_on(2, value, None)
            elif name == "finished":
                return value.get("result") or {}
        raise client.Refused("the service at %s broke off the run" % self.settings.where)

    # ------------------------------------------------------------ the end

    def reason(self, result):
        """Why it is over, in one sentence; None where it ended as programs do."""
        cause = result.get("cause")
        if cause in CAUSES:
            return "the MCP server was ended: " + CAUSES[cause].format(**vars(self.settings))
        if result.get("stdout_truncated"):
            return "the MCP server wrote more than %d MB (MAXKB_NSBOX_RESULT_MB)" % self.settings.result_mb
        if cause == "exit" and result.get("exit_code") == 0:
            return None
        # Where no group counts memory a call for more of it fails, which Python says last of all.
        if self.said.rstrip().rpartition(b"\n")[2].startswith(b"MemoryError"):
            return "the MCP server ended: %s" % CAUSES["memory"].format(**vars(self.settings)).replace("used", "wanted")
        refused = sorted({d["name"] for d in result.get("denials") or () if d.get("layer") == "egress" and d.get("name")})
        return "the MCP server ended (%s)%s" % (
            result.get("msg"), "; the policy refused the network to " + ", ".join(refused) if refused else "")

    def fail(self, why):
        """No server: what is asked is answered with the reason, until nobody asks any more."""
        self.trouble = "nsbox did not run the MCP server: %s." % why
        print(self.trouble, file=sys.stderr, flush=True)
        self.give_up()
        self.start_feeding()
        self.over.wait()
        return 1

    def main(self):
        try:
            result = self.run()
        except client.Refused as error:
            return self.fail(error)
        except (OSError, ValueError, client.http.client.HTTPException) as error:
            return self.fail("the service at %s broke off the run (%s)" % (self.settings.where, error))
        if result.get("error"):
            return self.fail(client.why(result))
        why = self.reason(result)
        if why:
            print("nsbox: %s." % why, file=sys.stderr, flush=True)
        self.trouble = "nsbox: %s." % (why or "the MCP server ended without an answer")
        self.give_up()
        return result.get("exit_code") or (1 if why else 0)


class Given:
    """Settings as they were passed on."""

    def __init__(self, values):
        vars(self).update(values)


def main():
    told = json.loads(os.environ.pop("NSBOX_MAXKB"))
    argv = sys.argv[sys.argv.index("--") + 1:]
    status = Server(Given(told.pop("settings")), argv, told).main()
    sys.stdout.flush()
    os._exit(status)  # the other thread may be reading


if __name__ == "__main__":
    main()
