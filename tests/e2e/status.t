#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Looking at the service: the page at /ui, in a browser, and `nsbox top`, on a terminal and without one."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import browser, paths, service, tap

HOSTILE = "<img/src=x/onerror=document.title='owned'><b>bold</b>"
ESCAPE = "esc\x1b[31m"
TOKEN = "t" * 40
daemon = None
port = None
jobs = {}


def run(command, **more):
    return daemon.ask("POST", "/v1/execute/command", {"command": command, "workspace_id": HOSTILE, **more})[1]


def prepare():
    jobs["denied"] = run("unshare -r true")["job_id"]
    jobs["escape"] = run("true", workspace_id=ESCAPE)["job_id"]
    jobs["late"] = run("sleep 60", timeout_seconds=0.2)["job_id"]
    daemon.ask("POST", "/v1/sessions", {"session_id": "box", "workspace_id": HOSTILE})
    jobs["long"] = daemon.ask("POST", "/v1/jobs", {"kind": "command", "command": "sleep 300", "workspace_id": HOSTILE})[1]["id"]
    tap.wait_until(lambda: daemon.ask("GET", "/v1/jobs/" + jobs["long"])[1]["state"] == "running", 60)


# ------------------------------------------------------------------ the page


def test_files(t):
    for path, kind in (("/ui", "text/html"), ("/ui/ui.css", "text/css"), ("/ui/ui.js", "text/javascript")):
        status, headers, raw = daemon.fetch("GET", path)
        text = raw.decode()
        policy = headers.get("Content-Security-Policy", "")
        t.ok(status == 200 and headers["Content-Type"].startswith(kind) and "default-src 'none'" in policy and
             "unsafe" not in policy and headers["X-Content-Type-Options"] == "nosniff", path, repr(dict(headers)))
        t.ok(not re.search(r"https?://(?!www\.w3\.org/2000/svg)|innerHTML|insertAdjacentHTML|document\.write|\beval\(|onclick=|style=|<style", text),
             "refers to nothing outside, and puts text in as text")
    t.equal(daemon.ask("GET", "/ui/none")[0], 404, "there is no other file")
    t.equal(daemon.ask("POST", "/ui", {})[0], 405, "and nothing to be changed")
    for path, token, want in (("/ui", None, "200"), ("/ui/ui.js", None, "200"), ("/v1/jobs", None, "401"),
                              ("/metrics", None, "401"), ("/ui/../v1/jobs", None, "401"), ("/ui/x", None, "401"),
                              ("/v1/jobs", TOKEN, "200")):
        got = subprocess.run(["curl", "-s", "--path-as-is", "-o", "/dev/null", "-w", "%{http_code}",
                              *(["-H", "Authorization: Bearer " + token] if token else []),
                              "http://127.0.0.1:%d%s" % (port, path)], capture_output=True, text=True, check=False)
        t.equal(got.stdout, want, "by TCP, %s token: %s %s" % ("with a" if token else "without a", path, want))


def test_page(t):
    if os.getuid() != 0:
        t.note("root's half looks at it")
        return
    if not browser.PROGRAM:
        t.ok(not tap.must_work(), "there is a browser to look at it")
        return
    with browser.Browser() as b:
        b.go("http://127.0.0.1:%d/ui" % port)
        t.ok(b.wait("document.activeElement.id === 'token'"), "it asks for a token, and is ready to get it")
        b.type("wrong")
        b.key("Enter", "\r")
        t.ok(b.wait("!sessionStorage.getItem('nsbox-token') && !document.getElementById('login').hidden && document.getElementById('state').textContent.includes('who you are') && document.getElementById('token').value === ''"),
             "a wrong one is not taken")
        b.value("document.getElementById('token').focus()")
        b.type(TOKEN)
        b.key("Enter", "\r")
        t.ok(b.wait("!document.getElementById('main').hidden"), "the right one is", b.value("document.body.innerText"))
        check_page(t, b)
        check_receipt(t, b)
        check_looks(t, b)
        broken = [m["params"] for m in b.told if m["method"] == "Log.entryAdded" and m["params"]["entry"]["source"] == "security"]
        outside = [m["params"]["request"]["url"] for m in b.told if m["method"] == "Network.requestWillBeSent" and
                   not m["params"]["request"]["url"].startswith(("http://127.0.0.1:%d/" % port, "about:"))]
        thrown = [m for m in b.told if m["method"] == "Runtime.exceptionThrown"]
        t.ok(not broken and not outside and not thrown, "its policy is kept, and nothing outside was asked",
             repr((broken, outside, thrown)))


def check_page(t, b):
    text = b.value("document.body.innerText")
    shown = [job for name, job in jobs.items() if name != "escape"] # another workspace's
    for what in (*shown, "box", "wallTime", "call unshare EPERM"):
        t.ok(what in text, "it shows " + ("a job" if what in shown else what), text)
    t.ok("<b>bold</b>" in text, "a workspace with markup for a name is text")
    t.equal(b.value("document.querySelectorAll('main img, main b').length + ' ' + document.title"), "0 nsboxd", "and does nothing")
    t.ok(b.wait("document.querySelectorAll('#spark polyline').length === 2 && "
                "document.querySelector('#spark .work').getAttribute('points').split(' ').length > 1"), "a line of what was at work")
    t.equal(b.value("sessionStorage.getItem('nsbox-token')"), TOKEN, "the token is the tab's")
    t.equal(b.value("document.cookie + localStorage.length"), "0", "and nothing else is kept")


