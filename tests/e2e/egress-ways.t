#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""How connections go out where the operator says so: by a proxy, and with TLS that names what was looked up."""

import json
import os
import ssl
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import cli, outside, paths, service, tap

outside.need("nginx", "curl", "openssl", "tinyproxy", "microsocks")
PLACE = paths.scratch("ways-")
os.chmod(PLACE, 0o755)
NAMES = outside.Script(outside.zone({n: ["127.0.0.1"] for n in ("a.test", "b.test")}))
WEB = outside.nginx()
# An authority, and a server that it has signed.
subprocess.run(["sh", "-ec", """
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=the operator's" -keyout ca.key -out ca.pem
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=a.test -keyout key.pem -out request.pem
echo subjectAltName=DNS:a.test >extensions
openssl x509 -req -in request.pem -days 2 -CA ca.pem -CAkey ca.key -CAcreateserial -extfile extensions -out cert.pem
"""], cwd=PLACE, capture_output=True, check=True)
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
TLS.load_cert_chain(PLACE + "/cert.pem", PLACE + "/key.pem")


def serve_tls(connection):
    with TLS.wrap_socket(connection, server_side=True) as s:
        s.recv(1000)
        s.sendall(b"HTTP/1.0 200 OK\r\n\r\nsecure")


SECURE = outside.Listener(serve_tls)


def allow(*ports):
    return {"network": {"mode": "allowlist", "allow": [{"host": h, "ports": list(ports), "description": "d"} for h in ("a.test", "b.test")]}}


def options(*more):
    return ["--egress-dns", "127.0.0.1:%d" % NAMES.port, "--egress-allow-private", "127.0.0.1", *more]


def curl(*argv, port=None, more=()):
    return cli.run("curl", "-sS", "-m", "60", *argv, manifest=allow(port or WEB.port), options=options(*more))


def proxies():
    """Real ones, each with where it listens."""
    port = outside.free_port()
    conf = os.path.join(PLACE, "tinyproxy.conf")
    with open(conf, "w", encoding="ascii") as f:
        f.write("Port %d\nListen 127.0.0.1\nMaxClients 20\nTimeout 60\nLogLevel Connect\nLogFile \"%s\"\n" % (port, conf + ".log"))
    yield "http://127.0.0.1:%d" % port, outside.Server(["tinyproxy", "-d", "-c", conf], port)
    port = outside.free_port()
    yield "socks5://localhost:%d" % port, outside.Server(["microsocks", "-i", "127.0.0.1", "-p", str(port)], port)


def test_proxies(t):
    urls = ["http://a.test:%d/" % WEB.port, "http://c.test:%d/" % WEB.port, "http://a.test:1/"]
    for proxy, server in proxies():
        kind = proxy.partition(":")[0]
        done = cli.run("curl", "-sS4", "-m", "60", *urls, manifest=allow(WEB.port, 1), options=options("--egress-proxy", proxy))
        failed = [(d["verdict"], d.get("error")) for d in done.report["network"]["decisions"] if d["what"] == "connection" and d["port"] == 1]
        t.equal((done.out, {d["name"] for d in done.report["denials"]}), ("hello", {"c.test"}),
                "by a proxy (%s), and what is not granted is refused as without one" % kind)
        t.equal(failed, [("failed", "ECONNREFUSED")], "what the proxy could not reach is told (%s)" % kind)
        server.stop()
        done = curl(urls[0], more=("--egress-proxy", proxy))
        t.ok(done.status and not done.out, "without the proxy there is no way (%s)" % kind, repr(done))
    with open(os.path.join(PLACE, "tinyproxy.conf.log"), encoding="utf-8") as f:
        log = f.read()
    t.ok("CONNECT 127.0.0.1:%d" % WEB.port in log and "a.test" not in log, "it was told an address, and no name", log[-600:])


