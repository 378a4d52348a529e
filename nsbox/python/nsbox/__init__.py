# SPDX-License-Identifier: Apache-2.0
"""Client of nsboxd: run untrusted Python functions, commands and skills in sandboxes.

    import nsbox

    client = nsbox.Client()                                   # /run/nsbox/nsbox.sock
    client.python("def add(a, b): return a + b", a=1, b=2).data      # 3
    client.command("wc -l <data.csv", files={"data.csv": b"a\\nb\\n"}).stdout

    with client.session("report-7") as session:
        session.put("/workspace/data.csv", b"a,1\\n")
        session.command("sort data.csv >sorted.csv")
        session.get("/workspace/sorted.csv")

`AsyncClient` has the same methods for asyncio. Nothing but the standard library is needed, and a client
may be used by any number of threads: each call has a connection of its own, and a caller that goes away
takes its run with it.

`nsbox.deepagents.SandboxBackend` is a session as a backend of deepagents.

Runs that fail are no exceptions: `Result.cause` says how a run ended. `ServiceError` is raised where the
service did not run it, `Unreachable` where there is no service.
"""

from .aio import AsyncClient, AsyncInteractive, AsyncJob, AsyncSession
from .client import Client, Interactive, Job, Session
from .errors import Busy, Error, ServiceError, Unreachable
from .types import Denial, Entry, Event, Match, Output, Result

__all__ = ["AsyncClient", "AsyncInteractive", "AsyncJob", "AsyncSession", "Busy", "Client", "Denial", "Entry", "Error", "Event", "Interactive",
           "Job", "Match", "Output", "Result", "ServiceError", "Session", "Unreachable"]
__version__ = "0.1.0"
