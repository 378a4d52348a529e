#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""make dist: the same bytes twice, sums that are right, and a list that says what is so. It packs what is
committed, of a clone that is made here; what it is linked with it asks of the build at hand."""

import hashlib
import json
import os
import subprocess
import sys
import tarfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import paths, tap

PLACE = paths.scratch("dist-")


def made(name):
    """Name to bytes of what `make dist` makes of a fresh clone."""
    clone = os.path.join(PLACE, name)
    subprocess.run(["git", "clone", "--quiet", paths.ROOT, clone], check=True)
    os.mkdir(clone + "/build")
    os.symlink(paths.BUILD, clone + "/build/release")
    subprocess.run(["make", "-s", "-C", clone, "-o", "all", "dist"], check=True, stdout=subprocess.DEVNULL)
    found = {}
    for name in os.listdir(clone + "/build/dist"):
        with open(os.path.join(clone, "build/dist", name), "rb") as f:
            found[name] = f.read()
    return clone, found


def test_same(t):
    clone, first = made("one")
    t.equal(sorted(name.rsplit(".", 2 if name.endswith("z") else 1)[-1 if name == "SHA256SUMS" else 1] for name in first),
            ["SHA256SUMS", "json", "tar"], "a tarball, a list, sums")
    t.ok(made("two")[1] == first, "the same, byte by byte, of another clone")
    done = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=clone + "/build/dist", check=False, capture_output=True)
    t.equal(done.returncode, 0, "the sums are right")
    tarball = [name for name in first if name.endswith(".tar.gz")][0]
    spdx = json.loads(first[[name for name in first if name.endswith(".json")][0]])
    t.equal(spdx["spdxVersion"], "SPDX-2.3", "SPDX")
    t.equal(spdx["packages"][0]["checksums"][0]["checksumValue"], hashlib.sha256(first[tarball]).hexdigest(), "of this tarball")
    listed = {f["fileName"]: f["checksums"][1]["checksumValue"] for f in spdx["files"]}
    with tarfile.open(os.path.join(clone, "build/dist", tarball)) as tar:
        packed = {"./" + m.name.split("/", 1)[1]: hashlib.sha256(tar.extractfile(m).read()).hexdigest() for m in tar if m.isfile()}
    t.ok(packed and listed == packed, "each file with its hash")
    linked = {p["name"]: p["versionInfo"] for p in spdx["packages"][1:]}
    for name in ("libc6", "libseccomp2", "libssl3", "libsqlite3-0", "libarchive13", "libmicrohttpd12"):
        have = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", name], capture_output=True, text=True, check=False).stdout
        t.ok(have and linked.get(name) == have, "linked with %s, of the version that is here" % name, linked)
    t.equal(spdx["packages"][0]["licenseInfoFromFiles"], ["Apache-2.0", "NONE"], "licences that files name")


if __name__ == "__main__":
    sys.exit(tap.run([test_same]))
