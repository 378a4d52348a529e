#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`nsbox image` and runs in imported images: every form an image comes in, what is refused of it,
and what is left of an import that did not finish."""

import bz2
import gzip
import io
import json
import lzma
import os
import signal
import subprocess
import sys
import tarfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, images, paths, service, tap

PLACE = paths.scratch("img-")
os.chmod(PLACE, 0o755)
STATE = os.path.join(PLACE, "state")
ENV = {**os.environ, "NSBOX_STATE_DIR": STATE}
PRIVILEGED = os.geteuid() == 0
BUILD = {"profile": "build"}


def nsbox(*argv, data=None):
    return subprocess.run([paths.NSBOX, *argv], input=data, stdin=None if data else subprocess.DEVNULL,
                          capture_output=True, env=ENV, timeout=60 * tap.slow(), check=False)


def bring(name, data, *options):
    """Import from standard input; the error's text, or ""."""
    done = nsbox("image", "import", *options, name, "-", data=data)
    return done.stderr.decode("utf-8", "replace") if done.returncode else ""


def inside(image, script, manifest=None):
    return cli.run("sh", "-c", script, options=["--image", image], manifest=manifest, env=ENV)


def listed():
    return {x["name"]: x for x in json.loads(nsbox("image", "list", "--json").stdout)}


def layers():
    """Names in the store's layers/: of whole ones and of what is unfinished."""
    return sorted(os.listdir(STATE + "/layers"))


def clean():
    names = list(listed())
    if names:
        nsbox("image", "rm", *names)
    return layers()


def root(*more):
    return images.tar(*images.busybox(), *more)


# ---------------------------------------------------------------- roots

def test_compressions(t):
    plain = root(images.member("hello", b"hello\n"))
    zstd = subprocess.run(["zstd", "-1"], input=plain, capture_output=True, check=True)
    forms = {"tar": plain, "gzip": gzip.compress(plain, 1), "bzip2": bz2.compress(plain, 1),
             "xz": lzma.compress(plain, preset=0), "zstd": zstd.stdout}
    for name, data in forms.items():
        t.equal(bring("root-" + name, data), "", "a root tar, %s" % name)
        t.equal(inside("root-" + name, "cat /hello").out, "hello\n", "a run sees its files (%s)" % name)
    t.equal(clean(), [], "and all of it can be removed")


def test_directory(t):
    tree = images.busybox_tree(os.path.join(PLACE, "tree"))
    os.makedirs(tree + "/data/sub")
    with open(tree + "/data/one", "w", encoding="utf-8") as f:
        f.write("one\n")
    os.link(tree + "/data/one", tree + "/data/two")
    os.symlink("/data/one", tree + "/data/absolute")
    os.mkfifo(tree + "/data/fifo")
    os.chmod(tree + "/data/sub", 0o711)
    os.setxattr(tree + "/data/one", "user.colour", b"blue")
    with open(tree + "/data/odd\n\udcff name", "w", encoding="utf-8"):
        pass
    done = nsbox("image", "import", "dir", tree)
    t.equal((done.returncode, done.stderr), (0, b""), "a directory")
    got = inside("dir", "cat /data/absolute; stat -c %h /data/two; stat -c %a /data/sub; ls /data | wc -l; "
                 "test -e /data/fifo || echo none")
    t.equal(got.out, "one\n2\n711\n5\nnone\n", "links, hard links, modes, odd names; no FIFO")
    layer = os.path.join(STATE, "layers", layers()[0])
    t.equal(os.getxattr(layer + "/data/one", "user.colour"), b"blue", "attributes of users stay")
    clean()


