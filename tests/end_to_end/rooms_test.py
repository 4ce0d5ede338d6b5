"""Who may know whom: rooms_test.py SOURCE_DIR BUILD_DIR PROGRAM... Standard library only.

The programs are those that do without LibTorch.
"""

import json
import pathlib
import re
import subprocess
import sys
import unittest

SOURCE, BUILD = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
PROGRAMS = [pathlib.Path(program) for program in sys.argv[3:]]

# Room -> the rooms whose headers it may include beside its own.
MAY_KNOW = {
    "base": set(),
    "kernels": set(),
    "text": {"base"},
    "architecture": {"base"},
    "inference": {"base", "kernels", "text", "architecture"},
    "evaluation": {"base", "text"},
    "report": {"base", "text"},
    "sweep": {"base", "report"},
    "interop": {"base", "text", "architecture"},
    "interface": {"base", "text", "architecture", "inference"},
    "serving": {"base", "text", "architecture", "inference", "report"},
    "model": {"base", "kernels", "architecture"},
    "training": {"base", "kernels", "text", "architecture", "model"},
    "decoding": {"base", "text", "architecture", "inference", "model"},
}
WITH_LIBTORCH = {"model", "training", "decoding"}
LIBTORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
# Library -> where alone it may be included.
ONLY_IN = {
    "yaml-cpp/": r"base/document\.cpp",
    "sentencepiece": r"text/.*\.cpp",
    "utf8proc": r"text/.*\.cpp|report/text_width\.cpp|evaluation/lowercase\.cpp",
    "torch/csrc/distributed/": r"training/distributed/.*",
    "nlohmann/": r".*\.cpp",
    "boost/": r"serving/.*\.cpp",
}


def sources(room):
    return [file for file in sorted((SOURCE / "transformer" / room).rglob("*"))
            if file.suffix in (".h", ".cpp", ".inc")]


def includes(file):
    return re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', file.read_text(), re.MULTILINE)


class RoomsTest(unittest.TestCase):
    def test_every_folder_is_a_room(self):
        folders = {folder.name for folder in (SOURCE / "transformer").iterdir() if folder.is_dir()}
        self.assertEqual(folders, set(MAY_KNOW))

    def test_rooms_include_only_what_they_may_know(self):
        for room, known in MAY_KNOW.items():
            for file in sources(room):
                for included in includes(file):
                    with self.subTest(file=str(file.relative_to(SOURCE)), includes=included):
                        if included.startswith("transformer/"):
                            self.assertIn(included.split("/")[1], known | {room})
                        self.assertFalse(included.startswith(("apps/", "tests/")))
                        if room not in WITH_LIBTORCH:
                            self.assertIsNone(LIBTORCH.match(included), "this room does without LibTorch")

    def test_the_picture_of_the_rooms_is_what_they_link(self):
        edges = []
        for line in (BUILD / "rooms.txt").read_text().splitlines():
            room, linked = line.split(":", 1)
            for library in linked.split():
                known = library.removeprefix("transformer_")
                if known == "torch":
                    edges.append(f"  {room} --> LibTorch")
                elif known in MAY_KNOW and known != room:
                    edges.append(f"  {room} --> {known}")
        picture = "<!-- rooms -->\n```mermaid\ngraph BT\n" + "\n".join(sorted(set(edges))) + "\n```\n"
        self.assertIn(picture, (SOURCE / "README.md").read_text(), "README.md: paste what is expected")

    def test_third_parties_stay_in_their_room(self):
        for room in MAY_KNOW:
            for file in sources(room):
                inside = str(file.relative_to(SOURCE / "transformer"))
                for included in includes(file):
                    for library, place in ONLY_IN.items():
                        if included.startswith(library):
                            with self.subTest(file=inside, includes=included):
                                self.assertRegex(inside, f"^({place})$")

    def test_headers_include_nothing_but_libtorch_and_the_standard_library(self):
        # All of them are installed, and a program that includes one need not have what the library is built with.
        headers = {str(file.relative_to(SOURCE)): file for file in (SOURCE / "transformer").rglob("*.h")}
        self.assertGreater(len(headers), 20)
        for header, file in headers.items():
            for name in includes(file):
                known = name in headers or LIBTORCH.match(name) or re.fullmatch(r"[a-z_]+|std(def|int)\.h", name)
                self.assertTrue(known, f"{header} includes {name}")

    def test_headers_for_users_reach_no_table_of_kernels(self):
        headers = {str(file.relative_to(SOURCE)): includes(file) for room in MAY_KNOW for file in sources(room)
                   if file.suffix == ".h"}

        def reached(header):
            found, pending = set(), [header]
            while pending:
                for name in headers.get(pending.pop(), []):
                    if name not in found:
                        found.add(name)
                        pending.append(name)
            return found

        # What computes with them, for the rooms' own sources.
        inner = re.compile(r"transformer/(kernels/.*|inference/(draft_batch|packed_matrix|inference_model|inference_batch|ensemble_batch|weight_source)\.h)")
        for header in headers:
            if not inner.fullmatch(header):
                with self.subTest(header=header):
                    self.assertEqual([name for name in reached(header) if name.startswith("transformer/kernels/")], [])

    def test_rooms_without_libtorch_are_compiled_with_its_headers_absent(self):
        torch = re.search(r"^TRANSFORMER_TORCH_ROOT:INTERNAL=(.+)$", (BUILD / "CMakeCache.txt").read_text(), re.MULTILINE)
        # By the objects' names, as a unity build compiles files of its own: where the target lies, then the target.
        objects = re.compile(r" -o transformer/(?:(\w+)/)?CMakeFiles/transformer_(\w+)\.dir/")
        seen = set()
        for command in json.loads((BUILD / "compile_commands.json").read_text()):
            target = objects.search(command["command"])
            room = target and (target[1] or target[2])
            if room in MAY_KNOW and room not in WITH_LIBTORCH:
                seen.add(room)
                self.assertNotIn("/torch/include", command["command"], command["file"])
                self.assertNotIn(torch[1], command["command"], command["file"])
        self.assertEqual(seen, set(MAY_KNOW) - WITH_LIBTORCH)

    def test_programs_that_do_without_libtorch_do_not_link_it(self):
        self.assertTrue(PROGRAMS)
        for program in PROGRAMS:
            linked = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
            self.assertIn("libstdc++", linked)
            self.assertNotRegex(linked, "libtorch|libc10|libgomp", program.name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