def test_proxies_that_misbehave(t):
    answers = {"another protocol": b"SSH-2.0-x\r\n\r\n", "endless": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 2000}
    for name, answer in answers.items():
        listener = outside.Listener(lambda c, answer=answer: (c.recv(1000), c.sendall(answer)))
        done = curl("http://a.test:%d/" % WEB.port, more=("--egress-proxy", "http://127.0.0.1:%d" % listener.port))
        # 7: the reset was there before curl saw the connection
        t.ok(done.status in (7, 52, 56) and done.report["network"]["connections_failed"], "a proxy that says: %s" % name, repr(done))
    for url, word in (("ftp://x:1", "socks5://"), ("http://user:secret@x:1", "password"), ("http://x", "HOST:PORT")):
        done = curl("http://a.test/", more=("--egress-proxy", url))
        t.ok(done.status == 125 and word in done.err, "no proxy: %s" % url, repr(done))


def test_tls_names(t):
    ceiling = os.path.join(PLACE, "ceiling.json")
    with open(ceiling, "w", encoding="ascii") as f:
        json.dump({"tlsPorts": [SECURE.port]}, f)
    more = ("--ceiling", ceiling)
    tls = ("-k", "https://a.test:%d/" % SECURE.port)
    done = curl(*tls, port=SECURE.port, more=more)
    t.equal(done.out, "secure", "TLS for the name that was looked up")
    # The address of one name, asked for with the other in the TLS.
    argv = ("-k", "--connect-to", "a.test:%d:b.test:%d" % (SECURE.port, SECURE.port), tls[1])
    done = curl(*argv, port=SECURE.port, more=more)
    t.ok(done.status == 35 and done.report["denials"][0]["why"] == "TLS for another name", "and for another: refused", repr(done))
    t.equal(curl(*argv, port=SECURE.port).out, "secure", "which passes where nobody asked for more")
    plain = "http://a.test:%d/" % SECURE.port
    before = SECURE.count
    done = curl(plain, port=SECURE.port, more=more)
    t.ok(done.status in (52, 56) and "no TLS" in done.report["denials"][0]["why"] and SECURE.count == before,
         "no TLS: refused, and nobody outside heard of it", repr(done))
    t.equal(curl("http://a.test:%d/" % WEB.port, more=more).out, "hello", "at other ports nothing is looked at")
    # In many pieces, and one that never comes to an end.
    code = """
import socket, ssl, sys, time
def hello(name):
    i, o = ssl.MemoryBIO(), ssl.MemoryBIO()
    c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
    try: c.wrap_bio(i, o, server_hostname=name).do_handshake()
    except ssl.SSLWantReadError: return o.read()
for what in ("whole", "pieces", "half"):
    data = hello("a.test")
    s = socket.create_connection(("a.test", int(sys.argv[1])), 30)
    try:
        if what == "whole": s.sendall(data)
        for i in range(0, len(data) // (2 if what == "half" else 1), 40):
            if what != "whole": s.sendall(data[i:i + 40]); time.sleep(0.002)
        if what == "half": s.shutdown(socket.SHUT_WR)
        print(what, s.recv(1) == b"\\x16")
    except OSError as e: print(what, type(e).__name__)
"""
    done = cli.run("python3", "-c", code, str(SECURE.port), manifest=allow(SECURE.port), options=options(*more))
    t.equal(done.out, "whole True\npieces True\nhalf ConnectionResetError\n", "the beginning in pieces, and half of it")


# Each of them looks for authorities in another way.
TRUSTING = """
curl -sS $1 || echo curl refuses
env -i PATH=$PATH curl -sS $1 || echo curl refuses without variables
python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1], timeout=60).read().decode())' $1 2>&1 | tail -n 1
python3 -c 'import sys, requests; print(requests.get(sys.argv[1], timeout=60).text)' $1 2>&1 | tail -n 1
cat /etc/nsbox/ca-certificates.crt 2>/dev/null | grep -c BEGIN
echo more 2>/dev/null >>/etc/nsbox/ca-certificates.crt || echo not writable
"""


