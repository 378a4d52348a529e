#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How runs come to their image: by option, by manifest (runtime.rootfs), by digest; what an image says of
its program; a root that cannot be changed; and files of a skill that have to be what the manifest says."""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import base64

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import images, paths, service, tap

PLACE = paths.scratch("use-")
os.chmod(PLACE, 0o755)
ENV = {**os.environ, "NSBOX_STATE_DIR": os.path.join(PLACE, "state")}


def nsbox(*argv, data=None):
    return subprocess.run([paths.NSBOX, *argv], input=data, stdin=None if data else subprocess.DEVNULL,
                          capture_output=True, env=ENV, timeout=60, check=False)


def bring(name, data):
    done = nsbox("image", "import", name, "-", data=data)
    return done.stderr.decode("utf-8", "replace") if done.returncode else ""


def root(*more):
    return images.tar(*images.busybox(), images.directory("srv"), images.member("srv/f", b"f\n"), *more)


def manifest(**fields):
    path = os.path.join(PLACE, "skill.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"manifestVersion": 1, **fields}, f)
    return path


def run(*argv):
    done = nsbox("run", *argv)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_program(t):
    t.equal(bring("app", images.docker_save([root()], Entrypoint=["/bin/sh", "-c"], Cmd=["pwd; echo $A; cat f"],
                                            WorkingDir="/srv", Env=["A=from the image"])), "", "an image with a program")
    t.equal(bring("plain", root()), "", "and one without")
    t.equal(run("--image", "app")[:2], (0, "/srv\nfrom the image\nf\n"), "its program runs, where and as it says")
    t.equal(run("--image", "app", "--cwd", "/etc", "--env", "A=mine")[1].split("\n")[:2], ["/etc", "mine"],
            "--cwd and --env go first")
    t.equal(run("--image", "app", "--", "pwd")[:2], (0, "/workspace\n"), "a program that is given runs as any other")
    status, _, err = run("--image", "plain")
    t.ok(status == 125 and "no program of its own" in err, "refused: an image that names none", err)
    status, _, err = run("--image", "host")
    t.ok(status == 125 and "what is to be run" in err, "refused: the host has none", err)


def test_manifest(t):
    digest = json.loads(nsbox("image", "inspect", "app").stdout)["digest"]
    for name in ("app", digest, digest[:19]):
        m = manifest(runtime={"rootfs": name})
        t.equal(run("--manifest", m, "--", "cat", "/srv/f")[:2], (0, "f\n"), "runtime.rootfs: %.24s" % name)
    t.equal(run("--manifest", manifest(runtime={"rootfs": "app"}))[1].split("\n")[0], "/srv", "and its program")
    t.equal(run("--manifest", manifest(), "--", "ls", "/srv/f")[0], 2, "twin: the host has no such file")
    t.equal(run("--manifest", m, "--image", "host", "--", "ls", "/srv/f")[0], 2, "--image goes first")
    status, _, err = run("--manifest", manifest(runtime={"rootfs": "nothing"}), "--", "true")
    t.ok(status == 125 and "no image is called 'nothing'" in err, "refused: one that is not there", err)
    status, _, err = run("--manifest", manifest(runtime={"rootfs": "../../etc"}), "--", "true")
    t.ok(status == 125 and "/runtime/rootfs" in err, "refused: a name that is none", err)
    out = nsbox("policy", "explain", manifest(runtime={"rootfs": "app"})).stdout.decode()
    t.ok("app" in out, "policy explain names it", out[:300])
    other = os.path.join(PLACE, "other.json")
    with open(other, "w", encoding="utf-8") as f:
        json.dump({"manifestVersion": 1, "runtime": {"rootfs": "plain"}}, f)
    diff = nsbox("policy", "diff", manifest(runtime={"rootfs": "app"}), other).stdout.decode()
    t.ok("image" in diff, "policy diff sees another image", diff)


def test_read_only(t):
    m = manifest(profile="strict", runtime={"rootfs": "app"})
    script = "for d in /srv /bin /etc /new; do echo x >$d/x && echo wrote $d; done 2>/dev/null; echo y >/workspace/y && cat /workspace/y"
    t.equal(run("--manifest", m, "--", "sh", "-c", script)[:2], (0, "y\n"), "profile strict: nothing of the image can be changed")
    m = manifest(profile="build", runtime={"rootfs": "app"})
    t.equal(run("--manifest", m, "--", "sh", "-c", "rm /srv/f && echo x >/srv/x && cat /srv/x")[:2], (0, "x\n"),
            "twin: profile build")


def skill(content, **fields):
    """A skill's directory, and the same as a zip-less tar, base64."""
    place = os.path.join(PLACE, "skill")
    subprocess.run(["rm", "-rf", place], check=True)
    os.makedirs(place + "/bin")
    files = {**content, "skill.json": json.dumps({
        "manifestVersion": 1, "name": "s", "entrypoints": {"main": {"command": ["cat", "bin/tool"]}}, **fields})}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, text in files.items():
            with open(os.path.join(place, name), "w", encoding="utf-8") as f:
                f.write(text)
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return place, base64.b64encode(out.getvalue()).decode()


def test_digests(t):
    right = hashlib.sha256(b"tool\n").hexdigest()
    with service.Daemon(env=ENV, options=["--state-dir", ENV["NSBOX_STATE_DIR"]]) as d:
        for what, digests, why in (("right ones", {"bin/tool": right}, None),
                                   ("another file", {"bin/tool": right.replace(right[0], "0" if right[0] != "0" else "1")}, right),
                                   ("a missing file", {"bin/tool": right, "bin/gone": right}, "no such file")):
            place, archive = skill({"bin/tool": "tool\n"}, files={"digests": digests})
            status, out, err = run("--skill", place)
            got = d.ask("POST", "/v1/jobs", {"kind": "skill", "skill": {"archive_base64": archive}})
            tap.wait_until(lambda j=got[1]["id"]: d.ask("GET", "/v1/jobs/" + j)[1]["state"] == "finished", 60)
            result = d.ask("GET", "/v1/jobs/" + got[1]["id"])[1]["result"]
            if not why:
                t.equal((status, out, result.get("stdout")), (0, "tool\n", "tool\n"), "files.digests: %s" % what)
                continue
            t.ok(status == 125 and "/files/digests/bin/" in err and why in err, "refused: %s" % what, err)
            t.ok("/files/digests/bin/" in str(result) and why in str(result), "and by the service", str(result)[:400])
        m = {"manifestVersion": 1, "runtime": {"rootfs": "app"}}
        got = d.ask("POST", "/v1/execute/command", {"manifest": m, "command": "cat /srv/f"})[1]
        t.equal(got.get("stdout"), "f\n", "runtime.rootfs of a request to the service")
        d.ask("POST", "/v1/sessions", {"session_id": "s", "manifest": m})
        d.ask("POST", "/v1/sessions/s/fork", {"session_id": "f"})
        got = d.ask("POST", "/v1/execute/command", {"session_id": "f", "command": "cat /srv/f"})[1]
        t.equal(got.get("stdout"), "f\n", "and of a session's fork")
        got = d.ask("POST", "/v1/execute/command", {"manifest": m, "image": "host", "command": "ls /srv/f || echo none"})[1]
        t.equal(got.get("stdout"), "none\n", "image of the request goes first")


if __name__ == "__main__":
    sys.exit(tap.run([test_program, test_manifest, test_read_only, test_digests]))
