#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: built, looked at by lintian, installed in a fresh Debian 12, used there, removed
and purged, after which the root is what it was. NSBOX_DEBS=1 takes what `make deb` has built before."""

import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import container, debian, paths, tap

DEBS = os.path.join(paths.ROOT, "build", "deb")
NAMES = ("libnsbox-dev", "libnsbox0", "nsbox", "nsbox-maxkb", "python3-nsbox")
MACHINE = None
BEFORE = {}
READY = """
nsboxd --config /etc/nsbox/nsboxd.json 2>/run/log & service=$!
i=0; while ! nsbox daemon status >/dev/null 2>&1; do i=$((i+1)); test $i -lt 600 || { cat /run/log; exit 1; }; sleep 0.1; done
"""
# Inside the booted machine: a line "NAME: VALUE" for each thing that is to be so.
SYSTEMD = r"""#!/bin/sh
exec >/mnt/said 2>&1
say() { name=$1; shift; echo "$name: $("$@" 2>&1 | tr '\n' ' ')"; }
state() { systemctl show --value -p "$1" nsboxd.service; }
until_main() { i=0; while test "$(state MainPID)" = "$1" || test "$(state ActiveState)" != active; do i=$((i+1)); test $i -lt 300 || break; sleep 0.2; done; }
say first nsbox job run -- echo works
say status state StatusText
spawn=$(pidof nsbox-spawn); kill -9 "$spawn"
i=0; while test "$(pidof nsbox-spawn)" = "$spawn" -o -z "$(pidof nsbox-spawn)"; do i=$((i+1)); test $i -lt 300 || break; sleep 0.2; done
i=0; until nsbox job run -- true; do i=$((i+1)); test $i -lt 100 || break; sleep 0.2; done >/dev/null 2>&1
say without-a-restart state NRestarts
main=$(state MainPID); kill -9 "$main"; until_main "$main"
say after-its-end nsbox job run -- echo works
say restarts state NRestarts
echo '{"keepResults": "2d"}' >/etc/nsbox/nsboxd.json
systemctl reload nsboxd && say reload state ActiveState
echo '{"keepResults": 2, "nosuch": 1}' >/etc/nsbox/nsboxd.json
systemctl reload nsboxd; say bad-reload state ActiveState
echo '{}' >/etc/nsbox/nsboxd.json
systemctl stop nsboxd.service 2>/dev/null; say stopped state ActiveState; say left pidof nsbox-spawn nsbox-egress nsboxd
say by-the-socket nsbox job run -- echo works
say started state ActiveState
groups() { find /sys/fs/cgroup -type d -name '*nsboxd.service*' | wc -l; }
say has-groups groups
job=$(nsbox job submit -- sleep 2); systemctl stop nsboxd.service 2>/dev/null; say drained journalctl -u nsboxd -o cat --no-pager -g "job id=$job cause=exit"
say groups groups
echo "end: x"
systemctl poweroff -f
"""
UNIT = "[Unit]\nAfter=nsboxd.socket\n[Service]\nType=oneshot\nExecStart=/mnt/try\n"

USE = """
import nsbox
c = nsbox.Client()
print(c.python("def f(a): return a + 1", a=1).data, c.command("echo from a command").text, end="")
"""

# The long-lived programs of the service, and whose they are.
WHOSE = """
for p in /proc/[0-9]*; do
    case $(cat $p/comm) in nsboxd|nsbox-spawn|nsbox-egress) echo $(cat $p/comm) $(stat -c %U $p);; esac
