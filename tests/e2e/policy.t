#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`nsbox policy`, and whether what it answers is what happens.

Each question of ANSWERS is put to `policy explain --why` and then really tried in a run: both must
say the same, and name the same error.
"""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, paths, tap

MANIFEST = {"manifestVersion": 1, "name": "test"}
SKILL = os.path.join(paths.ROOT, "docs", "examples", "report-skill")

# Does one act and prints "ok" or the name of the error.
PROBE = r"""
import ctypes, errno, os, socket, sys
verb, rest = sys.argv[1], sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
try:
    if verb == "open":
        os.close(os.open(rest, os.O_RDONLY))
    elif verb == "write":
        os.close(os.open(rest, os.O_WRONLY | os.O_CREAT, 0o644))
    elif verb == "exec":
        if rest.startswith("/tmp/"):
            with open(rest, "w") as f:
                f.write("#!/bin/sh\nexit 0\n")
            os.chmod(rest, 0o755)
        pid = os.posix_spawn(rest, [rest], {})
        os.waitpid(pid, 0)
    elif verb == "connect":
        host, port = rest.rsplit(":", 1)
        s = socket.create_connection((host, int(port)), timeout=20)
    elif verb == "syscall":
        nr, *args = [int(x) for x in rest.split()]
        if libc.syscall(nr, *args) < 0:
            raise OSError(ctypes.get_errno(), "")
    print("ok")
except socket.gaierror as e:
    print("gaierror")
except OSError as e:
    print(errno.errorcode[e.errno])
