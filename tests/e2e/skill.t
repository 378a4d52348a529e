#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""nsbox skill: what check finds, each beside a twin in which it does not; --fix, init, test, run.

Programs and libraries are made here with the C compiler; one for another machine is a header made
by hand. No file of a skill is ever run by check: a program that would leave a mark proves it.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import paths, tap

DOC = "---\nname: tool\ndescription: a tool\nlicense: MIT\n---\n"
SH = "#!/bin/sh\necho hello\n"
EXAMPLE = os.path.join(paths.ROOT, "docs", "examples", "report-skill")
work = paths.scratch("nsbox-skill-")
# The libraries and loaders meant here are those of the host's own architecture.
MACHINE, FOREIGN = (62, 183) if os.uname().machine == "x86_64" else (183, 62)
HERE, THERE = ("linux/amd64", "linux/arm64") if MACHINE == 62 else ("linux/arm64", "linux/amd64")


class Skill:
    """A directory: path -> text, bytes, (text or bytes, mode) or {"symlink": target}."""

    def __init__(self, files=None, manifest=None, doc=DOC):
        self.dir = tempfile.mkdtemp(prefix="s-", dir=work)
        if doc is not None:
            self.add("SKILL.md", doc)
        if manifest is not None:
            self.add("skill.json", json.dumps({"manifestVersion": 1, "name": "tool", **manifest})
                     if isinstance(manifest, dict) else manifest)
        for path, what in (files or {}).items():
            self.add(path, what)

    def path(self, name):
        return os.path.join(self.dir, name)

    def add(self, name, what):
        full = os.path.join(os.fsencode(self.dir), os.fsencode(name))
        os.makedirs(os.path.dirname(full), exist_ok=True)
        if isinstance(what, dict):
            os.symlink(what["symlink"], full)
            return
        data, mode = what if isinstance(what, tuple) else (what, 0o644)
        with open(full, "wb") as f:
            f.write(data if isinstance(data, bytes) else data.encode())
        os.chmod(full, mode)

    def mode(self, name):
        return os.stat(self.path(name)).st_mode & 0o777

    def nsbox(self, command, *options):
        return nsbox("skill", command, self.dir, *options)

    def check(self, *options):
        done = self.nsbox("check", "--json", *options)
        return done.returncode, json.loads(done.stdout)

    def found(self, *options):
        """{(id, path)}, errors alone marked by '!'."""
        _, report = self.check(*options)
        return {("!" if f["severity"] == "error" else "") + f["id"] + " " + f["path"]
                for f in report["findings"] if not f["fixed"]}


def nsbox(*argv, **more):
    return subprocess.run([paths.NSBOX, *argv], capture_output=True, text=True, timeout=120, check=False,
                          stdin=subprocess.DEVNULL, **more)


def gcc(target, code, *options):
    source = os.path.join(work, "source.c")
    with open(source, "w", encoding="utf-8") as f:
        f.write(code)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    subprocess.run(["gcc", "-o", target, source, *options], check=True)


def header(machine=FOREIGN, elf_class=2, kind=2):
    """An ELF program without segments; 32-bit ones have a shorter header."""
    if elf_class == 1:
        return struct.pack("<16sHHIIIIIHHHHHH", b"\x7fELF\1\1\1", kind, machine, 1, 0, 0, 0, 0, 52, 32, 0, 0, 0, 0)
    return struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", kind, machine, 1, 0, 0, 0, 0, 64, 56, 0, 0, 0, 0)


# ---------------------------------------------------------------- the files and the documents

ENTRY = {"entrypoints": {"main": {"command": ["run.sh"]}}}


def entry(*command, **more):
    return {"entrypoints": {"main": {"command": list(command), **more}}}


ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
# What a run is refused for although it can be read.

