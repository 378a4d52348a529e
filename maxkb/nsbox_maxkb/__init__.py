# SPDX-License-Identifier: Apache-2.0
"""nsbox for MaxKB: tools, MCP servers and skills run in nsbox's sandboxes; nothing in MaxKB changes.

How it gets in: nsbox_maxkb.pth, which Python's site module reads at start, imports `hook`. The hook
waits for MaxKB's modules to be imported and then gives `targets` the chance to replace what runs
code. It works on what a module is, never on its source, so that images without source are the same
to it.

    hook       the finder that waits; nothing else is imported at Python's start
    targets    which modules, how their shape is recognised, what becomes of an unknown one
    settings   MaxKB's variables and our own
    client     HTTP to nsboxd
    tool       ToolExecutor: exec_code, get_tool_mcp_config
    shell      SandboxShellBackend: a skill's commands and files
    backend    its methods, over a session
    chat       a session for a conversation's directory, from its first use to its end
    nsbox      the Python client, as in nsbox/python
    stdio      a program: one MCP server in a sandbox, its streams passed through
    __main__   for people: python3 -m nsbox_maxkb check | variables

The rule everywhere: what was to run in a sandbox and cannot, does not run.
"""
