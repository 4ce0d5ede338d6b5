"""What programs say of themselves, in --help, man pages and completions: manual_test.py PROGRAM..."""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

PROGRAMS = [pathlib.Path(program) for program in sys.argv[1:]]
BY_NAME = {program.name: program for program in PROGRAMS}


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def options(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text))


def declared(help_text):
    """The options that a --help lists: at the beginning of a line."""
    return set(re.findall(r"^  (?:-\w,)?(--[a-z][a-z0-9-]*)", help_text, re.M))


def commands(help_text):
    part = help_text.partition("Subcommands:")[2].partition("Examples:")[0]
    return re.findall(r"^  (\w+)", part, re.M)


class ManualTest(unittest.TestCase):
    def each(self):
        self.assertGreater(len(PROGRAMS), 5)
        for program in PROGRAMS:
            yield program, run(program, "--help")

    def test_help_ends_with_two_examples_of_options_that_there_are(self):
        for program, text in self.each():
            lines = text.partition("Examples:\n")[2].strip("\n").splitlines()
            self.assertGreaterEqual(len(lines), 2, text)
            for line in lines:
                words = line.split()
                self.assertEqual(words[0], program.name)
                known = declared(text)
                if words[1] in commands(text):
                    known |= declared(run(program, words[1], "--help"))
                self.assertLessEqual(options(line), known)
                self.assertLess(len(line), 100)

    def test_every_command_ends_with_two_examples_of_its_own(self):
        count = 0
        for program, text in self.each():
            for command in commands(text):
                own = run(program, command, "--help")
                lines = own.partition("Examples:\n")[2].strip("\n").splitlines()
                self.assertGreaterEqual(len(lines), 2, own)
                for line in lines:
                    self.assertLess(len(line), 100)
                    parts = [part.split() for part in line.split("|")]
                    self.assertIn([program.name, command], [part[:2] for part in parts])
                    for name, *words in parts:
                        if name not in BY_NAME:  # gzip, head
                            continue
                        known = declared(own) if [name, words[0]] == [program.name, command] else declared(run(BY_NAME[name], "--help"))
                        self.assertLessEqual(options(" ".join(words)), known)
                count += 1
        self.assertGreater(count, 10)

    def test_files_and_folders_are_called_so(self):
        named = {"--model": ("DIR",), "--device": ("DEVICE",), "--input": ("FILE",), "--source": ("FILE",),
                 "--target": ("FILE",), "--shortlist": ("FILE",), "--output": ("FILE", "DIR")}
        found = set()
        for program, text in self.each():
            for shown in [text] + [run(program, command, "--help") for command in commands(text)]:
                for option, value in re.findall(r"^  (--[a-z-]+) (\S+)", shown, re.M):
                    if option in named:
                        self.assertTrue(value.startswith(named[option]), f"{program.name} {option} {value}")
                        found.add(option)
        self.assertEqual(found, set(named))

    def test_man_pages_have_every_option_and_groff_has_nothing_to_say(self):
        for program, text in self.each():
            page = run(program, "--man")
            self.assertTrue(page.startswith(f".TH {program.name.upper()} 1 "), page[:80])
            known = declared(text)
            for command in commands(text):
                self.assertIn(f"\n.SS {command}\n", page)
                known |= declared(run(program, command, "--help"))
            self.assertLessEqual(known, options(re.sub(r"\\f[BIR]", "", page).replace("\\-", "-")), program)
            if shutil.which("groff"):
                done = subprocess.run(["groff", "-man", "-ww", "-Kutf8", "-Tutf8"], input=page, capture_output=True,
                                      text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn("EXIT STATUS", re.sub(".\x08", "", done.stdout))

    def completed(self, program, *words):
        """What bash offers for the last of `words`."""
        script = run(program, "--completion", "bash")
        self.assertEqual(run(program, "--completion=bash"), script)
        name = program.name
        script += f'\nCOMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _transformer_{name}; printf "%s\\n" "${{COMPREPLY[@]}}"\n'
        done = subprocess.run(["bash", "-euc", script, "bash", name, *words], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.split()

    def test_completion_offers_what_is_declared(self):
        for program, text in self.each():
            self.assertLessEqual(declared(text), set(self.completed(program, "-")))
            for command in commands(text):
                self.assertIn(command, self.completed(program, command[:2]))
                self.assertLessEqual(declared(run(program, command, "--help")), set(self.completed(program, command, "-")))

    def test_completion_of_values(self):
        translate, evaluate = BY_NAME["translate"], BY_NAME["evaluate"]
        self.assertEqual(self.completed(translate, "--precision", "b"), ["bf16"])
        self.assertEqual(self.completed(translate, "--model", "x", "--stop", ""), ["exact", "beam_finished"])
        self.assertEqual(self.completed(translate, "--model", ""), [])  # files, by bash itself
        self.assertEqual(self.completed(translate, "--batch"), ["--batch-sentences"])
        self.assertEqual(self.completed(evaluate, "bleu", "--tokenize", "1"), ["13a"])
        self.assertEqual(self.completed(evaluate, "mbr", "--metric", "chrf"), ["chrf", "chrf++"])
        self.assertEqual(self.completed(evaluate, "perplexity", "--tok"), [])

    def test_other_arguments_are_mistakes(self):
        for arguments in (("--man", "x"), ("--completion",), ("--completion", "zsh")):
            done = subprocess.run([BY_NAME["translate"], *arguments], capture_output=True, text=True)
            self.assertEqual(done.returncode, 2, done.stdout)
        for name, *arguments in (("--man", "--man", "bleu"), ("--man", "bleu", "--man"),
                                 ("--completion", "--completion", "bash", "bleu"), ("--completion", "--version", "--completion=bash")):
            done = subprocess.run([BY_NAME["evaluate"], *arguments], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr),
                             (2, f"evaluate: error: {name}: stands alone; leave out what else was given\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