def trusting(*more, port=None):
    done = cli.run("sh", "-c", TRUSTING, "sh", "https://a.test:%d/" % (port or SECURE.port), manifest=allow(SECURE.port), options=options(*more))
    return done, done.out.replace("secure", "secure\n").split("\n")


def test_authorities(t):
    """A server whose certificate an authority of the operator's has signed."""
    with open("/etc/ssl/certs/ca-certificates.crt", encoding="ascii") as f:
        own = f.read().count("BEGIN")
    done, lines = trusting("--ca-certificates", PLACE + "/ca.pem")
    lines = [line for line in lines if line]
    t.equal(lines, ["secure"] * 4 + [str(own + 1), "not writable"],
            "an operator's authority: curl with and without variables, Python's ssl, requests; beside the image's own")
    done, lines = trusting()
    t.ok("secure" not in done.out and "curl refuses without variables" in lines and done.out.count("CERTIFICATE_VERIFY_FAILED") == 2
         and done.report["network"]["connections"] == 4, "and without it they refuse that server", repr(done))
    ceiling = os.path.join(PLACE, "trusted.json")
    with open(PLACE + "/ca.pem", encoding="ascii") as f, open(ceiling, "w", encoding="ascii") as out:
        json.dump({"caCertificates": f.read()}, out)
    argv = ("curl", "-sS", "https://a.test:%d/" % SECURE.port)
    done = cli.run(*argv, manifest={**allow(SECURE.port), "profile": "strict"}, options=options("--ceiling", ceiling))
    t.equal(done.out, "secure", "by a ceiling, and with a root that is read-only")
    done = cli.run(*argv, manifest={**allow(SECURE.port), "env": {"set": {"CURL_CA_BUNDLE": "/workspace/mine"}}},
                   options=options("--ceiling", ceiling))
    t.equal(done.status, 77, "what a manifest sets itself wins")
    done = cli.run("sh", "-c", "ls /etc/nsbox; env", options=("--ceiling", ceiling))
    t.ok("ca-certificates.crt" not in done.out and "SSL_CERT_FILE" not in done.out, "a run without a network has none of it", repr(done))
    for path, name in ((PLACE + "/key.pem", "a key"), ("/etc/hostname", "no certificate")):
        done = cli.run("true", options=("--ca-certificates", path))
        t.ok(done.status == 125 and "no certificates in PEM" in done.err, "%s is refused by name" % name, repr(done))


def test_service(t):
    path = os.path.join(PLACE, "config.json")
    proxy, server = next(proxies())
    with open(PLACE + "/ca.pem", encoding="ascii") as ca, open(path, "w", encoding="ascii") as f:
        json.dump({"egressProxy": proxy, "egressDns": "127.0.0.1:%d" % NAMES.port,
                   "ceiling": {"openNetworks": ["127.0.0.1"], "caCertificates": ca.read()}}, f)
    with service.Daemon(options=["--config", path]) as daemon:
        ask = {"command": "curl -sS http://a.test:%d/" % WEB.port, "network_policy": {"mode": "allowlist", "allow": ["a.test:%d" % WEB.port]}}
        t.equal(daemon.ask("POST", "/v1/execute/command", ask)[1]["stdout"], "hello", "the service's runs go by its proxy")
        secure = {"command": "curl -sS https://a.test:%d/" % SECURE.port, "network_policy": {"mode": "allowlist", "allow": ["a.test:%d" % SECURE.port]}}
        t.equal(daemon.ask("POST", "/v1/execute/command", secure)[1]["stdout"], "secure", "and trust its operator's authority")
        server.stop()
        t.equal(daemon.ask("POST", "/v1/execute/command", ask)[1]["stdout"], "", "and have no other way")


if __name__ == "__main__":
    sys.exit(tap.run([f for name, f in sorted(globals().items()) if name.startswith("test_")]))
