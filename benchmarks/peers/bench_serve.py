"""The server under load: scripts/bench serve.

All is asked over the loopback. Servers have the last of the cores, and the clients the others where there are others; each
client waits for an answer before it asks again, on a connection that stays open. The model is the shipped one in int8, its
text its validation sentences, and every answer is compared with what `translate` says, unless something else is said.

--throughput: 32 clients ask for single sentences; `translate`, in turn, reads the same text as a file. The clients are a
              program of their own (load_client.cpp), since all cores are the server's here: in Python they take a tenth.
--alone:      one client and nobody else, beside a `translate` that is given the same sentences line by line through a pipe,
              its way of the library's own time; then /health while big requests keep all workers busy.
--idle:       32 clients, alone and beside 2,000 connections that say nothing and 50 that send a byte a second, in turn.
--restarts:   the server is killed (SIGKILL) and started anew again and again while 16 clients ask, which ask a second time
              where there is no answer; then it is ended (SIGTERM) again and again while they ask.
--peer:       the paper's base size with random weights, V 8,000, 25 tokens in and 25 out, beam 4: 32 clients ask `serve` and,
              in turn, CTranslate2 behind a small server in Python (ctranslate2_serve.py), the same weights run the way that
              is fastest here.
--soak:       100,000 short sentences from 32 clients.

Without any of these: the first four, which take three minutes. --all: all of them, in ten."""

import asyncio
import json
import os
import pathlib
import random
import resource
import signal
import socket
import statistics
import subprocess
import sys
import time

from common import Parser, above, lines_of
from http_load import (Connection, RetryingClient, ask_all, ask_for, asked_by_light_clients, crowd, meanwhile, percentile,
                       request_for, text_of, until, watch_health, write_requests)
from pairs import (BINARIES, PEER_ENVIRONMENTS, ROOT, WORK, alternate, base_model, begun, export_to_ctranslate2, parsed,
                   prepare, summary)

HERE = pathlib.Path(__file__).parent
MODEL = ROOT / "data" / "model-en-de"
PIECES = 8000
LENGTH = 25  # tokens in, with the end, and out
SHORT = 40  # characters
OUTPUT = "benchmarks/results/serve-cpu.txt"


def peer_ways(threads):
    """How CTranslate2's cores, one for each of so many threads, may be used: workers, threads of each, and threads that
    hand batches over."""
    if threads == 1:
        return {"one worker": (1, 1, 1)}
    return {f"{threads} workers that share a batch": (threads, 1, 1),
            f"{threads} workers, each with its own": (threads, 1, threads),
            f"one worker of {threads} threads": (1, threads, 1)}


class Server:
    """A process that serves, and logs as `serve` does."""

    def __init__(self, command, cores, environment=None):
        self.process = subprocess.Popen(
            list(map(str, command)), stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})},
            preexec_fn=lambda: os.sched_setaffinity(0, cores))
        self.port = int(self.event("listening")["address"].rsplit(":", 1)[1])
        self.event("ready")
        # The log's reader: what nobody reads is left out in the end.
        self.log = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)
        self.process.stderr.close()

    def event(self, name):
        for line in self.process.stderr:
            if line.startswith("{") and (event := json.loads(line))["event"] == name:
                return event
        raise RuntimeError(f"{self.process.args[:2]} ended with {self.process.wait()}")

    def resident_megabytes(self):
        pages = int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait()
        self.log.wait()
        return status

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


