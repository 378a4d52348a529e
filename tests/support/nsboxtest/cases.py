# SPDX-License-Identifier: Apache-2.0
"""Case files: reading them, what they need, and judging an outcome by their `expect`.

One JSON file is one case: a run and what has to come back, in words of its own and not in those of
the product. drive.py turns a case into requests and the answers into an Outcome; this file says
whether that is what the case expects.
"""

import base64
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import time

from . import leftovers, paths

PYTHON_INSIDE = "/usr/bin/python3"
ZH_GLYPH = "4e2d"


def expand(value):
    """$repeat and $concat, anywhere."""
    if isinstance(value, list):
        return [expand(v) for v in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"$repeat"}:
        text, count = value["$repeat"]
        return expand(text) * count
    if set(value) == {"$concat"}:
        return "".join(expand(v) for v in value["$concat"])
    return {k: expand(v) for k, v in value.items()}


def load(path):
    with open(path, encoding="utf-8") as f:
        case = expand(json.load(f))
    name = os.path.basename(path)
    if case["id"] + ".json" != name:
        raise ValueError("%s: the id is %r" % (path, case["id"]))
    return case


def find(arguments):
    """Files named, and those in the directories named, in order."""
    found = []
    for place in arguments:
        if os.path.isdir(place):
            found += sorted(os.path.join(place, n) for n in os.listdir(place) if n.endswith(".json"))
        else:
            found.append(place)
    return found


def steps(case):
    """The runs of a case: itself, or its steps."""
    run = case["run"]
    return run["steps"] if "steps" in run else [case]


# ---------------------------------------------------------------- what a case needs

CASE_KEYS = {"id", "title", "kind", "why", "needs", "arch", "setup", "inside_only", "files", "package",
             "stdin", "run", "manifest", "repeat", "cancel_after_s", "expect"}
STEP_KEYS = {"run", "manifest", "stdin", "expect"}
MANIFEST_KEYS = {"network", "network_allow", "memory_mb", "timeout_s", "pids", "cpus", "max_output_bytes",
                 "allow_subprocess", "env", "tty", "read_only", "deny_read", "executables",
                 "extra_syscalls"}


# What the harness itself prepares for a case, by its id; see outside.Servers.
PREPARED = {"allow-list-one-host", "allow-list-wildcard-scope", "first-network-call-succeeds",
            "host-loopback-not-reachable"}
NETWORKS = {"none": "none", "allow-list": "allowlist", "public": "open"}


def wants_servers(case):
    return case["id"] in PREPARED or case.get("manifest", {}).get("network", "none") != "none"


def cannot_run(case):
    """Why this runner or this product has no way to run the case; "" if it has."""
    if set(case) - CASE_KEYS:
        return "unknown key %s" % sorted(set(case) - CASE_KEYS)
    if "setup" in case and case["id"] not in PREPARED:
        return "asks for a prepared machine: %s" % case["setup"]
    for step in steps(case):
        if step is not case and set(step) - STEP_KEYS:
            return "unknown key %s of a step" % sorted(set(step) - STEP_KEYS)
        manifest = {**case.get("manifest", {}), **step.get("manifest", {})}
        if set(manifest) - MANIFEST_KEYS:
            return "unknown manifest key %s" % sorted(set(manifest) - MANIFEST_KEYS)
        if manifest.get("network", "none") not in NETWORKS:
            return "asks for network %r" % manifest["network"]
        if not {"argv", "python"} & set(step["run"]):
            return "asks for a run of kind %s" % sorted(step["run"])
        problem = unknown_expectation(step.get("expect", {}))
        if problem:
            return problem
    return ""


def has_font(what):
    if what != "zh" or not shutil.which("fc-list"):
        return False
    done = subprocess.run(["fc-list", ":charset=" + ZH_GLYPH], capture_output=True, check=False)
    return bool(done.stdout.strip())


def has_module(name):
    return subprocess.run([PYTHON_INSIDE, "-I", "-c", "import " + name], cwd="/",
                          capture_output=True, check=False).returncode == 0


def missing_need(case):
    """What the image or the machine lacks for the case to mean anything; "" if nothing."""
    arch = case.get("arch")
    if arch and arch != platform.machine():
        return "arch " + arch
    for need in case.get("needs", ()):
        kind, _, name = need.partition(":")
        if name:
            good = {"python": has_module, "font": has_font}.get(kind, lambda _: False)(name)
        elif need == "ca-certificates":
            good = os.path.exists("/etc/ssl/certs/ca-certificates.crt")
        elif need == "pip":
            good = has_module("pip")
        else:
            good = shutil.which(need, path=paths.IMAGE_PATH) is not None
        if not good:
            return need
    return ""


# ---------------------------------------------------------------- outcome and expectation


class Outcome:
    """What came back from one run, in the words of the cases."""

    def __init__(self):
        self.exit = None          # None: the program was not started
        self.signal = "none"
        self.timed_out = self.oom = self.cancelled = False
        self.refused = False
        self.message = ""         # why it was refused or failed, as the report says it
        self.failed = False
        self.stdout = self.stderr = b""
        self.stdout_truncated = False
        self.has_value = False
        self.value = None
        self.notes = []           # everything else in the report that explains
        self.duration = 0.0
        self.patience = 1.0       # how many times slower than usual the machine is, as far as known
        self.began = time.time()
        self.files = {}           # path -> bytes, of what the working directory held afterwards
        self.raw = None           # for people

    def diagnosis(self):
        return "\n".join([self.text("stderr"), self.message, *map(str, self.notes)]).casefold()

    def text(self, stream):
        return getattr(self, stream).decode("utf-8", "replace")


