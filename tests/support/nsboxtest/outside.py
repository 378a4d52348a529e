# SPDX-License-Identifier: Apache-2.0
"""What is outside for tests of egress: real servers on the host's loopback, started for a test.

Runs reach them because the operator's option opens the loopback addresses that they listen on; the
name server knows only names below "test".
"""

import atexit
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time

from . import paths, tap

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

NGINX = """daemon off; master_process off; pid %(place)s/pid; error_log stderr; events {}
http {
  access_log off; default_type text/plain; sendfile on;
  client_body_temp_path %(place)s/a; proxy_temp_path %(place)s/b; fastcgi_temp_path %(place)s/c;
  uwsgi_temp_path %(place)s/d; scgi_temp_path %(place)s/e;
  server {
    listen %(address)s:%(port)d backlog=4096; %(more)s
    location / { return 200 "hello"; }
    location /files/ { alias %(place)s/files/; }
  }
}
"""


def need(*programs):
    missing = [p for p in programs if not shutil.which(p, path=PATH)]
    if missing:
        tap.skip_all("%s not installed: tests/support/install-packages test" % ", ".join(missing))


def free_port(address="127.0.0.1"):
    with socket.socket() as s:
        s.bind((address, 0))
        return s.getsockname()[1]


class Server:
    """A process that ends with the test, and is there when its port answers."""

    def __init__(self, argv, port, address="127.0.0.1"):
        self.address, self.port = address, port
        self.place = None
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, env={"PATH": PATH, "LANG": "C"})
        atexit.register(self.stop)
        if not tap.wait_until(self.answers, 10):
            raise RuntimeError("%s does not answer" % argv[0])

    def answers(self):
        with socket.socket() as s:
            s.settimeout(1)
            return s.connect_ex((self.address, self.port)) == 0

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def dnsmasq(*records, address="127.0.0.1"):
    """records: options like "--address=/name/address"."""
    port = free_port(address)
    return Server(["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=%d" % port,
                   "--listen-address=" + address, "--bind-interfaces", "--no-resolv", "--no-hosts",
                   "--pid-file=", "--user=", "--local=/test/", *records], port, address)


def nginx(address="127.0.0.1", port=None, more=""):
    """Every path answers "hello", those below /files/ are files of its directory."""
    place = paths.scratch("outside-")
    port = port or free_port(address)
    os.mkdir(os.path.join(place, "files"))
    with open(os.path.join(place, "conf"), "w", encoding="ascii") as f:
        f.write(NGINX % {"place": place, "address": address, "port": port, "more": more})
    server = Server(["nginx", "-c", os.path.join(place, "conf")], port, address)
    server.place = place
    return server


class Servers:
    """What the cases find outside: every name below "test" at a web server that says "hello" on port 8080, and a
    secret on the host's own loopback."""

    def __init__(self):
        # Of one's own, so that tests on one machine do not meet at the port.
        self.address = "127.%d.%d.%d" % (random.randint(64, 127), random.randint(0, 255), random.randint(1, 254))
        self.dns = dnsmasq("--address=/test/" + self.address)
        self.web = nginx(address=self.address, port=8080)
        self.place = None
        try:
            self.secret = Listener(lambda c: c.sendall(b"secret"), port=45999)
        except OSError:
            self.secret = None # another test's serves as well

    def options(self):
        return ["--egress-dns", "127.0.0.1:%d" % self.dns.port, "--egress-allow-private", self.address]

    def daemon_options(self):
        self.place = paths.scratch("outside-")
        os.chmod(self.place, 0o755)
        with open(os.path.join(self.place, "ceiling.json"), "w", encoding="ascii") as f:
            json.dump({"network": "open", "openNetworks": [self.address]}, f)
        return ["--egress-dns", "127.0.0.1:%d" % self.dns.port, "--ceiling", f.name]

    def stop(self):
        self.dns.stop()
        self.web.stop()
        if self.secret:
            self.secret.socket.close()


