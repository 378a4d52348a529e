#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Secrets and parameters: what a manifest asks for reaches the run, and nothing that is kept or told."""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import paths, service, tap

VALUE, KEPT, PIN = "s3cr3t-of-the-request", "s3cr3t-of-the-operator", "pin-0815-4711"
MANIFEST = {
    "manifestVersion": 1,
    "secrets": [
        {"name": "TOKEN", "source": "vault:t/token", "description": "for the service"},
        {"name": "CERT", "source": "vault:t/cert", "inject": "file", "description": "for the service", "optional": True},
    ],
    "userConfig": {"size": {"type": "integer", "default": 3, "min": 1, "max": 9},
                   "mode": {"type": "string", "enum": ["fast", "good"], "required": True},
                   "pin": {"type": "string", "sensitive": True}},
}
LOOK = ["sh", "-c", 'echo "$TOKEN|$CONFIG_size|$CONFIG_mode|$CONFIG_pin"; test -z "$CERT_FILE" || '
        '{ cat "$CERT_FILE"; stat -c " %a %U" "$CERT_FILE"; stat -f -c %T /run/secrets; }']
COMMAND = {"argv": LOOK, "manifest": MANIFEST, "user_config": {"mode": "good"}, "secrets": {"TOKEN": VALUE}}


def run(d, **more):
    return d.ask("POST", "/v1/execute/command", dict(COMMAND, **more))


def test_reach(t, d):
    status, r = run(d)
    t.equal((status, r.get("stdout")), (200, VALUE + "|3|good|\n"), "a secret and parameters are variables")
    status, r = run(d, secrets={"TOKEN": VALUE, "CERT": "line 1\nline 2\n", "pin": PIN}, user_config={"mode": "fast", "size": 9})
    t.equal(r.get("stdout"), "%s|9|fast|%s\nline 1\nline 2\n 400 sandbox\ntmpfs\n" % (VALUE, PIN),
            "another is a file, 0400, on a tmpfs; sensitive parameters come with the secrets")
    status, r = run(d, secrets={"TOKEN": VALUE, "CERT": "x"}, files=[{"path": "a", "content": "1"}],
                    argv=["sh", "-c", "cat a $CERT_FILE"])
    t.equal(r.get("stdout"), "1x", "beside other files")
    for profile in ("strict", "standard"):
        status, r = run(d, manifest=dict(MANIFEST, profile=profile), secrets={"TOKEN": VALUE, "CERT": "x"})
        t.ok("400 sandbox" in r.get("stdout", ""), "in profile " + profile, "%r" % r)
    status, r = d.ask("POST", "/v1/execute/python-function", {
        "code": "import os\ndef f(a, size, mode, pin=None): return [a, size, mode, pin, os.environ['TOKEN']]",
        "params": {"a": 1, "size": 5}, "manifest": MANIFEST, "user_config": {"mode": "fast", "size": 2},
        "secrets": {"TOKEN": VALUE, "pin": PIN}})
    t.equal(r.get("data"), [1, 5, "fast", PIN, VALUE], "parameters are keyword arguments that params can override")


REFUSED = (
    ("without what it needs", {"secrets": {}}, "/secrets/TOKEN"),
    ("without a parameter that is required", {"user_config": {}}, "/user_config/mode"),
    ("with a secret that it does not ask for", {"secrets": {"TOKEN": VALUE, "OTHER": VALUE}}, "/secrets/OTHER"),
    ("with a parameter that there is not", {"user_config": {"mode": "fast", "other": 1}}, "/user_config/other"),
    ("with a parameter of another type", {"user_config": {"mode": "fast", "size": "9"}}, "/user_config/size"),
    ("with one above its max", {"user_config": {"mode": "fast", "size": 10}}, "/user_config/size"),
    ("with one that is not listed", {"user_config": {"mode": "slow"}}, "/user_config/mode"),
    ("with a sensitive one in the open", {"user_config": {"mode": "fast", "pin": PIN}}, "/user_config/pin"),
    ("with a secret that is no text", {"secrets": {"TOKEN": 1}}, "/secrets/TOKEN"),
    ("with a secret and no manifest", {"manifest": None, "user_config": None}, "/secrets/TOKEN"),
    ("with one of a header", {"manifest": dict(MANIFEST, secrets=[dict(MANIFEST["secrets"][0], inject="header")])},
     "/manifest/secrets/0"),
    ("bound to hosts, with others to reach", {"manifest": dict(
        MANIFEST, secrets=[dict(MANIFEST["secrets"][0], hosts=["a.example"])],
        network={"mode": "allowlist", "allow": [{"host": "b.example", "ports": [1], "description": "d"}]})},
     "/manifest/secrets/0/hosts"),
)


