# SPDX-License-Identifier: Apache-2.0
"""What SandboxShellBackend's methods become: nsbox's own backend for deepagents over the session of a
conversation (chat.py), with MaxKB's paths and the words of its own backend.

Paths mean the same to file tools and commands. The root of the file tools is the commands' working directory, and
has skills and tmp in it; /skills and /tmp are these, and any other name at the root's top is found in a command
as well.
"""
import functools
import os
import posixpath
import re
from concurrent.futures import ThreadPoolExecutor

from nsbox_maxkb.chat import CHATS, virtual
from nsbox_maxkb.nsbox import deepagents
from nsbox_maxkb.nsbox.aio import away
from nsbox_maxkb.nsbox.errors import Error, ServiceError
from nsbox_maxkb.shell import METHODS

DEFAULT_SECONDS = 120
OUTPUT_MAX = 100000
THREADS = 256 # that wait for commands
WORKSPACE = deepagents.WORKSPACE
AS_THEY_ARE = ("workspace", "skills", "tmp")
# What every root has: a command that says such a name means the system's.
SYSTEM = frozenset("bin boot dev etc home lib lib32 lib64 libx32 media mnt nix opt proc root run sbin skills srv sys tmp "
                   "usr var workspace".split())

# $1 the command, $2 directories of modules, $3 the interpreter's directory
RUN = 'PYTHONPATH=$2 PATH=$3:$PATH sh -c "$1"; exit $?'


