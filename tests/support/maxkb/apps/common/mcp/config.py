# SPDX-License-Identifier: Apache-2.0
"""The one type of description whose servers may be started as programs."""


class InternalMCPConfig(dict):
    pass
