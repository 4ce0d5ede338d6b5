"""Scripts under a linter: lint_test.py FOLDER, by the rules in oxlint.json. Without oxlint the test is skipped."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(sys.argv[1])
RULES = pathlib.Path(__file__).parent / "oxlint.json"

beside = pathlib.Path(sys.executable).parent / "oxlint"
oxlint = str(beside) if beside.exists() else shutil.which("oxlint")
if not oxlint:
    print("skipped: oxlint is neither beside", sys.executable, "nor on PATH; scripts/setup installs it")
    sys.exit(77)

scripts = sorted(FOLDER.rglob("*.js"))
assert scripts, f"no scripts in {FOLDER}"


def lint(files):
    return subprocess.run([oxlint, "--config", RULES, "--deny-warnings", *files], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)


# With rules that it does not know, or files that it does not take for scripts, it would be content with anything.
with tempfile.TemporaryDirectory() as folder:
    wrong = pathlib.Path(folder) / "wrong.js"
    wrong.write_text('"use strict";\nfor (const [name, value] of []) document.titel = nmae;\n')
    done = lint([wrong])
    for mistake in ("'nmae' is not defined", "'value' is declared but never used"):
        assert done.returncode and mistake in done.stdout, done.stdout
done = lint(scripts)
print(done.stdout)
sys.exit(done.returncode)