# name, files, manifest, SKILL.md, what is found
ROWS = [
    ("nothing in a skill that is in order", {"run.sh": (SH, 0o755)}, entry("./run.sh"), DOC, set()),
    ("no SKILL.md", {}, {}, None, {"noSkillMd "}),
    ("no manifest is no finding", {"run.sh": (SH, 0o755)}, None, DOC, set()),
    ("a manifest with an unknown key", {}, {"nmae": "x"}, DOC, {"!manifest skill.json"}),
    ("a manifest that is not JSON", {}, "{", DOC, {"!manifest skill.json"}),
    ("front matter that cannot be read", {}, {}, "---\nname: [\n---\n", {"skillMd SKILL.md"}),
    ("another name in SKILL.md", {}, {}, DOC.replace("name: tool", "name: other"),
     {"!disagreement SKILL.md"}),
    ("another license in SKILL.md", {}, {"license": "Apache-2.0"}, DOC, {"!disagreement SKILL.md"}),
    ("the same license", {}, {"license": "MIT"}, DOC, set()),
    ("metadata.sandbox without a skill.json", {}, None,
     DOC.replace("---\n", "---\nmetadata:\n  sandbox: skill.json\n", 1), {"!manifestName SKILL.md"}),
    ("metadata.sandbox with one", {}, {}, DOC.replace("---\n", "---\nmetadata:\n  sandbox: skill.json\n", 1),
     set()),
    ("another machine in platforms", {}, {"platforms": [THERE]}, DOC, {"!platform skill.json"}),
    ("this machine in platforms", {}, {"platforms": [THERE, HERE]}, DOC, set()),
    ("a platform that is not known", {}, {"platforms": [HERE, "plan9/vax"]}, DOC, {"platformName skill.json"}),
    # entry points
    ("an entry point that is not there", {}, entry("scripts/run.sh"), DOC, {"!entryMissing skill.json"}),
    ("a script of an entry point that is not there", {}, entry("python3", "run.py"), DOC,
     {"!entryMissing skill.json"}),
    ("a script of an entry point", {"run.py": ""}, entry("python3", "-u", "run.py", "nofile"), DOC, set()),
    ("code instead of a script", {}, entry("python3", "-c", "print(1)"), DOC, set()),
    ("a program that the image lacks", {}, entry("no-such-program"), DOC, {"!entryMissing skill.json"}),
    ("a path that the image lacks", {}, entry("/usr/bin/no-such-program"), DOC, {"!entryMissing skill.json"}),
    ("a path of the image", {}, entry("/bin/sh", "-c", "true"), DOC, set()),
    ("an entry point above the skill", {}, entry("../run.sh"), DOC, {"!entryOutside skill.json"}),
    ("an entry point back in the skill", {"run.sh": (SH, 0o755), "d/x": ""}, entry("d/../run.sh"), DOC, set()),
    ("an entry point without the execute bit", {"run.sh": SH}, entry("./run.sh"), DOC,
     {"!entryNotExecutable run.sh"}),
    ("an entry point that is made executable", {"run.sh": SH},
     {**entry("./run.sh"), "files": {"executable": ["run.sh"]}}, DOC, set()),
    ("one that a pattern makes executable", {"bin/run.sh": SH},
     {**entry("./bin/run.sh"), "files": {"executable": ["bin/*.sh"]}}, DOC, set()),
    ("one that a pattern passes over", {"bin/run.sh": SH, "bin/x.py": ""},
     {**entry("./bin/run.sh"), "files": {"executable": ["bin/*.py"]}}, DOC, {"!entryNotExecutable bin/run.sh"}),
    ("a pattern that matches nothing", {}, {"files": {"executable": ["bin/**"]}}, DOC, {"!executableMissing skill.json"}),
    ("files.executable of a file that is not there", {}, {"files": {"executable": ["run.sh"]}}, DOC,
     {"!executableMissing skill.json"}),
    ("a test of an entry point that is not there", {"run.sh": (SH, 0o755)},
     {**entry("./run.sh"), "tests": [{"entrypoint": "other", "expect": {}}]}, DOC, {"!testEntry skill.json"}),
    ("a test of one that is", {"run.sh": (SH, 0o755)},
     {**entry("./run.sh"), "tests": [{"entrypoint": "main", "expect": {}}]}, DOC, set()),
    ("a file that is not the one in files.digests", {"data": "abd"}, {"files": {"digests": {"data": ABC}}}, DOC,
     {"!digest data"}),
    ("one that is", {"data": "abc"}, {"files": {"digests": {"data": ABC}}}, DOC, set()),
    ("one that is not there", {}, {"files": {"digests": {"d/data": ABC}}}, DOC, {"!digest d/data"}),
    # files
    ("a link out of the skill", {"d/l": {"symlink": "../../etc"}}, {}, DOC, {"!linkOutside d/l"}),
    ("an absolute link", {"l": {"symlink": "/etc/passwd"}}, {}, DOC, {"!linkOutside l"}),
    ("a link within", {"d/l": {"symlink": "../e/f"}, "e/f": ""}, {}, DOC, set()),
    ("a name with an escape sequence", {"a\x1b[31mb": ""}, {}, DOC, {"name a\\x1b[31mb"}),
    ("a name that is not UTF-8", {b"a\xff": ""}, {}, DOC, {"name a\\xff"}),
    ("a name in another script", {"\u62a5\u544a.txt": ""}, {}, DOC, set()),
    # scripts
    ("a script without the execute bit", {"bin/x": SH}, {}, DOC, {"lostExecBit bin/x"}),
    ("a script with it", {"bin/x": (SH, 0o755)}, {}, DOC, set()),
    ("text without a first line for the kernel", {"x": "# no\n#!/bin/sh\n"}, {}, DOC, set()),
    ("a carriage return behind the interpreter", {"x": ("#!/bin/sh\r\ntrue\r\n", 0o755)}, {}, DOC, {"!crlf x"}),
    ("a carriage return elsewhere", {"x": ("#!/bin/sh\ntrue\r\n", 0o755)}, {}, DOC, set()),
    ("the same in a file that is not executable", {"x.py": "#!/usr/bin/python3\r\n"}, {}, DOC,
     {"crlf x.py", "lostExecBit x.py"}),
    ("an interpreter that the image lacks", {"x": ("#!/usr/bin/nosuch -x\n", 0o755)}, {}, DOC,
     {"!missingInterpreter x"}),
    ("an interpreter that env does not find", {"x": ("#!/usr/bin/env -S A=1 nosuch\n", 0o755)}, {}, DOC,
     {"!missingInterpreter x"}),
    ("an interpreter that env finds", {"x": ("#!/usr/bin/env -S A=1 python3 -u\n", 0o755)}, {}, DOC, set()),
    # programs
    ("a program for another machine", {"x": (header(), 0o755)}, {}, DOC, {"!wrongArchitecture x"}),
    ("one that platforms names, beside this machine", {"x": (header(), 0o755)}, {"platforms": [HERE, THERE]},
     DOC, set()),
    ("one that platforms does not name", {"x": (header(), 0o755)}, {"platforms": [HERE]}, DOC,
     {"!wrongArchitecture x"}),
    ("one that is an entry point", {"x": (header(), 0o755)},
     {"platforms": [HERE, THERE], **entry("./x")}, DOC, {"!wrongArchitecture x"}),
    ("a 32-bit program", {"x": (header(machine=3, elf_class=1), 0o755)}, {}, DOC, {"!wrongArchitecture x"}),
    ("a program for this machine", {"x": (header(MACHINE), 0o755)}, {}, DOC, set()),
    ("a program without the execute bit", {"x": header(MACHINE)}, {}, DOC, {"lostExecBit x"}),
    ("an object file needs none", {"x.o": header(MACHINE, kind=1)}, {}, DOC, set()),
    ("a file that only begins like a program", {"x": b"\x7fELF\x09" + bytes(60)}, {}, DOC, {"elf x"}),
]


