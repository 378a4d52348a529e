#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The judge of the cases: what it accepts, and that it refuses the neighbour of it."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cases, drive, tap


def outcome(**fields):
    o = cases.Outcome()
    o.__dict__.update(dict(exit=0, stdout=b"one two\n", stderr=b"Oops\n", files={"out/a": b"x"}, duration=1.0), **fields)
    return o


# expectation, an outcome that meets it, one that does not
ROWS = [
    ({"exit": 0}, {}, {"exit": 1}),
    ({"signal": "SIGSEGV"}, {"signal": "SIGSEGV"}, {}),
    ({"timed_out": False}, {}, {"timed_out": True}),
    ({"oom": True}, {"oom": True}, {}),
    ({"cancelled": True}, {"cancelled": True}, {}),
    ({"refused": True}, {"refused": True, "message": "no"}, {"refused": True}),
    ({"stdout_equals": "one two\n"}, {}, {"stdout": b"one two"}),
    ({"stdout_contains": ["one", "two"]}, {}, {"stdout": b"one"}),
    ({"stdout_contains_any": ["zero", "two"]}, {}, {"stdout": b"one"}),
    ({"stdout_not_contains": "three"}, {}, {"stdout": b"three"}),
    ({"stdout_starts_with": "one"}, {}, {"stdout": b" one"}),
    ({"stdout_regex": "^one"}, {}, {"stdout": b"none"}),
    ({"stdout_base64": "//4="}, {"stdout": b"\xff\xfe"}, {"stdout": b"\xff"}),
    ({"stdout_len": 8}, {}, {"stdout": b""}),
    ({"stdout_max_bytes": 8}, {}, {"stdout": b"123456789"}),
    ({"stderr_equals": "Oops\n"}, {}, {"stderr": b""}),
    ({"result_json": {"a": 1}}, {"has_value": True, "value": {"a": 1}}, {"has_value": True, "value": {"a": 2}}),
    ({"result_json": None}, {"has_value": True}, {}),
    ({"result_json_not": 1}, {"has_value": True, "value": 2}, {"has_value": True, "value": 1}),
    ({"error": True}, {"failed": True}, {}),
    ({"error_contains": "bad"}, {"message": "a bad thing"}, {"message": "a good thing"}),
    ({"error_contains_each_any": [["a", "b"], ["c"]]}, {"message": "b c"}, {"message": "a b"}),
    ({"diagnosis_contains": ["OOPS", "note"]}, {"notes": ["a Note"]}, {}),
    ({"diagnosis_contains_any": ["x", "oops"]}, {}, {"stderr": b""}),
    ({"duration_max_s": 2}, {}, {"duration": 3.0}),
    ({"files_out": {"out/a": {"text": "x", "size": 1}}}, {}, {"files": {"out/a": b"y"}}),
    ({"files_out": {"out/a": {"size": 1}}}, {}, {"files": {}}),
    ({"files_out": {"b": {"absent": True}}}, {}, {"files": {"b/c": b""}}),
    ({"any_of": [{"exit": 7}, {"exit": 0}]}, {}, {"exit": 1}),
    ({"exit": 0, "any_of": [{"oom": True}, {"signal": "none"}]}, {}, {"signal": "SIGKILL"}),
]


def test_judge(t):
    for expect, good, bad in ROWS:
        t.equal(cases.judge(outcome(**good), expect), [], "%s is met" % expect)
        t.ok(cases.judge(outcome(**bad), expect), "%s is missed by %s" % (expect, bad))


def test_what_cannot_run(t):
    plain = {"id": "x", "run": {"argv": ["true"]}, "expect": {"exit": 0}}
    t.equal(cases.cannot_run(plain), "", "a plain case can be run")
    for change in ({"setup": "host: x"}, {"manifest": {"network": "everything"}}, {"manifest": {"strange": 1}},
                   {"run": {"http": {}}}, {"strange": 1},
                   {"expect": {"strange": 1}}, {"expect": {"after": ["the moon is full"]}},
                   {"expect": {"any_of": [{"strange": 1}]}}):
        t.ok(cases.cannot_run({**plain, **change}), "not so with %s" % change)


def test_expand(t):
    t.equal(cases.expand({"a": [{"$repeat": ["xy", 3]}], "b": {"$concat": ["-", {"$repeat": ["z", 2]}]}}),
            {"a": ["xyxyxy"], "b": "-zz"}, "$repeat and $concat are expanded anywhere")


def test_manifest(t):
    case = {"manifest": {"memory_mb": 128, "timeout_s": 1.5, "read_only": ["data", "/usr"], "max_output_bytes": 9}}
    t.equal(drive.manifest_of({}, case),
            {"manifestVersion": 1, "name": "case", "resources": {"memory": "128Mi", "stdout": 9, "stderr": 9},
             "timeouts": {"wall": "1.5s"}, "filesystem": {"readOnly": ["${work}/data", "/usr"]}},
            "wishes become a manifest")


if __name__ == "__main__":
    sys.exit(tap.run([test_judge, test_what_cannot_run, test_expand, test_manifest]))
