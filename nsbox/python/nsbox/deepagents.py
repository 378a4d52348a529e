# SPDX-License-Identifier: Apache-2.0
"""A session as a backend of deepagents: its files, and commands in its sandbox.

    from deepagents import create_deep_agent
    from nsbox.deepagents import SandboxBackend

    agent = create_deep_agent(backend=SandboxBackend(nsbox.Client().session("chat-7")))

deepagents is not needed: where it is installed the class is one of its sandbox backends and answers in its types,
in the version that is there; where it is not, the same is answered in types of the same shape.

Paths are those of the sandbox, as commands see them; relative ones are below /workspace. File tools and commands
have the same user and the same view.
"""

import asyncio
import base64
import dataclasses
import datetime
import posixpath
from typing import Any, Iterable

from .client import Session
from .errors import Error, ServiceError
from .types import Entry

try:
    from deepagents.backends import protocol as _protocol  # type: ignore[import]
except ImportError:
    _protocol = None

WORKSPACE = "/workspace"
TIMEOUT_S, OUTPUT_MAX = 120, 100_000


@dataclasses.dataclass
class ExecuteResponse:
    output: str
    exit_code: int | None = None
    truncated: bool = False


@dataclasses.dataclass
class LsResult:
    error: str | None = None
    entries: list[dict[str, Any]] | None = None


@dataclasses.dataclass
class ReadResult:
    error: str | None = None
    file_data: dict[str, Any] | None = None
    total_lines: int | None = None
    start_line: int | None = None
    end_line: int | None = None
    next_offset: int | None = None
    no_lines_requested: bool = False


@dataclasses.dataclass
class WriteResult:
    error: str | None = None
    path: str | None = None


@dataclasses.dataclass
class EditResult:
    error: str | None = None
    path: str | None = None
    occurrences: int | None = None


@dataclasses.dataclass
class DeleteResult:
    error: str | None = None
    path: str | None = None


@dataclasses.dataclass
class GrepResult:
    error: str | None = None
    matches: list[dict[str, Any]] | None = None
    truncated: bool = False


@dataclasses.dataclass
class GlobResult:
    error: str | None = None
    matches: list[dict[str, Any]] | None = None


@dataclasses.dataclass
class FileUploadResponse:
    path: str
    error: str | None = None


@dataclasses.dataclass
class FileDownloadResponse:
    path: str
    content: bytes | None = None
    error: str | None = None


def _answer(kind: type, **values: Any) -> Any:
    """An answer in deepagents' own type where it has one, with those fields that this version knows."""
    theirs = getattr(_protocol, kind.__name__, kind)
    names = {f.name for f in dataclasses.fields(theirs)}
    return theirs(**{name: value for name, value in values.items() if name in names})


def _code(error: Error) -> str:
    """One of the words that deepagents has for what went wrong, else our own."""
    text = str(error)
    for part, word in (("No such file", "file_not_found"), ("Is a directory", "is_directory"),
                       ("Permission denied", "permission_denied"), ("Not a directory", "invalid_path")):
        if part in text:
            return word
    return text


_Base: Any = getattr(_protocol, "SandboxBackendProtocol", object)


