"""The wheel that the target `wheel` makes, installed where nothing else is: wheel_test.py CMAKE BUILD_DIR SOURCE_DIR
TRANSLATE. Standard library only."""

import functools
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import venv

import commands

CMAKE, BUILD, SOURCE, TRANSLATE = sys.argv[1:5]
MODEL = f"{SOURCE}/data/model-en-de"
USE = """
import sys, transformer_cpp
with transformer_cpp.Translator(sys.argv[1]) as translator:
    for line in translator.translate(sys.stdin.read().splitlines()):
        print(line[0].text)
"""
SENTENCES = "Good morning.\nWhere is the train station?\n"


run = functools.partial(commands.run, environment={"PATH": "/usr/bin:/bin"}, cwd="/", errors=subprocess.PIPE)


class WheelTest(unittest.TestCase):
    def test_a_wheel_brings_all_it_needs(self):
        built = []
        for _ in range(2):
            run(CMAKE, "--build", BUILD, "--target", "wheel")
            wheel, = pathlib.Path(BUILD, "wheel").glob("*.whl")
            built.append(wheel.read_bytes())
        self.assertEqual(*built, "the same files make another wheel")
        self.assertLess(len(built[0]), 5e6)
        with tempfile.TemporaryDirectory() as folder:
            # pip judges its tag and its record; the environment itself has nothing at all.
            venv.create(folder, with_pip=False)
            python = pathlib.Path(folder, "bin/python")
            run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", wheel)
            self.assertEqual(run(python, "-I", "-c", USE, MODEL, text=SENTENCES),
                             run(TRANSLATE, "--model", MODEL, text=SENTENCES))
            package, = pathlib.Path(folder).glob("lib/python*/site-packages/transformer_cpp")
            linked = run("ldd", package / "lib/libtransformer.so.1")
            for line in linked.splitlines():
                own = any(name in line for name in ("sentencepiece", "fmt", "yaml", "xxhash", "utf8proc", "libz."))
                self.assertEqual(str(package) in line, own, line)
            self.assertIn("libsentencepiece", linked)
            if shutil.which("dpkg-query"):
                information, = pathlib.Path(folder).glob("lib/python*/site-packages/transformer_cpp-*.dist-info")
                licences = {file.name: file.read_text() for file in (information / "licenses/licences").iterdir() if file.is_file()}
                for library in ("libsentencepiece0", "libfmt", "libyaml-cpp", "libxxhash0", "libutf8proc", "zlib1g"):
                    self.assertTrue(any(name.startswith(library) and "opyright" in text for name, text in licences.items()), library)
                listed = re.findall("^License-File: (.*)$", (information / "METADATA").read_text(), re.MULTILINE)
                self.assertLess(len(licences), len(listed))
                for name in listed:
                    self.assertTrue((information / "licenses" / name).is_file(), name)
                try:
                    import packaging.metadata
                except ImportError:
                    return
                metadata = packaging.metadata.Metadata.from_email((information / "METADATA").read_bytes())
                self.assertEqual(metadata.name, "transformer-cpp")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
