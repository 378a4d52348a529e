#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Files of a session over the service: each verb, hostile names and archives, ranges, who may."""

import io
import json
import os
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from urllib.parse import quote

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import paths, service, tap

ID = "files"
daemon = None


def url(path, query="", session=ID):
    return "/v1/sessions/%s/files%s%s" % (session, quote(path), "?" + query if query else "")


def get(path, query="", headers=None):
    return daemon.fetch("GET", url(path, query), headers=headers)


def ask(method, path, query="", body=None):
    status, _, data = daemon.fetch(method, url(path, query), body)
    return status, json.loads(data) if data else None


def names(path, query="list"):
    return sorted(e["path"] for e in ask("GET", path, query)[1]["entries"])


def sh(command):
    status, reply = daemon.ask("POST", "/v1/execute/command", {"session_id": ID, "command": command})
    if status != 200 or reply["exit_code"] != 0:
        raise RuntimeError("%s: %s %s" % (command, status, json.dumps(reply)[:600]))
    return reply["stdout"]


def test_content(t):
    status, reply = ask("PUT", "/workspace/a.txt", body=b"hello\n")
    t.ok(status == 201 and reply["entries"][0]["size"] == 6 and reply["entries"][0]["mode"] == "0644", "a file is put", str(reply))
    t.equal(sh("cat /workspace/a.txt; stat -c %U a.txt"), "hello\nsandbox\n", "commands have it at the same path, as their own")
    sh("mkdir -p /tmp/x; head -c 100000 /dev/urandom >/tmp/x/rnd; cp /tmp/x/rnd /workspace/rnd")
    status, headers, data = get("/tmp/x/rnd")
    t.ok(status == 200 and len(data) == 100000 and headers["X-File-Size"] == "100000", "what a command wrote comes out")
    for spec, want, status_want in (("bytes=0-9", data[:10], 206), ("bytes=99990-", data[99990:], 206), ("bytes=5-5", data[5:6], 206),
                                    ("bytes=99990-200000", data[99990:], 206), ("bytes=100000-", b"", 416), ("lines=1", data, 200)):
        status, headers, part = get("/workspace/rnd", headers={"Range": spec})
        t.equal((status, part), (status_want, want), "Range: " + spec)
    t.equal(get("/workspace/rnd", headers={"Range": "bytes=2-4"})[1]["Content-Range"], "bytes 2-4/100000", "with its place")
    t.equal(ask("PUT", "/workspace/a.txt", "exclusive", b"x")[0], 409, "exclusive: what is there stays")
    t.equal(ask("PUT", "/workspace/new/deep/f", body=b"x")[0], 404, "a directory that is missing is not made")
    t.equal(ask("PUT", "/workspace/new/deep/f", "parents&mode=0755", b"#!/bin/sh\necho ran\n")[0], 201, "unless it is asked for")
    t.equal(sh("new/deep/f"), "ran\n", "and its mode is what was asked for")
    t.equal(ask("PUT", "/workspace/a.txt", "mode=9", b"")[0], 400, "a mode that is none is refused")
    t.equal(get("/workspace/a.txt")[2], b"hello\n", "none of that touched the file")


def test_names(t):
    for name in ("a b", "new\nline", "中文 ü", "q?#&=%41", "-rf", "..."):
        ask("PUT", "/workspace/n/" + name, "parents", name.encode())
        t.equal(get("/workspace/n/" + name)[2], name.encode(), "a name: %r" % name)
    t.equal(names("/workspace/n"), sorted(["a b", "new\nline", "中文 ü", "q?#&=%41", "-rf", "..."]), "and all are listed as they are")
    sh("python3 -c 'open(b\"/workspace/n/\\xff\\xfe\", \"w\").close()'")
    odd = [e for e in ask("GET", "/workspace/n", "list")[1]["entries"] if "path_base64" in e]
    t.equal([e["path_base64"] for e in odd], ["//4="], "bytes that are no text come in base64, too")
    t.equal(get("/workspace/n/" + "x" * 300)[0], 400, "a name that is too long")