def check_receipt(t, b):
    # As who has no mouse: Tab until the link, then Enter.
    for _ in range(40):
        b.key("Tab")
        if b.value("document.activeElement.textContent") == jobs["denied"]:
            break
    t.equal(b.value("document.activeElement.textContent"), jobs["denied"], "Tab comes to a job")
    b.key("Enter", "\r")
    t.ok(b.wait("!document.getElementById('receipt').hidden"), "Enter shows its receipt")
    text = b.value("document.getElementById('receipt').innerText")
    receipt = daemon.ask("GET", "/v1/receipts/" + jobs["denied"])[1]
    t.ok(jobs["denied"] in text and "unshare" in text and receipt["plan_sha256"] in text, "all of it", text)
    t.equal(b.value("document.querySelectorAll('#receipt img, #receipt b').length"), 0, "markup is text there, too")
    b.value("document.getElementById('back').click()")
    t.ok(b.wait("document.getElementById('receipt').hidden && !document.getElementById('main').hidden"), "and back")


def check_looks(t, b):
    colours = []
    for scheme in ("light", "dark"):
        b.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        colours.append(b.value("getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color"))
        shot = b.screenshot()
        t.ok(shot.startswith(b"\x89PNG") and len(shot) > 10000, "there is something to see in " + scheme, len(shot))
    t.ok(colours[0] != colours[1], "light and dark are different", repr(colours))
    b.ask("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    t.ok(b.value("document.documentElement.scrollWidth <= 360"), "a phone is wide enough",
         b.value("document.documentElement.scrollWidth"))
    t.ok(b.value("document.querySelector('#recent a').getBoundingClientRect().width > 0"), "and shows the jobs")


# ------------------------------------------------------------------ nsbox top


def top(*args):
    return subprocess.run([paths.NSBOX, "top", "--socket", daemon.socket, *args], capture_output=True, text=True,
                          check=False, stdin=subprocess.DEVNULL, timeout=120)


def test_top(t):
    for args in ((), ("--once",)):
        done = top(*args)
        t.ok(done.returncode == 0 and all(w in done.stdout for w in (*jobs.values(), "box", "wallTime", "unshare")),
             "nsbox top %s" % " ".join(args), done.stdout + done.stderr)
        t.ok("\x1b" not in done.stdout, "nothing acts on a terminal")
    look = json.loads(top("--json").stdout)
    t.ok([j["id"] for j in look["jobs"]] == [jobs["long"]] and look["service"]["version"] and
         look["metrics"]["nsbox_jobs_running"] == 1 and [s["id"] for s in look["sessions"]] == ["box"] and
         {j["id"]: j["denials"] for j in look["recent"]}[jobs["denied"]][0]["name"] == "unshare", "as JSON", repr(look))
    for args, words in ((("x",), "unexpected"), (("--interval", "0"), "--interval"), (("--socket", "/none"), "is nsboxd running?")):
        done = top(*args)
        t.ok(done.returncode == 125 and words in done.stderr, "refused: " + " ".join(args), done.stderr)


def test_live(t):
    tmux = shutil.which("tmux")
    if not tmux:
        t.ok(not tap.must_work(), "there is tmux to look by")
        return
    with tempfile.TemporaryDirectory(prefix="tmux-") as place:
        def ask(*args):
            return subprocess.run([tmux, "-S", os.path.join(place, "s"), "-f", "/dev/null", *args], capture_output=True, text=True,
                                  check=False, env=dict(os.environ, TERM="xterm", LC_ALL="C.UTF-8", SHELL="/bin/sh")).stdout
        ask("new-session", "-d", "-x", "120", "-y", "30", "-s", "top", "sh")
        ask("send-keys", "-t", "top", "clear; %s top --socket %s --interval 1; echo left=$?" % (paths.NSBOX, daemon.socket), "Enter")

        def screen():
            return ask("capture-pane", "-p", "-t", "top")
        t.ok(tap.wait_until(lambda: jobs["long"] in screen() and "q: quit" in screen(), 60), "it draws", screen())
        line = [x for x in screen().split("\n") if jobs["escape"] in x][0]
        t.ok("esc\\x1b[31m" in line, "names do nothing", line)
        daemon.ask("DELETE", "/v1/jobs/" + jobs["long"])
        t.ok(tap.wait_until(lambda: "cancelled" in screen(), 60), "and draws again when something happens", screen())
        ask("resize-window", "-t", "top", "-x", "100", "-y", "8")
        t.ok(tap.wait_until(lambda: "q: quit" in screen() and len(screen().rstrip("\n").split("\n")) <= 8, 60), "a small terminal is enough", screen())
        ask("send-keys", "-t", "top", "q")
        t.ok(tap.wait_until(lambda: "left=0" in screen(), 60), "q leaves, and the terminal is as before", screen())
        ask("kill-server")


def main():
    global daemon, port # pylint: disable=global-statement
    with tempfile.TemporaryDirectory(prefix="status-") as place:
        os.chmod(place, 0o755)
        tokens = os.path.join(place, "tokens")
        with open(tokens, "w", encoding="utf-8") as f:
            f.write("%s %s\n" % (HOSTILE, TOKEN))
        os.chmod(tokens, 0o600)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with service.Daemon(options=["--tcp", "127.0.0.1:%d" % port, "--tokens", tokens]) as daemon:
            prepare()
            return tap.run([test_files, test_page, test_top, test_live])


if __name__ == "__main__":
    sys.exit(main())
