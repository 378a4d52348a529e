#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The network of the service's runs: granted and refused, told in results, receipts and the audit; and the end
of nsbox-egress under it."""

import json
import os
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "support"))
# pylint: disable=wrong-import-position
from nsboxtest import leftovers, outside, service, tap

outside.need("dnsmasq", "nginx", "curl")
DNS = outside.dnsmasq("--address=/test/127.0.0.1")
WEB = outside.nginx()

GET = """
def get(names, port):
    import urllib.request
    out = []
    for name in names:
        try:
            out.append(urllib.request.urlopen("http://%s:%d/" % (name, port), timeout=10).read().decode())
        except OSError as e:
            out.append("refused")
    return out
"""


def start(place, *options, **ceiling):
    path = os.path.join(place, "ceiling.json")
    with open(path, "w", encoding="ascii") as f:
        json.dump({"openNetworks": ["127.0.0.1"], **ceiling}, f)
    return service.Daemon(options=["--ceiling", path, "--egress-dns", "127.0.0.1:%d" % DNS.port, *options])


def get(daemon, *names, policy=None, manifest=None):
    body = {"code": GET, "params": {"names": names, "port": WEB.port}}
    if policy:
        body["network_policy"] = policy
    if manifest:
        body["manifest"] = manifest
    return daemon.ask("POST", "/v1/execute/python-function", body)


def allow(*hosts):
    return {"mode": "allowlist", "allow": ["%s:%d" % (h, WEB.port) for h in hosts]}


def egress_of(daemon):
    for (pid, _), name in leftovers.descendants(daemon.pid).items():
        if name == "nsbox-egress":
            return pid
    return None


def test_requests(t):
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        with start(place, bannedHosts="banned\\..*") as daemon:
            status, answer = get(daemon, "allowed.test", "other.test", "8.8.8.8", policy=allow("allowed.test", "banned.test"))
            t.equal((status, answer.get("data")), (200, ["hello", "refused", "refused"]), "network_policy grants a name, and no other")
            network = answer["network"]
            t.equal([network["connections"], network["lookups_refused"] > 0, network["refused_at_once"]], [1, True, 1], "counts are in the result")
            t.equal({(d["layer"], d["name"]) for d in answer["denials"]}, {("egress", "other.test"), ("nftables", None)}, "and what was refused")
            _, receipt = daemon.ask("GET", "/v1/receipts/" + answer["receipt_id"])
            t.ok(any(d["name"] == "allowed.test" and d["verdict"] == "allowed" and d["bytes_in"] for d in receipt["network"]["decisions"]
                     if d["what"] == "connection"), "the receipt has each decision", repr(receipt.get("network")))
            with open(os.path.join(daemon.data, "audit.log"), encoding="utf-8") as f:
                lines = [json.loads(line) for line in f]
            told = [l for l in lines if json.dumps(l).find('"network"') >= 0 and json.dumps(l).find("allowed.test") >= 0]
            t.ok(told, "and so has the audit", repr(lines[-3:]))
            _, answer = get(daemon, "banned.test", policy=allow("allowed.test", "banned.test"))
            t.equal(answer.get("data"), ["refused"], "the operator's ban holds")
            _, answer = get(daemon, "allowed.test")
            t.equal((answer.get("data"), answer["denials"], "network" in answer), (["refused"], [], False), "nothing is granted by default")
            status, answer = get(daemon, "allowed.test", policy={"mode": "open"})
            t.ok(status == 400 and "/network_policy/mode" in answer["msg"], "more than the ceiling is refused by name", repr(answer))
            manifest = {"manifestVersion": 1, "network": {"mode": "allowlist", "allow": [
                {"host": "allowed.test", "ports": [WEB.port], "description": "test"}]}}
            _, answer = get(daemon, "allowed.test", manifest=manifest)
            t.equal(answer.get("data"), ["hello"], "a manifest grants it as well")
            status, answer = get(daemon, "allowed.test", manifest=manifest, policy=allow("other.test"))
            t.ok(status == 400 and "/network_policy" in answer["msg"], "both at once are refused", repr(answer))
            _, answer = get(daemon, "allowed.test", manifest=manifest, policy={"mode": "none"})
            t.equal(answer.get("data"), ["refused"], "but none takes it away")


def test_many_at_once(t):
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        with start(place) as daemon:
            got = []
            threads = [threading.Thread(target=lambda n=n: got.append((n, get(daemon, n, policy=allow(n))[1].get("data"))))
                       for n in ("n%d.test" % i for i in range(12))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            t.equal(sorted({tuple(v or ()) for _, v in got}), [("hello",)], "runs at the same time, each with its own name")


def test_ahead(t):
    """Runs made ahead reach what their policy grants, count for the call they serve, and reach no more."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        with start(place, "--pool", "2") as daemon:
            curl = "for n in allowed other; do curl -s -m 10 http://$n.test:%d/ || echo refused; done" % WEB.port
            kinds = {
                "a function": lambda: get(daemon, "allowed.test", "other.test", policy=allow("allowed.test"))[1],
                "a command": lambda: daemon.ask("POST", "/v1/execute/command",
                                                {"argv": ["sh", "-c", curl], "network_policy": allow("allowed.test")})[1]}
            for n, (what, ask) in enumerate(kinds.items(), 1):
                for ahead in (None, True):
                    answer = ask()
                    saw = answer.get("data") or answer["stdout"].replace("hello", "hello\n").split()
                    _, receipt = daemon.ask("GET", "/v1/receipts/" + answer["receipt_id"])
                    t.equal((saw, answer["network"]["connections"], receipt.get("ahead")), (["hello", "refused"], 1, ahead),
                            "%s, %s" % (what, "made ahead" if ahead else "started for it"))
                    t.equal({d["name"] for d in answer["denials"]}, {"other.test"}, "and what it was refused is its own")
                    t.ok(tap.wait_until(lambda: "nsbox_pool_waiting %d\n" % n in daemon.ask("GET", "/metrics")[1], 60 * tap.slow()),  # pylint: disable=cell-var-from-loop
                         "one of each kind waits")


