#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How the service is configured and led: its file, a reload, tokens over TCP, the service manager, its end."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, paths, service, tap

ROOT = os.getuid() == 0
TOKENS = {"team-a": "a" * 32, "team-b": "b" * 32}
PRINT = {"argv": ["echo", "hello"]}


def write(path, data, mode=0o644):
    with open(path, "w", encoding="utf-8") as f:
        f.write(data if isinstance(data, str) else json.dumps(data))
    os.chmod(path, mode)
    return path


class Place:
    """A directory that goes at the end."""

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix="config-e2e-")
        os.chmod(self.dir, 0o755)
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.dir)

    def write(self, name, data, mode=0o644):
        return write(os.path.join(self.dir, name), data, mode)


def nsboxd(*args):
    r = subprocess.run([paths.NSBOXD, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                       timeout=20)
    return r.returncode, r.stdout + r.stderr


def nsbox(daemon, *args):
    r = subprocess.run([paths.NSBOX, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                       timeout=60, env=dict(os.environ, NSBOX_SOCKET=daemon.socket))
    return r.returncode, r.stdout + r.stderr


# --------------------------------------------------------------- the file

GOOD = {"runners": 2, "queue": 10, "allowUids": [54321], "users": {"54321": "team-a"}, "keepResults": "1h",
        "keepSize": "64Mi", "drain": "5s", "workspaces": {"*": {"runners": 1}, "team-a": {"cpuPerHour": "10m"}},
        "ceiling": {"memory": "64Mi"}}

# What is wrong, and what the message has to say.
WRONG = (
    ('{\n "runnners": 2\n}', ":2: /runnners: unknown key, did you mean \"runners\""),
    ('{"runners": "2"}', "/runners"),
    ('{"runners": 0}', "/runners"),
    ('{"queue": 1.5}', "/queue"),
    ('{"keepResults": 60}', "/keepResults"),
    ('{"dataDir": "here"}', "absolute"),
    ('{\n\n"workspaces": {"a": {"cpuPerHour": "1ms"}}}', ":3: /workspaces/a/cpuPerHour"),
    ('{"workspaces": {"a": {"directory": "ws"}}}', "/workspaces/a/directory: must be an absolute path"),
    ('{"workspaces": {"*": {"directory": "/srv"}}}', "/workspaces/*/directory: is of one workspace"),
    ('{"minTier": "none"}', "/minTier"),
    ('{"ceiling": {"memory": "lots"}}', "/ceiling/memory"),
    ('{"users": {"x": "team"}}', "/users/x"),
    ('{"tcp": {"listen": "127.0.0.1:1"}}', "/tcp/tokens: is required"),
    ('{"runners": 1, "runners": 2}', "runners"),
    ("{", "line 1"),
    ("[]", "expected an object"),
)


def test_file(t):
    with Place() as p:
        good = p.write("c.json", GOOD)
        t.equal(nsboxd("--config", good, "--check"), (0, "nsboxd: configuration and options are right\n"),
                "a right file is right")
        for text, what in WRONG:
            status, said = nsboxd("--config", p.write("w.json", text), "--check")
            t.ok(status == 1 and what in said and "w.json" in said, "%s is refused with its place" % text.split("\n")[0],
                 said)
        os.chmod(good, 0o666)
        status, said = nsboxd("--config", good, "--check")
        t.ok(status == 1 and "chmod" in said, "a file that anyone may change is refused", said)
        status, said = nsboxd("--config", os.path.join(p.dir, "none"), "--check")
        t.ok(status == 1 and "none" in said, "one that is not there, too", said)


def test_in_force(t):
    with Place() as p, service.Daemon(options=["--config", p.write("c.json", GOOD)]) as d:
        t.ok(tap.wait_until(lambda: "nsboxd: ready on " + d.socket in d.log(), 5), "it says when it is ready", d.log())
        _, health = d.ask("GET", "/healthz")
        t.equal((health["queue"]["runners"], health["queue"]["max"]), (2, 10), "numbers of the file are in force")
        status, r = d.ask("POST", "/v1/execute/command", dict(PRINT, manifest={"manifestVersion": 1, "resources": {"memory": "128Mi"}}))
        t.ok(status == 400 and r["error"]["pointer"] == "/manifest/resources/memory", "so is the ceiling", "%r" % r)
        status, r = d.ask("POST", "/v1/execute/command", dict(PRINT, manifest={"manifestVersion": 1, "resources": {"memory": "64Mi"}}))
        t.ok(status == 200 and r["stdout"] == "hello\n", "and what is below it runs", "%r" % r)
    with service.Daemon() as d:
        status, r = d.ask("POST", "/v1/execute/command", dict(PRINT, manifest={"manifestVersion": 1, "resources": {"memory": "128Mi"}}))
        t.ok(status == 200, "which runs without that ceiling", "%r" % r)


def test_cpu_per_hour(t):
    limits = {"workspaces": {"busy": {"cpuPerHour": "1s"}}}
    spin = {"argv": ["sh", "-c", "ulimit -t 2; while :; do :; done"], "workspace_id": "busy"}
    with Place() as p, service.Daemon(options=["--config", p.write("c.json", limits)]) as d:
        t.equal(d.ask("POST", "/v1/execute/command", spin)[0], 200, "a workspace with processor time left runs")
        status, r = d.ask("POST", "/v1/execute/command", spin)
        t.ok(status == 429 and "processor time" in r["error"]["message"], "one that has used it up is told so", "%r" % r)
        connection = service.UnixConnection(d.socket, 10)
        connection.request("POST", "/v1/jobs", json.dumps(dict(spin, kind="command")))
        answer = connection.getresponse()
        answer.read()
        connection.close()
        t.ok(answer.status == 429 and 3000 < int(answer.getheader("Retry-After")) <= 3600, "and when to come back",
             answer.getheader("Retry-After"))
        t.equal(d.ask("POST", "/v1/execute/command", dict(PRINT, workspace_id="idle"))[0], 200, "another runs meanwhile")


def test_run_ceiling(t):
    with Place() as p:
        ceiling = p.write("ceiling.json", {"memory": "64Mi"})
        manifest = p.write("m.json", {"manifestVersion": 1, "resources": {"memory": "128Mi"}})
        run = [paths.NSBOX, "run", "-m", manifest]
        r = subprocess.run([*run, "--ceiling", ceiling, "true"], capture_output=True, text=True, check=False)
        t.ok(r.returncode == 125 and "/resources/memory" in r.stderr, "nsbox run --ceiling refuses more", r.stderr)
        r = subprocess.run([*run, "true"], capture_output=True, text=True, check=False)
        t.ok(r.returncode == 0, "which runs without", r.stderr)


# --------------------------------------------------------------- reload

def test_reload(t):
    with Place() as p:
        path = p.write("c.json", GOOD)
        with service.Daemon(options=["--config", path]) as d:
            p.write("c.json", dict(GOOD, runners=3, queue=20))
            d.process.send_signal(signal.SIGHUP)
            t.ok(tap.wait_until(lambda: d.ask("GET", "/healthz")[1]["queue"]["runners"] == 3, 5), "HUP reads it again")
            p.write("c.json", dict(GOOD, runners=4, queue=0))
            status, r = d.ask("POST", "/v1/daemon/reload")
            t.ok(status == 409 and r["error"]["message"].endswith("must be at least 1") and "/queue" in json.dumps(r),
                 "a wrong file is refused", "%r" % r)
            q = d.ask("GET", "/healthz")[1]["queue"]
            t.equal((q["runners"], q["max"]), (3, 20), "and nothing of it is in force")
            p.write("c.json", dict(GOOD, runners=5))
            status, r = nsbox(d, "daemon", "reload")
            t.equal((status, d.ask("GET", "/healthz")[1]["queue"]["runners"]), (0, 5), "nsbox daemon reload")
            p.write("c.json", dict(GOOD, user="daemon", runners=6))
            status, r = nsbox(d, "daemon", "reload")
            t.ok(status == 125 and "restart" in r, "what takes a restart is refused by name", r)
            t.equal(d.ask("GET", "/healthz")[1]["queue"]["runners"], 5, "with all that came with it")
            status, r = nsbox(d, "daemon", "status")
            t.ok(status == 0 and "running      0 of 5" in r, "nsbox daemon status", r)
            audit = leftovers.read(os.path.join(d.data, "audit.log"))
            t.equal((audit.count('"what":"in force"'), audit.count('"what":"refused"')), (2, 2),
                    "the audit knows what came into force, and what did not")


# --------------------------------------------------------------- tokens over TCP

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ask_tcp(port, method, path, body=None, token=None, header=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Authorization": header or "Bearer " + token} if header or token else {}
    try:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def tokens_text(tokens):
    return "# who\n" + "".join("%s  %s\n" % item for item in tokens.items())


def closed_by_tcp(t, d, port):
    """A connection that is closed ends what it waits for, and no job that it only made."""
    def states(job):
        return d.ask("GET", "/v1/jobs/" + job)[1]["state"]

    def running():
        return [j["id"] for j in d.ask("GET", "/v1/jobs")[1]["jobs"] if j["state"] == "running"]
    kept = ask_tcp(port, "POST", "/v1/jobs", {"kind": "command", "argv": ["sleep", "300"]}, TOKENS["team-b"])[1]["id"]
    body = json.dumps({"argv": ["sleep", "300"]})
    with socket.create_connection(("127.0.0.1", port), 60) as s:
        s.sendall(("POST /v1/execute/command HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s"
                   % (TOKENS["team-b"], len(body), body)).encode())
        t.ok(tap.wait_until(lambda: len(running()) == 2, 60), "a call by TCP, and a job")
    t.ok(tap.wait_until(lambda: running() == [kept], 60), "the call ends with its connection, the job does not")
    d.ask("DELETE", "/v1/jobs/" + kept)
    t.ok(tap.wait_until(lambda: states(kept) == "finished", 60), "but when it is told to")


def test_tokens(t):
    port = free_port()
    with Place() as p:
        path = p.write("tokens", tokens_text(TOKENS), 0o600)
        with service.Daemon(options=["--tcp", "127.0.0.1:%d" % port, "--tokens", path]) as d:
            t.equal(ask_tcp(port, "GET", "/healthz")[0], 401, "without a token there is nothing")
            for wrong in ("Bearer " + "c" * 32, "Bearer " + "a" * 31, "Bearer", "Basic " + "a" * 32, "bearer  " + "a" * 32):
                t.equal(ask_tcp(port, "GET", "/v1/jobs", header=wrong)[0], 401, "nor with %r" % wrong[:12])
            status, job = ask_tcp(port, "POST", "/v1/jobs", dict(PRINT, kind="command"), TOKENS["team-a"])
            t.ok(status == 202 and job["workspace_id"] == "team-a", "a job belongs to the token's workspace", "%r" % job)
            one = "/v1/jobs/" + job["id"]
            t.equal(ask_tcp(port, "GET", one, token=TOKENS["team-b"])[0], 404, "another workspace does not see it")
            t.equal(ask_tcp(port, "GET", one, token=TOKENS["team-a"])[0], 200, "its own does")
            status, r = ask_tcp(port, "POST", "/v1/execute/command", dict(PRINT, workspace_id="team-a"), TOKENS["team-b"])
            t.equal(status, 403, "nobody can name another's workspace")
            t.equal(ask_tcp(port, "POST", "/v1/daemon/drain", {}, TOKENS["team-a"])[0], 403, "nor end the service")
            status, r = ask_tcp(port, "POST", "/v1/execute/command", PRINT, TOKENS["team-b"])
            t.ok(status == 200 and r["stdout"] == "hello\n", "a call over TCP", "%r" % r)
            closed_by_tcp(t, d, port)
            p.write("tokens", tokens_text({"team-b": TOKENS["team-b"]}), 0o600)
            t.equal(nsbox(d, "daemon", "reload")[0], 0, "tokens are read again")
            t.equal(ask_tcp(port, "GET", one, token=TOKENS["team-a"])[0], 401, "one that was taken away is worth nothing")
            t.equal(ask_tcp(port, "GET", "/healthz", token=TOKENS["team-b"])[0], 200, "one that was left is")
            os.chmod(path, 0o644)
            status, r = nsbox(d, "daemon", "reload")
            t.ok(status == 125 and "chmod 600" in r, "a file that others can read is refused", r)
            text = d.log() + leftovers.read(os.path.join(d.data, "audit.log"))
            t.ok(all(token not in text for token in TOKENS.values()), "no token is in log or audit")
            t.ok('"by":"token"' in text and "a token is needed" in text, "the audit knows who was refused")
        t.equal(nsboxd("--tcp", "127.0.0.1:%d" % port, "--check")[0], 1, "TCP without tokens is refused")
        os.chmod(path, 0o600)
        args = ["--tcp", "0.0.0.0:%d" % port, "--tokens", path, "--socket", os.path.join(p.dir, "s"), "--data-dir",
                os.path.join(p.dir, "data")]
        status, said = nsboxd(*args)
        t.ok(status == 1 and "--tcp-any-address" in said, "an address for all the world is refused", said)
        with service.Daemon(options=["--tcp", "0.0.0.0:%d" % port, "--tokens", path, "--tcp-any-address"]) as d:
            t.ok("unencrypted" in d.log(), "unless it is asked for, with a warning", d.log())
            t.equal(ask_tcp(port, "GET", "/healthz", token=TOKENS["team-b"])[0], 200, "and then it serves")


# --------------------------------------------------------------- who may reach the socket

def test_directory(t):
    if not ROOT:
        return
    with Place() as p:
        os.mkdir(os.path.join(p.dir, "closed"), 0o750)
        args = ["--socket", os.path.join(p.dir, "closed", "s"), "--data-dir", os.path.join(p.dir, "data"),
                "--allow-uid", "54321"]
        status, said = nsboxd(*args)
        t.ok(status == 1 and "54321" in said and "chmod o+x" in said, "a directory that keeps an allowed user out", said)
        os.chmod(os.path.join(p.dir, "closed"), 0o751)
        process = subprocess.Popen([paths.NSBOXD, *args], stderr=subprocess.DEVNULL)
        t.ok(tap.wait_until(lambda: leftovers.is_socket(args[1]), 10), "one that does not is as good as any")
        process.terminate()
        process.wait(20)


# --------------------------------------------------------------- the service manager

def test_manager(t):
    with Place() as p:
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(os.path.join(p.dir, "notify"))
        os.chmod(os.path.join(p.dir, "notify"), 0o777)
        notify.settimeout(10)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.path.join(p.dir, "given"))
        listener.listen(16)

        def hear(word):
            while True:
                text = notify.recv(4096).decode()
                if word in text:
                    return text

        # LISTEN_PID is the service's own: a shell knows it before it becomes the service.
        env = dict(os.environ, NOTIFY_SOCKET=os.path.join(p.dir, "notify"), WATCHDOG_USEC="600000", LISTEN_FDS="1",
                   LOG=os.path.join(p.dir, "log"), NSBOXD=paths.NSBOXD, DATA=os.path.join(p.dir, "data"))
        process = subprocess.Popen(
            ["sh", "-c", 'exec 3<&%d 2>"$LOG"; export LISTEN_PID=$$; exec "$NSBOXD" --data-dir "$DATA"' % listener.fileno()],
            env=env, pass_fds=[listener.fileno()])
        t.ok("READY=1" in hear("READY"), "it says READY")
        status, health = service.ask(os.path.join(p.dir, "given"), "GET", "/healthz")
        t.equal((status, health["status"]), (200, "ok"), "and serves on the socket that it was given")
        t.ok(hear("WATCHDOG=1"), "it gives signs of life")
        front = [pid for pid, _ in leftovers.descendants(process.pid)]
        for pid in front:
            os.kill(pid, signal.SIGSTOP)
        try:
            notify.settimeout(0.1)
            try:
                while True:
                    notify.recv(4096) # what was said before
            except TimeoutError:
                pass
            time.sleep(1)
            try:
                t.ok(False, "none while its front hangs", notify.recv(4096).decode())
            except TimeoutError:
                t.ok(True, "none while its front hangs")
        finally:
            notify.settimeout(10)
            for pid in front:
                os.kill(pid, signal.SIGCONT)
        process.send_signal(signal.SIGHUP)
        t.ok("MONOTONIC_USEC=" in hear("RELOADING=1") and hear("READY=1"), "RELOADING, with the time, and READY again")
        process.terminate()
        t.ok(hear("STOPPING=1"), "STOPPING at the end")
        t.equal(process.wait(20), 0, "which is a good one")
        t.ok(os.path.exists(os.path.join(p.dir, "given")), "a socket that is not its own stays")
        listener.close()
        notify.close()


# --------------------------------------------------------------- the end

def slow(seconds):
    return {"kind": "command", "argv": ["sleep", str(seconds)]}


def test_drain(t):
    with Place() as p:
        data = os.path.join(p.dir, "data")
        with service.Daemon(data=data, options=["--runners", "1"]) as d:
            _, running = d.ask("POST", "/v1/jobs", slow(2))
            _, waiting = d.ask("POST", "/v1/jobs", slow(0))
            tap.wait_until(lambda: d.ask("GET", "/v1/jobs/" + running["id"])[1]["state"] == "running", 5)
            call = {}
            caller = threading.Thread(target=lambda: call.update(r=d.ask("POST", "/v1/execute/command", PRINT)))
            caller.start()
            tap.wait_until(lambda: d.ask("GET", "/healthz")[1]["queue"]["waiting"] == 2, 5)
            d.process.terminate()
            tap.wait_until(lambda: d.ask("GET", "/healthz")[0] == 503, 5)
            t.equal(d.ask("POST", "/v1/jobs", slow(0))[0], 503, "while it ends nothing is taken")
            caller.join()
            t.equal(call["r"][1].get("cause"), "interrupted", "a caller whose call has not begun is told at once")
            t.equal(d.process.wait(20), 0, "TERM lets it end well")
        with service.Daemon(data=data) as d:
            t.equal(d.ask("GET", "/v1/jobs/" + running["id"])[1].get("cause"), "exit", "what ran was finished")
            t.ok(tap.wait_until(lambda: d.ask("GET", "/v1/jobs/" + waiting["id"])[1].get("cause") == "exit", 10),
                 "what waited runs afterwards")
            _, job = d.ask("POST", "/v1/jobs", slow(30))
            tap.wait_until(lambda: d.ask("GET", "/v1/jobs/" + job["id"])[1]["state"] == "running", 5)
            began = time.monotonic()
            d.process.terminate()
            tap.wait_until(lambda: d.ask("GET", "/healthz")[0] == 503, 5)
            d.process.terminate()
            t.equal(d.process.wait(10), 0, "a second TERM does not wait")
            t.ok(time.monotonic() - began < 8, "for what runs", "%.1f s" % (time.monotonic() - began))
        with service.Daemon(data=data, options=["--drain", "1"]) as d:
            t.equal(d.ask("GET", "/v1/jobs/" + job["id"])[1].get("cause"), "interrupted", "which is interrupted")
            _, job = d.ask("POST", "/v1/jobs", slow(30))
            tap.wait_until(lambda: d.ask("GET", "/v1/jobs/" + job["id"])[1]["state"] == "running", 5)
            began = time.monotonic()
            status, said = nsbox(d, "daemon", "drain")
            t.equal((status, d.process.wait(10)), (0, 0), "nsbox daemon drain ends it, and waits for that")
            t.ok(1 <= time.monotonic() - began < 8, "what takes too long is not waited for", said)


def test_units(t):
    """make install's units, as systemd reads them."""
    with Place() as p:
        usr = os.path.join(p.dir, "usr")
        r = subprocess.run(["make", "-s", "-C", paths.ROOT, "-o", "all", "-o", "build/%s/libnsbox.so.0"
                            % os.environ.get("VARIANT", "release"), "install", "PREFIX=" + usr],
                           capture_output=True, text=True, check=False)
        t.equal(r.returncode, 0, "make install")
        units = [os.path.join(usr, "lib/systemd/system", name) for name in ("nsboxd.service", "nsboxd.socket")]
        r = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False)
        t.ok(r.returncode == 0 and "nsboxd" not in r.stderr, "systemd-analyze verify has nothing to say", r.stderr + r.stdout)
        service_text = leftovers.read(units[0])
        t.ok("Delegate=yes" in service_text and "Type=notify" in service_text and "WatchdogSec=" in service_text,
             "delegation, readiness, watchdog")
        etc = os.path.join(usr, "etc/nsbox/nsboxd.json")
        t.equal(nsboxd("--config", etc, "--check")[0], 0, "the configuration that it installs is right")
        config = os.path.join(usr, "lib")
        for tool, path in (("systemd-sysusers", "sysusers.d/nsbox.conf"), ("systemd-tmpfiles", "tmpfiles.d/nsbox.conf")):
            root = os.path.join(p.dir, tool)
            os.makedirs(os.path.join(root, "etc"))
            write(os.path.join(root, "etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")
            write(os.path.join(root, "etc/group"), "root:x:0:\n")
            r = subprocess.run([tool, "--root=" + root, *(["--create"] if "tmpfiles" in tool else []),
                                os.path.join(config, path)], capture_output=True, text=True, check=False)
            made = leftovers.read(os.path.join(root, "etc/passwd")) if "sysusers" in tool else \
                os.path.isdir(os.path.join(root, "run/nsbox"))
            t.ok(r.returncode == 0 and (made is True or "nsbox:" in made) or not ROOT, tool, r.stderr)


sys.exit(tap.run([test_file, test_in_force, test_cpu_per_hour, test_run_ceiling, test_reload, test_tokens, test_directory, test_manager,
                  test_drain, test_units]))
