#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The Python client against a live service: runs, jobs, events, sessions and their files, errors, threads, asyncio."""

import asyncio
import concurrent.futures
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import paths, service, tap

PACKAGE = os.path.join(paths.ROOT, "nsbox", "python")
sys.path.insert(0, PACKAGE)
import nsbox


def raised(kind, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as error:
        return error
    return None


def tar(**files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "."))
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text))
    return buffer.getvalue()


def test_runs(t):
    r = client.python("def add(a, b): return a + b", a=1, b=2)
    t.ok(r.ok and r.data == 3, "a function and its value", repr(r))
    r = client.python("def f(): raise ValueError('no')")
    t.ok(not r.ok and "no" in r.msg + r.raw["stderr"], "its exception is a result", repr(r))
    r = client.command("cat; echo err >&2; exit 7", stdin=b"in\xff\n")
    t.ok(r.exit_code == 7 and not r.ok and r.stdout == b"in\xff\n" and r.stderr == b"err\n", "bytes, status", repr(r))
    r = client.command(["printf", "%s", "$HOME"])
    t.equal(r.text, "$HOME", "a list goes to no shell")
    r = client.command("tr a-z A-Z <in.txt >out.txt", files={"in.txt": "abc"}, outputs=["*.txt"])
    t.equal({o.path: o.content for o in r.outputs}, {"in.txt": b"abc", "out.txt": b"ABC"}, "files in, outputs out")
    r = client.command("sleep 60", timeout_seconds=1)
    t.ok(r.cause == "wallTime" and not r.ok, "a limit is a cause", repr(r))
    t.equal(client.receipt(r.receipt_id)["cause"], "wallTime", "and so says the receipt")
    manifest = {"manifestVersion": 1, "name": "greets", "version": "1.0.0", "description": "Says hello.",
                "entrypoints": {"main": {"command": ["sh", "hello.sh"]}}}
    r = client.skill(tar(hello__sh=b"echo hello\n", skill__json=repr(manifest).replace("'", '"').encode()), "greets")
    t.equal(r.text, "hello\n", "a skill")


def test_errors(t):
    error = raised(nsbox.ServiceError, client.command, "true", timeout_seconds=-1)
    t.ok(error and error.status == 400 and error.pointer == "/timeout_seconds", "a refusal names the place", repr(error))
    error = raised(nsbox.Unreachable, nsbox.Client("/nonexistent.sock").health)
    t.ok(error and "/nonexistent.sock" in str(error), "no service is told", repr(error))
    t.ok(raised(ValueError, nsbox.Client, "ftp://x"), "an address that is none")
    error = raised(nsbox.Error, nsbox.Client(daemon.socket, token_file="/nonexistent.token").health)
    t.ok(error and not isinstance(error, nsbox.Unreachable) and "/nonexistent.token" in str(error),
         "a token file that is not there is no fault of the service", repr(error))
    t.ok(not nsbox.Result.of({"stdout": ""}).ok, "an answer that does not say how a run ended is no success")


def test_jobs(t):
    job = client.submit("for i in 1 2 3; do echo $i; done; echo done >&2; echo kept >kept.txt", outputs=["kept.txt"])
    events = list(job.events())
    t.equal([e.name for e in events if e.name not in ("stdout", "stderr")], ["queued", "started", "finished"], "its life")
    t.equal(b"".join(e.content for e in events if e.name == "stdout"), b"1\n2\n3\n", "its output")
    middle = next(e for e in events if e.name == "started")
    t.ok(all(e.name != "queued" for e in job.events(middle.id)), "a stream goes on after an id")
    t.ok(job.result().ok and job.state() == "finished", "its result afterwards")
    t.equal(job.output("kept.txt"), b"kept\n", "a file it has left")
    job = client.submit("sleep 600", idempotency_key="one")
    t.equal(client.submit("sleep 600", idempotency_key="one").id, job.id, "the same key is the same job")
    t.ok(raised(TimeoutError, job.result, 0.2), "waiting has an end")
    job.cancel()
    t.equal(job.result(60).cause, "cancelled", "cancelled")
    t.ok(job.id in [row["id"] for row in client.jobs()], "listed")
    t.equal(client.submit_python("def f(x): return x * 2", x=21).result(60).data, 42, "a function as a job")


def test_interactive(t):
    said = []
    with client.interactive("while read line; do echo got $line; done") as run:
        run.write(b"one\n")
        for event in run:
            if event.name == "stdout":
                said.append(event.content)
                run.write(b"two\n" if len(said) == 1 else b"")
    t.equal(b"".join(said), b"got one\ngot two\n", "talked with while it runs")
    with client.interactive("echo up; sleep 600", trace_id="left") as run:
        t.ok(any(e.name == "stdout" for e in run), "another is up")
    t.ok(tap.wait_until(lambda: all(row["state"] != "running" for row in client.jobs() if row.get("trace_id") == "left"),
                        60), "and ends with its context")