def test_refused(t, d):
    for name, more, pointer in REFUSED:
        status, r = run(d, **more)
        e = r.get("error") or {}
        t.ok(status in (400, 501) and e.get("pointer") == pointer, "a run %s is refused" % name, "%s %r" % (status, e))
        t.ok(VALUE not in json.dumps(r) and PIN not in json.dumps(r), "without telling a value")
    bound = dict(MANIFEST, secrets=[dict(MANIFEST["secrets"][0], hosts=["a.example"])])
    t.equal(run(d, manifest=bound)[0], 200, "one bound to hosts runs where no others can be reached")


def test_kept(t, d):
    status, r = run(d, secrets={})
    t.equal((status, r.get("stdout")), (200, KEPT + "|3|good|\n"), "what the request does not bring the operator has")
    t.equal(run(d)[1].get("stdout"), VALUE + "|3|good|\n", "what it brings wins")
    status, r = run(d, secrets={}, workspace_id="other")
    t.equal((status, (r.get("error") or {}).get("pointer")), (400, "/secrets/TOKEN"), "another workspace has it not")
    status, r = run(d, secrets={}, workspace_id="team")
    t.equal(r.get("stdout"), "of the team|3|good|\n", "each has its own")


def test_redacted(t, d):
    talk = {"argv": ["sh", "-c", 'for i in 1 2 3; do printf %s "$TOKEN" | head -c 8; sleep .05; '
                     'printf %s "$TOKEN" | tail -c +9; echo; done; echo "$TOKEN" >&2; echo "$TOKEN" >o; echo ok >p'],
            "outputs": ["*"]}
    _, r = run(d, **talk)
    t.equal((r["stdout"], r["stderr"], len(r["outputs"])), ((VALUE + "\n") * 3, VALUE + "\n", 2), "a caller gets what was said")
    _, r = run(d, **talk, redact=True)
    t.equal((r["stdout"], r["stderr"]), ("***\n" * 3, "***\n"), "or, as it wishes, without secrets")
    t.equal(([o["path"] for o in r["outputs"]], [o["path"] for o in r["outputs_omitted"]]), (["p"], ["o"]),
            "files that hold one are not sent")
    call = {"code": "import os\ndef f(mode, size): return {os.environ['TOKEN']: ['x' + os.environ['TOKEN'], 1]}",
            "manifest": MANIFEST, "user_config": {"mode": "fast"}, "secrets": {"TOKEN": VALUE}}
    t.equal(d.ask("POST", "/v1/execute/python-function", dict(call, redact=True))[1].get("data"), {"***": ["x***", 1]},
            "nor are they in a function's value")
    call["code"] = "import os\ndef f(mode, size): raise ValueError(os.environ['TOKEN'])"
    r = d.ask("POST", "/v1/execute/python-function", dict(call, redact=True))[1]
    t.ok(VALUE not in json.dumps(r) and "***" in r["msg"], "nor in what it raises", "%r" % r)


