# SPDX-License-Identifier: Apache-2.0
"""What the service answers, as objects. `raw` is always the whole answer as it came."""

import base64
import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True)
class Output:
    """A file that a run left behind. content is None where it is too large to come along: see Job.output()."""

    path: str
    size: int
    sha256: str
    media_type: str | None
    content: bytes | None
    raw: dict[str, Any] = dataclasses.field(repr=False)

    @classmethod
    def of(cls, raw: dict[str, Any]) -> "Output":
        text = raw.get("content_base64")
        return cls(raw["path"], raw["size"], raw["sha256"], raw.get("media_type"),
                   None if text is None else base64.b64decode(text), raw)


@dataclasses.dataclass(frozen=True)
class Denial:
    """What a run was refused: by which layer, how often, and what of the manifest would allow it."""

    layer: str
    what: str
    times: int
    pointer: str | None
    raw: dict[str, Any] = dataclasses.field(repr=False)

    @classmethod
    def of(cls, raw: dict[str, Any]) -> "Denial":
        return cls(raw["layer"], raw["what"], raw["times"], raw.get("pointer"), raw)


@dataclasses.dataclass(frozen=True)
class Result:
    """How a run ended.

    cause is "exit" where the program ended by itself, else a word such as "wall", "memory" or "policy".
    data is what a Python function returned. ok is true for exit status 0 and, of functions, no exception.
    """

    cause: str
    exit_code: int
    signal: int | None
    stdout: bytes
    stderr: bytes
    data: Any
    msg: str
    duration_ms: int
    outputs: list[Output]
    denials: list[Denial]
    job_id: str
    receipt_id: str | None
    raw: dict[str, Any] = dataclasses.field(repr=False)

    @property
    def ok(self) -> bool:
        return self.cause == "exit" and self.exit_code == 0 and self.raw.get("code") in (None, 0, 200)

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.stdout.decode("utf-8", "replace")

    @classmethod
    def of(cls, raw: dict[str, Any]) -> "Result":
        def stream(name: str) -> bytes:
            if raw.get(name + "_base64") is not None:
                return base64.b64decode(raw[name + "_base64"])
            return (raw.get(name) or "").encode("utf-8", "surrogateescape")

        return cls(raw.get("cause") or "unknown", raw.get("exit_code", -1), raw.get("signal"), stream("stdout"),
                   stream("stderr"), raw.get("data"), raw.get("msg") or "", raw.get("duration_ms", 0),
                   [Output.of(o) for o in raw.get("outputs", ())], [Denial.of(d) for d in raw.get("denials", ())],
                   raw.get("job_id") or "", raw.get("receipt_id"), raw)


@dataclasses.dataclass(frozen=True)
class Event:
    """One event of a job: its name ("queued", "started", "stdout", …), its number and its data."""

    name: str
    id: str
    data: dict[str, Any]

    @property
    def content(self) -> bytes:
        """The bytes of a "stdout" or "stderr" event."""
        if self.data.get("base64") is not None:
            return base64.b64decode(self.data["base64"])
        return str(self.data.get("text") or "").encode("utf-8", "surrogateescape")


@dataclasses.dataclass(frozen=True)
class Entry:
    """A file, directory or link in a session. mode is octal text, mtime in milliseconds."""

    path: str
    type: str
    size: int
    mode: str
    mtime_ms: int
    target: str | None
    raw: dict[str, Any] = dataclasses.field(repr=False)

    @classmethod
    def of(cls, raw: dict[str, Any]) -> "Entry":
        return cls(raw.get("path") or "", raw["type"], raw["size"], raw["mode"], raw["mtime_ms"],
                   raw.get("target"), raw)


@dataclasses.dataclass(frozen=True)
class Match:
    """A line that a search found."""

    path: str
    line: int
    text: str

    @classmethod
    def of(cls, raw: dict[str, Any]) -> "Match":
        return cls(raw.get("path") or "", raw.get("line", 0), raw.get("text") or "")