def test_sessions(t):
    with client.session("s1", files={"a.txt": "alpha\n"}) as s:
        t.equal(s.command("cat a.txt").text, "alpha\n", "made by its first command")
        s.put("/workspace/d/b.txt", "beta\nBETA\n", mode=0o600)
        t.equal(s.command("cat d/b.txt; stat -c %a d/b.txt").text, "beta\nBETA\n600\n", "a file put")
        t.ok(raised(nsbox.ServiceError, s.put, "/workspace/d/b.txt", "x", exclusive=True), "exclusive where it is there")
        t.equal(s.get("/workspace/d/b.txt", 5, 4), b"BETA", "a range of it")
        t.equal(s.stat("/workspace/a.txt").size, 6, "stat")
        t.equal(sorted(e.path for e in s.list("/workspace")), ["a.txt", "d"], "list")
        t.equal([e.path for e in s.list("/workspace", glob="**/*.txt") if e.type == "file"].__len__(), 2, "glob")
        t.equal([m.line for m in s.grep("/workspace", "beta", ignore_case=True)], [1, 2], "grep")
        t.equal(s.grep("/workspace", "delta"), [], "of nothing there is nothing")
        r = s.python("def f(a, b): return open('a.txt').read() + a + b", None, {"a": "1"}, b="2")
        t.equal(r.data, "alpha\n12", "a function finds its files")
        s.mkdir("/workspace/e/f")
        s.move("/workspace/a.txt", "/workspace/e/f/a.txt")
        s.upload("/workspace/up", tar(x__txt=b"x\n"))
        t.equal(s.command("cat e/f/a.txt up/x.txt").text, "alpha\nx\n", "mkdir, move, upload")
        with tarfile.open(fileobj=io.BytesIO(s.download("/workspace/e"))) as archive:
            t.ok(any(n.endswith("f/a.txt") for n in archive.getnames()), "download", str(archive.getnames()))
        s.remove("/workspace/e", recursive=True)
        t.ok(raised(nsbox.ServiceError, s.stat, "/workspace/e"), "remove")
        t.ok("s1" in [row["id"] for row in client.sessions()] and s.info()["commands"] >= 3, "listed")
    t.ok("s1" not in [row["id"] for row in client.sessions()], "over with its context")
    t.ok(s.end() is None, "ending it again is no error")


def test_threads(t):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        values = list(pool.map(lambda n: client.command(["echo", str(n)]).text, range(32)))
    t.equal(values, ["%d\n" % n for n in range(32)], "32 calls of 8 threads get their own answers")


async def asynchronous(t):
    c = nsbox.AsyncClient(daemon.socket)
    results = await asyncio.gather(*(c.command(["echo", str(n)]) for n in range(16)))
    t.equal([r.text for r in results], ["%d\n" % n for n in range(16)], "asyncio: calls at once")
    t.equal((await c.python("def f(n): return n", n=7)).data, 7, "a function")
    async with c.session("s2") as s:
        await s.put("/workspace/x", "x")
        t.equal(await s.get("/workspace/x"), b"x", "a session")
    job = await c.submit("echo a; echo b")
    names = [e.name async for e in job.events()]
    t.ok(names[0] == "queued" and names[-1] == "finished", "events", str(names))
    task = asyncio.create_task(c.command("sleep 600", trace_id="to-be-cut"))

    async def states():
        return {row["trace_id"]: row["state"] for row in await c.jobs() if row.get("trace_id") == "to-be-cut"}

    for _ in range(600):
        if (await states()).get("to-be-cut") == "running":
            break
        await asyncio.sleep(0.1)
    task.cancel()
    t.ok(isinstance((await asyncio.gather(task, return_exceptions=True))[0], asyncio.CancelledError), "cancelled")
    for _ in range(600):
        if (await states()).get("to-be-cut") != "running":
            break
        await asyncio.sleep(0.1)
    t.ok((await states()).get("to-be-cut") != "running", "its run has ended with it")


async def streams(t):
    """With room for one call at a time: one that hangs would hold up all others."""
    c = nsbox.AsyncClient(daemon.socket, calls=1)
    said = []
    async with await c.interactive("while read line; do echo got $line; done") as run:
        await run.write(b"one\n")
        await run.write(b"")
        async for event in run:
            if event.name == "stdout":
                said.append(event.content)
    t.equal(b"".join(said), b"got one\n", "asyncio: talked with while it runs")
    job = await c.submit("echo on; sleep 600")
    on = asyncio.Event()

    async def follow():
        async for event in job.events():
            if event.name == "stdout":
                on.set()

    task = asyncio.create_task(follow())
    await asyncio.wait_for(on.wait(), 60)
    await asyncio.sleep(0)  # it waits for the next event, which does not come
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    state = await asyncio.wait_for(job.state(), 60)
    t.equal(state, "running", "who leaves a stream leaves the call, and the job goes on")
    await job.cancel()