"""

STANDARD, STRICT = {}, {"profile": "strict"}
MASKED = {"filesystem": {"mask": ["/usr/share/doc"], "readOnly": ["/usr/lib"]}}

# manifest, question, what the probe is told where it differs, what else a kernel may answer
NETWORK = {"network": {"mode": "allowlist",
                       "allow": [{"host": "allowed.invalid", "ports": [80], "description": "test"}]}}
OPEN = {"network": {"mode": "open"}}
ANSWERS = [
    (STANDARD, "open /etc/passwd"),
    (STANDARD, "open /etc/shadow"),
    (STANDARD, "open /usr/bin/env"),
    (STANDARD, "open /bin/sh"),
    (STANDARD, "open /.nsbox/witness"),
    (STANDARD, "open /proc/self/status"),
    (STANDARD, "open /root/x"),
    (STANDARD, "write /tmp/x"),
    (STANDARD, "write /workspace/x"),
    (STANDARD, "write /usr/x"),
    (STANDARD, "write /usr/bin/env"),
    (STANDARD, "write /etc/passwd"),
    (STANDARD, "write /x"),
    (STANDARD, "write /var/lib/x"),
    (STANDARD, "write /dev/null"),
    (STANDARD, "exec /tmp/x"),
    (STANDARD, "exec /usr/bin/env"),
    (STANDARD, "exec /usr/bin/no-such-program"),
    (STRICT, "exec /tmp/x"),
    (STRICT, "exec /usr/bin/env"),
    (STRICT, "write /tmp/x"),
    (STRICT, "write /var/lib/x"),
    (MASKED, "open /usr/share/doc/x"),
    (MASKED, "open /usr/share/x-none"),
    (MASKED, "open /usr/lib/os-release"),
    ({"filesystem": {"write": ["/data"]}}, "write /data/x"),
    (STANDARD, "write /data/x"),
    (STANDARD, "connect 192.0.2.1:80"),
    (STANDARD, "connect db.example.com:5432"),
    (NETWORK, "connect other.invalid:80"),
    (NETWORK, "connect 8.8.8.8:80"),
    (OPEN, "connect 169.254.169.254:80"),
    (OPEN, "connect 10.0.0.1:80"),
    (OPEN, "connect 2002:a00:1::1:80"),
    (STANDARD, "syscall socket AF_PACKET"),
    (STANDARD, "syscall socket AF_UNIX SOCK_STREAM 0"),
    (STANDARD, "syscall socket AF_INET SOCK_RAW 0"),
    (STANDARD, "syscall mount 0 0 0 0 0"),
    (STANDARD, "syscall ptrace PTRACE_TRACEME 0 0 0"),
    (STRICT, "syscall ptrace PTRACE_TRACEME 0 0 0"),
    (STANDARD, "syscall unshare CLONE_NEWUSER"),
    (STANDARD, "syscall io_uring_setup 1 0"),
    (STANDARD, "syscall personality 0"),
]

NUMBERS = {
    "x86_64": {"socket": 41, "mount": 165, "ptrace": 101, "unshare": 272, "io_uring_setup": 425, "personality": 135},
    "aarch64": {"socket": 198, "mount": 40, "ptrace": 117, "unshare": 97, "io_uring_setup": 425, "personality": 92},
}
CONSTANTS = {"AF_PACKET": 17, "AF_UNIX": 1, "AF_INET": 2, "SOCK_STREAM": 1, "SOCK_RAW": 3,
             "PTRACE_TRACEME": 0, "CLONE_NEWUSER": 0x10000000}


def policy(*argv, **options):
    done = subprocess.run([paths.NSBOX, "policy", *argv], capture_output=True, text=True, check=False,
                          timeout=120, **options)
    return cli.Run(done.returncode, done.stdout, done.stderr, None)


def equal(t, got, want, name, why=""):
    t.ok(got == want, name, "got  %r\nwant %r\n%s" % (got, want, why))


class Files:
    """Manifests by name, in a directory of their own."""

    def __init__(self):
        self.dir = tempfile.TemporaryDirectory(prefix="nsbox-policy-")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.dir.cleanup()

    def path(self, name):
        return os.path.join(self.dir.name, name)

    def put(self, name, content):
        with open(self.path(name), "w", encoding="utf-8") as f:
            f.write(content if isinstance(content, str) else json.dumps(content))
        return self.path(name)


def ask(manifest_path, question):
    r = policy("explain", manifest_path, "--why", question, "--json")
    return r, json.loads(r.out) if r.out else {}


def probe_words(question):
    verb, rest = question.split(" ", 1)
    if verb == "syscall":
        words = rest.split()
        rest = " ".join(str(CONSTANTS.get(w, w)) for w in
                        [str(NUMBERS[os.uname().machine][words[0]]), *words[1:]])
    return verb, rest


def same(answer, seen):
    if answer["verdict"] == "allowed":
        return seen == "ok"
    if answer["layer"] == "network" and not answer["errno"]:
        return seen == "gaierror"
    return seen == answer["errno"]


# ---------------------------------------------------------------- answers and reality


def test_why_is_what_happens(t):
    allowed = refused = 0
    with Files() as files:
        for i, (manifest, question) in enumerate(ANSWERS):
            path = files.put("%d.json" % i, {**MANIFEST, **manifest})
            r, answer = ask(path, question)
            verb, rest = probe_words(question)
            ran = cli.run("/usr/bin/python3", "-c", PROBE, verb, rest, manifest=manifest)
            seen = ran.out.strip()
            t.ok(answer and same(answer, seen), "%s: %s" % (json.dumps(manifest), question),
                 "answer: %s\nseen: %r %r" % (r.out or r.err, seen, ran.err))
            allowed += seen == "ok"
            refused += seen != "ok"
    t.ok(allowed >= 10 and refused >= 10, "both kinds were tried", "%d, %d" % (allowed, refused))


def test_proposed_change_works(t):
    """What --why proposes is put into the manifest, and then it works."""
    with Files() as files:
        path = files.put("a.json", MANIFEST)
        _, answer = ask(path, "write /data/x")
        equal(t, answer["change"]["pointer"], "/filesystem/write/-", "a grant is proposed")
        granted = {"filesystem": {"write": [answer["change"]["value"]]}}
        for manifest, expected in (({}, answer["errno"]), (granted, "ok")):
            ran = cli.run("/usr/bin/python3", "-c", PROBE, "write", "/data/x", manifest=manifest)
            equal(t, ran.out.strip(), expected, "with %s" % json.dumps(manifest))


# ---------------------------------------------------------------- commands


def test_lint(t):
    with Files() as files:
        path = files.put("bad.json", '{\n  "manifestVersion": 1,\n  "resources": {\n    "memroy": "1Gi" }\n}\n')
        r = policy("lint", path)
        equal(t, r.status, 1, "an error is exit status 1")
        t.ok("bad.json:4:5: error: /resources/memroy" in r.out, "with line, column and pointer", r.out)
        t.ok('did you mean "memory"' in r.out, "and what was meant", r.out)
        good = files.put("good.json", {**MANIFEST, "description": "a test"})
        r = policy("lint", good, "--json")
        report = json.loads(r.out)[0]
        equal(t, (r.status, report["errors"], report["findings"]), (0, 0, []), "a good one has none", r.out)
        both = policy("lint", good, path)
        equal(t, both.status, 1, "one bad file of two is enough")
        wide = files.put("wide.json", {**MANIFEST, "description": "x", "process": {"jit": True}, "filesystem": {
            "read": ["/srv"], "mask": ["/opt/none-such"]}, "resources": {"memory": "512Mi"}})
        r = policy("lint", wide, "--json")
        ids = sorted((f["id"], f["pointer"]) for f in json.loads(r.out)[0]["findings"])
        equal(t, ids, [("missingPath", "/filesystem/mask/0"),
                      ("noEffect", "/process/jit"), ("noEffect", "/resources/memory"),
                      ("wide", "/filesystem/read/0")], "warnings")
        equal(t, r.status, 0, "warnings alone are exit status 0")
        r = policy("lint", files.path("nowhere.json"))
        equal(t, r.status, 125, "a file that is not there is a failure of its own")


def test_lint_of_skills(t):
    with Files() as files:
        files.put("SKILL.md", "---\nname: other\ndescription: text\n---\n")
        r = policy("lint", files.dir.name)
        equal(t, r.status, 0, "a skill with SKILL.md alone lints", r.out + r.err)
        t.ok("default profile, standard" in r.out, "and it is said under which profile it runs", r.out)
        files.put("skill.json", {**MANIFEST, "description": "text"})
        r = policy("lint", files.dir.name)
        equal(t, r.status, 1, "names that differ are an error", r.out)
        t.ok("disagreement" in r.out, "which says so", r.out)
        files.put("SKILL.md", "---\nname: test\ndescription: text\n---\n")
        r = policy("lint", files.dir.name)
        equal(t, r.status, 0, "the same name is none", r.out)
    r = policy("lint", SKILL)
    equal(t, r.status, 0, "the example lints", r.out + r.err)


def test_diff(t):
    with Files() as files:
        a = files.put("a.json", MANIFEST)
        b = files.put("b.json", {**MANIFEST, "filesystem": {"write": ["/data"]}, "process": {"ptrace": False}})
        r = policy("diff", a, b, "--json")
        report = json.loads(r.out)
        equal(t, [d["to"] for d in report["widened"]], ["/data"], "what is wider", r.out)
        equal(t, [d["pointer"] for d in report["narrowed"]], ["/process/ptrace"], "what is narrower", r.out)
        equal(t, r.status, 0, "a difference is no failure")
        equal(t, policy("diff", "--fail-on-widening", a, b).status, 1, "unless it is asked for")
        c = files.put("c.json", {**MANIFEST, "process": {"ptrace": False}})
        equal(t, policy("diff", "--fail-on-widening", a, c).status, 0, "narrowing never is")
        equal(t, policy("diff", a, a).out, "no difference\n", "nothing differs from itself")


def test_prove(t):
    r = policy("prove")
    equal(t, r.status, 0, "all profiles are proved", r.out + r.err)
    for profile in ("standard", "strict", "network", "build"):
        t.ok("profile %s\n" % profile in r.out, "%s among them" % profile)
    equal(t, r.out.count(": holds"), 24, "payload, init and both, on two architectures", r.out)
    r = policy("prove", "--profile", "strict", "--json")
    filters = json.loads(r.out)[0]["filters"]
    t.ok(all(f["violations"] == 0 and f["paths"] > 1000 for f in filters), "with counts", r.out[:500])


def test_plans(t):
    with Files() as files:
        plan = files.path("plan")
        r = policy("compile", files.put("a.json", MANIFEST), "-o", plan)
        equal(t, (r.status, r.out), (0, ""), "a plan is written", r.err)
        r = policy("show", plan, "--json")
        shown = json.loads(r.out)
        equal(t, (shown["profile"], shown["uid"]), ("standard", 1000), "and can be shown")
        again = files.path("again")
        policy("compile", files.path("a.json"), "-o", again)
        with open(plan, "rb") as x, open(again, "rb") as y:
            data = x.read()
            t.ok(data == y.read(), "the same manifest gives the same plan")
        files.put("damaged", "")
        with open(files.path("damaged"), "wb") as f:
            f.write(data[:40] + b"\xff" + data[41:])
        r = policy("show", files.path("damaged"))
        equal(t, r.status, 125, "a damaged one is refused", r.out[:200])
        r = policy("compile", files.put("n.json", {**MANIFEST, "session": {"warm": True}}), "-o", plan)
        equal(t, r.status, 125, "what cannot be enforced has no plan")
        t.ok("/session/warm" in r.err, "and the error names the place", r.err)


def test_import(t):
    source = {
        "defaultAction": "SCMP_ACT_ERRNO", "archMap": [],
        "syscalls": [
            {"names": ["read", "keyctl", "mount", "socket"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["shmget"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": {"caps": ["CAP_BPF"]}},
            {"names": ["quotactl"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 1, "op": "SCMP_CMP_EQ"}]},
            {"names": ["syslog"], "action": "SCMP_ACT_ALLOW", "includes": {"minKernel": "4.8"}},
            {"names": ["mount"], "action": "SCMP_ACT_ERRNO"},
            {"names": ["no_such_call"], "action": "SCMP_ACT_ALLOW"},
        ]}
    with Files() as files:
        r = policy("import", "docker", files.put("p.json", source), "--json")
        report = json.loads(r.out)
        equal(t, report["manifest"]["syscalls"]["allow"], ["keyctl", "shmget"], "what is allowed without conditions", r.out)
        equal(t, sorted(x["call"] for x in report["leftOut"]),
                ["bpf", "mount", "no_such_call", "quotactl", "syslog"], "the rest is reported")
        manifest = files.put("m.json", {**MANIFEST, **report["manifest"]})
        equal(t, ask(manifest, "syscall keyctl")[1]["verdict"], "allowed", "the manifest that comes out allows it")
        equal(t, ask(files.put("n.json", MANIFEST), "syscall keyctl")[1]["verdict"], "refused", "and none does not")
        bundle = {"ociVersion": "1.0", "linux": {"seccomp": source}}
        r = policy("import", "oci", files.put("c.json", bundle), "--json")
        equal(t, json.loads(r.out)["manifest"], report["manifest"], "the same from a bundle's config.json")
        r = policy("import", "docker", files.put("o.json", {**source, "defaultAction": "SCMP_ACT_ALLOW"}))
        t.ok(r.status == 125 and "/defaultAction" in r.err, "a list of refusals is not taken", r.err)
        r = policy("import", "docker", files.put("u.json", {**source, "surprise": 1}))
        t.ok(r.status == 125 and "/surprise" in r.err, "nor what is not understood", r.err)


def test_usage(t):
    equal(t, policy().status, 125, "no command")
    t.ok("explain" in policy("--help").out, "the list of commands")
    for command in ("lint", "explain", "diff", "prove", "compile", "show", "import", "fields"):
        r = policy(command, "--help")
        t.ok(r.status == 0 and r.out.startswith("Usage: nsbox policy " + command), "%s --help" % command, r.out + r.err)
    equal(t, policy("frobnicate").status, 125, "an unknown command")
    with Files() as files:
        c = files.put("ceiling.json", {"memory": "64Mi"})
        m = files.put("m.json", {**MANIFEST, "resources": {"memory": "128Mi"}})
        r = policy("explain", m, "--ceiling", c)
        t.ok(r.status == 125 and "/resources/memory" in r.err, "the ceiling counts", r.err)
        equal(t, policy("explain", m).status, 0, "and without it it does not")


if __name__ == "__main__":
    sys.exit(tap.run([v for k, v in list(globals().items()) if k.startswith("test_")]))
