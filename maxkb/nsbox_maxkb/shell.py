# SPDX-License-Identifier: Apache-2.0
"""SandboxShellBackend: a skill's commands, each in a sandbox of nsbox.

The whole line is for the shell inside: nothing here reads it. The backend's directory travels: what is in
it goes into the run's working directory, and what the run leaves there comes back, as plain contents that
this process writes. So the file tools, which work on that directory with all of MaxKB's rights, never
touch a place that a skill can write to: no link, device or owner of a run's gets there.

Paths mean the same to file tools and commands: /skills/x and /tmp/x are the directory's skills/x and tmp/x,
and any other name at its top is found in the working directory.
"""
import base64
import inspect
import io
import os
import re
import stat
import tarfile
import threading

from nsbox_maxkb import client

CLASS = "SandboxShellBackend"
DEFAULT_SECONDS = 120
OUTPUT_MAX = 100000
TREE_MAX = 56 << 20  # in base64 it has to fit into a request
FILES_MAX = 4096
LOADED = (b"#!", b"\x7fELF")

# $1 the command, $2 directories of modules, $3 the interpreter's directory
PRELUDE = """
work=$PWD
for d in skills/*; do test -e "$d" && ln -s "$work/$d" /skills/; done 2>/dev/null
test -d tmp && cp -a tmp/. /tmp/ 2>/dev/null
PYTHONPATH=$2 PATH=$3:$PATH sh -c "$1"
status=$?
cd "$work" && rm -rf tmp
test -n "$(ls -A /tmp)" && mkdir tmp && cp -a /tmp/. tmp/ 2>/dev/null
exit $status
"""


# ---------------------------------------------------------------- the directory

def mark_of(path):
    """What tells that a file has been written to."""
    info = os.lstat(path)
    return info.st_mtime_ns, info.st_size, info.st_ino


def starts_program(path, info):
    """Archives lose the execute bit, and unpacking in MaxKB always does."""
    if info.st_mode & 0o111:
        return True
    with open(path, "rb") as f:
        return f.read(4).startswith(LOADED)


def pack(root):
    """(tar file as bytes, {path: mark} of the files in it); links and the like stay where they are."""
    seen = {}
    size = 0
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for where, names, files in os.walk(root):
            names.sort()
            for name in sorted(files) + [n for n in names if not os.path.islink(os.path.join(where, n))]:
                path = os.path.join(where, name)
                info = os.lstat(path)
                if not stat.S_ISREG(info.st_mode) and not stat.S_ISDIR(info.st_mode):
                    continue
                member = tarfile.TarInfo(os.path.relpath(path, root))
                member.mtime = int(info.st_mtime)
                if stat.S_ISDIR(info.st_mode):
                    member.type, member.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(member)
                    continue
                size += info.st_size
                if size > TREE_MAX or len(seen) >= FILES_MAX:
                    raise client.Refused("the directory holds more than %d MB or %d files"
                                         % (TREE_MAX >> 20, FILES_MAX))
                member.mode = 0o755 if starts_program(path, info) else 0o644
                with open(path, "rb") as f:
                    data = f.read()
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
                seen[member.name] = mark_of(path)
    return out.getvalue(), seen


def inside(root, name):
    """The place of a file that came back; None where its name leads anywhere else."""
    parts = name.split("/")
    if not name or any(part in ("", ".", "..") for part in parts) or "\0" in name:
        return None
    path = root
    for part in parts[:-1]:
        path = os.path.join(path, part)
        if os.path.islink(path) or os.path.exists(path) and not os.path.isdir(path):
            return None
    return os.path.join(root, name)


def untouched(path, name, seen):
    """Since it was packed nobody else has written it; file tools may be at work meanwhile."""
    try:
        return seen.get(name) == mark_of(path)
    except FileNotFoundError:
        return name not in seen


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC,
                 0o755 if data.startswith(LOADED) else 0o644)
    with os.fdopen(fd, "wb") as f:
        f.write(data)


def unpack(root, reply, seen):
    """What the run left there; returns remarks on what could not be kept."""
    remarks = []
    kept = set()
    for entry in reply.get("outputs", ()):
        name, path = entry["path"], inside(root, entry["path"])
        kept.add(name)
        if path is None or os.path.isdir(path):
            remarks.append("%s was not kept: its name leads elsewhere" % name)
        elif untouched(path, name, seen):
            write(path, base64.b64decode(entry["content_base64"]))
    for entry in reply.get("outputs_omitted", ()):
        kept.add(entry["path"])
        remarks.append("%s was not kept: %s" % (entry["path"], entry.get("note")))
    if reply.get("outputs_error"):
        remarks.append("files may be missing: %s" % reply["outputs_error"].get("message"))
    elif reply.get("cause") in ("exit", "signal"):
        for name in seen.keys() - kept:  # the run removed it
            path = os.path.join(root, name)
            if untouched(path, name, seen) and os.path.exists(path):
                os.unlink(path)
    return remarks


# ---------------------------------------------------------------- commands

