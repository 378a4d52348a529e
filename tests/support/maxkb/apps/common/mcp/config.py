# SPDX-License-Identifier: Apache-2.0
"""The one type of description whose servers may be started as programs."""


class InternalMCPConfig(dict):
    pass


def remote_connection(config):
    """What of a description goes to a server on the network."""
    return {key: config[key] for key in ("url", "transport", "headers") if key in config}
