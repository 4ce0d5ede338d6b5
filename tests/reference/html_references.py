"""Resolves the references in each line of a file as Python's html module does: html_references.py IN OUT."""

import html
import pathlib
import sys

lines = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").split("\n")
pathlib.Path(sys.argv[2]).write_text("\n".join(html.unescape(line) for line in lines), encoding="utf-8")
