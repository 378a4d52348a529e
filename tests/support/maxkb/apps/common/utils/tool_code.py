# SPDX-License-Identifier: Apache-2.0
"""Shaped as MaxKB's executor; what it would run itself it only says."""
import base64
import gzip
import sys
import time
from contextlib import contextmanager

from common.mcp.config import InternalMCPConfig
from maxkb.const import CONFIG

_home = CONFIG.get("SANDBOX_HOME", "/opt/maxkb-app/sandbox")
timed = []


def _(text):
    """Translations: German will do."""
    return {"Process execution timed out after {n} seconds.":
            "Nach {n} Sekunden abgebrochen."}.get(text, text) if CONFIG.get("GERMAN") else text


@contextmanager
def execution_timer(name):
    began = time.monotonic()
    yield
    timed.append((name, time.monotonic() - began))


# What a tool becomes as a server: ids given up, an empty environment, one function per tool name.
SERVER = '''
import json, os, sys
os.setgid(0)
os.setuid(4242)
os.environ.clear()
names = {}
exec(%(code)r, names)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "standin", "version": "1"}}
    elif message["method"] == "tools/list":
        result = {"tools": [{"name": n} for n, v in names.items() if callable(v) and n[0] != "_"]}
    else:
        call = message["params"]
        value = names[call["name"]](**call["arguments"])
        text = json.dumps({"result": value, "tool_id": %(id)r})
        result = {"content": [{"type": "text", "text": text}]}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
'''


class ToolExecutor:
    def __init__(self):
        pass

    def exec_code(self, code_str, keywords, function_name=None):
        if code_str == "slow":
            raise Exception(_("Process execution timed out after {n} seconds.").format(n=3600))
        return "run by MaxKB itself"

    def get_tool_mcp_config(self, tool, params):
        text = SERVER % {"code": tool.code, "id": str(tool.id)}
        packed = base64.b64encode(gzip.compress(text.encode())).decode()
        return InternalMCPConfig({
            "command": sys.executable,
            "args": ["-c", "import base64,gzip; exec(gzip.decompress(base64.b64decode('%s')).decode())" % packed],
            "cwd": _home,
            "env": {"LD_PRELOAD": _home + "/lib/sandbox.so"},
            "transport": "stdio",
        })
