# SPDX-License-Identifier: Apache-2.0
"""From the words of a case to the product's two interfaces, and back.

A driver has run(step, case) -> Outcome. The translation of the manifest is one table, the same for
both; what differs is how files travel and where the report is found.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from . import cases, outside, paths, service

# No run of a case may take longer than this, whatever its manifest says.
GUARD_SECONDS = 300


def work_path(path):
    """Paths of a case are relative to the working directory or absolute."""
    return path if path.startswith("/") else "${work}/" + path


MANIFEST = {
    # key of the case: (where it goes, how its value is written)
    "network": (("network", "mode"), lambda v: cases.NETWORKS[v]),
    "network_allow": (("network", "allow"), lambda v: [
        {"host": entry.rpartition(":")[0], "ports": [int(entry.rpartition(":")[2])], "description": "case"} for entry in v]),
    "memory_mb": (("resources", "memory"), lambda v: "%dMi" % v),
    "pids": (("resources", "pids"), lambda v: v),
    "cpus": (("resources", "cpu"), str),
    "timeout_s": (("timeouts", "wall"), lambda v: "%gs" % v),
    "allow_subprocess": (("process", "subprocess"), lambda v: "any" if v else "none"),
    "env": (("env", "set"), lambda v: v),
    "read_only": (("filesystem", "readOnly"), lambda v: [work_path(p) for p in v]),
    "deny_read": (("filesystem", "mask"), lambda v: [work_path(p) for p in v]),
    "executables": (("files", "executable"), lambda v: v),
    "extra_syscalls": (("syscalls", "allow"), lambda v: v),
}


def manifest_of(step, case):
    """The product's manifest for a run; `tty` is a request and not in it."""
    wishes = {**case.get("manifest", {}), **step.get("manifest", {})}
    out = {"manifestVersion": 1, "name": "case"}
    for key, value in wishes.items():
        if key == "max_output_bytes":
            out.setdefault("resources", {}).update(stdout=value, stderr=value)
        elif key in MANIFEST:
            (section, name), write = MANIFEST[key]
            out.setdefault(section, {})[name] = write(value)
    return out


def wants(step, case, key, default=None):
    return step.get("manifest", {}).get(key, case.get("manifest", {}).get(key, default))


def file_entries(case):
    """(path, kind, bytes or target, mode) of the files of a case."""
    for path, what in case.get("files", {}).items():
        if isinstance(what, str):
            what = {"text": what}
        if "symlink" in what:
            yield path, "symlink", what["symlink"], 0
        elif "base64" in what:
            yield path, "file", base64.b64decode(what["base64"]), int(what.get("mode", "0644"), 8)
        else:
            yield path, "file", what["text"].encode(), int(what.get("mode", "0644"), 8)


def expects(step, key):
    """Is a key asked for, also within any_of?"""
    def inside(expect):
        return key in expect or any(inside(p) for p in expect.get("any_of", ()))
    return inside(step.get("expect", {}))


def signal_name(value):
    """The report may name or number a signal."""
    if not value or value == "none":
        return "none"
    if isinstance(value, str):
        return value if value.startswith("SIG") else "SIG" + value
    return signal.Signals(value).name


def fill(outcome, report):
    """What both reports have in common."""
    cause = report.get("cause")
    error = report.get("error") or {}
    outcome.raw = report
    outcome.exit = report.get("exit_code")
    outcome.signal = signal_name(report.get("signal"))
    outcome.timed_out = cause == "wallTime"
    outcome.oom = cause == "memory"
    outcome.cancelled = cause == "cancelled"
    outcome.stdout_truncated = bool(report.get("stdout_truncated"))
    outcome.message = error.get("message") or ""
    outcome.failed = cause != "exit" or outcome.exit != 0
    outcome.notes = list(report.get("notes") or [])
    outcome.notes += ["not enforced: %s" % row["layer"] for row in report.get("notEnforced") or ()]
    if cause in (None, "none", "sandbox"):
        refuse(outcome, outcome.message)


def refuse(outcome, message):
    outcome.refused = outcome.failed = True
    outcome.exit = None
    outcome.message = message


def fill_python(outcome, good, value, message):
    outcome.failed = not good
    if good:
        outcome.exit, outcome.has_value, outcome.value = 0, True, value
    elif not outcome.refused:
        # The call failed, however well the interpreter ended.
        outcome.exit = outcome.exit or 1
        outcome.message = "\n".join(filter(None, [str(message or ""), outcome.message]))