class SandboxBackend(_Base):  # type: ignore[misc]
    """What deepagents asks of a sandbox, done in a session of nsboxd."""

    def __init__(self, session: Session, *, timeout: int = TIMEOUT_S, max_output: int = OUTPUT_MAX):
        self.session = session
        self._default_timeout = timeout
        self._max_output = max_output

    @property
    def id(self) -> str:
        return "nsbox-" + self.session.id

    # Paths: where one is in the sandbox, and how a place there is told

    def _path(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(WORKSPACE, path))

    def _told(self, place: str) -> str:
        return place

    def _info(self, base: str, entry: Entry) -> dict[str, Any]:
        when = datetime.datetime.fromtimestamp(entry.mtime_ms / 1000, datetime.timezone.utc)
        return {"path": self._told(posixpath.join(base, entry.path)), "is_dir": entry.type == "directory",
                "size": entry.size, "modified_at": when.isoformat()}

    # Commands

    def execute(self, command: str, *, timeout: int | None = None) -> Any:
        """Run a command line by the sandbox's shell, in /workspace."""
        if not command or not isinstance(command, str):
            return self._response("Error: Command must be a non-empty string.", 1)
        if timeout is not None and timeout <= 0:
            raise ValueError("timeout must be positive, got %s" % timeout)
        seconds = timeout if timeout is not None else self._default_timeout
        try:
            result = self.session.command(command, timeout_seconds=seconds)
        except Error as error:
            return self._response("Error executing command (%s): %s" % (type(error).__name__, error), 1)
        output, cut = self._output(result.stdout, result.stderr)
        cut = cut or bool(result.raw.get("stdout_truncated") or result.raw.get("stderr_truncated"))
        if result.cause == "wallTime":
            return self._response("%s\n\nError: Command timed out after %s seconds. For long-running commands, re-run "
                                  "using the timeout parameter." % (output, seconds), 124, cut)
        if result.cause not in ("exit", "signal"):
            output += "\n\n[nsbox] ended by %s: %s" % (result.cause, result.msg)
        if result.exit_code:
            output = "%s\n\nExit code: %d" % (output.rstrip(), result.exit_code)
        return self._response(output, result.exit_code, cut)

    def _response(self, output: str, status: int, cut: bool = False) -> Any:
        return _answer(ExecuteResponse, output=output, exit_code=status, truncated=cut)

    def _output(self, stdout: bytes, stderr: bytes, remarks: Iterable[str] = ()) -> tuple[str, bool]:
        errors = stderr.decode("utf-8", "replace").strip()
        parts = [stdout.decode("utf-8", "replace")]
        parts += ["[stderr] " + line for line in errors.split("\n")] if errors else []
        parts += ["[nsbox] " + remark for remark in remarks]
        output = "\n".join(part for part in parts if part) or "<no output>"
        if len(output) <= self._max_output:
            return output, False
        return "%s\n\n... Output truncated at %d bytes." % (output[:self._max_output], self._max_output), True

    # Files

    def ls(self, path: str) -> Any:
        base = self._path(path)
        try:
            return _answer(LsResult, entries=[self._info(base, e) for e in self.session.list(base)])
        except Error as error:
            return _answer(LsResult, error=str(error))

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> Any:
        """Lines from `offset` (from 0) on; as text with numbers where deepagents is older than its ReadResult."""
        path, offset = self._path(file_path), max(offset, 0)
        old = _protocol is not None and not hasattr(_protocol, "ReadResult")
        if limit <= 0 and not old:
            return _answer(ReadResult, file_data={"content": "", "encoding": "utf-8"}, no_lines_requested=True)
        try:
            raw = self.session.get(path)
        except Error as error:
            return "Error: %s" % error if old else _answer(ReadResult, error=str(error))
        try:
            lines = raw.decode("utf-8").splitlines(keepends=True)
        except UnicodeDecodeError:
            if old:
                return "Error: '%s' is no text" % self._told(path)
            data = {"content": base64.b64encode(raw).decode("ascii"), "encoding": "base64"}
            return _answer(ReadResult, file_data=data)
        some = lines[offset:offset + max(limit, 0)]
        if old:
            return "".join("%6d\t%s" % (offset + 1 + i, line) for i, line in enumerate(some))
        if lines and not some:
            return _answer(ReadResult, error="Line offset %d exceeds file length (%d lines)" % (offset, len(lines)))
        data = {"content": "".join(some), "encoding": "utf-8"}
        if not some:
            return _answer(ReadResult, file_data=data)
        end = offset + len(some)
        return _answer(ReadResult, file_data=data, total_lines=len(lines), start_line=offset + 1, end_line=end,
                       next_offset=end if end < len(lines) else None)

    def write(self, file_path: str, content: str) -> Any:
        """Make a new file; one that is there stays as it is."""
        path = self._path(file_path)
        try:
            self.session.put(path, content, exclusive=True)
            return _answer(WriteResult, path=self._told(path))
        except ServiceError as error:
            if error.status == 409 or "File exists" in str(error):
                return _answer(WriteResult, error="Cannot write to %s because it already exists. Read and then make an "
                               "edit, or write to a new path." % self._told(path))
            return _answer(WriteResult, error=str(error))
        except Error as error:
            return _answer(WriteResult, error=str(error))

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> Any:
        path = self._path(file_path)
        if not old_string:
            return _answer(EditResult, error="Error: the string to be replaced is empty")
        try:
            text = self.session.get(path).decode("utf-8")
            n = text.count(old_string)
            if n == 0:
                return _answer(EditResult, error="Error: String not found in file: '%s'" % old_string)
            if n > 1 and not replace_all:
                return _answer(EditResult, error="Error: String '%s' appears %d times in file. Use replace_all=True to replace "
                               "all instances, or provide a more specific string with surrounding context." % (old_string, n))
            self.session.put(path, text.replace(old_string, new_string))
        except UnicodeDecodeError:
            return _answer(EditResult, error="Error: '%s' is no text" % self._told(path))
        except Error as error:
            return _answer(EditResult, error="Error: %s" % error)
        return _answer(EditResult, path=self._told(path), occurrences=n)

    def delete(self, file_path: str) -> Any:
        path = self._path(file_path)
        try:
            self.session.remove(path)
            return _answer(DeleteResult, path=self._told(path))
        except Error as error:
            return _answer(DeleteResult, error=str(error))

    def grep(self, pattern: str, path: str | None = None, glob: str | None = None, *,
             max_count: int | None = None) -> Any:
        """Lines that hold the text, literally."""
        base = self._path(path or WORKSPACE)
        # A pattern without a slash is for names, wherever they are.
        where = "**/" + glob if glob and "/" not in glob else glob
        try:
            found = self.session.grep(base, pattern, glob=where)
        except Error as error:
            return _answer(GrepResult, error=str(error))
        matches = [{"path": self._told(posixpath.join(base, m.path) if m.path else base), "line": m.line, "text": m.text}
                   for m in found]
        cut = max_count is not None and len(matches) > max_count
        return _answer(GrepResult, matches=matches[:max_count] if cut else matches, truncated=cut)

    def glob(self, pattern: str, path: str = WORKSPACE) -> Any:
        base = self._path(path)
        try:
            return _answer(GlobResult, matches=[self._info(base, e) for e in self.session.list(base, glob=pattern.lstrip("/"))])
        except Error as error:
            return _answer(GlobResult, error=str(error))

    def upload_files(self, files: Iterable[tuple[str, bytes]]) -> list[Any]:
        answers = []
        for path, content in files:
            try:
                self.session.put(self._path(path), content)
                answers.append(_answer(FileUploadResponse, path=path, error=None))
            except Error as error:
                answers.append(_answer(FileUploadResponse, path=path, error=_code(error)))
        return answers

    def download_files(self, paths: Iterable[str]) -> list[Any]:
        answers = []
        for path in paths:
            try:
                content = self.session.get(self._path(path))
                answers.append(_answer(FileDownloadResponse, path=path, content=content, error=None))
            except Error as error:
                answers.append(_answer(FileDownloadResponse, path=path, content=None, error=_code(error)))
        return answers

    # Names that deepagents had up to 0.5

    def ls_info(self, path: str) -> list[dict[str, Any]]:
        return list(self.ls(path).entries or [])

    def grep_raw(self, pattern: str, path: str | None = None, glob: str | None = None) -> list[dict[str, Any]] | str:
        found = self.grep(pattern, path, glob)
        return str(found.error) if found.error else list(found.matches or [])

    def glob_info(self, pattern: str, path: str = WORKSPACE) -> list[dict[str, Any]]:
        return list(self.glob(pattern, path).matches or [])

    # The same for asyncio: each in a thread of its own

    async def aexecute(self, command: str, *, timeout: int | None = None) -> Any:
        return await asyncio.to_thread(self.execute, command, timeout=timeout)

    async def als(self, path: str) -> Any:
        return await asyncio.to_thread(self.ls, path)

    async def aread(self, file_path: str, offset: int = 0, limit: int = 2000) -> Any:
        return await asyncio.to_thread(self.read, file_path, offset, limit)

    async def awrite(self, file_path: str, content: str) -> Any:
        return await asyncio.to_thread(self.write, file_path, content)

    async def aedit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> Any:
        return await asyncio.to_thread(self.edit, file_path, old_string, new_string, replace_all)

    async def adelete(self, file_path: str) -> Any:
        return await asyncio.to_thread(self.delete, file_path)

    async def agrep(self, pattern: str, path: str | None = None, glob: str | None = None, *,
                    max_count: int | None = None) -> Any:
        return await asyncio.to_thread(self.grep, pattern, path, glob, max_count=max_count)

    async def aglob(self, pattern: str, path: str = WORKSPACE) -> Any:
        return await asyncio.to_thread(self.glob, pattern, path)

    async def aupload_files(self, files: Iterable[tuple[str, bytes]]) -> list[Any]:
        return await asyncio.to_thread(self.upload_files, files)

    async def adownload_files(self, paths: Iterable[str]) -> list[Any]:
        return await asyncio.to_thread(self.download_files, paths)

    async def als_info(self, path: str) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self.ls_info, path)

    async def agrep_raw(self, pattern: str, path: str | None = None, glob: str | None = None) -> list[dict[str, Any]] | str:
        return await asyncio.to_thread(self.grep_raw, pattern, path, glob)

    async def aglob_info(self, pattern: str, path: str = WORKSPACE) -> list[dict[str, Any]]:
        return await asyncio.to_thread(self.glob_info, pattern, path)
