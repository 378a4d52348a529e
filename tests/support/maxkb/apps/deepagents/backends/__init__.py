# SPDX-License-Identifier: Apache-2.0
"""As much of the backends as MaxKB's is built on: a directory, and limits."""
import pathlib

from deepagents.backends.protocol import ExecuteResponse


class LocalShellBackend:
    def __init__(self, root_dir, virtual_mode=False, timeout=120, max_output_bytes=100000, env=None):
        self.cwd = pathlib.Path(root_dir).resolve()
        self.virtual_mode = virtual_mode
        self._default_timeout = timeout
        self._max_output_bytes = max_output_bytes
        self._env = env

    @property
    def id(self):
        return "local-01234567"

    def execute(self, command, *, timeout=None):
        return ExecuteResponse("run by MaxKB itself", 0, False)
