"""What people rely on who link the library and have no LibTorch: inference_test.py CMAKE COMPILER C_COMPILER FLAGS
SOURCE_DIR BUILD_DIR WITHOUT_BUILD_DIR TORCH TRANSLATE. Standard library only.

Both are installed, the library that was built with LibTorch (BUILD_DIR) and the one without (WITHOUT_BUILD_DIR); no
LibTorch is to be found when outside projects look for them.
"""

import functools
import os
import pathlib
import re
import sys
import tempfile
import unittest

import commands

CMAKE, COMPILER, C_COMPILER, FLAGS, SOURCE, BUILD, WITHOUT, TORCH, TRANSLATE = sys.argv[1:10]
FLAGS = FLAGS.removeprefix("flags").strip()  # CMake's functions drop arguments that are empty
HERE = pathlib.Path(__file__).parent
MODEL = f"{SOURCE}/data/model-en-de"
SENTENCES = "Good morning.\nWhere is the train station?\n\nThe children are playing in the garden.\n"
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"),
               "PYTHONNOUSERSITE": "1"}  # torch may lie there, and is to be missing


run = functools.partial(commands.run, environment=ENVIRONMENT)


class InferenceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name).resolve()
        cls.prefixes = {"with": cls.root / "with", "without": cls.root / "without"}
        for kind, build in (("with", BUILD), ("without", WITHOUT)):
            run(CMAKE, "--install", build, "--prefix", cls.prefixes[kind])
        # Nothing names the LibTorch that one of them was built with any more.
        config = next(cls.prefixes["with"].rglob("transformerConfig.cmake"))
        assert TORCH in config.read_text()
        config.write_text(config.read_text().replace(TORCH, str(cls.root / "gone")))
        cls.expected = run(TRANSLATE, "--model", MODEL, text=SENTENCES)
        assert cls.expected.count("\n") == 4

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def configure(self, project, kind, *arguments, status=0):
        build = self.root / f"{pathlib.Path(project).name}-{kind}{len(list(self.root.iterdir()))}"
        output = run(CMAKE, "-S", HERE / project, "-B", build, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={COMPILER}",
                     f"-DCMAKE_C_COMPILER={C_COMPILER}", f"-DCMAKE_CXX_FLAGS={FLAGS}", f"-DCMAKE_C_FLAGS={FLAGS}",
                     f"-DCMAKE_PREFIX_PATH={self.prefixes[kind]}", *arguments, status=status)
        return build, re.sub(r"\s+", " ", output)

    def assert_translates(self, project, kind):
        build, _ = self.configure(project, kind)
        run(CMAKE, "--build", build)
        linked = run("ldd", build / project)
        self.assertIn("libc.so", linked)
        self.assertNotRegex(linked, "torch|libc10|libgomp|not found")
        self.assertEqual(run(build / project, MODEL, text=SENTENCES), self.expected)
        return linked

    def test_an_outside_program_translates(self):
        for kind in self.prefixes:
            with self.subTest(kind):
                self.assert_translates("outside_inference", kind)

    def test_an_outside_program_in_c_translates(self):
        for kind, prefix in self.prefixes.items():
            with self.subTest(kind):
                linked = self.assert_translates("outside_c", kind)
                self.assertIn(f"{prefix}/lib", linked)

    def test_what_is_missing_is_named(self):
        for kind in self.prefixes:
            _, refused = self.configure("outside_inference", kind, "-DCOMPONENTS=infrence", status=1)
            self.assertIn("there is no component 'infrence'; the components are c, inference and training", refused)
        _, refused = self.configure("outside_inference", "without", "-DCOMPONENTS=inference;training", status=1)
        self.assertIn("the component 'training' is missing: this library was built without LibTorch", refused)
        for wanted in ("training", ""):
            _, refused = self.configure("outside_inference", "with", f"-DCOMPONENTS={wanted}", status=1)
            self.assertRegex(refused, r"LibTorch [0-9.]+ was not found")
        # Without LibTorch, everything is what does without.
        self.configure("outside_inference", "without", "-DCOMPONENTS=")
        # What need not be there does not keep the rest from being found.
        self.configure("outside_inference", "with", "-DCOMPONENTS=inference;OPTIONAL_COMPONENTS;training")

    def test_a_project_keeps_what_is_its_own(self):
        project = self.root / "own"
        project.mkdir()
        (project / "CMakeLists.txt").write_text("""
            cmake_minimum_required(VERSION 3.25)
            project(own LANGUAGES CXX)
            if(FMT)
              add_library(fmt INTERFACE)
              set_target_properties(fmt PROPERTIES VERSION ${FMT})
              add_library(fmt::fmt ALIAS fmt)
            endif()
            find_package(transformer CONFIG REQUIRED COMPONENTS inference)
            if(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
              message(FATAL_ERROR "packages that are found later are not the library's business")
            endif()""")
        self.configure(project, "without")
        _, refused = self.configure(project, "without", "-DFMT=12.1.0", status=1)
        self.assertIn("this project has a target fmt::fmt of its own (version 12.1.0)", refused)

    def test_headers_are_those_of_what_was_built(self):
        rooms = {kind: {room.name for room in (prefix / "include/transformer").iterdir()} for kind, prefix in self.prefixes.items()}
        self.assertEqual(rooms["with"] - rooms["without"], {"decoding", "model", "sweep", "training"})

    def test_what_cpp_programs_need_is_found_without_the_c_library(self):
        prefix = self.root / "development"
        run(CMAKE, "--install", WITHOUT, "--prefix", prefix, "--component", "development")
        self.prefixes["development"] = prefix
        try:
            self.configure("outside_inference", "development", "-DCOMPONENTS=")
            _, refused = self.configure("outside_c", "development", status=1)
            self.assertIn("the component 'c' is missing", refused)
        finally:
            del self.prefixes["development"]


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