done | sort -u
"""


def package(name):
    found = glob.glob(os.path.join(DEBS, name + "_*.deb"))
    return found[0] if len(found) == 1 else ""


def listed(name):
    """The files of a package."""
    shown = subprocess.run(["dpkg-deb", "--contents", package(name)], capture_output=True, text=True, check=True).stdout
    return [line.split()[5][1:] for line in shown.splitlines() if not line.startswith("d")]


def test_build(t):
    if not os.environ.get("NSBOX_DEBS"):
        done = subprocess.run(["make", "-C", paths.ROOT, "deb"], capture_output=True, text=True, check=False)
        t.ok(done.returncode == 0, "make deb", done.stdout[-4000:] + done.stderr[-4000:])
    t.ok(all(package(name) for name in NAMES), "makes " + ", ".join(NAMES), str(os.listdir(DEBS)))
    done = subprocess.run(["lintian", "--allow-root", "--display-info",
                           *glob.glob(DEBS + "/*.changes")], capture_output=True, text=True, check=False)
    t.equal((done.returncode, done.stdout), (0, ""), "lintian has nothing to say, not even for information")
    overrides = glob.glob(os.path.join(paths.ROOT, "debian", "*lintian-overrides"))
    lines = [line for path in overrides for line in open(path, encoding="utf-8").read().splitlines()]
    t.ok(lines and all(lines[i - 1].startswith("# ") for i, line in enumerate(lines) if not line.startswith("#")),
         "what it was told to be silent about has its reason", "\n".join(lines))


def test_contents(t):
    tool = set(listed("nsbox"))
    for path in ("/usr/bin/nsbox", "/usr/sbin/nsboxd", "/usr/lib/nsbox/nsbox-spawn", "/usr/lib/nsbox/nsbox-egress",
                 "/lib/systemd/system/nsboxd.service", "/lib/systemd/system/nsboxd.socket", "/usr/lib/sysusers.d/nsbox.conf",
                 "/usr/lib/tmpfiles.d/nsbox.conf", "/etc/nsbox/nsboxd.json", "/usr/share/nsbox/apparmor/nsbox",
                 "/usr/share/bash-completion/completions/nsbox", "/usr/share/zsh/vendor-completions/_nsbox",
                 "/usr/share/fish/vendor_completions.d/nsbox.fish", "/usr/share/man/man1/nsbox.1.gz",
                 "/usr/share/man/man1/nsbox-selftest.1.gz", "/usr/share/man/man5/skill.json.5.gz",
                 "/usr/share/man/man8/nsboxd.8.gz"):
        t.ok(path in tool, "nsbox has " + path)
    t.ok("/usr/share/man/man3/libnsbox.3.gz" in listed("libnsbox-dev"), "libnsbox-dev has the manual")
    built = subprocess.run(["dpkg-deb", "--info", package("libnsbox0"), "symbols"], capture_output=True, text=True, check=True)
    t.ok("nsbox_run@NSBOX_0.1" in built.stdout, "libnsbox0 says which symbols it has", built.stdout)
    scripts = subprocess.run(["dpkg-deb", "--info", package("nsbox"), "postinst"], capture_output=True, text=True, check=True).stdout
    for name in ("systemd-sysusers", "systemd-tmpfiles", "deb-systemd-helper enable 'nsboxd.socket'"):
        t.ok(name in scripts, "its installation calls " + name, scripts)
    built = glob.glob(DEBS + "/*.buildinfo")
    t.ok(len(built) == 1 and paths.ROOT not in debug_names(), "and nothing names the place of the build")


def debug_names():
    """The program's texts: no source's path but relative ones."""
    place = paths.scratch("deb-")
    subprocess.run(["dpkg-deb", "--extract", package("nsbox"), place], check=True)
    return subprocess.run(["strings", "-a", place + "/usr/sbin/nsboxd"], capture_output=True, text=True, check=True).stdout


def install(*names):
    return MACHINE.run(["dpkg", "--install", *["/mnt/" + os.path.basename(package(name)) for name in names]],
                       extra=[(DEBS, "/mnt", ["rbind", "ro"])])


def test_install(t):
    global MACHINE
    needs = {name for deb in NAMES if deb != "libnsbox-dev" for name in debian.depends(package(deb))} - set(NAMES)
    place = paths.scratch("deb-")
    debian.unpack(debian.archive(needs | {"python3"}), place + "/root")
    MACHINE = debian.Debian(place, place + "/root")
    BEFORE.update(debian.contents(MACHINE.root))
    t.ok(len(BEFORE) > 3000, "a fresh Debian", len(BEFORE))
    installed = [name for name in NAMES if name != "libnsbox-dev"]
    status, said = install(*installed)
    t.ok(status == 0, "dpkg --install", said)
    status, said = MACHINE.shell("id -un nsbox; id -un nsbox-egress; stat -c %U:%a /var/lib/nsbox; dpkg --audit; "
                                 "dpkg-query -W -f '${db:Status-Status}\\n' " + " ".join(installed))
    t.equal(said, "nsbox\nnsbox-egress\nroot:755\n" + 4 * "installed\n", "users, directories, nothing left to be done")
    for unit in ("sockets.target.wants/nsboxd.socket", "multi-user.target.wants/nsboxd.service"):
        t.ok(os.path.islink(MACHINE.root + "/etc/systemd/system/" + unit), unit + " is enabled")
    status, said = MACHINE.run(["systemd-analyze", "verify", "--man=no", "/lib/systemd/system/nsboxd.service",
                                "/lib/systemd/system/nsboxd.socket"])
    t.ok(status == 0 and "nsboxd" not in said, "systemd has nothing to say about them", said)


def test_tool(t):
    for who, prefix in (("root", ""), ("nobody", "setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/tmp ")):
        status, said = MACHINE.shell(prefix + "nsbox run -- sh -c 'echo works; id -u'")
        t.equal((status, said), (0, "works\n1000\n"), "nsbox run as " + who)
        status, said = MACHINE.shell(prefix + "nsbox doctor --require namespace")
        t.ok(status == 0 and "tier" in said, "nsbox doctor as " + who, said)
    status, said = MACHINE.shell("cp -r /usr/share/doc/nsbox/examples/report-skill /tmp; nsbox run --skill /tmp/report-skill >/dev/null; nsbox --version")
    t.ok(status == 0 and re.fullmatch(r"nsbox [\d.]+\n", said), "the example of a skill", said)
    status, said = MACHINE.shell("nsbox selftest --tap --only A02")
    t.ok(status == 0 and "not ok" not in said, "a probe of the selftest", said)


def test_service(t):
    status, said = MACHINE.shell(READY + "python3 - <<'END'\n" + USE + "END\n" + WHOSE + "kill $service; wait $service")
    t.ok(status == 0 and said.startswith("2 from a command\n"), "the service, asked by import nsbox, and its end", said)
    for line in ("nsbox-egress nsbox-egress", "nsbox-spawn root", "nsboxd nsbox"):
        t.ok(line in said.splitlines(), "its part and whose it is: " + line, said)
    t.ok(os.path.isdir(MACHINE.root + "/var/lib/nsbox/nsboxd") or os.listdir(MACHINE.root + "/var/lib/nsbox"),
         "it has left something to be purged")
    t.ok(os.path.isfile(MACHINE.root + "/usr/share/nsbox/maxkb/kits/10-nsbox.sh"), "the drop-in for MaxKB is there")


def test_systemd(t):
    """The units under systemd itself, which boots the root; what it changes there is forgotten."""
    out = paths.scratch("deb-")
    for name, text in (("try", SYSTEMD), ("try.service", UNIT)):
        with open(out + "/" + name, "w", encoding="ascii") as f:
            f.write(text)
    os.chmod(out + "/try", 0o755)
    done = subprocess.run(
        ["systemd-nspawn", "--quiet", "--directory", MACHINE.root, "--boot", "--register=no", "--keep-unit", "--private-network",
         "--volatile=overlay", "--bind", out + ":/mnt", "--bind-ro", out + "/try.service:/etc/systemd/system/try.service",
         # What its own filter has not; the rest is as for any service in any container.
         "--system-call-filter=keyctl landlock_create_ruleset landlock_add_rule landlock_restrict_self",
         "systemd.wants=try.service"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    with open(out + "/said", encoding="utf-8") as f:
        text = f.read()
    said = {name: value.strip() for name, _, value in (line.partition(": ") for line in text.splitlines())}
    t.ok("end" in said, "systemd boots the machine and a unit asks the service", text + done.stdout[-2000:])
    for name, want, what in (
            ("first", "works", "the service is there by its socket"), ("status", "serving", "and tells systemd its state"),
            ("without-a-restart", "0", "after the end of nsbox-spawn the three start anew, without systemd"),
            ("after-its-end", "works", "after the end of nsboxd"), ("restarts", "1", "systemd starts it again"),
            ("reload", "active", "systemctl reload"), ("bad-reload", "active", "one that is refused ends nothing"),
            ("stopped", "inactive", "systemctl stop"), ("left", "", "leaves no process"),
            ("by-the-socket", "works", "who comes to the socket"), ("started", "active", "starts it")):
        t.equal(said.get(name), want, "systemd: " + what)
    t.ok("cause=exit" in said.get("drained", ""), "systemd: what runs may end before it stops", text)
    t.ok(said.get("has-groups", "0") != "0" and said.get("groups") == "0", "systemd: its control group goes with it", text)


def test_apparmor(t):
    """Debian 12's AppArmor does not know `userns`: no profile. Where it does there is one, and it goes again."""
    link = MACHINE.root + "/etc/apparmor.d/nsbox"
    t.ok(not os.path.lexists(link), "no profile where AppArmor could not read it")
    os.makedirs(MACHINE.root + "/etc/apparmor.d/abi")
    with open(MACHINE.root + "/etc/apparmor.d/abi/4.0", "w", encoding="ascii"):
        pass
    status, said = install("nsbox")
    t.ok(status == 0 and os.readlink(link) == "/usr/share/nsbox/apparmor/nsbox", "a profile where it can, after an upgrade", said)
    with open(MACHINE.root + "/usr/share/nsbox/apparmor/nsbox", encoding="utf-8") as f:
        profile = f.read()
    t.equal(re.findall(r"^profile \S+ (\S+)", profile, re.M), ["/usr/bin/nsbox", "/usr/sbin/nsboxd", "/usr/lib/nsbox/nsbox-*"],
            "for the programs where they are")
    t.equal(profile.count("\n  userns,\n"), 3, "which may make user namespaces")
    os.unlink(MACHINE.root + "/etc/apparmor.d/abi/4.0")
    os.rmdir(MACHINE.root + "/etc/apparmor.d/abi")


