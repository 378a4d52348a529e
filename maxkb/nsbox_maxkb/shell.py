# SPDX-License-Identifier: Apache-2.0
"""SandboxShellBackend: a skill's commands and files, in a session of nsbox. How is in backend.py and chat.py; here
is how the class is recognised.
"""
import inspect

CLASS = "SandboxShellBackend"


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

    def refuse(self, command, *, timeout=None):
        raise Exception(why)

    if inspect.isclass(cls):
        cls.execute = refuse