def test_asyncio(t):
    asyncio.run(asynchronous(t))
    asyncio.run(streams(t))


def test_backend(t):
    """As deepagents uses a sandbox. It is not installed here: what is answered has its shape."""
    from nsbox.deepagents import SandboxBackend
    b = SandboxBackend(client.session("deep"), max_output=1000)
    t.equal((b.id, b.write("a/b.txt", "one\ntwo\ntwo\n").path), ("nsbox-deep", "/workspace/a/b.txt"), "a new file")
    t.ok("already exists" in b.write("a/b.txt", "").error, "which is not written over")
    r = b.execute("cat a/b.txt; echo no >&2; exit 3")
    t.equal((r.output, r.exit_code, r.truncated), ("one\ntwo\ntwo\n\n[stderr] no\n\nExit code: 3", 3, False), "a command sees it")
    t.equal((b.execute("true").output, b.execute("").exit_code), ("<no output>", 1), "no output, no command")
    r = b.execute("yes | head -c 5000")
    t.ok(r.truncated and r.output.endswith("... Output truncated at 1000 bytes."), "too much", r.output[-60:])
    r = b.execute("echo first; sleep 60", timeout=1)
    t.ok(r.exit_code == 124 and "first" in r.output and "timed out after 1 seconds" in r.output, "too long", repr(r))
    t.ok(isinstance(raised(ValueError, b.execute, "true", timeout=0), ValueError), "a time that is none")
    r = b.read("/workspace/a/b.txt", 1, 1)
    t.equal((r.file_data, r.start_line, r.end_line, r.next_offset, r.total_lines),
            ({"content": "two\n", "encoding": "utf-8"}, 2, 2, 2, 3), "some lines")
    t.ok("exceeds" in b.read("a/b.txt", 9).error and b.read("a/b.txt", 0, 0).no_lines_requested and
         "No such file" in b.read("none").error, "lines, and files, that are not there")
    t.ok("2 times" in b.edit("a/b.txt", "two", "2").error and "not found" in b.edit("a/b.txt", "x", "").error, "edits that cannot be")
    t.equal(b.edit("a/b.txt", "two", "2", replace_all=True).occurrences, 2, "one that can")
    t.equal([(e["path"], e["is_dir"]) for e in b.ls("/workspace").entries if e["path"] == "/workspace/a"], [("/workspace/a", True)], "ls")
    t.ok("No such file" in b.ls("/none").error, "of what is not there")
    t.equal([e["path"] for e in b.glob("**/*.txt").matches], ["/workspace/a/b.txt"], "glob")
    t.equal([(m["path"], m["line"]) for m in b.grep("2", glob="*.txt").matches], [("/workspace/a/b.txt", n) for n in (2, 3)], "grep")
    r = b.grep("2", "/workspace/a", max_count=1)
    t.ok(len(r.matches) == 1 and r.truncated, "at most so many", repr(r))
    t.equal([u.error for u in b.upload_files([("x/raw", b"\xff\0"), ("/usr/x", b"")])][0], None, "upload")
    t.ok(b.upload_files([("/usr/x", b"")])[0].error, "where it may not")
    t.equal([(d.content, d.error) for d in b.download_files(["x/raw", "none", "x"])],
            [(b"\xff\0", None), (None, "file_not_found"), (None, "is_directory")], "download")
    t.equal(b.read("x/raw").file_data["encoding"], "base64", "bytes")
    t.equal((b.delete("x/raw").path, bool(b.delete("x/raw").error)), ("/workspace/x/raw", True), "delete")
    t.ok(b.ls_info("/workspace") and b.glob_info("**/*.txt") and b.grep_raw("one"), "by their older names")
    t.equal(asyncio.run(b.aexecute("echo hi")).output, "hi\n", "for asyncio")
    client.session("deep").end()


def test_installed(t):
    """As pip installs it, without an index."""
    with tempfile.TemporaryDirectory() as place:
        copy = shutil.copytree(PACKAGE, os.path.join(place, "source"))
        done = subprocess.run([sys.executable, "-m", "pip", "install", "--no-index", "--no-build-isolation", "--quiet",
                               "--target", os.path.join(place, "site"), copy], capture_output=True, text=True, check=False)
        t.ok(done.returncode == 0, "pip installs it", done.stdout + done.stderr)
        code = "import nsbox; print(nsbox.__file__, nsbox.Client(%r).python('def f(): return 5').data)" % daemon.socket
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=place,
                              env=dict(os.environ, PYTHONPATH=os.path.join(place, "site")))
        t.equal(done.stdout, "%s/site/nsbox/__init__.py 5\n" % place, "and it runs a function")


if __name__ == "__main__":
    with service.Daemon() as daemon:
        client = nsbox.Client(daemon.socket)
        sys.exit(tap.run([test_runs, test_errors, test_jobs, test_interactive, test_sessions, test_threads, test_asyncio, test_backend, test_installed]))
