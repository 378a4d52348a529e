#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The image of the service for a container beside another: its layout, and what it is as a container that runc
starts with the options of maxkb/kits/compose-sidecar.yaml. NSBOX_SIDECAR=1 takes what `make sidecar` has built."""

import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import container, docker, leftovers, maxkb, paths, tap
from nsboxtest.golden import GOLDEN

LAYOUT = os.path.join(paths.ROOT, "build", "sidecar", "layout")
COMPOSE = os.path.join(paths.ROOT, "maxkb", "kits", "compose-sidecar.yaml")
NSBOX = os.path.join(paths.BUILD, "nsbox")
place = paths.scratch("sidecar-")
BUNDLE = os.path.join(place, "bundle")
PY3 = "/usr/bin/python3"


def compose():
    with open(COMPOSE, encoding="utf-8") as f:
        return f.read()


def version():
    said = subprocess.run([NSBOX, "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[1]


def blob(digest):
    with open(os.path.join(LAYOUT, "blobs", *digest.split(":")), encoding="utf-8") as f:
        return json.load(f)


def test_layout(t):
    if not os.environ.get("NSBOX_SIDECAR"):
        done = subprocess.run(["make", "-C", paths.ROOT, "sidecar"], capture_output=True, text=True, check=False)
        t.ok(done.returncode == 0, "make sidecar", done.stdout[-4000:] + done.stderr[-4000:])
    with open(os.path.join(LAYOUT, "oci-layout"), encoding="utf-8") as f:
        t.equal(json.load(f), {"imageLayoutVersion": "1.0.0"}, "an OCI layout")
    with open(os.path.join(LAYOUT, "index.json"), encoding="utf-8") as f:
        manifests = json.load(f)["manifests"]
    t.equal([m["annotations"]["org.opencontainers.image.ref.name"] for m in manifests], [version()],
            "with one image, named by its version")
    t.ok("image: nsbox:%s\n" % version() in compose(), "as the compose file names it")
    manifest = blob(manifests[0]["digest"])
    config = blob(manifest["config"]["digest"])
    kept = {manifests[0]["digest"], manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])}
    t.equal(set(os.listdir(os.path.join(LAYOUT, "blobs", "sha256"))), {digest.split(":")[1] for digest in kept},
            "and nothing that it does not need")
    labels = config["config"]["Labels"]
    t.equal((labels["org.opencontainers.image.version"], labels["org.opencontainers.image.licenses"]),
            (version(), "Apache-2.0"), "its labels")
    t.equal(sorted(config["config"]["Volumes"]), ["/run/nsbox", "/var/lib/nsbox"], "its volumes")
    t.equal(config["config"]["Entrypoint"], ["/usr/sbin/nsboxd"], "what it starts")


def test_root(t):
    subprocess.run(["umoci", "unpack", "--image", "%s:%s" % (LAYOUT, version()), BUNDLE], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    root = os.path.join(BUNDLE, "rootfs")
    for path in ("usr/sbin/nsboxd", "usr/bin/nsbox", "usr/share/nsbox/maxkb/kits/10-nsbox.sh",
                 "usr/share/nsbox/maxkb/nsbox_maxkb/hook.py", "etc/nsbox/nsboxd.json"):
        t.ok(os.path.isfile(os.path.join(root, path)), "the root has /" + path)
    left = [os.path.join(top, name) for part in ("var/tmp", "tmp", "var/lib/apt/lists")
            for top, _, names in os.walk(os.path.join(root, part)) for name in names if name != "lock"]
    t.equal(left, [], "and nothing is left of making it")


def sidecar(profile, name):
    """Started as the image says and the compose file wants it: a Popen and the directory of its socket."""
    with open(os.path.join(BUNDLE, "config.json"), encoding="utf-8") as f:
        image = json.load(f)["process"]
    capabilities = ["CAP_" + c for c in re.search(r"cap_add: \[(.*)\]", compose())[1].split(", ")]
    run, state = os.path.join(place, name + "-run"), os.path.join(place, name + "-state")
    for path in (run, state):
        os.mkdir(path, 0o755)
    env = dict(pair.split("=", 1) for pair in image["env"])
    config = docker.config(image["args"], profile, (), env, "systempaths=unconfined" in compose(), capabilities, "/")
    config["root"] = {"path": "rootfs", "readonly": False}
    config["mounts"] = [m for m in config["mounts"] if m["type"] != "bind"] + [
        docker.mount("bind", "/run/nsbox", ["rbind", "rw"], run), docker.mount("bind", "/var/lib/nsbox", ["rbind", "rw"], state)]
    with open(os.path.join(BUNDLE, "config.json"), "r+", encoding="utf-8") as f:
        kept = f.read()
        f.seek(0)
        f.truncate()
        json.dump(config, f)
    child = subprocess.Popen(["runc", "--root", os.path.join(place, "state"), "run", "--bundle", BUNDLE,
                              "sidecar-%d-%s" % (os.getpid(), name)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and child.poll() is None and not os.path.exists(run + "/nsbox.sock"):
        time.sleep(0.05)
    with open(os.path.join(BUNDLE, "config.json"), "w", encoding="utf-8") as f:
        f.write(kept)
    return child, run


def daemon_says(run, *argv):
    done = subprocess.run([NSBOX, *argv[:2], "--socket", run + "/nsbox.sock", *argv[2:]], capture_output=True, text=True,
                          check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_service(t):
    child, run = sidecar(docker.shipped(), "good")
    status, said = daemon_says(run, "daemon", "status", "--json")
    t.ok(status == 0 and json.loads(said)["tier"] == "namespace", "beside another container: the tier namespace", said)
    status, said = daemon_says(run, "job", "run", "--", "sh", "-c", "id -u; ls /proc | grep -c '^[0-9]'; ls /var/lib/nsbox")
    t.ok(said.startswith("1000\n") and "No such file" in said, "a command, in a root and /proc of its own", said)
    box = docker.Container(os.path.join(place, "box"), docker.default(), [
        (run, "/run/nsbox", ["rbind", "rw"]),
        (os.path.join(BUNDLE, "rootfs/usr/share/nsbox/maxkb"), "/opt/nsbox-maxkb", ["rbind", "ro"])])
    test = os.path.join(place, "site")
    maxkb.install(test, "/opt/nsbox-maxkb")
    box.extra.append((test, "/opt/site", ["rbind", "ro"]))
    with maxkb.MaxKB("/opt/site", python=PY3, start=box.start, NSBOX_SOCKET="/run/nsbox/nsbox.sock") as server:
        wrong = []
        for name, code, keywords, more, good in GOLDEN[::4]:
            answer = server.call(code, keywords, **more)
            if not good(answer):
                wrong.append("%s: %s" % (name, str(answer)[:300]))
        t.ok(not wrong, "MaxKB in the stock container, through the volume", "\n".join(wrong))
    child.terminate()
    said = child.communicate(timeout=60)[0]
    t.equal(child.returncode, 0, "ends in order when it is told to")
    t.equal(re.findall(r"^<[0-4]>.*", said, re.M), [], "and had nothing to warn of")


def test_stock(t):
    """The twin: without the profile of the kit there is no sandbox, and its log names what is missing."""
    child, run = sidecar(docker.default(), "stock")
    status, said = daemon_says(run, "job", "run", "--", "true")
    t.ok(status != 0 and "seccomp" in said, "under Docker's own profile: refused, with the remedy", said)
    child.terminate()
    said = child.communicate(timeout=60)[0]
    t.equal(child.returncode, 0, "and ends in order")


def main():
    why = container.available()
    if why:
        tap.skip_all(why)
    leftovers.become_subreaper()
    os.chmod(place, 0o755)
    return tap.run([test_layout, test_root, test_service, test_stock])


if __name__ == "__main__":
    sys.exit(main())
