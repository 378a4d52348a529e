# SPDX-License-Identifier: Apache-2.0
"""Shaped as the newest branch's: a worker between MaxKB and an MCP server on the network."""
import os
import sys

from common.mcp.config import remote_connection
from maxkb.const import CONFIG


class Implementation(dict):
    """Stands for the client's description of itself, which may hold more than its name."""


def sandbox_connection(config):
    home = CONFIG.get("SANDBOX_HOME", "/opt/maxkb-app/sandbox")
    return {
        "transport": "stdio",
        "command": sys.executable,
        "args": ["-I", os.path.join(os.path.dirname(__file__), "sandbox_worker.py")],
        "cwd": home,
        "env": {"LD_PRELOAD": home + "/lib/sandbox.so", "MAXKB_MCP_WORKER_SETTINGS": "{}"},
        "session_kwargs": {"client_info": Implementation(
            name="maxkb-sandbox", version="1", maxkbSandbox={"connection": remote_connection(config)})},
    }