def test_not_kept(t, d):
    body = dict(COMMAND, kind="command", secrets={"TOKEN": VALUE, "pin": PIN, "CERT": "x" * 40}, trace_id="once")
    _, job = d.ask("POST", "/v1/jobs", body)
    one = tap.wait_until(lambda: (lambda j: j if j.get("state") == "finished" else None)(
        d.ask("GET", "/v1/jobs/" + job["id"])[1]), 20)
    t.equal(one["result"]["stdout"].splitlines()[0], "***|3|good|***", "a job's result is kept without secrets, unasked")
    t.equal(d.ask("POST", "/v1/jobs", body)[1]["id"], job["id"], "the same request is the same job")
    events = d.ask("GET", "/v1/jobs/%s/events" % job["id"])[1]
    t.ok("***|3|good|***" in events, "so are its events", events)
    _, slow = d.ask("POST", "/v1/jobs", dict(body, trace_id="two", argv=["sleep", "30"]))
    tap.wait_until(lambda: d.ask("GET", "/v1/jobs/" + slow["id"])[1].get("state") == "running", 10)
    data = b"".join(open(os.path.join(place, name), "rb").read() for place, _, names in os.walk(d.data)
                    for name in names) + d.log().encode()
    receipt = json.dumps(d.ask("GET", "/v1/receipts/" + job["id"])[1])
    for value in (VALUE, KEPT, PIN):
        t.ok(value.encode() not in data and value not in receipt and
             base64.b64encode(value.encode()) not in data, "journal, audit, log and receipt have none")
    t.ok(b"CONFIG_size" in data, "while they have the rest of the request")
    d.ask("DELETE", "/v1/jobs/" + slow["id"])


WIDE = "Begin-4711\nMiddle-0815\nEnd-2342\n"
SPELL = ("import socket,sys,os\nt=os.environ['TOKEN']\nfor n in (t, t.upper(), 'x.'+t+'.example'):\n"
         "    try: socket.getaddrinfo(n, 80)\n    except OSError as e: pass\n"
         "for n in ('/no/'+t, t):\n    try: open(n)\n    except OSError: pass\n"
         "open('name-'+t, 'w').write('harmless')\nprint(1)\n")


def kept_of(d, job):
    """All that stays of a job: what the journal, the audit and the log have, and its receipt."""
    data = b"".join(open(os.path.join(place, name), "rb").read() for place, _, names in os.walk(d.data) for name in names)
    return data.decode("latin-1") + d.log() + json.dumps(d.ask("GET", "/v1/receipts/" + job)[1])


def ended(d, job):
    return d.ask("GET", "/v1/jobs/%s?wait=60" % job["id"])[1]


def test_names(t, d):
    """What a program does with a value: asks for a name, opens a file, calls a file so."""
    network = {"mode": "allowlist", "allow": [{"host": "allowed.example", "ports": [443], "description": "d"}]}
    body = {"argv": ["/usr/bin/python3", "-c", SPELL], "trace": True, "outputs": ["*"],
            "manifest": dict(MANIFEST, network=network)}
    _, r = run(d, **body)
    told = json.dumps(r)
    t.ok(r.get("stdout") == "1\n" and "/no/" + VALUE in told and "x.%s.example" % VALUE in told and "name-" + VALUE in told,
         "a caller hears of names and files as they were", told[:3000])
    kept = kept_of(d, r["job_id"])
    t.ok(VALUE not in kept and VALUE.upper() not in kept, "what is kept has them not")
    t.ok("x.***.example" in kept and "name-***" in kept, "but what was around them", kept[-3000:])
    _, r = run(d, **body, redact=True)
    told = json.dumps(r)
    t.ok(VALUE not in told and VALUE.upper() not in told and "/no/***" in told, "nor has a reply, as it is wished", told)
    job = ended(d, d.ask("POST", "/v1/jobs", dict(COMMAND, kind="command", **body))[1])
    t.ok(job["cause"] == "exit" and VALUE not in json.dumps(job) + kept_of(d, job["id"]), "nor that of a job", str(job)[:2000])
    _, r = run(d, argv=["./" + VALUE], files=[{"path": VALUE, "content": "#!/" + VALUE + "\n", "mode": "0755"}], redact=True)
    t.ok(VALUE not in json.dumps(r) and "***" in json.dumps(r), "nor has the error of a program that cannot be started", str(r)[:600])


