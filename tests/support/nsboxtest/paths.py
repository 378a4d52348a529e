# SPDX-License-Identifier: Apache-2.0
"""Where the product and the tests are: a build tree, or wherever NSBOX and NSBOXD say."""

import os
import shutil
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
VARIANT = os.environ.get("VARIANT", "release")
ASAN = VARIANT in ("asan", "sanitized")  # AddressSanitizer's runtime is in what is tested
BUILD = os.path.join(ROOT, "build", VARIANT)
NSBOX = os.environ.get("NSBOX", os.path.join(BUILD, "nsbox"))
NSBOXD = os.environ.get("NSBOXD", os.path.join(os.path.dirname(NSBOX), "nsboxd"))

# Where commands are looked for on the image "host": the host itself, without the caller's habits.
IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def scratch(prefix):
    """A private directory that is removed at exit; short, because socket paths must be."""
    import atexit

    path = tempfile.mkdtemp(prefix=prefix)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
