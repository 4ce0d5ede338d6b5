"""Reads a header as Doxygen should: doxygen_filter.py FILE.

Remarks behind members document them, remarks before declarations what follows, and no sign in a remark is a command.
"""

import re
import sys

SIGNS = {"\\": "\\\\", "@": "\\@", "#": "\\#", "<": "&lt;", ">": "&gt;"}

for line in open(sys.argv[1], encoding="utf-8"):
    code, mark, remark = re.match(r"((?:[^/\"]|\"(?:[^\"\\]|\\.)*\"|/(?!/))*)(///?)?(.*)", line.rstrip("\n")).groups()
    if mark is None:
        print(code + remark)
        continue
    remark = re.sub(r"[\\@#<>]", lambda sign: SIGNS[sign.group()], remark)
    print(code + ("///<" if code.strip() else "///") + remark)
