#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""policy/skill.schema.json as another program reads it: it takes what is right and refuses the neighbour."""

import copy
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import manual, paths, tap

try:
    import jsonschema
except ImportError:
    tap.skip_all("needs python3-jsonschema")

with open(paths.ROOT + "/policy/skill.schema.json", encoding="utf-8") as file:
    SCHEMA = json.load(file)
CORPUS = paths.ROOT + "/tests/fuzz/corpus/manifest/"

# A change of everything.json, as a path and a new value, that the reader refuses too.
NEIGHBOURS = [
    ("manifestVersion", 2), ("manifestVersion", "1"), ("name", "Big Name"), ("profile", "lax"), ("mounts", []),
    ("entrypoints/main/command", []), ("entrypoints/main/command", "ls"), ("entrypoints/main/cwd", "../x"),
    ("entrypoints/main/timeout", 60), ("entrypoints/a b", {"command": ["x"]}), ("entrypoints/main/shell", True),
    ("compatibility/kernel", "5.13"), ("files/digests/a", "12"), ("filesystem/read/0", 1),
    ("filesystem/read/1/optionl", True), ("filesystem/read/0", "a/../b"), ("filesystem/workspace", "shared"),
    ("network/mode", "None"), ("network/allow/0/ports", []), ("network/allow/0/ports", [65536]),
    ("network/allow/0/host", "*"), ("network/allow/0/host", "https://a.example"), ("network/denyCidrs/0", "10.0.0.0"),
    ("secrets/0/source", "s3cr3t="), ("env/set/A=B", "1"), ("env/set/A", 1), ("userConfig/n/type", "path"),
    ("process/jit", "yes"), ("process/user", 0), ("syscalls/groups/0", "ipc"), ("resources/memory", "512MB"),
    ("resources/memory", -1), ("resources/pids", 1), ("resources/pids", "32"), ("timeouts/wall", 90),
    ("timeouts/wall", "90"), ("require/landlock", "require"), ("require/landlockFs", "must"), ("minTier", "vm"),
    ("audit/level", "all"), ("mcp/tools/1", {"name": "x"}), ("tests/0/expect/exit", 256), ("tests/0", {}),
    ("determinism/time", "2026-01-31"), ("session/mode", "forever"), ("outputs/0/maxFiles", 0),
]


def load(name):
    with open(CORPUS + name, encoding="utf-8") as f:
        return json.load(f)


def judge(manifest):
    errors = list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(manifest))
    return "; ".join("/%s: %s" % ("/".join(map(str, e.absolute_path)), e.message) for e in errors)


def changed(path, value):
    whole = load("everything.json")
    *above, last = path.split("/")
    place = whole
    for key in above:
        place = place[int(key) if isinstance(place, list) else key]
    place[int(last) if isinstance(place, list) else last] = copy.deepcopy(value)
    return whole


def test_schema(t):
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    t.ok(True, "is a schema of the draft it names")


def test_right(t):
    for name in ("everything.json", "whole.json", "minimal.json", "standard.json"):
        t.equal(judge(load(name)), "", name)
    for number, (_, text) in enumerate(manual.examples()):
        t.equal(judge(json.loads(text)), "", "example %d of the manual" % (number + 1))
    t.equal(judge(changed("x-vendor", [1])), "", "extensions")


def test_wrong(t):
    for path, value in NEIGHBOURS:
        t.ok(judge(changed(path, value)), "refuses %s = %s" % (path, json.dumps(value)))


def test_whole(t):
    """everything.json has every field of the schema: a field that nothing tries is a hole here."""
    missing = []

    def look(schema, value, path):
        if "anyOf" in schema:
            schema = next(one for one in schema["anyOf"] if one.get("type") == "object")
            value = value if isinstance(value, dict) else {}
        for key, below in schema.get("properties", {}).items():
            if key == "_meta" or path == "/require":
                continue
            if not isinstance(value, dict) or key not in value:
                missing.append(path + "/" + key)
                continue
            look(below, value[key], path + "/" + key)
        if schema.get("type") == "array" and isinstance(value, list) and "items" in schema:
            merged = {}
            for one in value:
                merged.update(one if isinstance(one, dict) else {})
            look(schema["items"], merged or (value[0] if value else None), path + "/0")
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict) and isinstance(value, dict) and value:
            look(extra, next(iter(value.values())), path + "/*")

    look(SCHEMA, load("everything.json"), "")
    t.equal(missing, [], "no field is left out")


if __name__ == "__main__":
    sys.exit(tap.run([test_schema, test_right, test_wrong, test_whole]))