class Cli:
    name = "cli"

    def __init__(self, nsbox=None, extra=()):
        self.nsbox = nsbox or paths.NSBOX
        self.extra = list(extra)
        self.servers = None
        self.private = paths.scratch("nsbox-cases-tmp-")
        self.active = set()
        self.lock = threading.Lock()
        self.service = None  # for cases that need one

    def service_pids(self):
        return self.service.pids() if self.service else []

    def watched(self):
        return [self.private]

    def close(self):
        if self.service:
            self.service.stop()
        if self.servers:
            self.servers.stop()

    def options(self, case):
        """What is outside for a case that asks for it is made for the first of them."""
        if not cases.wants_servers(case):
            return []
        self.servers = self.servers or outside.Servers()
        return self.servers.options()

    def command(self, step, case, place):
        """(argv, directory of collected files or None)"""
        argv = [self.nsbox, "run", "--result", os.path.join(place, "report"), *self.extra, *self.options(case)]
        with open(os.path.join(place, "manifest.json"), "w", encoding="utf-8") as f:
            json.dump(manifest_of(step, case), f)
        argv += ["--manifest", os.path.join(place, "manifest.json")]
        argv += ["--tty" if wants(step, case, "tty") else "--no-tty"]
        tree = os.path.join(place, "files")
        os.mkdir(tree)
        for path, kind, what, mode in file_entries(case):
            full = os.path.join(tree, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            if kind == "symlink":
                os.symlink(what, full)
            else:
                with open(full, "wb") as f:
                    f.write(what)
                os.chmod(full, mode)
        for name in sorted(os.listdir(tree)):
            argv += ["--put", os.path.join(tree, name) + ":" + name]
        if "package" in case:
            with open(os.path.join(place, "package.zip"), "wb") as f:
                f.write(base64.b64decode(case["package"]["base64"]))
            argv += ["--unpack", os.path.join(place, "package.zip")]
        output = None
        if expects(step, "files_out"):
            output = os.path.join(place, "out")
            os.mkdir(output)
            argv += ["--output", output, "--collect", "**"]
        run = step["run"]
        if "argv" in run:
            return argv + ["--", *run["argv"]], output
        for name, text in (("code.py", run["python"]), ("params", json.dumps(run.get("params", {})))):
            with open(os.path.join(place, name), "w", encoding="utf-8") as f:
                f.write(text)
        argv += ["--python", os.path.join(place, "code.py"), "--params", "@" + os.path.join(place, "params")]
        if "function" in run:
            argv += ["--function", run["function"]]
        return argv, output

    def run(self, step, case):
        if session_of(case):
            return self.run_in_session(step, case)
        place = tempfile.mkdtemp(prefix="nsbox-case-")
        try:
            return self.run_in(place, step, case)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def run_in_session(self, step, case):
        """By `nsbox session exec`, with a service of our own."""
        if not self.service:
            self.service = service.Daemon()
            self.active.add(self.service.pid)
        argv = [self.nsbox, "session", "exec", "--socket", self.service.socket, "--json"]
        if "timeout_s" in step.get("manifest", {}):
            argv += ["--timeout", str(step["manifest"]["timeout_s"])]
        argv += [session_of(case), "--", *step["run"]["argv"]]
        began = time.monotonic()
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=GUARD_SECONDS, check=False)
        outcome = cases.Outcome()
        outcome.duration = time.monotonic() - began
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            refuse(outcome, done.stderr.decode("utf-8", "replace"))
            return outcome
        fill_answer(outcome, answer)
        return outcome

    def run_in(self, place, step, case):
        argv, output = self.command(step, case, place)
        outcome = cases.Outcome()
        text = step.get("stdin", case.get("stdin"))
        began = time.monotonic()
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 env=dict(os.environ, TMPDIR=self.private), start_new_session=True)
        with self.lock:
            self.active.add(child.pid)
        timer = None
        if "cancel_after_s" in case:
            timer = threading.Timer(case["cancel_after_s"], child.send_signal, [signal.SIGTERM])
            timer.start()
        try:
            outcome.stdout, outcome.stderr = child.communicate(
                None if text is None else text.encode(), timeout=GUARD_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            outcome.stdout, outcome.stderr = child.communicate()
            outcome.notes.append("the harness ended it after %d s" % GUARD_SECONDS)
        finally:
            if timer:
                timer.cancel()
            with self.lock:
                self.active.discard(child.pid)
        outcome.duration = time.monotonic() - began
        self.report(place, step, outcome, child.returncode)
        if output:
            outcome.files = read_tree(output)
        return outcome

    def report(self, place, step, outcome, status):
        try:
            with open(os.path.join(place, "report"), encoding="utf-8") as f:
                report = json.load(f)
        except (OSError, ValueError):
            report = None
        if report is None:
            refuse(outcome, outcome.text("stderr"))
            outcome.raw = {"no report, exit status": status}
            if status != 125:
                # An error of nsbox itself has a status of its own; anything else here is a bug.
                outcome.refused = False
            return
        fill(outcome, report)
        if "python" in step["run"]:
            fill_python(outcome, report.get("code") == 200, report.get("data"), report.get("msg"))
        elif outcome.exit is not None and status != outcome.exit:
            outcome.notes.append("nsbox's own status was %d" % status)
            outcome.exit = status


def session_of(case):
    """The session that all steps of a case share, or None."""
    return "case-" + case["id"] if case["run"].get("same_session") else None


def fill_answer(outcome, answer):
    """The daemon's answer: the report and the streams."""
    fill(outcome, answer)
    for stream in ("stdout", "stderr"):
        raw = answer.get(stream + "_base64")
        if raw is not None:
            setattr(outcome, stream, base64.b64decode(raw))
        else:
            setattr(outcome, stream, (answer.get(stream) or "").encode())


def read_tree(root):
    found = {}
    for where, _, names in os.walk(root):
        for name in names:
            full = os.path.join(where, name)
            if not os.path.islink(full):
                with open(full, "rb") as f:
                    found[os.path.relpath(full, root)] = f.read()
    return found


class Daemon:
    name = "daemon"

    def __init__(self, sock=None, servers=True):
        self.servers = outside.Servers() if servers and not sock else None
        self.service = service.Daemon(sock, options=self.servers.daemon_options() if self.servers else ())
        self.active = {self.service.pid}
        self.pids = self.service.pids()

    def service_pids(self):
        return self.pids

    def watched(self):
        return []

    def close(self):
        self.service.stop()
        if self.servers:
            self.servers.stop()

    def body(self, step, case):
        run = step["run"]
        body = {"manifest": manifest_of(step, case)}
        files = []
        for path, kind, what, mode in file_entries(case):
            if kind == "symlink":
                files.append({"path": path, "symlink": what})
            else:
                files.append({"path": path, "content_base64": base64.b64encode(what).decode(),
                              "mode": "%04o" % mode})
        if files:
            body["files"] = files
        if "package" in case:
            body["archive_base64"] = case["package"]["base64"]
        if expects(step, "files_out"):
            body["outputs"] = ["**"]
        if wants(step, case, "extra_syscalls"):
            body["operator"] = True  # who may ask for calls by name
        if session_of(case):
            # The policy is the session's, made by the first step: of a later one's wishes only
            # the time can be another.
            body["session_id"] = session_of(case)
            body["manifest"] = manifest_of({}, case)
            if "timeout_s" in step.get("manifest", {}):
                body["timeout_seconds"] = step["manifest"]["timeout_s"]
        if "argv" in run:
            text = step.get("stdin", case.get("stdin"))
            if text is not None:
                body["stdin"] = text
            if wants(step, case, "tty"):
                body["tty"] = True
            return "command", dict(body, argv=run["argv"])
        body.update(code=run["python"], params=run.get("params", {}))
        if "function" in run:
            body["function_name"] = run["function"]
        return "python-function", body

    def run(self, step, case):
        kind, body = self.body(step, case)
        outcome = cases.Outcome()
        began = time.monotonic()
        if "cancel_after_s" in case:
            status, answer = self.cancelled(kind, body, case["cancel_after_s"])
        else:
            status, answer = self.service.ask("POST", "/v1/execute/" + kind, body, GUARD_SECONDS)
        outcome.duration = time.monotonic() - began
        if not isinstance(answer, dict):
            refuse(outcome, "")
            outcome.refused = False
            outcome.raw = "HTTP %d %r" % (status, answer)
            return outcome
        self.report(outcome, kind, status, answer)
        return outcome

    def cancelled(self, kind, body, seconds):
        status, answer = self.service.ask("POST", "/v1/jobs", dict(body, kind=kind))
        if status not in (200, 201, 202):
            return status, answer
        job = "/v1/jobs/%s" % answer["id"]
        time.sleep(seconds)
        self.service.ask("DELETE", job)
        end = time.monotonic() + GUARD_SECONDS
        while time.monotonic() < end:
            status, answer = self.service.ask("GET", job)
            if status != 200 or answer.get("state") not in ("queued", "running"):
                break
            time.sleep(0.02)
        return status, answer.get("result") or answer

    def report(self, outcome, kind, status, answer):
        fill_answer(outcome, answer)
        outcome.files = {o["path"]: base64.b64decode(o["content_base64"])
                         for o in answer.get("outputs") or ()}
        if status >= 400 and outcome.refused:
            outcome.message = outcome.message or str(answer.get("msg") or "")
        if kind == "python-function":
            fill_python(outcome, answer.get("code") == 200, answer.get("data"), answer.get("msg"))
