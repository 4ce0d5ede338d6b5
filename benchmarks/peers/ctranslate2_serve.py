"""CTranslate2 behind HTTP, for scripts/bench serve: ctranslate2_serve.py MODEL VOCABULARY PRECISION WORKERS THREADS TAKERS
LENGTH. What one would write around it who wants a fast server in Python: connections that stay open, an event loop that
reads and writes, and beside it threads that hand what waits over as one batch, since calls do not share batches.

Each of TAKERS threads waits until there is a request, and a few milliseconds longer for those that come with it; its batch
is spread over its share of CTranslate2's WORKERS, of THREADS threads each. Outputs are LENGTH pieces long.

It answers POST /translate in the same words as `serve`, and logs the same two lines when it is ready."""

import asyncio
import json
import pathlib
import queue
import sys
import threading

import ctranslate2
import sentencepiece

BATCH = 32       # of a worker, at most
GATHER = 0.005   # seconds


class Translations:
    def __init__(self, arguments):
        model, vocabulary, precision, workers, threads, takers, length = arguments
        self.translator = ctranslate2.Translator(model, compute_type=precision, inter_threads=int(workers),
                                                 intra_threads=int(threads))
        self.processor = sentencepiece.SentencePieceProcessor(model_file=vocabulary)
        config = json.loads((pathlib.Path(model) / "config.json").read_text())
        self.end = [] if config["add_source_eos"] else [config["eos_token"]]
        self.length = int(length)
        self.share = int(workers) // int(takers)
        self.waiting = queue.SimpleQueue()
        for _ in range(int(takers)):
            threading.Thread(target=self.take, daemon=True).start()

    def taken(self):
        batch = [self.waiting.get()]
        try:
            while len(batch) < BATCH * self.share:
                batch.append(self.waiting.get(timeout=GATHER))
        except queue.Empty:
            pass
        return batch

    def take(self):
        while True:
            batch = self.taken()
            results = self.translator.translate_batch(
                [self.processor.encode(text, out_type=str) + self.end for text, _ in batch], beam_size=4,
                length_penalty=0.6, min_decoding_length=self.length, max_decoding_length=self.length,
                max_batch_size=-(-len(batch) // self.share))
            texts = self.processor.decode([result.hypotheses[0] for result in results])
            self.loop.call_soon_threadsafe(self.give, batch, texts)

    def give(self, batch, texts):
        for (_, answer), text in zip(batch, texts):
            answer(text)


class Connection(asyncio.Protocol):
    def __init__(self, translations):
        self.translations, self.data = translations, b""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.data += data
        head, blank, rest = self.data.partition(b"\r\n\r\n")
        if not blank:
            return
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
        if len(rest) < length:
            return
        self.data = rest[length:]
        if head.startswith(b"POST /translate "):
            self.translations.waiting.put((json.loads(rest[:length])["q"], self.answer))
        else:
            self.reply(b"404 Not Found", b"{}")

    def answer(self, text):
        self.reply(b"200 OK", json.dumps({"translatedText": text}, ensure_ascii=False).encode())

    def reply(self, status, body):
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
                status, len(body), body))


async def main():
    translations = Translations(sys.argv[1:])
    translations.loop = asyncio.get_running_loop()
    server = await translations.loop.create_server(lambda: Connection(translations), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"event": "listening", "address": f"127.0.0.1:{port}"}), file=sys.stderr, flush=True)
    print(json.dumps({"event": "ready"}), file=sys.stderr, flush=True)
    await server.serve_forever()


asyncio.run(main())