def test_members(t):
    t.equal(bring("m", root(
        images.directory("d", mode=0o555), images.member("d/f", b"x", mode=0o4755),
        images.hardlink("d/g", "d/f"), images.hardlink("d/h", "./d/f"),
        images.member("dev/null0", None, type=tarfile.CHRTYPE, devmajor=1, devminor=3),
        images.member("twice", b"first"), images.member("twice", b"second"),
        images.member("own", b"", uid=33, gid=34), images.member("mine", b"", uid=1000, gid=1000),
        images.member("big", b"", uid=70000), images.member("sparse", b"\0" * (4 << 20) + b"end"))), "",
        "all kinds of entries")
    got = inside("m", "stat -c %a /d /d/f; stat -c %h /d/h; cat /twice; echo; ls /dev/null0; "
                 "stat -c '%u %g %Y' /own /mine /big; stat -c %s /sparse")
    ids = "33 34 1000000000\n0 0 1000000000\n65534 0 1000000000\n" if PRIVILEGED else "1000 1000 1000000000\n" * 3
    want = ("555" if PRIVILEGED else "755") + "\n755\n3\nsecond\n" + ids + "4194307\n"
    t.equal(got.out, want, "modes without set-id bits, links, the later of two, owners, no device")
    layer = os.path.join(STATE, "layers", layers()[0])
    t.ok(os.stat(layer + "/sparse").st_blocks < 100, "zeros take no room")
    t.equal(os.stat(layer).st_uid, 1879048192 if PRIVILEGED else os.getuid(), "the layer's owner")
    t.equal(os.stat(STATE + "/layers").st_mode & 7, 0, "no one else gets into the layers")
    got = inside("m", "whoami; cat /etc/passwd")
    t.equal(got.out, "sandbox\nroot:x:0:0:root:/root:/bin/sh\nsandbox:x:1000:1000:sandbox:/home/sandbox:/bin/sh\n",
            "the image's users, and the run's own")
    clean()


def test_ownership(t):
    bring("o", root(images.directory("app"), images.member("app/f", b"old"), images.member("app/g", b"g")))
    got = inside("o", "echo new >/app/f; echo $?; rm /app/g; echo $?; touch /usr/x; echo $?; cat /app/f")
    t.equal(got.out, "1\n1\n1\nold", "user 1000 changes nothing of the image")
    got = inside("o", "echo new >/app/f; rm /app/g; touch /usr/x; mkdir /app/d; mv /app/f /app/d; cat /app/d/f; "
                 "ls /app; rm -r /app; mkdir /app; ls -A /app", manifest=BUILD)
    t.equal(got.out, "new\nd\n", "inside-root does, in profile build")
    t.equal(inside("o", "cat /app/f /app/g").out, "oldg", "and the image is as it was")
    got = inside("o", "touch /x; echo $?; touch /workspace/x; echo $?; cat /app/g", manifest={"profile": "strict"})
    t.equal(got.out, "1\n0\ng", "a read-only root")
    host = cli.run("touch", "/usr/x", manifest=BUILD, env=ENV)
    t.ok(host.status, "the image 'host' stays read-only to inside-root")
    clean()


# ---------------------------------------------------------------- layers

BASE = root(images.directory("a"), images.member("a/1", b"1"), images.member("a/2", b"2"), images.directory("b"),
            images.member("b/1", b"b1"), images.member("c", b"file"), images.directory("d"),
            images.member("d/x", b"x"))
UPPER = images.tar(images.member("a/.wh.1", b""), images.directory("b"), images.member("b/.wh..wh..opq", b""),
                   images.member("b/2", b"b2"), images.member(".wh.c", b""), images.directory("c"),
                   images.member("c/in", b"in"), images.member(".wh.d", b""), images.member(".wh..wh.plnk", b""))
LOOK = "cd /; ls a b; cat c/in; test -e d || echo gone; ls -a | head -1"
SEEN = "a:\n2\n\nb:\n2\ningone\n.\n"


