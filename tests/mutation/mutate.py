#!/usr/bin/env python
"""Mutation testing: small mistakes are made in the library, one at a time, and some test has to notice each.

    cmake --build --preset release
    .venv/bin/python tests/mutation/mutate.py                         # every file, a sample of mutations each
    .venv/bin/python tests/mutation/mutate.py --file training/adam.cpp --per-file 0          # all mutations of one file
    .venv/bin/python tests/mutation/mutate.py --file training/adam.cpp --only 17 --verbose   # one, with the test's output

Every mutation of a file is compiled once, into one copy of it, and switched on at run time by TRANSFORMER_MUTATION: `a < b`
becomes `(mutated(17) ? (a <= b) : (a < b))`. Objects of that copy stand before the library in the link of the room's test
binary, so the linker never takes the original. A mutation that does not compile is left out, by the lines of the
compiler's errors, and so is one that lies in no function's body, in a constant expression, in the text of an exception,
in the table of a struct's settings, or that only changes what memory is reserved.

First every test case runs alone, unmutated, and tells which mutations' code it reaches; one that fails then is named and
left out. Then, for each
mutation, the tests that reach its code run, quick ones together and first, slow ones one by one, until one fails,
crashes or takes far longer than it did: the mutation is killed. What no test reaches, or what all tests let pass, has
survived: it is either a test that is missing, or it changes nothing that a test could see, and then explained.txt says
why. An explanation is found again by file, function, line's text and mutation, not by a line's number; one that fits
no mutation any more is reported.

Takes an hour or two on two cores (most of it what survives, which all its tests are run for), so it is no part of CI. Status 1: something survived
unexplained. Needs the build in build/release, and clang 14 (Debian's) for its headers; writes to build/mutation only.
The kernels' instruction sets that this processor lacks are reached by no test here.
"""

import argparse
import collections
import dataclasses
import hashlib
import json
import mmap
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from clang import cindex
from clang.cindex import CursorKind as Kind

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
WORK = ROOT / "build" / "mutation"
EXPLAINED = pathlib.Path(__file__).with_name("explained.txt")

# File below transformer/ -> the test binaries that have to notice. A file that others include names one that is compiled.
FILES = {
    "base/checked.h": ["base"],
    "base/tensor_file.cpp": ["base", "model"],
    "training/label_smoothing_loss.cpp": ["training"],
    "training/noam_schedule.cpp": ["training"],
    "training/learning_rate.cpp": ["training"],
    "training/adam.cpp": ["training"],
    "training/moving_average.cpp": ["training"],
    "training/layer_drop.cpp": ["training"],
    "training/rdrop_loss.cpp": ["training"],
    "training/metrics.cpp": ["training"],
    "training/event_file.cpp": ["training"],
    "training/checkpoint.cpp": ["training"],
    "training/average.cpp": ["training"],
    "training/run_folder.cpp": ["training"],
    "training/run_names.cpp": ["training"],
    "training/run_record.cpp": ["training"],
    "text/batches.cpp": ["text"],
    "text/glossary.cpp": ["text"],
    "text/markup.cpp": ["text"],
    "text/normalization.cpp": ["text"],
    "text/placeholders.cpp": ["text"],
    "text/split_text.cpp": ["text"],
    "inference/beam_search.cpp": ["inference"],
    "inference/draft_batch.cpp": ["inference"],
    "inference/draft_pace.cpp": ["inference"],
    "inference/engine.cpp": ["inference"],
    "inference/ensemble_batch.cpp": ["inference"],
    "inference/forbidden_text.cpp": ["inference"],
    "inference/output_prefix.cpp": ["inference"],
    "inference/packed_matrix.cpp": ["inference"],
    "inference/required_phrases.cpp": ["inference"],
    "inference/sampling.cpp": ["inference"],
    "inference/shortlist.cpp": ["inference"],
    "kernels/inference_attention.inc": ["inference"],
    "kernels/inference_products.inc": ["inference"],
    "kernels/inference_rows.inc": ["inference"],
    "kernels/inference_selection.inc": ["inference"],
    "kernels/inference_tiles.inc": ["inference"],
    "model/fused/products.cpp": ["model"],
    "kernels/product_kernels.inc": ["model"],
    "kernels/product_blocks.inc": ["model"],
    "kernels/product_tiles.inc": ["model"],
    "kernels/product_vectors.inc": ["model"],
    "kernels/tiles.inc": ["inference", "model"],
    "kernels/training_attention.inc": ["model"],
    "kernels/training_dropout.inc": ["model"],
    "kernels/training_loss.inc": ["training"],
    "kernels/training_rows.inc": ["model"],
    "evaluation/bleu.cpp": ["evaluation"],
    "evaluation/chrf.cpp": ["evaluation"],
    "evaluation/minimum_bayes_risk.cpp": ["evaluation"],
    "interop/marian_file.cpp": ["interop"],
    "interop/npz_file.cpp": ["interop"],
    "interop/torch_file.cpp": ["interop"],
    "interop/zip_archive.cpp": ["interop"],
    "serving/dispatcher.cpp": ["serving"],
    "serving/fair_queue.h": ["serving"],
    "serving/request_checks.cpp": ["serving"],
    "serving/translation_call.cpp": ["serving"],
}