class Listener:
    """A server of the test's own: handle(connection) for each, in threads."""

    def __init__(self, handle, address="127.0.0.1", family=socket.AF_INET, backlog=4096, port=0):
        self.socket = socket.socket(family)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((address, port))
        self.socket.listen(backlog)
        self.address, self.port = self.socket.getsockname()[:2]
        self.handle = handle
        self.count = 0
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.count += 1
            threading.Thread(target=self.one, args=(connection,), daemon=True).start()

    def one(self, connection):
        try:
            self.handle(connection)
        except OSError:
            pass
        finally:
            connection.close()


# ------------------------------------------------------------------ a name server with a script

def put_name(name):
    return b"".join(bytes([len(part)]) + part.encode() for part in name.split(".") if part) + b"\0"


def record(name, kind, data, ttl=30):
    return put_name(name) + kind.to_bytes(2, "big") + b"\0\1" + ttl.to_bytes(4, "big") \
        + len(data).to_bytes(2, "big") + data


A, CNAME, AAAA = 1, 5, 28


def address_data(text):
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)


class Script:
    """answer(name, kind, tcp) -> (rcode, [records], truncated) or None for no answer at all. Every
    question is in `asked`."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = []
        while True: # the same number for both protocols
            self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.udp.bind(("127.0.0.1", 0))
            self.port = self.udp.getsockname()[1]
            self.tcp = socket.socket()
            self.tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                self.tcp.bind(("127.0.0.1", self.port))
                break
            except OSError:
                self.tcp.close()
                self.udp.close()
        self.tcp.listen(64)
        self.address = "127.0.0.1"
        threading.Thread(target=self.serve_udp, daemon=True).start()
        threading.Thread(target=self.serve_tcp, daemon=True).start()

    def reply(self, query, tcp):
        at, parts = 12, []
        while query[at]:
            parts.append(query[at + 1:at + 1 + query[at]].decode("latin-1").lower())
            at += 1 + query[at]
        kind = int.from_bytes(query[at + 1:at + 3], "big")
        name = ".".join(parts)
        self.asked.append((name, kind, tcp))
        answer = self.answer(name, kind, tcp)
        if answer is None:
            return None
        rcode, records, truncated = answer
        flags = 0x8180 | rcode | (0x200 if truncated else 0)
        head = query[:2] + flags.to_bytes(2, "big") + b"\0\1" + len(records).to_bytes(2, "big") + b"\0\0\0\0"
        return head + query[12:at + 5] + b"".join(records)

    def serve_udp(self):
        while True:
            query, peer = self.udp.recvfrom(4096)
            threading.Thread(target=self.one_udp, args=(query, peer), daemon=True).start()

    def one_udp(self, query, peer):
        answer = self.reply(query, False)
        if answer is not None:
            self.udp.sendto(answer, peer)

    def serve_tcp(self):
        while True:
            connection, _ = self.tcp.accept()
            threading.Thread(target=self.one_tcp, args=(connection,), daemon=True).start()

    def one_tcp(self, connection):
        with connection:
            while True:
                head = connection.recv(2, socket.MSG_WAITALL)
                if len(head) < 2:
                    return
                query = connection.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
                answer = self.reply(query, True)
                if answer is not None:
                    connection.sendall(len(answer).to_bytes(2, "big") + answer)


def zone(table):
    """A Script's answer from {name: [addresses] | "cname" | callable}; other names do not exist."""
    def answer(name, kind, tcp):
        what = table.get(name)
        if callable(what):
            what = what(name, kind, tcp)
            if what is None or isinstance(what, tuple):
                return what
        if what is None:
            return 3, [], False
        records = []
        while isinstance(what, str):
            records.append(record(name, CNAME, put_name(what)))
            name, what = what, table.get(what, [])
        for text in what:
            if (AAAA if ":" in text else A) == kind:
                records.append(record(name, kind, address_data(text)))
        return 0, records, False
    return answer


def late(seconds):
    time.sleep(seconds)
