# SPDX-License-Identifier: Apache-2.0
"""HTTP to nsboxd: one connection per request, so that threads share nothing and a caller that goes
away takes its run with it."""
import http.client
import json
import os
import socket
import threading
import time
import urllib.parse

from nsbox_maxkb.settings import say

# A full queue is answered at once; then it is asked again, for at most this long.
BUSY_SECONDS = 60
CONNECT_SECONDS = 10


class Refused(Exception):
    """The service did not run it; one sentence that says why."""


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.settimeout(CONNECT_SECONDS)
            self.sock.connect(self.path)
            self.sock.settimeout(self.timeout)
        except OSError:
            self.sock.close()
            self.sock = None
            raise


def unreachable(settings, error):
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return Refused("the service at %s cannot be reached (%s); start nsboxd, or set "
                   "MAXKB_TOOL_EXECUTOR_BACKEND=local to have MaxKB's own executor back"
                   % (settings.where, reason))


def token(settings):
    if not settings.token_file:
        return None
    try:
        with open(settings.token_file, encoding="ascii") as f:
            return f.read().strip()
    except (OSError, ValueError) as error:
        raise Refused("the token file %s cannot be read (%s)" % (settings.token_file, error)) from None


def connect(settings, timeout):
    """(connection, headers), not connected yet."""
    if not settings.url:
        return UnixConnection(settings.socket, timeout), {}
    place = urllib.parse.urlsplit(settings.url)
    headers = {}
    secret = token(settings)
    if secret:
        headers["Authorization"] = "Bearer " + secret
    return http.client.HTTPConnection(place.hostname, place.port or 80, timeout=timeout), headers


def ask(settings, method, path, body=None, timeout=30):
    """(status, decoded JSON) of one request; Refused where there is no answer."""
    connection, headers = connect(settings, timeout)
    data = None
    if body is not None:
        data = json.dumps(body).encode("ascii")
        headers["Content-Type"] = "application/json"
    try:
        connection.connect()
    except OSError as error:
        raise unreachable(settings, error) from None
    try:
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except TimeoutError:
        raise Refused("the service at %s did not answer within %d seconds"
                      % (settings.where, timeout)) from None
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Refused("the service at %s broke off the call (%s)"
                      % (settings.where, str(error) or type(error).__name__)) from None
    finally:
        connection.close()


def why(answer):
    """The service's own words for an error."""
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return "the service sent no reason"
    pointer = error.get("pointer")
    return "%s%s" % (pointer + ": " if pointer else "", error.get("message") or error.get("code"))


deciding = threading.Lock()


def decide_network(settings):
    """Once per process: where nothing was said, runs have the network that the service grants. To be
    called before a manifest is made."""
    with deciding:
        if settings.network:
            return
        settings.network = "open"
        body = {"argv": ["true"], "manifest": settings.manifest("maxkb-network")}
        settings.network = ""
        if settings.image:
            body["image"] = settings.image
        status, answer = ask(settings, "POST", "/v1/execute/command", body, 30 + settings.queue_seconds)
        error = answer.get("error") if isinstance(answer, dict) else None
        if status == 200:
            settings.network = "open"
            if settings.banned_names:
                say("names banned by MAXKB_SANDBOX_PYTHON_BANNED_HOSTS are for the service to ban "
                    "(ceiling.bannedHosts): %s" % ", ".join(settings.banned_names))
        elif status == 400 and str((error or {}).get("pointer")).startswith("/manifest/network"):
            settings.network = "none"
            say("tools and skills have no network: %s; see ceiling.network in nsboxd(8)" % why(answer))
        else:
            raise Refused(why(answer))


def run(settings, path, body):
    """The reply of a synchronous run. A full queue is waited for."""
    deadline = time.monotonic() + BUSY_SECONDS
    pause = 0.05
    while True:
        status, answer = ask(settings, "POST", path, body, settings.seconds + settings.queue_seconds)
        if status == 200:
            return answer
        if status != 429 or time.monotonic() >= deadline:
            raise Refused(why(answer))
        # Many wait at once: not all at the same instant again.
        time.sleep(pause * (0.5 + os.urandom(1)[0] / 255))
        pause = min(pause * 2, 1)
