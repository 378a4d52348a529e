#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What a run changed: listed, made a layer of an image, kept and gone on from."""

import json
import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, images, paths, tap

PLACE = paths.scratch("chg-")
os.chmod(PLACE, 0o755)
ENV = {**os.environ, "NSBOX_STATE_DIR": os.path.join(PLACE, "state")}
BUILD = {"profile": "build"}
MAGIC, END, DIR, FILE, SYMLINK, HARDLINK, WHITEOUT, OPAQUE, XATTR = 0x3172796C, 1, 2, 3, 4, 5, 6, 7, 8


def nsbox(*argv, data=None):
    return subprocess.run([paths.NSBOX, *argv], input=data, stdin=None if data else subprocess.DEVNULL,
                          capture_output=True, env=ENV, timeout=60 * tap.slow(), check=False)


def inside(script, *options, image="base", manifest=None):
    image = ["--image", image] if image else []
    return cli.run("sh", "-c", script, options=[*image, *options], manifest=manifest, env=ENV)


def bring_base():
    tar = images.tar(*images.busybox(), images.directory("a"), images.member("a/1", b"1"), images.member("a/2", b"2"),
                     images.directory("b"), images.directory("b/c"), images.member("b/c/1", b"b1"), images.directory("root", mode=0o700))
    done = nsbox("image", "import", "base", "-", data=tar)
    if done.returncode:
        sys.exit("changes.t: import of its image failed: %r" % done.stderr)


def layers():
    return json.loads(nsbox("image", "inspect", "next").stdout)["layers"]


def changes(got):
    return {(c["kind"], c["path"]): c["size"] for c in got.report["changes"]}


# ---------------------------------------------------------------- the list

def test_list(t):
    got = inside("true", "--changes")
    t.equal(changes(got), {}, "a run that does nothing has changed nothing")
    got = inside("cd /workspace; printf hello >new; mkdir dir; ln -s /etc link; touch 'odd\n name'; cat /a/1; ls /",
                 "--changes")
    t.equal(changes(got), {("added", "/workspace/new"): 5, ("dir", "/workspace/dir"): 0,
                           ("link", "/workspace/link"): 4, ("added", "/workspace/odd\n name"): 0},
            "new files, directories and links; nothing that was only read")
    got = inside("rm /a/1; echo >>/a/2; rm -r /b/c; mkdir /b/c; touch /b/c/2; rm /b/c/2; mkdir /a/d",
                 "--changes", manifest=BUILD)
    t.equal(changes(got), {("removed", "/a/1"): 0, ("changed", "/a/2"): 2, ("replaced", "/b/c"): 0, ("dir", "/a/d"): 0},
            "the image's files: removed, changed, replaced")
    got = inside("touch ~/x -d 2000-01-01", "--changes")
    t.equal(list(changes(got)), [("added", "/home/sandbox/x")], "no program can date a change back")
    got = inside("true", "--changes", manifest={"profile": "strict"})
    t.ok(got.status == 125 and "read-only" in got.err, "refused: a root that is read-only", got)
    got = inside("touch /workspace/x; touch /usr/x", "--changes", image=None)
    t.equal(list(changes(got)), [("added", "/workspace/x")], "in the image 'host'")


# ---------------------------------------------------------------- commit

def test_commit(t):
    script = ("rm /a/1; echo more >>/a/2; rm -r /b/c; mkdir /b/c; echo 2 >/b/c/2; mkdir -m 700 /root/d; echo s >/root/d/s;"
              "echo t >/tmp/t; echo w >/workspace/w; echo h >~/h; ln -s nowhere /a/l; echo 'x:x:50:' >>/etc/group")
    got = inside(script, "--commit", "next", manifest=BUILD)
    t.equal(got.status, 0, "commit")
    look = "cat /a/2; ls /a; ls -A /b/c; readlink /a/l; ls /workspace ~ /tmp; cat /etc/group"
    t.equal(inside(look, image="next").out,
            "2more\n2\nl\n2\nnowhere\n/home/sandbox:\n\n/tmp:\n\n/workspace:\nroot:x:0:\ntty:x:5:\nx:x:50:\nsandbox:x:1000:\n",
            "a run in it has the changes, but for the places of a run")
    t.equal(inside("cat /root/d/s", image="next", manifest=BUILD).out, "s\n", "root's own, too")
    t.equal(len(layers()), 2, "one layer more")
    t.equal(inside("cat /a/1 /a/2", image="base").out, "12", "the base is as it was")
    got = inside("touch /a/3", "--commit", "next", image="next", manifest=BUILD)
    t.equal((got.status, len(layers())), (0, 3), "the same name again, with another layer")
    nsbox("image", "rm", "base")
    t.equal(inside("ls /a; cat /b/c/2", image="next").out, "2\n3\nl\n2\n", "without the base's name it goes on working")
    for image, name in (None, "x"), ("next", "host"), ("next", "../x"):
        got = inside("true", "--commit", name, image=image)
        t.ok(got.status == 125 and got.report is None, "refused: %s as %s" % (image, name), got)
    nsbox("image", "rm", "next")
    t.equal(os.listdir(ENV["NSBOX_STATE_DIR"] + "/layers"), [], "all gone")
    bring_base()


# ---------------------------------------------------------------- save, restore