def test_remove(t):
    status, said = MACHINE.run(["dpkg", "--remove", "nsbox", "nsbox-maxkb", "libnsbox0", "python3-nsbox"])
    t.ok(status == 0, "dpkg --remove", said)
    t.ok(not os.path.lexists(MACHINE.root + "/etc/apparmor.d/nsbox"), "takes the profile")
    os.rmdir(MACHINE.root + "/etc/apparmor.d")
    t.ok(os.path.exists(MACHINE.root + "/etc/nsbox/nsboxd.json") and os.listdir(MACHINE.root + "/var/lib/nsbox"),
         "and leaves configuration and state")
    status, said = MACHINE.run(["dpkg", "--purge", "nsbox", "nsbox-maxkb", "libnsbox0", "python3-nsbox"])
    t.ok(status == 0, "dpkg --purge", said)
    after = debian.contents(MACHINE.root)
    changed = {path: (BEFORE.get(path), after.get(path)) for path in BEFORE.keys() | after.keys()
               if BEFORE.get(path) != after.get(path)}
    t.equal(changed, {}, "the root is what it was: files, directories, users")


if __name__ == "__main__":
    WHY = container.available()
    if WHY:
        tap.skip_all(WHY)
    sys.exit(tap.run([test_build, test_contents, test_install, test_tool, test_service, test_systemd, test_apparmor, test_remove]))
