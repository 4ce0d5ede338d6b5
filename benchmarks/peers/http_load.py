"""Clients for scripts/bench serve: each waits for an answer before it asks again. They take little of the processor, which
the servers that they ask may have to share with them."""

import asyncio
import contextlib
import dataclasses
import json
import random
import time

from pairs import BINARIES

HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
PATIENCE = 60  # seconds


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def request_for(sentence, path="/translate", **fields):
    body = json.dumps(fields or {"q": sentence, "source": "en", "target": "de"}).encode()
    return b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
        path.encode(), len(body), body)


def text_of(body):
    return json.loads(body)["translatedText"]


class Connection(asyncio.Protocol):
    """One that stays open. ConnectionError from `ask`: there is no answer, and will be none."""

    @classmethod
    async def open(cls, port):
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    def __init__(self):
        self.data, self.answer, self.is_open = b"", None, True

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data
        head, blank, rest = self.data.partition(b"\r\n\r\n")
        if not blank:
            return
        head = head.lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(rest) < length:
            return
        self.data = rest[length:]
        self.is_open = b"connection: close" not in head
        answer, self.answer = self.answer, None
        if answer and not answer.done():
            answer.set_result((int(head[9:12]), rest[:length]))

    def connection_lost(self, _):
        self.is_open = False
        if self.answer and not self.answer.done():
            self.answer.set_exception(ConnectionResetError("the connection ended without an answer"))

    async def ask(self, request):
        """(status, body)"""
        if not self.is_open:
            raise ConnectionResetError("the connection has ended")
        self.answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self.answer

    def send(self, data):
        self.transport.write(data)

    def close(self):
        self.is_open = False
        self.transport.abort()


@dataclasses.dataclass
class Load:
    """What came of asking."""
    seconds: float = 0
    latencies: list = dataclasses.field(default_factory=list)
    health: list = dataclasses.field(default_factory=list)  # latencies of /health meanwhile
    texts: dict = dataclasses.field(default_factory=dict)   # by their request's number

    @property
    def rate(self):
        return len(self.latencies) / self.seconds

    def milliseconds(self, share):
        return 1e3 * percentile(self.latencies, share)


async def watch_health(port, latencies, pause=0.01):
    """Until it is cancelled."""
    connection = await Connection.open(port)
    try:
        while True:
            began = time.perf_counter()
            status, _ = await connection.ask(HEALTH)
            latencies.append(time.perf_counter() - began)
            assert status == 200, status
            await asyncio.sleep(pause)
    finally:
        connection.close()


@contextlib.asynccontextmanager
async def meanwhile(*tasks):
    running = [asyncio.create_task(task) for task in tasks]
    try:
        yield
        for task in running:
            if task.done():
                task.result()  # which says what was wrong
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def ask_all(port, requests, clients):
    """Every request once."""
    load = Load()
    todo = iter(range(len(requests)))

    async def client():
        connection = await Connection.open(port)
        for i in todo:
            asked = time.perf_counter()
            status, body = await connection.ask(requests[i])
            load.latencies.append(time.perf_counter() - asked)
            assert status == 200, body
            load.texts[i] = text_of(body)
        connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    load.seconds = time.perf_counter() - began
    return load


def write_requests(folder, requests):
    """For asked_by_light_clients."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "requests").write_bytes(b"".join(b"%d\n%s" % (len(request), request) for request in requests))


async def asked_by_light_clients(port, folder, clients):
    """Every request that was written once, by load_client, and /health meanwhile."""
    load, answers = Load(), folder / "answers"
    async with meanwhile(watch_health(port, load.health)):
        process = await asyncio.create_subprocess_exec(
            BINARIES / "load_client", str(port), str(clients), folder / "requests", answers, stdout=asyncio.subprocess.PIPE)
        seconds, _ = await process.communicate()
    assert process.returncode == 0, "load_client failed"
    load.seconds = float(seconds)
    data, at = answers.read_bytes(), 0
    while at < len(data):
        end = data.index(b"\n", at)
        number, status, latency, length = data[at:end].split()
        at = end + 1 + int(length)
        assert status == b"200", data[end + 1:at]
        load.latencies.append(float(latency))
        load.texts[int(number)] = text_of(data[end + 1:at])
    return load


async def ask_for(port, requests, clients, seconds, warm=2):
    """Requests again and again; what is answered in so many seconds counts, once the server is warm."""
    load = Load()
    begins = time.perf_counter() + warm
    ends = begins + seconds
    # Where a batch is answered at once, the time from one to another is what counts.
    before = last = begins

    async def client(number):
        nonlocal before, last
        connection = await Connection.open(port)
        while (asked := time.perf_counter()) < ends:
            i = number % len(requests)
            status, body = await connection.ask(requests[i])
            answered = time.perf_counter()
            assert status == 200, body
            load.texts[i] = text_of(body)
            if answered < begins:
                before = answered
            elif answered < ends:
                last = answered
                load.latencies.append(answered - asked)
            number += clients
        connection.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    assert load.latencies, f"nothing was answered within {seconds} s"
    load.seconds = last - before
    return load


@contextlib.asynccontextmanager
async def crowd(port, idle, slow):
    """Connections that say nothing, and some that send a byte of a request a second, and come again when the server has had
    enough of them. Gives the idle ones."""
    request = request_for("A byte a second.")

    async def slow_client():
        await asyncio.sleep(random.random())  # not all at once
        while True:
            connection = await Connection.open(port)
            try:
                for i in range(len(request)):
                    if not connection.is_open:
                        break
                    connection.send(request[i:i + 1])
                    await asyncio.sleep(1)
            finally:
                connection.close()

    connections = []
    try:
        while len(connections) < idle:
            wanted = min(100, idle - len(connections))
            connections += await asyncio.gather(*(Connection.open(port) for _ in range(wanted)))
        async with meanwhile(*(slow_client() for _ in range(slow))):
            yield connections
    finally:
        for connection in connections:
            connection.close()


async def until(holds):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def until_ready(port):
    """Until the server at a port has its models, whether it has been started yet or not."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            connection = await Connection.open(port)
            try:
                status, _ = await connection.ask(b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n")
            finally:
                connection.close()
            if status == 200:
                return
        await asyncio.sleep(0.05)
    raise TimeoutError("the server does not come back")


class RetryingClient:
    """Asks once more where it gets no answer, when the server is back."""

    def __init__(self, port):
        self.port, self.connection, self.retried = port, None, 0

    async def ask(self, request):
        """(status, body), or None where the second time brought none, either."""
        for is_last in (False, True):
            try:
                if not self.connection or not self.connection.is_open:
                    self.connection = await Connection.open(self.port)
                return await self.connection.ask(request)
            except OSError:
                if is_last:
                    return None
                self.retried += 1
                await until_ready(self.port)