def test_tree(t):
    t.equal(ask("POST", "/workspace/t/sub", "mkdir&parents")[0], 201, "mkdir")
    t.equal(ask("POST", "/workspace/t/sub", "mkdir")[0], 409, "twice is too often")
    sh("cd t && echo 12 >sub/b.py && echo needle >c.txt && ln -s c.txt l")
    t.equal(names("/workspace/t"), ["c.txt", "l", "sub"], "list")
    t.equal(names("/workspace/t", "list&recursive"), ["c.txt", "l", "sub", "sub/b.py"], "list all below")
    entry = ask("GET", "/workspace/t/l", "stat")[1]["entries"][0]
    t.equal((entry["type"], entry["target"]), ("symlink", "c.txt"), "stat of a link")
    t.equal(ask("GET", "/workspace/t/l", "stat&follow")[1]["entries"][0]["type"], "file", "and of what it leads to")
    t.equal(names("/workspace/t", "glob=**/*.py"), ["sub/b.py"], "glob")
    found = ask("GET", "/workspace/t", "grep=needle")[1]["matches"]
    t.equal([(m["path"], m["line"], m["text"]) for m in found], [("c.txt", 1, "needle")], "grep")
    t.equal("matches" in ask("GET", "/workspace/t", "grep=NEEDLE")[1], False, "grep minds the case")
    t.ok(ask("GET", "/workspace/t", "grep=NEEDLE&ignore_case&glob=*.txt")[1]["matches"], "unless it is told not to")
    t.equal(ask("POST", "/workspace/t/c.txt", "move_to=" + quote("/workspace/t/sub/d.txt"))[0], 201, "move")
    t.equal(ask("DELETE", "/workspace/t")[0], 409, "a directory with something in it is not removed")
    t.equal(ask("DELETE", "/workspace/t", "recursive")[0], 200, "unless it is asked for")
    t.equal((ask("GET", "/workspace/t", "stat")[0], ask("DELETE", "/workspace/t")[0]), (404, 404), "then it is gone")
    t.equal(ask("POST", "/workspace/t")[0], 400, "POST wants to know what to do")
    t.equal((ask("GET", "/workspace/a.txt", "list")[0], get("/workspace")[0]), (409, 409), "a file is no directory, nor the other way")
    t.equal((ask("PUT", "/usr/x", body=b"")[0], ask("DELETE", "/usr/bin/env")[0]), (403, 403), "the image is read-only")


def archive(kind, entries):
    out = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(out, "w") as z:
            for name, data, mode in entries:
                info = zipfile.ZipInfo(name)
                info.external_attr, info.create_system = (stat.S_IFREG | mode) << 16, 3
                z.writestr(info, data)
    else:
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            for name, data, mode in entries:
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(data), mode
                tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_archives(t):
    for kind in ("zip", "tar"):
        status, reply = ask("PUT", "/workspace/up/" + kind, "archive",
                            archive(kind, [("bin/run", b"#!/bin/sh\necho up\n", 0o755), ("data/中文.txt", b"1", 0o644),
                                           ("dos.sh", b"#!/bin/sh\r\n", 0o755)]))
        t.ok(status == 201 and "dos.sh" in str(reply.get("notices")), kind + " is unpacked, a CRLF script noticed", str(reply))
        t.equal(sh("up/%s/bin/run; cat up/%s/data/*" % (kind, kind)), "up\n1", kind + ": modes, names, content")
        status, reply = ask("PUT", "/workspace/bad", "archive",
                            archive(kind, [("ok", b"1", 0o644), ("../escape", b"2", 0o644)]))
        t.ok(status == 400 and "escape" in reply["error"]["message"], kind + " that leads out is refused", str(reply))
    t.equal(get("/workspace/bad", "stat")[0], 404, "and nothing of it is there")
    t.equal(ask("PUT", "/workspace/bad", "archive", b"no archive at all")[0], 400, "what is no archive is refused")
    sh("cd up && ln -s zip/bin/run in && ln -s /etc/passwd out && mkfifo pipe && mkdir -p 'long/%s' && touch 'long/%s/ü%s'"
       % ("d" * 120, "d" * 120, "f" * 100))
    status, headers, data = get("/workspace/up", "archive")
    t.ok(status == 200 and headers["Content-Type"] == "application/x-tar" and headers["X-Left-Out"] == "2", "a tree comes as a tar file",
         "%s %s" % (status, headers))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        members = {m.name: m for m in tar.getmembers()}
        t.equal(tar.extractfile("tar/data/中文.txt").read(), b"1", "which holds what is there")
        t.equal((members["zip/bin/run"].mode, members["in"].linkname, members["long"].isdir()), (0o755, "zip/bin/run", True), "with modes, links and directories")
        t.ok("long/%s/ü%s" % ("d" * 120, "f" * 100) in members and "out" not in members and "pipe" not in members,
             "and long names, without what leads out")


