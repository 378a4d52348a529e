#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Files that a run hands back: hashes and media types, in a directory, in a reply, and by URL."""

import base64
import hashlib
import io
import os
import sys
import tarfile
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, service, tap

SMALL, BIG = b"a,b\n1,2\n", bytes(range(256)) * 400
MAKE = ("mkdir -p out; printf 'a,b\\n1,2\\n' >out/t.csv; "
        "python3 -c 'open(\"out/big.bin\", \"wb\").write(bytes(range(256)) * 400)'; "
        "echo odd >'out/a b#?%é.txt'; ln -s /etc/passwd out/link; mkfifo out/pipe")
daemon = None


def sha(data):
    return hashlib.sha256(data).hexdigest()


def test_directory(t):
    with tempfile.TemporaryDirectory() as place:
        done = cli.run("sh", "-c", MAKE, options=["--collect", "out/*", "--output", place])
        got = {o["path"]: o for o in done.report["outputs"]}
        t.equal((got["out/t.csv"].get("sha256"), got["out/t.csv"].get("mediaType")), (sha(SMALL), "text/csv"),
                "the report has hash and media type")
        with open(os.path.join(place, "out/big.bin"), "rb") as f:
            t.ok(f.read() == BIG and got["out/big.bin"]["sha256"] == sha(BIG), "of what was written")
        t.equal(sorted(p for p, o in got.items() if "leftOut" in o), ["out/link", "out/pipe"],
                "a link and a FIFO are named as left out")


def ended(job):
    return tap.wait_until(lambda: (o := daemon.ask("GET", "/v1/jobs/" + job)[1]).get("state") == "finished" and o, 60)


def test_url(t):
    status, job = daemon.ask("POST", "/v1/jobs", {"kind": "command", "command": MAKE, "outputs": ["out/*"]})
    t.equal(status, 202, "a job is taken")
    result = ended(job["id"])["result"]
    got = {o["path"]: o for o in result["outputs"]}
    csv, big, odd = got["out/t.csv"], got["out/big.bin"], got["out/a b#?%é.txt"]
    t.ok(base64.b64decode(csv["content_base64"]) == SMALL and csv["media_type"] == "text/csv", "a small file is in the result")
    t.ok("content_base64" not in big and big["sha256"] == sha(BIG) and big["size"] == len(BIG), "a large one is not", str(big)[:300])
    status, headers, data = daemon.fetch("GET", big["url"])
    t.ok(status == 200 and data == BIG, "but at its URL", "status %d, %d bytes" % (status, len(data)))
    t.equal((headers["ETag"], headers["Content-Type"], headers["X-Content-Type-Options"]),
            ('"%s"' % sha(BIG), "application/octet-stream", "nosniff"), "with hash and type")
    t.equal(daemon.fetch("GET", odd["url"])[2], b"odd\n", "whatever its name is")
    t.equal(daemon.fetch("GET", csv["url"])[1]["Content-Type"], "text/csv", "a small one as well")
    for path in ("/outputs/out/nothing", "/outputs/", "/outputs/../../../etc/passwd", "/outputs/out/link"):
        t.equal(daemon.ask("GET", "/v1/jobs/" + job["id"] + path)[0], 404, "nothing else is there: " + path)
    t.equal(daemon.ask("GET", "/v1/jobs/none/outputs/out/t.csv")[0], 404, "nor in a job that is not there")
    t.equal(daemon.ask("POST", "/v1/jobs/" + job["id"] + "/outputs/out/t.csv", {})[0], 405, "it can only be read")


def test_forged(t):
    """What a function returns looks like outputs: it is not taken for them, and comes back as it was."""
    code = ("def f():\n  open('o.txt', 'w').write('true')\n"
            "  return {'outputs': [{'path': 'o.txt', 'content_base64': 'Zm9yZ2Vk' * 20000}], 'n': 1.10}\n")
    _, job = daemon.ask("POST", "/v1/jobs", {"kind": "python-function", "code": code, "outputs": ["o.txt"]})
    result = ended(job["id"])["result"]
    t.equal(len(result["data"]["outputs"][0]["content_base64"]), 160000, "the returned value is whole")
    t.equal(daemon.fetch("GET", "/v1/jobs/%s/outputs/o.txt" % job["id"])[2], b"true", "the URL gives the file")


def test_notices(t):
    """Of an archive's files: what will not work is said in the result."""
    def archive(text):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            info = tarfile.TarInfo("d/run.sh")
            info.size, info.mode = len(text), 0o755
            tar.addfile(info, io.BytesIO(text))
        return out.getvalue()

    for text, want in ((b"#!/bin/sh\r\necho\r\n", True), (b"#!/bin/sh\necho\n", False)):
        data = archive(text)
        _, reply = daemon.ask("POST", "/v1/execute/command",
                              {"command": "true", "archive_base64": base64.b64encode(data).decode()})
        t.equal(any("d/run.sh" in n and "CR LF" in n for n in reply["notes"]), want, "daemon: %r, noticed: %r" % (text[:11], want))
        with tempfile.NamedTemporaryFile() as f:
            f.write(data)
            f.flush()
            done = cli.run("true", options=["--unpack", f.name])
        t.equal((done.status, "d/run.sh" in done.err and "CR LF" in done.err), (0, want), "command line: the same")


def test_running(t):
    _, job = daemon.ask("POST", "/v1/jobs", {"kind": "command", "command": "sleep 30", "outputs": ["*"]})
    t.equal(daemon.ask("GET", "/v1/jobs/%s/outputs/x" % job["id"])[0], 409, "not before it has ended")
    daemon.ask("DELETE", "/v1/jobs/" + job["id"])


if __name__ == "__main__":
    with service.Daemon() as daemon:
        sys.exit(tap.run([test_directory, test_url, test_forged, test_notices, test_running]))