def test_forms(t):
    forms = {
        "OCI archive": images.Layout().add([BASE, UPPER]).archive(),
        "OCI archive, layers as they are": images.Layout().add([BASE, UPPER], compress=False).archive(),
        "docker save, old": images.docker_save([BASE, UPPER]),
        "docker save, new": images.docker_save([BASE, UPPER], old=False),
        "docker save, gzip around it": gzip.compress(images.docker_save([BASE, UPPER]), 1),
    }
    for what, data in forms.items():
        t.equal(bring("forms/test:1", data), "", what)
        t.equal(inside("forms/test:1", LOOK).out, SEEN, "whiteouts and opaque directories (%s)" % what)
    t.equal(len(layers()), 2, "a name that moves on takes the layers of before with it")
    path = images.Layout().add([BASE, UPPER]).write(os.path.join(PLACE, "layout"))
    done = nsbox("image", "import", "layout", path)
    t.equal((done.returncode, done.stderr), (0, b""), "OCI layout, a directory")
    t.equal(inside("layout", LOOK).out, SEEN, "whiteouts and opaque directories (layout)")
    t.equal(clean(), [], "all gone")


def test_own_name(t):
    """Without a name an image gets the one that it brings."""
    def unnamed(data, *options):
        done = nsbox("image", "import", *options, "-", data=data)
        return done.returncode, (done.stdout + done.stderr).decode()

    for form, old in ("old", True), ("new", False):
        status, said = unnamed(images.docker_save([BASE], tags=("docker.io/org/%s:1.2" % form, "second:1"), old=old))
        t.ok(status == 0 and said.startswith("org/%s:1.2 " % form), "what docker save writes, " + form, said)
    t.equal(unnamed(images.docker_save([BASE], tags=("a:1", "second:1")), "--ref", "second:1")[1][:9], "second:1 ", "that --ref chooses")
    layout = images.Layout().add([BASE], name="docker.io/library/lone:2")
    t.equal(unnamed(layout.archive())[1][:7], "lone:2 ", "an OCI layout")
    t.equal(sorted(listed()), ["lone:2", "org/new:1.2", "org/old:1.2", "second:1"], "under which they are listed")
    before = listed()["second:1"]
    status, said = unnamed(images.docker_save([UPPER], tags=("second:1",)))
    t.ok(status == 125 and "another image" in said and listed()["second:1"] == before,
         "refused: a name of its own that another image has", said)
    t.equal(unnamed(images.docker_save([BASE], tags=("second:1",)))[0], 0, "twin: the same image once more")
    for what, tags, why in ("none", (), "give a name"), ("no name", ("../x",), "letters and digits"), ("the host's", ("host",), "this machine"):
        t.ok(why in unnamed(images.docker_save([BASE], tags=tags))[1], "refused: a name of its own that is " + what)
    t.ok("give a name" in unnamed(root())[1], "refused: a root that has none")
    clean()


def test_umoci(t):
    """A layout that a public tool has made."""
    layout, bundle = os.path.join(PLACE, "umoci"), os.path.join(PLACE, "bundle")

    def umoci(*argv):
        subprocess.run(["umoci", *argv], check=True, capture_output=True)

    rootless = [] if PRIVILEGED else ["--rootless"]
    umoci("init", "--layout", layout)
    umoci("new", "--image", layout + ":base")
    umoci("unpack", *rootless, "--image", layout + ":base", bundle)
    subprocess.run(["tar", "-xC", bundle + "/rootfs"], input=BASE, check=True)
    umoci("repack", "--image", layout + ":base", bundle)
    os.unlink(bundle + "/rootfs/a/1")
    umoci("repack", "--refresh-bundle", "--image", layout + ":two", bundle)
    done = nsbox("image", "import", "u", layout)
    t.ok(done.returncode and b"--ref: base, two" in done.stderr, "several tags: it asks for one", done.stderr)
    for ref, want in ("base", "1\n2\n"), ("two", "2\n"):
        done = nsbox("image", "import", "--ref", ref, "u-" + ref, layout)
        t.equal((done.returncode, done.stderr), (0, b""), "umoci's layout, " + ref)
        t.equal(inside("u-" + ref, "ls /a").out, want, "its files, " + ref)
    clean()


def test_sharing(t):
    other = images.tar(images.member("other", b""))
    one, two = images.Layout().add([BASE, UPPER]), images.Layout().add([BASE, other])
    bring("one", one.archive())
    bring("two", two.archive())
    t.equal(len(layers()), 3, "two images of two layers share one")
    nsbox("image", "rm", "one")
    t.equal(len(layers()), 2, "what the other needs stays")
    t.equal(inside("two", "ls /other /a/1").out, "/a/1\n/other\n", "and works")
    t.equal(clean(), [], "until it goes, too")


