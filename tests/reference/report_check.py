"""Checks a report's files with Python's own parsers: report_check.py KIND FILE [OUT].

html FILE: balanced elements, every SVG within well-formed XML, nothing loaded from elsewhere, ids unique; OUT gets, as
           JSON, the texts of the page, its tables, its titles and the sizes of its pictures.
svg FILE:  well-formed XML on its own, with OUT as before.
statistics FILE: FILE is JSON {"values": [...], "pairs": [[x, y], ...]}; OUT gets numpy's figures for it.
"""

import html.parser
import json
import math
import re
import sys
import xml.etree.ElementTree as xml

import numpy

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.texts, self.tables, self.names, self.metas = [], [], [], [], {}

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.names.append(tag)
        assert not attributes.keys() & {"src", "href", "onclick", "onload"}, (tag, attributes)
        if tag == "meta" and "name" in attributes:
            self.metas[attributes["name"]] = attributes["content"]
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        assert "svg" in self.open, f"<{tag}/> outside SVG"
        self.names.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open}"
        self.open.pop()

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside in ("style", "script"):
            assert not re.search(r"https?:|@import|url\(", data), "loads something"
            return
        self.texts.append(data)
        if inside in ("td", "th"):
            self.tables[-1][-1][-1] += data


def picture(text):
    root = xml.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg", root.tag
    x, y, width, height = map(float, root.get("viewBox").split())
    names, coordinates = {}, []
    for element in root.iter():
        names[element.tag.split("}")[1]] = names.get(element.tag.split("}")[1], 0) + 1
        for key, value in element.attrib.items():
            if key in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "width", "height", "points"):
                coordinates += [float(number) for number in re.split("[ ,]+", value)]
    assert numpy.isfinite(coordinates).all()
    labels = [(float(t.get("x")), float(t.get("y")), t.get("class"), t.text) for t in root.iter("{http://www.w3.org/2000/svg}text")]
    return {
        "width": width,
        "height": height,
        "names": names,
        "texts": [label[3] for label in labels],
        "labels": labels,
        "titles": [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")],
        "inside": all(x <= label[0] <= x + width and y <= label[1] <= y + height for label in labels),
    }


def main(kind, file, out=None):
    text = open(file, encoding="utf-8").read()
    if kind == "html":
        assert text.startswith("<!DOCTYPE html>")
        page = Page()
        page.feed(text)
        page.close()
        assert page.open == [], page.open
        pictures = [picture(found) for found in re.findall(r"<figure>(<svg.*?</svg>)\s*</figure>", text, re.S)]
        result = {"texts": page.texts, "tables": page.tables, "names": page.names, "metas": page.metas, "pictures": pictures}
    elif kind == "svg":
        result = picture(text)
    else:
        data = json.loads(text)
        first, second = numpy.array(data["pairs"], float).T
        rank = lambda v: numpy.array([(v < x).sum() + ((v == x).sum() - 1) / 2 for x in v])
        # P(|t| > 2) by integrating Student's density.
        chances = {}
        for freedom in (1, 2, 3, 4, 7, 10, 31):
            t = numpy.linspace(-2, 2, 200001)
            density = (1 + t * t / freedom) ** (-(freedom + 1) / 2)
            constant = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
            chances[str(freedom + 1)] = 1 - constant * numpy.trapezoid(density, t)
        result = {
            "mean": numpy.mean(data["values"]),
            "deviation": numpy.std(data["values"], ddof=1),
            "correlation": numpy.corrcoef(rank(first), rank(second))[0, 1],
            "chances": chances,
        }
    if out:
        json.dump(result, open(out, "w"))


main(*sys.argv[1:])
