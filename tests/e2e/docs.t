#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The commands of the README and the tutorial, run as they stand there, and what they print."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import paths, service, tap

ENV = dict(os.environ, PATH=os.path.dirname(paths.NSBOX) + ":" + os.environ["PATH"], LC_ALL="C.UTF-8")


def document(name):
    with open(os.path.join(paths.ROOT, name), encoding="utf-8") as f:
        return f.read()


def shell(commands, place):
    return subprocess.run(["bash", "-ec", commands], cwd=place, env=ENV, text=True, timeout=300, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def test_tutorial(t):
    """Each block of commands in its turn; the block of text that follows holds lines it prints."""
    place = os.path.join(DIR, "tutorial")
    os.mkdir(place)
    blocks = re.findall(r"^```(sh|text)\n(.*?)^```$", document("docs/tutorial.md"), re.S | re.M)
    t.ok(len(blocks) > 8, "the tutorial has commands")
    printed = ""
    for kind, text in blocks:
        if kind == "sh":
            done = shell(text, place)
            printed = done.stdout
            t.ok(done.returncode == 0, "tutorial: " + text.splitlines()[0], printed)
        else:
            missing = [line for line in text.splitlines() if line.strip() not in printed]
            t.ok(not missing, "prints what it says", "%s\nnot in\n%s" % (missing, printed))


def prepare(place):
    """What the README takes for granted: a script, a table and a tool of the reader's."""
    os.makedirs(os.path.join(place, "docs"))
    shutil.copytree(os.path.join(paths.ROOT, "docs", "examples"), os.path.join(place, "docs", "examples"))
    for name, text in (("job.sh", "mkdir -p out && wc -l <data.csv >out/lines\n"), ("data.csv", "a,1\nb,2\n"),
                       ("tool.py", "def tool(a):\n    return a + 1\n")):
        with open(os.path.join(place, name), "w", encoding="utf-8") as f:
            f.write(text)


def commands_of(readme):
    """The indented commands about running things, comments and continuations resolved."""
    text = document(readme)
    part = text[text.index("nsbox run -- python3"):].split("\n\n#")[0]
    lines = re.sub(r"\\\n\s*", "", "    " + part)
    return [re.sub(r"\s{2,}#.*", "", line).strip() for line in re.findall(r"^    (.*)$", lines, re.M)]


def test_readme(t):
    place = os.path.join(DIR, "readme")
    prepare(place)
    commands = commands_of("README.md")
    t.ok(len(commands) >= 7, "the README has commands", str(commands))
    t.equal(commands_of("README.zh-CN.md"), commands, "and they are the same in Chinese")
    with service.Daemon() as daemon:
        for command in commands:
            if command.startswith("nsboxd "):
                continue  # it is there, on a socket of its own
            command = command.replace("/run/nsbox/nsbox.sock", daemon.socket)
            done = shell(command, place)
            t.ok(done.returncode == 0, "README: " + command, done.stdout)
            if "curl" in command:
                t.ok('"data":2' in done.stdout.replace(" ", ""), "the service answers", done.stdout)
        code = re.findall(r"^```python\n(.*?)^```$", document("README.md"), re.S | re.M)
        t.equal(re.findall(r"^```python\n(.*?)^```$", document("README.zh-CN.md"), re.S | re.M), code, "as is the Python")
        done = subprocess.run([sys.executable, "-"], input="\n".join(code), cwd=place, text=True, check=False,
                              capture_output=True, timeout=300,
                              env=dict(ENV, NSBOX_SOCKET=daemon.socket,
                                       PYTHONPATH=os.path.join(paths.ROOT, "nsbox", "python")))
        t.equal(done.stdout.split(), ["3", "2", "a,1", "b,2"], "which works")
        t.equal(done.stderr, "", "and says nothing else")
    with open(os.path.join(place, "results", "out", "lines"), encoding="utf-8") as f:
        t.equal(f.read().strip(), "2", "and the outputs are there")


if __name__ == "__main__":
    DIR = tempfile.mkdtemp()
    os.chmod(DIR, 0o755)
    try:
        sys.exit(tap.run([test_tutorial, test_readme]))
    finally:
        shutil.rmtree(DIR)
