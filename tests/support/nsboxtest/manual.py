# SPDX-License-Identifier: Apache-2.0
"""The examples of skill.json(5), each with what the page's source says of it."""

import json
import re

from nsboxtest import paths

PAGE = paths.ROOT + "/docs/skill.json.5"
BLOCK = re.compile(r'(?:^\.\\" example: (?P<what>[^\n]*)\n)?^\.Bd -literal -offset indent\n(?P<text>\{\n.*?)^\.Ed', re.M | re.S)


def examples():
    """(what, text) of each; what is "runs" or "refused POINTER"."""
    with open(PAGE, encoding="utf-8") as f:
        found = [(m["what"], m["text"]) for m in BLOCK.finditer(f.read())]
    assert len(found) >= 5, "examples of %s were not found" % PAGE
    for what, text in found:
        assert what, "an example without a line that says what comes of it:\n" + text
        json.loads(text)
    return found
