#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""nsbox selftest: that it holds here, that it notices what does not, and how it tells."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import images, paths, service, tap

# One for each way a probe is run and judged; the whole is `nsbox selftest`.
SHORT = ["A06-pid", "A09", "B04", "B25-files", "C09", "D13", "E01", "F03", "G01-loopback", "H03-heap", "H09", "W01"]


# What makes a host one where no more than the tier process is reached.
NO_NAMESPACES = (os.path.join(paths.BUILD, "tests", "tools", "enosys"), "clone3", "--")


def selftest(*options, env=None, under=()):
    done = subprocess.run([*under, paths.NSBOX, "selftest", *options], stdin=subprocess.DEVNULL, capture_output=True,
                          check=False, timeout=300 * tap.slow(), env=env)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def only(ids):
    return [word for i in ids for word in ("--only", i)]


# ---------------------------------------------------------------- it holds


def test_short(t):
    status, out, err = selftest("--json", *only(SHORT))
    if not t.ok(out.startswith("{"), "it runs", err):
        return
    report = json.loads(out)
    for probe in report["probes"]:
        t.equal(probe["verdict"], "held", "%s is held" % probe["id"]) or t.note(json.dumps(probe))
        t.equal(probe["control"]["verdict"], "ESCAPED", "and its control succeeds")
    t.equal(len(report["probes"]), len(SHORT), "all that were asked for")
    t.equal(status, 0, "exit status")


def test_daemon(t):
    """The sandboxes of a live daemon hold as well, and it cannot be spoken to from inside."""
    daemon = service.Daemon()
    try:
        status, out, err = selftest("--json", "--daemon", daemon.socket, *only(LIVE))
        if t.ok(out.startswith("{"), "it runs", err):
            for probe in json.loads(out)["probes"]:
                t.equal(probe["verdict"], "held", "%s is held" % probe["id"]) or t.note(json.dumps(probe))
            t.equal(status, 0, "exit status")
    finally:
        daemon.stop()
    status, out, _ = selftest("--json", "--daemon", daemon.socket, "--only", "B04")
    t.ok(status == 1 and json.loads(out)["probes"][0]["verdict"] == "broken", "without a daemon nothing is held", out)


def test_daemon_process(t):
    """Those of a daemon that has no namespaces are judged as that tier's, without a word of the caller's."""
    daemon = service.Daemon(options=["--min-tier", "process"], under=NO_NAMESPACES)
    try:
        status, out, err = selftest("--json", "--daemon", daemon.socket, *only(LIVE), under=NO_NAMESPACES)
        if t.ok(out.startswith("{"), "it runs", err):
            found = {p["id"]: next(iter(p["tiers"].items())) for p in json.loads(out)["probes"]}
            want = {i: ("process", "held") for i in LIVE} | {"A06-pid": ("process", "declared")}
            t.equal({i: (tier, v["verdict"]) for i, (tier, v) in found.items()}, want, "held, or declared") or t.note(out)
            t.equal(status, 0, "exit status")
    finally:
        daemon.stop()
    status, _, err = selftest("--only", "B04", under=NO_NAMESPACES)
    t.ok(status == 125 and "--tier process" in err, "but runs of one's own are not of that tier unasked", err)


LIVE = ["A06-pid", "B04", "B25-files", "C09", "D13", "E01", "F03", "G17", "W01"]


def verdicts(*options, env=None):
    """{id: (verdict, tiers, text)} of a report, and the exit status."""
    status, out, err = selftest("--json", *options, env=env)
    report = json.loads(out) if out.startswith("{") else {"probes": [], "error": err}
    return status, {p["id"]: (p["verdict"], sorted(p["tiers"]), json.dumps(p)) for p in report["probes"]}, err


