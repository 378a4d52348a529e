# SPDX-License-Identifier: Apache-2.0
"""A conversation's session: MaxKB's directory goes into it once, and from then on everything is inside.

MaxKB makes a directory for each response, lays skills out in it, and removes it at the end; when its backend
object goes is not known. So a session belongs to the directory, by its place and inode: all backends of it share
one. It is made when it is first needed, and ends

    when the directory is not there any more (looked at every second: this is how MaxKB stops, too),
    with the interpreter,
    or by the service, which ends what is idle for too long; the next use makes another, and says so.

Nothing that a command writes comes back into the directory: no process of MaxKB's works on a file that a skill
could have prepared. What has been left behind is listed before the session goes.
"""
import atexit
import base64
import io
import json
import os
import re
import stat
import tarfile
import threading
import time

from nsbox_maxkb import client as service
from nsbox_maxkb.nsbox.aio import Held
from nsbox_maxkb.nsbox.client import Session
from nsbox_maxkb.nsbox.errors import Error, ServiceError
from nsbox_maxkb.settings import say

LOOK_SECONDS = 1
END_SECONDS = 5      # for the service's answers at the end
TREE_MAX = 56 << 20  # in base64 it has to fit into a request
FILES_MAX = 4096
WALL_SECONDS = 3600  # the most that deepagents asks for
AT_ONCE = 8          # commands in one session, which the service allows by itself
TOLD_MAX = 20
LOADED = (b"#!", b"\x7fELF")

# /skills and /tmp are where they are called; in the working directory they are found as well. Without namespaces
# these places are below $NSBOX_ROOT, and Landlock lets nothing be moved from one to another.
SETTLE = """
for d in skills tmp; do
	if test -d $d; then
		for f in $d/* $d/.[!.]*; do
			test -e "$f" || continue
			cp -a "$f" "$NSBOX_ROOT/$d/" || exit 1
		done
		rm -rf $d || exit 1
	fi
	ln -s "$NSBOX_ROOT/$d" $d || exit 1
done
"""


# ---------------------------------------------------------------- the directory

def starts_program(path, info):
    """Archives lose the execute bit, and unpacking in MaxKB always does."""
    if info.st_mode & 0o111:
        return True
    with open(path, "rb") as f:
        return f.read(4).startswith(LOADED)


def pack(root):
    """A tar file of it, as bytes; links and the like stay where they are."""
    size = count = 0
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for where, names, files in os.walk(root):
            names.sort()
            for name in sorted(files) + [n for n in names if not os.path.islink(os.path.join(where, n))]:
                path = os.path.join(where, name)
                info = os.lstat(path)
                if not stat.S_ISREG(info.st_mode) and not stat.S_ISDIR(info.st_mode):
                    continue
                member = tarfile.TarInfo(os.path.relpath(path, root))
                member.mtime = int(info.st_mtime)
                if stat.S_ISDIR(info.st_mode):
                    member.type, member.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(member)
                    continue
                size += info.st_size
                if size > TREE_MAX or count >= FILES_MAX:
                    raise Error("the directory holds more than %d MB or %d files" % (TREE_MAX >> 20, FILES_MAX))
                member.mode = 0o755 if starts_program(path, info) else 0o644
                with open(path, "rb") as f:
                    data = f.read()
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
                count += 1
    return out.getvalue()


def mark_of(root):
    """Which directory it is; None: none."""
    try:
        info = os.stat(root)
    except OSError:
        return None
    return (root, info.st_dev, info.st_ino) if stat.S_ISDIR(info.st_mode) else None


def virtual(place):
    """A place inside as MaxKB's file tools call it: the working directory is their root."""
    inner = place.removeprefix("/workspace")
    return inner or "/" if inner != place and inner[:1] in ("", "/") else place


# ---------------------------------------------------------------- sessions

