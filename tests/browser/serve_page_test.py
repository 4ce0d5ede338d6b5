"""The server's page as people use it: serve_page_test.py SERVE IMPORT SOURCE_DIR."""

import contextlib
import http.server
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

from browser import Browser, eventually, find_browser, PROGRAMS

SERVE, IMPORT, SOURCE = *sys.argv[1:3], pathlib.Path(sys.argv[3])


def translating(*texts):
    """What answers with these translations of a line, the best first, whose words attend to the line's first alone."""
    def answer(asked):
        rest = [0] * (len(asked["text"].split()) - 1)
        hypotheses = [{"text": text, "alignment": [], "attention": [[1000, *rest] for _ in text.split()]}
                      for text in texts]
        return {"translations": [{"text": texts[0], "lines": [{"source": asked["text"], "hypotheses": hypotheses}]}]}

    return answer


def shouting(asked):
    return translating(asked["text"].upper())(asked)


class Proxy(http.server.ThreadingHTTPServer):
    """What stands between the page and its server; answers `instead` where there is something: (status, headers, body).
    Translations are those of `translate` where there is one, and `asked` has what these were asked for."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self, body=None):
            if self.server.instead:
                self.send(*self.server.instead)
                return
            request = urllib.request.Request(f"http://127.0.0.1:{self.server.behind}{self.path}", body,
                                             {"Content-Type": self.headers.get("Content-Type") or "text/plain"})
            with urllib.request.urlopen(request, timeout=60) as response:
                self.send(response.status, {"Content-Type": response.headers["Content-Type"]}, response.read())

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if not self.server.translate:
                self.do_GET(body)
                return
            self.server.asked.append(json.loads(body))
            answer = json.dumps(self.server.translate(self.server.asked[-1]))
            self.send(200, {"Content-Type": "application/json"}, answer.encode())

        def send(self, status, headers, body):
            self.send_response(status)
            for name, value in {**headers, "Content-Length": len(body)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # a page that waits no longer
                self.wfile.write(body)

        def log_message(self, *_):
            pass

    def __init__(self, behind):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.behind, self.instead, self.translate, self.asked = behind, None, None, []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def close(self):
        self.shutdown()
        self.server_close()


class ServePageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.port = 0
        cls.start()
        cls.addClassCleanup(lambda: cls.stop())
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    @staticmethod
    def serve(model, port, *arguments):
        """A server, and its port."""
        server = subprocess.Popen([SERVE, "--model", model, "--port", str(port), *arguments], stderr=subprocess.PIPE, text=True)
        for line in server.stderr:
            event = json.loads(line)
            if event["event"] == "listening":
                port = int(event["address"].rsplit(":", 1)[1])
            if event["event"] == "ready":
                return server, port
        raise RuntimeError(f"it ended with {server.wait()}")

    @staticmethod
    def end(server):
        server.terminate()
        server.communicate(timeout=60)

    @classmethod
    def start(cls):
        cls.server, cls.port = cls.serve(SOURCE / "data/model-en-de", cls.port)

    @classmethod
    def stop(cls):
        cls.end(cls.server)

    def open(self, errors=(), **settings):
        page = self.browser.open(__file__, **settings)
        page.requests.clear()
        page.go(f"http://127.0.0.1:{self.port}/")
        self.addCleanup(self.check, page, errors)
        self.assertTrue(eventually(lambda: page.texts("#pair option"), bool))
        return page

    def check(self, page, allowed):
        page.settle()
        self.assertEqual([error for error in page.errors if not any(part in error for part in allowed)], [])
        hosts = {request.split("/")[2] for request in page.requests if not request.startswith("data:")}
        self.assertEqual(hosts, {f"127.0.0.1:{self.port}"})
        page.close()

    def stand_between(self, translate=None):
        proxy = Proxy(self.port)
        self.addCleanup(proxy.close)
        proxy.translate, self.port = translate, proxy.server_port
        return proxy

    def type(self, page, text):
        page.value('document.querySelector("#source").focus()')
        page.call("Input.insertText", text=text)

    def press(self, page, key, code, modifiers=0, **parameters):
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, modifiers=modifiers,
                      **parameters)
            parameters = {}
        page.settle()

    def drag(self, page, first, last):
        """From the left edge of a word to the right one of another."""
        (left, top), (right, bottom) = page.value(f"""[{first}, {last}].map((at, end) => {{
            const box = document.querySelectorAll(".word")[at].getBoundingClientRect();
            return [end ? box.right - 1 : box.left + 1, box.top + box.height / 2]; }})""")
        for kind, x, y in (("mouseMoved", left, top), ("mousePressed", left, top), ("mouseMoved", left + 9, top),
                           ("mouseMoved", right, bottom), ("mouseReleased", right, bottom)):
            button = "none" if (kind, x) == ("mouseMoved", left) else "left"
            page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)
            page.settle()

    def drop(self, page, content):
        page.value(f"""(() => {{ const drop = new Event("drop", {{ cancelable: true }});
                                 drop.dataTransfer = {{ files: [new File([new Uint8Array({list(content)})], "a.txt")] }};
                                 document.querySelector("#source").dispatchEvent(drop); }})()""")

    def is_outdated(self, page):
        """Whether the translation is said to be, and is not to be copied."""
        busy, disabled = page.value("""[document.querySelector("#target").ariaBusy,
                                        document.querySelector("#copy").disabled]""")
        self.assertEqual(busy, "true" if disabled else "false")
        return disabled

    def assert_translated(self, page, *lines):
        found = eventually(lambda: page.texts("#target p"), lambda found: found == list(lines))
        self.assertEqual(found, list(lines))

    def assert_said(self, page, said):
        self.assertEqual(eventually(lambda: page.text("#say"), lambda found: found == said), said)

    def test_translates_what_is_typed_and_shows_what_words_stand_for(self):
        page = self.open()
        self.assertEqual(page.texts("#pair option"), ["English → German"])
        self.type(page, "The weather is ")
        self.type(page, "nice today.")
        self.assert_translated(page, "Das Wetter ist heute schön.")
        self.assertEqual(page.text("#count"), "26")
        self.assertGreater(len(page.texts("#alternatives button")), 0)
        page.click(".word:nth-of-type(2)")
        self.assertEqual(page.text("#say"), "“Wetter” stands for “weather”.")
        other = page.text("#alternatives button")
        page.click("#alternatives button")
        self.assert_translated(page, other)
        self.assertIn("Das Wetter ist heute schön.", page.texts("#alternatives button"))

    def test_a_server_that_allows_one_translation_gives_it(self):
        server, self.port = self.serve(SOURCE / "data/model-en-de", 0, "--max-beam", "1")
        self.addCleanup(self.end, server)
        page = self.open()
        self.type(page, "Good morning.")
        self.assert_said(page, "Translated.")
        self.assertTrue(page.text("#target"))

    def test_words_are_the_servers(self):
        page = self.open()
        self.type(page, "I\x85see\ufeffTom.")  # only the first of these two is blank there
        eventually(lambda: page.texts(".word"), bool)
        said = set()
        for number in range(1, 1 + len(page.texts(".word"))):
            page.click(f".word:nth-of-type({number})")
            said.add(page.text("#say"))
        named = set(re.findall("“([^”]*)”", " ".join(sentence.split("stands for")[-1] for sentence in said)))
        self.assertTrue(named)
        self.assertLessEqual(named, {"I", "see\ufeffTom."})

    def test_a_key_may_hold_any_character(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder, "keys")
            keys.write_text("plain-key-1\nlatin-schlüssel\npasswört-€uro\n", encoding="utf-8")
            server, self.port = self.serve(SOURCE / "data/model-en-de", 0, "--api-keys", str(keys))
            self.addCleanup(self.end, server)
        page = self.open(errors=("Failed to load",))
        self.type(page, "Good morning.")
        self.assert_said(page, "an API key is needed")
        for key, said in (("€€€€€€€€", "the API key is none of this server's"), ("plain-key-1", "Translated."),
                          ("no-such-key", "the API key is none of this server's"), ("latin-schlüssel", "Translated."),
                          ("no-such-key", "the API key is none of this server's"), (" passwört-€uro ", "Translated.")):
            with self.subTest(key=key):
                page.value(f"""(() => {{ const key = document.querySelector("#key"); key.value = {json.dumps(key)};
                                         key.dispatchEvent(new Event("change")); }})()""")
                self.assert_said(page, said)

    def test_only_the_last_of_what_was_typed_counts(self):
        page = self.open()
        for word in "Good morning , my friend .".split():
            self.type(page, f"{word} ")
        sent = eventually(lambda: page.texts("#target p"), lambda found: bool(found and found[0]))
        self.assertEqual(len(sent), 1)
        self.assertEqual(len([request for request in page.requests if request.endswith("/v1/translate")]), 1)

    def test_lines_stay_lines_and_text_is_never_markup(self):
        page = self.open()
        hostile = "<img src=x onerror=alert(1)>\n\n<script>document.title='gone'</script> قطة 👩‍👩‍👧"
        self.type(page, hostile)
        eventually(lambda: page.texts("#target p"), lambda found: len(found) == 3)
        self.assertEqual(len(page.texts("#target p")), 3)
        self.assertEqual(page.value('document.querySelectorAll("#target :not(p):not(.word), #alternatives :not(li):not(button)").length'), 0)
        self.assertEqual(page.value("document.title"), "Translate")
        self.assertEqual(page.texts("img, main script"), [])

    def test_a_server_that_was_away_is_asked_again(self):
        page = self.open(errors=("ERR_CONNECTION", "Failed to load"))
        self.stop_and_type(page)
        try:
            self.assertIn("asked again", eventually(lambda: page.text("#say"), bool))
            self.assertTrue(self.is_outdated(page))
        finally:
            self.start()
        self.assert_translated(page, "Guten Morgen!")

    def test_a_server_that_is_away_behind_a_proxy_is_asked_again(self):
        proxy = self.stand_between()
        page = self.open(errors=("Failed to load",))
        html, body = {"Content-Type": "text/html"}, b"<html><title>Another page</title></html>"
        busy = {"Content-Type": "application/json", "Retry-After": "1"}
        for instead, said in (((502, html, body), "does not answer"), ((504, html, body), "does not answer"),
                              ((200, html, body), "does not answer"),
                              ((503, busy, b'{"error": "the models are being loaded"}'), "the models are being loaded")):
            with self.subTest(instead):
                page.value("""(() => { document.querySelector("#source").value = "Good";
                                       document.querySelector("#pair").dispatchEvent(new Event("change")); })()""")
                self.assert_said(page, "Translated.")
                proxy.instead = instead
                self.type(page, " morning.")
                found = eventually(lambda: page.text("#say"), lambda found: said in found)
                self.assertIn(said, found)
                self.assertIn("asked again", found)
                self.assertTrue(self.is_outdated(page))
                proxy.instead = None
                self.assert_translated(page, "Guten Morgen!")
                self.assertFalse(self.is_outdated(page))
        # What would be refused again is not asked again, and what was there before is not its translation.
        proxy.instead = (413, html, body)
        self.type(page, " Good morning.")
        self.assert_said(page, "the server answered 413")
        self.assertEqual(page.texts("#target p"), [])
        self.assertEqual(page.value("""[document.querySelector("#target").ariaBusy, document.querySelector("#copy").disabled,
                                        document.querySelector("#others").hidden]"""), ["false", True, True])

    def test_what_the_browser_does_not_do_is_said(self):
        page = self.open()
        self.type(page, "Good morning.")
        self.assert_translated(page, "Guten Morgen!")
        page.value("""(() => { navigator.clipboard.writeText = () => Promise.reject(new Error("not here")); })()""")
        page.click("#copy")
        self.assertEqual(page.text("#say"), "Nothing was copied: not here")
        page.value("""(() => { const drop = new Event("drop");
                               drop.dataTransfer = { files: [{ size: 0, arrayBuffer: () => Promise.reject(new Error("a folder")) }] };
                               document.querySelector("#source").dispatchEvent(drop); })()""")
        self.assertEqual(eventually(lambda: page.text("#say"), lambda found: "file" in found),
                         "The file cannot be read: a folder")

    def test_translations_can_be_selected_and_copied(self):
        page = self.open()
        # Over plain HTTP, from elsewhere, there is no clipboard.
        page.call("Page.addScriptToEvaluateOnNewDocument",
                  source='Object.defineProperty(navigator, "clipboard", { value: undefined })')
        page.go(f"http://127.0.0.1:{self.port}/")
        self.assertTrue(eventually(lambda: page.texts("#pair option"), bool))
        self.type(page, "The weather is nice today.\nGood morning.")
        self.assert_translated(page, "Das Wetter ist heute schön.", "Guten Morgen!")
        for first, last, selected in ((1, 3, "Wetter ist heute"), (2, 2, "ist")):
            self.drag(page, first, last)
            self.assertEqual(page.value("getSelection().toString()"), selected)
            self.assertEqual(page.texts(".picked"), [])
            page.click("#target-name")
        page.click(".word:nth-of-type(2)")
        self.assertEqual(page.texts(".picked"), ["Wetter"])
        page.click("#copy")
        self.assertEqual(page.text("#say"), "Copied.")
        page.click(".word:nth-of-type(3)")  # of which nothing is selected any more
        self.assertEqual(page.texts(".picked"), ["ist"])
        page.value('document.querySelector("#source").select(); document.querySelector("#source").focus()')
        self.press(page, "v", 86, commands=["paste"])
        self.assertEqual(page.value('document.querySelector("#source").value'),
                         "Das Wetter ist heute schön.\nGuten Morgen!")
        page.value("document.execCommand = () => false")
        self.assertFalse(eventually(lambda: self.is_outdated(page), lambda found: not found))
        page.click("#copy")
        self.assertEqual(page.text("#say"), "Nothing was copied: the browser does not allow it")

    def test_words_follow_the_direction_of_their_script(self):
        proxy = self.stand_between(translating("ذهب جون إلى New York في عام 2020"))
        page = self.open()
        self.type(page, "John went to New York in 2020")
        self.assert_said(page, "Translated.")
        place = page.value('[...document.querySelectorAll(".word")].map(word => word.getBoundingClientRect().x)')
        as_seen = sorted(range(len(place)), key=lambda word: -place[word])
        self.assertEqual(as_seen, [0, 1, 2, 4, 3, 5, 6, 7])  # from the right, but for "New York"
        page.value('document.querySelector(".word").focus()')
        for key, word in (("ArrowLeft", "جون"), ("ArrowLeft", "إلى"), ("ArrowRight", "جون")):
            page.press(key)
            self.assertEqual(page.value("document.activeElement.textContent"), word)
        # Without spaces a sentence is a word, which goes over lines as text does.
        proxy.translate = translating("中文翻译没有空格因此整个句子是一个词" * 5)
        self.type(page, " or so")
        eventually(lambda: page.texts(".word"), lambda found: len(found) == 1)
        lefts = page.value('[...document.querySelector(".word").getClientRects()].map(box => box.left)')
        self.assertGreater(len(lefts), 1)
        self.assertEqual(set(lefts), {page.value('document.querySelector("#target p").getBoundingClientRect().left')})

    def test_texts_that_are_too_long_or_no_text_are_not_cut_or_damaged(self):
        proxy = self.stand_between(shouting)
        page = self.open()
        limit = 50_000
        mistakes = ((b"word " * limit, f"it has more than the {limit} characters that are translated"),
                    ("Grüße".encode("latin-1"), "it is no text in UTF-8"))
        self.type(page, "before")
        self.assert_translated(page, "BEFORE")
        for content, mistake in mistakes:
            self.drop(page, content)
            self.assert_said(page, f"The file cannot be read: {mistake}")
            self.assertEqual(page.value('document.querySelector("#source").value'), "before")
        self.drop(page, "Grüße".encode())
        self.assert_translated(page, "GRÜSSE")
        # Characters are counted, as the server does, and not the two halves of some.
        proxy.asked.clear()
        page.value('document.querySelector("#source").select()')
        self.type(page, "👋" * limit + "x")
        self.assert_said(page, f"The text is too long: it has {limit + 1} characters, "
                               f"and at most {limit} are translated.")
        self.assertEqual(page.text("#count"), str(limit + 1))
        self.assertEqual((page.texts("#target p"), proxy.asked), ([], []))
        page.value('document.execCommand("delete")')
        self.assert_said(page, "Translated.")
        self.assertEqual([asked["text"] for asked in proxy.asked], ["👋" * limit])

    def test_a_translation_of_many_words_is_one_stop_of_the_keyboard(self):
        self.stand_between(translating(" ".join(f"word{i}" for i in range(300))))
        page = self.open()
        self.type(page, "Many words.")
        self.assert_said(page, "Translated.")
        self.assertEqual(page.value('document.querySelector("#say").role'), "status")  # which screen readers tell

        def focused():
            stops = '[...document.querySelectorAll("#target *")].filter(one => one.tabIndex >= 0).length'
            self.assertEqual(page.value(stops), 1)
            return page.text(":focus")

        page.press("Tab")
        for key, word in (("ArrowRight", "word1"), ("ArrowDown", "word2"), ("ArrowLeft", "word1"), ("End", "word299"),
                          ("ArrowRight", "word299"), ("ArrowUp", "word298"), ("Home", "word0"), ("ArrowLeft", "word0")):
            page.press(key)
            self.assertEqual(focused(), word)
        for modifier in (1, 2, 4, 8):  # with which keys are the browser's
            self.press(page, "End", 35, modifier)
            self.assertEqual(focused(), "word0")
        page.press("ArrowRight", "Enter")
        self.assertEqual(page.text("#say"), "“word1” stands for no single word.")
        page.press("ArrowRight")
        self.press(page, " ", 32, text=" ")
        self.assertEqual(page.text("#say"), "“word2” stands for no single word.")
        page.press("Tab")
        self.assertEqual(page.value("document.activeElement.id"), "copy")

    def stop_and_type(self, page):
        type(self).stop()
        self.type(page, "Good morning.")

    def test_phones_keyboards_and_labels(self):
        page = self.open(width=360, height=700, touch=True, dark=True)
        self.assertLessEqual(page.value("document.documentElement.scrollWidth"), 360)
        self.assertEqual(page.value("""[...document.querySelectorAll("select, textarea, input")].filter(
            field => !field.labels.length).length"""), 0)
        self.type(page, "Good morning.")
        self.assert_translated(page, "Guten Morgen!")
        page.press("Tab", "Enter")
        self.assertEqual(page.text("#say"), "“Guten” stands for “Good”.")

    def test_attention_is_shown_where_it_is_looked_at(self):
        page = self.open()
        self.type(page, "The weather is nice today.")
        self.assert_translated(page, "Das Wetter ist heute schön.")
        self.assertEqual(page.texts("#heat table"), [])
        page.click("#attention summary")
        eventually(lambda: page.texts("#heat tbody th"), bool)
        self.assertEqual(page.texts("#heat tbody th"), "Das Wetter ist heute schön.".split())
        self.assertEqual(page.texts("#heat thead th"), "The weather is nice today.".split())
        most = page.value("""[...document.querySelector("#heat tbody").rows].map(row => {
            const shares = [...row.querySelectorAll("td")].map(cell => Number(cell.style.getPropertyValue("--share")));
            return shares.indexOf(Math.max(...shares)); })""")
        self.assertEqual(most[1:2] + most[3:], [1, 4, 3])  # Wetter, heute, schön.

    def test_attention_is_that_of_the_translation_that_is_shown(self):
        proxy = self.stand_between(translating("the best", "another one of them"))
        page = self.open()
        page.value("""(() => { const own = fetch;
                               window.watching = [];
                               window.fetch = (path, options) => {
                                 if (JSON.parse(options.body).attention) watching.push(options.signal);
                                 return own(path, options);
                               };
                               document.querySelector("#attention").open = true; })()""")

        def assert_heat(*rows):
            found = eventually(lambda: page.texts("#heat tbody th"), lambda found: found == list(rows))
            self.assertEqual(found, list(rows))

        self.type(page, "some text")
        assert_heat("the", "best")
        page.click("#alternatives button")
        assert_heat("another", "one", "of", "them")
        page.click(".word")
        assert_heat("another", "one", "of", "them")
        self.assertEqual({asked["decoding"]["n_best"] for asked in proxy.asked}, {3})
        # A server need not tell of each.
        def of_the_best_alone(asked):
            answer = translating("the best", "another one of them")(asked)
            del answer["translations"][0]["lines"][0]["hypotheses"][1]["attention"]
            return answer

        proxy.translate = of_the_best_alone
        page.click(".word")
        found = eventually(lambda: page.text("#heat"), lambda found: "told" in found)
        self.assertEqual(found, "Nothing is told of this translation.")
        # Attention that nobody looks at any more is given up, and says nothing.
        begun, ended = threading.Event(), threading.Event()
        self.addCleanup(ended.set)

        def slow(asked):
            if asked.get("attention") and asked["text"] == "some text and":
                begun.set()
                ended.wait(60)
                return {"translations": []}
            return translating("the rest")(asked)

        proxy.translate = slow
        self.type(page, " and")
        self.assertTrue(begun.wait(60))
        page.click(".word")
        page.settle()
        self.assertEqual(page.text("#say"), "“the” stands for no single word.")
        self.type(page, " more")
        self.assertTrue(page.value("watching.at(-1).aborted"))
        assert_heat("the", "rest")
        ended.set()
        time.sleep(0.2)
        self.assertEqual(page.text("#say"), "Translated.")
        self.assertEqual(page.value("watching.filter(signal => !signal.aborted).length"), 1)

    def test_a_model_of_many_languages_is_told_them(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        subprocess.run([sys.executable, SOURCE / "tests/reference/multilingual.py", SOURCE / "data/tatoeba-en-de", folder,
                        "nllb"], check=True, capture_output=True, timeout=600)
        subprocess.run([IMPORT, "--from", "hugging-face", folder / "nllb", "--output", folder / "many"], check=True,
                       capture_output=True, timeout=60)
        server, self.port = self.serve(folder / "many", 0)
        self.addCleanup(self.end, server)

        def expected(target):
            body = json.dumps({"text": "Good morning.", "source": "eng_Latn", "target": target})
            request = urllib.request.Request(f"http://127.0.0.1:{self.port}/v1/translate", body.encode(),
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as response:
                return " ".join(json.load(response)["translations"][0]["text"].split())

        page = self.open()
        self.assertEqual(page.texts("#pair option"), ["5 languages (many)"])
        value = 'document.querySelector("#{}").value'
        self.assertEqual((page.value(value.format("from")), page.value(value.format("to"))), ("en", "ace-Arab"))
        first, *others = page.texts("#to option")
        self.assertIn(first, ["Acehnese (Arabic)", "ace (Arabic)"])  # as much as the browser knows
        self.assertEqual(others, ["German", "English", "French", "Chinese"])
        self.assertEqual(page.obstacles(), [])
        def kept(count):
            """Waits for so many translations: two languages' may be the same text, which says of neither that it is there."""
            found = eventually(lambda: page.value('document.querySelectorAll("#earlier button").length'),
                               lambda found: found >= count)
            self.assertEqual(found, count)

        self.type(page, "Good morning.")
        kept(1)
        texts = {}
        for target in ("fr", "de"):
            page.value(f"""(() => {{ const list = document.querySelector("#to"); list.value = "{target}";
                                     list.dispatchEvent(new Event("change")); }})()""")
            kept(2 + len(texts))
            texts[target] = expected(target)
            found = eventually(lambda: " ".join(page.text("#target").split()), lambda found: found == texts[target])
            self.assertEqual(found, texts[target])
            self.assertEqual(page.value('document.querySelector("#target").lang'), target)
        self.assertNotEqual(*texts.values())
        # An earlier translation comes back in its languages.
        page.value('document.querySelectorAll("#earlier button")[1].click()')
        found = eventually(lambda: " ".join(page.text("#target").split()), lambda found: found == texts["fr"])
        self.assertEqual((found, page.value(value.format("to"))), (texts["fr"], "fr"))

    def test_earlier_translations_stay_in_the_browser(self):
        page = self.open()
        page.value("localStorage.clear()")
        self.type(page, "Good morn")
        eventually(lambda: page.texts("#target p"), lambda found: bool(found and found[0]))
        self.type(page, "ing.")
        self.assert_translated(page, "Guten Morgen!")
        self.assertEqual(page.texts("#earlier button"), ["Good morning. → Guten Morgen!"])
        page.value('document.querySelector("#source").select()')
        self.type(page, "The weather is nice today.")
        self.assert_translated(page, "Das Wetter ist heute schön.")
        self.assertEqual(len(page.texts("#earlier button")), 2)
        page.go(f"http://127.0.0.1:{self.port}/")
        self.assertTrue(eventually(lambda: page.texts("#pair option"), bool))
        page.click("#history summary")
        page.click("#earlier li:last-child button")
        self.assert_translated(page, "Guten Morgen!")
        self.assertEqual(page.value('document.querySelector("#source").value'), "Good morning.")
        page.click("#forget")
        self.assertEqual(page.texts("#earlier button"), [])
        self.assertTrue(page.value('document.querySelector("#history").hidden'))
        page.value('localStorage.setItem("transformer-translations", "{broken")')
        page.go(f"http://127.0.0.1:{self.port}/")
        self.assertTrue(eventually(lambda: page.texts("#pair option"), bool))

    def test_what_is_being_typed_is_one_earlier_translation(self):
        self.stand_between(shouting)
        page = self.open()
        page.value("localStorage.clear()")

        def translated(text):
            self.assert_translated(page, text.upper())
            return [kept.split(" → ")[0] for kept in page.texts("#earlier button")]

        def correct(count, text):
            for _ in range(count):
                page.value('document.execCommand("delete")')
            self.type(page, text)

        self.type(page, "Good mornig")
        self.assertEqual(translated("Good mornig"), ["Good mornig"])
        correct(1, "")
        self.assertEqual(translated("Good morni"), ["Good morni"])
        correct(1, "ing, all")  # without a pause
        self.assertEqual(translated("Good morning, all"), ["Good morning, all"])
        # What replaces it is another.
        page.value('document.querySelector("#source").select()')
        self.type(page, "Nice weather")
        self.assertEqual(translated("Nice weather"), ["Nice weather", "Good morning, all"])
        # One that was there before stays.
        page.value('document.querySelector("#source").select()')
        self.type(page, "Good morning, all")
        self.assertEqual(translated("Good morning, all"), ["Good morning, all", "Nice weather"])
        self.type(page, " of you")
        kept = ["Good morning, all of you", "Good morning, all", "Nice weather"]
        self.assertEqual(translated("Good morning, all of you"), kept)
        page.go(f"http://127.0.0.1:{self.port}/")
        self.assertTrue(eventually(lambda: page.texts("#pair option"), bool))
        self.type(page, "Goo")
        self.assertEqual(translated("Goo"), ["Goo", *kept])

    def test_what_an_input_method_has_not_finished_is_not_translated(self):
        proxy = self.stand_between(shouting)
        page = self.open()
        page.value("localStorage.clear()")
        self.type(page, "今天")
        for text in ("n", "ni", "nihao"):
            page.call("Input.imeSetComposition", text=text, selectionStart=len(text), selectionEnd=len(text))
            time.sleep(0.4)  # longer than the page waits
        self.type(page, "你好")
        self.assert_translated(page, "今天你好")
        self.assertEqual([asked["text"] for asked in proxy.asked if "n" in asked["text"]], [])
        self.assertEqual(page.texts("#earlier button"), ["今天你好 → 今天你好"])

    def test_nothing_keeps_people_from_using_it(self):
        for dark in (False, True):
            page = self.open(dark=dark)
            self.assertEqual(page.obstacles(), [])
            self.type(page, "Good morning.")
            self.assert_translated(page, "Guten Morgen!")
            page.click(".word")
            page.click("#attention summary")
            eventually(lambda: page.texts("#heat tbody th"), bool)
            self.assertEqual(page.obstacles(), [])

    def test_colours_can_be_told_apart(self):
        for dark in (False, True):
            page = self.open(dark=dark)
            worst = page.value("""(() => {
                const light = text => {
                  const part = c => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
                  const [r, g, b] = text.match(/[\\d.]+/g).map(c => part(c / 255));
                  return .2126 * r + .7152 * g + .0722 * b;
                };
                const behind = one => { const c = getComputedStyle(one).backgroundColor;
                  return c === "rgba(0, 0, 0, 0)" && one.parentElement ? behind(one.parentElement) : c; };
                return Math.min(...[...document.querySelectorAll("h1, h2, label, p, button, select, textarea")].map(one => {
                  const [a, b] = [light(getComputedStyle(one).color), light(behind(one))];
                  return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
                }));
            })()""")
            self.assertGreaterEqual(worst, 4.5)


if __name__ == "__main__":
    if not find_browser():
        print(f"skipped: no browser; none of {', '.join(PROGRAMS)} is on PATH (Debian: chromium-headless-shell)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