def test_rows(t):
    for name, files, manifest, doc, want in ROWS:
        skill = Skill(files, manifest, doc)
        status, report = skill.check()
        got = {("!" if f["severity"] == "error" else "") + f["id"] + " " + f["path"] for f in report["findings"]}
        t.equal((got, status), (want, 1 if any(f.startswith("!") for f in want) else 0), name)


def test_special_files(t):
    skill = Skill()
    os.mkfifo(skill.path("fifo"))
    t.equal(skill.found(), {"!specialFile fifo"}, "a FIFO, and check does not wait for its writer")
    deep = Skill({"/".join(["d"] * 60) + "/f": ""})
    t.equal(deep.found(), set(), "60 levels")
    deep.add("/".join(["d"] * 70) + "/f", "")
    t.equal({f.split()[0] for f in deep.found()}, {"!tooLarge"}, "70 levels")
    big = Skill()
    with open(big.path("big"), "wb") as f:
        f.truncate(257 << 20)
    t.equal(big.found(), {"!tooLarge "}, "257 MiB")
    os.truncate(big.path("big"), 1 << 20)
    t.equal(big.found(), set(), "1 MiB")


def test_loops_and_traps(t):
    skill = Skill({"a": {"symlink": "b"}, "b": {"symlink": "a"}, "d/x": {"symlink": "../d"}},
                  entry("./a"))
    t.equal(skill.found(), {"!entryMissing skill.json"}, "links in a circle end")
    skill = Skill(manifest=None)
    os.symlink("/etc/passwd", skill.path("skill.json"))
    t.equal(skill.found(), {"!manifest skill.json", "!linkOutside skill.json"}, "a manifest that is a link")
    done = nsbox("skill", "check", Skill({"a\x1b]0;x\x07": ""}).dir)
    t.ok("\x1b" not in done.stdout and "\x07" not in done.stdout and "a\\x1b]0;x\\x07" in done.stdout,
         "no control character reaches the terminal", repr(done.stdout))


