# SPDX-License-Identifier: Apache-2.0
"""ToolExecutor: functions of tools, and tools as MCP servers.

Instances of it are shared by all threads of a server, and so is what is here: it holds nothing but
settings that do not change.
"""
import inspect
import json
import os
import re
import sys
import uuid
from contextlib import nullcontext

from nsbox_maxkb import client

CLASS = "ToolExecutor"
TIMEOUT = "Process execution timed out after {} seconds."
SENTENCE = re.compile(r"^Process execution timed out after (\{\w*\}|%(?:\(\w+\))?[sd]) seconds\.?$")


# ---------------------------------------------------------------- shape

def parameters(function):
    return [name for name in inspect.signature(function).parameters if name != "self"]


def problems(module):
    """What is not as this file expects it; empty where all is."""
    found = []
    cls = getattr(module, CLASS, None)
    if not inspect.isclass(cls):
        return ["there is no class %s" % CLASS]
    if cls.__init__ is not object.__init__ and parameters(cls.__init__):
        found.append("%s() takes arguments" % CLASS)
    for name, known in (("exec_code", (["code_str", "keywords"],
                                       ["code_str", "keywords", "function_name"])),
                        ("get_tool_mcp_config", (["tool", "params"],))):
        method = inspect.getattr_static(cls, name, None)
        if not inspect.isfunction(method):
            found.append("%s.%s is no method" % (CLASS, name))
        elif parameters(method) not in known:
            found.append("%s.%s takes (%s)" % (CLASS, name, ", ".join(parameters(method))))
    return found


def constants(code):
    """All constants of a code object and of those within it."""
    for value in code.co_consts:
        if inspect.iscode(value):
            yield from constants(value)
        else:
            yield value


def timeout_template(cls):
    """The sentence as this MaxKB writes it, which is what its translations know; or None."""
    for value in vars(cls).values():
        function = getattr(value, "__func__", value)
        if inspect.isfunction(function):
            for text in constants(function.__code__):
                if isinstance(text, str) and SENTENCE.match(text):
                    return text
    return None


# ---------------------------------------------------------------- functions

class Executor:
    def __init__(self, module, settings):
        self.settings = settings
        self.template = timeout_template(getattr(module, CLASS))
        self.translate = getattr(module, "_", None)
        self.timer = getattr(module, "execution_timer", None)

    def body(self, code, keywords, function):
        body = {"code": code, "manifest": self.settings.manifest("maxkb-tool", self.settings.subprocess),
                "compat": self.settings.compat,
                # As MaxKB writes them into its program: what has no repr that says it, has none here.
                "params_python": repr(keywords),
                "python": {"interpreter": self.settings.python, "path": self.settings.path}}
        if function:
            body["function_name"] = function
        if self.settings.image:
            body["image"] = self.settings.image
        return body

    def timeout_text(self):
        if not self.template:
            return TIMEOUT.format(self.settings.seconds)
        text = str(self.translate(self.template)) if callable(self.translate) else self.template
        number = str(self.settings.seconds)
        return re.sub(r"\{\w*\}|%(?:\(\w+\))?[sd]", number, text)

    def timed(self, name):
        """MaxKB's own record of how long it took, where it keeps one."""
        if callable(self.timer):
            try:
                timer = self.timer(name)
            except TypeError:
                return nullcontext()
            if hasattr(timer, "__enter__"):
                return timer
        return nullcontext()

    def call(self, code, keywords, function=None):
        trace = str(uuid.uuid4())
        try:
            client.decide_network(self.settings)
            body = dict(self.body(code, keywords, function), trace_id=trace)
            with self.timed(trace):
                reply = client.run(self.settings, "/v1/execute/python-function", body)
        except client.Refused as error:
            raise Exception("nsbox did not run the tool: %s." % error) from None
        if reply.get("code") == 200:
            return reply.get("data")
        if reply.get("cause") == "wallTime":
            raise Exception(self.timeout_text())
        raise Exception(reply.get("msg") or "")


# ---------------------------------------------------------------- MCP servers

def through(config, settings, args, **more):
    """A program of the interpreter's, -c and its text, is started by stdio.py, which is told more of its run."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "stdio.py")
    config["args"] = ["-I", "-S", program, "--", settings.python, *args]
    config["command"] = sys.executable
    if not os.path.isdir(config.get("cwd") or ""): # MaxKB may never have made it, and nothing is done there
        config["cwd"] = "/"
    config["env"] = {"NSBOX_MAXKB": json.dumps(dict(more, settings=vars(settings)))}
    return config


def as_server(config, settings):
    """MaxKB's way to start a server becomes ours, in the object that MaxKB made: its type is what
    permits it to be started at all."""
    args = config.get("args") if isinstance(config, dict) else None
    if not isinstance(args, list) or len(args) != 2 or args[0] != "-c" or config.get("transport") != "stdio":
        raise Exception("nsbox does not run the MCP server: MaxKB describes it in a way that this "
                        "drop-in does not know.")
    try:
        client.decide_network(settings)
    except client.Refused:
        pass  # the server's own start says it, as an answer to its client
    return through(config, settings, args)


# ---------------------------------------------------------------- packages

def open_up(settings):
    """MaxKB closes the directory of its sandbox, with the packages in it, to all but root's group. In a
    run nobody is of that group: others may read again what is shown to tools anyway."""
    home = os.path.join(settings.home, "")
    for top in settings.path:
        if not os.path.normpath(top).startswith(home) or not os.path.isdir(top) or os.stat(top).st_mode & 0o005 == 0o005:
            continue
        for where, _, names in os.walk(top):
            for path in (where, *(os.path.join(where, name) for name in names)):
                if not os.path.islink(path):
                    mode = os.stat(path).st_mode & 0o7777
                    os.chmod(path, mode | (mode >> 3 & 0o005))


# ---------------------------------------------------------------- patch

def patch(module, settings):
    cls = getattr(module, CLASS)
    executor = Executor(module, settings)
    open_up(settings)
    describe = cls.get_tool_mcp_config

    def exec_code(self, code_str, keywords, function_name=None):
        """Run a tool's function in a sandbox of nsbox."""
        return executor.call(code_str, keywords, function_name)

    def get_tool_mcp_config(self, tool, params):
        """How to start a tool as an MCP server, in a sandbox of nsbox."""
        return as_server(describe(self, tool, params), settings)

    cls.exec_code = exec_code
    cls.get_tool_mcp_config = get_tool_mcp_config


def close(module, why):
    """Nothing runs here, and each call says why."""
    cls = getattr(module, CLASS, None)

    def refuse(*_, **__):
        raise Exception(why)

    if inspect.isclass(cls):
        for name in ("exec_code", "get_tool_mcp_config"):
            setattr(cls, name, refuse)
