# SPDX-License-Identifier: Apache-2.0
"""SandboxShellBackend: a skill's commands and files, in a session of nsbox. How is in backend.py and chat.py; here
is how the class is recognised.
"""
import inspect

CLASS = "SandboxShellBackend"
# What is replaced, or closed, where MaxKB's class has it, and its asynchronous twin.
METHODS = ("execute", "ls", "read", "write", "edit", "delete", "grep", "glob", "upload_files", "download_files",
           "ls_info", "grep_raw", "glob_info")


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
    # Only now: it looks at the deepagents that MaxKB has just loaded.
    from nsbox_maxkb import backend

    backend.replace(getattr(module, CLASS), settings)


def close(module, why):
    cls = getattr(module, CLASS, None)

    def refuse(self, *_, timeout=None, **__): # deepagents looks for the name
        raise Exception(why)

    async def refuse_later(self, *_, timeout=None, **__):
        raise Exception(why)

    if inspect.isclass(cls):
        cls.execute = refuse
        for name in METHODS:
            for known, closed in ((name, refuse), ("a" + name, refuse_later)):
                if hasattr(cls, known):
                    setattr(cls, known, closed)
