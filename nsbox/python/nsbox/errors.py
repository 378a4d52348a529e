# SPDX-License-Identifier: Apache-2.0
"""What can go wrong between a client and the service."""

from typing import Any


class Error(Exception):
    """Of this package."""


class Unreachable(Error):
    """There is no service where it was looked for, or it broke off."""


class ServiceError(Error):
    """The service refused: nothing was run.

    status is of HTTP, code a word for programs, pointer the place in the request or manifest.
    """

    def __init__(self, status: int, error: dict[str, Any]):
        self.status = status
        self.code: str = str(error.get("code") or "unknown")
        self.pointer: str | None = error.get("pointer")
        self.message: str = str(error.get("message") or "no reason was given")
        super().__init__("%s%s" % (self.pointer + ": " if self.pointer else "", self.message))


class Busy(ServiceError):
    """429: the queue, or a limit of the workspace, is full. retry_after is in seconds."""

    retry_after: float = 1.0


def of_reply(status: int, body: Any, retry_after: str | None) -> ServiceError:
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        error = {"message": "status %d" % status}
    if status != 429:
        return ServiceError(status, error)
    busy = Busy(status, error)
    try:
        busy.retry_after = float(retry_after or 1)
    except ValueError:
        pass
    return busy
