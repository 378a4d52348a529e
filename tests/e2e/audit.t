#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Evidence: receipts, the audit and its chain, metrics, the trace of a request, what is in logs."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, paths, service, tap

JOBS = "/v1/jobs"
SECRET = "hunter2-5f3a9c"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def sha(data):
    return hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()


def audit(daemon):
    return [json.loads(line) for line in leftovers.read(os.path.join(daemon.data, "audit.log")).splitlines()]


def verify(*args):
    done = subprocess.run([paths.NSBOX, "audit", "verify", *args], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def command(daemon, text, **more):
    return daemon.ask("POST", "/v1/execute/command", dict({"command": text}, **more))[1]


def ask(daemon, method, path, body=None, headers=None):
    """Status, headers and text."""
    connection = service.UnixConnection(daemon.socket, 60)
    connection.request(method, path, json.dumps(body).encode() if body is not None else None, headers or {})
    answer = connection.getresponse()
    result = answer.status, dict(answer.getheaders()), answer.read().decode()
    connection.close()
    return result


def test_receipt(t, daemon):
    body = json.dumps({"command": "echo out; echo err >&2; echo f >f; exit 3", "outputs": ["f"],
                       "workspace_id": "w", "trace_id": "tr",
                       "manifest": {"manifestVersion": 1, "name": "m"}}).encode()
    _, reply = daemon.ask("POST", "/v1/execute/command", body)
    status, receipt = daemon.ask("GET", "/v1/receipts/" + reply["receipt_id"])
    t.equal((status, receipt["job_id"]), (200, reply["job_id"]), "a run has a receipt")
    t.equal((receipt["request_sha256"], receipt["stdout"]["sha256"], receipt["stderr"]["sha256"]),
            (sha(body), sha("out\n"), sha("err\n")), "with hashes of request and streams")
    t.equal(receipt["outputs"], [{"path": "f", "size": 2, "sha256": sha("f\n")}], "and of files")
    t.equal(receipt["manifest_sha256"], sha('{"manifestVersion":1,"name":"m"}'), "the manifest as it was given")
    t.equal(receipt["policy_sha256"], reply["policy_sha256"], "and as it was resolved")
    t.ok(re.fullmatch("[0-9a-f]{64}", receipt["plan_sha256"]) and re.match("host:|sha256:", receipt["image_digest"]),
         "the plan and the image", "%s %s" % (receipt.get("plan_sha256"), receipt.get("image_digest")))
    for key in ("enforced", "notEnforced", "witness", "witness_us", "limits"):
        t.equal(receipt[key], reply[key], "%s is as in the reply" % key)
    t.equal((receipt["cause"], receipt["exit_code"], receipt["workspace_id"], receipt["trace_id"]),
            ("exit", 3, "w", "tr"), "how it ended, and whose it was")
    t.ok(receipt["created_ms"] <= receipt["started_ms"] <= receipt["finished_ms"]
         and receipt["wall_us"] > 0 and receipt["setup_us"] > 0 and receipt["witness_us"] > 0, "and when")
    again = command(daemon, "true", manifest={"manifestVersion": 1, "name": "m"})
    other = daemon.ask("GET", "/v1/receipts/" + again["receipt_id"])[1]
    t.ok(other["manifest_sha256"] == receipt["manifest_sha256"] and other["image_digest"] == receipt["image_digest"],
         "the same manifest and image have the same hash")
    _, reply = daemon.ask("POST", "/v1/execute/command", {"command": "true", "manifest": {}})
    receipt = daemon.ask("GET", "/v1/receipts/" + reply["receipt_id"])[1]
    t.equal((receipt["status"], receipt["error"], receipt["cause"]), (400, {"code": "manifest", "stage": "resolve"},
            "none") if "stage" in receipt["error"] else (400, {"code": "manifest"}, "none"), "what was refused has one, too")
    t.equal(daemon.ask("GET", "/v1/receipts/none")[0], 404, "no other id has")


SHA = "[0-9a-f]{64}"
# Every field that a receipt has, by its path; what it has to be: a pattern, a value, or a judge.
RECEIPT = {
    "kind": "python-function", "workspace_id": "walk", "uid": os.getuid(), "trace_id": "tw", "traceparent": TRACE,
    "job_id": "job-.*", "receipt_id": "job-.*", "request_sha256": SHA, "manifest_sha256": SHA, "policy_sha256": SHA,
    "plan_sha256": SHA, "image_digest": "(host|sha256):[0-9a-f]{32,64}",
    "host.kernel": os.uname().release, "host.machine": os.uname().machine, "host.tier": "cgroup|namespace|process",
    "tier": "cgroup|namespace", "host.nsbox": r"[0-9]+\.[0-9]+\.[0-9]+.*",
    "cause": "exit", "status": 200, "exit_code": 0, "signal": 0, "oom_kills": 0, "pids_limit_hits": 0,
    "created_ms": 1.5e12, "started_ms": 1.5e12, "finished_ms": 1.5e12, "setup_us": 1, "wall_us": 50000, "cpu_us": 1,
    "memory_peak": 0, "witness_us": 1,
    "denials[].layer": "seccomp|egress", "denials[].what": "call|lookup", "denials[].name": "mount|away.example",
    "denials[].arguments": lambda v: v is None or isinstance(v, str), "denials[].error": "EPERM", "denials[].times": 1,
    "denials[].why": lambda v: v is None or v, "denials[].pointer": "/network/allow|/syscalls/allow",
    "denials[].address": lambda v: v is None, "denials[].value": lambda v: v,
    "enforced[].layer": "[a-zA-Z]+", "enforced[].state": "enforced", "enforced[].evidence": "tried and refused: .*",
    "notEnforced[].layer": "[a-zA-Z]+", "notEnforced[].state": "unavailable|off|.*", "notEnforced[].reason": ".+",
    "notEnforced[].remedy": ".*", "witness.*": "held",
    "limits.memory": 1, "limits.disk": 1, "limits.wall_ms": 1000, "limits.pids": 1, "limits.cpu_milli": 1, "limits.stdout": 1,
    "limits.stderr": 1, "limits.result": 1, "limits.by": "cgroup1|cgroup2|process",
    "network.lookups": 1, "network.lookups_refused": 1, "network.decisions[].verdict": "refused",
    "network.decisions[].what": "lookup", "network.decisions[].name": "away.example", "network.decisions[].why": ".+",
    "network.decisions[].address": lambda v: v is None, "network.decisions[].rule": lambda v: v in (None, "/network/allow"),
    "network.decisions[].duration_ms": 0, "network.lost": False, "network.*": 0,
    "stdout.sha256": hashlib.sha256(b"out\n").hexdigest(), "stdout.bytes": 4, "stdout.kept": 4,
    "stderr.sha256": hashlib.sha256(b"").hexdigest(), "stderr.bytes": 0, "stderr.kept": 0,
    "result.sha256": SHA, "result.bytes": 1, "result.kept": 1,
    "outputs[].path": "o", "outputs[].size": 1, "outputs[].sha256": hashlib.sha256(b"1").hexdigest(),
}
WALKED = ("import ctypes,socket,time\ndef f(a):\n    print('out', flush=True); open('o', 'w').write('1'); time.sleep(0.05)\n"
          "    ctypes.CDLL(None).mount(b'a', b'/b', b'c', 0, 0)\n"
          "    try: socket.getaddrinfo('away.example', 80)\n    except OSError: pass\n    return a")


def leaves(value, path=""):
    if isinstance(value, dict):
        return [l for key, v in value.items() for l in leaves(v, path + "." + key if path else key)]
    if isinstance(value, list):
        return [l for v in value for l in leaves(v, path + "[]")]
    return [(path, value)]


def fits(value, want):
    """Numbers are bounds from below, but for 0 and what is written as it is."""
    if callable(want):
        return want(value)
    if isinstance(want, str):
        return isinstance(value, str) and re.fullmatch(want, value) is not None
    if isinstance(want, bool) or want in (0, 200, 4):
        return value == want or (want == 0 and isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0)
    return isinstance(value, (int, float)) and value >= want


def test_every_field(t):
    """One run, and all that is said of it: the receipt field by field, the audit, the metrics, the trace."""
    with service.Daemon(options=["--runners", "1"]) as d:
        before = ask(d, "GET", "/metrics")[2]
        manifest = {"manifestVersion": 1, "name": "m", "network": {"mode": "allowlist", "allow": [
            {"host": "there.example", "ports": [443], "description": "d"}]}}
        body = {"code": WALKED, "params": {"a": 1}, "outputs": ["*"], "manifest": manifest, "workspace_id": "walk",
                "trace_id": "tw"}
        status, headers, text = ask(d, "POST", "/v1/execute/python-function", body, {"traceparent": TRACE})
        reply = json.loads(text)
        t.equal((status, reply["data"], headers.get("traceparent")), (200, 1, TRACE), "a run that does a bit of everything")
        _, _, raw = ask(d, "GET", "/v1/receipts/" + reply["receipt_id"])
        receipt = json.loads(raw)
        found = leaves(receipt)
        wrong = [(path, value) for path, value in found if not fits(value, RECEIPT.get(
            path, RECEIPT.get(path.rpartition(".")[0] + ".*", lambda v: False)))]
        t.equal(wrong, [], "every field of its receipt is what it should be")
        absent = {p for p in RECEIPT if not p.endswith("*")} - {path for path, _ in found}
        t.ok(all(p.startswith("notEnforced") or p in ("denials[].value",) for p in absent), "and none is missing", str(absent))
        t.equal((receipt["request_sha256"], receipt["manifest_sha256"]), (sha(json.dumps(body)), sha(json.dumps(
            manifest, separators=(",", ":")))), "the request and the manifest by hash, as they were sent")
        t.equal(len({receipt[h + "_sha256"] for h in ("request", "manifest", "policy", "plan")}), 4,
                "as it was resolved, and as it was compiled")
        t.ok(receipt["created_ms"] <= receipt["started_ms"] <= receipt["finished_ms"], "times follow each other")
        lines = [l for l in audit(d) if l.get("job") == reply["job_id"]]
        t.equal([l["event"] for l in lines], ["accept", "start", *["network"] * len(receipt["network"]["decisions"]), "finish"],
                "the audit has its way")
        t.equal((lines[0]["traceparent"], lines[-1]["receipt_sha256"]), (TRACE, sha(raw)), "its trace, and the receipt's hash")
        walk_metrics(t, d, before)


def walk_metrics(t, d, before):
    after = ask(d, "GET", "/metrics")[2]
    grew = lambda name: number(after, name) - number(before, name)
    for phase in ("queued", "files", "policy", "setup", "start", "program", "outputs"):
        t.equal(grew('nsbox_job_phase_seconds_count{phase="%s"}' % phase), 1, "a run has its phase '%s'" % phase)
    t.ok(number(after, 'nsbox_job_phase_seconds_sum{phase="program"}') >= 0.05, "which lasted as long as it did")
    t.ok(number(after, 'nsbox_setup_stage_seconds_count{stage="overlay"}') == 1, "stages of its sandbox are counted")
    t.ok(grew("nsbox_denied_calls_total") >= 1 and grew("nsbox_denied_network_total") >= 1, "so is what was refused")
    t.equal((grew('nsbox_jobs_ended_total{cause="exit"}'), grew("nsbox_queue_wait_seconds_count")), (1, 1), "and how it ended")
    _, first = d.ask("POST", JOBS, {"kind": "command", "command": "sleep 300"})
    t.ok(tap.wait_until(lambda: d.ask("GET", JOBS + "/" + first["id"])[1]["state"] == "running", 60), "one job runs")
    _, second = d.ask("POST", JOBS, {"kind": "command", "command": "true"})
    gauges = lambda: tuple(number(ask(d, "GET", "/metrics")[2], "nsbox_" + n) for n in (
        "queue_waiting", "jobs_running", "sandboxes_alive", "sessions"))
    t.ok(tap.wait_until(lambda: gauges() == (1, 1, 1, 0), 60), "one waits, one runs, in one sandbox", str(gauges()))
    d.ask("DELETE", JOBS + "/" + first["id"])
    for job in (first, second):
        d.ask("GET", JOBS + "/%s?wait=60" % job["id"])
    command(d, "true", session_id="s")
    t.ok(tap.wait_until(lambda: gauges() == (0, 0, 1, 1), 60), "a session is one, though nothing runs", str(gauges()))
    d.ask("DELETE", "/v1/sessions/s")
    t.ok(tap.wait_until(lambda: gauges() == (0, 0, 0, 0), 60), "then there is none", str(gauges()))


def test_audit(t, daemon):
    reply = command(daemon, "echo %s" % SECRET, env={"PASSWORD": SECRET}, trace_id="au", stdin=SECRET,
                    files=[{"path": "x", "content": SECRET}])
    t.equal(reply["stdout"], SECRET + "\n", "a run with a secret")
    lines = [l for l in audit(daemon) if l.get("job") == reply["job_id"]]
    t.equal([l["event"] for l in lines], ["accept", "start", "finish"], "its way is in the audit when its caller hears")
    t.equal(lines[2]["policy_sha256"], reply["policy_sha256"], "under which policy")
    t.equal((lines[0]["uid"], lines[0]["trace_id"], lines[2]["cause"]), (os.getuid(), "au", "exit"),
            "who, in which trace, and how it ended")
    status, _, text = ask(daemon, "GET", "/v1/receipts/" + reply["receipt_id"])
    t.equal((status, lines[2]["receipt_sha256"]), (200, sha(text)), "with the hash of the receipt")
    _, job = daemon.ask("POST", JOBS, {"kind": "command", "command": "sleep 300"})
    t.ok([l for l in audit(daemon) if l.get("job") == job["id"] and l["event"] == "accept"],
         "a job is in it when its client hears")
    daemon.ask("DELETE", JOBS + "/" + job["id"])
    cancel = [l for l in audit(daemon) if l["event"] == "cancel"]
    t.equal([(l["what"], l["uid"]) for l in cancel], [(job["id"], os.getuid())], "who cancels is in it")
    tap.wait_until(lambda: daemon.ask("GET", JOBS + "/" + job["id"])[1]["state"] == "finished", 20)
    everything = "".join(leftovers.read(os.path.join(daemon.data, n)) for n in ("audit.log",)) + daemon.log()
    t.ok(SECRET not in everything, "no code, input, variable or output is in audit or log")
    status, said = verify(os.path.join(daemon.data, "audit.log"))
    t.ok(status == 0 and said.startswith("whole: %d lines" % len(audit(daemon))), "nsbox audit verify", said)


def test_denied(t, daemon):
    if os.getuid() != 0:
        t.note("other users can be tried as root alone")
        return
    code = ("import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n"
            "b=b'{\"command\":\"true\",\"workspace_id\":\"mine\"}'\n"
            "s.sendall(b'POST /v1/execute/command HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n"
            "Content-Length: %d\\r\\n\\r\\n%s' % (len(b), b))\nprint(s.recv(100).split()[1].decode())")
    with service.Daemon(options=["--allow-uid", "12345", "--workspace", "12346=mine"]) as d:
        done = subprocess.run(["/usr/bin/python3", "-c", code, d.socket], user=12345, group=12345, extra_groups=[],
                              capture_output=True, text=True, cwd="/", check=False)
        t.equal(done.stdout, "403\n", "a workspace of somebody else is refused")
        deny = [l for l in audit(d) if l["event"] == "deny"]
        t.equal([(l["uid"], l["what"]) for l in deny], [(12345, "/v1/execute/command")], "which the audit knows")
        t.ok("nsbox_requests_denied_total 1\n" in ask(d, "GET", "/metrics")[2], "and the metrics count")


def test_chain(t):
    with tempfile.TemporaryDirectory(prefix="nsbox-audit-") as top:
        os.chmod(top, 0o755)
        data = os.path.join(top, "data")
        path = os.path.join(data, "audit.log")
        with service.Daemon(data=data) as daemon:
            command(daemon, "true")
        with service.Daemon(data=data) as daemon:
            command(daemon, "true")
            front = [pid for pid, (parent, _, _, name) in leftovers.processes().items()
                     if parent == daemon.pid and name == "nsboxd"]
            os.kill(front[0], signal.SIGKILL)
            tap.wait_until(lambda: works(daemon), 20)
            t.equal(verify(path)[0], 0, "the chain goes on over restarts and kills")
            os.rename(path, path + ".1")
            command(daemon, "true")
            os.rename(path, path + ".2")
            command(daemon, "true")
        status, said = verify(path + ".1", path + ".2", path)
        t.equal(status, 0, "and over files that are moved away")
        last = said.split()[-1]
        t.equal(verify("--last", last, path + ".1", path + ".2", path)[0], 0, "--last")
        t.equal(verify("--last", last, path + ".1", path + ".2")[0], 1, "a file too few")
        t.equal(verify("--contains", last, path)[0], 0, "--contains")
        t.equal(verify(path + ".1", path)[0], 1, "a file that is missing between")
        t.equal(verify(path, path + ".1")[0], 1, "the wrong order")
        lines = open(path + ".1", "rb").read().splitlines(True)
        for what, changed in (("changed", [lines[0].replace(b"open", b"OPEN")] + lines[1:]),
                              ("removed", lines[:1] + lines[2:]), ("put in twice", lines[:2] + lines[1:]),
                              ("exchanged", [lines[1], lines[0]] + lines[2:]), ("cut off", lines[:-1] + [lines[-1][:-9]])):
            with open(os.path.join(top, "bad"), "wb") as f:
                f.write(b"".join(changed))
            status, said = verify(os.path.join(top, "bad"))
            t.ok(status == 1 and "bad:" in said, "a line that is %s is found" % what, said)
        t.equal(verify(path + ".none")[0], 1, "a file that is not there")
        lines = open(path, "rb").read()
        with open(path, "wb") as f:
            f.write(lines.replace(b"true", b"TRUE").replace(b"close", b"CLOSE"))
        done = subprocess.run([paths.NSBOXD, "--socket", os.path.join(top, "s"), "--data-dir", data],
                              capture_output=True, text=True, timeout=60, check=False)
        t.ok(done.returncode == 1 and "move it away" in done.stderr, "a changed audit keeps the service from starting",
             done.stderr)
        os.rename(path, path + ".bad")
        with service.Daemon(data=data) as daemon:
            t.ok(works(daemon), "until it is moved away")


def works(daemon):
    try:
        return command(daemon, "true")["cause"] == "exit"
    except (OSError, KeyError):
        return False


def number(text, name):
    return float(re.search("^%s (.*)$" % re.escape(name), text, re.M).group(1))


def test_metrics(t, daemon):
    before = ask(daemon, "GET", "/metrics")[2]
    command(daemon, "true")
    command(daemon, "kill -9 $$")
    daemon.ask("POST", "/v1/execute/command", {})
    status, headers, after = ask(daemon, "GET", "/metrics")
    t.equal((status, headers["Content-Type"]), (200, "text/plain; version=0.0.4"), "metrics as text")
    for name, n in (("nsbox_jobs_accepted_total", 2), ('nsbox_jobs_ended_total{cause="exit"}', 1),
                    ('nsbox_jobs_ended_total{cause="signal"}', 1), ("nsbox_run_seconds_count", 2),
                    ("nsbox_sandbox_setup_seconds_count", 2), ("nsbox_requests_invalid_total", 1)):
        t.equal(number(after, name) - number(before, name), n, "%s counts" % name)
    t.equal((number(after, "nsbox_queue_waiting"), number(after, "nsbox_jobs_running")), (0, 0), "nothing waits or runs")
    names = [l for l in after.splitlines() if not l.startswith("#")]
    bad = [l for l in names if not re.fullmatch(r'[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.]+', l)]
    t.ok(len(names) > 60 and not bad, "every line has the form", str(bad))
    typed = set(re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram|summary)$", after, re.M))
    t.equal({re.sub(r"(_bucket|_sum|_count)?(\{.*)? .*", "", l) for l in names} - typed, set(), "and a type")
    manual = leftovers.read(os.path.join(paths.ROOT, "docs", "nsboxd.8"))
    t.equal(sorted(n for n in typed if n not in manual), [], "the manual knows every metric")


def test_trace(t, daemon):
    for path, body in (("/v1/execute/command", {"command": "true"}), ("/v1/execute/command", {}), ("/v1/none", None)):
        _, headers, _ = ask(daemon, "POST", path, body, {"traceparent": TRACE})
        t.equal(headers.get("traceparent"), TRACE, "the trace comes back: POST %s" % path)
    _, headers, text = ask(daemon, "POST", JOBS, {"kind": "command", "command": "true"}, {"traceparent": TRACE})
    job = json.loads(text)
    t.equal((headers["traceparent"], job["traceparent"]), (TRACE, TRACE), "a job keeps it")
    tap.wait_until(lambda: daemon.ask("GET", JOBS + "/" + job["id"])[1]["state"] == "finished", 20)
    t.equal(daemon.ask("GET", "/v1/receipts/" + job["id"])[1]["traceparent"], TRACE, "so does its receipt")
    t.ok([l for l in audit(daemon) if l.get("traceparent") == TRACE], "and the audit")
    for bad in ("x", TRACE[:-1], TRACE.upper(), "00-" + "0" * 32 + TRACE[35:], TRACE[:36] + "0" * 16 + TRACE[52:],
                TRACE.replace("-", "_"), TRACE + "-00"):
        _, headers, _ = ask(daemon, "GET", "/healthz", None, {"traceparent": bad})
        t.ok("traceparent" not in headers, "no trace: %s" % bad)


def test_log(t, daemon):
    command(daemon, "true", workspace_id="w\n<0>nsboxd forged \033[2J", trace_id="a \"b\\")
    lines = daemon.log().splitlines()
    t.ok(lines and all(re.match(r"<[0-7]>nsboxd[ :]", l) for l in lines), "every line has a priority",
         "\n".join(lines[-5:]))
    t.ok(not [l for l in lines if l.startswith("<0>")] and "\033" not in daemon.log(), "and nobody else writes one")
    t.ok([l for l in lines if 'workspace="w\\x0a<0>nsboxd forged \\x1b[2J"' in l and 'trace="a \\"b\\\\"' in l],
         "what a client sent is quoted", "\n".join(lines[-3:]))


def main():
    with service.Daemon() as daemon:
        def with_daemon(test):
            def run(t):
                test(t, daemon)
            run.__name__ = test.__name__
            return run
        return tap.run([*map(with_daemon, (test_receipt, test_audit, test_denied, test_metrics, test_trace, test_log)),
                        test_every_field, test_chain])


if __name__ == "__main__":
    leftovers.become_subreaper()
    sys.exit(main())
