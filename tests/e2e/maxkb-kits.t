#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The kits of docs/maxkb.md in containers as Docker starts them (tests/support/nsboxtest/docker.py): the
service outside, the service inside, and what becomes of it without each thing that a kit asks for. Kit b is the tier
"namespace", kit a is "process": each has all golden outcomes and the many threads here; maxkb.t has those of the host.
"""

import functools
import os
import re
import shutil
import subprocess
import sys

import yaml

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import docker, leftovers, maxkb, paths, service, tap
from nsboxtest.golden import GOLDEN, many, outcomes

KITS = os.path.join(paths.ROOT, "maxkb", "kits")
INIT = "/opt/maxkb/local/init-shells/10-nsbox.sh"
PY3 = "/opt/py3/bin/python3"
place = paths.scratch("nsbox-maxkb-kits-")
count = 0


def fresh(name):
    global count
    count += 1
    path = os.path.join(place, "%s-%d" % (name, count))
    os.makedirs(path)
    return path


@functools.cache
def virtual_environment():
    """As MaxKB has one, with a module that /usr lacks."""
    path = fresh("py3")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", path], check=True)
    packages = os.path.join(path, "lib", os.listdir(os.path.join(path, "lib"))[0], "site-packages")
    with open(os.path.join(packages, "only_in_py3.py"), "w", encoding="ascii") as f:
        f.write("ANSWER = 42\n")
    return path


def volumes(*more):
    """What every kit has: MaxKB's Python and the script in its place."""
    return [(virtual_environment(), "/opt/py3", ["rbind", "rw"]),
            (os.path.join(KITS, "10-nsbox.sh"), INIT, ["rbind", "ro"]), *more]


def start_in(container):
    """MaxKB's start: the scripts first, then the server, which the driver stands for."""
    def start(argv, env, **how):
        script = "bash %s; exec %s" % (INIT, " ".join("'%s'" % word for word in argv))
        return container.start(["bash", "-c", script], env, **how)

    return start


def golden(t, server, kit, rows=None):
    wrong = ["%s: %s" % (name, answer[:300]) for name, good, answer in outcomes(server, rows) if not good]
    t.ok(not wrong, "%s: golden outcomes" % kit, "\n".join(wrong))


def all_at_once(t, server, kit):
    wrong = many(server)
    t.ok(not wrong, "%s: 200 threads at once, each with its answer" % kit, str(wrong[:3]))


@functools.cache
def bundle():
    """With the libraries that it needs, as it is put on MaxKB's volume."""
    path = fresh("bundle")
    # An ordinary checkout may be built already; a copy for tests has no objects to build from.
    env = dict(os.environ, BUNDLE_MAKE_ARGS="-o all -o build/%s/libnsbox.so.0" % paths.VARIANT)
    subprocess.run([os.path.join(KITS, "bundle"), path], check=True, env=env, stdout=subprocess.DEVNULL)
    return path


def composed():
    """The service "maxkb" of the file that is shipped, which says no more than a container's start can have."""
    with open(os.path.join(KITS, "compose.yaml"), encoding="utf-8") as f:
        file = yaml.safe_load(f)
    return file, file["services"]["maxkb"]


def test_outside(t):
    """Kit c: the stock container, with the volumes of compose.yaml; what is installed on the host is in the bundle."""
    file, maxkb_service = composed()
    t.equal((set(file), set(file["services"]), set(maxkb_service) - {"container_name", "restart", "ports"}),
            ({"services"}, {"maxkb"}, {"image", "environment", "volumes"}), "service outside: no option of security is asked for")
    t.equal(maxkb_service["environment"], {"MAXKB_NSBOX_IMAGE": "maxkb"}, "service outside: and one variable")
    with service.Daemon() as daemon:
        # Sources that the file names; here they are elsewhere.
        places = {"~/.maxkb": fresh("volume"), "/run/nsbox": daemon.dir, "/usr/local/share/nsbox/": bundle() + "/share/nsbox/"}
        extra = [(virtual_environment(), "/opt/py3", ["rbind", "rw"])]
        for text in maxkb_service["volumes"]:
            source, where, *mode = text.split(":")
            found = [there + source[len(name):] for name, there in places.items() if source == name or source.startswith(name)]
            t.ok(found and os.path.exists(found[0]), "service outside: there is %s" % source, str(found))
            extra.append((found[0], where, ["rbind", *(mode or ["rw"])]))
        box = docker.Container(fresh("box"), docker.default(), extra)
        with maxkb.MaxKB("-", python=PY3, start=start_in(box), NSBOX_PYTHON="/usr/bin/python3",
                         NSBOX_IMAGE="host") as server:
            answer = server.call("import os\ndef f(): return os.path.exists('/opt/maxkb')")
            t.equal(answer, {"value": False}, "service outside: nothing of the container is in a run")
            golden(t, server, "service outside", GOLDEN[::5])  # maxkb.t has all, by a service as this one
            said = server.end()
        t.ok("run in nsbox, by the service at /run/nsbox/nsbox.sock" in said, "service outside: the log says so", said)