def test_restore(t):
    kept = os.path.join(PLACE, "kept")
    script = ("cd; echo 1 >f; chmod 400 f; echo 2 >none; chmod 0 none; mkdir -m 555 d; mkdir e; echo 3 >e/x; chmod 100 e;"
              "ln -s f l; echo x >>.bashrc; cd /workspace; echo w >w; chmod 750 w; touch -d '2001-01-01 00:00:00' old")
    for image in "base", None:
        got = inside(script, "--save", kept, image=image)
        t.equal(got.status, 0, "save (%s)" % (image or "host"))
        look = ("cd; cat f l; stat -c '%a %U' f none d e l | sort; chmod 700 e; cat e/x; tail -1 .bashrc;"
                "cd /workspace; stat -c %a w; stat -c %Y old; echo more >>w; cat w")
        want = ("1\n1\n0 sandbox\n100 sandbox\n400 sandbox\n555 sandbox\n777 sandbox\n3\nx\n750\n978307200\nw\nmore\n")
        for n in 1, 2:
            t.equal(inside(look, "--restore", kept, image=image).out, want, "a fork has all of it, its own (%d)" % n)
        os.unlink(kept)
    inside("rm /a/1; rm -r /b/c; mkdir /b/c; touch /b/c/new; echo +>>/a/2; ln /a/2 /a/3", "--save", kept, manifest=BUILD)
    t.equal(inside("ls /a /b/c; cat /a/3", "--restore", kept, manifest=BUILD).out, "/a:\n2\n3\n\n/b/c:\nnew\n2+\n",
            "removals and replaced directories")
    t.equal(inside("ls /a", "--restore", kept, image="base").out, "2\n3\n", "and as user 1000")
    got = inside("true", "--restore", kept, image=None)
    t.ok(got.status == 125 and "another image" in got.err, "refused: in another image", got)
    t.equal(sorted(os.listdir(PLACE)), ["kept", "state"], "nothing else is left")


def frame(kind, path=b"", extra=b"", content=b"", mode=0o644, uid=0, size=None):
    return struct.pack("<IHHIIIIQq", MAGIC, kind, len(path), len(extra), mode, uid, uid,
                       len(content) if size is None else size, 0) + path + extra + content


def kept_file(*frames, end=True):
    with open(os.path.join(PLACE, "kept"), "rb") as f:
        head = f.read(128)
    path = os.path.join(PLACE, "made")
    with open(path, "wb") as f:
        f.write(head + b"".join(frames))
        if end:
            f.write(frame(END, extra=bytes(4 + 68) + bytes(end_msg_size())))
    return path


def end_msg_size():
    """The END frame's message: the rest of the real one's last frame."""
    with open(os.path.join(PLACE, "kept"), "rb") as f:
        data = f.read()
    at = data.rindex(struct.pack("<IHH", MAGIC, END, 0))
    return struct.unpack_from("<I", data, at + 8)[0] - 72


def test_hostile(t):
    inside("true", "--save", os.path.join(PLACE, "kept"))
    good = frame(FILE, b"workspace/f", content=b"fine")
    t.equal(inside("cat f", "--restore", kept_file(good)).out, "fine", "twin: a file that was made by hand")
    for what, bad in [("..", frame(FILE, b"../x")), ("inner ..", frame(FILE, b"a/../../x")),
                      ("absolute", frame(FILE, b"/x")), ("hard link out", frame(HARDLINK, b"x", b"../y")),
                      ("through a link", frame(SYMLINK, b"l", b"/old") + frame(FILE, b"l/x")),
                      ("an attribute of the overlay", frame(XATTR, b"x", b"user.overlay.redirect\0/etc")),
                      ("an unknown kind", frame(77, b"x")), ("a device's mode", frame(FILE, b"x", mode=0o20644)),
                      ("too large", frame(FILE, b"x", size=1 << 50)), ("a file that is cut", frame(FILE, b"x", size=9))]:
        got = inside("true", "--restore", kept_file(good, bad))
        t.ok(got.status == 125, "refused: " + what, got)
    t.equal(inside("true", "--restore", kept_file(good, end=False)).status, 125, "refused: no end")
    t.equal(inside("true", "--restore", "/etc/passwd").status, 125, "refused: another file")
    set_id = frame(FILE, b"workspace/s", content=b"x", mode=0o6755)
    t.equal(inside("stat -c %a s", "--restore", kept_file(set_id)).out, "755\n", "no set-id bits")


def test_cycles(t):
    """Saved and gone on from, over and over: the file does not grow, nor does the state."""
    kept, rounds = os.path.join(PLACE, "kept"), int(os.environ.get("NSBOX_ROUNDS", "10"))
    inside("echo 0 >n", "--save", kept)
    size, out = os.path.getsize(kept), ""
    for _ in range(rounds):
        out = inside("read n <n; echo $((n + 1)) >n; cat n", "--restore", kept, "--save", kept).out
    t.equal(out, "%d\n" % rounds, "%d cycles" % rounds)
    t.ok(os.path.getsize(kept) < size + 16, "no growth", "%d, then %d" % (size, os.path.getsize(kept)))


if __name__ == "__main__":
    bring_base()
    sys.exit(tap.run([test_list, test_commit, test_restore, test_hostile, test_cycles]))
