# SPDX-License-Identifier: Apache-2.0
"""Test Anything Protocol, as prove(1) reads it."""

import os
import sys
import time
import traceback


def must_work():
    """NSBOX_MUST_WORK=1 (CI): what cannot be tried here is a failure, never a skip."""
    return os.environ.get("NSBOX_MUST_WORK", "") not in ("", "0")


def slow():
    """How many times slower than a processor this machine is: NSBOX_SLOW, for emulated ones."""
    return max(1, int(os.environ.get("NSBOX_SLOW") or 1))


class Tap:
    def __init__(self):
        self.count = 0
        self.failed = 0
        self.heading = ""  # of the names of tests

    def line(self, text):
        # A test's name may hold any text of a case file; the terminal's encoding is no reason to die.
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
        sys.stdout.flush()

    def note(self, text):
        for part in str(text).splitlines() or [""]:
            self.line("# " + part)

    def ok(self, good, name, why=""):
        self.count += 1
        if not good:
            self.failed += 1
        self.line("%s %d - %s" % ("ok" if good else "not ok", self.count, (self.heading + name).replace("#", "\\#")))
        if why and not good:
            self.note(why)
        return good

    def equal(self, got, want, name):
        return self.ok(got == want, name, "got  %r\nwant %r" % (got, want))

    def done(self):
        self.line("1..%d" % self.count)
        return 1 if self.failed or not self.count else 0


def skip_all(why):
    """The whole file cannot run here. A failure where everything has to work."""
    tap = Tap()
    if must_work():
        tap.ok(False, why)
        sys.exit(tap.done())
    tap.line("1..0 # SKIP " + why)
    sys.exit(0)


def run(tests):
    """Run functions that take a Tap, in order; an exception is a failure of that function's name. NSBOX_ONLY: these alone.
    They may be made one by one: each is run before the next is asked for."""
    tap = Tap()
    only = {name for name in os.environ.get("NSBOX_ONLY", "").split(",") if name}
    missing = set(only)
    for test in tests:
        if only and test.__name__ not in only:
            continue
        missing.discard(test.__name__)
        began = time.monotonic()
        try:
            test(tap)
        except Exception:
            tap.ok(False, test.__name__, traceback.format_exc())
        tap.note("%s: %.1f s" % (test.__name__, time.monotonic() - began))
    if missing:
        tap.ok(False, "there is a test %s" % ", ".join(sorted(missing)))
    return tap.done()


def wait_until(check, seconds, step=0.05):
    """The first true value of check() within so many seconds, else its last value."""
    end = time.monotonic() + seconds
    while True:
        value = check()
        if value or time.monotonic() > end:
            return value
        time.sleep(step)
