# SPDX-License-Identifier: Apache-2.0
"""Stands for the part of the worker that passes messages on: each is posted, each answer is a line."""
import json
import os
import sys
import urllib.request

READS = ("/etc/shadow", "/proc/1/root/etc/shadow")


def sandbox_failure_message(error):
    return "the standin saw %s" % type(error).__name__


def inside():
    """What a server that took the worker over would find."""
    return {"uid": os.getuid(), "preload": os.environ.get("LD_PRELOAD"), "maxkb": "MAXKB_MCP_WORKER_SETTINGS" in os.environ,
            "reads": [path for path in READS if os.access(path, os.R_OK)]}


def post(url, headers, message):
    data = json.dumps(message).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
        return json.loads(answer.read())


def run():
    connection = None
    for line in sys.stdin:
        message = json.loads(line)
        if connection is None:
            connection = message["params"]["clientInfo"].pop("maxkbSandbox")["connection"]
        url = message.get("params", {}).get("elsewhere") or connection["url"]
        answer = post(url, connection.get("headers", {}), message)
        if "id" in message:
            answer["result"]["worker"] = inside()
            print(json.dumps(answer), flush=True)