def test_many_layers(t):
    many = [BASE] + [images.tar(images.member("n/%d" % i, b"%d" % i), images.member("last", b"%d" % i))
                     for i in range(60)]
    t.equal(bring("many", images.Layout().add(many, compress=False).archive()), "", "61 layers")
    t.equal(inside("many", "ls /n | wc -l; cat /last").out, "60\n59", "are mounted, the topmost on top")
    repeated = [BASE, UPPER, BASE, UPPER]
    t.equal(bring("repeated", images.docker_save(repeated)), "", "layers that come twice")
    t.equal(inside("repeated", LOOK).out, SEEN, "count where they come last")
    clean()


def test_configuration(t):
    layout = images.Layout().add([BASE], Env=["FOO=b a%r", "PATH=/a:/bin", "HOME=/x", "NOVALUE"], User="33")
    bring("conf", layout.archive())
    got = inside("conf", "echo $FOO; echo $PATH; echo $HOME; id -u")
    t.equal(got.out, "b a%r\n/a:/bin\n/home/sandbox\n1000\n", "Env is taken, but for HOME; User is not")
    got = inside("conf", "echo $FOO; echo $PATH", manifest={"env": {"set": {"FOO": "m", "PATH": "/bin"}}})
    t.equal(got.out, "m\n/bin\n", "the manifest's variables win")
    two = images.Layout().add([BASE], arch="amd64").add([BASE, UPPER], arch="arm64")
    for arch, want in ("amd64", 1), ("arm64", 2):
        bring("plat", two.archive(), "--platform", "linux/" + arch)
        t.equal(len(listed()["plat"]["layers"]), want, "of two platforms, " + arch)
    t.ok("linux/mips" in bring("plat", two.archive(), "--platform", "linux/mips"), "one that is not there")
    foreign = images.docker_save([BASE], arch="mips")
    t.ok("is for linux/mips" in bring("foreign", foreign), "an image of a foreign platform")
    t.equal(bring("foreign", foreign, "--platform", "linux/mips"), "", "twin: asked for by name")
    clean()


def test_disk(t):
    """Beyond resources.disk a write is refused, and that is the cause of who fails for it."""
    bring("disk", root())
    fill = "dd if=/dev/zero of=%s/x bs=1M count=20"
    for profile in "standard", "strict":
        small = {"profile": profile, "resources": {"disk": "8Mi"}}
        for place in "/workspace", "/tmp":
            got = inside("disk", fill % place, manifest=small)
            t.ok("No space left" in got.err and got.report["cause"] == "disk", "%s, full: %s" % (place, profile), got)
            t.ok(got.report["memory_peak"] < got.report["limits"]["memory"], "memory is below its limit")
        got = inside("disk", fill % "/tmp")
        t.equal((got.status, got.report["cause"]), (0, "exit"), "twin: with room (%s)" % profile)
        got = inside("disk", (fill % "/tmp") + " || true", manifest=small)
        t.equal((got.status, got.report["cause"]), (0, "exit"), "one that copes with it just ends (%s)" % profile)
    got = inside("disk", "i=0; while : >/workspace/$i; do i=$((i+1)); done; exit 3", manifest=small)
    t.equal(got.report["cause"], "disk", "inodes have a limit, too")
    clean()