def differ(got, want):
    return "" if got == want else "is %s, not %s" % (short(got), short(want))


def short(value):
    text = repr(value)
    return text if len(text) < 400 else text[:200] + " … " + text[-180:]


def listed(value):
    return value if isinstance(value, list) else [value]


def lacks(text, wanted):
    gone = [w for w in listed(wanted) if w not in text]
    return "%s lacks %s" % (short(text), short(gone)) if gone else ""


def lacks_any(text, wanted):
    return "" if any(w in text for w in wanted) else "%s holds none of %s" % (short(text), wanted)


STREAM_CHECKS = {
    "equals": lambda raw, text, want: differ(text, want),
    "contains": lambda raw, text, want: lacks(text, want),
    "contains_any": lambda raw, text, want: lacks_any(text, want),
    "not_contains": lambda raw, text, want:
        "".join("holds %r" % w for w in listed(want) if w in text),
    "starts_with": lambda raw, text, want:
        "" if text.startswith(want) else "starts with %s" % short(text[:200]),
    "regex": lambda raw, text, want:
        "" if re.search(want, text) else "%s does not match %r" % (short(text), want),
    "base64": lambda raw, text, want: differ(raw, base64.b64decode(want)),
    "len": lambda raw, text, want: differ(len(raw), want),
    "max_bytes": lambda raw, text, want: "" if len(raw) <= want else "has %d bytes" % len(raw),
}


def check_epoch(o, want):
    try:
        skew = abs(int(float(o.text("stdout"))) - o.began)
    except ValueError:
        return "is %s" % short(o.stdout)
    # `began` is when the run was asked for: the run may have read the clock up to its end.
    return "" if skew <= want + o.duration else "is %d s off" % skew


def check_value(o, want):
    return differ(o.value, want) if o.has_value else "there is no value: %s" % short(o.message)


def check_value_hash(o, want):
    if not o.has_value:
        return "there is no value: %s" % short(o.message)
    text = json.dumps(o.value, ensure_ascii=False)
    return differ(hashlib.sha256(text.encode()).hexdigest(), want)


def check_files(o, want):
    for path, state in want.items():
        here = o.files.get(path)
        if state.get("absent"):
            below = [p for p in o.files if p == path or p.startswith(path + "/")]
            if below:
                return "%s is there" % below
            continue
        if here is None:
            return "%s is absent; there are %s" % (path, sorted(o.files))
        for key, got in (("text", here.decode("utf-8", "replace")), ("size", len(here)),
                         ("sha256", hashlib.sha256(here).hexdigest())):
            if key in state and got != state[key]:
                return "%s: %s %s" % (path, key, differ(got, state[key]))
    return ""


CHECKS = {
    "exit": lambda o, want: "" if want is None else differ(o.exit, want),
    "signal": lambda o, want: differ(o.signal, want),
    "timed_out": lambda o, want: differ(o.timed_out, want),
    "oom": lambda o, want: differ(o.oom, want),
    "cancelled": lambda o, want: differ(o.cancelled, want),
    "refused": lambda o, want: differ(o.refused, want) or
        ("" if not want or o.message else "without a message"),
    "error": lambda o, want: differ(o.failed, want),
    "error_contains": lambda o, want: lacks(o.message, want),
    "error_contains_any": lambda o, want: lacks_any(o.message, want),
    "error_contains_each_any": lambda o, want: "".join(lacks_any(o.message, w) for w in want),
    "diagnosis_contains": lambda o, want: lacks(o.diagnosis(), [w.casefold() for w in listed(want)]),
    "diagnosis_contains_any": lambda o, want: lacks_any(o.diagnosis(), [w.casefold() for w in want]),
    "stdout_truncated": lambda o, want: differ(o.stdout_truncated, want),
    "stdout_epoch_skew_max_s": check_epoch,
    "result_json": check_value,
    "result_json_not": lambda o, want: "is %s" % short(want) if o.has_value and o.value == want else "",
    "result_json_sha256": check_value_hash,
    "duration_max_s": lambda o, want: "" if o.duration <= want * o.patience else
        "is %.2f s, on a machine %.1f times slower than usual" % (o.duration, o.patience),
    "files_out": check_files,
}
for _stream in ("stdout", "stderr"):
    for _name, _check in STREAM_CHECKS.items():
        CHECKS["%s_%s" % (_stream, _name)] = (
            lambda o, want, s=_stream, c=_check: c(getattr(o, s), o.text(s), want))


def unknown_expectation(expect):
    """A sentence for the first key of `expect` that cannot be judged here, else ""."""
    for key, want in expect.items():
        if key == "any_of":
            for part in want:
                problem = unknown_expectation(part)
                if problem:
                    return problem
        elif key == "after":
            strange = [w for w in want if w not in leftovers.KINDS]
            if strange:
                return "asks to check %r afterwards" % strange[0]
        elif key not in CHECKS:
            return "unknown expectation %r" % key
    return ""


def is_late(outcome, expect):
    """Is a bound on the time it took the only thing that is wrong?"""
    if not judge(outcome, expect):
        return False
    kept, outcome.patience = outcome.patience, float("inf")
    try:
        return not judge(outcome, expect)
    finally:
        outcome.patience = kept


def judge(outcome, expect):
    """[sentences] for what is not as expected. `after` is the caller's."""
    wrong = []
    for key, want in expect.items():
        if key == "any_of":
            tried = [judge(outcome, part) for part in want]
            if all(tried):
                wrong.append("none of any_of: " + "; or ".join(", ".join(t) for t in tried))
        elif key != "after":
            problem = CHECKS[key](outcome, want)
            if problem:
                wrong.append("%s: %s" % (key, problem))
    return wrong