class Bench:
    def __init__(self, args, cores, results):
        self.args, self.cores, self.results = args, cores, results
        self.sentences = lines_of(ROOT / "data/tatoeba-en-de/valid.en.gz")
        self.requests = [request_for(sentence) for sentence in self.sentences]
        self.common = ["--model", MODEL, "--precision", "int8", "--threads", args.threads]
        self.expected = dict(enumerate(self.translate()[1]))

    def started(self, *arguments, **settings):
        return subprocess.Popen(list(map(str, arguments)), text=True,
                                preexec_fn=lambda: os.sched_setaffinity(0, self.cores), **settings)

    def translate(self):
        """(seconds, lines)"""
        began = time.perf_counter()
        process = self.started(BINARIES / "translate", *self.common, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        text, _ = process.communicate("\n".join(self.sentences) + "\n")
        assert process.returncode == 0, process.returncode
        return time.perf_counter() - began, text.removesuffix("\n").split("\n")

    def serve(self, *arguments, port=0):
        return Server([BINARIES / "serve", *(arguments or self.common), "--port", port], self.cores)

    def check(self, texts):
        wrong = [i for i, text in texts.items() if text != self.expected[i]]
        assert not wrong, f"{len(wrong)} answers are not translate's, the first to: {self.sentences[wrong[0]]}"

    def pairs_of(self, title, pairs, unit):
        self.results.add(f"    {title}: " + ", ".join(f"{a:.1f} / {b:.1f}" for a, b in pairs) + f" {unit}", print_it=False)

    def throughput(self):
        healths = []

        def ours():
            load = asyncio.run(asked_by_light_clients(server.port, WORK / "serve", self.args.clients))
            self.check(load.texts)
            healths.extend(load.health)
            return load.rate

        write_requests(WORK / "serve", self.requests)

        with self.serve() as server:
            rates = alternate(ours, lambda: len(self.sentences) / self.translate()[0], self.args.pairs)
        mine, translates, ratio = summary(rates)
        self.results.add(f"{self.args.clients} clients: {mine:.0f} sentences/s to translate's {translates:.0f}; {ratio:.2f}x "
                         f"(wanted: 0.95); /health meanwhile: p99 {1e3 * percentile(healths, 0.99):.1f} ms")
        self.pairs_of("pairs", rates, "sentences/s")

    def alone(self):
        sentences = self.sentences[:300]
        with self.serve() as server, socket.create_connection(("127.0.0.1", server.port)) as connection, \
                self.started(BINARIES / "translate", *self.common, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             bufsize=1) as translate:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def over_http(request):
                began = time.perf_counter()
                connection.sendall(request)
                data = b""
                while True:
                    data += connection.recv(65536)
                    head, blank, body = data.partition(b"\r\n\r\n")
                    if blank and len(body) == int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
                        return time.perf_counter() - began, body

            def through_pipe(i):
                began = time.perf_counter()
                translate.stdin.write(sentences[i] + "\n")
                translate.stdin.flush()
                text = translate.stdout.readline().rstrip("\n")
                seconds = time.perf_counter() - began
                assert text == self.expected[i], sentences[i]
                return seconds

            through_pipe(0), over_http(self.requests[0])  # both are warm
            times = []
            for i in range(len(sentences)):
                seconds, body = over_http(self.requests[i])
                assert text_of(body) == self.expected[i], sentences[i]
                times.append((seconds, through_pipe(i)))
            blank = request_for("")
            nothing = [over_http(blank)[0] for _ in sentences]
            translate.stdin.close()
        http, library = (statistics.median(pair[side] for pair in times) * 1e3 for side in (0, 1))
        more = sorted(1e3 * (a - b) for a, b in times)
        self.results.add(f"one client alone: median {http:.2f} ms a sentence to the library's {library:.2f}; HTTP takes "
                         f"{statistics.median(more):.2f} ms more (wanted: 1), p90 {percentile(more, 0.9):.2f}; a blank text "
                         f"{1e3 * statistics.median(nothing):.2f} ms")
        self.health()

    def health(self):
        big = request_for("", "/v1/translate", text=self.sentences[:200], target="de", decoding={"beam": 16})
        latencies = []

        async def busy(port):
            connection = await Connection.open(port)
            try:
                while True:
                    status, body = await connection.ask(big)
                    assert status == 200, body
            finally:
                connection.close()

        async def watched(port):
            async with meanwhile(*(busy(port) for _ in range(3))):
                await asyncio.sleep(0.5)
                async with meanwhile(watch_health(port, latencies, 0.005)):
                    await asyncio.sleep(self.args.seconds)

        with self.serve() as server:
            asyncio.run(watched(server.port))
        self.results.add(f"/health while all workers are busy, {len(latencies)} times: median "
                         f"{1e3 * statistics.median(latencies):.2f} ms, p99 {1e3 * percentile(latencies, 0.99):.2f} "
                         f"(wanted: 10), at most {1e3 * max(latencies):.1f}")

    def idle(self):
        idle, slow = self.args.idle_connections, 50
        # For the server as well, which starts with this process's limit.
        wanted = idle + slow + self.args.clients + 400
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if hard != resource.RLIM_INFINITY and hard < wanted:
            self.results.add(f"the limit of open files, {hard}, is too low for {idle} connections (ulimit -Hn)")
            idle = max(0, idle - (wanted - hard))
        if soft != resource.RLIM_INFINITY:
            enough = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, enough), hard))

        async def measured(crowded):
            async def ask():
                load = await ask_for(server.port, self.requests, self.args.clients, self.args.seconds, 1)
                self.check(load.texts)
                return load
            if not crowded:
                return await ask()
            async with crowd(server.port, idle, slow) as connections:
                load = await ask()
                gone = sum(not connection.is_open for connection in connections)
                assert gone == 0, f"{gone} of {idle} idle connections were closed"
            return load

        with self.serve() as server:
            pairs = alternate(lambda: asyncio.run(measured(True)), lambda: asyncio.run(measured(False)), self.args.pairs)
        rates = [(a.rate, b.rate) for a, b in pairs]
        p99s = [(a.milliseconds(0.99), b.milliseconds(0.99)) for a, b in pairs]
        mine, without, ratio = summary(rates)
        slowest, slowest_without, worse = summary(p99s)
        self.results.add(f"beside {idle} idle connections and {slow} that send a byte a second: {mine:.0f} sentences/s to "
                         f"{without:.0f} without; {ratio:.2f}x; p99 {slowest:.1f} to {slowest_without:.1f} ms; {worse:.2f}x")
        self.pairs_of("pairs", rates, "sentences/s")
        self.pairs_of("p99", p99s, "ms")

    def soak(self):
        short = [i for i, sentence in enumerate(self.sentences) if len(sentence) <= SHORT]
        count, done, lost, wrong, memory = self.args.requests, 0, 0, 0, []

        async def client():
            nonlocal done, lost, wrong
            connection = await Connection.open(server.port)
            for number in todo:
                i = short[number % len(short)]
                try:
                    status, body = await connection.ask(self.requests[i])
                    wrong += status != 200 or text_of(body) != self.expected[i]
                except ConnectionError:
                    lost += 1
                    connection = await Connection.open(server.port)
                done += 1
                if done % max(1, count // 10) == 0:
                    memory.append(server.resident_megabytes())
            connection.close()

        async def clients():
            await asyncio.gather(*(client() for _ in range(self.args.clients)))

        todo = iter(range(count))
        with self.serve() as server:
            began = time.perf_counter()
            asyncio.run(clients())
            seconds = time.perf_counter() - began
        self.results.add(f"{count} requests in {seconds:.0f} s ({count / seconds:.0f}/s): {lost} lost, {wrong} not translate's; "
                         f"the server's memory after a tenth {memory[0]:.1f} MB, after all {memory[-1]:.1f}; "
                         f"{memory[-1] / memory[0]:.3f}x")
        self.results.add("    after each tenth: " + ", ".join(f"{size:.1f}" for size in memory) + " MB", print_it=False)

    def restarts(self):
        self.kills()
        self.ends()

    def kills(self):
        server = self.serve()
        answered, lost, wrong, retried, stopped = 0, 0, 0, 0, False

        async def client(number):
            nonlocal answered, lost, wrong, retried
            generator = random.Random(number)
            asking = RetryingClient(server.port)
            while not stopped:
                i = generator.randrange(len(self.requests))
                answer = await asking.ask(self.requests[i])
                if answer is None:
                    lost += 1
                    continue
                answered += 1
                wrong += answer[0] != 200 or text_of(answer[1]) != self.expected[i]
            retried += asking.retried

        async def all_of_it():
            nonlocal server, stopped
            loop = asyncio.get_running_loop()
            clients = [asyncio.create_task(client(number)) for number in range(16)]
            for _ in range(self.args.kills):
                enough = answered + 200
                await until(lambda: answered >= enough)
                await loop.run_in_executor(None, server.end, signal.SIGKILL)
                server = await loop.run_in_executor(None, lambda: self.serve(port=server.port))
            enough = answered + 200
            await until(lambda: answered >= enough)
            stopped = True
            await asyncio.gather(*clients)

        try:
            asyncio.run(all_of_it())
        finally:
            server.end()
        self.results.add(f"killed {self.args.kills} times and started anew: {answered} requests answered, {retried} of them "
                         f"asked a second time; {lost} lost, {wrong} not translate's (wanted: 0)")

    def ends(self):
        answered = wrong = 0
        lost = {True: 0, False: 0}  # on connections that stay, and on new ones

        async def client(server, number, stays):
            """On one connection, or one for each request, until none is accepted any more."""
            nonlocal answered, wrong
            generator = random.Random(number)
            connection = None
            while True:
                i = generator.randrange(len(self.requests))
                if not connection or not connection.is_open:
                    try:
                        connection = await Connection.open(server.port)
                    except OSError:
                        return
                try:
                    status, body = await connection.ask(self.requests[i])
                except ConnectionError:
                    lost[stays] += 1
                    continue
                answered += 1
                wrong += status != 200 or text_of(body) != self.expected[i]
                if not stays:
                    connection.close()

        async def one_end(server):
            enough = answered + 200
            clients = [asyncio.create_task(client(server, number, number % 2 == 0)) for number in range(16)]
            await until(lambda: answered >= enough)
            server.process.send_signal(signal.SIGTERM)
            await asyncio.gather(*clients)

        for _ in range(self.args.kills):
            with self.serve() as server:
                asyncio.run(one_end(server))
                assert server.process.wait() == 0
        self.results.add(f"ended {self.args.kills} times: {answered} requests answered; {lost[True]} lost on "
                         f"connections that stay open, {lost[False]} on new ones, {wrong} not translate's (wanted: 0)")

    def base_requests(self):
        generator = random.Random(1)
        texts = [" ".join(f"w{generator.randrange(4, PIECES)}" for _ in range(LENGTH - 1)) for _ in range(1024)]
        return [request_for(text) for text in texts]

    def base_directory(self):
        """The model, as `serve` is to translate with it."""
        weights, folder = base_model(PIECES), WORK / "serve"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("model.safetensors", "vocabulary.model"):
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(weights / name)
        settings = (weights / "config.yaml").read_text()
        (folder / "config.yaml").write_text(f"{settings}\ndecoding:\n  max_length: {LENGTH}\n")
        return folder

    def fastest_peer(self, folder, requests):
        """Arguments of ctranslate2_serve.py, and its environment."""
        ways = peer_ways(self.args.threads)

        def command(way):
            workers, threads, takers = ways[way]
            return [sys.executable, HERE / "ctranslate2_serve.py", folder / "ctranslate2", folder / "vocabulary.model",
                    "int8", workers, threads, takers, LENGTH]

        async def asked(port, patience):
            clients = self.args.clients
            first = await ask_all(port, requests[:clients], clients)
            if first.seconds > patience:
                return 0  # hopeless, as MKL's int8 is on processors of another maker
            return (await ask_all(port, requests[clients:5 * clients], clients)).rate

        def rate(way, environment, best):
            patience = 3 * self.args.clients / best if best else float("inf")
            with Server(command(way), self.cores, PEER_ENVIRONMENTS[environment]) as server:
                return asyncio.run(asked(server.port, patience))

        first, *others = ways
        tried = {}
        for environment in PEER_ENVIRONMENTS:
            tried[first, environment] = rate(first, environment, max(tried.values(), default=0))
        environment = max(tried, key=tried.get)[1]
        tried |= {(way, environment): rate(way, environment, max(tried.values())) for way in others}
        fastest = max(tried, key=tried.get)
        told = "; ".join(f"{', '.join(names)} " + (f"{value:.1f}/s" if value else "hopeless")
                         for names, value in tried.items())
        self.results.add(f"CTranslate2: {', '.join(fastest)} (fastest of: {told})")
        return command(fastest[0]), PEER_ENVIRONMENTS[fastest[1]]

    def peer(self):
        requests = self.base_requests()
        folder = self.base_directory()
        export_to_ctranslate2(folder, folder / "ctranslate2")
        command, environment = self.fastest_peer(folder, requests)
        texts = {}

        def measured(side, server):
            load = asyncio.run(ask_for(server.port, requests, self.args.clients, self.args.seconds))
            lengths = {len(text.split()) for text in load.texts.values()}
            assert lengths == {LENGTH}, f"outputs of {lengths} pieces"
            texts.setdefault(side, {}).update(load.texts)
            return load

        arguments = ["--model", folder, "--languages", "en:de", "--precision", "int8", "--threads", self.args.threads]
        with self.serve(*arguments) as ours, Server(command, self.cores, environment) as theirs:
            pairs = alternate(lambda: measured("ours", ours), lambda: measured("theirs", theirs), self.args.pairs)
        rates = [(a.rate, b.rate) for a, b in pairs]
        p99s = [(a.milliseconds(0.99), b.milliseconds(0.99)) for a, b in pairs]
        mine, their, ratio = summary(rates)
        slowest, their_slowest, worse = summary(p99s)
        both = texts["ours"].keys() & texts["theirs"].keys()
        same = sum(texts["ours"][i] == texts["theirs"][i] for i in both)
        self.results.add(f"base V {PIECES} int8, {self.args.clients} clients: {mine:.1f} to {their:.1f} requests/s; {ratio:.2f}x "
                         f"(wanted: 1.4); p99 {slowest:.0f} to {their_slowest:.0f} ms; {worse:.2f}x (wanted: less than 1); "
                         f"{same} of {len(both)} outputs the same")
        self.pairs_of("pairs", rates, "requests/s")
        self.pairs_of("p99", p99s, "ms")


QUICK = ("throughput", "alone", "idle", "restarts")
PARTS = (*QUICK, "peer", "soak")


def main():
    parser = Parser(prog="scripts/bench serve", description=__doc__)
    for part in PARTS:
        parser.add_argument(f"--{part}", action="store_true", help="as above")
    parser.add_argument("--all", dest="only", action="store_false", help="all of them; figures go to the results file")
    parser.add_argument("--clients", type=above(0), default=32)
    parser.add_argument("--threads", type=above(0), default=2, help="of each server, and cores (default 2)")
    parser.add_argument("--seconds", type=above(0, float), default=8, help="that a measurement takes, where it is not of one text")
    parser.add_argument("--requests", type=above(0), default=100000, help="with --soak (default 100000)")
    parser.add_argument("--idle-connections", type=above(-1), default=2000)
    parser.add_argument("--kills", type=above(0), default=5, help="and ends, with --restarts (default 5)")
    args = parsed(parser, OUTPUT)
    chosen = [part for part in PARTS if getattr(args, part) or not args.only] or QUICK

    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < args.threads:
        parser.error(f"argument --threads: there are no {args.threads} cores for {args.threads} threads")
    prepare(args, ["serve", "translate", "export", "load_client"], OUTPUT)
    if others := cores[:-args.threads]:
        os.sched_setaffinity(0, others)
    with begun(args, "serve, over the loopback; medians of all pairs.") as results:
        bench = Bench(args, cores[-args.threads:], results)
        for part in chosen:
            getattr(bench, part)()


if __name__ == "__main__":
    main()