# ---------------------------------------------------------------- libraries

LIB = "int answer(void) { return 3; }"
MAIN = "int answer(void); int main(void) { return answer(); }"


def library(path, name="libanswer.so.1", code=LIB, *options):
    gcc(path, code, "-shared", "-fPIC", "-Wl,-soname," + name, *options)


def with_library(place, *options, keep=True):
    """A skill with bin/tool, linked against the library at `place`."""
    skill = Skill()
    library(skill.path(place))
    gcc(skill.path("bin/tool"), MAIN, skill.path(place), *options)
    if not keep:
        os.unlink(skill.path(place))
    return skill


def test_libraries(t):
    lib = "lib/libanswer.so.1"
    rpath = "-Wl,-rpath,$ORIGIN/../lib"
    t.equal(with_library(lib, rpath).found(), set(), "a library at the run path")
    t.equal(with_library(lib, rpath, "-Wl,--disable-new-dtags").found(), set(), "the same by DT_RPATH")
    t.equal(with_library(lib, "-Wl,-rpath,${ORIGIN}/../lib").found(), set(), "the same by ${ORIGIN}")
    t.equal(with_library(lib, rpath, keep=False).found(), {"!missingLibrary bin/tool"}, "the library is gone")
    t.equal(with_library(lib).found(), {"libraryPlace bin/tool"}, "no run path")
    skill = with_library(lib)
    skill.add("skill.json", json.dumps({"manifestVersion": 1, "name": "tool",
                                        "env": {"set": {"LD_LIBRARY_PATH": "/skills/tool/lib"}}}))
    t.equal(skill.found(), set(), "LD_LIBRARY_PATH of the manifest")
    skill = with_library(lib, rpath)
    with open(skill.path(lib), "r+b") as f:
        f.seek(18)
        f.write(struct.pack("<H", FOREIGN))
    t.equal(skill.found(), {"libraryPlace bin/tool", "!wrongArchitecture lib/libanswer.so.1"},
            "a library for another machine is passed over")


def chained(dtags):
    """bin/tool -> lib/liba -> lib/libb, and only the tool has a run path."""
    skill = Skill()
    library(skill.path("lib/libb.so"), "libb.so", LIB)
    library(skill.path("lib/liba.so"), "liba.so", "int answer(void); int more(void) { return answer(); }",
            skill.path("lib/libb.so"))
    gcc(skill.path("bin/tool"), "int more(void); int main(void) { return more(); }", skill.path("lib/liba.so"),
        "-Wl,-rpath-link," + skill.path("lib"), "-Wl,-rpath,$ORIGIN/../lib", "-Wl," + dtags)
    return skill


def runs(skill):
    return nsbox("run", "--skill", skill.dir, "--", "bin/tool").returncode


def test_inherited_paths(t):
    """As the loader has it: DT_RPATH is inherited, DT_RUNPATH is not; a run agrees both times."""
    skill = chained("--disable-new-dtags")
    t.equal((skill.found(), runs(skill)), (set(), 3), "DT_RPATH counts for libraries of libraries")
    skill = chained("--enable-new-dtags")
    t.equal((skill.found(), runs(skill)), ({"libraryPlace lib/liba.so"}, 127), "DT_RUNPATH does not")


def test_plugins(t):
    skill = Skill()
    library(skill.path("lib/libb.so"), "libb.so", LIB)
    library(skill.path("mod.so"), "mod.so", "int answer(void); int more(void) { return answer(); }",
            skill.path("lib/libb.so"))
    os.unlink(skill.path("lib/libb.so"))
    t.equal(skill.found(), {"missingLibrary mod.so"}, "what no program loads may be meant so: a warning")


