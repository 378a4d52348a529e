# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass


@dataclass
class ExecuteResponse:
    output: str
    exit_code: int | None = None
    truncated: bool = False


@dataclass
class LsResult:
    error: str | None = None
    entries: list | None = None


@dataclass
class ReadResult:
    error: str | None = None
    file_data: dict | None = None


@dataclass
class WriteResult:
    error: str | None = None
    path: str | None = None
    files_update: dict | None = None


@dataclass
class EditResult:
    error: str | None = None
    path: str | None = None
    occurrences: int | None = None


@dataclass
class GrepResult:
    error: str | None = None
    matches: list | None = None


@dataclass
class GlobResult:
    error: str | None = None
    matches: list | None = None
