# SPDX-License-Identifier: Apache-2.0
"""The client, jobs and sessions, for programs with threads or without."""

import base64
import contextlib
import json
import time
from typing import Any, Generator, Iterator, Mapping, Sequence

from .errors import Busy, ServiceError, Unreachable
from .transport import Connection, Transport, query, quoted
from .types import Entry, Event, Match, Result

Content = bytes | str
EVENTS_RETRIES = 3


def files_of(files: Mapping[str, Content]) -> list[dict[str, Any]]:
    """{path: content} as requests have it."""
    rows: list[dict[str, Any]] = []
    for path, data in files.items():
        content = data.encode() if isinstance(data, str) else data
        rows.append({"path": path, "content_base64": base64.b64encode(content).decode("ascii")})
    return rows


def command_body(command: str | Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """A string is for a shell inside, a list is a program and its arguments."""
    body = request_body(options)
    if isinstance(command, str):
        body["command"] = command
    else:
        body["argv"] = list(command)
    return body


def python_body(code: str, function: str | None, params: Mapping[str, Any] | None, more: Mapping[str, Any],
                options: dict[str, Any]) -> dict[str, Any]:
    body = request_body(options)
    body.update(code=code, params=dict(params or {}, **more))
    if function is not None:
        body["function_name"] = function
    return body


def request_body(options: dict[str, Any]) -> dict[str, Any]:
    """Options have the names of the request's fields; files and stdin may be bytes."""
    body = {k: v for k, v in options.items() if v is not None}
    if isinstance(body.get("files"), Mapping):
        body["files"] = files_of(body["files"])
    if isinstance(body.get("stdin"), bytes):
        body["stdin_base64"] = base64.b64encode(body.pop("stdin")).decode("ascii")
    if isinstance(body.get("archive"), bytes):
        body["archive_base64"] = base64.b64encode(body.pop("archive")).decode("ascii")
    return body


class Client:
    """A service.

    address: path of its Unix socket, or http://HOST:PORT; without it $NSBOX_SOCKET or
    /run/nsbox/nsbox.sock. token or token_file: for TCP. workspace: whose runs these are.
    timeout: seconds that a call may take in all, None without an end.
    busy_seconds: how long a full queue (429) is asked again, in seconds.
    """

    def __init__(self, address: str | None = None, *, token: str | None = None, token_file: str | None = None,
                 workspace: str | None = None, timeout: float | None = None, busy_seconds: float = 60.0):
        self.transport = Transport(address, token, token_file)
        self.workspace = workspace
        self.timeout = timeout
        self.busy_seconds = busy_seconds

    # Calls. `on_connection` gets each connection before it is used, for who wants to cut it.

    def on_connection(self, connection: Connection) -> None:
        """Does nothing; AsyncClient listens here."""

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """The decoded answer of one request. A full queue is waited for."""
        return json.loads(self.fetch(method, path, body, headers))

    def fetch(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> bytes:
        deadline = time.monotonic() + self.busy_seconds
        while True:
            connection = self.transport.connection(self.timeout)
            self.on_connection(connection)
            try:
                return self.transport.fetch(connection, method, path, body, headers)
            except Busy as busy:
                if time.monotonic() + busy.retry_after > deadline:
                    raise
                time.sleep(busy.retry_after)

    def _ours(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.workspace is not None:
            body.setdefault("workspace_id", self.workspace)
        return body

    # Runs

    def python(self, code: str, function: str | None = None, params: Mapping[str, Any] | None = None, *,
               options: Mapping[str, Any] | None = None, **arguments: Any) -> Result:
        """Run a function of `code` with params and keyword arguments; its value is Result.data.

        function: which one (default: the last that is defined). options: fields of the request, such
        as manifest, timeout_seconds, files ({path: bytes}), outputs (patterns), network_policy.
        """
        body = python_body(code, function, params, arguments, dict(options or {}))
        return Result.of(self.call("POST", "/v1/execute/python-function", self._ours(body)))

    def command(self, command: str | Sequence[str], **options: Any) -> Result:
        """Run a command and wait for it: a string in a shell inside, a list as program and arguments.

        options: fields of the request, as for python().
        """
        return Result.of(self.call("POST", "/v1/execute/command", self._ours(command_body(command, options))))

    def skill(self, archive: bytes, name: str | None = None, entrypoint: str | None = None,
              **options: Any) -> Result:
        """Run an entry point of a skill: a zip or tar archive with its skill.json at the top."""
        skill = {"archive_base64": base64.b64encode(archive).decode("ascii"), "name": name,
                 "entrypoint": entrypoint}
        body = request_body(options)
        body["skill"] = {k: v for k, v in skill.items() if v is not None}
        return Result.of(self.call("POST", "/v1/execute/command", self._ours(body)))

    def interactive(self, command: str | Sequence[str], **options: Any) -> "Interactive":
        """Run a command whose output is read, and whose input is written, while it runs."""
        return Interactive(self, self._ours(dict(command_body(command, options), interactive=True)))

    # Jobs

    def submit(self, command: str | Sequence[str], *, idempotency_key: str | None = None,
               **options: Any) -> "Job":
        """Queue a command. It survives the service: what waits runs after a restart."""
        return self._submit(dict(command_body(command, options), kind="command"), idempotency_key)

    def submit_python(self, code: str, function: str | None = None, params: Mapping[str, Any] | None = None, *,
                      idempotency_key: str | None = None, options: Mapping[str, Any] | None = None,
                      **arguments: Any) -> "Job":
        """Queue a Python function; see python()."""
        body = python_body(code, function, params, arguments, dict(options or {}))
        return self._submit(dict(body, kind="python-function"), idempotency_key)

    def _submit(self, body: dict[str, Any], key: str | None) -> "Job":
        headers = {"Idempotency-Key": key} if key is not None else {}
        return Job(self, self.call("POST", "/v1/jobs", self._ours(body), headers)["id"])

    def job(self, job_id: str) -> "Job":
        """A job by its id; nothing is asked yet."""
        return Job(self, job_id)

    def jobs(self) -> list[dict[str, Any]]:
        """What the service remembers and the caller may see."""
        return list(self.call("GET", "/v1/jobs")["jobs"])

    # Sessions

    def session(self, session_id: str, **options: Any) -> "Session":
        """A session by its name. What is done first in it makes it, with these options.

        options: what fixes the policy (image, manifest, resources, network_policy), files, and
        idle_timeout_seconds, ttl_seconds, max_commands.
        """
        return Session(self, session_id, options)

    def sessions(self) -> list[dict[str, Any]]:
        return list(self.call("GET", "/v1/sessions")["sessions"])

    # The service

    def capabilities(self) -> dict[str, Any]:
        """What the host can enforce, with the remedy for what it cannot."""
        return dict(self.call("GET", "/v1/capabilities"))

    def receipt(self, receipt_id: str) -> dict[str, Any]:
        """What held a run, by hashes: see nsboxd(8)."""
        return dict(self.call("GET", "/v1/receipts/" + quoted(receipt_id)))

    def health(self) -> dict[str, Any]:
        return dict(self.call("GET", "/healthz"))


class Job:
    """A job of the service's queue."""

    def __init__(self, client: Client, job_id: str):
        self.client = client
        self.id = job_id
        self.path = "/v1/jobs/" + quoted(job_id)

    def state(self) -> str:
        """"queued", "running", "finished", …"""
        return str(self.client.call("GET", self.path)["state"])

    def result(self, wait: float | None = None) -> Result:
        """Its result, waited for; TimeoutError after `wait` seconds (default: no limit)."""
        deadline = None if wait is None else time.monotonic() + wait
        while True:
            left = 30.0 if deadline is None else min(30.0, deadline - time.monotonic())
            row = self.client.call("GET", self.path + query(wait=max(0, int(left + 0.999))))
            if row.get("result") is not None:
                return Result.of(dict(row["result"], cause=row.get("cause") or row["result"].get("cause")))
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError("job %s is %s" % (self.id, row["state"]))

    def cancel(self) -> None:
        self.client.call("DELETE", self.path)

    def output(self, path: str) -> bytes:
        """A file that it left behind and that was kept."""
        return self.client.fetch("GET", "%s/outputs/%s" % (self.path, quoted(path)))

    def events(self, after: str | None = None) -> Iterator[Event]:
        """Its life and output as they come, to its end. A broken stream is taken up where it broke."""
        failed = 0
        while True:
            connection = self.client.transport.connection(None)
            self.client.on_connection(connection)
            try:
                for event in parse_events(self.client.transport.lines(
                        connection, "GET", self.path + "/events", None, {"Last-Event-ID": after} if after else {})):
                    after, failed = event.id, 0
                    yield event
                    if event.name == "finished":
                        return
            except Unreachable:
                failed += 1
                if failed > EVENTS_RETRIES:
                    raise
                time.sleep(0.2 * failed)
            else:
                return


class Interactive(contextlib.AbstractContextManager["Interactive"]):
    """A command that one talks with. It ends with its context: who goes away takes it along."""

    def __init__(self, client: Client, body: dict[str, Any]):
        self.client = client
        self.connection = client.transport.connection(None)
        client.on_connection(self.connection)
        self.stream = parse_events(client.transport.lines(self.connection, "POST", "/v1/execute/command", body))
        self.path = "/v1/jobs/" + quoted(next(self.stream).data["job_id"])

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Go away, and take the run along."""
        self.connection.cut()
        self.stream.close()

    def write(self, data: bytes) -> None:
        """To its standard input; b"" is the end of it."""
        self.client.fetch("POST", self.path + "/stdin", data)

    def __iter__(self) -> Iterator[Event]:
        """Events as they come; the last is "finished"."""
        for event in self.stream:
            yield event
            if event.name == "finished":
                return


def parse_events(lines: Iterator[str]) -> Generator[Event, None, None]:
    """Server-sent events of lines, as the HTML standard has them."""
    name, number = "message", ""
    data: list[str] = []
    for line in lines:
        if line == "":
            if data:
                yield Event(name, number, json.loads("\n".join(data)))
            name, data = "message", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "id":
            number = value
        elif field == "data":
            data.append(value)


class Session(contextlib.AbstractContextManager["Session"]):
    """A sandbox that is kept between commands. As a context it is ended with it."""

    def __init__(self, client: Client, session_id: str, options: Mapping[str, Any]):
        self.client = client
        self.id = session_id
        self.options = dict(options)
        self.made = False

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> dict[str, Any]:
        """Make it now, not with the first command."""
        body = dict(request_body(self.options), session_id=self.id)
        made = self.client.call("POST", "/v1/sessions", self.client._ours(body))
        self.made = True
        return dict(made["session"])

    def _ensure(self) -> None:
        """It may be there already: an earlier program's, or another thread's."""
        if self.made:
            return
        try:
            self.info()
            self.made = True
        except ServiceError as error:
            if error.status != 404:
                raise
            self.start()

    def command(self, command: str | Sequence[str], **options: Any) -> Result:
        """Run a command in it; its processes and files stay until the session ends."""
        body = command_body(command, dict(options, session_id=self.id))
        return Result.of(self._call("POST", "/v1/execute/command", self.client._ours(body)))

    def python(self, code: str, function: str | None = None, params: Mapping[str, Any] | None = None, *,
               options: Mapping[str, Any] | None = None, **arguments: Any) -> Result:
        """Call a function in it, which finds the files of the session, and leaves its own there."""
        body = python_body(code, function, params, arguments, dict(options or {}, session_id=self.id))
        return Result.of(self._call("POST", "/v1/execute/python-function", self.client._ours(body)))

    def info(self) -> dict[str, Any]:
        return dict(self.client.call("GET", self._path()))

    def commit(self, image: str) -> str:
        """Make an image of its image and what commands have changed in the root; the image's id.

        For root and the service's owner alone. Workspace, home directory and skills are no part of it.
        """
        path = "/v1/sessions/" + quoted(self.id) + "/commit" + query(workspace_id=self.client.workspace)
        return str(self._call("POST", path, {"image": image})["id"])

    def end(self) -> None:
        """End it, with all that runs in it. One that is over already is no error."""
        try:
            self.client.call("DELETE", self._path())
        except ServiceError as error:
            if error.status != 404:
                raise
        self.made = False

    def _path(self, file: str | None = None, **values: Any) -> str:
        path = "/v1/sessions/" + quoted(self.id)
        if file is not None:
            path += "/files/" + quoted(file)
        return path + query(workspace_id=self.client.workspace, **values)

    def _fetch(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> bytes:
        """Every request that needs the session to be there."""
        self._ensure()
        return self.client.fetch(method, path, body, headers)

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        return json.loads(self._fetch(method, path, body))

    def _files(self, method: str, path: str, body: Any = None, **values: Any) -> dict[str, Any]:
        return dict(self._call(method, self._path(path, **values), body))

    # Files, by absolute paths as commands see them

    def get(self, path: str, start: int | None = None, size: int | None = None) -> bytes:
        """The content of a file, or `size` bytes of it from `start` on."""
        headers = {}
        if start is not None or size is not None:
            first = start or 0
            headers["Range"] = "bytes=%d-%s" % (first, "" if size is None else first + size - 1)
        return self._fetch("GET", self._path(path), None, headers)

    def put(self, path: str, data: Content, *, mode: int | None = None, parents: bool = True,
            exclusive: bool = False) -> Entry:
        """Write a file. exclusive: only where there is none."""
        content = data.encode() if isinstance(data, str) else data
        answer = self._files("PUT", path, content, mode=None if mode is None else "%o" % mode,
                             parents=parents, exclusive=exclusive)
        return Entry.of(answer["entries"][0])

    def stat(self, path: str) -> Entry:
        return Entry.of(self._files("GET", path, stat=True)["entries"][0])

    def grep(self, path: str, text: str, *, glob: str | None = None, ignore_case: bool = False) -> list[Match]:
        """Lines below path that hold the text."""
        answer = self._files("GET", path, grep=text, glob=glob, ignore_case=ignore_case)
        return [Match.of(m) for m in answer.get("matches", ())]

    def mkdir(self, path: str, *, parents: bool = True) -> None:
        self._files("POST", path, mkdir=True, parents=parents)

    def move(self, path: str, to: str) -> None:
        self._files("POST", path, move_to=to)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        self._files("DELETE", path, recursive=recursive)

    def upload(self, path: str, archive: bytes) -> None:
        """Unpack a zip or tar archive there, as a whole or not at all."""
        self._files("PUT", path, archive, archive=True)

    def download(self, path: str) -> bytes:
        """A tree as a tar archive."""
        return self._fetch("GET", self._path(path, archive=True))

    def list(self, path: str, *, recursive: bool = False, glob: str | None = None) -> list[Entry]:
        """What a directory holds, or what matches the pattern below it."""
        answer = self._files("GET", path, list=glob is None, recursive=recursive, glob=glob)
        return [Entry.of(e) for e in answer["entries"]]
