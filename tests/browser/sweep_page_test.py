"""What a reader can do with a sweep's report: sweep_page_test.py MAKE_PAGES."""

from browser import PageTest, eventually, main


class SweepPageTest(PageTest):
    def column(self, page, head):
        """The first table's cells under `head`, from the top."""
        return page.value(f"""(table => {{
            const column = [...table.tHead.rows[0].cells].findIndex(cell => cell.textContent === "{head}");
            return [...table.tBodies[0].rows].map(row => row.cells[column].textContent);
        }})(document.querySelector("table"))""")

    def click(self, page, head):
        number = page.texts("table.results th").index(head) + 1
        page.click(f"table.results th:nth-child({number})")

    def test_shows_the_report(self):
        page = self.open("sweep.html")
        self.assertEqual(page.texts("h1"), ["A <sweep> & its rows"])
        self.assertEqual(self.column(page, "row"), ["base", "A-h10", "A-h9", "B-waits"])
        self.check_styles(page)

    def test_a_click_on_a_head_sorts_and_a_second_one_turns_the_order(self):
        page = self.open("sweep.html")
        self.click(page, "PPL")  # as numbers, not as text: 110 comes last; a row without one stays at the end
        self.assertEqual(self.column(page, "PPL"), ["5.10 ± 0.14", "20.50", "110.0", ""])
        self.assertEqual(self.column(page, "row"), ["base", "A-h9", "A-h10", "B-waits"])  # rows move as a whole
        self.click(page, "PPL")
        self.assertEqual(self.column(page, "PPL"), ["110.0", "20.50", "5.10 ± 0.14", ""])
        self.click(page, "BLEU")
        self.assertEqual(self.column(page, "BLEU"), ["9.50", "25.50 ± 0.71", "100.0", ""])
        sorts = page.value("""[...document.querySelectorAll("th[aria-sort]")].map(
            head => [head.textContent, head.getAttribute("aria-sort")])""")
        self.assertEqual(sorts, [["BLEU", "ascending"]])
        self.click(page, "time")  # by what it means, not by its unit
        self.assertEqual(self.column(page, "time"), ["60 s", "92 s", "117 min", ""])
        for order in (["d_k 16", "heads 9", "heads 10", ""], ["heads 10", "heads 9", "d_k 16", ""]):
            self.click(page, "changed")
            self.assertEqual(self.column(page, "changed"), order)
        self.click(page, "row")  # numbers within names count as numbers
        self.assertEqual(self.column(page, "row"), ["A-h9", "A-h10", "B-waits", "base"])

    def test_heads_sort_by_keyboard(self):
        page = self.open("sweep.html")
        number = page.texts("table.results th").index("PPL") + 1
        page.value(f'document.querySelector("table.results th:nth-child({number})").focus()')
        page.press("Enter")
        self.assertEqual(self.column(page, "PPL"), ["5.10 ± 0.14", "20.50", "110.0", ""])
        page.press("Enter")
        self.assertEqual(self.column(page, "PPL")[0], "110.0")

    def test_every_table_sorts_by_itself(self):
        page = self.open("sweep.html")
        page.click("summary")
        rows = lambda: page.texts("table.runs tbody td:nth-child(4)")
        self.assertEqual(rows(), ["5.00", "5.20", "110.0", "20.50"])
        page.click("table.runs th:nth-child(4)")
        self.assertEqual(rows(), ["5.00", "5.20", "20.50", "110.0"])
        self.assertEqual(self.column(page, "row"), ["base", "A-h10", "A-h9", "B-waits"])

    def test_a_phone_scrolls_the_tables_alone(self):
        page = self.open("sweep.html", width=360, height=740, touch=True)
        self.assertLessEqual(page.value("document.documentElement.scrollWidth"), 360)
        self.assertGreater(page.value('document.querySelector(".scroll").scrollWidth'), 360)

    def test_colours_follow_the_reader(self):
        page = self.open("sweep.html", dark=True)
        colour = lambda: page.value("getComputedStyle(document.body).backgroundColor")
        self.assertEqual(colour(), "rgb(15, 20, 26)")
        page.dark(False)
        self.assertEqual(eventually(colour, "rgb(255, 255, 255)".__eq__), "rgb(255, 255, 255)")

    def test_nothing_keeps_people_from_using_it(self):
        for dark in (False, True):
            self.assertEqual(self.open("sweep.html", dark=dark).obstacles(), [])


main()
