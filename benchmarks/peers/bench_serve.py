"""The server under load, beside `translate` on the same text: scripts/bench serve.

Both sides have the shipped model, its validation sentences and the same precision and threads, and take turns: `translate`
reads all sentences as a file; the server is asked for them one by one by clients that each wait for an answer before they
ask again, on connections that stay open. Meanwhile another connection asks for /health. Every answer is compared with
`translate`'s. Last, one client alone asks, which shows what a sentence takes when nobody waits.
"""

import argparse
import asyncio
import gzip
import json
import statistics
import subprocess
import time

from pairs import BINARIES, ROOT

MODEL = ROOT / "data" / "model-en-de"


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Connection:
    async def open(self, port):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def ask(self, request):
        """(body, seconds)"""
        began = time.perf_counter()
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
        body = await self.reader.readexactly(length)
        return body, time.perf_counter() - began

    def close(self):
        self.writer.close()


def request_for(sentence):
    body = json.dumps({"q": sentence, "source": "en", "target": "de"}).encode()
    return b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body), body)


async def load(port, sentences, expected, clients):
    """(seconds, latencies, latencies of /health)"""
    todo = iter(range(len(sentences)))
    latencies, health, wrong = [], [], []
    done = asyncio.Event()

    async def client():
        connection = await Connection().open(port)
        for i in todo:
            body, seconds = await connection.ask(request_for(sentences[i]))
            latencies.append(seconds)
            if json.loads(body)["translatedText"] != expected[i]:
                wrong.append(i)
        connection.close()

    async def watch():
        connection = await Connection().open(port)
        while not done.is_set():
            health.append((await connection.ask(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"))[1])
            await asyncio.sleep(0.01)
        connection.close()

    watcher = asyncio.create_task(watch())
    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    seconds = time.perf_counter() - began
    done.set()
    await watcher
    assert not wrong, f"{len(wrong)} answers are not translate's, the first to: {sentences[wrong[0]]}"
    return seconds, latencies, health


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", default="int8", choices=["float32", "bf16", "int8"])
    parser.add_argument("--pairs", type=int, default=5)
    arguments = parser.parse_args()
    with gzip.open(ROOT / "data/tatoeba-en-de/valid.en.gz", "rt", encoding="utf-8") as file:
        sentences = [line.rstrip("\n") for line in file]
    common = ["--model", MODEL, "--precision", arguments.precision, "--threads", str(arguments.threads)]

    def translate():
        began = time.perf_counter()
        done = subprocess.run([BINARIES / "translate", *common], input="\n".join(sentences) + "\n", text=True,
                              capture_output=True, check=True)
        return time.perf_counter() - began, done.stdout.splitlines()

    _, expected = translate()
    server = subprocess.Popen([BINARIES / "serve", *common, "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        port = int(json.loads(server.stderr.readline())["address"].rsplit(":", 1)[1])
        assert json.loads(server.stderr.readline())["event"] == "ready"
        # The log's reader: what nobody reads is left out in the end.
        log = subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL)
        ratios = []
        for number in range(arguments.pairs):
            theirs, _ = translate()
            ours, latencies, health = asyncio.run(load(port, sentences, expected, arguments.clients))
            ratios.append(theirs / ours)
            print(f"{number + 1}: translate {len(sentences) / theirs:.0f} sentences/s, server {len(sentences) / ours:.0f}; "
                  f"median {1e3 * statistics.median(latencies):.1f} ms, p99 {1e3 * percentile(latencies, 0.99):.1f} ms; "
                  f"health p99 {1e3 * percentile(health, 0.99):.2f} ms", flush=True)
        print(f"the server's throughput is {statistics.median(ratios):.2f} x translate's")
        _, alone, _ = asyncio.run(load(port, sentences[:300], expected, 1))
        print(f"one client alone: median {1e3 * statistics.median(alone):.2f} ms a sentence")
    finally:
        server.terminate()
        server.wait()
    log.wait()


if __name__ == "__main__":
    main()