IDS_PER_FILE = 3000
SEEN = IDS_PER_FILE * (len(FILES) + 1)  # bytes, one for every number that a mutation may have

HEADER = """#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace transformer_mutation {

inline const int active = [] {
  const char* id = std::getenv("TRANSFORMER_MUTATION");
  return id ? std::atoi(id) : 0;
}();

// A byte a mutation, set where its code runs; in the file that asks for it, of which processes that a test starts know, too.
inline unsigned char* const seen = [] {
  static unsigned char unasked[SEEN];
  const char* file = std::getenv("TRANSFORMER_MUTATION_SEEN");
  if (!file) return unasked;
  const int descriptor = open(file, O_RDWR);
  void* mapped = mmap(nullptr, sizeof unasked, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  close(descriptor);
  return mapped == MAP_FAILED ? unasked : static_cast<unsigned char*>(mapped);
}();

inline bool mutated(int id) {
  seen[id] = 1;
  return active == id;
}

}  // namespace transformer_mutation
"""

COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
OPERATORS = {**COMPARISONS, "&&": "||", "||": "&&", "+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "<<": ">>",
             ">>": "<<", "&": "|", "|": "&", "^": "|"}
COMPOUND = {"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "|=": "&=", "&=": "|=", "<<=": ">>=", ">>=": "<<="}
# What only changes speed or memory.
HARMLESS = re.compile(r"(\.|->)(reserve|shrink_to_fit)\($|^_mm_prefetch|^__builtin_prefetch")
FUNCTIONS = {Kind.FUNCTION_DECL, Kind.CXX_METHOD, Kind.CONSTRUCTOR, Kind.DESTRUCTOR, Kind.FUNCTION_TEMPLATE,
             Kind.CONVERSION_FUNCTION}


@dataclasses.dataclass
class Mutation:
    start: int  # the range of the original that is written anew
    end: int
    before: str  # original -> mutated, for people and for explained.txt
    after: str
    render: object  # (id, the range's text with inner mutations) -> text
    kind: str
    function: str = ""
    line: int = 0
    line_text: str = ""
    id: int = 0
    outcome: str = ""
    detail: str = ""

    @property
    def key(self):
        return self.function, self.line_text, f"{self.before} -> {self.after}"


def brief(text, limit=90):
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def commands():
    """Source -> its compiler's arguments, without those that name what is compiled."""
    found = {}
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        arguments = shlex.split(entry["command"])
        at = arguments.index("-o")
        del arguments[at : at + 2]
        del arguments[arguments.index("-c") :]
        found[entry["file"]] = [a for a in arguments if not a.endswith("ccache") and "CCACHE" not in a]
    return found


def units_of(source, flags):
    """The files that are compiled when `source` is: itself, or what includes it; of a header, the tests that do."""
    if source.suffix == ".cpp":
        return [str(source)]
    if source.suffix == ".h":
        line = f'#include "{source.relative_to(ROOT)}"\n'
        return [file for file in sorted(flags) if "/tests/" in file and line in pathlib.Path(file).read_text()]
    includes = {source}
    while True:
        lines = [f'#include "{file.relative_to(ROOT)}"\n' for file in includes]
        more = {file for file in source.parent.glob("*.inc") if any(line in file.read_text() for line in lines)}
        if more <= includes:
            return [file for file in sorted(flags) if any(line in pathlib.Path(file).read_text() for line in lines)]
        includes |= more


class Finder:
    """Finds the mutations of one file in the syntax tree of one translation unit."""

    def __init__(self, source, text, unit, arguments):
        self.source, self.text = source, text
        self.found = {}
        index = cindex.Index.create()
        resources = subprocess.run(["clang", "-print-resource-dir"], capture_output=True, text=True).stdout.strip()
        arguments = [a for a in arguments if not a.startswith(("-fpch", "-Winvalid", "-W", "-fmacro"))]
        while "-include" in arguments:
            at = arguments.index("-include")
            del arguments[at : at + 2]
        parsed = index.parse(unit, [*arguments, "-resource-dir", resources, "-w"],
                             options=cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
        fatal = [d for d in parsed.diagnostics if d.severity >= cindex.Diagnostic.Fatal]
        if fatal:
            sys.exit(f"{unit}: {fatal[0].spelling}")
        self.macros = []
        top = []
        for cursor in parsed.cursor.get_children():
            if not cursor.location.file or not os.path.samefile(cursor.location.file.name, source):
                continue
            if cursor.kind == Kind.MACRO_INSTANTIATION:
                self.macros.append((cursor.extent.start.offset, cursor.extent.end.offset))
            else:
                top.append(cursor)
        for cursor in top:
            self.visit(cursor, "", None)

    def range(self, cursor):
        return cursor.extent.start.offset, cursor.extent.end.offset

    def of(self, cursor):
        start, end = self.range(cursor)
        return self.text[start:end]

    def plain(self, cursor):
        """Whether it is written here as it stands, not by a macro."""
        start, end = self.range(cursor)
        if start >= end or not cursor.extent.start.file:
            return False
        return not any(first <= start < last or first < end <= last for first, last in self.macros)

    def add(self, start, end, before, after, render, kind):
        self.found.setdefault((start, end, kind), Mutation(start, end, brief(before), brief(after), render, kind, self.function))

    def instead(self, cursor, changed, kind, before=None, after=None):
        start, end = self.range(cursor)
        if '"' in changed:
            return
        # On one line: the copy's lines are the original's, so that a compiler's error names the mutations.
        changed = " ".join(re.sub(r"//[^\n]*", "", changed).split())
        self.add(start, end, before or self.of(cursor), after or changed,
                 lambda id, inner: f"(transformer_mutation::mutated({id}) ? ({changed}) : ({inner}))", kind)

    def visit(self, cursor, function, parent):
        kind = cursor.kind
        children = list(cursor.get_children())
        if kind in (Kind.STATIC_ASSERT, Kind.ENUM_DECL, Kind.CXX_THROW_EXPR, Kind.TYPE_ALIAS_DECL):
            return
        if kind in FUNCTIONS:
            function = cursor.spelling
            if cursor.semantic_parent.kind in (Kind.CLASS_DECL, Kind.STRUCT_DECL, Kind.CLASS_TEMPLATE):
                function = f"{cursor.semantic_parent.spelling}::{function}"
            head = self.text[max(self.text.rfind("}", 0, cursor.extent.start.offset),
                                 self.text.rfind(";", 0, cursor.extent.start.offset), 0) : cursor.extent.start.offset]
            if "constexpr" in head + self.of(cursor).split("{")[0] or cursor.spelling == "describe":
                return
            body = [c for c in children if c.kind == Kind.COMPOUND_STMT]
            initialisers = [] if kind != Kind.CONSTRUCTOR else [
                c for c in children if body and c.extent.end.offset <= body[0].extent.start.offset
                and c.kind.is_expression()]
            for child in initialisers + body:
                self.visit(child, function, cursor)
            return
        if kind == Kind.VAR_DECL and re.search(r"\bconstexpr\b", self.of(cursor)):
            return
        if function and self.plain(cursor):
            if kind in (Kind.CALL_EXPR, Kind.UNEXPOSED_EXPR) and HARMLESS.search(self.of(cursor).split("(")[0] + "("):
                return
            self.function = function
            self.mutate(cursor, children, parent)
        if kind == Kind.SWITCH_STMT or (kind == Kind.IF_STMT and "constexpr" in self.of(cursor)[:14]):
            children = children[1:]
        if kind == Kind.CASE_STMT:
            children = children[1:]
        for child in children:
            if kind == Kind.VAR_DECL and self.text[: child.extent.start.offset].rstrip().endswith("["):
                continue  # an array's bound
            self.visit(child, function, cursor)

    def mutate(self, cursor, children, parent):
        kind, text = cursor.kind, self.of(cursor)
        start, end = self.range(cursor)
        in_body = parent is not None and (
            parent.kind == Kind.COMPOUND_STMT
            or parent.kind in (Kind.IF_STMT, Kind.FOR_STMT, Kind.WHILE_STMT, Kind.CXX_FOR_RANGE_STMT)
            and re.match(r"\s*;", self.text[end:]))
        deletable = kind in (Kind.CALL_EXPR, Kind.COMPOUND_ASSIGNMENT_OPERATOR) or (
            kind == Kind.UNEXPOSED_EXPR and not text.startswith("throw")) or (
            kind == Kind.BINARY_OPERATOR and self.operator(children) == "=")
        if in_body and deletable and re.match(r"\s*;", self.text[end:]):
            self.add(start, end, text, "nothing", lambda id, inner:
                     f"(transformer_mutation::mutated({id}) ? void(0) : void({inner}))", "left out")
        if kind in (Kind.BREAK_STMT, Kind.CONTINUE_STMT) and in_body:
            last = self.text.index(";", end) + 1
            self.add(start, last, text, "nothing", lambda id, inner:
                     f"{{ if (!transformer_mutation::mutated({id})) {inner} }}", "left out")
        if kind in (Kind.BINARY_OPERATOR, Kind.COMPOUND_ASSIGNMENT_OPERATOR) and len(children) == 2:
            operator = self.operator(children)
            changed = OPERATORS.get(operator) or COMPOUND.get(operator)
            left, right = self.of(children[0]), self.of(children[1])
            if changed and "string" not in cursor.type.spelling and '"' not in left + right:
                self.instead(cursor, f"{left} {changed} {right}", "operator")
        elif kind == Kind.CALL_EXPR and len(children) == 3 and cursor.spelling.startswith("operator"):
            # An overloaded operator: left, operator, right.
            operator = cursor.spelling.removeprefix("operator").strip()
            changed = OPERATORS.get(operator) or COMPOUND.get(operator)
            left, right = self.of(children[0]), self.of(children[2])
            if changed and operator != "<<" and '"' not in left + right and text.startswith(left) and text.endswith(right):
                self.instead(cursor, f"{left} {changed} {right}", "operator")
        elif kind == Kind.UNARY_OPERATOR and children:
            operand = self.of(children[0])
            if text.startswith("!"):
                self.instead(cursor, f"static_cast<bool>({operand})", "operator", after=operand)
            elif text.startswith("-") and not text.startswith("--"):
                self.instead(cursor, operand, "operator")
            elif text.startswith("++") and in_body:
                self.instead(cursor, operand, "operator")
        elif kind == Kind.INTEGER_LITERAL and not re.search(r"_mm\d*_\w+\s*\($", self.enclosing_call(parent)):
            self.add(start, end, text, f"{text} + 1",
                     lambda id, inner: f"({inner} + transformer_mutation::mutated({id}))", "number")
        elif kind == Kind.FLOATING_LITERAL:
            changed = "1" if float(text.rstrip("fFlL")) == 0 else f"2 * {text}"
            self.instead(cursor, changed, "number")
        elif kind == Kind.CXX_BOOL_LITERAL_EXPR:
            self.add(start, end, text, "false" if text == "true" else "true",
                     lambda id, inner: f"({inner} != transformer_mutation::mutated({id}))", "number")
        elif kind in (Kind.IF_STMT, Kind.CONDITIONAL_OPERATOR) and children:
            self.condition(cursor, children)
        elif kind == Kind.RETURN_STMT and children and self.plain(children[0]):
            value = children[0]
            first, last = self.range(value)
            spelling = value.type.get_canonical().spelling
            if value.kind not in (Kind.INTEGER_LITERAL, Kind.CXX_BOOL_LITERAL_EXPR) and not self.of(value).startswith("{"):
                if spelling == "bool":
                    self.add(first, last, f"return {self.of(value)}", f"return !({self.of(value)})", lambda id, inner:
                             f"(({inner}) != transformer_mutation::mutated({id}))", "return")
                elif spelling in ("int", "long", "unsigned long", "double", "float"):
                    self.add(first, last, f"return {self.of(value)}", f"return {self.of(value)} + 1", lambda id, inner:
                             f"(({inner}) + transformer_mutation::mutated({id}))", "return")
        if kind == Kind.CALL_EXPR:
            name = re.match(r"std::(min|max)\b", text)
            if name:
                other = {"min": "max", "max": "min"}[name[1]]
                self.instead(cursor, f"std::{other}{text[8:]}", "min and max")

    def enclosing_call(self, parent):
        while parent is not None and parent.kind in (Kind.UNEXPOSED_EXPR, Kind.PAREN_EXPR):
            break
        return self.of(parent).split("(")[0] + "(" if parent is not None and parent.kind == Kind.CALL_EXPR else ""

    def operator(self, children):
        if len(children) != 2:
            return ""
        between = self.text[self.range(children[0])[1] : self.range(children[1])[0]]
        return re.sub(r"//[^\n]*|\s", "", between).strip("()")

    def condition(self, cursor, children):
        value = children[0]
        if not self.plain(value) or not value.kind.is_expression():
            return
        first, last = self.range(value)
        text = self.of(value)
        single = value
        while single.kind in (Kind.UNEXPOSED_EXPR, Kind.PAREN_EXPR) and len(list(single.get_children())) == 1:
            single = list(single.get_children())[0]
        operator = self.operator(list(single.get_children())) if single.kind == Kind.BINARY_OPERATOR else ""
        if cursor.kind == Kind.IF_STMT and len(children) == 2 and re.match(r"\{?\s*(throw|return|continue)\b", self.of(children[1])):
            self.add(first, last, text, "false",
                     lambda id, inner: f"(!transformer_mutation::mutated({id}) && ({inner}))", "condition")
        elif operator not in ("==", "!=") and not text.startswith("!"):
            self.add(first, last, text, f"!({text})",
                     lambda id, inner: f"(static_cast<bool>({inner}) != transformer_mutation::mutated({id}))", "condition")


def enumerate_mutations(source, flags, first):
    """All mutations of a file, numbered by place: those of every unit that is compiled with it."""
    text = source.read_bytes().decode("latin-1")  # libclang counts bytes
    found = {}
    for unit in units_of(source, flags):
        for key, mutation in Finder(source, text, unit, flags[unit]).found.items():
            found.setdefault(key, mutation)
    mutations = [found[key] for key in sorted(found)]
    lines = text.split("\n")
    for number, mutation in enumerate(mutations, 1):
        mutation.id = first + number
        mutation.line = text.count("\n", 0, mutation.start) + 1
        for field in ("before", "after", "function"):
            setattr(mutation, field, getattr(mutation, field).encode("latin-1").decode())
        mutation.line_text = brief(lines[mutation.line - 1].encode("latin-1").decode(), 200)
    return text, mutations


def render(text, mutations):
    """The file with all of them in it. Ranges nest or are apart; the outer of two with one range is the later."""
    # Children first: by length, then by number.
    roots = []
    def insert(nodes, node):
        for other in nodes:
            if other[0].start <= node[0].start and node[0].end <= other[0].end:
                return insert(other[1], node)
        nodes.append(node)
    for mutation in sorted(mutations, key=lambda m: (m.start - m.end, m.id)):
        insert(roots, (mutation, []))

    def write(start, end, nodes):
        parts, at = [], start
        for mutation, inner in sorted(nodes, key=lambda n: n[0].start):
            if mutation.start < at:  # overlaps its neighbour without lying in it
                continue
            parts += [text[at : mutation.start], mutation.render(mutation.id, write(mutation.start, mutation.end, inner))]
            at = mutation.end
        return "".join(parts + [text[at:end]])

    return write(0, len(text), roots)


def error_lines(output, path):
    """Lines of `path` at fault: those of errors, or of what an error in a header was included or inlined from."""
    lines = set()
    blocks = re.split(r"(?m)^(?=\S.*?: (?:In |in |error:|sorry))", re.sub(r"\x1b\[[0-9;]*[mK]", "", output))
    for block in blocks:
        if "error" in block or "sorry" in block:
            direct = re.findall(re.escape(str(path)) + r":(\d+):\d+: (?:error|sorry)", block)
            lines |= {int(n) for n in direct or re.findall(re.escape(str(path)) + r":(\d+)", block)}
    return lines or {int(n) for n in re.findall(re.escape(str(path)) + r":(\d+)", output)}


class File:
    def __init__(self, name, flags, verbose):
        self.name, self.source = name, ROOT / "transformer" / name
        self.flags, self.verbose = flags, verbose
        self.folder = WORK / name.replace("/", "_").replace(".", "_")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.first = list(FILES).index(name) * IDS_PER_FILE
        self.text, self.mutations = enumerate_mutations(self.source, flags, self.first)
        if len(self.mutations) >= IDS_PER_FILE:
            sys.exit(f"{name} has {len(self.mutations)} mutations, {IDS_PER_FILE} are possible")
        self.keys = {m.key for m in self.mutations}
        self.objects = {}

    def compile(self):
        """An object for each unit, with the mutations that compile in all of them."""
        copy = self.folder / "overlay" / "transformer" / self.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        header = self.folder / "mutation.h"
        header.write_text(HEADER.replace("SEEN]", f"{SEEN}]"))
        known = self.folder / "do_not_compile.json"
        version = hashlib.sha256((self.text + pathlib.Path(__file__).read_text()).encode("latin-1", "replace")).hexdigest()
        dropped = set()
        if known.exists() and (was := json.loads(known.read_text()))["version"] == version:
            dropped = set(was["dropped"])
        for unit in units_of(self.source, self.flags):
            for attempt in range(40):
                self.mutations = [m for m in self.mutations if m.id not in dropped]
                copied = render(self.text, self.mutations).encode("latin-1")
                if not copy.exists() or copy.read_bytes() != copied:
                    copy.write_bytes(copied)
                errors = self.compile_unit(unit, copy, copied, header)
                if not errors:
                    break
                # The switch nearest before an error, and where that does not help all of the error's line.
                lines = error_lines(errors, copy)
                guilty = self.guilty(errors, copy, copied.decode("latin-1").split("\n")) if attempt < 3 else set()
                if not guilty - dropped:
                    guilty = {m.id for m in self.mutations if lines & set(range(m.line, m.line + self.lines(m)))}
                if not guilty - dropped:
                    sys.exit(f"{self.name} does not compile with mutations:\n{errors[:4000]}")
                if self.verbose:
                    print(f"  {len(guilty)} mutations of lines {sorted(lines)} do not compile", flush=True)
                dropped |= guilty
            known.write_text(json.dumps({"version": version, "dropped": sorted(dropped)}))

    def compile_unit(self, unit, copy, copied, header):
        """Compiles the copy, or what includes it, unless that is done; what the compiler has against it."""
        target = self.folder / (str(pathlib.Path(unit).relative_to(ROOT)).replace("/", "_") + ".o")
        self.objects[unit] = target
        command = [*self.flags[unit], "-w", "-Wno-error", "-fdiagnostics-color=never"]
        command.insert(next(i for i, a in enumerate(command) if a.startswith("-I")), f"-I{self.folder / 'overlay'}")
        precompiled = max((i + 2 for i, a in enumerate(command) if a == "-include"), default=1)  # which has to come first
        command[precompiled:precompiled] = ["-include", str(header)]
        command += ["-o", str(target), "-c", str(copy) if self.source.suffix == ".cpp" else unit]
        stamp = hashlib.sha256(copied + pathlib.Path(unit).read_bytes() + " ".join(command).encode()).hexdigest()
        stamped = target.with_suffix(".stamp")
        newest = max((h.stat().st_mtime for h in (ROOT / "transformer").rglob("*.h")), default=0)
        if target.exists() and stamped.exists() and stamped.read_text() == stamp and target.stat().st_mtime > newest:
            return ""
        done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True)
        if done.returncode == 0:
            stamped.write_text(stamp)
            return ""
        return done.stderr

    @staticmethod
    def guilty(output, path, lines):
        """The mutations whose switch stands nearest before an error on its line."""
        found = set()
        for line, column in re.findall(re.escape(str(path)) + r":(\d+):(\d+): (?:error|sorry)", output):
            before = re.findall(r"mutated\((\d+)\)", lines[int(line) - 1][: int(column) + 30])
            found |= {int(id) for id in before[-1:]}
        return found

    def lines(self, mutation):
        return self.text.count("\n", mutation.start, mutation.end) + 1


def link(room, files, folder):
    """The room's test binary with the mutated objects before the libraries, or in the place of its own."""
    binary = folder / f"{room}_tests"
    lines = subprocess.run(["ninja", "-C", str(BUILD), "-t", "commands", f"{room}_tests"], capture_output=True, text=True,
                           check=True).stdout.splitlines()
    arguments = shlex.split(next(c for c in reversed(lines) if f"-o tests/bin/{room}_tests" in c).split("&&")[1])
    at = arguments.index("-o")
    arguments[at + 1] = str(binary)
    for file in files:
        for unit, target in file.objects.items():
            if "/tests/" not in unit:
                arguments.insert(at, str(target))
                continue
            own = str(pathlib.Path(unit).relative_to(ROOT / "tests")) + ".o"
            arguments = [str(target) if a.endswith(own) else a for a in arguments]
    subprocess.run(arguments, cwd=BUILD, check=True)
    return binary


def run_tests(binary, names, mutation, limit, seen=None, verbose=False):
    """Runs the tests of these names; None where they pass, else what happened."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRANSFORMER_MUTATION": str(mutation)}
    if seen:
        environment["TRANSFORMER_MUTATION_SEEN"] = str(seen)
    pattern = ",".join(re.sub(r'([\\,\[\]"*])', r"\\\1", name) for name in names)
    process = subprocess.Popen([binary, "-a", pattern], cwd=binary.parent, env=environment, stdin=subprocess.DEVNULL,
                               stdout=None if verbose else subprocess.DEVNULL, start_new_session=True,
                               stderr=None if verbose else subprocess.DEVNULL)
    try:
        status = process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return "too long"
    return None if status == 0 else f"signal {-status}" if status < 0 else "failed"


@dataclasses.dataclass
class Test:
    room: str
    name: str
    seconds: float
    reaches: frozenset


def survey(rooms, binaries, jobs, wanted):
    """Every test case alone, unmutated: its time and the mutations that it reaches."""
    def look(room, name):
        seen = binaries[room].parent / f"seen-{room}-{hashlib.md5(name.encode()).hexdigest()}"
        seen.write_bytes(bytes(SEEN))
        began = time.monotonic()
        trouble = run_tests(binaries[room], [name], 0, 300, seen)
        if trouble:
            return f"without a mutation '{name}' of {room} is {trouble}: it can tell nothing and is left out"
        seconds = time.monotonic() - began
        reaches = frozenset(i for i, byte in enumerate(seen.read_bytes()) if byte)
        seen.unlink()
        return Test(room, name, seconds, reaches)

    names = []
    for room in rooms:
        listed = subprocess.run([binaries[room], "--list-test-names-only", *wanted], capture_output=True, text=True).stdout
        names += [(room, name.strip()) for name in listed.splitlines() if name.strip()]
    with ThreadPoolExecutor(jobs) as pool:
        tests = list(pool.map(lambda n: look(*n), names))
    for trouble in (t for t in tests if isinstance(t, str)):
        print(trouble, flush=True)
    return [t for t in tests if isinstance(t, Test)]


def judge(mutation, tests, binaries, verbose):
    """Runs what reaches the mutation until something notices."""
    reaching = sorted((t for t in tests if mutation.id in t.reaches), key=lambda t: t.seconds)
    if not reaching:
        mutation.outcome = "not reached"
        return
    groups = []
    for room in binaries:
        quick = [t for t in reaching if t.room == room and t.seconds < 1]
        if quick:
            groups.append(quick)
        groups += [[t] for t in reaching if t.room == room and t.seconds >= 1]
    for group in sorted(groups, key=lambda g: sum(t.seconds for t in g)):
        limit = 10 + 5 * sum(t.seconds for t in group)
        trouble = run_tests(binaries[group[0].room], [t.name for t in group], mutation.id, limit, verbose=verbose)
        if trouble:
            mutation.outcome, mutation.detail = "killed", trouble
            return
    mutation.outcome = "survived"


def read_explained():
    """Blocks of `file:`, `function:`, `line:`, `mutation:`, `why:`, apart by an empty line -> {file: {key: why}}."""
    found = collections.defaultdict(dict)
    if EXPLAINED.exists():
        for block in re.split(r"\n\s*\n", EXPLAINED.read_text()):
            lines = [line for line in block.splitlines() if line.strip() and not line.startswith("#")]
            if not lines:
                continue
            fields = {}
            for line in lines:
                name, colon, value = line.partition(": ")
                if colon and name in ("file", "function", "line", "mutation", "why"):
                    fields[name] = value
                else:
                    fields["why"] += " " + line.strip()
            try:
                found[fields["file"]][fields["function"], fields["line"], fields["mutation"]] = fields["why"]
            except KeyError as missing:
                sys.exit(f"{EXPLAINED}: a block lacks {missing}:\n{block}")
    return found


def show(file, mutation):
    print(f"  {mutation.outcome}: transformer/{file.name}:{mutation.line} in {mutation.function}, --only {mutation.id - file.first}\n"
          f"    {mutation.line_text}\n    {mutation.before} -> {mutation.after}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--file", action="append", choices=sorted(FILES), help="only this file (again for more)")
    parser.add_argument("--only", type=int, action="append", help="only the mutation of this number (with one --file)")
    parser.add_argument("--per-file", type=int, default=40, help="so many of a file's mutations, 0 for all (default: 40)")
    parser.add_argument("--seed", type=int, default=1, help="of the choice among them (default: 1)")
    parser.add_argument("--jobs", type=int, default=1, help="mutations tried at once (default: 1)")
    parser.add_argument("--tests", action="append", help="only tests that Catch selects by this, as a new one that is tried")
    parser.add_argument("--list", action="store_true", help="show the mutations, compile and run nothing")
    parser.add_argument("--results", type=pathlib.Path, default=WORK / "results.json", help="what is written at the end")
    parser.add_argument("--verbose", action="store_true", help="the tests' output")
    arguments = parser.parse_args()
    if arguments.only and len(arguments.file or []) != 1:
        parser.error("--only needs one --file")

    WORK.mkdir(parents=True, exist_ok=True)
    flags, explained = commands(), read_explained()
    files = [File(name, flags, arguments.verbose) for name in arguments.file or FILES if (ROOT / "transformer" / name).exists()]
    for file in files:
        for key in set(explained.get(f"transformer/{file.name}", {})) - file.keys:
            print(f"explained.txt: no such mutation of transformer/{file.name} any more: {key}")
        if arguments.list:
            for mutation in file.mutations:
                show(file, mutation)
    if arguments.list:
        return 0

    def passed(what):
        print(f"{what} ({time.monotonic() - began:.0f} s)", flush=True)

    began = time.monotonic()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(File.compile, files))
    passed("compiled")
    rooms = sorted({room for file in files for room in FILES[file.name]})
    temporary = tempfile.TemporaryDirectory(dir=WORK)  # of this run alone; goes with it
    folder = pathlib.Path(temporary.name)
    binaries = {room: link(room, [f for f in files if room in FILES[f.name]], folder) for room in rooms}
    tests = survey(rooms, binaries, arguments.jobs, arguments.tests or [])
    passed("tests pass unmutated")

    rows, results = [], []
    for file in files:
        why = explained.get(f"transformer/{file.name}", {})
        chosen = file.mutations
        if arguments.only:
            chosen = [m for m in chosen if m.id - file.first in arguments.only]
        elif arguments.per_file and len(chosen) > arguments.per_file:
            chosen = random.Random(f"{arguments.seed} {file.name}").sample(chosen, arguments.per_file)
        with ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(lambda m: judge(m, tests, binaries, arguments.verbose), chosen))
        for mutation in chosen:
            if mutation.outcome != "killed" and mutation.key in why:
                mutation.outcome = "explained"
        count = collections.Counter(m.outcome for m in chosen)
        rows.append((file.name, len(file.mutations), len(chosen), count))
        passed(f"{file.name}: {len(chosen)} of {len(file.mutations)} mutations, {count['killed']} killed, "
               f"{count['explained']} explained, {count['survived']} survived, {count['not reached']} not reached")
        for mutation in sorted(chosen, key=lambda m: m.id):
            if mutation.outcome in ("survived", "not reached"):
                show(file, mutation)
            results.append({"file": f"transformer/{file.name}", "function": mutation.function, "line": mutation.line_text,
                            "number": mutation.line, "mutation": mutation.key[2], "id": mutation.id - file.first,
                            "outcome": mutation.outcome, "detail": mutation.detail})
        arguments.results.write_text(json.dumps(results, indent=1))

    print(f"\n{'file':<36}{'exist':>7}{'tried':>7}{'killed':>8}{'explained':>11}{'survived':>10}{'unreached':>11}{'per cent':>10}")
    total = collections.Counter()
    rows.append(("all", sum(r[1] for r in rows), sum(r[2] for r in rows), sum((r[3] for r in rows), total)))
    for name, exist, tried, count in rows:
        good = 100 * (count["killed"] + count["explained"]) / tried if tried else 100
        print(f"{name:<36}{exist:>7}{tried:>7}{count['killed']:>8}{count['explained']:>11}{count['survived']:>10}"
              f"{count['not reached']:>11}{good:>10.1f}")
    return 1 if rows[-1][3]["survived"] + rows[-1][3]["not reached"] else 0


if __name__ == "__main__":
    sys.exit(main())