def test_service(t):
    """The same names mean the same to nsboxd, at once."""
    bring("svc", root(images.member("which", b"first\n")))
    bring("org/tool:1.2", images.docker_save([root()], Env=["A=b"], Entrypoint=["/bin/ls"], WorkingDir="/etc"))
    with service.Daemon(env=ENV, options=["--state-dir", STATE]) as d:
        def which():
            return d.ask("POST", "/v1/execute/command", {"workspace_id": "w", "image": "svc", "command": "cat /which"})

        t.equal(which()[1].get("stdout"), "first\n", "a request names an image")
        shown = d.ask("GET", "/v1/images")[1]["images"]
        t.equal([x["name"] for x in shown], ["host", "org/tool:1.2", "svc"], "the service lists what there is")
        t.equal(shown[2], listed()["svc"], "as `nsbox image list` does")
        whole = json.loads(nsbox("image", "inspect", "org/tool:1.2").stdout)
        for name in ("org/tool:1.2", whole["id"][:12]):
            t.equal(d.ask("GET", "/v1/images/" + name), (200, whole), "and shows one, by name or id")
        t.equal(d.ask("GET", "/v1/images/nothing")[0], 404, "one that is not there")
        t.equal(d.ask("POST", "/v1/images", {})[0], 405, "none is brought over it")
        got = d.ask("POST", "/v1/execute/command", {"image": "org/tool:1.2", "command": "echo $A"})[1]
        t.equal(got.get("stdout"), "b\n", "a name with a tag runs")
        t.equal(d.ask("POST", "/v1/execute/command", {"image": "a/../b", "command": "true"})[0], 400, "a name that is none")
        t.equal(d.ask("POST", "/v1/sessions", {"session_id": "s", "image": "svc"})[0], 201, "a session in an image")
        d.ask("POST", "/v1/execute/command", {"session_id": "s", "command": "rm -f /which; echo 1 >f"})
        snap = d.ask("POST", "/v1/sessions/s/snapshot")[1].get("id")
        t.equal(d.ask("POST", "/v1/sessions", {"session_id": "s2", "snapshot_id": snap})[0], 201, "its snapshot")
        got = d.ask("POST", "/v1/execute/command", {"session_id": "s2", "command": "cat f; ls /which"})[1]
        t.ok(got.get("stdout", "").startswith("1\n"), "is gone on from", got)
        for name in ("s", "s2"):
            d.ask("DELETE", "/v1/sessions/" + name)
        bring("svc", root(images.member("which", b"second\n")))
        t.equal(which()[1].get("stdout"), "second\n", "and gets what the name means now")
        got = d.ask("POST", "/v1/sessions", {"session_id": "s3", "snapshot_id": snap})
        t.ok(got[0] >= 400 and "another image" in str(got[1]), "a snapshot goes with its image alone", got)
        nsbox("image", "rm", "org/tool:1.2")
        t.ok(tap.wait_until(lambda: len(layers()) == 1, 30), "nothing is held once it ended", str(layers()))
        nsbox("image", "rm", "svc")
        t.ok("no image is called" in json.dumps(which()), "refused: one that is gone", which())
    clean()


# ---------------------------------------------------------------- refusals

def test_hostile(t):
    good = [images.directory("x"), images.member("x/f", b"f")]
    bad = {
        "..": images.member("../out", b""), "inner ..": images.member("x/../../out", b""),
        "absolute": images.member("/out", b""), "empty component": images.member("x//f2", b""),
        "hard link out": images.hardlink("h", "../../etc/passwd"),
        "absolute hard link": images.hardlink("h", "/etc/passwd"),
        "hard link to nothing": images.hardlink("h", "nothing"),
        "hard link to a directory": images.hardlink("h", "x"),
        "file in place of a directory": images.member("x", b""),
        "whiteout of ..": images.member("x/.wh...", b""),
    }
    t.equal(bring("good", images.docker_save([images.tar(*good)])), "", "twin: the same without it")
    clean()
    for what, entry in bad.items():
        error = bring("bad", images.docker_save([images.tar(*good, entry)]))
        t.ok("entry '" in error or "path '" in error, "refused: " + what, error)
    for what, target in ("out of the root", "../../../.."), ("absolute", PLACE):
        error = bring("bad", images.docker_save([images.tar(*good, images.link("l", target),
                                                            images.member("l/out", b"evil"))]))
        t.ok("symbolic link" in error, "refused: through a link, " + what, error)
        t.equal(bring("good", root(images.link("l", target))), "", "twin: the link itself, " + what)
    t.ok(not os.path.exists(PLACE + "/out"), "nothing was written outside")
    t.equal(clean(), [], "nothing is left")


