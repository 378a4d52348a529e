# SPDX-License-Identifier: Apache-2.0
"""Waits for MaxKB's modules. Imported at the start of every Python of the environment: cheap, and
never the reason why a program does not start."""
import sys

# Where the module's shape is known and what to do with it is in targets.py, under the same name.
NAMES = frozenset((
    "common.utils.tool_code",
    "common.mcp.sandbox",
    "application.flow.backend.sandbox_shell",
    "application.workflow.backend.sandbox_shell",
))


class Loader:
    """The module's own loader, and the patch after it."""

    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        from nsbox_maxkb import targets

        targets.loaded(module)


class Finder:
    """Asks the finders behind it, and wraps the loader of what they find."""

    def find_spec(self, name, path=None, target=None):
        if name not in NAMES:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = Loader(spec.loader)
                return spec
        return None


def install():
    """Once per process; a second time changes nothing."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