class Chat(Session):
    """A session that makes itself anew where the service has ended it."""

    def __init__(self, settings, mark, over=False):
        name = re.sub(r"[^A-Za-z0-9._-]", "_", os.path.basename(mark[0]))[:64]
        super().__init__(Held(settings.where, token_file=settings.token_file or None,
                              timeout=WALL_SECONDS + settings.queue_seconds),
                         "maxkb-%s-%s" % (name, os.urandom(6).hex()), {})
        self.settings = settings
        self.mark = mark
        self.root = mark[0]
        self.lock = threading.RLock() # making it asks for what is in it
        self.turns = threading.BoundedSemaphore(AT_ONCE)
        self.first = {}   # the files that it began with
        self.times = 0    # it was made
        self.told = 1     # and of how many of these it was said
        self.over = over  # for good

    def make(self):
        try:
            service.decide_network(self.settings)
        except service.Refused as error:
            raise Error(str(error)) from None
        try:
            archive = pack(self.root)
        except OSError as error:
            raise Error("the directory cannot be read (%s)" % error) from None
        manifest = self.settings.manifest("maxkb-skill")
        manifest["resources"].update(memory="%dMi" % self.settings.skill_memory_mb, stdout="4Mi", stderr="4Mi")
        manifest["timeouts"] = {"wall": "%ds" % WALL_SECONDS}
        body = {"argv": ["sh", "-c", SETTLE], "manifest": manifest, "session_id": self.id,
                "archive_base64": base64.b64encode(archive).decode("ascii")}
        if self.settings.image:
            body["image"] = self.settings.image
        reply = self.client.call("POST", "/v1/execute/command", body)
        if reply.get("exit_code") != 0:
            self.end()
            raise Error("the directory did not get into its session: %s" % (reply.get("stderr") or reply.get("msg")))
        self.times += 1
        self.made = True
        self.first = self.files()

    def _ensure(self):
        with self.lock:
            if self.made:
                return
            if self.over:
                raise Error("the conversation's directory is gone, and its sandbox with it")
            self.make()

    def lost(self, times):
        """After an answer of 404: was it the session that was not there, as it was made so many times?"""
        with self.lock:
            if self.times == times and self.made:
                try:
                    self.info()
                    return False
                except ServiceError as error:
                    if error.status != 404:
                        raise
                self.made = False
        return True

    def _fetch(self, method, path, body=None, headers=None):
        if isinstance(body, dict):
            body = dict(body, session_must_exist=True)
        while True:
            self._ensure()
            times = self.times
            try:
                return self.client.fetch(method, path, body, headers)
            except ServiceError as error:
                if error.status != 404 or not self.lost(times):
                    raise

    def is_new(self):
        """Once after each time that it was made anew."""
        with self.lock:
            new, self.told = self.times > self.told, max(self.times, self.told)
        return new

    def files(self):
        """{path: (size, time)}; /tmp is nobody's to keep."""
        return {virtual(os.path.join(place, entry.path)): (entry.size, entry.mtime_ms)
                for place in ("/workspace", "/skills") for entry in self.list(place, recursive=True)
                if entry.type == "file"}

    def left_behind(self):
        """[(path, size)] of the files that are not as they went in."""
        first = self.first
        return sorted((path, mark[0]) for path, mark in self.files().items() if first.get(path) != mark)

    def close(self, why):
        """For good: what it leaves is listed, then it ends with all that runs in it."""
        with self.lock:
            self.over, made = True, self.made
        if not made:
            return
        try:
            self.client.timeout = END_SECONDS
            self.client.busy_seconds = 0
            self.tell(why)
        except Error:
            pass # it is over already, or so is the service
        try:
            self.end()
        except Error:
            pass

    def tell(self, why):
        files = ["%s (%d bytes)" % (json.dumps(path), size) for path, size in self.left_behind()]
        if files:
            more = len(files) - TOLD_MAX
            say("session %s ends (%s) and leaves %s%s" % (self.id, why, ", ".join(files[:TOLD_MAX]),
                                                         " and %d more files" % more if more > 0 else ""))


# ---------------------------------------------------------------- all of them

class Chats:
    """Those of this process."""

    def __init__(self):
        self.lock = threading.Lock()
        self.all = {}
        self.looks = False
        atexit.register(self.close)
        # Before that the interpreter waits for threads, which may be in a command: as concurrent.futures hears of it.
        getattr(threading, "_register_atexit", atexit.register)(self.close)
        os.register_at_fork(after_in_child=self.forget)

    def forget(self):
        """A child has none: those of its parent are not its to end."""
        self.lock = threading.Lock()
        self.all = {}
        self.looks = False

    def of(self, settings, root):
        mark = mark_of(root)
        if mark is None:
            return Chat(settings, (root,), over=True)
        key = settings.where, mark
        with self.lock:
            if key not in self.all:
                self.all[key] = Chat(settings, mark)
            if not self.looks:
                self.looks = True
                threading.Thread(target=self.look, name="nsbox-sessions", daemon=True).start()
            return self.all[key]

    def look(self):
        while True:
            time.sleep(LOOK_SECONDS)
            with self.lock:
                gone = [key for key, chat in self.all.items() if mark_of(chat.root) != chat.mark]
                chats = [self.all.pop(key) for key in gone]
            for chat in chats:
                chat.close("its directory is gone")

    def close(self):
        with self.lock:
            chats, self.all = list(self.all.values()), {}
        for chat in chats:
            chat.close("the process ends")


CHATS = Chats()
