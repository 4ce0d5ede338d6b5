"""Checks files of `attend` with Python's own parsers: attention_check.py KIND FILE [OUT].

svg FILE:  well-formed XML that loads nothing, everything inside the picture; OUT gets, as JSON, its texts, lines and
           boxes.
html FILE: balanced elements, nothing loaded, no script but the page's own; OUT gets its texts and its data, the weights
           decoded to nested lists.
text FILE: FILE is JSON, a list of texts; OUT gets for each the width in columns as Unicode's tables have it, and whether
           it begins from the right.
"""

import base64
import html.parser
import json
import re
import sys
import unicodedata
import xml.etree.ElementTree as xml

import numpy

SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.texts, self.scripts, self.metas, self.ids, self.names = [], [], [], {}, [], []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.names.append(tag)
        assert not attributes.keys() & {"src", "href"}, (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag == "meta" and "name" in attributes:
            self.metas[attributes["name"]] = attributes["content"]
        if tag == "script":
            self.scripts.append([attributes.get("type"), ""])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open}"
        self.open.pop()

    def handle_comment(self, data):
        raise AssertionError("a comment: " + data)

    def handle_data(self, data):
        inside = self.open[-1] if self.open else ""
        if inside == "script":
            self.scripts[-1][1] += data
        elif inside == "style":
            assert not re.search(r"https?:|@import|url\(", data), "loads something"
        else:
            self.texts.append(data)


def check_html(text):
    assert text.startswith("<!DOCTYPE html>")
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == [], page.open
    assert len(set(page.ids)) == len(page.ids), page.ids
    (kind, data), (own_kind, own) = page.scripts
    assert kind == "application/json" and own_kind is None
    assert not re.search(r"https?:|fetch|XMLHttpRequest|import\(|WebSocket|eval\(", own), "loads something"
    for name in re.findall(r'getElementById\("(\w+)"\)', own):
        assert name in page.ids, name
    data = json.loads(data)
    for view in data["views"]:
        numbers = numpy.frombuffer(base64.b64decode(view["weights"], validate=True), "<u2")
        shape = [len(view[key]) for key in ("layers", "heads", "queries", "keys")]
        view["weights"] = (numbers.reshape(shape) / 65535).tolist()
    return {"texts": page.texts, "metas": page.metas, "data": data, "names": page.names}


def translation(element):
    found = re.match(r"translate\(([-\d.]+) ([-\d.]+)\)", element.get("transform", ""))
    return (float(found[1]), float(found[2])) if found else (0, 0)


def check_svg(text):
    root = xml.fromstring(text)
    assert root.tag == SVG + "svg", root.tag
    assert not re.search(r"@import|url\(|href|<script|<image|<foreignObject", text), "loads something"
    assert re.findall(r"https?:[^\s\"']*", text) == ["http://www.w3.org/2000/svg"]
    left, top, width, height = map(float, root.get("viewBox").split())
    inside = lambda x, y: left <= x <= left + width and top <= y <= top + height
    texts, lines, boxes, titles = [], [], [], []

    def walk(element, x, y):
        dx, dy = translation(element)
        x, y = x + dx, y + dy
        tag = element.tag.removeprefix(SVG)
        if tag == "text":
            title = element.find(SVG + "title")
            shown = (element.text or "") + (title.tail or "" if title is not None else "")
            whole = shown if title is None else title.text
            place = (x + float(element.get("x")), y + float(element.get("y")))
            assert inside(*place), (shown, place)
            texts.append({"x": place[0], "y": place[1], "shown": shown, "whole": whole,
                          "class": element.get("class", "").split(), "direction": element.get("direction", "ltr")})
        if tag == "path":
            numbers = [float(number) for number in re.findall(r"-?[\d.]+", element.get("d"))]
            assert numpy.isfinite(numbers).all()
            if "line" in element.get("class").split():
                lines.append({"class": element.get("class").split(), "d": numbers, "opacity": float(element.get("opacity"))})
                assert inside(*numbers[:2]) and inside(*numbers[2:]), numbers
        if tag == "rect" and element.get("x"):
            box = {key: float(element.get(key)) for key in ("x", "y", "width", "height")}
            assert inside(box["x"], box["y"]) and inside(box["x"] + box["width"], box["y"] + box["height"]), box
            boxes.append({**box, "class": element.get("class").split(), "opacity": float(element.get("opacity", 1))})
        for child in element:
            walk(child, x, y)

    walk(root, 0, 0)
    return {"width": width, "height": height, "texts": texts, "lines": lines, "boxes": boxes,
            "title": root.find(SVG + "title").text}


def check_text(text):
    result = []
    for line in json.loads(text):
        columns = sum(0 if unicodedata.combining(c) or unicodedata.category(c) in ("Mn", "Me", "Cf")
                      else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)
        strong = [unicodedata.bidirectional(c) for c in line if unicodedata.bidirectional(c) in ("L", "R", "AL")]
        result.append({"columns": columns, "right": bool(strong) and strong[0] != "L"})
    return result


def main(kind, file, out=None):
    with open(file, encoding="utf-8", newline="") as stream:
        result = {"svg": check_svg, "html": check_html, "text": check_text}[kind](stream.read())
    if out:
        with open(out, "w") as stream:
            json.dump(result, stream)


main(*sys.argv[1:])