def test_chosen(t):
    """Profile, manifest and tier choose what is tested: tracing is a right of one profile and not of another."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as f:
        json.dump({"manifestVersion": 1, "name": "m", "process": {"ptrace": False}}, f)
        f.flush()
        for options, verdict in (([], "n/a"), (["--profile", "strict"], "held"), (["--profile", "build"], "n/a"),
                                 (["--manifest", f.name], "held")):
            status, found, err = verdicts("--tier", "namespace", "--only", "D11", "--only", "B04", *options)
            t.equal((status, {i: v[0] for i, v in found.items()}), (0, {"B04": "held", "D11": verdict}),
                    "tracing and a file of the host with %s" % (options or "the standard profile")) or t.note(err)
    top = json.loads(subprocess.run([paths.NSBOX, "doctor", "--json"], capture_output=True, check=True).stdout)["tier"]
    for tier in ("namespace", "cgroup"):
        status, found, err = verdicts("--tier", tier, "--only", "B04")
        if tier == top or tier == "namespace":
            t.equal((status, found.get("B04", ())[:2]), (0, ("held", [tier])), "--tier %s and no other" % tier)
        else:
            t.ok(status == 125 and "does not reach" in err, "--tier %s is refused where it is not reached" % tier, err)


def test_image(t):
    """In an image that has nothing but a shell the probes hold as well."""
    place = paths.scratch("img-")
    os.chmod(place, 0o755)
    env = {**os.environ, "NSBOX_STATE_DIR": os.path.join(place, "state")}
    done = subprocess.run([paths.NSBOX, "image", "import", "small", "-"], input=images.tar(*images.busybox()), env=env,
                          capture_output=True, check=False)
    t.equal(done.returncode, 0, "an image") or t.note(done.stderr.decode())
    chosen = ("B04", "B11-write", "B25-files", "D13", "E01", "W01")
    status, found, err = verdicts("--tier", "namespace", "--image", "small", *only(chosen), env=env)
    t.equal({i: v[0] for i, v in found.items()}, dict.fromkeys(chosen, "held"), "all held in it") or t.note(repr((found, err)))
    t.equal(status, 0, "exit status")


# What the tier "process" does not promise, by the probes that show it. With a user of its own a run changes no
# attributes of the caller's files, and has none of its groups.
DECLARED = {"A02": "host", "A06-user": "host", "A06-mount": "host", "A06-net": "host", "A06-ipc": "host",
            "A06-uts": "host", "A06-cgroup": "host", "A06-pid": "processes", "B13": "setId", "B25-paths": "host",
            "C02": "host", "C05": "paths", "C10": "processes", "H06": "disk", "H11-inotify": "userLimits"}
if os.getuid() != 0:
    DECLARED.update({"E05": "attributes"}, **({"F07": "groups"} if os.getgroups() else {}))
# Of which control groups are the only wall, and, with a single id, what runs share.
UNTRIED = {"H03-pipes", "H08"} | ({"A03"} if os.getuid() != 0 else set())


def test_process(t):
    """Without namespaces each probe is held, or reaches what that tier is known not to stop, and nothing else."""
    status, out, err = selftest("--json", "--tier", "process")
    if not t.ok(out.startswith("{"), "it runs", err):
        return
    rows = {p["id"]: p for p in json.loads(out)["probes"]}
    found = {kind: {i for i, p in rows.items() if p["verdict"] == kind}
             for kind in ("held", "declared", "n/a", "ESCAPED", "broken")}
    t.equal({i: rows[i]["tiers"]["process"].get("notStopped") for i in found["declared"]}, DECLARED,
            "what is declared, and as what")
    for i in sorted(found["ESCAPED"] | found["broken"]):
        t.ok(False, "%s is held or declared" % i, json.dumps(rows[i]))
    t.equal([i for i in found["held"] if (rows[i]["control"] or {}).get("verdict") != "ESCAPED"], [],
            "no control of what is held is held, too")
    t.ok(found["held"] >= {"A04", "A09", "A15", "B04", "B25-files", "C07-nodes", "C10-links", "D13", "D17", "E01",
                           "E04-abstract", "E04-path", "E06", "F03", "G01-loopback", "H02", "H03-heap", "H05", "H09", "W01"},
         "what is held", repr(found))
    t.ok(found["n/a"] >= UNTRIED, "what only control groups could hold is not tried", repr(found["n/a"]))
    t.ok(all(rows[i]["tiers"]["process"]["text"] for i in found["n/a"]), "and what is not tried says why")
    t.equal(status, 0, "exit status")


# ---------------------------------------------------------------- it notices


# Control groups and mounts take privilege, a link to nowhere takes a module.
LACKING = ("nftables",) + (() if os.getuid() == 0 else ("cgroupLimits",))


def test_mutate(t):
    """Every layer is missed by a probe where it is left out, and held by it alone where it is not."""
    status, out, err = selftest("--mutate", "--json")
    if not t.ok(out.startswith("{"), "layers are left out", err):
        return
    mutations = json.loads(out)["mutations"]
    for m in mutations:
        may_lack = m["verdict"] == "n/a" and (m["layer"] in LACKING or not tap.must_work())
        t.ok(m["verdict"] == "noticed" or may_lack, "without %s" % m["layer"], json.dumps(m))
    tried = {m["layer"] for m in mutations if m["witness"]}
    t.ok(tried >= {"pid", "capabilities", "seccomp", "landlockFs"}, "the witness is asked as well", repr(tried))
    t.equal(status, 0, "exit status")


def test_mutate_process(t):
    status, out, err = selftest("--mutate", "--tier", "process", "--json")
    if not t.ok(out.startswith("{"), "layers of the tier process are left out", err):
        return
    mutations = json.loads(out)["mutations"]
    for m in mutations:
        t.equal(m["verdict"], "noticed", "without %s" % m["layer"]) or t.note(json.dumps(m))
    t.equal({m["layer"] for m in mutations}, {"landlockFs", "landlockScopes", "noNewPrivileges", "seccomp", "witness"},
            "each that an ordinary user can have")
    t.equal(status, 0, "exit status")


def test_only_the_mutant_can(t):
    """No other program, nor the library, holds the switch (M03)."""
    def mentions(name):
        with open(os.path.join(paths.BUILD, name), "rb") as f:
            return b"weaken_layers" in f.read()
    t.ok(mentions("nsbox-mutant"), "nsbox-mutant has it")
    for name in ("nsbox", "nsboxd", "nsbox-spawn", "libnsbox.so", "libnsbox.a"):
        t.ok(not mentions(name), "%s has not" % name)


LATE = """
import os, subprocess, sys
subprocess.run(["mount", "--make-rshared", "/"], check=True)
p = subprocess.Popen([sys.argv[1], "run", "--no-tty", "--", "sh", "-c", "echo ready; read line; ls -a /usr/games"],
                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert p.stdout.readline() == b"ready\\n"
subprocess.run(["mount", "-t", "tmpfs", "late", "/usr/games"], check=True)
open("/usr/games/late", "w").close()
print("inside", b"late" in p.communicate(b"\\n")[0], "outside", os.path.exists("/usr/games/late"))
"""


def test_late_mounts(t):
    """What the host mounts while a run lives does not show in it (B09)."""
    if os.getuid() != 0:
        t.note("mounting on a host takes root")
        return
    done = subprocess.run(["unshare", "-m", sys.executable, "-c", LATE, paths.NSBOX], capture_output=True, check=False)
    t.equal(done.stdout, b"inside False outside True\n", "a late mount of the host stays outside") or \
        t.note(done.stderr.decode())


# ---------------------------------------------------------------- probes of others

PROBES = {
    "held": "echo some; echo 'HELD seccomp: yes'; exit 0",
    "escaped": "echo 'ESCAPED <b>it</b>'; exit 1",
    "skip": "echo SKIP no such thing; exit 2",
    "liar": "echo HELD; exit 1",
    "silent": "exit 0",
    "killed": "kill -9 $$",
    "marker": "echo HELD; printf '\\033[31mESCAPED\\n'; exit 0",
}
VERDICTS = {"held": "held", "escaped": "ESCAPED", "skip": "n/a", "liar": "broken", "silent": "broken",
            "killed": "broken", "marker": "broken"}


def test_probe_dir(t):
    with tempfile.TemporaryDirectory(prefix="probes-") as place:
        for name, script in PROBES.items():
            path = os.path.join(place, name)
            with open(path, "w", encoding="utf-8") as f:
                f.write("#!/bin/sh\n" + script + "\n")
            os.chmod(path, 0o755)
        with open(os.path.join(place, "README"), "w", encoding="utf-8") as f:
            f.write("not a probe\n")
        status, out, err = selftest("--json", "--only", "W01", "--tier", "namespace", "--probe-dir", place)
        t.equal(status, 1, "one that escapes is an exit status") or t.note(err)
        found = {p["id"]: p for p in json.loads(out)["probes"]}
        for name, verdict in VERDICTS.items():
            t.equal(found[name]["verdict"], verdict, "a probe that is %s is %s" % (name, verdict))
        t.equal(found["held"]["tiers"]["namespace"]["by"], "seccomp", "it names the layer")
        t.ok("README" not in found, "what cannot be executed is no probe")
        status, out, err = selftest("--json", "--only", "W01", "--tier", "process", "--probe-dir", place)
        found = {p["id"]: p["verdict"] for p in json.loads(out or '{"probes": []}')["probes"]}
        t.equal((status, found), (1, {"W01": "held", **VERDICTS}), "and so they are in the tier process") or t.note(err)
        for name in set(PROBES) - {"held"}:
            os.unlink(os.path.join(place, name))
        status, out, err = selftest("--tap", "--only", "W01", "--tier", "namespace", "--probe-dir", place)
        t.equal(status, 0, "without them all is well") or t.note(err)
        t.ok(re.fullmatch(r"ok 1 - W01 .*\nok 2 - held .*\n1\.\.2\n", out), "TAP", out)


# ---------------------------------------------------------------- a page to look at

BROWSER = shutil.which("chromium")


def look(place, page, *options):
    """The page as a browser has it, without a screen."""
    return subprocess.run([BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                           "--user-data-dir=" + os.path.join(place, "profile"), "--window-size=1200,900", *options,
                           "file://" + page], stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120)


def test_page(t):
    if os.getuid() != 0:
        t.note("root's half looks at it")
        return
    with tempfile.TemporaryDirectory(prefix="page-", ignore_cleanup_errors=True) as place:
        probes, page, shot = (os.path.join(place, name) for name in ("probes", "page.html", "shot.png"))
        os.mkdir(probes)
        with open(os.path.join(probes, "<i>x"), "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + PROBES["escaped"] + "\n")
        os.chmod(os.path.join(probes, "<i>x"), 0o755)
        selftest("--only", "W01", "--tier", "namespace", "--probe-dir", probes, "--html", page)
        with open(page, encoding="utf-8") as f:
            text = f.read()
        t.ok(not re.search(r"(?:src|href)=|url\(|<script|<i>|<b>", text), "the page needs nothing, and quotes what it shows")
        if not BROWSER:
            t.ok(not tap.must_work(), "there is a browser to look at it")
            return
        dom = look(place, page, "--dump-dom", "--screenshot=" + shot).stdout.decode()
        cells = re.findall(r'<td class="(\w+)">([^<]*)</td>', dom)
        t.ok(("held", "held") in cells and ("ESCAPED", "ESCAPED") in cells, "a browser shows both verdicts", dom[-2000:])
        t.ok("&lt;b&gt;it&lt;/b&gt;" in dom and "<i>" not in dom, "text stays text")
        t.ok(os.path.exists(shot) and os.path.getsize(shot) > 20000, "and there is something to see")


# ---------------------------------------------------------------- what it says


def test_words(t):
    status, out, _ = selftest("--list")
    ids = [line.split()[0] for line in out.splitlines()]
    t.ok(status == 0 and len(ids) == len(set(ids)) and len(ids) > 60, "probes are listed, each once")
    status, out, _ = selftest("--explain", "E04-abstract")
    t.ok(status == 0 and "net, each enough: landlockScopes" in out, "one is explained", out)
    _, out, _ = selftest("--explain", "C10")
    t.ok("process   not stopped: processes\n" in out and out.count("process   not stopped") == 1,
         "also what the tier process does not stop", out)
    for options, words in ((["--only", "Z99"], "there is no probe 'Z99'"), (["--tier", "best"], "not 'best'"),
                           (["--mutate", "--tier", "cgroup"], "--tier process"),
                           (["--explain", "Z99"], "there is no attack 'Z99'"), (["x"], "takes no operand"),
                           (["--tap", "--json"], "exclude"), (["--profile", "nonesuch"], "profile"),
                           (["--image", "nonesuch", "--only", "W01"], "nonesuch"),
                           (["--probe-dir", "/nonexistent"], "/nonexistent")):
        status, _, err = selftest(*options)
        t.ok(status == 125 and words in err, "%s: refused by name" % " ".join(options), err)


def test_catalogue(t):
    """Every attack has a place, and every place is there."""
    _, out, _ = selftest("--list", "--json")
    listed = json.loads(out)
    probes = {p["id"].split("-")[0] for p in listed["probes"]}
    attacks = {a["id"]: a for a in listed["attacks"]}
    t.ok(len(attacks) == len(listed["attacks"]) > 130, "attacks are listed, each once")
    here = {i for i, a in attacks.items() if a["where"] == "selftest"}
    noted = {i for i in here if re.search(r"\b[A-Z]\d\d\b", attacks[i]["note"])}
    t.equal(sorted(here - probes - noted), [], "each that the selftest tries has a probe")
    t.equal(sorted(probes - here - {"W01"}), [], "each probe is of an attack")
    files = {a["where"] for a in attacks.values()} - {"selftest", "-"}
    t.equal(sorted(f for f in files if not os.path.exists(os.path.join(paths.ROOT, f))), [], "each test is there")
    t.equal([i for i, a in attacks.items() if a["where"] == "-" and not a["note"]], [], "what is not promised says why")


if __name__ == "__main__":
    sys.exit(tap.run([v for k, v in list(globals().items()) if k.startswith("test_")]))
