# SPDX-License-Identifier: Apache-2.0
"""`nsbox run` for tests: one call, and everything that came back."""

import json
import os
import subprocess
import tempfile

from . import paths, tap

MINIMAL = {"manifestVersion": 1, "name": "test"}


class Run:
    """status, out and err of the process, report (a dict, or None where there is none)."""

    def __init__(self, status, out, err, report):
        self.status, self.out, self.err, self.report = status, out, err, report

    def __repr__(self):
        return "status %r out %r err %r report %r" % (self.status, self.out, self.err, self.report)


def command(*argv, options=()):
    return [paths.NSBOX, "run", *options, "--", *argv]


def run(*argv, options=(), manifest=None, stdin=b"", env=None, pass_fds=(), timeout=None):
    with tempfile.TemporaryDirectory(prefix="nsbox-run-") as place:
        report = os.path.join(place, "report")
        options = ["--result", report, "--no-tty", *options]
        if manifest is not None:
            path = os.path.join(place, "manifest.json")
            with open(path, "w", encoding="utf-8") as f:
                json.dump({**MINIMAL, **manifest}, f)
            options += ["--manifest", path]
        done = subprocess.run(command(*argv, options=options), input=stdin, capture_output=True,
                              env=env, pass_fds=pass_fds, timeout=timeout or 120 * tap.slow(), check=False)
        try:
            with open(report, encoding="utf-8") as f:
                parsed = json.load(f)
        except FileNotFoundError:
            parsed = None
        return Run(done.returncode, done.stdout.decode("utf-8", "replace"),
                   done.stderr.decode("utf-8", "replace"), parsed)