def test_versions(t):
    """A newer libc's symbol: the version's name in the program's string table is made another."""
    skill = Skill()
    gcc(skill.path("tool"), "#include <stdio.h>\nint main(void) { return puts(\"x\") < 0; }")
    t.equal(skill.found(), set(), "a program of this libc")
    with open(skill.path("tool"), "rb") as f:
        data = f.read()
    newer = data.replace(b"\0GLIBC_2.34\0", b"\0GLIBC_9.99\0")
    t.ok(newer != data, "the program wants GLIBC_2.34")
    skill.add("tool", (newer, 0o755))
    t.equal(skill.found(), {"!libraryVersion tool"}, "a program of a newer libc")
    done = nsbox("run", "--skill", skill.dir, "--", "./tool")
    t.ok(done.returncode == 1 and "GLIBC_9.99" in done.stderr, "and a run fails for it", repr(done))


def test_loader(t):
    skill = Skill()
    gcc(skill.path("tool"), "int main(void) { return 0; }", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1")
    if os.path.exists("/lib/ld-musl-x86_64.so.1"):
        t.ok(True, "this machine has musl's loader")
        return
    t.equal(skill.found(), {"!missingLoader tool"}, "a program for musl")
    done = nsbox("run", "--skill", skill.dir, "--", "./tool")
    finding = skill.check()[1]["findings"][0]["message"]
    t.ok(done.returncode == 127 and finding in done.stderr, "a run says it in the same words", done.stderr)


def test_same_words(t):
    """What stops a run is said by check in the run's words."""
    for name, what in (("crlf", ("#!/bin/sh\r\n", 0o755)), ("arch", (header(), 0o755)),
                       ("interpreter", ("#!/nosuch\n", 0o755)), ("mode", (SH, 0o644))):
        skill = Skill({"x": what}, entry("./x"))
        status, report = skill.check()
        done = nsbox("run", "--skill", skill.dir)
        words = [f["message"] for f in report["findings"]]
        t.ok(status == 1 and done.returncode in (126, 127) and any(w in done.stderr for w in words), name,
             "%r %r" % (words, done.stderr))


def test_nothing_is_run(t):
    mark = os.path.join(work, "mark")
    skill = Skill({"x": ("#!/bin/sh\ntouch %s\n" % mark, 0o755)}, entry("./x"))
    gcc(skill.path("y"), '#include <fcntl.h>\nint main(void) { return open("%s", O_CREAT, 0600); }' % mark)
    skill.check()
    t.ok(not os.path.exists(mark), "check runs nothing")
    subprocess.run([skill.path("y")], check=False)
    t.ok(os.path.exists(mark), "though it would leave a mark")
    os.unlink(mark)


# ---------------------------------------------------------------- --fix

def test_fix(t):
    skill = Skill({"bin/x": SH, "y": ("#!/bin/sh\r\necho '\r'\r\n", 0o640), "data": "a\r\n"}, entry("bin/x"))
    status, report = skill.check("--fix")
    t.equal((status, report["fixed"], report["errors"]), (0, 3, 0), "three are mended")
    t.equal((skill.mode("bin/x"), skill.mode("y")), (0o755, 0o750), "who may read may start")
    with open(skill.path("y"), "rb") as f:
        t.equal(f.read(), b"#!/bin/sh\necho '\r'\n", "only line ends are converted")
    with open(skill.path("data"), "rb") as f:
        t.equal(f.read(), b"a\r\n", "data is left alone")
    t.equal(skill.found(), set(), "then nothing is found")
    t.equal(sorted(os.listdir(skill.dir)), ["SKILL.md", "bin", "data", "skill.json", "y"], "no file is left over")


def test_fix_is_no_trap(t):
    """A second name of somebody's file: it is told and not changed."""
    outside = os.path.join(work, "outside")
    with open(outside, "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\r\n")
    os.chmod(outside, 0o600)
    skill = Skill()
    os.link(outside, skill.path("x"))
    t.equal(skill.found("--fix"), {"lostExecBit x", "crlf x"}, "both are found and not mended")
    with open(outside, "rb") as f:
        t.equal((f.read(), os.stat(outside).st_mode & 0o777), (b"#!/bin/sh\r\n", 0o600), "the file is as it was")
    os.unlink(outside)
    t.equal(skill.check("--fix")[1]["fixed"], 2, "with one name it is mended")


# ---------------------------------------------------------------- init, test, run

def test_init(t):
    skill = Skill({"scripts/run.sh": "#!/bin/sh\nmkdir -p out && echo \"$@\" >out/x && echo done\n"})
    done = skill.nsbox("init")
    t.equal(done.returncode, 0, "init")
    t.equal(skill.check()[0], 0, "what it writes is in order")
    out = tempfile.mkdtemp(dir=work)
    done = nsbox("run", "--skill", skill.dir, "--entry", "main", "--output", out, "--", "a", "b")
    t.equal((done.returncode, done.stdout), (0, "done\n"), "and runs")
    with open(os.path.join(out, "out", "x"), encoding="utf-8") as f:
        t.equal(f.read(), "a b\n", "with its output")
    with open(skill.path("skill.json"), encoding="utf-8") as f:
        before = f.read()
    done = skill.nsbox("init")
    t.ok(done.returncode == 125 and "--force" in done.stderr, "it does not overwrite", done.stderr)
    skill.add("skill.json", "{}")
    t.equal(skill.nsbox("init", "--force").returncode, 0, "but by --force")
    with open(skill.path("skill.json"), encoding="utf-8") as f:
        t.equal(f.read(), before, "with the same text")


def test_init_writes_here(t):
    outside = os.path.join(work, "victim")
    with open(outside, "w", encoding="utf-8") as f:
        f.write("kept")
    skill = Skill({"run.sh": SH})
    os.symlink(outside, skill.path("skill.json"))
    t.equal(skill.nsbox("init").returncode, 125, "a link in its place")
    t.equal(skill.nsbox("init", "--force").returncode, 0, "is replaced by --force")
    with open(outside, encoding="utf-8") as f:
        t.equal((f.read(), os.path.islink(skill.path("skill.json"))), ("kept", False), "and not followed")


SCRIPT = """#!/bin/sh
mkdir -p out; cat >out/copy; echo "args: $*"; echo problem >&2
exit ${1:-0}
"""
TESTS = [  # passes, the test
    (True, {"name": "nothing asked but success", "expect": {}}),
    (True, {"name": "all of it", "args": ["3", "x"], "stdin": "in", "expect": {
        "exit": 3, "stdoutMatches": "^args: 3 [a-z]$", "stderrMatches": "prob", "outputs": ["out/copy", "out/*"]}}),
    (False, {"name": "exit status", "expect": {"exit": 1}}),
    (False, {"name": "standard output", "expect": {"stdoutMatches": "^3"}}),
    (False, {"name": "standard error", "expect": {"stderrMatches": "^$."}}),
    (False, {"name": "an output", "expect": {"outputs": ["out/other"]}}),
    (False, {"name": "a pattern that takes all memory", "expect": {"stdoutMatches": "((((x{1,200}){1,200}){1,200}){1,200}){1,200}"}}),
    (False, {"name": "no pattern", "expect": {"stdoutMatches": "("}}),
    (False, {"name": "an entry point that is not there", "entrypoint": "other", "expect": {}}),
    (False, {"name": "a time limit", "entrypoint": "slow", "expect": {"exit": 137}}),
]


def suite(tests):
    manifest = {"entrypoints": {"main": {"command": ["./run.sh"]},
                                "slow": {"command": ["sleep", "30"], "timeout": "1s"}},
                "filesystem": {"skill": "overlay"}, "outputs": [{"glob": "out/**"}], "tests": tests}
    return Skill({"run.sh": (SCRIPT, 0o755)}, manifest)


def test_tests(t):
    done = suite([test for _, test in TESTS]).nsbox("test", "--json")
    report = json.loads(done.stdout)
    t.equal(done.returncode, 1, "some fail")
    for (good, test), row in zip(TESTS, report["tests"]):
        t.ok(row["ok"] == good and bool(row["reasons"]) != good, "%s: %s" % (test["name"], good), str(row))
    t.equal((report["passed"], report["failed"]), (2, len(TESTS) - 2), "they are counted")
    good = suite([test for good, test in TESTS if good])
    done = good.nsbox("test")
    t.ok(done.returncode == 0 and "2 of 2 tests passed" in done.stdout, "all pass", done.stdout)
    good.add("suite", "exec %s skill test --tap %s\n" % (paths.NSBOX, good.dir))
    done = subprocess.run(["prove", "--exec", "sh", good.path("suite")], text=True, capture_output=True, check=False)
    t.ok(done.returncode == 0 and "Tests=2" in done.stdout, "prove reads --tap", done.stdout + done.stderr)
    done = good.nsbox("test", "--entry", "slow")
    t.ok(done.returncode == 125 and "no tests" in done.stderr, "no test is no success", done.stderr)
    done = suite([{"name": "a\x1bb", "expect": {"stdoutMatches": "\x1b"}}]).nsbox("test")
    t.ok("\x1b" not in done.stdout and done.returncode == 1, "text of a test is shown escaped", repr(done.stdout))


def test_run(t):
    skill = Skill({"run.sh": ("#!/bin/sh\necho main \"$@\"\n", 0o755), "o.sh": ("#!/bin/sh\necho other\n", 0o755)},
                  {"entrypoints": {"main": {"command": ["./run.sh", "x"]}, "other": {"command": ["./o.sh"]}}})
    t.equal(skill.nsbox("run").stdout, "main x\n", "run")
    t.equal(skill.nsbox("run", "--", "-v").stdout, "main x -v\n", "with arguments")
    t.equal(skill.nsbox("run", "other").stdout, "other\n", "another entry point")
    t.equal(skill.nsbox("run", "third").returncode, 125, "one that is not there")


def test_note(t):
    """A library that is missing in a run shows in its report."""
    skill = with_library("lib/libanswer.so.1", keep=False)
    report = os.path.join(work, "report")
    done = nsbox("run", "--skill", skill.dir, "--result", report, "--", "bin/tool")
    with open(report, encoding="utf-8") as f:
        got = json.load(f)
    t.ok(done.returncode == 127 and any("libanswer.so.1" in n for n in got["notes"]), "the note names it", str(got))
    nsbox("run", "--result", report, "--", "sh", "-c", "exit 127")
    with open(report, encoding="utf-8") as f:
        t.equal(json.load(f)["notes"], [], "no note on another 127")
    nsbox("run", "--skill", Skill().dir, "--result", report, "--", "true")
    with open(report, encoding="utf-8") as f:
        t.equal(json.load(f)["manifest"], "default", "a skill without a manifest says so")


def test_example(t):
    done = nsbox("skill", "check", EXAMPLE)
    t.equal((done.returncode, done.stdout), (0, "nothing found\n"), "the example of the manual is in order")
    done = nsbox("skill", "test", EXAMPLE)
    t.ok(done.returncode == 0 and "3 of 3" in done.stdout, "and passes its tests", done.stdout)


def test_manual(t):
    """What check can find is in the manual, word for word."""
    with open(os.path.join(paths.ROOT, "docs", "nsbox.1"), encoding="utf-8") as f:
        manual = f.read()
    rows = [line.split() for line in nsbox("skill", "check", "--list").stdout.splitlines()]
    t.ok(len(rows) > 20, "the list")
    for name, severity, *text in rows:
        t.ok(".It Cm %s Pq %s\n%s.\n" % (name, severity, " ".join(text)[0].upper() + " ".join(text)[1:]) in manual,
             "%s is in nsbox.1" % name)


def test_usage(t):
    t.equal(nsbox("skill", "--help").returncode, 0, "skill --help")
    t.equal(nsbox("skill").returncode, 125, "no command")
    t.equal(nsbox("skill", "check").returncode, 125, "no directory")
    t.equal(nsbox("skill", "check", "/nosuch").returncode, 125, "a directory that is not there")
    t.equal(nsbox("skill", "check", work, "--image", "nosuch").returncode, 125, "an image that is not there")


if __name__ == "__main__":
    if not shutil.which("gcc"):
        tap.skip_all("there is no gcc")
    sys.exit(tap.run([test_rows, test_special_files, test_loops_and_traps, test_libraries, test_inherited_paths,
                      test_plugins, test_versions, test_loader, test_same_words, test_nothing_is_run, test_fix,
                      test_fix_is_no_trap, test_init, test_init_writes_here, test_tests, test_run, test_note,
                      test_example, test_manual, test_usage]))
