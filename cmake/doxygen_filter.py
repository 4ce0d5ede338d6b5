"""Reads a header as Doxygen should: doxygen_filter.py FILE.

Remarks behind members document them, remarks before declarations what follows, and no sign in a remark is a command. A
setting's meaning is the one that its `describe`, in a source file of the same folder, gives it; what the language gives a
class (moves, comparisons, the settings' `describe`) says so itself.
"""

import pathlib
import re
import sys

SIGNS = {"\\": "\\\\", "@": "\\@", "#": "\\#", "<": "&lt;", ">": "&gt;"}
STRING = r'"(?:[^"\\]|\\.)*"'
# What needs no words of a person's: a pattern of the whole line, and its words.
PLAIN = [
    (r"static void describe\(Fields<\w+>&? ?& ?\w*\);", "Lists the settings: names, meanings and bounds."),
    (r"(\w+)\(\1&&(?: \w+)?\) noexcept(?: = default)?;", "Moves."),
    (r"\w+& operator=\(\w+&&(?: \w+)?\) noexcept(?: = default)?;", "Moves."),
    (r"(?:bool|auto) operator(?:==|<=>)\(const \w+&(?: \w+)?\) const = default;", "Compares all members."),
    (r"using Error::Error;", "As Error's."),
]


def meanings(header):
    """Setting -> what it means, as its `describe` says."""
    found = {}
    if "describe(Fields<" not in header.read_text(encoding="utf-8"):
        return found
    for source in header.parent.glob("*.cpp"):
        text = source.read_text(encoding="utf-8")
        if "::describe(Fields<" not in text:
            continue
        for member, words in re.findall(rf'field\(\s*"\w+",\s*&\w+::(\w+),\s*(?:fmt::format\()?((?:{STRING}\s*)+)', text):
            found.setdefault(member, "".join(part[1:-1] for part in re.findall(STRING, words)))
    return found


def escaped(remark):
    return re.sub(r"[\\@#<>]", lambda sign: SIGNS[sign.group()], remark)


def main(header):
    settings = meanings(header)
    documented = False  # by the line before
    for line in header.read_text(encoding="utf-8").split("\n")[:-1]:
        code, mark, remark = re.match(r"((?:[^/\"]|\"(?:[^\"\\]|\\.)*\"|/(?!/))*)(///?)?(.*)", line).groups()
        if mark is not None:
            print(code + ("///<" if code.strip() else "///") + escaped(remark))
            documented = not code.strip()
            continue
        words = next((words for pattern, words in PLAIN if re.fullmatch(pattern, code.strip())), None)
        member = re.fullmatch(r"\s+[\w:<>, ]+? (\w+)(?: = [^;]*)?;", code)
        if words is not None and not documented:
            code = f"/// {words}\n{code}"
        elif member and not documented and member[1] in settings:
            code += f"  ///< {escaped(settings[member[1]])}"
        print(code + remark)
        documented = False


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