class Backend(deepagents.SandboxBackend):
    """Of one call: which session it is for is looked up each time."""

    def __init__(self, owner, settings):
        super().__init__(CHATS.of(settings, os.path.realpath(str(owner.cwd))),
                         timeout=getattr(owner, "_default_timeout", DEFAULT_SECONDS),
                         max_output=getattr(owner, "_max_output_bytes", OUTPUT_MAX))
        self.settings = settings

    # Paths

    def _path(self, path):
        parts = posixpath.normpath("/" + path.lstrip("/")).split("/")
        if parts[1] in AS_THEY_ARE:
            return "/".join(parts)
        return posixpath.normpath(WORKSPACE + "/".join(parts))

    def _told(self, place):
        return virtual(place)

    def bases(self, path):
        """The root of the file tools is in three places."""
        base = self._path(path or "/")
        return [base, "/skills", "/tmp"] if base == WORKSPACE else [base]

    def together(self, answers):
        """One answer of those for the parts of the root, or the first that went wrong."""
        for answer in answers:
            if answer.error:
                return answer
        for answer in answers[1:]:
            answers[0].matches.extend(answer.matches)
        return answers[0]

    # Files, where the root is not as other directories

    def ls(self, path):
        answer = super().ls(path)
        if not answer.error and self._path(path) == WORKSPACE:
            for entry in answer.entries: # of two there are links
                entry["is_dir"] = entry["is_dir"] or entry["path"] in ("/skills", "/tmp")
        return answer

    def grep(self, pattern, path=None, glob=None, *, max_count=None):
        ask = super().grep
        answer = self.together([ask(pattern, base, glob) for base in self.bases(path)])
        if max_count is not None and not answer.error and len(answer.matches) > max_count:
            answer.matches, answer.truncated = answer.matches[:max_count], True
        return answer

    def glob(self, pattern, path="/"):
        ask = super().glob
        wanted = pattern.lstrip("/")
        first, _, rest = wanted.partition("/")
        if first in AS_THEY_ARE and rest and self._path(path or "/") == WORKSPACE:
            return ask(rest, "/" + first)
        wanted = wanted if rest else "**/" + wanted
        return self.together([ask(wanted, base) for base in self.bases(path)])

    # These answer lists, which cannot say what went wrong: of nothing there is nothing, anything else is raised

    def listed(self, path, ask):
        try:
            self.session.stat(self._path(path))
        except ServiceError as error:
            if error.status == 404:
                return []
            raise
        answer = ask()
        if answer.error:
            raise Exception("nsbox: %s." % answer.error)
        return answer

    def ls_info(self, path):
        return list(getattr(self.listed(path, lambda: self.ls(path)), "entries", ()))

    def glob_info(self, pattern, path="/"):
        return list(getattr(self.listed(path, lambda: self.glob(pattern, path)), "matches", ()))

    def outputs(self):
        """[(path, bytes)] of the files that are in the session and did not come with the directory."""
        return self.session.left_behind()

    # Commands

    def at_top(self, command):
        """/name at the root's top, as file tools say it, is in the working directory."""
        names = [entry.path for entry in self.session.list(WORKSPACE)]
        names = [name for name in names if name not in SYSTEM and re.fullmatch(r"[\w.-]+", name)]
        if not names:
            return command
        pattern = r"(?<![\w./~$}-])/(%s)(?![\w.-])" % "|".join(
            re.escape(name) for name in sorted(names, key=len, reverse=True))
        return re.sub(pattern, WORKSPACE + r"/\1", command)

    def remarks(self, result):
        """What a result has besides its output."""
        if self.session.is_new():
            yield "the session had ended, and this is a new one: what commands had written before is gone"
        if result.cause == "memory" or result.raw.get("oom_kills"):
            yield ("the command used more memory than %d MB (MAXKB_NSBOX_SKILL_MEM_MB)"
                   % self.settings.skill_memory_mb)
        elif result.cause not in ("exit", "signal"):
            yield result.msg or result.cause

    def run(self, command, timeout):
        seconds = timeout if timeout is not None else self._default_timeout
        with self.session.turns:
            argv = ["sh", "-c", RUN, "sh", self.at_top(command), ":".join(self.settings.path),
                    posixpath.dirname(self.settings.python)]
            result = self.session.command(argv, timeout_seconds=seconds)
        if result.cause == "wallTime":
            more = (" (custom timeout). The command may be stuck or require more time." if timeout is not None else
                    ". For long-running commands, re-run using the timeout parameter.")
            return self._response("Error: Command timed out after %s seconds%s" % (seconds, more), 124)
        output, cut = self._output(result.stdout, result.stderr, self.remarks(result))
        # What was ended has no status of its own, and is no success.
        status = result.exit_code or int(result.cause not in ("exit", "signal"))
        if status:
            output = "%s\n\nExit code: %d" % (output.rstrip(), status)
        cut = cut or bool(result.raw.get("stdout_truncated") or result.raw.get("stderr_truncated"))
        return self._response(output, status, cut)

    def execute(self, command, *, timeout=None):
        if not command or not isinstance(command, str):
            return self._response("Error: Command must be a non-empty string.", 1)
        if timeout is not None and timeout <= 0:
            raise ValueError("timeout must be positive, got %s" % timeout)
        try:
            return self.run(command, timeout)
        except Error as error:
            return self._response("Error executing command (nsbox): %s." % error, 1)
        except Exception as error:  # pylint: disable=broad-except
            return self._response("Error executing command (%s): %s" % (type(error).__name__, error), 1)


# ---------------------------------------------------------------- as methods of MaxKB's class

@functools.cache
def pool():
    return ThreadPoolExecutor(THREADS, "nsbox-skill")


def replace(cls, settings):
    def direct(name):
        def method(self, *args, **kwargs):
            return getattr(Backend(self, settings), name)(*args, **kwargs)
        return method

    def awaited(name):
        async def method(self, *args, **kwargs):
            """Who gives up waiting ends the command."""
            return await away(pool(), lambda: getattr(Backend(self, settings), name)(*args, **kwargs))
        return method

    # With our signatures: deepagents looks at them for what a version has. Files are only ever reached through the
    # session.
    for name in METHODS:
        for known, kind in ((name, direct), ("a" + name, awaited)):
            if hasattr(cls, known):
                setattr(cls, known, functools.wraps(getattr(Backend, known))(kind(name)))
    cls.outputs = direct("outputs")
