"""What people who link the library rely on: install_test.py CMAKE BUILD_TYPE COMPILER FLAGS SOURCE_DIR BUILD_DIR
TORCH TRANSLATE. Standard library only.

The built tree is installed and moved; an outside project finds it, is built and run. Then one takes the sources in.
"""

import functools
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import commands

CMAKE, BUILD_TYPE, COMPILER, FLAGS, SOURCE, BUILD, TORCH, TRANSLATE = sys.argv[1:9]
HERE = pathlib.Path(__file__).parent
MODEL = f"{SOURCE}/data/model-en-de"
SENTENCES = "Good morning.\nWhere is the train station?\n\nThe children are playing in the garden.\n"

# Neither LibTorch nor compiler settings come from whoever runs this test.
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ("VIRTUAL_ENV", "CONDA_PREFIX", "CMAKE_PREFIX_PATH", "Torch_DIR", "transformer_DIR",
                               "CXXFLAGS", "LDFLAGS", "CMAKE_GENERATOR")}
ENVIRONMENT["OMP_NUM_THREADS"] = "1"


run = functools.partial(commands.run, environment=ENVIRONMENT)
run_quietly = functools.partial(run, errors=subprocess.DEVNULL)


def included(text):
    """What a source file includes, without quotes or brackets."""
    return re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', text, re.MULTILINE)


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name).resolve()
        cls.first = cls.root / "installed-first"
        run(CMAKE, "--install", BUILD, "--prefix", cls.first)
        cls.prefix = cls.root / "moved"
        cls.first.rename(cls.prefix)
        cls.include = cls.prefix / "include"
        cls.headers = {str(file.relative_to(cls.include)): file.read_text()
                       for file in sorted((cls.include / "transformer").rglob("*.h"))}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def all_included(self, header):
        """What `header` includes, with what headers of ours that it includes do."""
        found, pending = set(), [header]
        while pending:
            for name in included(self.headers.get(pending.pop(), "")):
                if name not in found:
                    found.add(name)
                    pending.append(name)
        return found

    def proven_headers(self):
        """The headers that the library's own build has compiled alone: what a source file includes before all else,
        without a precompiled header or another source file in front of it."""
        commands = json.loads(pathlib.Path(BUILD, "compile_commands.json").read_text())
        alone = (pathlib.Path(entry["file"]) for entry in commands if "cmake_pch" not in entry["command"])
        return {header for file in alone if file.is_relative_to(f"{SOURCE}/transformer")
                for header in included(file.read_text())[:1]}

    def outside_project(self, name):
        """A copy of the outside project, with a source file for every header that is not proven, and one for all."""
        project = self.root / name
        shutil.copytree(HERE / "outside", project)
        sources = {header: self.all_included(header) for header in self.headers}
        for header in sources.keys() - self.proven_headers():
            inclusions = sources[header]
            # LibTorch comes first and precompiled where that hides nothing: the header includes it all, or all of ATen
            # and uses no more.
            hides_nothing = "torch/nn/module.h" in inclusions or (
                "ATen/ATen.h" in inclusions and not re.search(r"\btorch::|\bTORCH_", self.headers[header]))
            kind = "headers_with_torch" if hides_nothing else "headers"
            (project / kind).mkdir(exist_ok=True)
            (project / kind / (header.replace("/", "_") + ".cpp")).write_text(f"#include <{header}>\n")
        # Twice, because a header may be included twice.
        (project / "headers_with_torch/all.cpp").write_text("".join(f"#include <{header}>\n" for header in sources) * 2)
        return project

    def configure(self, project, *arguments, status=0):
        return run(CMAKE, "-S", project, "-B", f"{project}-build", "-G", "Ninja",
                   f"-DCMAKE_CXX_COMPILER={COMPILER}", f"-DCMAKE_CXX_FLAGS={FLAGS}",
                   "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *arguments, status=status)

    def assert_no_build_paths(self, text, where):
        """No folder of this build's machine but the LibTorch it was built with."""
        text = text.replace(TORCH, "")
        for folder in (SOURCE, BUILD, str(self.first)):
            self.assertNotIn(folder, text, where)

    def test_what_is_installed(self):
        sources = {str(file.relative_to(SOURCE)) for file in pathlib.Path(SOURCE, "transformer").rglob("*.h")}
        self.assertEqual(set(self.headers), sources)
        self.assertGreater(len(sources), 20)
        programs = {file.name for file in (self.prefix / "bin").iterdir()}
        self.assertLessEqual({"train", "translate", "evaluate"}, programs)
        self.assertTrue(all("test" not in name and "benchmark" not in name for name in programs), programs)
        self.assertEqual(len(list(self.prefix.rglob("LICENSE"))), 1)

    def test_no_path_of_the_build_is_installed(self):
        for file in self.prefix.rglob("*"):
            # Debug information names sources.
            binary = file.suffix == ".a" or ".so" in file.name or file.parent.name == "bin"
            if file.is_symlink():
                self.assertNotIn("/", os.readlink(file), file)
            elif file.is_file() and not (binary and BUILD_TYPE != "Release"):
                self.assert_no_build_paths(file.read_bytes().decode("latin-1"), file)

    def test_an_outside_program_builds_and_runs(self):
        project = self.outside_project("outside")
        found = f"-DCMAKE_PREFIX_PATH={self.prefix}"
        self.configure(project, found)
        build = pathlib.Path(f"{project}-build")

        # None of this project's compiler settings reach it.
        commands = json.loads((build / "compile_commands.json").read_text())
        for command in (entry["command"] for entry in commands):
            for setting in ("ccache", "-Wall", "-Werror", "-fmacro-prefix-map", "-fpch-preprocess", " -O"):
                self.assertNotIn(setting, command.replace(FLAGS, ""))
        self.assertNotIn("-fuse-ld", (build / "build.ninja").read_text().replace(FLAGS, ""))

        run(CMAKE, "--build", build, "--parallel", 2)
        self.assert_no_build_paths((build / "build.ninja").read_text(), "build.ninja")
        self.assert_no_build_paths(run("ninja", "-C", build, "-t", "deps"), "what was read to build it")
        expected = run(TRANSLATE, "--model", MODEL, text=SENTENCES)
        self.assertEqual(expected.count("\n"), 4)
        self.assertEqual(run(build / "outside", MODEL, text=SENTENCES), expected)
        self.assertEqual(run(self.prefix / "bin/translate", "--model", MODEL, text=SENTENCES), expected)

        # Modules for GPUs lie beside the installed programs, and a program of somebody else's knows where.
        self.assertIn(str(self.prefix / "bin"), run("readelf", "-d", build / "outside"))
        self.trains(build)

        # Another LibTorch is refused, with what to do.
        other = self.root / "libtorch"
        (other / "lib").mkdir(parents=True)
        (other / "lib/libtorch_cpu.so").touch()
        (other / "build-version").write_text("1.13.0+cpu\n")
        refused = self.configure(project, f"-DTorch_DIR={other}/share/cmake/Torch", status=1)
        for part in ("1.13.0", str(other), "-DTorch_DIR=/path/to/libtorch"):
            self.assertIn(part, re.sub(r"\s+", " ", refused))
        # So is another version of this library.
        config = (project / "CMakeLists.txt").read_text()
        (project / "CMakeLists.txt").write_text(config.replace("transformer 0.1", "transformer 0.2"))
        self.assertIn("0.2", self.configure(project, "-DTorch_DIR=", status=1))

    def trains(self, build):
        """Programs that train with tasks of their own: what they learn, how they go on, and in two processes."""
        text = self.root / "text"
        text.write_bytes(gzip.decompress(pathlib.Path(SOURCE, "data/tatoeba-en-de/valid.en.gz").read_bytes()))
        for name, arguments, steps, learned in (("copy_task", (), 400, lambda accuracy: accuracy > 0.95),
                                                ("language_model", (text,), 100, lambda perplexity: perplexity < 20),
                                                ("classifier", (), 150, lambda accuracy: accuracy > 0.9)):
            def train(run, steps, *more):
                printed = run_quietly(build / name, self.root / name / run, steps, *arguments, *more)
                checkpoint = self.root / name / run / f"checkpoints/step-{steps:08}"
                files = {file: (checkpoint / file).read_bytes() for file in ("model.safetensors", "optimizer.safetensors")}
                return float(printed.split()[-1]), files

            with self.subTest(name):
                figure, whole = train("whole", steps)
                self.assertTrue(learned(figure), figure)
                train("parts", steps // 3 + 1)
                self.assertEqual(train("parts", steps)[1], whole)
                figure, two = train("two", steps, "--processes", 2)
                self.assertTrue(learned(figure), figure)
                train("two_parts", steps // 3 + 1, "--processes", 2)
                self.assertEqual(train("two_parts", steps, "--processes", 2)[1], two)

    def test_an_outside_project_takes_the_sources_in(self):
        project = self.outside_project("taking")
        with open(project / "CMakeLists.txt", "a") as config:
            config.write("""
foreach(name CMAKE_CXX_COMPILER_LAUNCHER CMAKE_RUNTIME_OUTPUT_DIRECTORY CMAKE_BUILD_TYPE)
  if(NOT "${${name}}" STREQUAL "")
    message(SEND_ERROR "${name} is ${${name}}")
  endif()
endforeach()
foreach(property COMPILE_OPTIONS LINK_OPTIONS COMPILE_DEFINITIONS INCLUDE_DIRECTORIES)
  get_directory_property(value ${property})
  if(NOT "${value}" STREQUAL "")
    message(SEND_ERROR "${property} is ${value}")
  endif()
endforeach()
foreach(target transformer::transformer transformer::decoding)
  if(NOT TARGET ${target})
    message(SEND_ERROR "${target} is no target")
  endif()
endforeach()
""")
        # Files of its own are nobody's else, whatever they are called.
        modules = self.root / "modules"
        modules.mkdir()
        for file in pathlib.Path(SOURCE, "cmake").glob("*.cmake"):
            (modules / file.name).write_text('message(FATAL_ERROR "another project\'s")\n')
        self.configure(project, f"-DTRANSFORMER_SOURCE={SOURCE}", f"-DCMAKE_MODULE_PATH={modules}")
        build = pathlib.Path(f"{project}-build")
        # Building a program builds the modules for GPUs, and it knows where they lie.
        bin = build / "transformer/bin"
        built = run("ninja", "-C", build, "-t", "commands", "outside")
        self.assertIn("-o transformer/bin/transformer_modules.so", built)
        self.assertIn(f"-Xlinker -rpath={bin}", built.splitlines()[-1])
        outputs = run("ninja", "-C", build, "-t", "targets", "all")
        self.assertIn("libtransformer_decoding.a", outputs)
        for absent in ("translate:", "base_tests", "benchmark", "catch_main"):
            self.assertNotIn(absent, outputs)
        run(CMAKE, "--install", build, "--prefix", self.root / "nothing")
        self.assertFalse((self.root / "nothing").exists())
        self.assertFalse((build / "CTestTestfile.cmake").exists())
        for entry in json.loads((build / "compile_commands.json").read_text()):
            if pathlib.Path(entry["file"]).is_relative_to(project):
                self.assertNotRegex(entry["command"].replace(FLAGS, ""), "-Wall|-Werror|-fpch-preprocess|ccache")
        # Programs that are wanted, too, lie beside their modules.
        self.configure(project, "-DTRANSFORMER_APPS=ON")
        outputs = run("ninja", "-C", build, "-t", "targets", "all")
        for file in ("translate", "train", "transformer_modules.so"):
            self.assertIn(f"\ntransformer/bin/{file}: ", outputs)

    def test_folders_have_commas_and_any_depth(self):
        project = self.root / "copied, here"
        project.mkdir()
        for name in ("CMakeLists.txt", "LICENSE", "apps", "cmake", "transformer"):
            (project / name).symlink_to(f"{SOURCE}/{name}")
        folders = ("-DCMAKE_INSTALL_BINDIR=libexec/transformer/bin", f"-DCMAKE_INSTALL_LIBDIR={self.root}/prefix/lib")
        self.configure(project, "-DTRANSFORMER_LIBTORCH=OFF", "-DTRANSFORMER_TESTS=OFF",
                       f"-DCMAKE_INSTALL_PREFIX={self.root}/prefix", *folders)
        build = f"{project}-build"
        linked = run("ninja", "-C", build, "-t", "commands", "transformer_c").splitlines()[-2:]
        self.assertIn(f'-Xlinker "--version-script={project}/transformer/interface/exports.map"', "".join(linked))
        self.assertIn("$ORIGIN/../../../lib", pathlib.Path(build, "apps/cmake_install.cmake").read_text())
        self.assertIn("${CMAKE_CURRENT_LIST_DIR}/../../../libexec/transformer/bin",
                      pathlib.Path(build, "transformerConfig.cmake").read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
