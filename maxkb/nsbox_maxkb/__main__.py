# SPDX-License-Identifier: Apache-2.0
"""For people: python3 -m nsbox_maxkb check | variables

check        ask the service, run one function as a tool would run, say what held
variables    what becomes of each of MaxKB's variables
"""
import sys

from nsbox_maxkb import client, settings as settings_module, tool

CODE = "import os, sys\ndef f(a): return [a, sys.version.split()[0], sorted(os.environ)]"


class Nothing:
    """Stands for MaxKB's module where there is none."""

    class ToolExecutor:
        pass


def check():
    settings = settings_module.Settings()
    print("service      %s" % settings.where)
    print("image        %s" % (settings.image or "host"))
    print("interpreter  %s" % settings.python)
    for problem in settings.problems:
        print("PROBLEM      %s" % problem)
    if settings.problems:
        return 1
    try:
        host = client.ask(settings, "GET", "/v1/capabilities")[1]
        print("tier         %s (kernel %s)" % (host.get("tier"), host.get("kernel")))
        client.decide_network(settings)
        print("network      %s" % settings.network)
        executor = tool.Executor(Nothing, settings)
        reply = client.run(settings, "/v1/execute/python-function", executor.body(CODE, {"a": "good"}, None))
    except client.Refused as error:
        print("PROBLEM      nsbox did not run the tool: %s." % error)
        return 1
    if reply.get("code") != 200:
        print("PROBLEM      %s" % reply.get("msg"))
        return 1
    print("a tool ran   Python %s, %d ms in all" % (reply["data"][1], reply["duration_ms"]))
    print("enforced     %s" % ", ".join(layer["layer"] for layer in reply["enforced"]))
    for layer in reply["notEnforced"]:
        print("not enforced %s: %s" % (layer["layer"], layer.get("reason")))
    return 0


def variables():
    settings = settings_module.Reader(settings_module.Environment)
    for v in settings_module.VARIABLES:
        value = settings.raw(v.key)
        print("MAXKB_%s%s\n    %s: %s" % (v.key, "=" + value if value else "", v.fate, v.text))
    return 0


def main():
    commands = {"check": check, "variables": variables}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        print("usage: python3 -m nsbox_maxkb check | variables", file=sys.stderr)
        return 2
    return commands[sys.argv[1]]()


if __name__ == "__main__":
    sys.exit(main())