def test_damage(t):
    data = images.docker_save([BASE])
    whole = images.Layout().add([BASE])
    t.equal(bring("whole", whole.archive()), "", "twin: the whole layout")
    clean()
    for what, change in [("a layer", max), ("the configuration", min)]:
        layout = images.Layout().add([BASE])
        name = change((k for k in layout.files if k.startswith("blobs")), key=lambda k: len(layout.files[k]))
        blob = bytearray(layout.files[name])
        blob[len(blob) // 2] ^= 1
        layout.files[name] = bytes(blob)
        error = bring("bad", layout.archive())
        t.ok(error and layers() == [], "refused: a changed bit in " + what, error)
    layout = images.Layout().add([BASE])
    name = max((k for k in layout.files if k.startswith("blobs")), key=lambda k: len(layout.files[k]))
    layout.files[name] = gzip.compress(UPPER)
    t.ok("SHA-256" in bring("bad", layout.archive()), "refused: another layer in its place")
    for what, bytes_ in [("cut", data[:len(data) // 2]), ("empty", b"\n"), ("no archive", b"hello" * 1000),
                         ("cut gzip", gzip.compress(data, 1)[:-3000])]:
        error = bring("bad", bytes_)
        t.ok(error.startswith("nsbox: ") and layers() == [], "refused: " + what, error)
    wrong_sum = bytearray(gzip.compress(root(), 1))
    wrong_sum[-8] ^= 1
    t.ok("check" in bring("bad", bytes(wrong_sum)), "refused: gzip with a wrong checksum")


def test_documents(t):
    whole = images.Layout().add([BASE]).all()

    def layout(**changes):
        files = {**whole, **{k.replace("_", "."): v for k, v in changes.items()}}
        return images.tar(*[images.member(k, v) for k, v in files.items() if v is not None])

    deep = b"[" * 100 + b"]" * 100
    for what, text in [("not JSON", b"{"), ("deep JSON", deep), ("no manifests", b"{}"),
                       ("a digest that leads out", b'{"manifests":[{"digest":"sha256:../../../../etc/passwd"}]}'),
                       ("another hash", b'{"manifests":[{"digest":"sha512:%s"}]}' % (b"0" * 128)),
                       ("a blob that is not there", b'{"manifests":[{"digest":"sha256:%s"}]}' % (b"0" * 64))]:
        error = bring("bad", layout(index_json=text))
        t.ok(error.startswith("nsbox: ") and layers() == [], "refused: index.json, " + what, error)
    t.equal(bring("good", layout()), "", "twin: as it was")
    for target in ("/etc/passwd", "../../../../../etc/passwd"):
        saved = images.docker_save([BASE])
        out = io.BytesIO()
        with tarfile.open(fileobj=io.BytesIO(saved)) as old, tarfile.open(fileobj=out, mode="w") as new:
            for info in old:
                if info.name.endswith("layer.tar"):
                    new.addfile(images.link(info.name, target)[0])
                else:
                    new.addfile(info, old.extractfile(info) if info.isfile() else None)
        error = bring("bad", out.getvalue())
        t.ok("layer.tar" in error, "refused: a layer that is a link to " + target, error)
    error = bring("bad", images.tar(images.member("manifest.json", b"[null]")))
    t.ok("no such image" in error, "refused: manifest.json that holds nothing", error)
    clean()


def test_bounds(t):
    data = root(images.member("big", b"\0" * (3 << 20)))
    t.ok("--max-bytes" in bring("bad", data, "--max-bytes", "3Mi"), "refused: too large")
    t.ok("--max-files" in bring("bad", data, "--max-files", "10"), "refused: too many files")
    t.equal(bring("good", data, "--max-bytes", "30Mi", "--max-files", "100"), "", "twin: with room")
    lie = bytearray(images.tar(images.member("f", b"x"), fmt=tarfile.USTAR_FORMAT))
    lie[124:136] = b"77777777777\0"
    lie[148:156] = b"        "
    lie[148:156] = b"%06o\0 " % sum(lie[:512])
    error = bring("bad", bytes(lie))
    t.ok(error and "bad" not in listed(), "refused: 8 GiB that are not there", error)
    for name in ("", ".x", "x/", "a//b", "../x", "x y", "host", "x" * 200, "a\nb", "-x/"):
        done = nsbox("image", "import", "--", name, "/nonexistent")
        t.ok(b"name" in done.stderr or b"host" in done.stderr, "refused: the name %r" % name[:20], done.stderr)
    clean()


# ---------------------------------------------------------------- life

def started(name):
    """An import that has written something and waits for more."""
    p = subprocess.Popen([paths.NSBOX, "image", "import", name, "-"], stdin=subprocess.PIPE, env=ENV,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    p.stdin.write(root(images.member("more", os.urandom(4 << 20)))[:3 << 20])
    p.stdin.flush()
    tap.wait_until(layers, 10)
    return p


def test_interrupted(t):
    p = started("half")
    t.ok(layers(), "twin: it was under way")
    p.send_signal(signal.SIGTERM)
    p.stdin.close()
    t.equal(p.wait(20), 125, "an import that is ended by a signal says so")
    t.equal((layers(), listed()), ([], {}), "and leaves nothing")
    p = started("half")
    p.kill()
    p.wait()
    t.equal(listed(), {}, "one that is killed has no name")
    tap.wait_until(lambda: b"1 unfinished" in nsbox("image", "gc").stdout, 10)
    t.equal(layers(), [], "and gc removes what it left")
    p = started("first")
    t.equal(bring("second", root()), "", "another import meanwhile")
    out = nsbox("image", "gc")
    t.ok(b"under way" in out.stderr and len(layers()) == 2, "gc leaves an import alone", out.stderr)
    p.kill()
    p.wait()
    tap.wait_until(lambda: b"1 unfinished" in nsbox("image", "gc").stdout, 10)
    t.equal(len(layers()), 1, "the other one is whole")
    clean()


def test_in_use(t):
    bring("used", root(images.member("f", b"f\n")))
    p = subprocess.Popen([paths.NSBOX, "run", "--no-tty", "--image", "used", "--", "sh", "-c", "echo up; read x; cat /f"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENV)
    p.stdout.readline()
    done = nsbox("image", "rm", "used")
    t.ok(done.returncode == 0 and b"in use" in done.stderr, "an image that is used loses its name", done.stderr)
    t.equal((listed(), len(layers())), ({}, 1), "its files stay")
    t.ok(b"no image is called" in nsbox("run", "--image", "used", "--", "true").stderr, "nothing new starts in it")
    nsbox("image", "gc")
    out, _ = p.communicate(b"\n", timeout=20)
    t.equal(out, b"f\n", "what runs sees all of it")
    t.ok(b"1 images, 1 layers" in nsbox("image", "gc").stdout, "after its end gc removes it")
    t.equal(layers(), [], "nothing is left")


def test_names(t):
    bring("n1", root())
    id_ = listed()["n1"]["id"]
    t.equal(inside(id_[:12], "echo in").out, "in\n", "an image by its id")
    got = inside("n1", "true")
    t.ok(got.report and got.report.get("image", listed()["n1"]["digest"]), "the report names it")
    done = nsbox("run", "--image", "nothing", "--", "true")
    t.ok(done.returncode == 125 and b"`nsbox image list`" in done.stderr, "one that is not there", done.stderr)
    t.equal(json.loads(nsbox("image", "inspect", "n1").stdout)["id"], id_, "inspect")
    t.equal(nsbox("image", "rm", "nothing").returncode, 125, "rm of nothing")
    t.equal(clean(), [], "rm")


def main():
    start = time.monotonic()
    status = tap.run([test_compressions, test_directory, test_members, test_ownership, test_forms, test_own_name, test_umoci,
                      test_sharing, test_many_layers, test_configuration, test_disk, test_service, test_hostile, test_damage, test_documents,
                      test_bounds, test_interrupted, test_in_use, test_names])
    print("# %.1f s" % (time.monotonic() - start))
    return status


if __name__ == "__main__":
    sys.exit(main())
