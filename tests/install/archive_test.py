"""The packages that cpack makes: archive_test.py CMAKE BUILD_DIR SOURCE_DIR TRANSLATE. Standard library only."""

import hashlib
import json
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


def run(*command, environment={"PATH": "/usr/bin:/bin"}, cwd="/", **options):
    return commands.run(*command, environment=environment, cwd=cwd, errors=subprocess.PIPE, **options)


class ArchiveTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name).resolve()
        shutil.rmtree(pathlib.Path(BUILD, "packages"), ignore_errors=True)
        run(pathlib.Path(SOURCE, "scripts/release"), "--build", BUILD,
            environment={"PATH": f"{pathlib.Path(CMAKE).parent}:/usr/bin:/bin", "SOURCE_DATE_EPOCH": "1700000000"})
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
        self.assertTrue((unpacked / "lib/libtransformer.so").exists())  # that -ltransformer finds
        for binary in [unpacked / "bin" / name for name in PROGRAMS] + [library]:
            for line in run("ldd", binary).splitlines():
                self.assertEqual(str(unpacked) not in line, bool(SYSTEM.search(line)), f"{binary.name}: {line}")
            self.assertNotIn(BUILD, binary.read_bytes().decode("latin-1"))
        self.assertEqual(run(unpacked / "bin/translate", "--model", MODEL, text=SENTENCES),
                         run(TRANSLATE, "--model", MODEL, text=SENTENCES))

    def test_what_is_of_others_comes_with_its_licence_and_is_listed(self):
        archive, = self.packages.glob("*.tar.gz")
        name = archive.name.removesuffix(".tar.gz")
        bill = json.loads((self.packages / f"{name}.spdx.json").read_text())
        self.assertEqual((bill["spdxVersion"], bill["dataLicense"], bill["name"]), ("SPDX-2.3", "CC0-1.0", name))
        self.assertEqual(bill["creationInfo"]["created"], "2023-11-14T22:13:20Z")
        packages = {package["SPDXID"]: package for package in bill["packages"]}
        files = {file["SPDXID"]: file for file in bill["files"]}
        names = {*packages, *files, bill["SPDXID"]}
        self.assertEqual(len(names), len(bill["packages"]) + len(bill["files"]) + 1)
        for relation in bill["relationships"]:
            self.assertLessEqual({relation["spdxElementId"], relation["relatedSpdxElement"]}, names)
        with tarfile.open(archive) as packed:
            members = {member.name: member for member in packed if member.isfile()}
            read = lambda file: packed.extractfile(members[f"{name}/{file}"]).read()
            licences = f"{name}/share/doc/transformer/licences/"
            for package in packages.values():
                self.assertNotIn("NOASSERTION", package["licenseDeclared"], package["name"])
                if package["name"] == "transformer" or package["licenseDeclared"] == "BSL-1.0":
                    continue
                text = packed.extractfile(members[licences + package["name"]]).read().decode()
                self.assertIn("opyright", text)
                for common in re.findall(r"/usr/share/common-licenses/([\w.+-]*\w)", text):
                    self.assertIn(f"{licences}common/{common}", members)
            # Every library that is packed, and no other, with its own bytes.
            brought = {member for member in members if re.search(r"\.so\b", member) and "libtransformer" not in member}
            self.assertEqual(brought, {f"{name}/{file['fileName'].removeprefix('./')}" for file in files.values()})
            for file in files.values():
                sums = {entry["algorithm"]: entry["checksumValue"] for entry in file["checksums"]}
                content = read(file["fileName"].removeprefix("./"))
                self.assertEqual(sums, {"SHA1": hashlib.sha1(content).hexdigest(),
                                        "SHA256": hashlib.sha256(content).hexdigest()})
        self.assertLessEqual({"libsentencepiece0", "nlohmann-json3-dev"}, {package["name"] for package in bill["packages"]})
        listed = run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=self.packages).splitlines()
        self.assertEqual({line.removesuffix(": OK") for line in listed},
                         {file.name for file in self.packages.iterdir()} - {"SHA256SUMS"})

    def test_a_release_that_cannot_be_is_refused(self):
        for arguments in (["--build", self.root / "nothing"], ["--build"], ["more"]):
            run(SOURCE + "/scripts/release", *arguments, status=2)

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
        # /usr/bin/import is a name that ImageMagick has.
        names = {"transformer-import" if name == "import" else name for name in PROGRAMS}
        self.assertEqual({program.name for program in (usr / "bin").iterdir()}, names)
        self.assertEqual({page.name.split(".")[0] for page in (usr / "share/man/man1").iterdir()}, names)
        page = (usr / "share/man/man1/transformer-import.1").read_text()
        self.assertIn(".B transformer\\-import", page)
        self.assertIn("transformer\\-import --from", page.replace("\\-\\-", "--"))
        self.assertEqual({file.name for file in (usr / "share/bash-completion/completions").iterdir()}, names - {"export"})
        self.assertEqual(sorted(str(file.relative_to(usr)) for file in usr.rglob("*.so*")), ["lib/libtransformer.so", "lib/libtransformer.so.1"])
        # Debian's package of that name has the same program.
        self.assertEqual(run("dpkg-deb", "--field", package, "Conflicts").strip(), "translate")
        # What is compiled in comes with its licence; everything else is of packages that bring theirs.
        licences = usr / "share/doc/transformer/licences"
        self.assertEqual({file.name for file in licences.iterdir() if file.is_file()}, {"libcli11-dev", "nlohmann-json3-dev"})
        self.assertIn("opyright", (licences / "libcli11-dev").read_text())
        self.assertEqual(run(usr / "bin/translate", "--model", MODEL, text=SENTENCES),
                         run(TRANSLATE, "--model", MODEL, text=SENTENCES))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
