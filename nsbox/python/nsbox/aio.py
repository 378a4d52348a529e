# SPDX-License-Identifier: Apache-2.0
"""The same for asyncio.

Each call runs in a thread of its own while the loop goes on. A call that is cancelled is cut off, which
ends its run in the service.
"""

import asyncio
import contextlib
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence

from .client import Client, Interactive, Job, Session
from .transport import Connection
from .types import Event

local = threading.local()


class Cut:
    """The connection of one call, to be cut from the loop."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: Connection | None = None
        self.over = False

    def hold(self, connection: Connection) -> None:
        with self.lock:
            self.connection = connection
            if self.over:
                raise asyncio.CancelledError

    def cut(self) -> None:
        with self.lock:
            self.over = True
            if self.connection is not None:
                self.connection.cut()


class Held(Client):
    """A client whose connections are known to the call that is under way in the thread."""

    def on_connection(self, connection: Connection) -> None:
        held = getattr(local, "cut", None)
        if held is not None:
            held.hold(connection)


async def away(pool: ThreadPoolExecutor, call: Callable[[], Any], cut: Cut | None = None) -> Any:
    """cut: of a connection that lives longer than one call."""
    held = cut or Cut()

    def run() -> Any:
        local.cut = held
        try:
            return call()
        finally:
            local.cut = None

    future = asyncio.get_running_loop().run_in_executor(pool, run)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        held.cut()
        future.add_done_callback(lambda f: f.cancelled() or f.exception())
        raise


async def one_by_one(pool: ThreadPoolExecutor, stream: Iterator[Event], cut: Cut) -> AsyncIterator[Event]:
    while True:
        event = await away(pool, functools.partial(next, stream, None), cut)
        if event is None:
            return
        yield event


def mirrored(kind: type, names: Sequence[str]) -> Callable[[type], type]:
    """Give a class asynchronous methods of these names, with the signatures and texts of the others'."""

    def method(name: str) -> Callable[..., Awaitable[Any]]:
        original = getattr(kind, name)

        @functools.wraps(original)
        async def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            return await away(self.pool, functools.partial(getattr(self.inner, name), *args, **kwargs))

        return call

    def decorate(cls: type) -> type:
        for name in names:
            setattr(cls, name, method(name))
        return cls

    return decorate


@mirrored(Client, ["python", "command", "skill", "jobs", "sessions", "capabilities", "receipt", "health"])
class AsyncClient:
    """As Client. calls: how many may be under way at once."""

    def __init__(self, address: str | None = None, *, calls: int = 256, **options: Any):
        self.inner = Held(address, **options)
        self.pool = ThreadPoolExecutor(calls, "nsbox")

    async def submit(self, command: str | Sequence[str], **options: Any) -> "AsyncJob":
        job = await away(self.pool, functools.partial(self.inner.submit, command, **options))
        return AsyncJob(self, job)

    async def submit_python(self, code: str, function: str | None = None,
                            params: Mapping[str, Any] | None = None, **options: Any) -> "AsyncJob":
        job = await away(self.pool, functools.partial(self.inner.submit_python, code, function, params, **options))
        return AsyncJob(self, job)

    async def interactive(self, command: str | Sequence[str], **options: Any) -> "AsyncInteractive":
        cut = Cut()
        run = await away(self.pool, functools.partial(self.inner.interactive, command, **options), cut)
        return AsyncInteractive(self, run, cut)

    def job(self, job_id: str) -> "AsyncJob":
        return AsyncJob(self, self.inner.job(job_id))

    def session(self, session_id: str, **options: Any) -> "AsyncSession":
        return AsyncSession(self, self.inner.session(session_id, **options))


@mirrored(Job, ["state", "result", "cancel", "output"])
class AsyncJob:
    """As Job."""

    def __init__(self, client: AsyncClient, job: Job):
        self.inner, self.pool, self.id = job, client.pool, job.id

    async def events(self, after: str | None = None) -> AsyncIterator[Event]:
        async for event in one_by_one(self.pool, self.inner.events(after), Cut()):
            yield event


@mirrored(Interactive, ["write"])
class AsyncInteractive(contextlib.AbstractAsyncContextManager["AsyncInteractive"]):
    """As Interactive: `async with await client.interactive(…) as run`."""

    def __init__(self, client: AsyncClient, run: Interactive, cut: Cut):
        self.inner, self.pool, self.cut = run, client.pool, cut

    async def __aexit__(self, *_: object) -> None:
        await away(self.pool, self.inner.close)

    def __aiter__(self) -> AsyncIterator[Event]:
        return one_by_one(self.pool, iter(self.inner), self.cut)


@mirrored(Session, ["start", "command", "info", "commit", "end", "get", "put", "stat", "list", "grep", "mkdir", "move",
                    "remove", "upload", "download"])
class AsyncSession(contextlib.AbstractAsyncContextManager["AsyncSession"]):
    """As Session."""

    def __init__(self, client: AsyncClient, session: Session):
        self.inner, self.pool, self.id = session, client.pool, session.id

    async def __aexit__(self, *_: object) -> None:
        await self.end()  # type: ignore[attr-defined]
