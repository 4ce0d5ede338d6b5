"""The packages that cpack makes: archive_test.py CMAKE BUILD_DIR SOURCE_DIR TRANSLATE. Standard library only."""

import functools
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import commands

CMAKE, BUILD, SOURCE, TRANSLATE = sys.argv[1:5]
MODEL = f"{SOURCE}/data/model-en-de"
SENTENCES = "Good morning.\nWhere is the train station?\n"
PROGRAMS = {"attend", "distill", "evaluate", "export", "import", "parse", "report", "serve", "shortlist", "translate",
            "treebank"}
# What a Linux machine with C++ programs has; everything else is brought along, or named.
SYSTEM = re.compile(r"linux-vdso|ld-linux|lib(c|m|stdc\+\+|gcc_s)\.so")


run = functools.partial(commands.run, environment={"PATH": "/usr/bin:/bin"}, cwd="/", errors=subprocess.PIPE)


class ArchiveTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name).resolve()
        shutil.rmtree(pathlib.Path(BUILD, "packages"), ignore_errors=True)
        run(pathlib.Path(CMAKE).parent / "cpack", cwd=BUILD)
        cls.packages = pathlib.Path(BUILD, "packages")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_an_archive_runs_wherever_it_is_unpacked(self):
        archive, = self.packages.glob("*.tar.gz")
        self.assertLess(archive.stat().st_size, 15e6)
        with tarfile.open(archive) as packed:
            packed.extractall(self.root)
        unpacked, = self.root.glob("transformer-*")
        self.assertLess(sum(file.stat().st_size for file in unpacked.rglob("*") if not file.is_symlink()), 40e6)
        self.assertEqual({program.name for program in (unpacked / "bin").iterdir()}, PROGRAMS)
        self.assertTrue((unpacked / "include/transformer/interface/transformer.h").exists())
        self.assertEqual(list(unpacked.rglob("*.a")), [])
        library, = unpacked.glob("lib/libtransformer.so.*")
        for binary in [unpacked / "bin" / name for name in PROGRAMS] + [library]:
            for line in run("ldd", binary).splitlines():
                self.assertEqual(str(unpacked) not in line, bool(SYSTEM.search(line)), f"{binary.name}: {line}")
            self.assertNotIn(BUILD, binary.read_bytes().decode("latin-1"))
        self.assertEqual(run(unpacked / "bin/translate", "--model", MODEL, text=SENTENCES),
                         run(TRANSLATE, "--model", MODEL, text=SENTENCES))

    @unittest.skipUnless(shutil.which("dpkg-deb") and shutil.which("dpkg-shlibdeps"), "this is not Debian")
    def test_a_debian_package_names_what_it_needs(self):
        package, = self.packages.glob("*.deb")
        self.assertLess(package.stat().st_size, 15e6)
        depends = run("dpkg-deb", "--field", package, "Depends")
        for needed in ("libsentencepiece0", "libfmt", "libyaml-cpp", "libxxhash0", "libutf8proc", "zlib1g", "libstdc++6"):
            self.assertIn(needed, depends)
        self.assertNotIn("torch", depends)
        run("dpkg-deb", "--extract", package, self.root / "deb")
        usr = self.root / "deb/usr"
        self.assertEqual({program.name for program in (usr / "bin").iterdir()}, PROGRAMS)
        self.assertEqual([str(file.relative_to(usr)) for file in usr.rglob("*.so*")], ["lib/libtransformer.so.1"])
        self.assertEqual(run(usr / "bin/translate", "--model", MODEL, text=SENTENCES),
                         run(TRANSLATE, "--model", MODEL, text=SENTENCES))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
