# SPDX-License-Identifier: Apache-2.0
from deepagents.backends import LocalShellBackend
from deepagents.backends.protocol import ExecuteResponse
from maxkb.const import CONFIG

python_path = CONFIG.get_sandbox_python_package_paths().replace(",", ":")


class SandboxShellBackend(LocalShellBackend):
    def __init__(self, root_dir, **kwargs):
        super().__init__(root_dir=root_dir, **dict({"env": {"PYTHONPATH": python_path}}, **kwargs))

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return super().execute(command, timeout=timeout)
