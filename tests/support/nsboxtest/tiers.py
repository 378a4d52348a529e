# SPDX-License-Identifier: Apache-2.0
"""The same tests on each tier, by a service that reaches it: on this host, and, as root, in containers as Docker starts
them, where the shipped profile allows the tier "namespace" and none allows more than "process"."""

import functools
import os
import subprocess

from . import docker, leftovers, paths, service, tap


def is_payload(tier, uid):
    """Is it who a run is: 1000 of its own user namespace, or without one a number of the run's alone."""
    return uid == 1000 if tier != "process" else uid > 65536


class Here(service.Daemon):
    """A service on this host."""

    def beside(self, argv, **how):
        """A Popen where the service is, outside any sandbox."""
        return subprocess.Popen(argv, **how)


class Boxed:
    """A service in a container, its socket in a directory of ours; asked as any other."""

    def __init__(self, place, profile, options=(), shown=()):
        """shown: directories that the container has as well, in the same place."""
        self.dir = place
        os.makedirs(place)
        os.chmod(place, 0o755)
        self.box = docker.Container(place + "-box", profile, [
            (place, "/run/nsbox", ["rbind", "rw"]), *((path, path, ["rbind", "rw"]) for path in shown)])
        self.log_path = os.path.join(place, "log")
        self.socket = os.path.join(place, "sock")
        with open(self.log_path, "wb") as log:
            self.process = self.box.start([paths.NSBOXD, "--socket", "/run/nsbox/sock", "--data-dir", "/var/lib/data",
                                           "--state-dir", "/var/lib/state", "--user", "nobody", *options],
                                          stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        tap.wait_until(lambda: self.process.poll() is not None or self.ready(), 60 * tap.slow())

    def ready(self):
        try:
            return leftovers.is_socket(self.socket) and self.ask("GET", "/healthz", timeout=5)[0] == 200
        except OSError:
            return False

    def log(self):
        return leftovers.read(self.log_path)

    def ask(self, *request, **more):
        return service.ask(self.socket, *request, **more)

    def fetch(self, *request, **more):
        return service.fetch(self.socket, *request, **more)

    def beside(self, argv, **how):
        return self.box.enter(argv, **how)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


def has_containers():
    """Root has, where this is no container itself (heavy/maxkb-python.t); not for what has AddressSanitizer in it, whose
    shadow is data, which the tier "process" limits."""
    return os.geteuid() == 0 and "NSBOX_NO_CONTAINERS" not in os.environ and not paths.ASAN


def services(place, options, shown):
    """How to have a service of each kind, strongest first."""
    yield lambda: Here(options=options)
    if has_containers():
        yield lambda: Boxed(os.path.join(place, "namespace"), docker.shipped(), options, shown)
        yield lambda: Boxed(os.path.join(place, "process"), docker.default(), ["--min-tier", "process", *options], shown)


def headed(test, tier, daemon):
    @functools.wraps(test)
    def run(t):
        t.heading = tier + ": "
        before = t.failed
        try:
            test(t)
        finally:
            t.heading = ""
            if t.failed > before:
                t.note(daemon.log()[-2000:])

    return run


def each(place, tests, use, options=(), shown=()):
    """For tap.run(): the tests on each tier, after use(tier, service). A tier that the host itself reaches is tried once."""
    seen = []
    for start in services(place, options, shown):
        with start() as daemon:
            tier = daemon.ask("GET", "/v1/capabilities")[1]["tier"]
            if tier in seen:
                continue
            seen.append(tier)
            use(tier, daemon)
            yield from (headed(test, tier, daemon) for test in tests)

    def all_of_them(t):
        want = ["namespace", "process"] if has_containers() else []
        t.equal([name for name in want if name not in seen], [], "tried on the tiers %s" % ", ".join(seen))

    yield all_of_them