def box_with(bundle_dir, profile, unmasked=False):
    """A container that has never been started; what it keeps is on the volume."""
    shutil.rmtree(os.path.join(bundle_dir, "state"), ignore_errors=True)
    return docker.Container(fresh("box"), profile, volumes((bundle_dir, "/opt/maxkb/local/nsbox", ["rbind", "rw"])),
                            unmasked=unmasked)


def test_inside(t):
    """Kit b: the service in the container, which has the shipped profile."""
    bundle_dir = bundle()
    with maxkb.MaxKB("-", python=PY3, start=start_in(box_with(bundle_dir, docker.shipped()))) as server:
        golden(t, server, "service inside")
        all_at_once(t, server, "service inside")
        answer = server.call("import only_in_py3, sys\ndef f(): return [only_in_py3.ANSWER, sys.executable]")
        t.equal(answer, {"value": [42, PY3]}, "service inside: tools have MaxKB's own Python and packages")
        answer = server.call("import os\ndef f(): return sorted(os.listdir('/opt'))")
        t.equal(answer, {"value": ["nsbox", "py3"]}, "service inside: and no other part of /opt")
        answer = server.call("def f():\n open('/opt/py3/x', 'w')")
        t.ok("Read-only file system" in answer.get("error", ""), "service inside: which they cannot change", str(answer))
        said = server.end()
    t.ok("run in nsbox, by the service at" in said and "NOT READY" not in said, "service inside: the log says so", said)
    # As the manual has it. The engine's own filter refuses some of it as well: that is no escape, and no fault.
    nsbox = "LD_LIBRARY_PATH=/opt/maxkb/local/nsbox/lib/bundled /opt/maxkb/local/nsbox/bin/nsbox "
    status, out, err = box_with(bundle_dir, docker.shipped()).run(
        ["sh", "-c", nsbox + "doctor && " + nsbox + "selftest --only D09 --only D10 --only E07 --only F02"])
    t.ok(status == 0 and "tier      namespace" in out and " 0 ESCAPED" not in out and "held     F02" in out,
         "service inside: doctor and selftest", out + err)


def test_stock(t):
    """Kit b without its profile: refused, with what is missing."""
    with maxkb.MaxKB("-", python=PY3, start=start_in(box_with(bundle(), docker.default()))) as server:
        answer = server.call("def f(): return 1")
    t.ok("nsbox did not run the tool" in answer.get("error", "") and "seccomp=PROFILE" in answer["error"],
         "the stock container: refused by name, with the remedy", str(answer))


def test_stock_process(t):
    """Kit a: the stock container, where the operator accepts the tier "process"."""
    box = box_with(bundle(), docker.default())
    with maxkb.MaxKB("-", python=PY3, start=start_in(box), NSBOX_MIN_TIER="process") as server:
        golden(t, server, "the stock container")
        all_at_once(t, server, "the stock container")
        answer = server.call("import os\ndef f(): return os.getuid() > 1000 and os.getgid() != 0")
        t.equal(answer, {"value": True}, "the stock container: as a user and group of the run's own")
        answer = server.call("def f(): return open('/proc/1/environ').read()")
        t.ok("Permission denied" in answer.get("error", ""), "the stock container: not the variables of others", str(answer))
        said = server.end()
    t.ok("run in nsbox, by the service at" in said and "NOT READY" not in said, "the stock container: the log says so", said)


# What is seen without a call: the error of a run. The witness of the profile's whole is in test_inside.
def test_profile(t):
    nsbox = [os.path.join(paths.BUILD, "nsbox"), "run", "--", "echo", "ran"]
    box = docker.Container(fresh("box"), docker.shipped())
    t.equal(box.run(nsbox)[:2], (0, "ran\n"), "the shipped profile: a run")
    names = docker.added()
    t.equal(len(names), 12, "the number of calls that the manual tells of")
    for name in names:
        box.profile = docker.shipped(without=[name])
        status, out, err = box.run(nsbox)
        t.ok(status == 125 and out == "" and "nsbox: " in err, "without %s: none" % name, "%d %s %s" % (status, out, err))
    with open(docker.PROFILE, encoding="utf-8") as f:
        text = f.read()
    t.ok(all(len(reason) > 20 for reason in re.findall(r'"nsbox: ([^"]*)"', text)), "each of them has its reason")
    box = docker.Container(fresh("box"), docker.shipped(), unmasked=True)
    shows = [nsbox[0], "run", "--", "sh", "-c", "ls /proc | grep -c '^[0-9]'"]
    t.ok(int(box.run(shows)[1] or 0) > 0, "with systempaths=unconfined a run has a /proc of its own")


def main():
    if os.geteuid() != 0:
        print("1..0 # SKIP only root can start containers; the kits are tried by its half")
        return 0
    leftovers.become_subreaper()
    return tap.run([test_outside, test_inside, test_stock, test_stock_process, test_profile])


if __name__ == "__main__":
    sys.exit(main())