def status_of(pid):
    with open("/proc/%d/status" % pid, encoding="ascii") as f:
        return dict(line.split(":\t", 1) for line in f.read().splitlines() if ":\t" in line)


def test_itself(t):
    """What nsbox-egress may do on this machine, beside its supervisor, which is as it was started."""
    with tempfile.TemporaryDirectory() as place, start(place) as daemon:
        own, above = status_of(egress_of(daemon)), status_of(daemon.pid)
        t.equal((own["Seccomp"], own["NoNewPrivs"], int(own["CapEff"], 16), int(own["CapPrm"], 16)),
                ("2", "1", 0, 0), "nsbox-egress has a filter, no privilege and no way to gain one")
        t.equal((above["Seccomp"], os.geteuid() == 0 and int(above["CapEff"], 16) == 0), ("0", False), "its supervisor is not so")
        if os.geteuid() == 0:
            t.ok(own["Uid"].split()[0] not in ("0", above["Uid"].split()[0]), "it is a user of its own", own["Uid"])


def test_its_end(t):
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        with start(place) as daemon:
            first = egress_of(daemon)
            t.ok(first, "one nsbox-egress for the service")
            os.kill(first, signal.SIGKILL)
            again = tap.wait_until(lambda: egress_of(daemon) not in (None, first) and daemon.ready(), 20)
            t.ok(again, "when it dies all three start anew", daemon.log())
            _, answer = get(daemon, "allowed.test", policy=allow("allowed.test"))
            t.equal(answer.get("data"), ["hello"], "and runs have their network again")
            time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(tap.run([f for name, f in sorted(globals().items()) if name.startswith("test_")]))
