#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Images that are made of what a session has changed: what they hold and what they do not, over the interface, by
nsbox and from Python; who may; and that what they had goes with their last name."""

import http.client
import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import images, paths, service, tap

sys.path.insert(0, os.path.join(paths.ROOT, "nsbox", "python"))
import nsbox as client

PLACE = paths.scratch("commit-")
os.chmod(PLACE, 0o755)
ENV = {**os.environ, "NSBOX_STATE_DIR": os.path.join(PLACE, "state")}
TOKEN = "t" * 32
BUILD = {"manifest": {"manifestVersion": 1, "profile": "build"}, "operator": True}
daemon = None


def nsbox(*argv, data=None):
    return subprocess.run([paths.NSBOX, *argv], input=data, stdin=None if data else subprocess.DEVNULL, capture_output=True,
                          env={**ENV, "NSBOX_SOCKET": daemon.socket}, timeout=120, check=False)


def session(name, image="base", **more):
    return daemon.ask("POST", "/v1/sessions", {"session_id": name, "image": image, **BUILD, **more})


def says(name, text, **more):
    return daemon.ask("POST", "/v1/execute/command", {"session_id": name, "command": text, **more})[1].get("stdout")


def once(image, text):
    """Of a run in it, which is no session's."""
    return daemon.ask("POST", "/v1/execute/command", {"image": image, "command": text})[1].get("stdout")


def commit(name, image, **more):
    return daemon.ask("POST", "/v1/sessions/%s/commit" % name, {"image": image, **more})


def stored():
    return len([n for n in os.listdir(os.path.join(ENV["NSBOX_STATE_DIR"], "layers")) if not n.startswith(".")])


CHANGE = """
echo added >/srv/added; ln -s added /srv/link; chmod 700 /srv/added; chmod 755 /srv/added; rm /srv/gone; rm -r /srv/tree; mkdir /srv/tree;
echo new >/srv/tree/new; echo changed >/srv/kept; printf x >"/srv/$(printf 'new\\nline')"
mkdir -p /usr/deep/er; echo d >/usr/deep/er/f; echo w >/workspace/w; echo t >/tmp/t; echo h >~/h
"""
LOOK = "cd /srv; cat added link kept tree/new; ls tree; ls gone tree/old; ls -A /workspace /tmp; cat /usr/deep/er/f; ls | wc -l"


def test_commit(t):
    session("one")
    says("one", CHANGE)
    status, made = commit("one", "team/derived:1")
    t.equal((status, sorted(made), made.get("name")), (201, ["id", "name"], "team/derived:1"), "a session's changes are an image")
    want = "added\nadded\nchanged\nnew\nnew\nd\n5\n"
    got = once("team/derived:1", LOOK)
    t.equal((got or "").replace("/tmp:\n", "").replace("/workspace:\n", "").replace("\n\n", "\n"), want,
            "with what was added and changed, and without what was removed or hidden, and nothing of /workspace and /tmp")
    t.equal(once("base", "cat /srv/gone /srv/tree/old /srv/kept; ls /srv/added"), "gone\nold\nkept\n", "the first is as it was")
    t.equal(says("one", "cat /srv/added /workspace/w"), "added\nw\n", "the session goes on")
    status, shown = daemon.ask("GET", "/v1/images/team/derived:1")
    base = daemon.ask("GET", "/v1/images/base")[1]
    t.equal((status, shown.get("id"), shown.get("source"), len(shown.get("layers", ()))), (200, made["id"], "commit", 2), "it is listed")
    t.equal(shown["layers"][0]["digest"], base["layers"][0]["digest"], "and shares the first one's layer")
    session("two", "team/derived:1")
    says("two", "rm -r /usr/deep; rm /srv/added; echo 2 >/srv/second")
    t.equal(commit("two", "team/derived:1")[0], 201, "one of it, by the same name")
    t.equal(once("team/derived:1", "cat /srv/second; ls /usr; ls /srv/added"), "2\n", "is on top of it")


