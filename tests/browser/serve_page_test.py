"""The server's page as people use it: serve_page_test.py SERVE IMPORT SOURCE_DIR."""

import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request

from browser import Browser, eventually, find_browser, PROGRAMS

SERVE, IMPORT, SOURCE = *sys.argv[1:3], pathlib.Path(sys.argv[3])


class Proxy(http.server.ThreadingHTTPServer):
    """What stands between the page and its server; answers `instead` where there is something: (status, headers, body)."""

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
            self.do_GET(self.rfile.read(int(self.headers["Content-Length"])))

        def send(self, status, headers, body):
            self.send_response(status)
            for name, value in {**headers, "Content-Length": len(body)}.items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    def __init__(self, behind):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.behind, self.instead = behind, None
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
    def serve(model, port):
        """A server, and its port."""
        server = subprocess.Popen([SERVE, "--model", model, "--port", str(port)], stderr=subprocess.PIPE, text=True)
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

    def type(self, page, text):
        page.value('document.querySelector("#source").focus()')
        page.call("Input.insertText", text=text)

    def assert_translated(self, page, *lines):
        found = eventually(lambda: page.texts("#target p"), lambda found: found == list(lines))
        self.assertEqual(found, list(lines))

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
        self.assertIn("asked again", eventually(lambda: page.text("#say"), bool))
        self.start()
        self.assert_translated(page, "Guten Morgen!")

    def test_a_server_that_is_away_behind_a_proxy_is_asked_again(self):
        proxy = Proxy(self.port)
        self.addCleanup(proxy.close)
        self.port = proxy.server_port
        page = self.open(errors=("Failed to load",))
        html, body = {"Content-Type": "text/html"}, b"<html><title>Another page</title></html>"
        busy = {"Content-Type": "application/json", "Retry-After": "1"}
        for instead, said in (((502, html, body), "does not answer"), ((504, html, body), "does not answer"),
                              ((200, html, body), "does not answer"),
                              ((503, busy, b'{"error": "the models are being loaded"}'), "the models are being loaded")):
            with self.subTest(instead):
                page.value("""(() => { document.querySelector("#source").value = "";
                                       document.querySelector("#pair").dispatchEvent(new Event("change")); })()""")
                proxy.instead = instead
                self.type(page, "Good morning.")
                found = eventually(lambda: page.text("#say"), bool)
                self.assertIn(said, found)
                self.assertIn("asked again", found)
                proxy.instead = None
                self.assert_translated(page, "Guten Morgen!")
        # What would be refused again is not asked again.
        proxy.instead = (413, html, body)
        self.type(page, " Good morning.")
        self.assertEqual(eventually(lambda: page.text("#say"), bool), "the server answered 413")

    def test_what_the_browser_does_not_do_is_said(self):
        page = self.open()
        self.assertFalse(page.value('document.querySelector("#copy").hidden'))
        self.type(page, "Good morning.")
        self.assert_translated(page, "Guten Morgen!")
        page.value("""(() => { navigator.clipboard.writeText = () => Promise.reject(new Error("not here")); })()""")
        page.click("#copy")
        self.assertEqual(page.text("#say"), "Nothing was copied: not here")
        page.value("""(() => { const drop = new Event("drop");
                               drop.dataTransfer = { files: [{ text: () => Promise.reject(new Error("a folder")) }] };
                               document.querySelector("#source").dispatchEvent(drop); })()""")
        self.assertEqual(eventually(lambda: page.text("#say"), lambda found: "file" in found),
                         "The file cannot be read: a folder")
        # Over plain HTTP, from elsewhere, there is no clipboard.
        page.call("Page.addScriptToEvaluateOnNewDocument",
                  source='Object.defineProperty(navigator, "clipboard", { value: undefined })')
        page.go(f"http://127.0.0.1:{self.port}/")
        self.assertTrue(page.value('document.querySelector("#copy").hidden'))

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
