# SPDX-License-Identifier: Apache-2.0
"""A browser without a screen, led over a pair of pipes by its own protocol (--remote-debugging-pipe)."""

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

PROGRAM = shutil.which("chromium")


class Browser:
    def __init__(self):
        self.place = tempfile.mkdtemp(prefix="browser-")
        to_read, self.to = os.pipe()
        self.back, to_write = os.pipe()
        # Descriptors 3 and 4 are the protocol's: put there by a shell, whatever they are here.
        self.process = subprocess.Popen(
            ["sh", "-c", 'exec "$@" 3<&%d 4>&%d' % (to_read, to_write), "sh", PROGRAM, "--headless=new", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             "--user-data-dir=" + os.path.join(self.place, "profile"), "--window-size=1200,900", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(to_read, to_write))
        os.close(to_read)
        os.close(to_write)
        self.number = 0
        self.buffer = b""
        self.session = None
        self.told = []  # what it said by itself
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")

    def message(self):
        while b"\0" not in self.buffer:
            part = os.read(self.back, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self.buffer += part
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def ask(self, method, **params):
        self.number += 1
        body = {"id": self.number, "method": method, "params": params}
        if self.session:
            body["sessionId"] = self.session
        os.write(self.to, json.dumps(body).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError("%s: %s" % (method, message["error"]))
                return message["result"]
            self.told.append(message)

    def value(self, expression):
        """What a script's expression is worth in the page."""
        got = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return got["result"].get("value")

    def wait(self, expression, seconds=60):
        """The first true value of an expression."""
        end = time.monotonic() + seconds
        while True:
            value = self.value(expression)
            if value or time.monotonic() > end:
                return value
            time.sleep(0.1)

    def go(self, url):
        self.ask("Page.navigate", url=url)

    def key(self, name, text=None):
        extra = {"text": text} if text else {}
        code = {"Enter": 13, "Tab": 9}.get(name, 0)
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code,
                     **(extra if kind == "keyDown" else {}))

    def type(self, text):
        self.ask("Input.insertText", text=text)

    def screenshot(self):
        return base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"])

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        for _ in range(50): # its other processes may still write
            shutil.rmtree(self.place, ignore_errors=True)
            if not os.path.exists(self.place):
                break
            time.sleep(0.1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
