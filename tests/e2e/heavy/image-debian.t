#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A whole distribution as an image: Debian with Python, made by mmdebstrap, as a root tar and by way
of an OCI layout that skopeo wrote; and what a run costs in a small and in a large image."""

import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, images, paths, tap

PLACE = paths.scratch("deb-")
os.chmod(PLACE, 0o755)
ENV = {**os.environ, "NSBOX_STATE_DIR": os.path.join(PLACE, "state")}
TAR = os.path.join(paths.ROOT, "build", "debian-python.tar")  # made once
CODE = """
import ctypes, json, os, socket, sqlite3, ssl, subprocess, threading
def main():
    t = threading.Thread(target=lambda: None); t.start(); t.join()
    return [ssl.OPENSSL_VERSION_INFO[0] >= 3, os.getuid(), os.path.exists("/usr/share/doc"),
            subprocess.run(["perl", "-e", "print 6*7"], capture_output=True).stdout.decode()]
"""


def nsbox(*argv, data=None):
    return subprocess.run([paths.NSBOX, *argv], input=data, stdin=None if data else subprocess.DEVNULL,
                          capture_output=True, env=ENV, timeout=600, check=False)


def ready():
    if not os.path.exists(TAR):
        made = subprocess.run(["mmdebstrap", "--quiet", "--variant=minbase", "--include=python3", "bookworm", TAR + ".part.tar"],
                              check=False)
        if made.returncode:
            tap.skip_all("mmdebstrap could make no Debian: is there a mirror?")
        os.rename(TAR + ".part.tar", TAR)


def look(t, image):
    code = os.path.join(PLACE, "code.py")
    with open(code, "w", encoding="utf-8") as f:
        f.write(CODE)
    done = nsbox("run", "--image", image, "--python", code)
    t.equal((done.stdout, done.stderr), (b'[true, 1000, true, "42"]\n', b""), "a Python function in " + image)
    got = cli.run("sh", "-c", "dpkg-query -W python3-minimal | wc -l; echo >/usr/x; apt-get --version | head -1 | cut -c1-4",
                  options=["--image", image], env=ENV)
    t.equal(got.out, "1\napt \n", "its programs, and nothing to be written")
    got = cli.run("sh", "-c", "dpkg --remove --force-all hostname && ! hostname; echo $?", options=["--image", image], env=ENV,
                  manifest={"profile": "build"})
    t.ok(got.out.endswith("\n0\n") or got.out == "0\n", "inside-root removes a package", got)


def test_root_tar(t):
    done = nsbox("image", "import", "debian", TAR)
    t.equal((done.returncode, done.stderr), (0, b""), "a root tar of Debian")
    look(t, "debian")


def test_skopeo(t):
    """The archive that was made from the tar, rewritten by a public tool: layers compressed anew."""
    with open(TAR, "rb") as f:
        layer = f.read()
    save = os.path.join(PLACE, "save.tar")
    with open(save, "wb") as f:
        f.write(images.docker_save([layer], Env=["PATH=/usr/bin:/bin"]))
    done = nsbox("image", "import", "saved", save)
    t.equal((done.returncode, done.stderr), (0, b""), "docker save")
    digest = json.loads(nsbox("image", "inspect", "saved").stdout)["layers"][0]["digest"]
    t.equal(digest, json.loads(nsbox("image", "inspect", "debian").stdout)["layers"][0]["digest"], "shares the root tar's layer")
    subprocess.run(["skopeo", "--insecure-policy", "copy", "--quiet", "docker-archive:" + save, "oci:%s/oci:latest" % PLACE],
                   check=True)
    done = nsbox("image", "import", "skopeo", PLACE + "/oci")
    t.equal((done.returncode, done.stderr), (0, b""), "skopeo's OCI layout")
    look(t, "skopeo")


def test_cost(t):
    """What a run costs does not depend on how much is in its image."""
    small = images.tar(*images.busybox())
    large = images.tar(*images.busybox(), *[images.member("big/%d" % i, b"%d" % i * 262144) for i in range(400)])
    nsbox("image", "import", "small", "-", data=small)
    nsbox("image", "import", "large", "-", data=large)
    setup = {"small": [], "large": []}
    for _ in range(40):
        for image, seen in setup.items():
            start = time.monotonic()
            cli.run("true", options=["--image", image], env=ENV)
            seen.append(1000 * (time.monotonic() - start))
    for image, seen in setup.items():
        size = sum(x["bytes"] for x in json.loads(nsbox("image", "inspect", image).stdout)["layers"])
        t.note("%s: %d MiB, median %.1f ms" % (image, size >> 20, statistics.median(seen)))
    t.ok(statistics.median(setup["large"]) < 1.5 * statistics.median(setup["small"]) + 5, "no dearer in a large image")


if __name__ == "__main__":
    ready()
    sys.exit(tap.run([test_root_tar, test_skopeo, test_cost]))
