#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Egress at length, and with programs that take large packages: databases' own clients, pip, npm, Go, a static C
program; a resolver of its own (unbound); 1 GiB, 1000 connections, a name server that says nothing."""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, outside, paths, tap

PG = "/usr/lib/postgresql/15/bin"
outside.PATH += ":" + PG
outside.need("nginx", "unbound", "postgres", "psql", "mariadbd", "mariadb", "go", "musl-gcc", "curl")
PLACE = paths.scratch("egress-heavy-")
os.chmod(PLACE, 0o755)
WEB = outside.nginx(more="absolute_redirect off;")
NAMES = outside.Script(outside.zone({"allowed.test": ["127.0.0.1"], "silent.test": lambda name, kind, tcp: None}))
DROP = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []


def allow(*ports, hosts=("allowed.test",)):
    return {"network": {"mode": "allowlist", "allow": [{"host": h, "ports": list(ports), "description": "d"} for h in hosts]},
            "resources": {"memory": "1Gi", "openFiles": 1100}, "process": {"jit": True}}


def options(*more, dns=None):
    return ["--egress-dns", "127.0.0.1:%d" % (dns or NAMES).port, "--egress-allow-private", "127.0.0.1", *more]


def run(*argv, ports=(), more=(), **args):
    return cli.run(*argv, manifest=allow(*(ports or (WEB.port,))), options=options(*more), timeout=300, **args)


def quietly(*argv, **more):
    return subprocess.run(argv, capture_output=True, check=True, env={**os.environ, "PATH": outside.PATH}, **more)


def directory(name):
    path = os.path.join(PLACE, name)
    os.mkdir(path)
    if DROP:
        os.chown(path, 65534, 65534)
    return path


def test_databases(t):
    data, port = directory("pg"), outside.free_port()
    quietly(*DROP, PG + "/initdb", "-D", data, "-U", "me", "-A", "trust", "--no-sync")
    server = outside.Server([*DROP, PG + "/postgres", "-D", data, "-p", str(port), "-c", "unix_socket_directories=", "-c", "fsync=off"], port)
    done = run("psql", "-h", "allowed.test", "-p", str(port), "-U", "me", "-Atc", "select 6*7", "postgres", ports=(port,))
    server.stop()
    t.equal(done.out, "42\n", "psql")
    data, port = directory("my"), outside.free_port()
    quietly(*DROP, "mariadb-install-db", "--datadir=" + data, "--skip-test-db", "--auth-root-authentication-method=normal")
    server = outside.Server([*DROP, "mariadbd", "--no-defaults", "--datadir=" + data, "--port=%d" % port, "--bind-address=127.0.0.1",
                             "--socket=" + data + "/s", "--skip-grant-tables", "--skip-networking=0"], port)
    done = run("mariadb", "--no-defaults", "--skip-ssl", "-h", "allowed.test", "-P", str(port), "-Ne", "select 6*7", ports=(port,))
    server.stop()
    t.equal(done.out, "42\n", "the client of MariaDB", )


def test_package_managers(t):
    files, url = os.path.join(WEB.place, "files"), "http://allowed.test:%d/files" % WEB.port
    os.makedirs(files + "/simple/tiny")
    with zipfile.ZipFile(files + "/simple/tiny/tiny-1.0-py3-none-any.whl", "w") as z:
        z.writestr("tiny.py", "answer = 42\n")
        z.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        z.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\n")
    with open(files + "/simple/tiny/index.html", "w", encoding="ascii") as f:
        f.write('<!DOCTYPE html><html><body><a href="tiny-1.0-py3-none-any.whl">tiny-1.0-py3-none-any.whl</a></body></html>')
    done = run("sh", "-c", "python3 -m pip install -q --disable-pip-version-check --target . --trusted-host allowed.test -f %s/simple/tiny/index.html"
               " --no-index tiny; python3 -c 'import tiny; print(tiny.answer)'" % url)
    t.ok(done.out == "42\n", "pip, from an index", repr(done))
    if not shutil.which("npm", path=outside.PATH):
        t.note("npm is not installed")
        return
    with tarfile.open(files + "/tiny-1.0.0.tgz", "w:gz") as tar:
        for name, text in (("package.json", json.dumps({"name": "tiny", "version": "1.0.0"})), ("index.js", "module.exports = 42\n")):
            entry = tarfile.TarInfo("package/" + name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    done = run("sh", "-c", "npm install --no-audit --no-fund --loglevel=error %s/tiny-1.0.0.tgz >&2; node -p 'require(\"tiny\")'" % url)
    t.ok(done.out == "42\n", "npm, from a registry's file", repr(done))


GO = """package main
import ("fmt"; "io"; "net/http"; "os")
func main() {
	r, err := http.Get(os.Args[1])
	if err != nil { fmt.Println(err); os.Exit(1) }
	b, _ := io.ReadAll(r.Body)
	fmt.Println(string(b))
}
"""
C = """#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *a;
	char buf[4096]; int fd, n = 0, k;
	if (getaddrinfo(argv[1], argv[2], &hints, &a)) return 1;
	fd = socket(a->ai_family, SOCK_STREAM, 0);
	if (connect(fd, a->ai_addr, a->ai_addrlen)) return 2;
	write(fd, "GET / HTTP/1.0\\r\\n\\r\\n", 18);
	while ((k = read(fd, buf + n, sizeof(buf) - 1 - n)) > 0) n += k;
	buf[n] = 0;
	puts(strstr(buf, "\\r\\n\\r\\n") + 4);
}
"""


def test_compiled_programs(t):
    for name, text in (("get.go", GO), ("get.c", C)):
        with open(os.path.join(PLACE, name), "w", encoding="ascii") as f:
            f.write(text)
    env = {"PATH": outside.PATH, "HOME": PLACE, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod", "GO111MODULE": "off"}
    subprocess.run(["go", "build", "-o", PLACE + "/get-go", PLACE + "/get.go"], env=env, check=True, timeout=300)
    subprocess.run(["musl-gcc", "-static", "-o", PLACE + "/get-musl", PLACE + "/get.c"], env=env, check=True, timeout=60, stderr=subprocess.DEVNULL)
    for name, argv in (("Go, with its own resolver", ["./get-go", "http://allowed.test:%d/" % WEB.port]), ("static, with musl", ["./get-musl", "allowed.test", str(WEB.port)])):
        done = run(*argv, more=("--put", PLACE + "/" + argv[0][2:]))
        t.ok(done.out == "hello\n", name, repr(done))
        done = run(*[a.replace("allowed", "other") for a in argv], more=("--put", PLACE + "/" + argv[0][2:]))
        t.ok(done.status and "hello" not in done.out, name + ": and not what is not granted", repr(done))


def test_another_resolver(t):
    port = outside.free_port()
    conf = os.path.join(PLACE, "unbound.conf")
    with open(conf, "w", encoding="ascii") as f:
        f.write('server:\n interface: 127.0.0.1\n port: %d\n do-daemonize: no\n use-syslog: no\n username: ""\n chroot: ""\n directory: "%s"\n'
                ' pidfile: ""\n module-config: "iterator"\n local-zone: "test." static\n local-data: "allowed.test. 5 IN A 127.0.0.1"\n'
                ' local-data: "alias.test. 5 IN CNAME allowed.test."\n local-data: "inward.test. 5 IN A 10.1.2.3"\n' % (port, PLACE))
    server = outside.Server(["unbound", "-c", conf], port)
    done = cli.run("sh", "-c", "for n in allowed inward missing; do curl -sS http://$n.test:%d/ && echo; done" % WEB.port,
                   manifest=allow(WEB.port, hosts=("allowed.test", "inward.test", "missing.test")), options=options(dns=server))
    server.stop()
    t.ok(done.out == "hello\n" and {d["name"] for d in done.report["denials"]} == {"inward.test"}, "names by way of unbound", repr(done))


def test_at_length(t):
    total = 1 << 30

    def pour(c):
        block, left = bytes(1 << 20), total
        while left:
            c.sendall(block)
            left -= len(block)

    server = outside.Listener(pour)
    code = ("import socket\ns = socket.create_connection(('allowed.test', %d), 30)\nn, b = 0, bytearray(1 << 20)\n"
            "while True:\n    k = s.recv_into(b)\n    if not k: break\n    n += k\nprint(n)" % server.port)
    done = run("python3", "-c", code, ports=(server.port,))
    t.equal((done.out, done.report["network"]["bytes_in"]), ("%d\n" % total, total), "1 GiB, counted")
    server = outside.Listener(lambda c: [c.sendall(d) for d in iter(lambda: c.recv(100), b"")])
    code = ("import resource, socket\nresource.setrlimit(resource.RLIMIT_NOFILE, (1100, 1100))\n"
            "at = socket.getaddrinfo('allowed.test', %d, socket.AF_INET)[0][4]\nall = []\n"
            "for i in range(1000):\n    s = socket.socket(); s.settimeout(60); s.connect(at); all.append(s)\n"
            "for i, s in enumerate(all): s.sendall(b'%%04d' %% i)\n"
            "print(sum(s.recv(4) == b'%%04d' %% i for i, s in enumerate(all)))" % server.port)
    t.equal(run("python3", "-c", code, ports=(server.port,)).out, "1000\n", "1000 connections at once")
    done = cli.run("curl", "-sS", "http://silent.test:%d/" % WEB.port, manifest=allow(WEB.port, hosts=("silent.test",)), options=options())
    t.ok(done.status in (6, 28) and done.report["network"]["lookups_failed"], "a name server that says nothing is an error", repr(done))


if __name__ == "__main__":
    sys.exit(tap.run([f for name, f in sorted(globals().items()) if name.startswith("test_")]))
