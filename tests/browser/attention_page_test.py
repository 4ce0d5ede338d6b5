"""What a reader can do with a page of attention: attention_page_test.py MAKE_PAGES."""

import json
import pathlib
import re

from browser import PageTest, eventually, main

QUERY, KEY = '.word[data-side="q"][data-i="{}"]', '.word[data-side="k"][data-i="{}"]'
LIGHT, DARK = {"h0": (0x00, 0x72, 0xB2), "h1": (0xB8, 0x4C, 0x00)}, {"h0": (0x58, 0xA6, 0xFF)}


class AttentionPageTest(PageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.views = json.loads((pathlib.Path(cls.folder.name) / "attention.json").read_text())["attention"]

    def weights(self, kind, layer, heads, query=None, key=None):
        """Word -> weight, the mean over `heads`, of a query's keys or a key's queries."""
        view = self.views[kind]
        maps = [view["weights"][view["layers"].index(layer)][view["heads"].index(head)] for head in heads]
        if query is not None:
            return {word: sum(m[query][k] for m in maps) / len(maps) for k, word in enumerate(view["keys"])}
        return {word: sum(m[q][key] for m in maps) / len(maps) for q, word in enumerate(view["queries"])}

    def assert_says(self, page, intro, expected):
        """The page names the six greatest of the weights, from 0.01 on, in order."""
        said = page.text("#say")
        self.assertTrue(said.startswith(intro), said)
        named = [(words.rsplit(" ", 1)[0], float(words.rsplit(" ", 1)[1])) for words in page.texts("#say > span")]
        greatest = sorted(expected.items(), key=lambda item: -item[1])[:6]
        greatest = [(word, weight) for word, weight in greatest if weight >= 0.01]
        self.assertEqual([word for word, _ in named], [word for word, _ in greatest])
        for (word, shown), (_, weight) in zip(named, greatest):
            self.assertAlmostEqual(shown, weight, delta=0.0051, msg=word)
        self.assertGreater(len(named), 1)

    def address(self, page):
        return dict(part.split("=") for part in page.value("location.hash.slice(1)").split("&"))

    def choose(self, page, choices, label):
        number = page.texts(f"#{choices} .choice").index(label) + 1
        page.click(f"#{choices} .choice:nth-of-type({number}) input")

    def chosen(self, page, choices):
        return page.value(f"""[...document.querySelectorAll("#{choices} input:checked")].map(
            input => input.parentElement.textContent)""")

    def line_colours(self, page):
        """What lies on the lines' canvas two pixels before its right edge: (row, [red, green, blue, alpha])."""
        return page.value("""(canvas => {
            const scale = canvas.height / canvas.clientHeight, x = Math.round((canvas.clientWidth - 4) * scale);
            const data = canvas.getContext("2d").getImageData(x, 0, 1, canvas.height).data;
            return Array.from({length: canvas.height}, (_, y) => [y / scale, [...data.slice(4 * y, 4 * y + 4)]]);
        })(document.querySelector("canvas.lines"))""")

    # --- what is there in the beginning

    def test_begins_with_what_the_output_took_from_the_source_and_its_first_word(self):
        page = self.open("attention.html")
        self.assertEqual(self.chosen(page, "views"), ["Cross"])
        self.assertEqual(self.chosen(page, "layers"), ["5"])
        self.assert_says(page, "<s> attends to (head 4): ", self.weights("cross", 5, [4], query=0))
        self.assertEqual(self.address(page), {"view": "cross", "layer": "5", "pick": "q0"})
        self.assertEqual(page.text("#shown"),
                         "Cross-attention, layer 5 of 6: how much each word of the output (on the left) attends to each word "
                         "of the source (on the right); the weights of a head sum to 1.")
        page.press("Escape")
        self.assertIn("Hover over", page.text("#say"))

    def test_hints_and_scale_are_of_what_is_shown(self):
        for show, hint in (("lines", "A line's colour"), ("map", "Point at a cell"), ("overview", "Click or tap a picture")):
            page = self.open("attention.html", f"#view=encoder&show={show}")
            seen = page.value("""[...document.querySelectorAll("[data-show]")].filter(
                hint => hint.getClientRects().length).map(hint => hint.textContent)""")
            with self.subTest(show=show):
                self.assertEqual(len(seen), 2, seen)
                self.assertIn("weight: 0", seen[0])
                self.assertTrue(seen[1].startswith(hint), seen)
                self.assertEqual("(on the left)" in page.text("#shown"), show == "lines")

    def test_a_wide_window_is_used_and_long_sentences_are_set_closer(self):
        page = self.open("attention.html", "#view=encoder", width=1600, height=900)
        lines = page.box("canvas.lines")
        right = page.box(".column.right")
        self.assertGreater(lines["width"], 700)
        self.assertGreater(right["x"], 1000)
        page = self.open("attention.html", "#view=encoder&show=map", width=1600, height=900)
        self.assertGreater(page.box(".map canvas")["width"], 7 * 50)
        page = self.open("long.html", "#view=encoder", width=1280, height=900)
        words = page.box(".column.left")
        self.assertEqual(len(page.texts(".column.left .word")), 50)
        self.assertLess(words["height"], 50 * 20)
        overlap = page.value("""(words => words.some((word, i) => i && word.getBoundingClientRect().top + 1 <
            words[i - 1].getBoundingClientRect().bottom))([...document.querySelectorAll(".column.left .word")])""")
        self.assertFalse(overlap)
        page.hover(QUERY.format(49))
        self.assertTrue(page.text("#say").startswith("word-49 attends to"), page.text("#say"))
        # What is said stays in sight, however far down the word is.
        self.assertGreaterEqual(page.value('document.getElementById("say").getBoundingClientRect().top'), 0)

    def test_begins_with_the_layer_before_its_last_and_all_heads(self):
        page = self.open("attention.html", "#view=encoder")
        self.assertEqual(page.texts("#views .choice"), ["Encoder", "Decoder", "Cross"])
        self.assertEqual(page.texts("#layers .choice"), ["1", "2", "3", "4", "5", "6"])
        self.assertEqual(page.texts("#heads .choice"), ["1", "2", "3", "9"])
        self.assertEqual(page.texts("#heads button"), ["all", "none"])
        self.assertEqual(self.chosen(page, "views"), ["Encoder"])
        self.assertEqual(self.chosen(page, "layers"), ["5"])
        self.assertEqual(self.chosen(page, "heads"), ["1", "2", "3", "9"])
        self.assertEqual(self.chosen(page, "shows"), ["Lines"])
        self.assertEqual(page.texts(".column.left .word"), self.views["encoder"]["queries"])
        self.assertEqual(page.texts(".column.right .word"), self.views["encoder"]["keys"])
        self.assertEqual(page.text("#say"), "Encoder self-attention, layer 5 of 6, mean of 4 heads. "
                                            "Hover over, tap or walk to a word.")
        self.assertEqual(page.texts("dd"), ["The dog barks at </script><b> Donaudampfschifffahrtsgesellschaftskapitän",
                                            "القطة 日本語 👩‍👩‍👧 Ende", 'models/<en> & "de"'])
        self.check_styles(page)

    def test_a_word_that_the_page_was_made_for_is_picked(self):
        page = self.open("picked.html")
        self.assert_says(page, "barks attends to (mean of 4 heads): ",
                         self.weights("encoder", 5, [1, 2, 3, 9], query=2))
        self.assertEqual(self.chosen(page, "views"), ["Encoder"])
        # A link that says something else has the last word.
        self.assertIn("Hover over", self.open("picked.html", "#view=encoder").text("#say"))

    def test_what_leaves_no_choice_is_not_offered(self):
        page = self.open("small.html")
        hidden = page.value('[...document.querySelectorAll("fieldset")].map(set => set.hidden)')
        self.assertEqual(hidden, [True, True, True, False])
        self.assertIn("layer 3 of 6:", page.text("#shown"))
        self.assertIn("a attends to (head 7):", page.text("#say"))
        self.assertIn("each word piece of the output", page.text("#shown"))

    # --- by mouse

    def test_hovering_over_a_word_shows_what_it_attends_to_and_what_attends_to_it(self):
        page = self.open("attention.html", "#view=encoder")
        heads = [1, 2, 3, 9]
        page.hover(QUERY.format(1))
        self.assert_says(page, "dog attends to (mean of 4 heads): ", self.weights("encoder", 5, heads, query=1))
        self.assertEqual(page.texts(".word.on"), ["dog"])
        self.assertEqual(page.text('.word[aria-pressed="true"]'), "dog")
        # A bar for every head beside every key, and full ones beside the word itself.
        view = self.views["encoder"]
        bars = page.value("""[...document.querySelectorAll(".column.right li")].map(
            item => [...item.querySelectorAll("i")].map(bar => Number(bar.style.opacity)))""")
        for k in range(len(view["keys"])):
            for h in range(len(heads)):
                self.assertAlmostEqual(bars[k][h], view["weights"][4][h][1][k], delta=1e-4)
        own = page.value("""[...document.querySelectorAll(".column.left li")].map(
            item => [...item.querySelectorAll("i")].map(bar => Number(bar.style.opacity)))""")
        self.assertEqual(own, [[float(q == 1)] * 4 for q in range(7)])
        # Faint is what none of the heads gives anything worth seeing.
        most = [max(view["weights"][4][h][1][k] for h in range(4)) for k in range(7)]
        faint = [word for word, weight in zip(view["keys"], most) if weight < 0.05]
        self.assertTrue(0 < len(faint) < 7, faint)
        self.assertEqual(page.texts(".column.right .word.faint"), faint)

        page.hover(KEY.format(3))
        self.assert_says(page, "at is attended to by (mean of 4 heads): ", self.weights("encoder", 5, heads, key=3))
        page.move(5, 5)
        self.assertIn("Hover over", page.text("#say"))
        self.assertEqual(page.texts(".word.on, .word.faint"), [])

    def test_a_click_keeps_a_word_and_a_second_one_lets_it_go(self):
        page = self.open("attention.html", "#view=encoder")
        page.click(QUERY.format(2))
        self.assertEqual(self.address(page)["pick"], "q2")
        page.hover(KEY.format(0))
        self.assertTrue(page.text("#say").startswith("The is attended to"))
        page.move(5, 5)
        self.assertTrue(page.text("#say").startswith("barks attends to"))
        page.click(KEY.format(0))
        self.assertEqual(self.address(page)["pick"], "k0")
        page.click(KEY.format(0))
        self.assertNotIn("pick", self.address(page))
        page.click(QUERY.format(2))
        page.press("Escape")
        self.assertNotIn("pick", self.address(page))

    def test_lines_go_from_word_to_word_as_opaque_as_their_weights(self):
        page = self.open("attention.html", "#view=encoder&layer=5&heads=2&pick=q1")
        row = page.value('parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row"))')
        weights = self.views["encoder"]["weights"][4][1][1]
        strong = 0
        for k, weight in enumerate(weights):
            near = [colour for y, colour in self.line_colours(page) if abs(y + 0.5 - (k + 0.5) * row) <= 3]
            alpha = max(colour[3] for colour in near) / 255
            if weight < 0.019:
                self.assertEqual(alpha, 0)
            elif weight > 0.021:
                self.assertLess(alpha, weight + 0.02)
                self.assertGreater(alpha, 0.7 * weight - 0.02)
            if weight > 0.3:
                strong += 1
                colour = max(near, key=lambda colour: colour[3])
                for part, expected in zip(colour, LIGHT["h1"]):
                    self.assertAlmostEqual(part, expected, delta=4)
        self.assertGreater(strong, 0)

    def test_heads_of_one_colour_are_told_apart_by_dashes(self):
        gaps = {}
        for head in (1, 9):
            page = self.open("attention.html", f"#view=encoder&layer=5&heads={head}&pick=q1")
            # Along the strongest line: columns in which nothing is drawn near it.
            given = self.weights("encoder", 5, [head], query=1)
            strongest = max(range(7), key=list(given.values()).__getitem__)
            gaps[head] = page.value(f"""(canvas => {{
                const row = canvas.clientHeight / 7, wide = canvas.width, brush = canvas.getContext("2d");
                let gaps = 0;
                for (let x = 10; x < wide - 10; ++x) {{
                  const y = (1.5 + ({strongest} - 1) * (x - 2) / (wide - 4)) * row;
                  const near = brush.getImageData(x, Math.round(y) - 2, 1, 4).data;
                  gaps += near.every(part => part === 0);
                }}
                return gaps / (wide - 20);
            }})(document.querySelector("canvas.lines"))""")
        self.assertEqual(gaps[1], 0)
        self.assertGreater(gaps[9], 0.1)

    # --- what can be chosen

    def test_layers_heads_and_views_can_be_chosen(self):
        page = self.open("attention.html", "#view=encoder")
        self.choose(page, "layers", "2")
        page.hover(QUERY.format(1))
        self.assert_says(page, "dog attends to (mean of 4 heads): ", self.weights("encoder", 2, [1, 2, 3, 9], query=1))
        self.choose(page, "heads", "3")
        self.choose(page, "heads", "1")
        self.assertEqual(self.chosen(page, "heads"), ["2", "9"])
        self.assertEqual(self.address(page)["heads"], "2,9")
        page.hover(KEY.format(2))
        self.assert_says(page, "barks is attended to by (mean of 2 heads): ", self.weights("encoder", 2, [2, 9], key=2))
        self.choose(page, "heads", "2")
        page.hover(QUERY.format(0))
        self.assert_says(page, "The attends to (head 9): ", self.weights("encoder", 2, [9], query=0))
        page.click("#heads button:nth-of-type(2)")
        self.assertEqual(page.text("#say"), "No head is chosen.")
        self.assertEqual(self.chosen(page, "heads"), [])
        page.click("#heads button:nth-of-type(1)")
        self.assertEqual(self.chosen(page, "heads"), ["1", "2", "3", "9"])

        page.click(QUERY.format(1))
        self.choose(page, "views", "Cross")
        self.assertEqual(self.chosen(page, "layers"), ["2"])  # a layer that both have stays
        self.assertEqual(self.address(page)["layer"], "2")
        self.assertNotIn("pick", self.address(page))
        self.assertEqual(page.texts(".column.left .word"), self.views["cross"]["queries"])
        self.assertEqual(page.texts(".column.right .word"), self.views["cross"]["keys"])

    def test_a_view_with_other_layers_and_heads_shows_its_own(self):
        page = self.open("attention.html", "#view=encoder")
        self.choose(page, "layers", "1")
        self.choose(page, "views", "Decoder")
        self.assertEqual(self.address(page)["layer"], "5")
        page.hover(QUERY.format(2))
        self.assert_says(page, "日本語 attends to (mean of 2 heads): ", self.weights("decoder", 5, [1, 2], query=2))

    def test_a_heat_map_has_a_cell_for_every_weight(self):
        page = self.open("attention.html", "#view=encoder&layer=4&heads=1,3")
        self.choose(page, "shows", "Heat map")
        self.assertEqual(self.address(page)["show"], "map")
        view = self.views["encoder"]
        self.assertEqual(page.texts(".map .across span"), view["keys"])
        self.assertEqual(page.texts(".map .column .word"), view["queries"])
        cells = page.value("""(canvas => [canvas.width, canvas.height,
            [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data]])(
            document.querySelector(".map canvas"))""")
        self.assertEqual(cells[:2], [7, 7])
        for q in range(7):
            for k, weight in enumerate(self.weights("encoder", 4, [1, 3], query=q).values()):
                self.assertAlmostEqual(cells[2][4 * (7 * q + k) + 3] / 255, weight, delta=0.0025)
        # The cell under the pointer, not its neighbour: a little within two of its corners.
        box = page.box(".map canvas")
        cell, row = box["width"] / 7, box["height"] / 7
        expected = self.weights("encoder", 4, [1, 3], query=2)["at"]
        for within in (0.1, 0.9):
            page.move(box["x"] + (3 + within) * cell, box["y"] + (2 + within) * row)
            said = re.fullmatch(r"barks → at (\d\.\d{3})", page.text("#say"))
            self.assertTrue(said, page.text("#say"))
            self.assertAlmostEqual(float(said[1]), expected, delta=0.00051)
        # Heads stand above their columns, words beside their rows.
        head, word = page.box(".map .across span:nth-child(4)"), page.box(".map .column li:nth-child(3)")
        self.assertAlmostEqual(head["x"] + head["width"] / 2, box["x"] + 3.5 * cell, delta=1)
        self.assertAlmostEqual(word["y"] + word["height"] / 2, box["y"] + 2.5 * row, delta=1)

    def test_the_overview_leads_to_a_head(self):
        page = self.open("attention.html", "#view=encoder")
        self.choose(page, "shows", "All layers and heads")
        names = page.texts(".thumb")
        self.assertEqual(names, [f"layer {layer}, head {head}" for layer in range(1, 7) for head in (1, 2, 3, 9)])
        shade = page.value("""[...document.querySelectorAll(".thumb canvas")[names.indexOf("layer 3, head 9")]
            .getContext("2d").getImageData(0, 0, 7, 7).data].filter((_, i) => i % 4 === 3)""".replace(
            "names", json.dumps(names)))
        expected = [weight for row in self.views["encoder"]["weights"][2][3] for weight in row]
        for alpha, weight in zip(shade, expected):
            self.assertAlmostEqual(alpha / 255, weight, delta=0.0025)
        page.click(f".thumb:nth-child({names.index('layer 3, head 9') + 1})")
        self.assertEqual(self.address(page), {"view": "encoder", "layer": "3", "heads": "9"})
        self.assertEqual(self.chosen(page, "layers"), ["3"])
        self.assertEqual(self.chosen(page, "heads"), ["9"])
        self.assertEqual(self.chosen(page, "shows"), ["Lines"])
        self.assertIn("layer 3 of 6, head 9.", page.text("#say"))

    # --- by keyboard

    def test_words_are_walked_to_by_keyboard(self):
        page = self.open("attention.html", "#view=encoder")
        focused = lambda: page.value("[document.activeElement.dataset.side, Number(document.activeElement.dataset.i)]")
        stops = []
        for _ in range(40):
            page.press("Tab")
            if page.value('document.activeElement.matches(".word")'):
                stops.append(focused())
            elif stops:
                break
        self.assertEqual(stops, [["q", 0], ["k", 0]])  # one stop a column
        page.value(f"document.querySelector('{QUERY.format(0)}').focus()")
        page.value("""window.addEventListener("keydown", event => {
            (window.prevented ??= []).push([event.key, event.defaultPrevented]); })""")
        page.press("ArrowDown", "ArrowDown")
        self.assertEqual(page.value("prevented"), [["ArrowDown", True]] * 2)  # or the page would scroll as well
        self.assertEqual(focused(), ["q", 2])
        self.assertTrue(page.text("#say").startswith("barks attends to"))
        page.press("ArrowRight")
        self.assertEqual(focused(), ["k", 2])
        self.assertTrue(page.text("#say").startswith("barks is attended to by"))
        page.press("End", "ArrowDown")
        self.assertEqual(focused(), ["k", 6])
        page.press("Home", "ArrowUp", "ArrowLeft", "ArrowLeft")
        self.assertEqual(focused(), ["q", 0])
        page.press("ArrowDown")
        stops = page.value("""[...document.querySelectorAll('.word[data-side="q"]')].map(word => word.tabIndex)""")
        self.assertEqual(stops, [-1, 0, -1, -1, -1, -1, -1])  # Tab comes back to where one was
        page.press("Enter")
        self.assertEqual(self.address(page)["pick"], "q1")
        page.press("Escape")
        self.assertNotIn("pick", self.address(page))

    def test_keys_of_the_browser_stay_its_own(self):
        def taken(page, key, held="", side="q"):
            """Whether the page keeps the key from the browser, and whether the focus moves."""
            return page.value(f"""(word => {{
                word.focus();
                const event = new KeyboardEvent("keydown", {{key: "{key}", {held} bubbles: true, cancelable: true}});
                return [!word.dispatchEvent(event), document.activeElement !== word];
            }})(document.querySelector('.word[data-side="{side}"][data-i="1"]'))""")

        page = self.open("attention.html", "#view=encoder&pick=q3")
        for key in ("ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End"):
            side = "k" if key == "ArrowLeft" else "q"
            self.assertEqual(taken(page, key, side=side), [True, True], key)
            for held in ("altKey", "ctrlKey", "metaKey", "shiftKey"):
                self.assertEqual(taken(page, key, f"{held}: true,", side), [False, False], (key, held))
        self.assertEqual(taken(page, "ArrowLeft"), [False, False])  # there is nothing further left
        self.assertEqual(taken(page, "ArrowRight", side="k"), [False, False])
        page = self.open("attention.html", "#view=encoder&show=map")  # words stand in one column: the rest scrolls
        for key in ("ArrowLeft", "ArrowRight"):
            self.assertEqual(taken(page, key), [False, False], key)

    def test_the_other_column_may_be_shorter(self):
        page = self.open("attention.html", "#view=cross")
        page.value(f"document.querySelector('{KEY.format(0)}').focus()")
        page.press("End")
        self.assertEqual(page.value("document.activeElement.dataset.i"), "6")
        page.press("ArrowLeft")
        self.assertEqual(page.value("document.activeElement.textContent"), "Ende")

    # --- by touch, in the dark, on a phone

    def test_a_tap_keeps_a_word(self):
        page = self.open("attention.html", "#view=encoder", width=360, height=740, touch=True)
        page.touch(QUERY.format(1))  # as a finger does that is about to scroll
        self.assertIn("Hover over", page.text("#say"))
        page.let_go()
        self.assertTrue(page.text("#say").startswith("dog attends to"))
        self.assertEqual(self.address(page)["pick"], "q1")
        self.assertLessEqual(page.value("document.documentElement.scrollWidth"), 360)  # long words in it, too
        page.touch(QUERY.format(1))
        page.let_go()
        self.assertNotIn("pick", self.address(page))

    def test_a_phone_shows_all_of_it_without_scrolling_sideways(self):
        for show in ("lines", "map", "overview"):
            for view in ("encoder", "cross"):
                page = self.open("attention.html", f"#view={view}&show={show}", width=360, height=740, touch=True)
                with self.subTest(show=show, view=view):
                    self.assertLessEqual(page.value("document.documentElement.scrollWidth"), 360)

    def test_lines_are_drawn_anew_where_the_room_changes(self):
        page = self.open("attention.html", "#view=encoder")
        widths = lambda: page.value("""(canvas => [canvas.clientWidth, canvas.width])(
            document.querySelector("canvas.lines"))""")
        wide = widths()
        self.assertEqual(wide[0], wide[1])
        page.call("Emulation.setDeviceMetricsOverride", width=420, height=740, deviceScaleFactor=1, mobile=False)
        narrow = eventually(widths, lambda found: found[0] == found[1] < wide[0])
        self.assertEqual(narrow[0], narrow[1])
        self.assertLess(narrow[0], wide[0])

    def test_colours_follow_the_reader(self):
        page = self.open("attention.html", "#view=encoder&layer=5&heads=1&pick=q1")

        def strongest():
            return max((colour for _, colour in self.line_colours(page)), key=lambda colour: colour[3])[:3]

        def near(expected):
            return lambda colour: all(abs(part - other) <= 4 for part, other in zip(colour, expected))

        self.assertTrue(near(LIGHT["h0"])(strongest()), strongest())
        self.assertEqual(page.value("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)")
        page.dark(True)
        found = eventually(strongest, near(DARK["h0"]))
        self.assertTrue(near(DARK["h0"])(found), found)
        self.assertEqual(page.value("getComputedStyle(document.body).backgroundColor"), "rgb(15, 20, 26)")
        self.assertTrue(page.text("#say").startswith("dog attends to"))

    # --- addresses

    def test_an_address_brings_back_what_it_was_taken_from(self):
        address = "#view=cross&layer=3&show=map&pick=q1"
        page = self.open("attention.html", address)
        self.assertEqual(page.value("location.hash"), address)
        self.assertEqual(self.chosen(page, "views"), ["Cross"])
        self.assertEqual(self.chosen(page, "shows"), ["Heat map"])
        self.assert_says(page, "القطة attends to (head 4): ", self.weights("cross", 3, [4], query=1))
        page.value('void (location.hash = "#view=encoder&layer=1&heads=2,3&pick=k6")')
        page.settle()
        self.assertEqual(self.chosen(page, "heads"), ["2", "3"])
        self.assert_says(page, "</s> is attended to by (mean of 2 heads): ",
                         self.weights("encoder", 1, [2, 3], key=6))

    def test_what_an_address_says_wrongly_counts_for_nothing(self):
        for address in ("#view=none&layer=7&heads=5,x&show=all&pick=q7", "#pick=z1&layer=&heads=", "#%", "#view"):
            page = self.open("attention.html", address)
            with self.subTest(address):
                self.assertEqual(self.address(page), {"view": "cross", "layer": "5"})
                self.assertIn("head 4. Hover", page.text("#say"))

    # --- the tree

    def test_a_tree_stands_beside_the_source_s_words(self):
        for view, side, column in (("encoder", "left", "left"), ("cross", "right", "right")):
            page = self.open("attention.html", f"#view={view}")
            with self.subTest(view):
                self.assertEqual(page.texts(f".tree.{side} text"), ["S", "NP", "VP", "<PP>"])
                places = page.value("""(tree => [...tree.querySelectorAll("text")].map(
                    text => tree.getBoundingClientRect().y + Number(text.getAttribute("y")) + 3))(
                    document.querySelector(".tree"))""")
                words = page.value(f"""[...document.querySelectorAll(".column.{column} li")].map(
                    item => (box => box.y + box.height / 2)(item.getBoundingClientRect()))""")
                self.assertAlmostEqual(places[1], (words[0] + words[1]) / 2, delta=1)
                self.assertAlmostEqual(places[3], words[4], delta=1)
                tree, word = page.box(".tree"), page.box(f".column.{column}")
                if side == "left":
                    self.assertLessEqual(tree["x"] + tree["width"], word["x"] + 1)
                else:
                    self.assertGreaterEqual(tree["x"], word["x"] + word["width"] - 1)
        page = self.open("attention.html", "#view=decoder")
        self.assertEqual(page.texts(".tree"), [])

    def test_nothing_keeps_people_from_using_it(self):
        for dark in (False, True):
            self.assertEqual(self.open("attention.html", dark=dark).obstacles(), [])


main()
