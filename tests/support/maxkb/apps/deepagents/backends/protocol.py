# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass


@dataclass
class ExecuteResponse:
    output: str
    exit_code: int | None = None
    truncated: bool = False
