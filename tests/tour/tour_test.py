"""transformer/README.md quotes sources, prints what a program prints, and shows pictures. They are what there is:

    tour_test.py SOURCE_DIR TOUR             compares
    tour_test.py SOURCE_DIR TOUR --write     writes them anew

In the page "<!-- quote FILE: START -->" stands before a block of code: FILE's lines from the one that begins with START
to the next "}" at a line's beginning; "<!-- quote FILE: START ... END -->" to the line that begins with END.
"<!-- output -->" stands before what `tour walk` prints. Numbers may differ in their last digit, as processors do.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE, TOUR = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
WRITE = "--write" in sys.argv
PAGE = SOURCE / "transformer" / "README.md"
PICTURES = SOURCE / "benchmarks" / "results" / "pictures"
BLOCK = re.compile(r"(<!-- (?:quote ([^:]+): (.+?)|output) -->\n```(?:cpp|text)\n)(.*?)(```\n)", re.S)
NUMBER = re.compile(r"-?\d+\.\d+")


def quoted(file, place):
    start, _, end = place.partition(" ... ")
    lines = (SOURCE / file).read_text().splitlines()
    first = [i for i, line in enumerate(lines) if line.strip().startswith(start)]
    assert len(first) == 1, f"{file}: {len(first)} lines begin with {start!r}"
    for last in range(first[0], len(lines)):
        if lines[last].strip().startswith(end) if end else lines[last].startswith("}"):
            break
    else:
        raise AssertionError(f"{file}: no line after {start!r} begins with {end!r}")
    found = lines[first[0]:last + 1]
    indent = len(found[0]) - len(found[0].lstrip())
    return "".join(line[indent:] + "\n" for line in found)


def alike(one, other, tolerance):
    # Spaces before numbers are as many as their signs and digits leave.
    shape = lambda text: re.sub(r" +", " ", NUMBER.sub("#", text))
    numbers = lambda text: [float(number) for number in NUMBER.findall(text)]
    return shape(one) == shape(other) and all(abs(a - b) <= tolerance for a, b in zip(numbers(one), numbers(other)))


class TourTest(unittest.TestCase):
    def test_quotes_and_output(self):
        printed = subprocess.run([TOUR, "walk", SOURCE / "data" / "model-en-de"], check=True, capture_output=True,
                                 text=True).stdout
        page = PAGE.read_text()
        blocks = 0

        def renewed(block):
            nonlocal blocks
            blocks += 1
            head, file, place, text, tail = block.groups()
            if not file:
                if not WRITE:
                    self.assertTrue(alike(text, printed, 0.021), f"tour walk prints something else:\n{printed}")
                    return block.group()
                return head + printed + tail
            wanted = quoted(file, place)
            if not WRITE:
                self.assertEqual(text, wanted, f"{file} has changed: tests/tour/tour_test.py --write")
            return head + wanted + tail

        new = BLOCK.sub(renewed, page)
        self.assertGreaterEqual(blocks, 15)
        self.assertEqual(blocks, page.count("<!-- quote ") + page.count("<!-- output -->"))
        if WRITE:
            PAGE.write_text(new)

    def test_pictures(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([TOUR, "pictures", folder], check=True)
            drawn = {file.name: file.read_text() for file in pathlib.Path(folder).iterdir()}
        self.assertEqual(sorted(drawn), ["tour-label-smoothing.svg", "tour-masks.svg", "tour-noam.svg",
                                         "tour-sinusoids.svg"])
        for name, svg in drawn.items():
            if WRITE:
                (PICTURES / name).write_text(svg)
            self.assertTrue(alike((PICTURES / name).read_text(), svg, 0.11), name)

    def test_what_it_leads_to_is_there(self):
        page = PAGE.read_text()
        for link in re.findall(r"\]\(([^)#]+)", page):
            with self.subTest(link=link):
                self.assertTrue((PAGE.parent / link).exists())
        for test in re.findall(r"`(\w+/\w+_test\.(?:cpp|py))`", page):
            with self.subTest(test=test):
                self.assertTrue((SOURCE / "tests" / test).exists())
        for file in re.findall(r"`((?:model|training|inference|text|architecture|evaluation)/\w+(?<!_test)\.\w+)`", page):
            with self.subTest(file=file):
                self.assertTrue((SOURCE / "transformer" / file).exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
