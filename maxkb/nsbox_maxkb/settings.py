# SPDX-License-Identifier: Apache-2.0
"""What the operator says: MaxKB's own variables, as far as they concern sandboxes, and ours.

MaxKB keeps them in a dictionary, where a variable MAXKB_X is the key X, and reads them once; so do
we, when the module that uses them is imported. VARIABLES tells of each what becomes of it: it is
printed by `python3 -m nsbox_maxkb variables` and compared with docs/maxkb.md by a test.
"""
import ipaddress
import os
import sys
from collections import namedtuple

HONOURED, SUPERSEDED, IGNORED, OTHER = "honoured", "superseded", "ignored", "not ours"

Variable = namedtuple("Variable", "key fate text")
VARIABLES = tuple(Variable(*row) for row in (
    ("TOOL_EXECUTOR_BACKEND", HONOURED,
     "nsbox (default where this package is installed) or local: MaxKB's own executor"),
    ("NSBOX_SOCKET", HONOURED, "nsboxd's socket; default /run/nsbox/nsbox.sock"),
    ("NSBOX_MIN_TIER", OTHER, "for 10-nsbox.sh, which starts the service: process, namespace or cgroup"),
    ("NSBOX_URL", HONOURED, "http://host:port of an nsboxd on TCP, instead of the socket"),
    ("NSBOX_TOKEN_FILE", HONOURED, "file with the bearer token for NSBOX_URL"),
    ("NSBOX_IMAGE", HONOURED, "image that tools run in; default host, where nsboxd runs"),
    ("NSBOX_PYTHON", HONOURED, "interpreter inside the image; default MaxKB's own"),
    ("NSBOX_COMPAT", HONOURED,
     "behaviours of MaxKB's executor to have to the letter: recursion, subprocess; comma list"),
    ("NSBOX_NETWORK", HONOURED,
     "open: hosts but those that are always denied or banned; none; unset: open where the service grants it"),
    ("NSBOX_PIDS", HONOURED, "processes and threads of a run; default 128"),
    ("NSBOX_RESULT_MB", HONOURED, "size of a tool's result; default 128"),
    ("NSBOX_SKILL_MEM_MB", HONOURED, "memory of a conversation's session, all its commands together; default 1024"),
    ("NSBOX_QUEUE_SECONDS", HONOURED, "how long a call may wait for its turn; default 600"),
    ("SANDBOX", SUPERSEDED, "tools run in a sandbox whatever it says; 0 is not needed any more"),
    ("SANDBOX_HOME", SUPERSEDED, "nothing is written there; a run has a working directory of its own"),
    ("SANDBOX_PYTHON_PACKAGE_PATHS", HONOURED, "directories of modules, which the image must show"),
    ("SANDBOX_PYTHON_BANNED_HOSTS", HONOURED,
     "addresses and networks go with each run; patterns of names are the service's: ceiling.bannedHosts"),
    ("SANDBOX_PYTHON_ALLOW_SUBPROCESS", HONOURED,
     "0: starting a program raises PermissionError (in MCP servers what Python starts); unset or 1: it starts, in the same sandbox"),
    ("SANDBOX_PYTHON_ALLOW_SYSCALL", SUPERSEDED,
     "the kernel's filter judges every call, through whichever library it is made"),
    ("SANDBOX_PYTHON_ALLOW_DL_OPEN", SUPERSEDED,
     "ctypes and cffi load libraries: none can do more than the sandbox lets them"),
    ("SANDBOX_PYTHON_ALLOW_DL_PATHS", SUPERSEDED, "as SANDBOX_PYTHON_ALLOW_DL_OPEN"),
    ("SANDBOX_PYTHON_PROCESS_LIMIT_TIMEOUT_SECONDS", HONOURED,
     "wall clock; at its end all of the run's processes are killed; default 3600"),
    ("SANDBOX_PYTHON_PROCESS_LIMIT_CPU_CORES", HONOURED, "processors; default 1"),
    ("SANDBOX_PYTHON_PROCESS_LIMIT_MEM_MB", HONOURED,
     "memory that is used, by all processes of the run, not address space; default 256"),
    ("SANDBOX_TMP_DIR_ENABLED", SUPERSEDED, "each run has a /tmp of its own that it can write to"),
    ("SANDBOX_PYTHON_BANNED_KEYWORDS", IGNORED, "MaxKB removed it"),
    ("SANDBOX_PYTHON_PROCESS_TIMEOUT_SECONDS", IGNORED, "MaxKB removed it"),
    ("SANDBOX_PYTHON_ALLOW_DL_PATH_CONTAINMENT", IGNORED, "MaxKB removed it"),
    ("LANGCHAIN_GRAPH_RECURSION_LIMIT", OTHER, "steps of an agent: MaxKB reads it as before"),
    ("MCP_ALLOWED_NETWORKS", OTHER, "external MCP servers: MaxKB reads it as before"),
))

BACKENDS = ("nsbox", "local")
# The environment of a tool is empty in MaxKB, and tools were written there.
COMPAT_ALWAYS = ("environment",)
COMPAT_CHOICES = ("recursion", "subprocess")


said = set()


