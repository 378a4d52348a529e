# SPDX-License-Identifier: Apache-2.0
"""The dictionary of settings: a variable MAXKB_X is the key X."""
import os

BASE_DIR = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROJECT_DIR = os.path.dirname(BASE_DIR)


class Config(dict):
    def get_sandbox_python_package_paths(self):
        return self.get("SANDBOX_PYTHON_PACKAGE_PATHS", "/opt/standin/one,/opt/standin/two")


CONFIG = Config((key[len("MAXKB_"):], value) for key, value in os.environ.items()
                if key.startswith("MAXKB_"))
