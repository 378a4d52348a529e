#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What each program is linked with: the privileged one has no parser of what others write."""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import paths, tap

PARSERS = {
    "JSON": r"libjson|libjansson|libyajl|libcjson",
    "SQL": r"libsqlite|libpq|libmariadb",
    "HTTP": r"libmicrohttpd|libcurl|libnghttp|libevent",
    "archives": r"libarchive|libzip|libz\.|liblzma|libbz2|libzstd",
    "TLS and hashing": r"libcrypto|libssl|libgnutls",
    "filter compiler": r"libseccomp",
}


def libraries(program):
    done = subprocess.run(["ldd", os.path.join(os.path.dirname(paths.NSBOXD), program)],
                          capture_output=True, text=True, check=True)
    return re.findall(r"^\s*(lib\S+)", done.stdout, re.M)


def linked(program, what):
    return [name for name in libraries(program) if re.match(PARSERS[what], name)]


def test_spawn(t):
    found = libraries("nsbox-spawn")
    t.ok("libc.so.6" in found, "ldd reads nsbox-spawn", str(found))
    for what in PARSERS:
        t.equal(linked("nsbox-spawn", what), [], "nsbox-spawn has nothing for %s" % what)


def test_twins(t):
    """The same patterns do find what the other programs are linked with."""
    t.ok(linked("nsboxd", "JSON") and linked("nsboxd", "HTTP") and linked("nsboxd", "SQL"), "nsboxd has JSON, HTTP and SQL")
    t.ok(linked("nsbox-compile", "JSON") and linked("nsbox-compile", "filter compiler"),
         "nsbox-compile has JSON and the filter compiler")
    t.ok(linked("nsbox-unpack", "archives"), "nsbox-unpack has archives")
    t.ok(linked("nsbox-pack", "archives"), "nsbox-pack has them, too")
    t.ok(linked("nsbox-import", "archives") and linked("nsbox-import", "JSON"), "nsbox-import has archives and JSON")


def test_front(t):
    t.equal(linked("nsboxd", "archives"), [], "nsboxd has nothing for archives")
    t.equal(linked("nsbox-compile", "HTTP"), [], "nsbox-compile has nothing for HTTP")
    t.equal(linked("nsbox", "archives"), [], "nor has nsbox, which starts without their libraries")
    t.equal(linked("nsbox", "SQL"), [], "nsbox has nothing for SQL")
    t.equal(linked("nsbox-unpack", "JSON"), [], "nsbox-unpack has nothing for JSON")


if __name__ == "__main__":
    sys.exit(tap.run([test_spawn, test_twins, test_front]))
