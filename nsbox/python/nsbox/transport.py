# SPDX-License-Identifier: Apache-2.0
"""HTTP to the service, over a Unix socket or TCP: one connection per call.

So threads share nothing, and closing the connection of a call, which cancels its run, is nobody
else's business.
"""

import http.client
import json
import os
import socket
import urllib.parse
from typing import Any, Iterator

from .errors import Error, Unreachable, of_reply

SOCKET = "/run/nsbox/nsbox.sock"
CONNECT_SECONDS = 10.0


class Connection(http.client.HTTPConnection):
    """path: of a Unix socket, else host and port are used."""

    def __init__(self, path: str | None, host: str, port: int, timeout: float | None):
        super().__init__(host, port, timeout=timeout)
        self.path = path

    def connect(self) -> None:
        if self.path is None:
            self.sock = socket.create_connection((self.host, self.port), CONNECT_SECONDS)
        else:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self.sock.settimeout(CONNECT_SECONDS)
                self.sock.connect(self.path)
            except OSError:
                self.sock.close()
                raise
        self.sock.settimeout(self.timeout)

    def cut(self) -> None:
        """From another thread: end the call, and the run with it."""
        sock = self.sock
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Transport:
    """Where the service is and who asks."""

    def __init__(self, address: str | None, token: str | None, token_file: str | None):
        address = address or os.environ.get("NSBOX_SOCKET") or SOCKET
        self.address = address
        self.token, self.token_file = token, token_file
        self.path: str | None = None
        self.host, self.port = "localhost", 80
        if address.startswith("http://"):
            place = urllib.parse.urlsplit(address)
            self.host, self.port = place.hostname or "localhost", place.port or 80
        elif "://" in address and not address.startswith("unix://"):
            raise ValueError("address %r: a path of a Unix socket or http://HOST:PORT" % address)
        else:
            self.path = address.removeprefix("unix://")

    def headers(self) -> dict[str, str]:
        """A token in a file is read each time: it may be changed while the client lives."""
        token = self.token
        if self.token_file is not None:
            try:
                with open(self.token_file, encoding="ascii") as f:
                    token = f.read().strip()
            except (OSError, ValueError) as error:
                raise Error("the token file %s cannot be read (%s)" % (self.token_file, error)) from None
        return {"Authorization": "Bearer " + token} if token else {}

    def connection(self, timeout: float | None) -> Connection:
        return Connection(self.path, self.host, self.port, timeout)

    def send(self, connection: Connection, method: str, path: str, body: Any,
             headers: dict[str, str]) -> http.client.HTTPResponse:
        sent = dict(headers, **self.headers())
        data = body
        if body is not None and not isinstance(body, bytes):
            data = json.dumps(body).encode("ascii")
            sent["Content-Type"] = "application/json"
        try:
            connection.connect()
        except OSError as error:
            raise Unreachable("the service at %s cannot be reached (%s)"
                              % (self.address, error.strerror or error)) from None
        connection.request(method, path, data, sent)
        return connection.getresponse()

    def fetch(self, connection: Connection, method: str, path: str, body: Any = None,
              headers: dict[str, str] | None = None) -> bytes:
        """The bytes of one answer. An answer that is a refusal is raised as ServiceError."""
        try:
            answer = self.send(connection, method, path, body, headers or {})
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable("the service at %s broke off (%s)"
                              % (self.address, error or type(error).__name__)) from None
        finally:
            connection.close()
        if answer.status >= 400:
            raise of_reply(answer.status, decoded(data), answer.headers.get("Retry-After"))
        return data

    def lines(self, connection: Connection, method: str, path: str, body: Any = None,
              headers: dict[str, str] | None = None) -> Iterator[str]:
        """The lines of an answer as they come."""
        try:
            answer = self.send(connection, method, path, body, headers or {})
            if answer.status >= 400:
                raise of_reply(answer.status, decoded(answer.read()), answer.headers.get("Retry-After"))
            for line in answer:
                yield line.decode("utf-8").rstrip("\r\n")
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable("the service at %s broke off (%s)"
                              % (self.address, error or type(error).__name__)) from None
        finally:
            connection.close()


def decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def query(**values: Any) -> str:
    """?a=1&b=2 of what is neither None nor False; True is 1."""
    given = {k: 1 if v is True else v for k, v in values.items() if v is not None and v is not False}
    return "?" + urllib.parse.urlencode(given) if given else ""


def quoted(path: str) -> str:
    return urllib.parse.quote(path.lstrip("/"), safe="/")
