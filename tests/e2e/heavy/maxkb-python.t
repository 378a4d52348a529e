#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The drop-in's suites in another Python than the host's: a machine with a newer Debian, as MaxKB's container is
one, in which MaxKB's processes, the drop-in and what runs in sandboxes have that Debian's Python. nsbox is this
build, with its libraries as maxkb/kits/bundle brings them along."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import debian, leftovers, paths, tap

place = paths.scratch("nsbox-maxkb-python-")
SUITE = "trixie"
# On this machine's own tier; maxkb-kits.t is of containers alone.
FILES = ("maxkb.t", "maxkb-shell.t", "maxkb-mcp.t", "maxkb-external.t", "maxkb-cve.t")
BUNDLE = "/opt/bundle"
machine = None


def run(script):
    """In the machine, which has the checkout where it is here."""
    extra = [(paths.ROOT, paths.ROOT, ["rbind", "ro"]), (os.path.join(place, "bundle"), BUNDLE, ["rbind", "ro"])]
    env = {"NSBOX_NO_CONTAINERS": "1", "PYTHONDONTWRITEBYTECODE": "1", "VARIANT": paths.VARIANT, "NSBOX_MUST_WORK": os.environ.get("NSBOX_MUST_WORK", "")}
    return machine.run(["sh", "-euc", "cd '%s'; %s" % (paths.ROOT, script)], env, extra, timeout=600 * tap.slow())


def test_version(t):
    version = run("python3 -c 'import sys; print(*sys.version_info[:2])'")[1].split()
    t.ok(version != [str(n) for n in sys.version_info[:2]] and version[0] == "3", "another Python: " + ".".join(version))


def suite(name):
    def test(t):
        status, out = run("exec python3 tests/e2e/" + name)
        lines = out.splitlines()
        plan = [line for line in lines if line.startswith("1..")]
        good = sum(line.startswith("ok ") and "# SKIP" not in line for line in lines)
        t.ok(status == 0 and plan == ["1..%d" % good] and good > 10, "%s: %d tests" % (name, good),
             "\n".join(line for line in lines if not line.startswith("ok "))[-4000:])
    test.__name__ = "test_" + name.partition(".")[0].replace("-", "_")
    return test


def main():
    global machine
    if os.geteuid() != 0:
        print("1..0 # SKIP only root can start a machine")
        return 0
    leftovers.become_subreaper()
    # An ordinary checkout may be built already; a copy for tests has no objects to build from.
    env = dict(os.environ, BUNDLE_MAKE_ARGS="-o all -o build/%s/libnsbox.so.0" % paths.VARIANT)
    subprocess.run([os.path.join(paths.ROOT, "maxkb", "kits", "bundle"), os.path.join(place, "bundle")], check=True, env=env,
                   stdout=subprocess.DEVNULL)
    debian.unpack(debian.archive({"python3", "python3-cffi", "procps", "dnsmasq-base"}, SUITE), os.path.join(place, "root"))
    machine = debian.Debian(place, os.path.join(place, "root"))
    status, out = run("echo %s/lib/bundled >/etc/ld.so.conf.d/bundle.conf; ldconfig; tests/support/system-users nsbox" % BUNDLE)
    if status:
        raise RuntimeError(out)
    return tap.run([test_version, *(suite(name) for name in FILES)])


if __name__ == "__main__":
    sys.exit(main())
