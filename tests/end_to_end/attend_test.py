"""What people who run `attend` rely on: attend_test.py ATTEND TRANSLATE MAKE_MODEL. Standard library only.

What SVG and HTML hold is checked in tests/report; here, that the programs write them, from what, and what they refuse.
"""

import gzip
import json
import os
import re
import subprocess
import sys
import unicodedata
import unittest
import xml.etree.ElementTree as xml

from programs import ENVIRONMENT, ProgramTest

ATTEND, TRANSLATE, MAKE_MODEL = sys.argv[1:4]
SENTENCE = "bado kilumé nora si."


def word_numbers(tokens):
    """Of every token of made-up text, the number of its word; begin and end are words of their own."""
    numbers, number = [], -1
    for i, token in enumerate(tokens):
        if i == 0 or token.startswith("▁") or token in ("<s>", "</s>"):
            number += 1
        numbers.append(number)
    return numbers


def joined(weights, queries, keys):
    """[T][S] of tokens -> of words: the sum over a word's keys, the mean over its queries."""
    rows = [[0.0] * (keys[-1] + 1) for _ in range(queries[-1] + 1)]
    for t, row in enumerate(weights):
        for s, weight in enumerate(row):
            rows[queries[t]][keys[s]] += weight / queries.count(queries[t])
    return rows


class AttendTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.model = cls.root / "model"
        subprocess.run([MAKE_MODEL, cls.model], check=True, env=ENVIRONMENT)

    def attend(self, *arguments, text="", model=None, status=0, program=ATTEND):
        data = text if isinstance(text, bytes) else text.encode()
        done = subprocess.run([program, "--model", model or self.model, *map(os.fsencode, map(str, arguments))],
                              input=data, capture_output=True, env=ENVIRONMENT, timeout=120)
        self.assertEqual(done.returncode, status, done.stderr.decode())
        if status:
            self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)
            return done.stderr.decode()
        self.assertEqual(done.stderr, b"")
        return done.stdout.decode()

    def assert_close(self, first, second, tolerance):
        self.assertEqual(len(first), len(second))
        for a, b in zip(first, second):
            if isinstance(a, list):
                self.assert_close(a, b, tolerance)
            else:
                self.assertAlmostEqual(a, b, delta=tolerance)

    def test_json_of_every_layer_and_head(self):
        output = json.loads(self.attend(SENTENCE))
        translation = self.attend(program=TRANSLATE, text=SENTENCE + "\n").rstrip("\n")
        self.assertEqual([output["format"], output["unit"]], [1, "token"])
        self.assertEqual([output["source"], output["target"]], [SENTENCE, translation])
        self.assertEqual(list(output["attention"]), ["encoder", "decoder", "cross"])
        for kind, view in output["attention"].items():
            layers, heads, queries, keys = view["shape"]
            self.assertEqual([view["layers"], view["heads"]], [[1, 2], [1, 2]])
            self.assertEqual([layers, heads, queries, keys], [2, 2, len(view["queries"]), len(view["keys"])])
            self.assertEqual(view["queries"][-1], "</s>")
            self.assertEqual([len(row) for layer in view["weights"] for head in layer for row in head],
                             [keys] * (layers * heads * queries))
            for layer in view["weights"]:
                for head in layer:
                    for t, row in enumerate(head):
                        self.assertAlmostEqual(sum(row), 1, delta=1e-4)
                        if kind == "decoder":
                            self.assertEqual(row[t + 1:], [0] * (keys - t - 1))
        source = "".join(output["attention"]["encoder"]["keys"][:-1]).replace("▁", " ").strip()
        self.assertRegex(source, "^bado kilum")
        self.assertEqual(output["attention"]["decoder"]["keys"][0], "<s>")
        self.assertEqual(output["attention"]["decoder"]["keys"][1:], output["attention"]["decoder"]["queries"][:-1])
        # An encoder does not know what is written.
        given = json.loads(self.attend(SENTENCE, "ki nosi."))
        self.assertEqual(given["target"], "ki nosi.")
        self.assertEqual(given["attention"]["encoder"], output["attention"]["encoder"])
        self.assertEqual("".join(given["attention"]["cross"]["queries"]), "▁ki▁nosi.</s>")

    def test_words_are_sums_over_keys_and_means_over_queries(self):
        text = "bado kilu nora si. tuvoer"
        pieces = json.loads(self.attend(text, "ki nosi lulu."))["attention"]
        words = json.loads(self.attend("--words", text, "ki nosi lulu."))
        self.assertEqual(words["unit"], "word")
        for kind, view in words["attention"].items():
            queries, keys = word_numbers(pieces[kind]["queries"]), word_numbers(pieces[kind]["keys"])
            self.assertLess(len(view["keys"]), len(keys))
            for layer in range(2):
                for head in range(2):
                    self.assert_close(view["weights"][layer][head],
                                      joined(pieces[kind]["weights"][layer][head], queries, keys), 1e-5)
        self.assertEqual(words["attention"]["cross"]["keys"], text.split() + ["</s>"])
        self.assertEqual(words["attention"]["cross"]["queries"], ["ki", "nosi", "lulu.", "</s>"])
        self.assertEqual(words["attention"]["decoder"]["keys"], ["<s>", "ki", "nosi", "lulu."])

    def test_parts_are_those_of_the_whole(self):
        whole = json.loads(self.attend(SENTENCE, "ki nosi."))["attention"]
        part = json.loads(self.attend("--kind", "cross,encoder", "--layer", 2, "--head", "2", SENTENCE, "ki nosi."))
        self.assertEqual(list(part["attention"]), ["encoder", "cross"])
        for kind, view in part["attention"].items():
            self.assertEqual([view["layers"], view["heads"]], [[2], [2]])
            self.assertEqual(view["weights"], [[whole[kind]["weights"][1][1]]])

    def test_where_sentences_come_from(self):
        one = self.attend(SENTENCE)
        self.assertEqual(self.attend(text=SENTENCE + "\n"), one)
        self.assertEqual(self.attend(text="\ufeff  " + SENTENCE + " \r\n"), one)
        lines, targets = self.root / "lines.gz", self.root / "targets"
        lines.write_bytes(gzip.compress(f"{SENTENCE}\nba do.\n".encode()))
        output = self.attend("--input", lines).splitlines(keepends=True)
        self.assertEqual(len(output), 2)
        self.assertEqual(output[0], one)
        targets.write_text("ki nosi.\nlu\n")
        text = self.attend("--input", lines, "--target", targets)
        given = [json.loads(line) for line in text.splitlines()]
        self.attend("--input", lines, "--target", targets, "--output", self.root / "some.jsonl")
        self.assertEqual((self.root / "some.jsonl").read_text(), text)
        self.assertEqual([line["target"] for line in given], ["ki nosi.", "lu"])
        self.assertEqual(json.dumps(given[0]), json.dumps(json.loads(self.attend(SENTENCE, "ki nosi."))))
        targets.write_text("ki nosi.\n")
        self.assertIn("targets", self.attend("--input", lines, "--target", targets, status=2))
        targets.write_text("ki nosi.\nlu\nlu\n")
        self.assertIn("lines.gz", self.attend("--input", lines, "--target", targets, status=2))

    def test_pictures_and_pages(self):
        html = "<!DOCTYPE html>"
        for name, start in [("a.svg", "<?xml"), ("a.HTML", html), ("a.htm", html), ("a.json", "{")]:
            self.assertEqual(self.attend("--output", self.root / name, SENTENCE), "")
            self.assertTrue((self.root / name).read_text().startswith(start), name)
        svg = (self.root / "a.svg").read_text()
        self.assertEqual(self.attend("--format", "svg", SENTENCE), svg)
        self.attend("--format", "svg", "--output", self.root / "a.json", SENTENCE)
        self.assertEqual((self.root / "a.json").read_text(), svg)
        titles = {
            (): "Cross-attention, layer 1 of 2",
            ("--kind", "encoder", "--layer", 2): "Encoder self-attention, layer 2 of 2",
            ("--kind", "decoder", "--head", 2): "Decoder self-attention, layer 1 of 2",
            ("--kind", "encoder", "--heat-map"): "Encoder self-attention",
            ("--heat-map", "--layer", 2): "Cross-attention, layer 2 of 2",
            ("--kind", "encoder", "--pick", "nora", "--words"): "Encoder self-attention, layer 1 of 2",
            ("--kind", "encoder", "--pick", "si", "--pick", "nora"): "Encoder self-attention, layer 1 of 2",
        }
        for arguments, title in titles.items():
            root = xml.fromstring(self.attend("--format", "svg", *arguments, SENTENCE))
            self.assertEqual(root.find("{http://www.w3.org/2000/svg}title").text, title)
        page = self.attend("--format", "html", "--kind", "encoder", "--words", "--pick", "nora", SENTENCE)
        data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page).group(1))
        self.assertEqual(data["picked"], 2)
        self.assertEqual(data["views"][0]["queries"], SENTENCE.split() + ["</s>"])

    def test_a_word_is_picked_without_what_stands_around_it_and_however_it_is_composed(self):
        decomposed = unicodedata.normalize("NFD", "kilumé")
        for sentence, word in [("bado „kilumé“ nora", "kilumé"), ("bado «kilumé», nora", decomposed),
                               (f"bado {decomposed} nora", "kilumé"), ("bado kilumé… nora", "kilumé…"),
                               ("bado €5, nora", "€5"), ("bado ❤\ufe0f! nora", "❤\ufe0f")]:
            with self.subTest(sentence=sentence, word=word):
                page = self.attend("--format", "html", "--kind", "encoder", "--words", "--pick", word, sentence)
                data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page).group(1))
                self.assertEqual(data["picked"], 1)

    def test_what_it_holds_is_escaped(self):
        nasty = "</script><script>alert('&amp;')</script> \u202e القطة"
        page = self.attend("--format", "html", "--words", nasty, nasty)
        self.assertEqual(page.count("<script"), 2)
        self.assertNotIn("</script><script>alert", page)
        xml.fromstring(self.attend("--format", "svg", "--words", nasty, nasty))
        self.assertEqual(json.loads(self.attend(nasty, nasty))["source"], nasty)

    def test_a_tree_beside_its_words(self):
        tree = "(S (NP the dog )NP (VP sees (NP -LRB-it-RRB- )NP )VP )S"
        output = json.loads(self.attend("--tree", "the dog sees (it)", tree))
        self.assertEqual(output["tree"], "(TOP (S (NP (XX the) (XX dog)) (VP (XX sees) (NP (XX -LRB-it-RRB-)))))")
        self.assertEqual(output["source"], "the dog sees -LRB-it-RRB-")
        for kind in ("encoder", "cross"):
            for words in ([], ["--words"]):
                svg = self.attend("--format", "svg", "--kind", kind, "--tree", *words, "the dog sees it", tree)
                labels = [text.text for text in xml.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]
                self.assertEqual(sorted(label for label in labels if label in ("S", "NP", "VP")), ["NP", "NP", "S", "VP"])
        page = self.attend("--format", "html", "--tree", "the dog sees it", tree)
        self.assertIn('"label":"VP"', page)
        self.assertIn("no tree", self.attend("--tree", "the dog", "der Hund", status=2))

    def test_scripts_of_the_world(self):
        for text in ("القطة نائمة", "猫在垫子上", "שלום עולם", "👩‍👩‍👧 e\u0301\u0302 नमस्ते"):
            output = json.loads(self.attend("--words", text, text))
            # What the model reads: accents are composed.
            words = unicodedata.normalize("NFC", text).split()
            self.assertEqual(output["attention"]["cross"]["keys"], words + ["</s>"])
            xml.fromstring(self.attend("--format", "svg", text, text))

    def test_two_vocabularies(self):
        model = self.root / "two"
        subprocess.run([MAKE_MODEL, model, "two"], check=True, env=ENVIRONMENT)
        output = json.loads(self.attend(SENTENCE, "ki nosi.", model=model))
        self.assertEqual(output["attention"]["cross"]["queries"][-1], "</s>")

    def test_alignments_of_translate_are_those_of_the_weights(self):
        sources = [SENTENCE, "", "ba do ki lu.", "mé nora"]
        lines = "\n".join(sources) + "\n"
        for layer, head, at in [(0, 0, None), (1, 2, "reading"), (1, 0, "writing")]:
            arguments = ["--alignments", self.root / "links"]
            if layer:
                arguments += ["--alignment-layer", layer, "--alignment-at", at]
            if head:
                arguments += ["--alignment-head", head]
            targets = self.attend(*arguments, program=TRANSLATE, text=lines).split("\n")
            found = (self.root / "links").read_text().split("\n")
            self.assertEqual(len(found), len(sources) + 1)
            for source, target, links in zip(sources, targets, found):
                if not source or not target.strip():
                    self.assertEqual(links, "")
                    continue
                # Without an output, so that both are of the pieces that the model wrote.
                shown = json.loads(self.attend("--kind", "cross", source))
                self.assertEqual(shown["target"], target)
                view = shown["attention"]["cross"]
                weights = view["weights"][(layer or 2) - 1]
                weights = weights[head - 1] if head else [[sum(c) / 2 for c in zip(*rows)] for rows in zip(*weights)]
                if at == "reading":
                    weights = weights[1:] + weights[:1]
                queries, keys = word_numbers(view["queries"]), word_numbers(view["keys"])
                rows = joined(weights, queries, keys)[:-1]
                best = [row.index(max(row)) for row in rows]
                expected = " ".join(f"{s}-{t}" for t, s in enumerate(best) if s < keys[-1])
                self.assertEqual(links, expected, (source, target))

    def test_mistakes_are_named(self):
        missing = self.root / "missing"
        for arguments, parts in [
            (["--kind", "both", SENTENCE], ["--kind", "cross"]),
            (["--format", "png", SENTENCE], ["--format", "svg"]),
            (["--output", self.root / "a.png", SENTENCE], ["a.png", ".svg", "--format"]),
            (["--output", self.root / "noending", SENTENCE], ["noending", ".html"]),
            (["--layer", 3, SENTENCE], ["--layer", "3", "1 to 2"]),
            (["--layer", 0, SENTENCE], ["--layer", "0"]),
            (["--layer", "first", SENTENCE], ["--layer"]),
            (["--head", "1,9", SENTENCE], ["--head", "9", "1 to 2"]),
            (["--format", "svg", "--kind", "encoder,cross", SENTENCE], ["--kind", "one"]),
            (["--format", "svg", "--layer", "1,2", SENTENCE], ["--layer", "--heat-map"]),
            (["--format", "html", "--heat-map", SENTENCE], ["--heat-map", "SVG"]),
            (["--format", "svg", "--heat-map", "--pick", "si", SENTENCE], ["--pick"]),
            (["--pick", "si", SENTENCE], ["--pick", "SVG"]),
            (["--format", "html", "--kind", "encoder", "--pick", "si", "--pick", "nora", SENTENCE], ["--pick", "one"]),
            (["--format", "svg", "--kind", "encoder", "--pick", "nobody", SENTENCE], ["--pick", "nobody", "kilumé"]),
            (["--input", missing], ["missing"]),
            (["--input", missing, SENTENCE], ["either"]),
            (["--target", missing], ["--target", "--input"]),
            (["--format", "svg", SENTENCE, "ki", "third"], ["third"]),
            (["--device", "tpu", SENTENCE], ["tpu"]),
            (["--no-such-option"], ["--no-such-option"]),
            ([" \t"], ["blank"]),
            ([SENTENCE, "  "], ["blank"]),
            (["bado " * 500], ["word pieces", "shorter"]),
            ([SENTENCE, "bado " * 500], ["output", "word pieces"]),
        ]:
            with self.subTest(arguments=arguments):
                errors = self.attend(*arguments, status=2)
                for part in parts:
                    self.assertIn(part, errors)
        for text, parts in [("", ["empty"]), ("\n", ["line 1", "blank"]), (b"ba \xff\n", [":1", "UTF-8"])]:
            errors = self.attend("--format", "svg", text=text, status=2)
            for part in parts:
                self.assertIn(part, errors.replace("input:1", "input:1 line 1"))
        self.assertIn("second", self.attend("--format", "html", text="ba\ndo\n", status=2))
        self.assertIn("--bad-lines", self.attend("--format", "svg", "--bad-lines", "empty", SENTENCE, status=2))
        self.assertIn("--bad-lines", self.attend("--bad-lines", "copy", SENTENCE, status=2))
        self.assertIn("no parser", self.attend("--tree", "the dog", status=2))
        self.assertEqual(self.attend(text=""), "")

    def test_what_is_no_model(self):
        empty = self.root / "empty"
        empty.mkdir()
        for model in (self.root / "nowhere", empty, self.model / "config.yaml"):
            self.assertIn(str(model), self.attend(SENTENCE, model=model, status=2))

    def test_a_run_that_fails_leaves_nothing_and_the_older_file_alone(self):
        inside = self.root / "folder"
        inside.mkdir()
        kept = inside / "kept.json"
        kept.write_text("as it was")
        # The second line is blank, when the first is written already.
        self.attend("--output", kept, text=f"{SENTENCE}\n\n", status=2)
        self.assertEqual(kept.read_text(), "as it was")
        self.attend("--output", inside / "b.svg", "--pick", "nobody", SENTENCE, status=2)
        self.assertEqual([path.name for path in inside.iterdir()], ["kept.json"])
        errors = self.attend("--output", self.root / "no" / "folder" / "a.svg", SENTENCE, status=2)
        self.assertIn("a.svg", errors)
        self.assertFalse((self.root / "no").exists())
        errors = self.attend("--output", inside, "--format", "svg", SENTENCE, status=2)
        self.assertIn("folder", errors)
        self.assertEqual([path.name for path in inside.iterdir()], ["kept.json"])

    def test_a_bad_line_costs_a_line(self):
        lines = [SENTENCE.encode(), b"", b"b\xff", b"bado " * 500, b"ba do."]
        done = subprocess.run([ATTEND, "--model", self.model, "--bad-lines", "empty", "--input", "-", "--output", "-"],
                              input=b"\n".join(lines), capture_output=True, env=ENVIRONMENT, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        output = done.stdout.decode().split("\n")
        self.assertEqual(output[0] + "\n" + output[4] + "\n", self.attend(text=f"{SENTENCE}\nba do.\n"))
        self.assertEqual(output[1:4] + output[5:], ["", "", "", ""])
        self.assertIn(b"warning: 3 lines could not be used and were left empty: line 2 is blank, line 3 is not UTF-8",
                      done.stderr)

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([ATTEND, "--model", self.model, SENTENCE], stdout=full, stderr=subprocess.PIPE,
                                  env=ENVIRONMENT, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"standard output", done.stderr)

    def test_help(self):
        done = subprocess.run([ATTEND, "--help"], capture_output=True, env=ENVIRONMENT, timeout=60)
        self.assertEqual(done.returncode, 0)
        for option in ("--model", "--input", "--target", "--output", "--format", "--kind", "--layer", "--head", "--pick",
                       "--words", "--tree", "--heat-map", "--beam"):
            self.assertRegex(done.stdout.decode(), re.escape(option) + r"\b")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
