# SPDX-License-Identifier: Apache-2.0
"""What a function finds of its interpreter, and what it then leaves in it: for tests that no run sees another's."""

LOOK = """
def look():
    import _thread, builtins, os, resource, signal, sys, tempfile, threading, time, types
    found = {
        "seen": [hasattr(builtins, "left"), hasattr(sys, "left"), "LEFT" in os.environ, os.path.exists("/tmp/left")],
        "cwd": os.getcwd(), "argv": sys.argv, "orig": sys.orig_argv, "environ": dict(os.environ), "ids": [os.getpid(), os.getppid(), os.getuid(), os.getgid()],
        "fds": sorted(set(os.listdir("/proc/self/fd"))), "threads": threading.active_count(), "umask": os.umask(0o22), "session": os.getsid(0) == os.getpid(),
        "signals": [str(signal.getsignal(n)) for n in (2, 13, 15, 17, 25)], "mask": len(signal.pthread_sigmask(0, [])), "main": sys.modules["__main__"].__file__,
        "status": [l for l in open("/proc/self/status") if l.split(":")[0] in
                   ("Name", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "SigCgt", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "Threads")],
        "limits": open("/proc/self/limits").read(), "mounts": len(open("/proc/self/mounts").readlines()),
        "memory": [l for l in open("/proc/self/maps") if "nsbox-plan" in l or "nsbox-root" in l or "nsbox-exec" in l],
        "streams": [(s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.seekable()) for s in (sys.stdout, sys.stderr)],
        "flags": str(sys.flags), "path": sys.path,
    }
    builtins.left = sys.left = 1
    os.environ["LEFT"] = "1"
    open("/tmp/left", "w").close()
    os.chdir("/tmp")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    os.umask(0o77)
    sys.path.append("/left")
    builtins.kept = [open("/etc/services") for _ in range(3)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
    threading.Thread(target=time.sleep, args=(0.1,)).start()
    return found
"""


def differences(one, other):
    """{what: (found by one, by the other)} of two calls of LOOK."""
    return {what: (found, other["data"].get(what)) for what, found in one["data"].items() if found != other["data"].get(what)}
