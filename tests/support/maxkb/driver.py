# SPDX-License-Identifier: Apache-2.0
"""Stands for MaxKB's server process: imports the stand-ins with the drop-in installed as a .pth
file, then does what each line of standard input says and answers with a line.

    {"call": CODE, "keywords": TEXT, "function": NAME}   keywords is a Python expression
    {"mcp": CODE, "id": ID}                              how a tool is started as an MCP server
    {"external": CONFIG}                                 how an external MCP server is reached
    {"shell": COMMAND, "root": DIRECTORY, "timeout": N}  a skill's command; with "cancel": N given up after so long,
                                                         with "later" in a thread that nobody asks
    {"files": METHOD, "root": DIRECTORY, "args": [...]}  its file tools; bytes are told as text
    {"vanish": DIRECTORY}                                as MaxKB removes it
    {"many": N, "code": CODE}                            N threads at once, each with n=its number
    {"calls": [CALL, ...]}                               some threads at once; the answers as a list

Standard output holds the answers alone.
"""
import asyncio
import dataclasses
import datetime
import json
import shutil
import site
import sys
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

if sys.argv[1] != "-":  # else it is installed where this Python looks itself
    site.addsitedir(sys.argv[1])
sys.path[:0] = sys.argv[2:]
# pylint: disable=wrong-import-position,import-error
from common.utils import tool_code

executor = tool_code.ToolExecutor()
pool = ThreadPoolExecutor()
NAMES = {"nan": float("nan"), "datetime": datetime, "UUID": uuid.UUID}


def attempt(function, *args):
    try:
        return {"value": function(*args)}
    except Exception as error:  # pylint: disable=broad-except
        return {"error": str(error), "type": type(error).__name__, "args": len(error.args)}


def call(order):
    keywords = eval(order.get("keywords", "{}"), NAMES)
    if "function" in order:
        return attempt(executor.exec_code, order["call"], keywords, order["function"])
    return attempt(executor.exec_code, order["call"], keywords)


def many(order):
    answers = [None] * order["many"]
    start = threading.Barrier(len(answers))

    def one(n):
        start.wait()
        answers[n] = attempt(executor.exec_code, order["code"], {"n": n})

    threads = [threading.Thread(target=one, args=(n,)) for n in range(len(answers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def some(order):
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(call, order["calls"]))


def backend_of(order):
    from application.flow.backend.sandbox_shell import SandboxShellBackend

    more = {"timeout": order["default_timeout"]} if "default_timeout" in order else {}
    return SandboxShellBackend(root_dir=order["root"], virtual_mode=True, **more)


async def give_up(awaited, seconds):
    try:
        return vars(await asyncio.wait_for(awaited, seconds))
    except asyncio.TimeoutError:
        return "given up"


def shell(order):
    backend = backend_of(order)
    limit = {"timeout": order["timeout"]} if "timeout" in order else {}
    if "later" in order:
        pool.submit(backend.execute, order["shell"])
        return None
    if "cancel" in order:
        return attempt(lambda: asyncio.run(give_up(backend.aexecute(order["shell"]), order["cancel"])))
    return attempt(lambda: vars(backend.execute(order["shell"], **limit)))


def plain(value):
    """As JSON has it."""
    if dataclasses.is_dataclass(value):
        return {name: plain(v) for name, v in vars(value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def files(order):
    args = order.get("args", [])
    if order["files"] == "upload_files":
        args = [[(path, text.encode()) for path, text in args[0]]]

    def ask():
        answer = getattr(backend_of(order), order["files"])(*args)
        return plain(asyncio.run(answer) if asyncio.iscoroutine(answer) else answer)

    return attempt(ask)


def vanish(order):
    shutil.rmtree(order["vanish"])
    return None


class Tool:
    name, desc = "tool", "a tool"

    def __init__(self, code, number):
        self.code, self.id = code, number


def mcp(order):
    def describe():
        config = executor.get_tool_mcp_config(Tool(order["mcp"], order["id"]), {})
        return {"type": type(config).__name__, "config": config}

    return attempt(describe)


def external(order):
    from common.mcp.sandbox import sandbox_connection

    return attempt(sandbox_connection, order["external"])


WISHES = {"external": external, "vanish": vanish, "files": files, "shell": shell, "many": many, "calls": some, "mcp": mcp, "call": call}
for text in sys.stdin:
    wish = json.loads(text)
    print(json.dumps(next(WISHES[key] for key in WISHES if key in wish)(wish)), flush=True)