def test_forms(t, d):
    """The end of a line is lost where a program reads one, and another on a terminal."""
    secrets = {"TOKEN": VALUE, "CERT": WIDE}
    show = 'x=$(cat $CERT_FILE); printf "[%s]" "$x"; cat $CERT_FILE'
    t.equal(run(d, argv=["sh", "-c", show], secrets=secrets)[1]["stdout"], "[%s]%s" % (WIDE.rstrip(), WIDE), "several lines")
    t.equal(run(d, argv=["sh", "-c", show], secrets=secrets, redact=True)[1]["stdout"], "[***]***\n",
            "are found without their last end as well")
    t.equal(run(d, argv=["sh", "-c", show], secrets=secrets, redact=True, tty=True)[1]["stdout"], "[***]***\r\n",
            "and as a terminal writes them")
    piece = "head -c 70000 /dev/zero | tr '\\0' x; printf '%s' \"$TOKEN\"; head -c 65530 /dev/zero | tr '\\0' y; echo $TOKEN"
    _, job = d.ask("POST", "/v1/jobs", dict(COMMAND, kind="command", argv=["sh", "-c", piece]))
    events = d.ask("GET", "/v1/jobs/%s/events" % job["id"])[1]
    text = "".join(json.loads(line[6:]).get("text", "") for line in events.splitlines() if line.startswith("data: {\"offset"))
    t.equal(text, "x" * 70000 + "***" + "y" * 65530 + "***\n", "a stream of events has none, wherever pieces end")


def test_sessions(t, d):
    """What one command of a session had another can find: it is hidden in all of them."""
    session = {"session_id": "s", "workspace_id": "sec"}
    network = {"mode": "allowlist", "allow": [{"host": "allowed.example", "ports": [443], "description": "d"}]}
    first = dict(COMMAND, **session, manifest=dict(MANIFEST, network=network), secrets={"TOKEN": VALUE, "CERT": "of-the-session-77"},
                 argv=["sh", "-c", "echo $TOKEN >/tmp/kept; echo 1"])
    t.equal(run(d, **first)[1].get("stdout"), "1\n", "a session has secrets")
    later = {"kind": "command", **session, "argv": ["sh", "-c", "cat /tmp/kept /run/secrets/CERT; echo $TOKEN"],
             "secrets": {"TOKEN": PIN}, "user_config": {"mode": "fast"}}
    _, r = d.ask("POST", "/v1/execute/command", dict(later))
    t.equal(r.get("stdout"), VALUE + "\nof-the-session-77" + PIN + "\n", "a later command reads those of earlier ones")
    job = ended(d, d.ask("POST", "/v1/jobs", dict(later))[1])
    t.equal(job["result"].get("stdout"), "***\n******\n", "which are not kept of it")
    _, slow = d.ask("POST", "/v1/jobs", dict(later, secrets={"TOKEN": "another-one"}, argv=[
        "sh", "-c", "echo begun; until test -e /tmp/late; do sleep .05; done; cat /tmp/late"]))
    tap.wait_until(lambda: d.ask("GET", "/v1/jobs/" + slow["id"])[1].get("state") == "running", 60)
    late = "came-while-it-ran-31"
    d.ask("POST", "/v1/execute/command", dict(later, secrets={"TOKEN": late}, argv=[
        "sh", "-c", "echo $TOKEN >/tmp/l; mv /tmp/l /tmp/late"]))
    t.equal(ended(d, slow)["result"].get("stdout"), "begun\n***\n", "nor are those that came while it ran")
    d.ask("POST", "/v1/execute/command", dict(later, secrets={"TOKEN": "left-behind-9"}, argv=[
        "sh", "-c", "(sleep 1; getent hosts before.$TOKEN; >/tmp/asked) >/dev/null 2>&1 &"]))
    there = dict(later, argv=["test", "-e", "/tmp/asked"])
    t.ok(tap.wait_until(lambda: d.ask("POST", "/v1/execute/command", there)[1].get("exit_code") == 0, 60),
         "what a command leaves behind asks for a name")
    d.ask("DELETE", "/v1/sessions/s?workspace_id=sec")
    kept = kept_of(d, slow["id"])
    t.ok("before.***" in kept and "left-behind-9" not in kept, "which the audit has without its secret")
    t.ok(not [v for v in (VALUE, PIN, late, "of-the-session-77") if v in kept], "none is anywhere")