class Shell:
    def __init__(self, settings, response):
        self.settings = settings
        self.response = response

    def body(self, command, root, seconds):
        archive, seen = pack(root)
        manifest = self.settings.manifest("maxkb-skill")
        manifest["resources"].update(memory="%dMi" % self.settings.skill_memory_mb, stdout="4Mi", stderr="4Mi")
        manifest["timeouts"] = {"wall": "%gs" % seconds}
        manifest["outputs"] = [{"glob": "**", "maxBytes": "64Mi", "maxFiles": FILES_MAX}]
        body = {"argv": ["sh", "-c", PRELUDE, "sh", command, ":".join(self.settings.path),
                         os.path.dirname(self.settings.python)],
                "manifest": manifest, "archive_base64": base64.b64encode(archive).decode("ascii")}
        if self.settings.image:
            body["image"] = self.settings.image
        return body, seen

    def text(self, reply, most, remarks):
        """Output as the model is used to it, and whether it was cut."""
        parts = [reply.get("stdout") or ""]
        errors = (reply.get("stderr") or "").strip()
        parts += ["[stderr] " + line for line in errors.split("\n")] if errors else []
        parts += ["[nsbox] " + remark for remark in remarks]
        output = "\n".join(part for part in parts if part) or "<no output>"
        cut = len(output) > most
        if cut:
            output = output[:most] + "\n\n... Output truncated at %d bytes." % most
        return output, cut or bool(reply.get("stdout_truncated") or reply.get("stderr_truncated"))

    def answer(self, reply, most, remarks):
        cause = reply.get("cause")
        if cause == "memory" or reply.get("oom_kills"):
            remarks = ["the command used more memory than %d MB (MAXKB_NSBOX_SKILL_MEM_MB)"
                       % self.settings.skill_memory_mb, *remarks]
        if cause not in ("exit", "signal", "memory"):
            remarks = [reply.get("msg") or str(cause), *remarks]
        output, cut = self.text(reply, most, remarks)
        status = reply.get("exit_code")
        if status:
            output = "%s\n\nExit code: %d" % (output.rstrip(), status)
        return self.response(output=output, exit_code=status, truncated=cut)

    def run(self, backend, command, timeout):
        seconds = timeout if timeout is not None else getattr(backend, "_default_timeout", DEFAULT_SECONDS)
        client.decide_network(self.settings)
        root = os.path.realpath(str(backend.cwd))
        lock = vars(backend).setdefault("_nsbox_lock", threading.Lock())
        with lock:  # one after the other: each finds what the one before has left
            body, seen = self.body(at_top(command, root), root, seconds)
            reply = client.run(self.settings, "/v1/execute/command", body)
            remarks = unpack(root, reply, seen)
        if reply.get("cause") == "wallTime":
            more = ("(custom timeout). The command may be stuck or require more time." if timeout is not None else None)
            text = "Error: Command timed out after %s seconds" % seconds
            text += " " + more if more else ". For long-running commands, re-run using the timeout parameter."
            return self.response(output=text, exit_code=124, truncated=False)
        return self.answer(reply, getattr(backend, "_max_output_bytes", OUTPUT_MAX), remarks)

    def execute(self, backend, command, timeout):
        if not command or not isinstance(command, str):
            return self.failed("Error: Command must be a non-empty string.")
        if timeout is not None and timeout <= 0:
            raise ValueError("timeout must be positive, got %s" % timeout)
        try:
            return self.run(backend, command, timeout)
        except client.Refused as error:
            return self.failed("Error executing command (nsbox): %s." % error)
        except Exception as error:  # pylint: disable=broad-except
            return self.failed("Error executing command (%s): %s" % (type(error).__name__, error))

    def failed(self, text):
        return self.response(output=text, exit_code=1, truncated=False)


def at_top(command, root):
    """/name at the directory's top, as file tools say it, is in the working directory. /skills and /tmp are
    where they say; names that the system has as well are the system's."""
    names = [name for name in os.listdir(root)
             if name not in ("skills", "tmp") and re.fullmatch(r"[\w.-]+", name) and not os.path.exists("/" + name)]
    if not names:
        return command
    pattern = r"(?<![\w./~$}-])/(%s)(?![\w.-])" % "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.sub(pattern, r"/workspace/\1", command)


# ---------------------------------------------------------------- shape and patch

def problems(module):
    cls = getattr(module, CLASS, None)
    if not inspect.isclass(cls):
        return ["there is no class %s" % CLASS]
    found = []
    if not callable(getattr(module, "ExecuteResponse", None)):
        found.append("it has no ExecuteResponse")
    execute = getattr(cls, "execute", None)
    if not inspect.isfunction(execute):
        found.append("%s.execute is no method" % CLASS)
    else:
        names = [name for name in inspect.signature(execute).parameters if name != "self"]
        if names not in (["command", "timeout"], ["command"]):
            found.append("%s.execute takes (%s)" % (CLASS, ", ".join(names)))
    return found


def patch(module, settings):
    cls = getattr(module, CLASS)
    shell = Shell(settings, module.ExecuteResponse)

    def execute(self, command, *, timeout=None):
        """Run a command in a sandbox of nsbox."""
        return shell.execute(self, command, timeout)

    cls.execute = execute


def close(module, why):
    cls = getattr(module, CLASS, None)

    def refuse(self, command, *, timeout=None):
        raise Exception(why)

    if inspect.isclass(cls):
        cls.execute = refuse
