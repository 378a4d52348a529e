# SPDX-License-Identifier: Apache-2.0
"""A client of the Model Context Protocol that knows nothing but bytes: for the edges that a proper one never meets."""

import json

from . import service

ACCEPT = "application/json, text/event-stream"
META = "io.modelcontextprotocol/"
MODERN = "2026-07-28"
LATEST_WITH_SESSIONS = "2025-11-25"


class Reply:
    """What a request got: status, headers, and the messages of its body, whichever form that has."""

    def __init__(self, status, headers, raw):
        self.status = status
        self.headers = headers
        self.type = (headers.get("Content-Type") or "").split(";")[0]
        self.text = raw.decode("utf-8")
        self.events = []
        if self.type == "text/event-stream":
            self.events = [parse_event(part) for part in self.text.split("\n\n") if part.strip()]
            self.messages = [json.loads(e["data"]) for e in self.events if e.get("data")]
        else:
            body = json.loads(self.text) if self.text.strip() else []
            self.messages = body if isinstance(body, list) else [body]

    def answer(self, ident=None):
        """The answer to the request of that id; without one the only answer."""
        found = [m for m in self.messages if ("result" in m or "error" in m) and (ident is None or m["id"] == ident)]
        return found[0] if len(found) == 1 else None

    def __repr__(self):
        return "%s %s %s" % (self.status, self.type, self.text[:600])


def parse_event(text):
    event = {}
    for line in text.split("\n"):
        key, _, value = line.partition(":")
        event[key] = value[1:] if value.startswith(" ") else value
    return event


class Stream:
    """An open stream of events, read one by one."""

    def __init__(self, sock, method, path, body=None, headers=None, timeout=60):
        self.connection = service.UnixConnection(sock, timeout)
        data = json.dumps(body).encode() if body is not None else None
        head = {"Accept": ACCEPT, "Content-Type": "application/json", **(headers or {})}
        self.connection.request(method, path, data, head)
        self.answer = self.connection.getresponse()
        self.status = self.answer.status
        self.headers = self.answer.headers
        self.last_id = None

    def event(self):
        """The next event, None at the end."""
        lines = []
        while True:
            line = self.answer.readline()
            if not line:
                return None
            line = line.decode("utf-8").rstrip("\n")
            if line:
                lines.append(line)
            elif lines:
                event = parse_event("\n".join(lines))
                self.last_id = event.get("id", self.last_id)
                return event

    def message(self):
        """The next one that holds a message; None at the end."""
        while True:
            event = self.event()
            if event is None or event.get("data"):
                return json.loads(event["data"]) if event else None

    def close(self):
        # With the answer half read the connection's own close() leaves the socket open.
        self.answer.close()
        self.connection.close()


class Client:
    def __init__(self, sock, path, headers=None):
        self.sock = sock
        self.path = path
        self.headers = dict(headers or {})
        self.number = 0

    def send(self, body, headers=None, method="POST", accept=ACCEPT, timeout=60):
        """A body as it is: bytes, or something to be made JSON of."""
        head = {"Accept": accept, "Content-Type": "application/json", **self.headers, **(headers or {})}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        return Reply(*service.fetch(self.sock, method, self.path, data, timeout,
                                    {k: v for k, v in head.items() if v is not None}))

    def message(self, method, params=None, ident=None):
        self.number += 1
        body = {"jsonrpc": "2.0", "id": ident if ident is not None else self.number, "method": method}
        if params is not None:
            body["params"] = params
        return body

    def ask(self, method, params=None, **more):
        return self.send(self.message(method, params), **more)

    def tell(self, method, params=None):
        body = {"jsonrpc": "2.0", "method": method}
        if params is not None:
            body["params"] = params
        return self.send(body)

    def initialize(self, version=LATEST_WITH_SESSIONS):
        reply = self.ask("initialize", {"protocolVersion": version, "capabilities": {},
                                        "clientInfo": {"name": "raw", "version": "0"}})
        if reply.status == 200:
            self.headers["Mcp-Session-Id"] = reply.headers["Mcp-Session-Id"]
            self.headers["MCP-Protocol-Version"] = reply.answer()["result"]["protocolVersion"]
            self.tell("notifications/initialized")
        return reply

    def call(self, name, arguments=None, **more):
        """The result of a tool."""
        reply = self.ask("tools/call", {"name": name, "arguments": arguments or {}}, **more)
        found = reply.answer()
        return found["result"] if found and "result" in found else {"failed": repr(reply)}

    def open_call(self, name, arguments=None, ident="open", token=None):
        """A call whose stream is read by hand."""
        params = {"name": name, "arguments": arguments or {}}
        if token is not None:
            params["_meta"] = {"progressToken": token}
        return Stream(self.sock, "POST", self.path, self.message("tools/call", params, ident), self.headers)

    def get(self, last_id=None):
        head = dict(self.headers)
        if last_id:
            head["Last-Event-ID"] = last_id
        return Stream(self.sock, "GET", self.path, None, head)


class Modern(Client):
    """As since 2026-07-28: no session, each request says what it needs."""

    def ask(self, method, params=None, headers=None, meta=None, **more):
        params = dict(params or {})
        said = {META + "protocolVersion": MODERN, META + "clientCapabilities": {},
                META + "clientInfo": {"name": "raw", "version": "0"}}
        said.update(meta or {})
        params["_meta"] = {k: v for k, v in said.items() if v is not None}
        head = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        if "name" in params:
            head["Mcp-Name"] = params["name"]
        head.update(headers or {})
        return self.send(self.message(method, params), headers=head, **more)