def test_forgotten(t, data, kept):
    """A job that waits when the service ends has lost what came with its request, and says so."""
    with service.Daemon(data=data, options=["--runners", "1", "--drain", "0"]) as d:
        d.ask("POST", "/v1/jobs", {"kind": "command", "argv": ["sleep", "30"]})
        _, job = d.ask("POST", "/v1/jobs", dict(COMMAND, kind="command"))
    with service.Daemon(data=data, options=["--drain", "0"]) as d:
        one = tap.wait_until(lambda: (lambda j: j if j.get("state") == "finished" else None)(
            d.ask("GET", "/v1/jobs/" + job["id"])[1]), 20)
        t.equal((one["status"], one["result"]["error"]["pointer"]), (400, "/secrets/TOKEN"), "secrets do not survive a restart")
        _, job = d.ask("POST", "/v1/jobs", {"kind": "command", "argv": ["true"]})
    with service.Daemon(data=data, options=["--runners", "1", "--drain", "0", "--secrets", kept]) as d:
        d.ask("POST", "/v1/jobs", {"kind": "command", "argv": ["sleep", "30"]})
        _, job = d.ask("POST", "/v1/jobs", dict(COMMAND, kind="command", secrets={}))
    with service.Daemon(data=data, options=["--drain", "0", "--secrets", kept]) as d:
        one = tap.wait_until(lambda: (lambda j: j if j.get("state") == "finished" else None)(
            d.ask("GET", "/v1/jobs/" + job["id"])[1]), 20)
        t.equal(one.get("cause"), "exit", "the operator's do")


def nsbox(place, *args, **env):
    manifest = os.path.join(place, "m.json")
    with open(manifest, "w", encoding="utf-8") as f:
        json.dump(MANIFEST, f)
    r = subprocess.run([paths.NSBOX, *args[:1], *args[1].split(), "-m", manifest, *args[2:]], capture_output=True, text=True,
                       stdin=subprocess.DEVNULL, check=False, env=dict(os.environ, **env), timeout=60)
    return r.returncode, r.stdout, r.stderr


def test_cli(t, place, d):
    cert = os.path.join(place, "cert")
    with open(cert, "w", encoding="utf-8") as f:
        f.write("a certificate\n")
    for verb, env in ((("run", ""), {}), (("job", "run"), {"NSBOX_SOCKET": d.socket})):
        name = " ".join(verb).strip()
        status, out, err = nsbox(place, *verb, "--secret", "TOKEN", "--secret", "CERT=@" + cert, "--config", "mode=good",
                                 "--config", "size=4", "--", *LOOK, TOKEN=VALUE, **env)
        t.equal((status, out), (0, VALUE + "|4|good|\na certificate\n 400 sandbox\ntmpfs\n"), "%s --secret, --config" % name)
        status, _, err = nsbox(place, *verb, "--config", "mode=good", "--", "true", **env)
        t.ok(status == 125 and "TOKEN" in err, "%s says which secret is missing" % name, err)
        status, _, err = nsbox(place, *verb, "--secret", "TOKEN=" + VALUE, "--", "true", **env)
        t.ok(status == 125 and "@FILE" in err and VALUE not in err, "%s takes no value in its arguments" % name, err)
        status, _, err = nsbox(place, *verb, "--secret", "TOKEN", "--", "true", **env)
        t.ok(status == 125 and "TOKEN" in err, "%s says that the variable is not there" % name, err)
        status, _, err = nsbox(place, *verb, "--secret", "TOKEN", "--config", "mode=good", "--config", "size=99", "--", "true",
                               TOKEN=VALUE, **env)
        t.ok(status == 125 and "size" in err and "max" in err, "%s judges parameters" % name, err)


def main():
    place = tempfile.mkdtemp(prefix="inputs-e2e-")
    os.chmod(place, 0o755)
    kept = os.path.join(place, "kept.json")
    with open(kept, "w", encoding="utf-8") as f:
        json.dump({"": {"vault:t/token": KEPT}, "team": {"vault:t/token": "of the team"}}, f)
    os.chmod(kept, 0o600)
    try:
        with service.Daemon() as plain, service.Daemon(options=["--secrets", kept]) as d:
            return tap.run([lambda t: test_reach(t, plain), lambda t: test_refused(t, plain), lambda t: test_kept(t, d),
                            lambda t: test_redacted(t, plain), lambda t: test_not_kept(t, d),
                            lambda t: test_names(t, plain), lambda t: test_forms(t, plain), lambda t: test_sessions(t, plain),
                            lambda t: test_forgotten(t, os.path.join(place, "data"), kept),
                            lambda t: test_cli(t, place, plain)])
    finally:
        shutil.rmtree(place)


sys.exit(main())