def test_ways(t):
    done = nsbox("session", "commit", "one", "by-cli")
    t.equal((done.returncode, len(done.stdout.strip()), done.stderr), (0, 64, b""), "nsbox session commit")
    image = client.Client(daemon.socket).session("one").commit("by-python")
    t.equal((image, once("by-python", "cat /srv/added")), (done.stdout.decode().strip(), "added\n"), "and from Python: the same files, the same image")


def test_refusals(t):
    host = {"session_id": "host"}
    daemon.ask("POST", "/v1/sessions", host)
    for name, image, more, want, word in (("host", "x", {}, 409, "imported image"), ("nobody", "x", {}, 404, "nobody"),
                                          ("one", "../x", {}, 400, "name"), ("one", "", {}, 400, "/image"), ("one", "x", {"y": 1}, 400, "/y")):
        status, reply = commit(name, image, **more)
        t.ok(status == want and word in str(reply), "refused: %s as '%s'" % (name, image), "%s %s" % (status, reply))
    daemon.ask("POST", "/v1/sessions", {"session_id": "strict", "image": "base", "manifest": {"manifestVersion": 1, "profile": "strict"}})
    status, reply = commit("strict", "x")
    t.ok(status >= 400 and "read-only" in str(reply), "refused: a root that cannot be changed", str(reply))
    nsbox("image", "import", "base", "-", data=root(b"another"))
    status, reply = commit("one", "x")
    t.ok(status == 400 and "another image" in str(reply), "refused: its image's name stands for another by now", str(reply))
    port = daemon.port
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": "Bearer " + TOKEN}
    connection.request("POST", "/v1/sessions", json.dumps({"session_id": "theirs", "image": "by-cli"}), headers)
    t.equal(connection.getresponse().read() and 0, 0, "a workspace's client has a session")
    connection.request("POST", "/v1/sessions/theirs/commit", json.dumps({"image": "theirs"}), headers)
    answer = connection.getresponse()
    t.equal((answer.status, "make images" in answer.read().decode()), (403, True), "refused: to make an image of it")
    connection.close()
    t.equal(daemon.ask("POST", "/v1/sessions/theirs/commit", {"image": "theirs"})[0], 201, "the twin: the owner may")
    with open(os.path.join(daemon.data, "audit.log"), encoding="utf-8") as f:
        t.equal(sum('"event":"commit"' in line for line in f), 5 + 1, "each is in the audit")


def test_gc(t):
    """Their layers stay as long as a name or a session needs them."""
    before = stored()
    session("user", "by-cli")
    for name in ("by-cli", "by-python", "theirs", "team/derived:1"):
        nsbox("image", "rm", name)
    for name in ("one", "two", "theirs", "strict"):
        daemon.ask("DELETE", "/v1/sessions/" + name)
    nsbox("image", "gc")
    t.equal(says("user", "cat /srv/added"), "added\n", "a session keeps its image")
    daemon.ask("DELETE", "/v1/sessions/user")
    tap.wait_until(lambda: nsbox("image", "gc").returncode == 0 and stored() == 1, 60)
    t.ok(stored() == 1 < before, "what nobody needs is gone", "%d of %d" % (stored(), before))


def root(kept=b"kept\n"):
    return images.tar(*images.busybox(), images.directory("srv"), images.member("srv/kept", kept), images.member("srv/gone", b"gone\n"),
                      images.directory("srv/tree"), images.member("srv/tree/old", b"old\n"))


def main():
    global daemon  # pylint: disable=global-statement
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    tokens = os.path.join(PLACE, "tokens")
    with open(tokens, "w", encoding="ascii") as f:
        f.write("team %s\n" % TOKEN)
    os.chmod(tokens, 0o600)
    daemon = service.Daemon(env=ENV, options=["--tcp", "127.0.0.1:%d" % port, "--tokens", tokens, "--runners", "2"])
    daemon.port = port
    try:
        nsbox("image", "import", "base", "-", data=root())
        return tap.run([test_commit, test_ways, test_refusals, test_gc])
    finally:
        daemon.stop()
        shutil.rmtree(PLACE, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