def test_hostile(t):
    sh("mkdir -p h && cd h && ln -s /proc/self/fd fds && ln -s /proc/self/environ env && ln -s /proc/1/root root && mkfifo fifo && ln -s /dev/zero zero")
    began = time.monotonic()
    for path in ("fds/0", "fds", "env", "root/etc/passwd", "fifo", "zero"):
        status = get("/workspace/h/" + path)[0]
        t.ok(400 <= status < 500, "GET of %s is refused" % path, "status %d" % status)
    for path in ("fds/3", "root/tmp/x"):
        t.ok(400 <= ask("PUT", "/workspace/h/" + path, "parents", b"x")[0] < 500, "PUT to %s as well" % path)
    t.ok(time.monotonic() - began < 15, "and nothing waited")
    sh("ln -s /workspace/a.txt h/good")
    t.equal(get("/workspace/h/good")[2], b"hello\n", "a link to a file is followed")
    sh("truncate -s 100M big")
    t.equal(get("/workspace/big")[0], 413, "more than is handed out at once")
    t.equal(get("/workspace/big", headers={"Range": "bytes=104857590-"})[2], bytes(10), "comes in ranges")
    sh("rm big; dd if=/dev/zero of=fill bs=1M 2>/dev/null; :")
    status, reply = ask("PUT", "/workspace/more", body=bytes(1 << 20))
    t.ok(status == 507 and "resources.disk" in reply["error"]["message"], "a full disk is said", str(reply))
    sh("rm fill")


def test_together(t):
    """Beside a command that runs, several at once."""
    done = []
    threads = [threading.Thread(target=sh, args=("sleep 3",))]
    threads += [threading.Thread(target=lambda n=n: done.append(ask("PUT", "/workspace/p/%d" % n, "parents", b"%d" % n)[0])) for n in range(6)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    t.ok(done == [201] * 6 and time.monotonic() - began < 2.9, "files are put while a command runs", "%s %.1f s" % (done, time.monotonic() - began))
    threads[0].join()
    t.equal(sh("cat p/*"), "012345", "all of them")


def test_cli(t):
    def cli(*args, data=b""):
        return subprocess.run([paths.NSBOX, "session", args[0], "--socket", daemon.socket, *args[1:]], input=data, capture_output=True, check=False)

    with tempfile.TemporaryDirectory() as place:
        file = os.path.join(place, "f")
        with open(file, "wb") as f:
            f.write(b"from outside\n")
        t.equal(cli("mkdir", "-p", ID, "/workspace/c/d").returncode, 0, "nsbox session mkdir")
        t.equal(cli("put", ID, file, "/workspace/c/d/f").returncode, 0, "put")
        t.equal(cli("put", ID, "-", "/workspace/c/g", data=b"piped").returncode, 0, "put from standard input")
        t.equal(cli("get", ID, "/workspace/c/d/f").stdout, b"from outside\n", "get")
        t.equal(cli("mv", ID, "/workspace/c/g", "/workspace/c/h").returncode, 0, "mv")
        lines = cli("ls", "-r", ID, "/workspace/c").stdout.decode().splitlines()
        t.equal([(x.split()[0], x.split()[3]) for x in lines], [("directory", "d"), ("file", "d/f"), ("file", "h")], "ls")
        tar = os.path.join(place, "c.tar")
        t.equal(cli("download", ID, "/workspace/c", tar).returncode, 0, "download")
        t.equal(cli("upload", ID, tar, "/workspace/c2").returncode, 0, "upload")
        t.equal(cli("get", ID, "/workspace/c2/h", file).returncode, 0, "get into a file")
        with open(file, "rb") as f:
            t.equal(f.read(), b"piped", "which is then there")
        t.equal((cli("rm", ID, "/workspace/c2").returncode, cli("rm", "-r", ID, "/workspace/c2").returncode), (125, 0), "rm")
        done = cli("get", ID, "/workspace/none")
        t.ok(done.returncode == 125 and b"'/workspace/none'" in done.stderr, "what is not there is named", done.stderr)
        t.equal((cli("get", ID, "relative").returncode, cli("get", "none", "/x").returncode), (125, 125), "usage, and no such session")


def test_end(t):
    t.equal(daemon.ask("GET", url("/workspace", "list", "other"))[0], 404, "a session that is not there")
    daemon.ask("DELETE", "/v1/sessions/" + ID)
    t.equal(get("/workspace/a.txt")[0], 404, "nor one that has ended")


if __name__ == "__main__":
    with service.Daemon() as daemon:
        daemon.ask("POST", "/v1/execute/command", {"session_id": ID, "command": "true"})
        sys.exit(tap.run([test_content, test_names, test_tree, test_archives, test_hostile, test_together, test_cli, test_end]))
