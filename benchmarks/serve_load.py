"""Many clients at once against `cfo serve`: valid requests, and random, huge, malformed, slow and foreign ones.

    python benchmarks/serve_load.py http://127.0.0.1:PORT [--clients 64] [--seconds 60] [--pid PID] [--seed 0]

Every valid request must be answered, every other one refused with the matching status. With the process number of the
server its memory is watched too. Prints a line per kind of request, and exits with 1 if anything was wrong.
"""

import argparse
import http.client
import json
import random
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit


def memory(pid):
    """Megabytes that a process holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Client(threading.Thread):
    def __init__(self, address, run, until, seed):
        super().__init__(daemon=True)
        self.address, self.run_facts, self.until = address, run, until
        self.random = random.Random(seed)
        self.seen, self.wrong, self.slowest = Counter(), [], 0.0

    def run(self):
        kinds = (
            [self.predict] * 8 + [self.initial] * 4 + [self.facts, self.page, self.huge, self.malformed, self.nonsense]
        )
        kinds += [self.foreign, self.rebound, self.unknown, self.silent]
        while time.time() < self.until:
            kind = self.random.choice(kinds)
            try:
                kind()
                self.seen[kind.__name__] += 1
            except AssertionError as error:
                self.wrong.append(f"{kind.__name__}: {error}")
            except OSError as error:
                self.wrong.append(f"{kind.__name__}: no answer ({error})")

    def ask(self, method, path, body=None, headers=None, expected=(200,)):
        connection = http.client.HTTPConnection(*self.address, timeout=90)
        headers = {"Content-Type": "application/json", **(headers or {})}
        began = time.time()
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        content = response.read()
        self.slowest = max(self.slowest, time.time() - began)
        connection.close()
        assert response.status in expected, f"{response.status} instead of {expected}: {content[:200]!r}"
        self.seen[f"status {response.status}"] += 1
        answer = (
            json.loads(content) if response.getheader("Content-Type", "").startswith("application/json") else content
        )
        if response.status >= 400:
            assert answer["error"] and "hint" in answer, answer
            return None
        return answer

    def times(self):
        facts = self.run_facts["times"]
        return sorted(self.random.uniform(facts["first"], facts["last"]) for _ in range(self.random.randint(1, 20)))

    def check(self, answer, times):
        if answer is None:
            return
        count = 1
        for extent in answer["shape"]:
            count *= extent
        assert answer["times"] == times and len(answer["values"]) == count, "another shape than asked for"
        assert answer["shape"][0] == len(times) and answer["evaluations"] > 0 and answer["milliseconds"] > 0

    def predict(self):
        times = self.times()
        index = self.random.randrange(self.run_facts["trajectories"] or 1)
        self.check(self.ask("POST", "/api/predict", json.dumps({"trajectory": index, "times": times})), times)

    def initial(self):
        size = 1
        for extent in self.run_facts["shape"]:
            size *= extent
        times = self.times()
        body = {"initial": [self.random.uniform(-1, 1) for _ in range(size)], "times": times, "solver": "rk4"}
        # States far from the training data may diverge, which is reported.
        self.check(self.ask("POST", "/api/predict", json.dumps(body), expected=(200, 422)), times)

    def facts(self):
        assert self.ask("GET", "/api/run")["shape"] == self.run_facts["shape"]

    def page(self):
        assert b"cfo-data" in self.ask("GET", "/")

    def huge(self):
        limit = self.run_facts["limits"]["bytes"]
        try:
            self.ask("POST", "/api/predict", b" " * (limit + 1 + self.random.randrange(1 << 20)), expected=(413,))
        except (BrokenPipeError, ConnectionResetError):
            pass  # Refused while it was still being sent.

    def malformed(self):
        body = self.random.choice(
            [b"{", b"[]", b'{"times": "soon"}', b'{"trajectory": 0, "times": [1e999]}', b"\xff\xfe", b'{"nonsense": 1}']
        )
        self.ask("POST", "/api/predict", body, expected=(400,))
        wrong = self.random.choice(
            [
                {"times": [0]},
                {"trajectory": 10**9, "times": [0]},
                {"trajectory": 0, "times": []},
                {"initial": [1], "times": [0]},
            ]
        )
        self.ask("POST", "/api/predict", json.dumps(wrong), expected=(422,))

    def nonsense(self):
        with socket.create_connection(self.address, timeout=60) as stream:
            stream.sendall(bytes(self.random.randrange(256) for _ in range(200)) + b"\r\n\r\n")
            answer = stream.recv(65536)
            assert not answer or b" 400 " in answer.split(b"\r\n")[0] or b" 431 " in answer.split(b"\r\n")[0], answer[
                :80
            ]

    def foreign(self):
        body = json.dumps({"trajectory": 0, "times": [0]})
        self.ask("POST", "/api/predict", body, {"Origin": "http://elsewhere.example"}, expected=(403,))

    def rebound(self):
        self.ask("GET", "/api/run", headers={"Host": "elsewhere.example"}, expected=(403,))

    def unknown(self):
        self.ask("GET", "/nowhere", expected=(404,))
        self.ask("GET", "/api/predict", expected=(405,))

    def silent(self):
        """Half a request, byte by byte; other requests must not be delayed."""
        with socket.create_connection(self.address, timeout=60) as stream:
            for byte in b"POST /api/predict HTTP/1.1\r\nHost: ":
                if time.time() > self.until:
                    return
                try:
                    stream.sendall(bytes([byte]))
                except OSError:
                    return
                time.sleep(0.02)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pid", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    parts = urlsplit(options.address)
    address = (parts.hostname, parts.port)
    probe = Client(address, None, 0, 0)
    facts = probe.ask("GET", "/api/run")
    until = time.time() + options.seconds
    clients = [Client(address, facts, until, options.seed * 1000 + number) for number in range(options.clients)]
    for client in clients:
        client.start()
    held = []
    while time.time() < until:
        time.sleep(min(1.0, options.seconds / 4))
        if options.pid:
            held.append(memory(options.pid))
    for client in clients:
        client.join(90)
    seen = sum((client.seen for client in clients), Counter())
    wrong = [line for client in clients for line in client.wrong]
    for kind, count in sorted(seen.items()):
        print(f"{kind:12} {count}")
    print(f"slowest answer {max(client.slowest for client in clients):.2f} s")
    if len(held) > 3:
        # The first quarter may still load; after it nothing may pile up.
        early, late = held[len(held) // 4], held[-1]
        print(f"memory {held[0]:.0f} MB at first, {early:.0f} MB after a quarter, {late:.0f} MB at the end")
        if late > 1.5 * early + 64:
            wrong.append(f"memory grew from {early:.0f} to {late:.0f} MB")
    if not seen["predict"] or not seen["status 200"]:
        wrong.append("no prediction was answered")
    for line in wrong[:20]:
        print("WRONG", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
