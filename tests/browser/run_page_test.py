"""What a reader can do with the page of training runs: run_page_test.py MAKE_PAGES."""

from browser import PageTest, eventually, main


class RunPageTest(PageTest):
    def shown(self, page, selector):
        return page.value(f"""[...document.querySelectorAll("{selector}")].filter(part => part.offsetHeight > 0).length""")

    def lines(self, page):
        return [text for text in page.value("""[...document.querySelectorAll(".sentences li dt:first-child")].filter(
            part => part.offsetHeight > 0).map(part => part.textContent)""")]

    def test_shows_the_runs(self):
        page = self.open("runs.html")
        self.assertEqual(page.texts("h1"), ["Runs first <run>, second"])
        self.assertEqual(page.texts("tbody td.name"), ["first <run>", "second"])
        self.assertEqual(self.shown(page, "figure"), 5)  # what nobody recorded is not drawn
        self.check_styles(page)

    def test_the_table_sorts(self):
        page = self.open("runs.html")
        number = page.texts("th").index("loss") + 1
        page.click(f"th:nth-child({number})")
        self.assertEqual(page.texts("tbody td.name"), ["second", "first <run>"])
        page.value(f'document.querySelector("th:nth-child({number})").focus()')
        page.press("Enter")
        self.assertEqual(page.texts("tbody td.name"), ["first <run>", "second"])

    def test_curves_over_steps_or_time_and_the_address_remembers(self):
        page = self.open("runs.html")
        axis = lambda: page.value("""[...document.querySelectorAll("figure .label")].filter(
            text => text.getBoundingClientRect().height > 0 && !text.hasAttribute("transform"))[0].textContent""")
        self.assertEqual(axis(), "step")
        page.click('input[value="time"]')
        self.assertEqual(axis(), "hours of training")
        self.assertEqual(self.shown(page, "figure"), 5)
        self.assertEqual(page.value("location.hash"), "#over=time")
        page.value('document.querySelector("input[value=time]").focus()')
        page.press("ArrowLeft")
        self.assertEqual(axis(), "step")
        page = self.open("runs.html", "#over=time&show=best")
        self.assertEqual(axis(), "hours of training")
        self.assertEqual(self.lines(page)[0], "line 9")
        self.open("runs.html", "#over=nothing&show=%3Cb%3E")

    def test_translations(self):
        page = self.open("runs.html")
        self.assertEqual(self.lines(page), ["line 1", "line 2", "line 3", "line 4"])
        self.assertEqual(page.texts(".sentences li:first-child del")[0], "Der Hund")
        self.assertEqual(page.texts(".sentences li:first-child ins")[0], "Die Katze")
        page.click('input[value="best"]')
        self.assertEqual(self.lines(page), ["line 9", "line 8", "line 7", "line 6"])
        page.value("""document.querySelector('.sentences[data-show="best"] li').focus()""")
        focused = lambda: page.value('document.activeElement.querySelector("dt").textContent')
        for key, line in (("ArrowDown", 8), ("ArrowDown", 7), ("ArrowUp", 8), ("End", 6), ("ArrowDown", 6), ("Home", 9)):
            page.press(key)
            self.assertEqual(focused(), f"line {line}", key)

    def test_keys_of_the_browser_stay_its_own(self):
        page = self.open("runs.html")
        taken = lambda key, held: page.value(f"""(item => {{
            item.focus();
            const event = new KeyboardEvent("keydown", {{key: "{key}", {held} bubbles: true, cancelable: true}});
            return [!item.dispatchEvent(event), document.activeElement === item];
        }})(document.querySelector(".sentences li:nth-child(2)"))""")
        for key in ("ArrowUp", "ArrowDown", "Home", "End"):
            self.assertEqual(taken(key, ""), [True, False], key)
            for held in ("altKey", "ctrlKey", "metaKey", "shiftKey"):
                self.assertEqual(taken(key, f"{held}: true,"), [False, True], (key, held))

    def test_a_page_that_is_watched_loads_itself_anew_and_keeps_its_place(self):
        page = self.open("followed.html", "#over=time")
        loaded = page.value("performance.timeOrigin")
        self.assertTrue(eventually(lambda: page.value("performance.timeOrigin") != loaded, bool))
        self.assertEqual(page.value("location.hash"), "#over=time")

    def test_phone_and_dark(self):
        page = self.open("runs.html", width=360, height=740, touch=True)
        self.assertLessEqual(page.value("document.documentElement.scrollWidth"), 360)
        page = self.open("runs.html", dark=True)
        colour = lambda: page.value("getComputedStyle(document.body).backgroundColor")
        self.assertEqual(colour(), "rgb(15, 20, 26)")
        page.dark(False)
        self.assertEqual(eventually(colour, "rgb(255, 255, 255)".__eq__), "rgb(255, 255, 255)")

    def test_nothing_keeps_people_from_using_it(self):
        for dark in (False, True):
            self.assertEqual(self.open("runs.html", dark=dark).obstacles(), [])


main()
