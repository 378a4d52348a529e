#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write out/report.txt about a text: counts from a subprocess, and its most frequent words."""

import collections
import pathlib
import re
import subprocess
import sys

SKILL = pathlib.Path(__file__).resolve().parent.parent


def main():
    source = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else SKILL / "data" / "sample.txt"
    counts = subprocess.run([SKILL / "scripts" / "summary.sh", source],
                            capture_output=True, text=True, check=True).stdout
    words = re.findall(r"[a-z']+", source.read_text(encoding="utf-8").lower())
    common = collections.Counter(w for w in words if len(w) > 3).most_common(5)

    out = pathlib.Path("out")
    out.mkdir(exist_ok=True)
    with open(out / "report.txt", "w", encoding="utf-8") as report:
        report.write("Report on %s\n\n%s\nMost frequent words:\n" % (source.name, counts))
        for word, count in common:
            report.write("  %-10s %d\n" % (word, count))
    print("wrote out/report.txt")


if __name__ == "__main__":
    main()
