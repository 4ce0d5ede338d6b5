"""A headless Chromium, driven through the pipe of its DevTools protocol. Standard library only.

    class SomePageTest(PageTest):
        def test_something(self):
            page = self.open("page.html")
            page.click(".word")
            self.assertEqual(page.text("h1"), "A title")

    main()

Without a browser the test is skipped: the process ends with status 77.
"""

import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import axe_core_python

PROGRAMS = ("chromium-headless-shell", "chrome-headless-shell", "chromium", "google-chrome", "chromium-browser")
PATIENCE = 60  # seconds

KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "End": 35, "Home": 36,
        "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def find_browser():
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="transformer-browser-", ignore_cleanup_errors=True)
        requests, self.send_end = os.pipe()
        self.receive_end, answers = os.pipe()
        # The browser reads descriptor 3 and writes descriptor 4. No sandbox, because root gets none and containers
        # often allow none: it shows our own pages alone.
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec "$0" "$@" 3<&{requests} 4>&{answers}', find_browser(), "--headless", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}"],
            pass_fds=(requests, answers), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE)
        os.close(requests)
        os.close(answers)
        os.set_blocking(self.process.stderr.fileno(), False)
        self.number, self.buffer, self.pages = 0, b"", {}

    def close(self):
        os.close(self.send_end)  # which ends the browser
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.receive_end)
        self.process.stderr.close()
        self.folder.cleanup()

    def message(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.receive_end], [], [], max(0, deadline - time.monotonic()))
            more = os.read(self.receive_end, 1 << 16) if ready else b""
            if not more:
                said = (self.process.stderr.read() or b"").decode(errors="replace")
                raise RuntimeError(f"the browser {'ended' if ready else 'does not answer'}:\n{said}")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if session:
            request["sessionId"] = session
        os.write(self.send_end, json.dumps(request).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while True:
            message = self.message(deadline)
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            if message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].heard(message["method"], message["params"])

    def open(self, file, address="", width=1200, height=900, touch=False, dark=False):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self.pages[session] = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.call("Emulation.setFocusEmulationEnabled", enabled=True)
        page.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        page.call("Emulation.setTouchEmulationEnabled", enabled=touch)
        page.dark(dark)
        page.go(pathlib.Path(file).resolve().as_uri() + address)
        return page


class Page:
    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target
        self.errors, self.requests, self.loaded = [], [], False

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def heard(self, method, parameters):
        if method == "Runtime.exceptionThrown":
            details = parameters["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            self.errors.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def go(self, url):
        self.loaded = False
        self.call("Page.navigate", url=url)
        deadline = time.monotonic() + PATIENCE
        while not self.loaded:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{url} does not load")
            self.value("0")

    def value(self, expression):
        """What the expression is worth, as JSON can say it; a promise's once it is kept."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def settle(self):
        """Waits until what was done is drawn, and events that follow from it have come."""
        self.value("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")

    def text(self, selector):
        return self.value(f"document.querySelector({json.dumps(selector)}).textContent")

    def texts(self, selector):
        return self.value(f"[...document.querySelectorAll({json.dumps(selector)})].map(found => found.textContent)")

    def box(self, selector):
        box = self.value(f"""(found => {{
            found.scrollIntoView({{block: "nearest", inline: "nearest"}});
            const box = found.getBoundingClientRect();
            return {{x: box.x, y: box.y, width: box.width, height: box.height}};
        }})(document.querySelector({json.dumps(selector)}))""")
        assert box["width"] > 0 and box["height"] > 0, f"{selector} is not to be seen"
        return box

    def middle(self, selector):
        box = self.box(selector)
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def move(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def hover(self, selector):
        self.move(*self.middle(selector))

    def click(self, selector):
        x, y = self.middle(selector)
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def touch(self, selector):
        x, y = self.middle(selector)
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.settle()

    def let_go(self):
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        self.settle()

    def press(self, *keys):
        for key in keys:
            parameters = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
            text = {"text": "\r"} if key == "Enter" else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", **parameters, **text)
            self.call("Input.dispatchKeyEvent", type="keyUp", **parameters)
            self.settle()

    def obstacles(self):
        """What axe-core finds that keeps people from using the page: [(rule, where, why)]."""
        self.value((pathlib.Path(axe_core_python.__file__).parent / "axe.min.js").read_text() + "; 0")
        return [tuple(found) for found in self.value("""axe.run().then(found => found.violations.flatMap(rule =>
            rule.nodes.map(node => [rule.id, node.target.join(" "), node.failureSummary])))""")]

    def dark(self, on):
        value = "dark" if on else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])
        self.settle()

    def close(self):
        del self.browser.pages[self.session]
        self.browser.call("Target.closeTarget", targetId=self.target)


def eventually(value, wanted):
    """`value()` when `wanted` holds of it, or else the last one: for what follows some frames after what was done."""
    deadline = time.monotonic() + 10
    while True:
        found = value()
        if wanted(found) or time.monotonic() > deadline:
            return found
        time.sleep(0.02)


class PageTest(unittest.TestCase):
    """Opens pages that MAKE_PAGES wrote; every one that a test opens has to load nothing and to raise no error."""

    make_pages = None  # the program

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        subprocess.run([cls.make_pages, cls.folder.name], check=True)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)

    def open(self, name, address="", **settings):
        page = self.browser.open(pathlib.Path(self.folder.name) / name, address, **settings)
        self.addCleanup(self.check, page)
        return page

    def check(self, page):
        page.settle()
        self.assertEqual(page.errors, [])
        self.assertEqual({request.split("#")[0].rsplit("/", 1)[0] for request in page.requests},
                         {pathlib.Path(self.folder.name).resolve().as_uri()})
        self.assertEqual(len({request.split("#")[0] for request in page.requests}), 1)
        page.close()

    def check_styles(self, page):
        """Every rule and declaration of the page's style is one that the browser knows: it drops others silently."""
        dropped = page.value(r"""(() => {
            const text = document.querySelector("style").textContent.replace(/\/\*[^]*?\*\//g, "");
            const dropped = [];
            for (const [, selector, body] of text.matchAll(/([^{};]+)\{([^{}]*)\}/g)) {
              const isRule = !selector.includes("@");
              if (isRule && !CSS.supports(`selector(${selector.split(",")[0].trim()})`)) dropped.push(selector);
              for (const declaration of isRule ? body.split(";").map(text => text.trim()).filter(Boolean) : []) {
                const [, name, value] = /^([\w-]+)\s*:\s*([^]+)$/.exec(declaration) ?? [, declaration, ""];
                if (!CSS.supports(name, value)) dropped.push(`${selector.trim()} { ${declaration} }`);
              }
            }
            return dropped;
        })()""")
        self.assertEqual(dropped, [])
        braces = page.value("""[...document.querySelector("style").textContent].reduce(
            (sum, c) => sum + (c === "{") - (c === "}"), 0)""")
        self.assertEqual(braces, 0)


def main():
    PageTest.make_pages = sys.argv.pop(1)
    if not find_browser():
        print(f"skipped: no browser; none of {', '.join(PROGRAMS)} is on PATH (Debian: chromium-headless-shell)")
        sys.exit(77)
    unittest.main(verbosity=2)