def say(text):
    """On standard error, which is the container's log; once per process."""
    if text not in said:
        said.add(text)
        print("nsbox: " + text, file=sys.stderr, flush=True)


class Environment:
    """MaxKB's dictionary where there is none: the variables themselves."""

    @staticmethod
    def get(key, default=None):
        return os.environ.get("MAXKB_" + key, default)


class Reader:
    """Values of a dictionary as what they should be. What is wrong is kept for each call to say."""

    def __init__(self, config):
        self.config = config
        self.problems = []

    def raw(self, key):
        value = self.config.get(key)
        if value is None:  # MaxKB's file of settings may not know our keys: then the environment
            value = os.environ.get("MAXKB_" + key)
        return "" if value is None else str(value).strip()

    def number(self, key, default, least):
        text = self.raw(key)
        try:
            value = int(text) if text else default
        except ValueError:
            value = None
        if value is None or value < least:
            self.problems.append("MAXKB_%s is '%s', not a number of at least %d" % (key, text, least))
            return default
        return value

    def choice(self, key, choices):
        text = self.raw(key) or choices[0]
        if text not in choices:
            self.problems.append("MAXKB_%s is '%s', not %s" % (key, text, " or ".join(filter(None, choices))))
        return text

    def words(self, key, choices=None):
        words = [word.strip() for word in self.raw(key).split(",") if word.strip()]
        for word in words:
            if choices and word not in choices:
                self.problems.append("MAXKB_%s names '%s', which is none of %s" % (
                    key, word, ", ".join(choices)))
        return words


def package_paths(reader):
    get = getattr(reader.config, "get_sandbox_python_package_paths", None)
    text = get() if callable(get) else reader.raw("SANDBOX_PYTHON_PACKAGE_PATHS")
    return [path.strip() for path in str(text).split(",") if path.strip()]


def banned(reader):
    """(networks as CIDR, patterns of names) of MaxKB's list."""
    networks, names = [], []
    for word in reader.words("SANDBOX_PYTHON_BANNED_HOSTS"):
        try:
            networks.append(str(ipaddress.ip_network(word, strict=False)))
        except ValueError:
            names.append(word)
    return sorted(set(networks)), names


def cores(reader):
    asked = reader.number("SANDBOX_PYTHON_PROCESS_LIMIT_CPU_CORES", 1, -sys.maxsize)
    return min(max(asked, 1), len(os.sched_getaffinity(0)))


class Settings:
    def __init__(self, config=None):
        reader = Reader(config if config is not None else Environment)
        self.backend = reader.choice("TOOL_EXECUTOR_BACKEND", BACKENDS)
        self.url = reader.raw("NSBOX_URL")
        self.socket = reader.raw("NSBOX_SOCKET") or "/run/nsbox/nsbox.sock"
        self.where = self.url or self.socket  # for messages
        self.token_file = reader.raw("NSBOX_TOKEN_FILE")
        self.image = reader.raw("NSBOX_IMAGE")
        self.python = reader.raw("NSBOX_PYTHON") or sys.executable
        self.path = package_paths(reader)
        self.home = reader.raw("SANDBOX_HOME") or "/opt/maxkb-app/sandbox"
        self.network = reader.choice("NSBOX_NETWORK", ("", "open", "none"))
        self.banned, self.banned_names = banned(reader)
        self.compat = [*COMPAT_ALWAYS, *reader.words("NSBOX_COMPAT", COMPAT_CHOICES)]
        self.subprocess = reader.raw("SANDBOX_PYTHON_ALLOW_SUBPROCESS") != "0"
        self.seconds = reader.number("SANDBOX_PYTHON_PROCESS_LIMIT_TIMEOUT_SECONDS", 3600, 1)
        self.cores = cores(reader)
        self.memory_mb = reader.number("SANDBOX_PYTHON_PROCESS_LIMIT_MEM_MB", 256, 16)
        self.skill_memory_mb = reader.number("NSBOX_SKILL_MEM_MB", 1024, 16)
        self.pids = reader.number("NSBOX_PIDS", 128, 2)
        self.result_mb = reader.number("NSBOX_RESULT_MB", 128, 1)
        self.queue_seconds = reader.number("NSBOX_QUEUE_SECONDS", 600, 1)
        self.notes = ["MAXKB_%s has no effect: %s" % (v.key, v.text) for v in VARIABLES
                      if v.fate in (SUPERSEDED, IGNORED) and reader.raw(v.key)]
        self.problems = reader.problems
        if self.url and not self.url.startswith("http://"):
            self.problems.append("MAXKB_NSBOX_URL is '%s', not http://host:port" % self.url)

    def manifest(self, name, subprocess=True):
        """The policy of a run, as skill.json(5) has it."""
        manifest = {
            "manifestVersion": 1,
            "name": name,
            "resources": {"memory": "%dMi" % self.memory_mb, "cpu": str(self.cores), "pids": self.pids,
                          "result": "%dMi" % self.result_mb},
            "timeouts": {"wall": "%ds" % self.seconds},
            "process": {"subprocess": "any" if subprocess else "none"},
        }
        if self.network == "open":
            manifest["network"] = {"mode": "open"}
            if self.banned:
                manifest["network"]["denyCidrs"] = self.banned
        return manifest
