# SPDX-License-Identifier: Apache-2.0
"""Which of MaxKB's modules are changed, and how one is recognised.

A module is known by its shape: the names, signatures and bases that the replacement relies on. Where
the shape is another one, nothing is replaced by a guess. What ran code there before would then go
on to do so without nsbox, which is not what the operator asked for: it is closed instead, each call
says why, and standard error says it at the start.
"""
from nsbox_maxkb import settings as settings_module
from nsbox_maxkb import external, shell, tool
from nsbox_maxkb.settings import say

# Module name: (what it holds, for messages; problems_of(module); patch(module, settings); close(module, why))
TARGETS = {
    "common.utils.tool_code": ("tools and MCP servers", tool.problems, tool.patch, tool.close),
    "common.mcp.sandbox": ("external MCP servers", external.problems, external.patch, external.close),
    "application.flow.backend.sandbox_shell": ("skills", shell.problems, shell.patch, shell.close),
    "application.workflow.backend.sandbox_shell": ("skills", shell.problems, shell.patch, shell.close),
}

def config_of(module):
    """MaxKB's dictionary of settings, which each of these modules imports."""
    config = getattr(module, "CONFIG", None)
    return config if callable(getattr(config, "get", None)) else None


def loaded(module):
    """A module of MaxKB was imported. Never raises: MaxKB has to start."""
    what, problems, patch, close = TARGETS[module.__name__]
    try:
        settings = settings_module.Settings(config_of(module))
        if settings.backend == "local":
            say("%s run in MaxKB's own executor, as MAXKB_TOOL_EXECUTOR_BACKEND says" % what)
            return
        found = problems(module)
        if found:
            trouble = ("this MaxKB's %s has a shape that this drop-in does not know (%s); update the "
                       "drop-in, or set MAXKB_TOOL_EXECUTOR_BACKEND=local to have MaxKB's own "
                       "executor back" % (module.__name__, "; ".join(found)))
        elif settings.problems:
            trouble = "; ".join(settings.problems)
        else:
            patch(module, settings)
            say("%s run in nsbox, by the service at %s" % (what, settings.where))
            for note in settings.notes:
                say(note)
            return
    except Exception as error:  # pylint: disable=broad-except
        trouble = "%s: %s" % (type(error).__name__, error)
    say("NOT READY: %s do not run: %s" % (what, trouble))
    close(module, "nsbox does not run this: " + trouble)
