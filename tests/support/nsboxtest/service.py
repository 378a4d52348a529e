# SPDX-License-Identifier: Apache-2.0
"""nsboxd for a test: started on a private socket, asked over HTTP, ended without a trace."""

import http.client
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

from . import leftovers, paths, tap


OWN = ("nsboxd", "nsbox-spawn", "nsbox-egress")


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def fetch(sock, method, path, body=None, timeout=300.0, headers=None):
    """(status, headers, bytes) of one request."""
    connection = UnixConnection(sock, timeout)
    try:
        headers = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def ask(sock, method, path, body=None, timeout=300.0, headers=None):
    """(status, decoded JSON or text) of one request."""
    status, answered, raw = fetch(sock, method, path, body, timeout, headers)
    if "json" in (answered.get("Content-Type") or ""):
        return status, json.loads(raw.decode("utf-8"))
    return status, raw.decode("utf-8", "replace")


# Another user may be unable to read this tree, so it comes as an argument.
CLIENT = """
import http.client, json, socket, sys
sock, method, path, body = sys.argv[1:]
c = http.client.HTTPConnection("localhost", timeout=60)
c.sock = socket.socket(socket.AF_UNIX)
c.sock.connect(sock)
c.request(method, path, None if body == "null" else body.encode(), {"Content-Type": "application/json"})
answer = c.getresponse()
text = answer.read().decode()
print(json.dumps([answer.status, json.loads(text) if "json" in (answer.getheader("Content-Type") or "") else text]))
"""


def ask_as(uid, daemon, method, path, body=None):
    """[status, answer] that another user gets; as root alone."""
    done = subprocess.run(["/usr/bin/python3", "-c", CLIENT, daemon.socket, method, path, json.dumps(body)],
                          user=uid, group=uid, extra_groups=[], capture_output=True, text=True, cwd="/", check=False)
    return json.loads(done.stdout) if done.stdout else [0, done.stderr]


def peer_pid(sock):
    """Who listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.connect(sock)
        return struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


class Daemon:
    """A service of our own, or (socket given) one that runs already."""

    def __init__(self, sock=None, env=None, options=(), data=None, under=()):
        """data: the data directory, which then stays; without it one that goes with the service.

        under: a program and its arguments that starts it.
        """
        self.process = None
        self.dir = None
        if sock:
            self.socket = sock
            self.pid = peer_pid(sock)
            return
        # The service may give up root for a user of its own: it has to reach the socket's place.
        self.dir = tempfile.mkdtemp(prefix="nsbox-e2e-")
        os.chmod(self.dir, 0o755)
        self.socket = os.path.join(self.dir, "nsbox.sock")
        self.log_path = os.path.join(self.dir, "log")
        self.data = data or os.path.join(self.dir, "data")
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [*under, paths.NSBOXD, "--socket", self.socket, "--data-dir", self.data, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=dict(os.environ, **(env or {})), start_new_session=True)
        self.pid = self.process.pid
        tap.wait_until(lambda: self.process.poll() is not None or self.ready(), 20 * tap.slow())
        if self.process.poll() is not None or not self.ready():
            log = self.log()
            self.stop()
            raise RuntimeError("nsboxd did not become ready:\n" + log)

    def ready(self):
        if self.process and self.process.poll() is not None:
            return False
        if not leftovers.is_socket(self.socket):
            return False
        try:
            return self.ask("GET", "/healthz", timeout=5)[0] == 200
        except OSError:
            return False

    def log(self):
        return leftovers.read(self.log_path) if self.dir else ""

    def ask(self, method, path, body=None, timeout=300.0, headers=None):
        return ask(self.socket, method, path, body, timeout, headers)

    def fetch(self, method, path, body=None, timeout=300.0, headers=None):
        return fetch(self.socket, method, path, body, timeout, headers)

    def pids(self):
        """The service's own long-lived processes, and none of its sandboxes'.

        A worker, which has the name of its program as soon as it runs, may still be about for a moment.
        """
        seen = None
        while True:
            now = [pid for (pid, _), name in leftovers.descendants(self.pid).items()
                   if name in OWN and not leftovers.in_sandbox(pid)]
            if now == seen:
                return [self.pid, *now]
            seen = now
            time.sleep(0.5)

    def stop(self):
        """TERM, 3 s later another, which waits for no run, and then KILL; the exit status."""
        status = None
        if self.process:
            for how, seconds in ((signal.SIGTERM, 3), (signal.SIGTERM, 10), (signal.SIGKILL, None)):
                if self.process.poll() is None:
                    self.process.send_signal(how)
                try:
                    status = self.process.wait(seconds)
                    break
                except subprocess.TimeoutExpired:
                    pass
            self.process = None
        if self.dir:
            for _ in range(20):
                try:
                    shutil.rmtree(self.dir)
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.1)
            self.dir = None
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
