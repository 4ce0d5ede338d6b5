"""What people find around the code: repository_test.py SOURCE_DIR VERSION."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

import yaml

SOURCE, VERSION = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
GITHUB = SOURCE / ".github"


def pages():
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=SOURCE, capture_output=True, text=True)
    names = listed.stdout.split() if listed.returncode == 0 else [str(file.relative_to(SOURCE)) for pattern in ("*.md", "*/*.md") for file in SOURCE.glob(pattern)]
    return [file for file in (SOURCE / name for name in names) if file.exists()]


def anchors(text):
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    return {re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-")
            for head in re.findall(r"^#+ (.*)$", text, re.M)}


class RepositoryTest(unittest.TestCase):
    def test_links_lead_somewhere(self):
        count = 0
        for page in pages():
            for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.S)):
                with self.subTest(page=str(page.relative_to(SOURCE)), link=link):
                    path, _, anchor = link.partition("#")
                    target = page.parent / path if path else page
                    self.assertTrue(target.exists())
                    if anchor:
                        self.assertIn(anchor, anchors(target.read_text()))
                count += 1
        self.assertGreater(count, 20)

    def test_workflows_run_what_there_is(self):
        presets = (SOURCE / "CMakePresets.json").read_text()
        for file in (GITHUB / "workflows").glob("*.yml"):
            workflow = yaml.safe_load(file.read_text())
            self.assertIn("jobs", workflow)
            for name, job in workflow["jobs"].items():
                with self.subTest(job=name):
                    self.assertLess(job["timeout-minutes"], 360)
                    for step in job["steps"]:
                        self.assertTrue(("run" in step) != ("uses" in step), step)
                        for script in re.findall(r"(?:scripts|\.ci)/[\w-]+", step.get("run", "")):
                            self.assertTrue((SOURCE / script).exists(), script)
                        for preset in re.findall(r"--preset (\w+)", step.get("run", "")):
                            self.assertIn(f'"name": "{preset}"', presets)

    def test_scripts_say_what_they_are_for(self):
        scripts = [file for file in (SOURCE / "scripts").iterdir() if file.read_bytes().startswith(b"#!")]
        self.assertGreater(len(scripts), 8)
        for script in scripts:
            with self.subTest(script=script.name):
                done = subprocess.run([script, "--help"], capture_output=True, text=True, timeout=60,
                                      env=dict(os.environ, PYTHON=sys.executable))
                self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
                self.assertIn(f"scripts/{script.name}", done.stdout)

    def test_scripts_refuse_arguments_that_they_do_not_take(self):
        for script, *arguments in (("demo", "--unknown"), ("demo", ""), ("build", "--unknown"), ("build", "translate", "-x"),
                                   ("build", ""), ("setup", "--unknown"), ("setup", ""), ("setup", "--build", ""),
                                   ("aarch64", ""), ("aarch64", "--if-possible", "x"), ("gpu", ""), ("gpu", "--unknown"),
                                   ("lint", ""), ("lint", "apps", "--unknown"), ("fuzz", ""), ("jobs", "1500", ""),
                                   ("jobs", "1500", "/missing"), ("jobs", "--cores", "")):
            with self.subTest(script=script, arguments=arguments):
                done = subprocess.run([SOURCE / "scripts" / script, *arguments], capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)

    def test_fuzzing_targets_are_listed_by_name(self):
        listed = subprocess.run([SOURCE / "scripts" / "fuzz"], capture_output=True, text=True, check=True).stdout
        targets = {file.stem for file in (SOURCE / "tests" / "fuzz").glob("*.cpp")}
        names = [line.split()[0] for line in listed.splitlines()]
        self.assertEqual(len(names), len(set(names)))
        self.assertLessEqual(set(names), targets)
        self.assertGreater(len(names), 28)
        for line in listed.splitlines():
            self.assertRegex(line, r"^[a-z0-9_]+ +[A-Za-z].*\.$")

    def test_as_many_compilers_run_as_memory_holds(self):
        def jobs(folder, *arguments, **environment):
            known = {name: value for name, value in os.environ.items() if name != "CMAKE_BUILD_PARALLEL_LEVEL"}
            done = subprocess.run([SOURCE / "scripts" / "jobs", *(arguments or ("1500", folder))], capture_output=True,
                                  text=True, env=dict(known, OMP_NUM_THREADS="3", **environment))  # which nproc follows
            return done.returncode, done.stdout.strip(), done.stderr

        gigabyte = 10**9
        unlimited = 9223372036854771712
        for available, swap, files, wanted, remark in (
                (64, 0, {}, 16, ""),
                (7, 0, {}, 4, ""),
                (64, 0, {"memory.max": "max"}, 16, ""),
                (64, 0, {"memory.max": 4 * gigabyte}, 2, ""),  # a container's own group is its root
                (64, 0, {"job/a/memory.max": 3 * gigabyte}, 2, ""),
                (64, 0, {"memory/memory.limit_in_bytes": unlimited}, 16, ""),
                (64, 0, {"memory/memory.limit_in_bytes": unlimited, "memory/old/memory.limit_in_bytes": 2 * gigabyte}, 1, ""),
                (3, 0, {"memory.max": 8 * gigabyte}, 2, ""),
                (1, 8, {}, 1, ""),
                (1, 0, {}, 1, "jobs: 1000 MB of memory are free, and a compiler takes up to 1500 MB")):
            with self.subTest(available=available, files=files), tempfile.TemporaryDirectory() as folder:
                root = pathlib.Path(folder)
                (root / "proc" / "self").mkdir(parents=True)
                (root / "proc" / "meminfo").write_text(
                    f"MemTotal: 99 kB\nMemAvailable: {available * 1000000} kB\nSwapFree: {swap * 1000000} kB\n")
                (root / "proc" / "cpuinfo").write_text("".join(f"processor\t: {core}\nflags\t\t: sse2\n\n" for core in range(16)))
                (root / "proc" / "self" / "cgroup").write_text("4:memory:/old\n0::/job/a\n")
                for name, text in files.items():
                    file = root / "sys" / "fs" / "cgroup" / name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(f"{text}\n")
                status, answer, message = jobs(folder)
                self.assertEqual((status, answer), (0, str(wanted)))
                self.assertEqual(message.count("\n"), 1 if remark else 0)
                self.assertTrue(message.startswith(remark), message)
                self.assertEqual(jobs(folder, CMAKE_BUILD_PARALLEL_LEVEL="7"), (0, "7", ""))
        self.assertEqual(jobs("", "many")[0], 2)
        for level in ("many", "0", "-1"):
            status, _, message = jobs("", "1500", CMAKE_BUILD_PARALLEL_LEVEL=level)
            self.assertEqual(status, 2)
            self.assertIn(f"CMAKE_BUILD_PARALLEL_LEVEL takes a number from 1 on, found '{level}'", message)
        self.assertRegex(jobs("", "1500")[1], r"^\d+$")  # of this machine
        status, cores, _ = jobs("", "--cores")
        self.assertEqual((status, 1 <= int(cores) <= len(os.sched_getaffinity(0))), (0, True), cores)
        self.assertEqual(jobs("", "--cores", "more")[0], 2)

    def test_an_environment_of_somebody_elses_is_left_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            shutil.copytree(SOURCE / "scripts", root / "scripts")
            (root / ".venv" / "bin").mkdir(parents=True)
            (root / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
            known = {name: value for name, value in os.environ.items()
                     if name not in ("VIRTUAL_ENV", "CONDA_PREFIX", "CMAKE_PREFIX_PATH", "Torch_DIR")}
            done = subprocess.run([root / "scripts" / "setup"], capture_output=True, text=True,
                                  env=dict(known, PATH="/usr/bin:/bin"))
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(f"{root}/.venv was not made by this script", done.stderr)
            self.assertEqual({file.name for file in (root / ".venv").iterdir()}, {"bin", "pyvenv.cfg"})

    def test_issue_forms_are_forms(self):
        forms = [file for file in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if file.name != "config.yml"]
        self.assertGreaterEqual(len(forms), 2)
        for file in forms:
            with self.subTest(form=file.name):
                form = yaml.safe_load(file.read_text())
                self.assertLessEqual({"name", "description", "body"}, set(form))
                names = [part["id"] for part in form["body"]]
                self.assertEqual(len(names), len(set(names)))
                for part in form["body"]:
                    self.assertIn(part["type"], ("textarea", "input", "dropdown", "checkboxes"))
                    self.assertIn("label", part["attributes"])

    def test_where_there_is_no_gpu_its_script_says_so(self):
        def refused(status, *arguments):
            done = subprocess.run([SOURCE / "scripts" / "gpu", *arguments], capture_output=True, text=True,
                                  env=dict(os.environ, PYTHON=sys.executable))
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (status, "", 1), done.stderr)
            return done.stderr

        self.assertIn("unknown argument '--unknown'", refused(2, "--unknown"))
        if pathlib.Path("/dev/nvidiactl").exists():
            self.skipTest("this machine has a GPU")
        self.assertIn("this machine has no GPU that torch can use; nothing was tested", refused(1))

    def test_what_the_gpus_script_packs_is_whole_wherever_it_goes(self):
        with tempfile.TemporaryDirectory() as folder:
            root, there = pathlib.Path(folder, "a: root's $HOME"), pathlib.Path(folder, "there")
            program = root / "build/release/bin/train"
            for file in ("scripts/gpu", "benchmarks/gpu.py", "benchmarks/peers/a.py", "tests/gpu/a.py", "LICENSE",
                         "data/model-en-de/a", "data/tatoeba-en-de/a", "build/release/bin/train"):
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                (root / file).write_text("a\n")
            there.mkdir()
            shutil.copy(SOURCE / "scripts" / "gpu", root / "scripts" / "gpu")
            for name in ("train", "translate", "train_worker", "transformer_modules.so", "transformer_nccl.so"):
                shutil.copy("/bin/true", program.parent / name)

            def pack(**environment):
                return subprocess.run([root / "scripts" / "gpu", "--pack", "host:odd name.tar.gz"], capture_output=True,
                                      text=True, cwd=there, env=dict(os.environ, **environment))

            done = pack()
            self.assertEqual(done.returncode, 0, done.stderr)
            archive = there / "host:odd name.tar.gz"
            self.assertEqual(list(there.iterdir()), [archive])
            with tarfile.open(archive) as packed:
                names = packed.getnames()
            self.assertIn("transformer-gpu/build/release/bin/train_worker", names)
            self.assertIn("transformer-gpu/tests/gpu/a.py", names)
            # One that cannot be written whole replaces nothing.
            before = archive.read_bytes()
            (root / "tar").write_text('#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in -*f) echo half >"$2";; esac; shift; done\n'
                                      "exit 1\n")
            (root / "tar").chmod(0o755)
            # PATH cannot name a folder with a colon.
            (there.parent / "bin").mkdir()
            (root / "tar").rename(there.parent / "bin" / "tar")
            self.assertNotEqual(pack(PATH=f"{there.parent}/bin:{os.environ['PATH']}").returncode, 0)
            self.assertEqual((list(there.iterdir()), archive.read_bytes()), ([archive], before))

    def test_packages_of_others_are_no_release(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = pathlib.Path(folder, "packages", "thesis")
            kept.parent.mkdir()
            kept.write_text("kept")
            pathlib.Path(folder, "CMakeCache.txt").write_text(
                f"CMAKE_PROJECT_NAME:STATIC=other\nCMAKE_PROJECT_VERSION:STATIC={VERSION}\n")
            for build in (".", folder):
                done = subprocess.run([SOURCE / "scripts" / "release", "--build", build], capture_output=True, text=True,
                                      cwd=folder)
                self.assertEqual((done.returncode, kept.exists()), (2, True), done.stderr)
                self.assertIn(f"there is no build of this in {folder}", done.stderr)

    def test_the_change_log_begins_with_this_version(self):
        versions = re.findall(r"^## (\d+\.\d+\.\d+)$", (GITHUB / "CHANGELOG.md").read_text(), re.M)
        self.assertEqual(versions[0], VERSION)
        order = [tuple(map(int, version.split("."))) for version in versions]
        self.assertEqual(order, sorted(order, reverse=True))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
