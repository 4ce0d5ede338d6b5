"""Reads a header as Doxygen should: doxygen_filter.py FILE.

Remarks behind members document them, remarks before declarations what follows, and no sign in a remark is a command. A
setting's meaning is the one that its `describe`, in a source file of the same folder, gives it; what the language gives a
class (moves, destruction, comparisons, a base's constructors, the settings' `describe`) says so itself.
"""

import pathlib
import re
import sys

SIGNS = {"\\": "\\\\", "@": "\\@", "#": "\\#", "<": "&lt;", ">": "&gt;"}
STRING = r'"(?:[^"\\]|\\.)*"'
# Several members in one declaration: its beginning, and their names with what they are set to.
SEVERAL = r"(\s+[\w:]+(?: [\w:]+)*(?:<.*>)?) (\w+(?: = [^,;]*|\{[^;]*\})?(?:, \w+(?: = [^,;]*|\{[^;]*\})?)+);"
# What needs no words of a person's: a pattern of the whole line, and its words.
PLAIN = [
    (r"static void describe\(Fields<\w+>&? ?& ?\w*\);", "Lists the settings: names, meanings and bounds."),
    (r"(\w+)\(\1&&(?: \w+)?\) noexcept(?: = default)?;", "Moves."),
    (r"\w+& operator=\(\w+&&(?: \w+)?\) noexcept(?: = default)?;", "Moves."),
    (r"(?:virtual )?~\w+\(\)(?: = default)?(?: override)?;", "Frees what it holds."),
    (r"(?:bool|auto) operator(?:==|<=>)\(const \w+&(?: \w+)?\) const = default;", "Compares all members."),
    (r"using (\w+)::\1;", "As the base class's."),
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
    before = []  # the remark on the lines before
    for line in header.read_text(encoding="utf-8").split("\n")[:-1]:
        code, mark, remark = re.match(r"((?:[^/\"]|\"(?:[^\"\\]|\\.)*\"|/(?!/))*)(///?<?)?(.*)", line).groups()
        if mark is None:
            code += remark
        elif not code.strip() and mark == "///<":  # goes on with the one behind the line before
            print(code + "///<" + escaped(remark))
            continue
        elif not code.strip():
            before.append(code + "///" + escaped(remark))
            continue
        behind = f"  ///<{escaped(remark)}" if mark is not None and not remark.startswith(" NOLINT") else ""
        code = code.rstrip()
        words = next((words for pattern, words in PLAIN if re.fullmatch(pattern, code.strip())), None)
        member = re.fullmatch(r"\s+[\w:<>, ]+? (\w+)(?: = [^;]*)?;", code)
        if not before and not behind and words is not None:
            before = [f"/// {words}"]
        elif not before and not behind and member and member[1] in settings:
            behind = f"  ///< {escaped(settings[member[1]])}"
        several = re.fullmatch(SEVERAL, code)
        for one in [f"{several[1]} {name};" for name in several[2].split(", ")] if several else [code]:
            print("\n".join([*before, one + behind]))
        before = []


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
