# SPDX-License-Identifier: Apache-2.0
"""sandbox_connection: external MCP servers, which MaxKB's newest branch reaches through a worker.

The worker passes messages between MaxKB and a server on the network. MaxKB has it check, before it starts,
that a preloaded library watches its calls. In a run nothing is preloaded and nobody is root: only the part
that passes messages on is taken into it, MaxKB's own file, and the kernel lets it reach the host and port
of its server and no other. What is secret still travels in the first message alone.
"""
import importlib.machinery
import inspect
import os
import urllib.parse

from nsbox_maxkb import tool

FUNCTION = "sandbox_connection"
WORKER = "sandbox_proxy"
PORTS = {"http": 80, "https": 443}

# In the run: what passes messages on lies in the working directory.
BRIDGE = """
import importlib.machinery, importlib.util, os, sys
sys.dont_write_bytecode = True
sys.path.extend(path for path in %(path)r if path not in sys.path)
spec = importlib.machinery.PathFinder.find_spec(%(name)r, [os.getcwd()])
if spec is None:
    sys.exit("MCP sandbox worker failed: the image's Python cannot read %(name)s.")
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
try:
    worker.run()
except Exception as error:
    sys.exit("MCP sandbox worker failed: %%s." %% worker.sandbox_failure_message(error))
"""


# ---------------------------------------------------------------- shape

def worker_of(module):
    """Where the part is that passes messages on, with or without source; or None."""
    place = os.path.dirname(os.path.abspath(module.__file__))
    return importlib.machinery.PathFinder.find_spec(WORKER, [place])


def functions_of(spec):
    """The functions of a module that is not imported: it may need what only a worker may load."""
    code = spec.loader.get_code(spec.name)
    return {value.co_name for value in code.co_consts if inspect.iscode(value)}


def problems(module):
    function = getattr(module, FUNCTION, None)
    if not inspect.isfunction(function):
        return ["there is no function %s" % FUNCTION]
    found = []
    if tool.parameters(function) != ["config"]:
        found.append("%s takes (%s)" % (FUNCTION, ", ".join(tool.parameters(function))))
    if not callable(getattr(module, "remote_connection", None)):
        found.append("it has no remote_connection")
    spec = worker_of(module)
    if spec is None or not spec.origin:
        return [*found, "there is no %s beside it" % WORKER]
    missing = sorted({"run", "sandbox_failure_message"} - functions_of(spec))
    if missing:
        found.append("%s has no %s" % (WORKER, " and no ".join(missing)))
    return found


# ---------------------------------------------------------------- connections

def network_to(url, settings):
    """A policy that grants the server and nothing else."""
    place = urllib.parse.urlsplit(url)
    try:
        port = place.port or PORTS[place.scheme]
    except (KeyError, ValueError):
        port = None
    if not place.hostname or not port:
        raise Exception("nsbox does not reach the MCP server: its address is not http:// or https:// and a host.")
    if settings.network == "none":
        raise Exception("nsbox does not reach the MCP server: MAXKB_NSBOX_NETWORK is none.")
    network = {"mode": "allowlist", "allow": [{"host": place.hostname, "ports": [port],
                                               "description": "an MCP server that MaxKB was given"}]}
    if settings.banned:
        network["denyCidrs"] = settings.banned
    return network


def through_nsbox(connection, url, spec, settings):
    """MaxKB's description of its worker becomes one of ours; what its client is told besides is kept."""
    if connection.get("transport") != "stdio" or not isinstance(connection.get("args"), list):
        raise Exception("nsbox does not reach the MCP server: MaxKB describes its worker in a way that this "
                        "drop-in does not know.")
    code = BRIDGE % {"path": settings.path, "name": WORKER}
    return tool.through(connection, settings, ["-c", code], subprocess=False, network=network_to(url, settings),
                        files={os.path.basename(spec.origin): spec.origin})


def patch(module, settings):
    describe = module.sandbox_connection
    spec = worker_of(module)

    def sandbox_connection(config):
        """How to start what reaches an external MCP server, in a sandbox of nsbox."""
        url = str(module.remote_connection(config).get("url"))
        return through_nsbox(describe(config), url, spec, settings)

    module.sandbox_connection = sandbox_connection


def close(module, why):
    def refuse(*_, **__):
        raise Exception(why)

    module.sandbox_connection = refuse
