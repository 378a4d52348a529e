# SPDX-License-Identifier: Apache-2.0
"""The drop-in for MaxKB under test: installed as an operator would, in a process that stands for
MaxKB (tests/support/maxkb/driver.py), with stand-ins for MaxKB's modules."""

import compileall
import json
import os
import shutil
import subprocess
import sys

from . import paths

# As it is installed: with nsbox's client in it, to which the source has a link.
PACKAGE = shutil.copytree(os.path.join(paths.ROOT, "maxkb"), os.path.join(paths.scratch("nsbox-dropin-"), "maxkb"),
                          ignore=shutil.ignore_patterns("__pycache__"))
STANDINS = os.path.join(paths.ROOT, "tests", "support", "maxkb")


def install(place, package=PACKAGE):
    """A site directory that holds the .pth file alone."""
    os.makedirs(place, exist_ok=True)
    with open(os.path.join(PACKAGE, "nsbox_maxkb.pth.in"), encoding="utf-8") as f:
        text = f.read().replace("@DIR@", package)
    with open(os.path.join(place, "nsbox_maxkb.pth"), "w", encoding="utf-8") as f:
        f.write(text)
    return place


def sourceless(source, place):
    """A copy of Python packages that holds compiled modules alone, as MaxKB's images do."""
    shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(place, quiet=2, legacy=True)
    for where, _, names in os.walk(place):
        for name in names:
            if name.endswith(".py"):
                os.unlink(os.path.join(where, name))
    return place


class MaxKB:
    """A process with the stand-ins; variables are given without MAXKB_."""

    def __init__(self, site, apps=os.path.join(STANDINS, "apps"), python=sys.executable, start=None,
                 **variables):
        """start(argv, env, **how): something else than a Popen on this machine."""
        variables = {"MAXKB_" + key: str(value) for key, value in variables.items()}
        argv = [python, os.path.join(STANDINS, "driver.py"), site, apps]
        how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
               "encoding": "utf-8"}
        if start:
            self.process = start(argv, variables, **how)
        else:
            env = {key: value for key, value in os.environ.items() if not key.startswith("MAXKB_")}
            self.process = subprocess.Popen(argv, env=dict(env, **variables), **how)

    def tell(self, order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the process ended: " + self.process.stderr.read())
        return json.loads(line)

    def call(self, code, keywords="{}", **more):
        return self.tell(dict(more, call=code, keywords=keywords))

    def end(self):
        """What it wrote to standard error."""
        return self.process.communicate()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.communicate()
