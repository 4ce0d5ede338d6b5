"""What clients and operators of `serve` rely on: serve_test.py SERVE TRANSLATE EVALUATE SOURCE_DIR.

Beside the standard library: libretranslatepy and deep-translator, published clients of LibreTranslate's interface, and
prometheus_client, whose parser reads the metrics.
"""

import contextlib
import gzip
import http.client
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.parse

import deep_translator
import libretranslatepy
from prometheus_client.parser import text_string_to_metric_families

from programs import ENVIRONMENT, ProgramTest, copy_without_normalization
from toy import write_draft

SERVE, TRANSLATE, EVALUATE = sys.argv[1:4]
SOURCE = pathlib.Path(sys.argv[4])
MODEL = SOURCE / "data" / "model-en-de"
PATIENCE = 60  # seconds
with gzip.open(SOURCE / "data/tatoeba-en-de/valid.en.gz", "rt", encoding="utf-8") as lines:
    SENTENCES = [line.rstrip("\n") for line in lines][:200]


class Server:
    """A `serve` of its own, on a port of its own. `open_files`: what it begins with, and what it may ask for."""

    def __init__(self, *arguments, model=MODEL, wait=True, port=0, open_files=None):
        # Read by its name: an open file shared with the server would share the place in it too, which each line moves.
        self.log_file = tempfile.NamedTemporaryFile()
        self.process = subprocess.Popen([SERVE, "--model", model, "--port", str(port), "--threads", "2", *map(str, arguments)],
                                        stderr=self.log_file, env=ENVIRONMENT,
                                        preexec_fn=open_files and (
                                            lambda: resource.setrlimit(resource.RLIMIT_NOFILE, open_files)))
        self.port = int(self.event("listening")["address"].rsplit(":", 1)[1])
        if wait:
            self.event("ready")

    def log(self):
        text = pathlib.Path(self.log_file.name).read_text(encoding="utf-8")
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]

    def event(self, name, count=1):
        """The latest such event of the log, when there are so many."""
        deadline = time.monotonic() + PATIENCE
        while True:
            found = [line for line in self.log() if line["event"] == name]
            if len(found) >= count:
                return found[-1]
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"no '{name}' in {self.log()}; status {self.process.poll()}")
            time.sleep(0.01)

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(PATIENCE)
        self.log_file.close()
        return status

    def connect(self, timeout=PATIENCE):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, body=None, headers=None, raw=False):
        """(status, headers, answer)"""
        with contextlib.closing(self.connect()) as connection:
            return ask(connection, method, path, body, headers, raw)

    def translate(self, q, **fields):
        status, _, answer = self.ask("POST", "/translate", {"q": q, "source": "en", "target": "de", **fields})
        assert status == 200, answer
        return answer

    def socket(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def raw(self, data, end=True):
        """All that comes back for these bytes."""
        with self.socket() as connection:
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
                if end:
                    connection.shutdown(socket.SHUT_WR)
            return read_all(connection)

    def figures(self):
        """{(name, labels): value}"""
        status, headers, text = self.ask("GET", "/metrics", raw=True)
        assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4"), headers
        return {(sample.name, *sorted(sample.labels.items())): sample.value
                for family in text_string_to_metric_families(text.decode()) for sample in family.samples}


def read_all(connection):
    data = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(1 << 16):
            data += part
    return data


def ask(connection, method, path, body=None, headers=None, raw=False):
    headers = dict(headers or {})
    if isinstance(body, (dict, list)):
        body = json.dumps(body)
        headers.setdefault("Content-Type", "application/json")
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    data = response.read()
    return response.status, response.headers, data if raw or not data else json.loads(data)


def in_threads(count, work):
    """work(i) at once for each i; what they return."""
    results, errors = [None] * count, []

    def run(i):
        try:
            results[i] = work(i)
        except BaseException as error:  # noqa: BLE001 - told to whoever asked
            errors.append(error)

    threads = [threading.Thread(target=run, args=[i]) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


class Schemas:
    """JSON schemas, as far as /spec uses them."""

    KINDS = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}

    def __init__(self, specification):
        self.specification = specification

    def resolved(self, part):
        if "$ref" not in part:
            return part
        found = self.specification
        for name in part["$ref"].split("/")[1:]:
            found = found[name]
        return found

    def allows(self, schema, value):
        schema = self.resolved(schema)
        if value is None and "anyOf" not in schema and "oneOf" not in schema:
            return schema.get("nullable", False)
        kind = schema.get("type", "")
        if kind and (not isinstance(value, self.KINDS[kind]) or isinstance(value, bool) != (kind == "boolean")):
            return False
        for which, right in (("anyOf", lambda count: count > 0), ("oneOf", lambda count: count == 1)):
            if which in schema and not right(sum(self.allows(each, value) for each in schema[which])):
                return False
        if "enum" in schema and value not in schema["enum"]:
            return False
        if isinstance(value, dict):
            properties = schema.get("properties", {})
            return (set(schema.get("required", ())) <= value.keys() and len(value) <= schema.get("maxProperties", len(value))
                    and (schema.get("additionalProperties", True) or value.keys() <= properties.keys())
                    and all(self.allows(properties[name], each) for name, each in value.items() if name in properties))
        if isinstance(value, list):
            return all(self.allows(schema.get("items", {}), each) for each in value)
        if isinstance(value, str):
            return len(value) >= schema.get("minLength", 0) and bool(re.search(schema.get("pattern", ""), value))
        if isinstance(value, (int, float)):
            return schema.get("minimum", value) <= value <= schema.get("maximum", value)
        return True


class ServeTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        done = subprocess.run([TRANSLATE, "--model", MODEL, "--threads", "2"], input="\n".join(SENTENCES) + "\n",
                              capture_output=True, text=True, check=True, env=ENVIRONMENT)
        cls.expected = done.stdout.splitlines()
        done = subprocess.run([TRANSLATE, "--model", MODEL, "--n-best", "3", "--threads", "2"],
                              input="\n".join(SENTENCES[:20]) + "\n", capture_output=True, text=True, check=True,
                              env=ENVIRONMENT)
        cls.n_best = [line.split(" ||| ") for line in done.stdout.splitlines()]
        cls.server = Server("--receive-seconds", "1.5", "--max-connections", "900")
        cls.addClassCleanup(cls.server.stop)

    def start(self, *arguments, **settings):
        server = Server(*arguments, **settings)
        self.addCleanup(server.stop)
        return server

    def assert_refused(self, found, status, *parts):
        self.assertEqual(found[0], status, found)
        self.assertEqual(list(found[2]), ["error"])
        sentence = found[2]["error"]
        self.assertNotIn("\n", sentence)
        for part in parts:
            self.assertIn(part, sentence)

    # --- LibreTranslate's interface

    def test_every_answer_is_translates(self):
        self.assertEqual(self.server.translate(SENTENCES)["translatedText"], self.expected)
        self.assertEqual(self.server.translate("\n".join(SENTENCES[:30]))["translatedText"],
                         "\n".join(self.expected[:30]))

        def client(number):
            with contextlib.closing(self.server.connect()) as connection:
                return [ask(connection, "POST", "/translate", {"q": SENTENCES[i], "source": "en", "target": "de"})[2]
                        for i in range(number, len(SENTENCES), 16)]
        for number, answers in enumerate(in_threads(16, client)):
            self.assertEqual([answer["translatedText"] for answer in answers], self.expected[number::16])

    def test_forms_lists_lines_and_alternatives(self):
        texts = [f"{SENTENCES[0]}\n\n  {SENTENCES[1]}\r\n", "", " "]
        self.assertEqual(self.server.translate(texts)["translatedText"],
                         [f"{self.expected[0]}\n\n{self.expected[1]}\n", "", ""])
        self.assertEqual(self.server.translate([])["translatedText"], [])
        form = urllib.parse.urlencode({"q": SENTENCES[0], "source": "auto", "target": "de", "alternatives": 2})
        status, _, answer = self.server.ask("POST", "/translate", form,
                                            {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"})
        self.assertEqual((status, answer), (200, {"translatedText": self.n_best[0][1],
                                                  "alternatives": [self.n_best[1][1], self.n_best[2][1]]}))
        answer = self.server.translate(SENTENCES[:2], alternatives=1)
        self.assertEqual(answer, {"translatedText": [self.n_best[0][1], self.n_best[3][1]],
                                  "alternatives": [[self.n_best[1][1]], [self.n_best[4][1]]]})

    def test_published_clients(self):
        url = f"http://127.0.0.1:{self.server.port}/"
        client = libretranslatepy.LibreTranslateAPI(url)
        self.assertEqual(client.translate(SENTENCES[3], "en", "de"), self.expected[3])
        self.assertEqual(client.languages(), [{"code": "de", "name": "German", "targets": []},
                                              {"code": "en", "name": "English", "targets": ["de"]}])
        with self.assertRaises(urllib.error.HTTPError) as refused:
            client.detect("Guten Tag")
        self.assertEqual(refused.exception.code, 501)
        refused.exception.close()
        client = deep_translator.LibreTranslator(source="en", target="de", api_key="none", custom_url=url)
        self.assertEqual(client.translate_batch(SENTENCES[:3]), self.expected[:3])

    def test_what_a_page_asks(self):
        status, _, settings = self.server.ask("GET", "/frontend/settings")
        self.assertEqual((status, settings["charLimit"], settings["keyRequired"], settings["language"]["target"]),
                         (200, 50000, False, {"code": "de", "name": "German"}))
        status, _, specification = self.server.ask("GET", "/spec")
        self.assertEqual((status, specification["openapi"][:2]), (200, "3."))
        paths = specification["paths"]
        settings = specification["components"]["schemas"]["Decoding"]["properties"]
        self.assertIn("beam", settings)
        self.assertFalse(settings.keys() & {"batch_sentences", "source_language", "target_language"})
        for path, methods in paths.items():
            for method in methods:
                with self.subTest(path=path, method=method):
                    found = self.server.ask(method.upper(), path, "{}" if method == "post" else None, raw=True)
                    self.assertNotIn(found[0], (404, 405))
        status, headers, nothing = self.server.ask("HEAD", "/health", raw=True)
        self.assertEqual((status, headers["Content-Length"], nothing), (200, "15", b""))

    def test_the_description_is_what_the_server_does(self):
        specification = self.server.ask("GET", "/spec")[2]
        schemas, paths = Schemas(specification), specification["paths"]
        line = {"text": "Hi.", "target": "de"}
        score = {**line, "translation": "Hallo."}
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        for path, body, status in (
                ("/translate", {"q": "Hi.", "target": "de", "alternatives": 2}, 200),
                ("/translate", {"q": ["Hi.", "A dog."], "target": "de", "alternatives": "2", "newer": 1}, 200),
                ("/translate", {"q": "Hi.", "target": "de", "source": None, "format": None, "alternatives": None}, 200),
                ("/translate", {"q": "Hi."}, 400), ("/translate", {"q": "Hi.", "target": ""}, 400),
                ("/translate", {"q": None, "target": "de"}, 400), ("/translate", {"q": "Hi.", "target": "de", "format": "pdf"}, 400),
                ("/translate", {"q": "Hi.", "target": "de", "alternatives": "two"}, 400),
                ("/translate", {"q": "Hi.", "target": "de", "alternatives": 10001}, 400),
                ("/v1/translate", {**line, "alignments": True, "attention": True}, 200),
                ("/v1/translate", {"text": ["Hi. Ho.", ""], "model": "model-en-de", "document": True}, 200),
                ("/v1/translate", {**line, "model": None, "source": None, "stream": None, "decoding": None, "api_key": None}, 200),
                ("/v1/translate", {"text": "Hi."}, 400), ("/v1/translate", {"text": "Hi.", "target": None}, 400),
                ("/v1/translate", {**line, "nosuch": 1}, 400), ("/v1/translate", {**line, "stream": 1}, 400),
                ("/v1/translate", {**line, "decoding": {"beam": 2, "alpha": "0.5", "stop": "exact", "seed": None,
                                                        "write_unknown": False}}, 200),
                ("/v1/translate", {**line, "decoding": {"baem": 2}}, 400),
                ("/v1/translate", {**line, "decoding": {"baem": None}}, 400),
                ("/v1/translate", {**line, "decoding": {"beam": 0}}, 400), ("/v1/translate", {**line, "decoding": {"beam": [2]}}, 400),
                ("/v1/translate", {**line, "decoding": {"beam": 33}}, 400), ("/v1/translate", {**line, "decoding": {"beam": 32}}, 200),
                ("/v1/translate", {**line, "decoding": {"search": "sampling", "n_best": 33}}, 400),
                ("/v1/translate", {**line, "decoding": {"max_extra_length": 1001}}, 400),
                ("/v1/translate", {**line, "decoding": {"stop": "never"}}, 400), ("/v1/translate", {**line, "decoding": [2]}, 400),
                ("/v1/translate", {**line, "decoding": {f"k{i}": 1 for i in range(101)}}, 400),
                ("/v1/score", score, 200), ("/v1/score", {"text": "Hi.", "translation": "Hallo.", "model": "model-en-de"}, 200),
                ("/v1/score", {"text": "Hi.", "translation": "Hallo."}, 400), ("/v1/score", {**score, "nosuch": 1}, 400)):
            with self.subTest(path=path, body=body):
                operation = paths[path]["post"]
                asked = operation["requestBody"]["content"]["application/json"]["schema"]
                found = self.server.ask("POST", path, body)
                self.assertEqual((found[0], schemas.allows(asked, body)), (status, status == 200), found)
                answer = schemas.resolved(operation["responses"][str(status)])["content"]["application/json"]["schema"]
                self.assertTrue(schemas.allows(answer, found[2]), found)
        found = self.server.ask("GET", "/v1/models")[2]
        schema = paths["/v1/models"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        self.assertTrue(schemas.allows(schema, found), found)
        # What the HTTP server says, whatever is asked.
        for path, methods in paths.items():
            for method, operation in methods.items():
                head = f"{method.upper()} {path} HTTP/1.1\r\n".encode()
                for rest, status in ((b"Host: a\r\nHost: b\r\n\r\n", "400"), (b"Host: a\r\nContent-Encoding: gzip\r\n\r\n", "415"),
                                     (b"Host: a\r\nContent-Length: 3000000\r\n\r\n", "413"), (b"A: " + b"a" * 20000, "431")):
                    with self.subTest(path=path, status=status):
                        self.assertEqual(self.server.raw(head + rest).split()[1].decode(), status)
                        self.assertIn(status, operation["responses"])
                self.assertLess({"408", "500", "503"}, operation["responses"].keys())
        status, headers, _ = self.server.ask("POST", "/v1/translate", {**line, "stream": True}, raw=True)
        self.assertIn(headers["Content-Type"], paths["/v1/translate"]["post"]["responses"][str(status)]["content"])
        for path in ("/v1/translate", "/v1/score"):
            self.assertEqual(self.server.ask("POST", path, "text=Hi.", form)[0], 415)
        self.assertEqual(self.server.ask("POST", "/detect", {"q": "a"})[0], 501)
        self.assertEqual({405, 404}, {int(number) for number in re.findall(r"\b40\d\b", specification["info"]["description"])})
        named = specification["components"]["securitySchemes"]
        self.assertEqual((named["bearer"]["scheme"], named["header"]["name"]), ("bearer", "X-API-Key"))
        for path in ("/translate", "/v1/translate", "/v1/score"):
            self.assertEqual({name for one in paths[path]["post"]["security"] for name in one}, set(named))

    # --- its own interface

    def own(self, text, server=None, **fields):
        return (server or self.server).ask("POST", "/v1/translate", {"text": text, "target": "de", **fields})

    def test_settings_scores_tokens_and_alignments(self):
        status, _, answer = self.own(SENTENCES[:20], decoding={"n_best": 3})
        self.assertEqual((status, answer["model"], answer["source"]), (200, "model-en-de", "en"))
        lines = [line for text in answer["translations"] for line in text["lines"]]
        found = [[str(i), hypothesis["text"], f"{hypothesis['score']:.6f}"]
                 for i, line in enumerate(lines) for hypothesis in line["hypotheses"]]
        self.assertEqual(found, self.n_best)
        self.assertEqual([text["text"] for text in answer["translations"]], [line["hypotheses"][0]["text"] for line in lines])
        for hypothesis in lines[0]["hypotheses"]:
            self.assertEqual("".join(hypothesis["tokens"]).replace("▁", " ").strip(), hypothesis["text"])
        self.assertEqual(answer["output_tokens"], sum(len(line["hypotheses"][0]["tokens"]) for line in lines))

        arguments = ["--beam", "2", "--alpha", "1.5", "--length-penalty", "power", "--stop", "beam_finished"]
        alignments = self.root / "alignments"
        done = subprocess.run([TRANSLATE, "--model", MODEL, "--scores", "--alignments", alignments, *arguments],
                              input="\n".join(SENTENCES[:20]) + "\n", capture_output=True, text=True, check=True,
                              env=ENVIRONMENT)
        _, _, answer = self.own(SENTENCES[:20], alignments=True, decoding={
            "beam": 2, "alpha": 1.5, "length_penalty": "power", "stop": "beam_finished"})
        best = [text["lines"][0]["hypotheses"][0] for text in answer["translations"]]
        self.assertEqual([f"{one['score']:.6f}\t{one['text']}" for one in best], done.stdout.splitlines())
        self.assertEqual([" ".join(f"{source}-{target}" for source, target in one["alignment"]) for one in best],
                         alignments.read_text().splitlines())

    def test_attention_is_where_alignments_come_from(self):
        _, _, answer = self.own(SENTENCES[:30], alignments=True, attention=True)
        for sentence, text in zip(SENTENCES, answer["translations"]):
            best = text["lines"][0]["hypotheses"][0]
            rows = best["attention"]
            self.assertEqual(([len(rows), *{len(row) for row in rows}]), [len(best["text"].split()), len(sentence.split())])
            for row in rows:
                self.assertLessEqual(sum(row), 1000 + len(row))
            for source, target in best["alignment"]:
                self.assertEqual(rows[target][source], max(rows[target]))
        # What marks an item of a list is a word of its line that was not read.
        _, _, answer = self.own(["12) The dog sleeps.", "The dog sleeps."], attention=True, document=True)
        item, plain = (text["lines"][0]["hypotheses"][0] for text in answer["translations"])
        self.assertEqual(item["text"], "12) " + plain["text"])
        self.assertEqual(item["attention"], [[0] * 4, *([0, *row] for row in plain["attention"])])
        # A number for each pair of words of a long line is more than a server can keep.
        line = " ".join(SENTENCES[i % 60] for i in range(100))
        for length, there in ((40, True), (1200, False)):
            _, _, answer = self.own(line, attention=True, decoding={"beam": 1, "min_length": length, "max_length": length})
            best = answer["translations"][0]["lines"][0]["hypotheses"][0]
            words = len(best["text"].split())
            self.assertEqual(words * len(line.split()) <= 250_000, there)
            self.assertEqual(len(best["attention"]), words if there else 0)
        _, _, answer = self.own("", attention=True)
        self.assertEqual(answer["translations"][0]["lines"][0]["hypotheses"][0]["attention"], [])

    def test_a_stream_tells_of_each_line_as_it_is_done(self):
        status, headers, data = self.server.ask(
            "POST", "/v1/translate", {"text": ["\n".join(SENTENCES[:5]), SENTENCES[5]], "target": "de", "stream": True},
            raw=True)
        self.assertEqual((status, headers["Content-Type"]), (200, "text/event-stream"))
        events = [dict(line.split(": ", 1) for line in event.splitlines())
                  for event in data.decode().split("\n\n") if event]
        self.assertEqual([event["event"] for event in events], ["line"] * 6 + ["done"])
        found = {}
        for event in events[:-1]:
            line = json.loads(event["data"])
            found[line["text"], line["line"]] = line["hypotheses"][0]["text"]
        self.assertEqual(found, {**{(0, i): self.expected[i] for i in range(5)}, (1, 0): self.expected[5]})
        self.assertEqual(json.loads(events[-1]["data"])["model"], "model-en-de")
        # A client of HTTP/1.0 knows no chunks.
        body = json.dumps({"text": SENTENCES[0], "target": "de", "stream": True}).encode()
        answer = self.server.raw(b"POST /v1/translate HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body),
                                 end=False)
        self.assertTrue(answer.startswith(b"HTTP/1.0 200"), answer)
        self.assertIn(b"\r\n\r\nevent: line\ndata: ", answer)
        self.assertTrue(answer.endswith(b"}\n\n"), answer)

    def through(self, command, text=""):
        return subprocess.run([*command, "--model", MODEL], input=text, capture_output=True, text=True, check=True,
                              env=ENVIRONMENT).stdout

    def test_what_a_page_leaves_unended_is_no_text(self):
        # But a quote that never ends takes no text with it.
        found = self.server.translate(f'<p>{SENTENCES[0]}</p><p class="x>{SENTENCES[1]}</p>', format="html")
        self.assertIn(self.expected[1], found["translatedText"])
        for end in ("<!-- the hidden comment is here", '<script>var the_answer = "yes";', '<a href="http://x.org/page', "</b"):
            found = self.server.translate(f"{SENTENCES[0]} {end}", format="html")["translatedText"]
            self.assertEqual(found, f"{self.expected[0]} {end}")

    def test_a_texts_byte_order_mark_is_none_of_it(self):
        mark = "\ufeff"
        self.assertEqual(self.server.translate(mark + SENTENCES[0])["translatedText"], self.expected[0])
        _, _, answer = self.own([mark + SENTENCES[0], SENTENCES[1]])
        self.assertEqual([text["text"] for text in answer["translations"]], self.expected[:2])
        form = urllib.parse.urlencode({"q": mark + SENTENCES[0], "source": "en", "target": "de"})
        status, _, answer = self.server.ask("POST", "/translate", form,
                                            {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"})
        self.assertEqual((status, answer["translatedText"]), (200, self.expected[0]))
        pair = {"text": [SENTENCES[0], mark + SENTENCES[0]], "translation": [mark + self.expected[0], self.expected[0]]}
        _, _, answer = self.server.ask("POST", "/v1/score", {**pair, "target": "de"})
        self.assertEqual(answer["scores"][0], answer["scores"][1])

    def test_html_comes_back_with_its_tags(self):
        page = (f"<!DOCTYPE html><p>  {SENTENCES[0]} <b>{SENTENCES[1]}</b></p>\n<ul><li>Tom &amp; Mary <i>were very"
                f" tired</i>.<li>{SENTENCES[2]}</ul><script>if (a < b) c()</script>")
        expected = [self.through([TRANSLATE, "--document", "--markup"], line) for line in page.split("\n")]
        found = [self.server.translate(line, format="html")["translatedText"] for line in page.split("\n")]
        self.assertEqual(found, expected)
        whole = self.server.translate([page, "", "<br>"], format="html", alternatives=1)
        self.assertEqual(whole["translatedText"], ["\n".join(expected), "", "<br>"])
        self.assertEqual([len(others) for others in whole["alternatives"]], [1, 0, 0])
        tags = ["<!DOCTYPE html>", "<p>", "<b>", "</b>", "</p>", "<ul>", "<li>", "<i>", "</i>", "</ul>", "<script>"]
        for text in [*whole["translatedText"][:1], whole["alternatives"][0][0]]:
            self.assertEqual([text.count(tag) for tag in tags], [page.count(tag) for tag in tags])
        form = urllib.parse.urlencode({"q": page, "source": "en", "target": "de", "format": "html"})
        _, _, answer = self.server.ask("POST", "/translate", form, {"Content-Type": "application/x-www-form-urlencoded"})
        self.assertEqual(answer["translatedText"], whole["translatedText"][0])
        status, _, answer = self.own(page, format="html")
        self.assertEqual((status, answer["translations"][0]["text"]), (200, whole["translatedText"][0]))
        line, = answer["translations"][0]["lines"]
        self.assertEqual((line["source"], line["parts"]), (page, 4))

    def test_a_line_longer_than_the_model_takes_is_translated_in_parts(self):
        _, _, served = self.server.ask("GET", "/v1/models")
        longest = served["models"][0]["longest_line_tokens"]
        line = " ".join(SENTENCES[i % 60] for i in range(longest // 6))
        expected = self.through([TRANSLATE, "--document"], line)
        self.assertEqual(self.server.translate(f"{SENTENCES[0]}\n {line} ")["translatedText"],
                         f"{self.expected[0]}\n{expected}")
        status, _, answer = self.own(line, alignments=True)
        self.assertEqual(status, 200)
        whole, = answer["translations"][0]["lines"]
        best = whole["hypotheses"][0]
        self.assertGreater(whole["parts"], longest // 12)
        self.assertEqual("".join(best["tokens"]).replace("▁", " ").strip(), best["text"])
        # Links stay within sentences: the first of the last one's is behind all words of the others.
        source, target = line.split(), best["text"].split()
        self.assertLess(max(link[0] for link in best["alignment"]), len(source))
        self.assertLess(max(link[1] for link in best["alignment"]), len(target))
        last = SENTENCES[(longest // 6 - 1) % 60].split()
        _, _, alone = self.own(" ".join(last), alignments=True)
        links = alone["translations"][0]["lines"][0]["hypotheses"][0]["alignment"]
        shift = [len(source) - len(last), len(target) - len(alone["translations"][0]["text"].split())]
        self.assertEqual(best["alignment"][-len(links):], [[link[0] + shift[0], link[1] + shift[1]] for link in links])

    def test_paragraphs_are_split_where_that_is_asked_for(self):
        text = f"{SENTENCES[0]} {SENTENCES[1]}\n\n  - {SENTENCES[2]}"
        expected = self.through([TRANSLATE, "--document"], text)
        self.assertIn("\n\n  - ", expected)
        self.assertEqual(expected, f"{self.expected[0]} {self.expected[1]}\n\n  - {self.expected[2]}")
        status, _, answer = self.own(text, document=True, alignments=True)
        self.assertEqual((status, answer["translations"][0]["text"]), (200, expected))
        lines = answer["translations"][0]["lines"]
        self.assertEqual([line.get("parts") for line in lines], [2, None, None])
        self.assertGreater(max(link[0] for link in lines[0]["hypotheses"][0]["alignment"]), len(SENTENCES[0].split()))
        for fields in ({}, {"document": False}):
            _, _, answer = self.own(text, **fields)
            self.assertEqual([line.get("parts") for line in answer["translations"][0]["lines"]], [None] * 3)
        self.assert_refused(self.own(text, document="yes"), 400, "document takes true or false")
        server = self.start("--document", "true")
        self.assertEqual(server.translate(text)["translatedText"], expected)
        # Each line keeps its own end.
        text = f"{SENTENCES[0]} {SENTENCES[1]}\r\n\r\n{SENTENCES[2]}\n{SENTENCES[3]}\r\n"
        expected = f"{self.expected[0]} {self.expected[1]}\r\n\r\n{self.expected[2]}\n{self.expected[3]}\r\n"
        done = subprocess.run([TRANSLATE, "--document", "--model", MODEL], input=text.encode(), capture_output=True,
                              check=True, env=ENVIRONMENT)
        self.assertEqual(done.stdout.decode(), expected)
        self.assertEqual(server.translate(text)["translatedText"], expected)
        _, _, answer = self.own(text, document=True)
        self.assertEqual(answer["translations"][0]["text"], expected)
        for line in answer["translations"][0]["lines"]:
            self.assertNotIn("\r", line["source"] + line["hypotheses"][0]["text"])
        self.assertEqual(self.own(text, server, document=False)[2]["translations"][0]["text"].count("\r"), 0)

    def test_what_a_request_may_ask_for_is_told(self):
        server = self.start("--max-beam", "1")
        served, = server.ask("GET", "/v1/models")[2]["models"]
        self.assertEqual(served["most_translations"], 1)
        # As the page asks.
        page = {"model": served["name"], "document": True}
        self.assert_refused(self.own("Good morning.", server, **page, decoding={"n_best": 3}), 400, "number of translations")
        status, _, answer = self.own("Good morning.", server, **page, decoding={"n_best": served["most_translations"]})
        self.assertEqual((status, len(answer["translations"][0]["lines"][0]["hypotheses"])), (200, 1))
        self.assertEqual(self.server.ask("GET", "/v1/models")[2]["models"][0]["most_translations"], 32)

    def test_given_translations_are_judged_as_evaluate_does_it(self):
        source, target = self.root / "judged.en", self.root / "judged.de"
        source.write_text("\n".join(SENTENCES[:40]) + "\n")
        target.write_text("\n".join(self.expected[:39]) + "\n\n")  # nothing is a translation, too
        expected = [json.loads(line) for line in self.through(
            [EVALUATE, "score", "--source", source, "--target", target, "--format", "jsonl"]).splitlines()]
        status, _, answer = self.server.ask("POST", "/v1/score", {"text": SENTENCES[:40], "target": "de",
                                                                  "translation": [*self.expected[:39], ""]})
        self.assertEqual((status, answer["model"], len(answer["scores"])), (200, "model-en-de", 40))
        for found, line in zip(answer["scores"], expected):
            self.assertAlmostEqual(found["log_probability"], line["log_probability"], places=6)
            self.assertEqual(found["tokens"], line["tokens"])
        _, _, one = self.server.ask("POST", "/v1/score", {"text": SENTENCES[7], "translation": self.expected[7],
                                                          "model": "model-en-de"})
        self.assertEqual(one["scores"], answer["scores"][7:8])
        _, _, found = self.own(SENTENCES[7])
        best = found["translations"][0]["lines"][0]["hypotheses"][0]
        self.assertAlmostEqual(one["scores"][0]["score"], best["score"], places=3)
        for body, parts in (({"text": "a"}, ["translation is missing"]),
                            ({"text": ["a", "b"], "translation": ["c"]}, ["one length"]),
                            ({"text": "a", "translation": ["b"]}, ["lists of one length"]),
                            ({"text": " ", "translation": "b"}, ["text 1 is blank"]),
                            ({"text": "a\nb", "translation": "b"}, ["text 1 has several lines"]),
                            ({"text": "a", "translation": "b", "texts": "c"}, ["did you mean 'text'?"])):
            self.assert_refused(self.server.ask("POST", "/v1/score", {"target": "de", **body}), 400, *parts)
        self.assert_refused(self.server.ask("POST", "/v1/score", {"text": "a b " * 8000, "translation": "b",
                                                                  "target": "de"}), 413, "text 1")

    def test_blanks_at_a_texts_ends_are_none_of_what_is_judged(self):
        model = self.root / "as-it-is"
        copy_without_normalization(MODEL, model)
        server = self.start(model=model)
        text, translation = SENTENCES[5], self.expected[5]
        ask = lambda *pair: server.ask("POST", "/v1/score", {"text": pair[0], "translation": pair[1], "target": "de"})
        status, _, answer = ask([text, f"  {text}", text, text.replace(" ", "  ", 1)],
                                [translation, translation, f"{translation} \t", translation])
        self.assertEqual(status, 200)
        self.assertEqual(answer["scores"][:3], answer["scores"][:1] * 3)
        self.assertNotEqual(answer["scores"][3], answer["scores"][0])  # it does take texts as they are
        self.assert_refused(ask("   ", translation), 400, "text 1 is blank")

    def test_what_cannot_be_done_is_refused_in_a_sentence(self):
        ask = self.server.ask
        self.assert_refused(ask("GET", "/nothing"), 404, "/nothing")
        found = ask("GET", "/translate")
        self.assert_refused(found, 405, "POST")
        self.assertEqual(found[1]["Allow"], "POST")
        self.assert_refused(ask("POST", "/translate", {"q": "a", "source": "en", "target": "fr"}), 400, "en to de")
        self.assert_refused(ask("POST", "/translate", {"q": "a", "target": "de", "format": "pdf"}), 400, "html", "pdf")
        self.assert_refused(self.own("a", format="html", alignments=True), 400, "alignments")
        self.assert_refused(ask("POST", "/translate", "q=a", {"Content-Type": "text/plain"}), 415, "text/plain")
        self.assert_refused(ask("POST", "/detect", {"q": "a"}), 501)
        self.assert_refused(self.own("a", decoding={"baem": 2}), 400, "did you mean 'decoding.beam'?")
        self.assert_refused(self.own("a", decoding={"beam": "two"}), 400, "decoding.beam")
        self.assert_refused(self.own("a", decoding={"beam": 1e300}), 400, "decoding.beam")
        self.assert_refused(self.own("a", decoding={"beam": 33}), 400, "32")
        fields = {"q": "a", "target": "de"}
        self.assertEqual(ask("POST", "/translate", {**fields, "alternatives": 31})[0], 200)
        self.assert_refused(ask("POST", "/translate", {**fields, "alternatives": 32}), 400,
                            "32 alternatives are more than this server allows: 31 at most")
        self.assert_refused(self.own("a", decoding={"search": "sampling", "n_best": 33}), 400, "32")
        self.assert_refused(self.own("a", decoding={"max_extra_length": 1001}), 400, "1000")
        self.assert_refused(self.own("a", decoding={"batch_sentences": 1}), 400, "batch_sentences")
        self.assert_refused(self.own("a", decoding={"n_best": 5}), 400, "beam")
        self.assert_refused(self.own("a", model="other"), 400, "model-en-de")
        other = {"model": "model-en-de", "source": "fr", "target": "es"}
        for path, fields in (("/v1/translate", {"text": "a"}), ("/v1/score", {"text": "a", "translation": "b"})):
            self.assert_refused(ask("POST", path, {**fields, **other}), 400, "'fr' to 'es'", "en to de")
        self.assert_refused(self.own(["a"] * 1001), 413, "1000")
        self.assert_refused(self.own("é" * 50001), 413, "50001")

    # --- what hostile clients send

    def test_hostile_bytes_get_an_answer_or_none_and_harm_nobody(self):
        def status(data, **settings):
            answer = self.server.raw(data, **settings)
            return int(answer.split(b" ", 2)[1]) if answer else None

        head = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        self.assertEqual(status(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)), 400)
        self.assertEqual(status(b"GET /health\r\n\r\n"), 400)
        self.assertEqual(status(b"GET /health HTTP/9.9\r\n\r\n"), 400)
        for target, code in ((b"http://a/health", 200), (b"HTTP://a:1/health?b", 200), (b"http://a", 200), (b"http://a?b", 200),
                             (b"http://", 200), (b"http:/", 404), (b"http://a/http://a/health", 404), (b"*", 404)):
            self.assertEqual(status(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), code, target)
        # Who is meant is said once; before HTTP/1.1 nobody had to be named.
        for lines, code in ((b"", 400), (b"Host: a\r\nHost: a\r\n", 400), (b"Host: \r\n", 200)):
            self.assertEqual(status(b"GET /health HTTP/1.1\r\nConnection: close\r\n" + lines + b"\r\n"), code, lines)
        self.assertEqual(status(b"GET /health HTTP/1.0\r\n\r\n"), 200)
        for encoding, code in ((b"gzip", 415), (b"br, gzip", 415), (b"Identity", 400)):
            self.assertEqual(status(head + b"Connection: close\r\nContent-Encoding: " + encoding +
                                    b"\r\nContent-Length: 2\r\n\r\n\x1f\x8b", end=False), code, encoding)
        self.assertEqual(status(head + b"Content-Length: -1\r\n\r\n{}"), 400)
        self.assertEqual(status(head + b"Content-Length: 99999999999999999999999\r\n\r\n{}"), 400)
        self.assertEqual(status(head + b"Content-Length: 3000000\r\n\r\n{}"), 413)
        self.assertEqual(status(head + b"Content-Length: 10000000\r\n\r\n" + bytes(10000000)), 413)
        self.assertEqual(status(head + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n"), 400)
        self.assertEqual(status(head + b"Transfer-Encoding: chunked\r\n\r\n" + b"100000\r\n" + bytes(0x100000) + b"\r\n"
                                b"100000\r\n" + bytes(0x100000) + b"\r\n1\r\n"), 413)
        self.assertEqual(status(b"GET /health HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X-%d: a\r\n" % i for i in range(10000)) + b"\r\n"),
                         431)
        self.assertEqual(status(b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: a\r\n\r\n"), 431)
        self.assertEqual(status(b"GET /%00%ff\x7f HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), 400)
        for body in (b"[" * 100000, b'{"q":' * 10000, b'{"q": "a", "target": "de", "alternatives": 1e999}', b"\xff\xfe",
                     b'{"q": "\xc3\x28", "target": "de"}', b'{"q": "\\ud800", "target": "de"}', b"", b"null", b"{"):
            with self.subTest(body=body[:20]):
                self.assertEqual(status(head + b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body),
                                        end=False), 400)
        # Half a request, and the client is gone.
        self.assertIsNone(status(b""))
        self.assertIsNone(status(head))
        self.assertIsNone(status(head + b"Content-Length: 20\r\n\r\n{"))
        generator = random.Random(7)
        whole = head + b'Content-Length: 27\r\n\r\n{"q": "a.", "target": "de"}'
        for _ in range(150):
            data = bytearray(whole)
            for _ in range(generator.randint(1, 4)):
                data[generator.randrange(len(data))] = generator.randrange(256)
            status(bytes(data[:generator.randint(1, len(data))]))
            status(generator.randbytes(generator.randint(1, 300)))
        self.assertEqual(self.server.translate(SENTENCES[0])["translatedText"], self.expected[0])

    def test_odd_texts_are_translated_or_refused(self):
        odd = ["\0", "\x1b[31mred", "\u202eabc", "a\ufeffb", "👩‍👩‍👧", "קצר", "a" * 300, "\t", "<b>&amp;</b>", "\u2028", "e\u0301"]
        done = subprocess.run([TRANSLATE, "--model", MODEL], input="\n".join(odd) + "\n", capture_output=True,
                              text=True, check=True, env=ENVIRONMENT)
        self.assertEqual(self.server.translate(odd)["translatedText"], done.stdout.split("\n")[:-1])

    def test_slow_and_idle_clients_hold_up_nobody(self):
        with contextlib.ExitStack() as stack:
            idle = [stack.enter_context(self.server.socket()) for _ in range(600)]
            slow = [stack.enter_context(self.server.socket()) for _ in range(50)]
            for connection in slow:
                connection.sendall(b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
            began = time.monotonic()
            while time.monotonic() < began + 1:
                self.assertEqual(self.server.translate(SENTENCES[0])["translatedText"], self.expected[0])
                for connection in slow:
                    with contextlib.suppress(ConnectionError):
                        connection.sendall(b" ")
                time.sleep(0.2)
            for connection in slow:
                self.assertIn(b" 408 ", read_all(connection).split(b"\r\n")[0])
            # Those that said nothing are still welcome.
            idle[0].sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            self.assertIn(b" 200 ", read_all(idle[0]).split(b"\r\n")[0])
            more = [stack.enter_context(self.server.socket()) for _ in range(320)]
            more[-1].sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            self.assertIn(b" 503 ", read_all(more[-1]).split(b"\r\n")[0])

    def test_idle_clients_do_not_take_all_open_files(self):
        # What the system allows is asked for.
        server = self.start(open_files=(200, 1000))
        self.assertEqual(server.event("fewer connections")["connections"], "811")
        with contextlib.ExitStack() as stack:
            for _ in range(600):
                stack.enter_context(server.socket())
            self.assertEqual(server.translate(SENTENCES[0])["translatedText"], self.expected[0])
            self.assertGreater(server.figures()["transformer_connections",], 600)
        # Where it allows no more, the next one is told so.
        server = self.start(open_files=(200, 200))
        self.assertEqual(server.event("fewer connections")["connections"], "111")
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(server.socket()) for _ in range(112)]
            connections[-1].sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            self.assertIn(b" 503 ", read_all(connections[-1]).split(b"\r\n")[0])
            connections[0].sendall(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
            self.assertIn(b" 200 ", read_all(connections[0]).split(b"\r\n")[0])

    def test_requests_one_behind_the_other(self):
        body = json.dumps({"q": SENTENCES[0], "target": "de"}).encode()
        one = b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
        # The last says that there are no more.
        answers = self.server.raw((one + b"\r\n" + body) * 3 + one + b"Connection: close\r\n\r\n" + body, end=False)
        self.assertEqual(answers.count(self.expected[0].encode()), 4)
        with self.server.socket() as connection:
            connection.sendall(one + b"Expect: 100-continue\r\n\r\n")
            self.assertTrue(connection.recv(1000).startswith(b"HTTP/1.1 100 Continue\r\n\r\n"))
            connection.sendall(body)
            self.assertIn(self.expected[0].encode(), connection.recv(10000))

    # --- operation

    def test_work_ends_when_its_client_leaves(self):
        server = self.start()
        label = (("model", "model-en-de"),)
        body = json.dumps({"text": SENTENCES * 4, "target": "de", "decoding": {"beam": 32}}).encode()
        # With nothing behind its request, with the next one's beginning, and with a whole one.
        for count, ahead in enumerate((b"", b"G", b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"), start=1):
            with server.socket() as connection:
                connection.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" %
                                   (len(body), body))
                self.wait_until(lambda: server.figures()["transformer_running_lines", *label] > 0)
                connection.sendall(ahead)
            self.wait_until(lambda: server.figures()["transformer_running_lines", *label] == 0)
            self.assertEqual(server.figures()["transformer_waiting_lines", *label], 0)
            self.wait_until(lambda: [line["status"] for line in server.log() if line.get("path") == "/v1/translate"] ==
                            [499] * count)
        self.assertEqual(server.translate(SENTENCES[0])["translatedText"], self.expected[0])

    def wait_until(self, holds):
        deadline = time.monotonic() + PATIENCE
        while not holds():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_too_much_at_a_time_is_for_later(self):
        server = self.start("--max-waiting-of-client", "300", "--max-texts", "2000", "--deadline-seconds", "1")
        self.assert_refused(self.own(SENTENCES + SENTENCES, server), 413, "300 lines")
        self.assert_refused(server.ask("POST", "/v1/score", {"text": SENTENCES * 2, "translation": SENTENCES * 2,
                                                             "target": "de"}), 413, "300 lines")
        slow = {"decoding": {"beam": 32, "n_best": 32}}
        statuses = [0] * 8

        def client(i):
            statuses[i], headers, answer = self.own(SENTENCES, server, **slow)
            if statuses[i] == 429:
                self.assertGreaterEqual(int(headers["Retry-After"]), 1)
            else:
                self.assertNotIn("Retry-After", headers)
            return answer
        in_threads(8, client)
        self.assertLessEqual(set(statuses), {200, 429, 503})
        self.assertIn(429, statuses)
        self.assertIn(503, statuses)  # what was begun was not done in time
        self.wait_until(lambda: server.figures()["transformer_running_lines", ("model", "model-en-de")] == 0)

    def test_keys(self):
        keys = self.root / "keys"
        keys.write_text("\ufeff# clients\nfirst-client-key\nsecond-client-key\npasswört-€uro\n", encoding="utf-8")
        server = self.start("--api-keys", keys)
        fields = {"q": SENTENCES[0], "source": "en", "target": "de"}
        self.assert_refused(server.ask("POST", "/translate", fields), 403, "needed")
        self.assert_refused(server.ask("POST", "/translate", {**fields, "api_key": "first-client"}), 403)
        self.assertEqual(server.ask("POST", "/translate", {**fields, "api_key": "first-client-key"})[0], 200)
        for header in ({"Authorization": "Bearer second-client-key"}, {"X-API-Key": "second-client-key"}):
            self.assertEqual(server.ask("POST", "/v1/translate", {"text": "a", "target": "de"}, header)[0], 200)
        # As curl sends it, and as JSON has it.
        body = {"text": "a", "target": "de"}
        self.assertEqual(server.ask("POST", "/v1/translate", body, {"X-API-Key": "passwört-€uro".encode()})[0], 200)
        self.assertEqual(server.ask("POST", "/v1/translate", {**body, "api_key": "passwört-€uro"})[0], 200)
        self.assertTrue(server.ask("GET", "/frontend/settings")[2]["keyRequired"])
        self.assertEqual(server.ask("GET", "/languages")[0], 200)
        keys.write_text("another-client-key\n")
        server.process.send_signal(signal.SIGHUP)
        server.event("reloaded")
        self.assertEqual(server.ask("POST", "/translate", {**fields, "api_key": "first-client-key"})[0], 403)
        self.assertEqual(server.ask("POST", "/translate", {**fields, "api_key": "another-client-key"})[0], 200)

    def test_without_keys_that_were_wanted_is_logged(self):
        server = self.start("--api-keys", "")
        self.assertIn("--api-keys is empty", server.event("no keys")["reason"])
        self.assertFalse(server.ask("GET", "/frontend/settings")[2]["keyRequired"])
        self.assertNotIn("no keys", [line["event"] for line in self.server.log()])

    def test_a_stream_that_is_given_up_says_so_and_is_counted(self):
        server = self.start("--deadline-seconds", "2")
        # Lines that are blank, and one of a word, are done early however busy the machine is.
        text = "\n\nYes.\n" + "\n".join(SENTENCES * 7)
        status, _, data = server.ask("POST", "/v1/translate", {"text": text, "target": "de", "stream": True,
                                                               "decoding": {"beam": 32, "n_best": 32}}, raw=True)
        events = [event.split("\n")[0] for event in data.decode().split("\n\n") if event]
        self.assertEqual((status, events[-1], set(events[:-1])), (200, "event: error", {"event: line"}))
        self.assertIn("not done within 2 seconds", data.decode().split("\n\n")[-2])
        told = server.event("request")
        self.assertEqual((told["status"], told["model"]), (503, "model-en-de"))
        self.assertGreaterEqual(told["lines"], len(events) - 1 - 2)  # blank ones are none
        self.assertLess(told["lines"], 7 * len(SENTENCES))
        self.assertGreaterEqual(told["source_tokens"], told["lines"])
        self.assertGreaterEqual(told["output_tokens"], told["lines"])

    def test_who_reads_slowly_is_worked_for_no_longer_than_others(self):
        server = self.start("--deadline-seconds", "2", "--send-seconds", "600", "--max-characters", "100000")
        lines = (SENTENCES * 10)[:1000]  # many times what can be done meanwhile
        # Events of blank lines fill all that holds them for a client, which reads none.
        text = "\n" * 36000 + "\n".join(lines)
        body = json.dumps({"text": text, "target": "de", "stream": True,
                           "decoding": {"beam": 32, "n_best": 32}}).encode()
        label = (("model", "model-en-de"),)
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(PATIENCE)
            connection.connect(("127.0.0.1", server.port))
            connection.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            self.wait_until(lambda: server.figures()["transformer_running_lines", *label] > 0)
            self.wait_until(lambda: server.figures()["transformer_running_lines", *label] == 0)
            self.assertEqual(server.figures()["transformer_waiting_lines", *label], 0)
            answer = read_all(connection)
        self.assertRegex(answer[-200:].decode(), "event: error\ndata: .*not done within 2 seconds")
        self.assertTrue(answer.endswith(b"\r\n0\r\n\r\n"))
        told, = (line for line in server.log() if line.get("path") == "/v1/translate")
        self.assertEqual(told["status"], 503)
        self.assertLess(told["lines"], len(lines))

    def test_a_model_behind_a_link_keeps_its_name(self):
        for name in ("r1", "r2"):
            shutil.copytree(MODEL, self.root / name)
        current = self.root / "current"
        current.symlink_to("r1")
        server = self.start(model=current)
        body = {"text": SENTENCES[0], "model": "current"}
        self.assertEqual(server.ask("POST", "/v1/translate", body)[0], 200)
        current.unlink()
        current.symlink_to("r2")
        shutil.rmtree(self.root / "r1")
        server.process.send_signal(signal.SIGHUP)
        server.event("reloaded")
        self.assertEqual(server.ask("POST", "/v1/translate", body)[0], 200)
        self.assertEqual([model["name"] for model in server.ask("GET", "/v1/models")[2]["models"]], ["current"])
        self.assertEqual(server.figures()["transformer_lines_total", ("model", "current")], 2)

    def test_a_name_that_is_no_text_is_one_everywhere(self):
        model = os.fsencode(self.root) + b"/na\xffme"
        os.symlink(MODEL, model)
        server = self.start(model=model)
        self.assertEqual(server.ask("GET", "/v1/models")[2]["models"][0]["name"], "na\ufffdme")
        self.assertEqual(server.ask("POST", "/v1/translate", {"text": "Hi.", "model": "na\ufffdme"})[0], 200)
        self.assertEqual(server.figures()["transformer_lines_total", ("model", "na\ufffdme")], 1)

    def test_closed_standard_streams_are_not_a_connection(self):
        def close():
            for stream in (0, 1, 2):
                os.close(stream)

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = subprocess.Popen([SERVE, "--model", MODEL, "--port", str(port), "--threads", "1"], env=ENVIRONMENT,
                                   preexec_fn=close)
        self.addCleanup(process.wait, PATIENCE)
        self.addCleanup(process.terminate)

        def answers():
            with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
                connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                return read_all(connection)

        self.wait_until(answers)
        for _ in range(10):
            self.assertTrue(answers().endswith(b'\r\n\r\n{"status":"ok"}'))
        self.assertEqual({os.readlink(f"/proc/{process.pid}/fd/{stream}") for stream in (0, 1, 2)}, {"/dev/null"})

    def test_metrics_and_the_log(self):
        server = self.start()
        server.translate(SENTENCES[:10])
        server.ask("GET", "/nothing")
        server.ask("POST", "/translate", {"q": "secret words", "target": "de"}, {"X-Request-Id": "mine-1"})
        _, headers, _ = server.ask("GET", "/health", headers={"X-Request-Id": "not\tmine"})
        self.assertNotIn("mine", headers["X-Request-Id"])
        figures = server.figures()
        model = ("model", "model-en-de")
        self.assertEqual(figures["transformer_requests_total", ("code", "200"), model, ("route", "/translate")], 2)
        self.assertEqual(figures["transformer_requests_total", ("code", "404"), ("model", ""), ("route", "other")], 1)
        self.assertEqual(figures["transformer_request_seconds_count", ("route", "/translate")], 2)
        self.assertEqual(figures["transformer_lines_total", model], 11)
        self.assertGreater(figures["transformer_output_tokens_total", model], 11)
        self.assertEqual(figures["transformer_batch_sentences_count", model], 11)
        self.assertEqual(figures["transformer_ready",], 1)
        self.assertGreater(figures["process_resident_memory_bytes",], 10e6)
        buckets = [value for name, value in figures.items()
                   if name[0] == "transformer_request_seconds_bucket" and ("route", "/translate") in name]
        self.assertEqual(buckets, sorted(buckets))
        server.event("request", 5)
        requests = [line for line in server.log() if line["event"] == "request"]
        self.assertEqual([line["status"] for line in requests], [200, 404, 200, 200, 200])
        self.assertEqual(requests[2]["id"], "mine-1")
        self.assertEqual((requests[0]["lines"], requests[0]["model"]), (10, "model-en-de"))
        self.assertNotIn("secret", json.dumps(server.log()))
        told = self.start("--log-texts", "true")
        told.translate("secret words")
        self.assertEqual(told.event("request")["texts"], ["secret words"])

    def under_load(self, server, clients=8):
        """Asks on and on; returns how to end that, which gives (answers, what went wrong)."""
        stop, answers, errors = threading.Event(), [], []

        def client(number):
            generator = random.Random(number)
            while not stop.is_set():
                i = generator.randrange(len(SENTENCES))
                try:
                    status, _, answer = server.ask("POST", "/translate", {"q": SENTENCES[i], "target": "de"})
                except ConnectionRefusedError:
                    return  # never accepted
                except OSError as error:
                    errors.append(error)
                    return
                answers.append((status, answer.get("translatedText") == self.expected[i]))

        threads = [threading.Thread(target=client, args=[i]) for i in range(clients)]
        for thread in threads:
            thread.start()

        def end():
            stop.set()
            for thread in threads:
                thread.join()
            return answers, errors
        self.addCleanup(end)
        return end

    def test_a_reload_loses_no_request(self):
        folder = self.root / "reloaded"
        shutil.copytree(MODEL, folder)
        server = self.start("--languages", "en:de", model=folder)
        end = self.under_load(server)
        for number in range(3):
            time.sleep(0.1)
            server.process.send_signal(signal.SIGHUP)
            server.event("reloaded", number + 1)
        # What cannot be loaded changes nothing.
        (folder / "model.safetensors").rename(folder / "elsewhere")
        server.process.send_signal(signal.SIGHUP)
        self.assertIn("model.safetensors", server.event("not reloaded")["reason"])
        answers, errors = end()
        self.assertEqual(errors, [])
        self.assertGreater(len(answers), 20)
        self.assertEqual(set(answers), {(200, True)})

    def test_keys_may_come_through_a_pipe(self):
        keys = self.root / "keys-once"
        os.mkfifo(keys)
        writing = threading.Thread(target=lambda: keys.write_text("a-key-of-some-length\n"))
        writing.start()
        server = self.start("--api-keys", keys)
        writing.join()
        self.assertEqual(self.own("a", server)[0], 403)
        self.assertEqual(self.own("a", server, api_key="a-key-of-some-length")[0], 200)

    def test_the_end_does_not_wait_for_what_is_being_loaded(self):
        keys = self.root / "slow-keys"
        keys.write_text("a-key-of-some-length\n")
        server = self.start("--set", f"serving.api_keys={keys}")
        keys.unlink()
        os.mkfifo(keys)  # nobody writes to it
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        self.assertEqual(server.ask("GET", "/ready")[0], 200)
        self.assertEqual(server.stop(), 0)

    def test_the_end_leaves_no_accepted_request_without_its_answer(self):
        server = self.start()
        end = self.under_load(server)
        with server.socket() as kept, server.socket() as begun:
            begun.sendall(b"GET /ready HTTP/1.1\r\nHost: a\r\n")
            kept.sendall(b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n")
            self.assertIn(b"200 OK", kept.recv(1000))
            time.sleep(0.3)
            server.process.send_signal(signal.SIGTERM)
            server.event("draining")
            kept.sendall(b"GET /ready HTTP/1.1\r\nHost: a\r\n\r\n")
            answer = read_all(kept)
            self.assertIn(b"503 Service Unavailable", answer)
            self.assertIn(b"draining", answer)
            begun.sendall(b"\r\n")
            self.assertIn(b"503 Service Unavailable", read_all(begun))
        answers, errors = end()
        self.assertEqual(errors, [])
        self.assertGreater(len(answers), 5)
        self.assertEqual(set(answers), {(200, True)})
        self.assertEqual(server.process.wait(PATIENCE), 0)
        self.assertEqual(server.log()[-1]["event"], "ended")

    def test_an_answer_that_was_not_to_be_the_last_is_followed_by_another(self):
        server = self.start()
        body = json.dumps({"text": SENTENCES[:60], "target": "de", "stream": True, "decoding": {"beam": 16}}).encode()
        with server.socket() as connection:
            connection.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            data = connection.recv(1)
            server.process.send_signal(signal.SIGTERM)
            server.event("draining")
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
            data += read_all(connection)
        stream, _, last = data.partition(b"\r\n0\r\n\r\n")
        self.assertEqual(stream.count(b"event: line"), 60)
        self.assertTrue(last.startswith(b"HTTP/1.1 200 OK"), last)
        self.assertIn(b"Connection: close", last)
        self.assertEqual(server.process.wait(PATIENCE), 0)

    def test_clients_that_ask_twice_lose_nothing_where_the_server_is_killed(self):
        servers, stop, answers = [self.start()], threading.Event(), []
        port = servers[0].port

        def is_ready():
            with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(
                    http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
                return ask(connection, "GET", "/ready")[0] == 200
            return False

        def client(number):
            generator = random.Random(number)
            retried = 0
            while not stop.is_set():
                i = generator.randrange(len(SENTENCES))
                for is_last in (False, True):
                    try:
                        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
                            status, _, answer = ask(connection, "POST", "/translate", {"q": SENTENCES[i], "target": "de"})
                        break
                    except (OSError, http.client.HTTPException):
                        if is_last:
                            raise
                        retried += 1
                        self.wait_until(is_ready)
                answers.append((status, answer.get("translatedText") == self.expected[i]))
            return retried

        def kill():
            try:
                for _ in range(3):
                    enough = len(answers) + 30
                    self.wait_until(lambda: len(answers) >= enough)
                    servers[-1].stop(signal.SIGKILL)
                    servers.append(self.start(port=port))
                enough = len(answers) + 30
                self.wait_until(lambda: len(answers) >= enough)
            finally:
                stop.set()
            return 0

        retried = in_threads(9, lambda i: kill() if i == 0 else client(i))
        self.assertGreater(sum(retried), 0)
        self.assertEqual(set(answers), {(200, True)})

    def test_who_is_told_to_end_does_not_wait_for_long_work(self):
        server = self.start("--drain-seconds", "0.3", "--deadline-seconds", "600")
        answers = []
        asking = threading.Thread(target=lambda: answers.append(self.own(SENTENCES * 4, server, decoding={"beam": 32})))
        asking.start()
        self.wait_until(lambda: server.figures()["transformer_running_lines", ("model", "model-en-de")] > 0)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(PATIENCE), 0)
        asking.join()
        self.assertEqual(answers[0][0], 503)

    def test_what_asks_to_end_twice_at_once_asks_once(self):
        # As timeout does, which signals its child and then their group.
        server = self.start("--drain-seconds", "600", "--deadline-seconds", "600")
        answers = []
        asking = threading.Thread(target=lambda: answers.append(self.own(SENTENCES[:60], server, decoding={"beam": 16})))
        asking.start()
        self.wait_until(lambda: server.figures()["transformer_running_lines", ("model", "model-en-de")] > 0)
        server.process.send_signal(signal.SIGTERM)
        server.event("draining")
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(PATIENCE), 0)
        asking.join()
        self.assertEqual(answers[0][0], 200)

    def test_who_asks_to_end_again_later_does_not_wait(self):
        server = self.start("--drain-seconds", "600", "--deadline-seconds", "600")

        def ask_for_much():
            with contextlib.suppress(OSError, http.client.HTTPException):
                self.own(SENTENCES * 4, server, decoding={"beam": 32})

        asking = threading.Thread(target=ask_for_much)
        asking.start()
        self.wait_until(lambda: server.figures()["transformer_running_lines", ("model", "model-en-de")] > 0)
        server.process.send_signal(signal.SIGINT)
        server.event("draining")
        time.sleep(1.2)
        server.process.send_signal(signal.SIGINT)
        server.event("stopping")
        self.assertEqual(server.process.wait(PATIENCE), 0)
        asking.join()

    def test_who_waits_for_company_does_not_where_the_end_begins(self):
        server = self.start("--batch-wait-ms", "50000", "--drain-seconds", "20")
        answers = []
        asking = threading.Thread(target=lambda: answers.append(self.own(SENTENCES[0], server)))
        asking.start()
        self.wait_until(lambda: server.figures()["transformer_waiting_lines", ("model", "model-en-de")] > 0)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(PATIENCE), 0)
        asking.join()
        status, _, answer = answers[0]
        self.assertEqual((status, answer["translations"][0]["text"]), (200, self.expected[0]))

    def test_health_answers_while_all_workers_are_busy(self):
        server = self.start()
        with server.socket() as busy, contextlib.closing(server.connect()) as connection:
            body = json.dumps({"text": SENTENCES * 4, "target": "de", "decoding": {"beam": 32}}).encode()
            busy.sendall(b"POST /v1/translate HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            self.wait_until(lambda: server.figures()["transformer_running_lines", ("model", "model-en-de")] > 60)
            times = []
            for _ in range(11):
                began = time.monotonic()
                self.assertEqual(ask(connection, "GET", "/health")[0], 200)
                times.append(time.monotonic() - began)
            self.assertGreater(server.figures()["transformer_running_lines", ("model", "model-en-de")], 0)
            self.assertLess(sorted(times)[5], 0.5)  # the work takes seconds

    def mistake(self, *arguments):
        done = subprocess.run([SERVE, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE,
                              env=ENVIRONMENT)
        self.assertEqual(done.returncode, 2, done.stderr)
        return [line for line in done.stderr.splitlines() if line.startswith("serve: error: ")][0]

    def test_a_draft_changes_no_answer(self):
        untrained = self.root / "draft"
        write_draft(untrained, MODEL, 24, 2, seed=1)
        greedy, sampled = {"beam": 1}, {"search": "sampling", "temperature": 0.7, "seed": 3}
        guessed = (greedy, sampled, {**greedy, "proposals": 64, "max_extra_length": 3}, {**sampled, "top_p": 0.9})
        others = ({}, {"beam": 4, "n_best": 3}, {**sampled, "n_best": 2}, {"coverage_penalty": 0.2, **greedy},
                  {**greedy, "proposals": 0})

        def answers(server, settings):
            status, _, answer = self.own(SENTENCES[:60], server, decoding=settings, alignments=True)
            self.assertEqual(status, 200, answer)
            return answer

        plain = [answers(self.server, settings) for settings in (*guessed, *others)]
        for draft in (MODEL, untrained):
            server = self.start("--draft", draft)
            proposed, accepted = [(f"transformer_draft_{what}_tokens_total", ("model", "model-en-de"))
                                  for what in ("proposed", "accepted")]
            self.assertEqual(server.figures()[proposed], 0)
            for settings, expected in zip(others, plain[len(guessed):], strict=True):
                self.assertEqual(answers(server, settings), expected, (draft, settings))
            self.assertEqual(server.figures()[proposed], 0)
            for settings, expected in zip(guessed, plain):
                self.assertEqual(answers(server, settings), expected, (draft, settings))
            # As it comes to a server: one at a time, and several at once.
            for number in range(5):
                status, _, answer = self.own(SENTENCES[number], server, decoding=greedy)
                self.assertEqual(answer["translations"][0]["text"], plain[0]["translations"][number]["text"])
            found = in_threads(8, lambda i: self.own(SENTENCES[i], server, decoding=sampled)[2]["translations"][0]["text"])
            self.assertEqual(found, [self.own(line, decoding=sampled)[2]["translations"][0]["text"] for line in SENTENCES[:8]])
            figures = server.figures()
            self.assertGreater(figures[proposed], 0)
            self.assertLessEqual(figures[accepted], figures[proposed])
            if draft == MODEL:
                self.assertGreater(figures[accepted], 0.9 * figures[proposed])
            self.assertEqual(server.ask("GET", "/v1/models")[2]["models"][0]["draft"], draft.name)
            server.process.send_signal(signal.SIGHUP)
            server.event("reloaded")
            self.assertEqual(answers(server, greedy), plain[0])
        self.assertIsNone(self.server.ask("GET", "/v1/models")[2]["models"][0]["draft"])
        self.assertNotIn(proposed, self.server.figures())
        # Of two models one has a draft.
        server = self.start("--languages", "?", "--draft", "none", "--model", untrained, "--languages", "en:nl", "--draft",
                            untrained)
        self.assertEqual([model["draft"] for model in server.ask("GET", "/v1/models")[2]["models"]], [None, "draft"])
        self.assertEqual(answers(server, greedy), plain[0])

    def test_drafts_that_do_not_fit_are_refused(self):
        other = SOURCE / "tests/formats/0.1.0/run"
        serve = ["--model", MODEL, "--port", 0]
        self.assertRegex(self.mistake(*serve, "--draft", other), f"{re.escape(str(other))}.*another vocabulary")
        self.assertIn(str(self.root / "nowhere"), self.mistake(*serve, "--draft", self.root / "nowhere"))
        self.assertIn("serving.drafts: there is one entry for each model", self.mistake(*serve, "--draft", MODEL, "--draft", MODEL))

    def test_settings_come_from_a_file_and_mistakes_are_told(self):
        configuration = self.root / "serve.yaml"
        configuration.write_text(f"serving:\n  models: [{MODEL}, {MODEL}]\n  languages: ['?', 'en:nl']\n  port: 0\n"
                                 "  threads: 1\n  precision: int8\n  max_texts: 5\n")
        log = self.root / "log"
        with open(log, "w") as errors:
            process = subprocess.Popen([SERVE, configuration, "--max-texts", "6", "--set", "serving.page=false"],
                                       stderr=errors, env=ENVIRONMENT)
        try:
            self.wait_until(lambda: '"ready"' in log.read_text())
            port = int(json.loads(log.read_text().splitlines()[0])["address"].rsplit(":", 1)[1])
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
                self.assertEqual(ask(connection, "GET", "/languages")[2][1],
                                 {"code": "en", "name": "English", "targets": ["de", "nl"]})
                self.assertEqual(ask(connection, "POST", "/translate", {"q": ["a"] * 6, "target": "nl"})[0], 200)
                self.assert_refused(ask(connection, "POST", "/translate", {"q": ["a"] * 7, "target": "nl"}), 413)
                self.assertEqual(ask(connection, "GET", "/")[0], 404)  # the page was switched off
                self.assertEqual(ask(connection, "GET", "/v1/models")[2]["models"][1]["target"], "nl")
        finally:
            process.terminate()
            self.assertEqual(process.wait(PATIENCE), 0)

        mistake = self.mistake
        self.assertIn("no model is named", mistake())
        self.assertIn("config.yaml", mistake("--model", self.root))
        self.assertIn("did you mean", mistake("--model", MODEL, "--set", "serving.prot=1"))
        self.assertIn("is no address", mistake("--model", MODEL, "--host", "nowhere"))
        self.assertIn("serving.batch_wait_ms: 2000 milliseconds leave no time until serving.deadline_seconds, 2",
                      mistake("--model", MODEL, "--batch-wait-ms", "2000", "--deadline-seconds", "2"))
        self.assertIn("serving.allow_origin: 'https://a.example\\x0d\\x0aSet-Cookie: x=1'",
                      mistake("--model", MODEL, "--allow-origin", "https://a.example\r\nSet-Cookie: x=1"))
        self.assertIn("--host: is empty", mistake("--model", MODEL, "--host=", "--port", "0"))
        self.assertIn("no pair of languages", mistake("--model", MODEL, "--languages", "german"))
        unknown = self.root / "unknown"
        shutil.copytree(MODEL, unknown)
        text = (unknown / "config.yaml").read_text()
        (unknown / "config.yaml").write_text(text.replace("train.en.gz", "train.words").replace("train.de.gz", "train.trees"))
        self.assertIn("--languages en:de", mistake("--model", unknown))
        (unknown / "vocabulary.model").write_bytes(b"no vocabulary")
        self.assertIn("vocabulary.model", mistake("--model", unknown, "--languages", "en:de", "--port", 0))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
