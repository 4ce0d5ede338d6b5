"""The Python package over the C interface: python_test.py PACKAGE_FOLDER LIBRARY TRANSLATE SOURCE_DIR. Standard library
only."""

import copy
import ctypes
import gc
import multiprocessing
import os
import pathlib
import pickle
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PACKAGE, LIBRARY, TRANSLATE, SOURCE = sys.argv[1:5]
MODEL = pathlib.Path(SOURCE, "data/model-en-de")
LINES = ["Good morning.", "Where is the train station?", "", "The children are playing in the garden.", "Café or tea?"]
os.environ["TRANSFORMER_LIBRARY"] = LIBRARY
sys.path[:0] = [PACKAGE, str(pathlib.Path(SOURCE, "tests/end_to_end"))]

from transformer_cpp import Failure, Mistake, Translation, Translator, TransformerError, version  # noqa: E402
from transformer_cpp import library as declared  # noqa: E402
from toy import write_draft  # noqa: E402


def program(*arguments, lines=LINES):
    return subprocess.run([TRANSLATE, "--model", MODEL, *arguments], input="".join(line + "\n" for line in lines),
                          check=True, capture_output=True, text=True).stdout


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


class PythonTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.translator = Translator(MODEL, threads=2)

    def test_translations_are_the_programs(self):
        for precision in ("float32", "bf16", "int8"):
            with Translator(str(MODEL), precision=precision) as translator:
                found = translator.translate(LINES)
            text = "".join(f"{of_line[0].score:.6f}\t{of_line[0].text}\n" for of_line in found)
            self.assertEqual(text, program("--scores", "--precision", precision))

    def test_n_best_are_the_programs(self):
        found = self.translator.translate(LINES, beam=6, n_best=3, alpha=0, length_penalty="power", stop="beam_finished",
                                          max_extra_length=20, batch_sentences=2)
        text = "".join(f"{line} ||| {each.text} ||| {each.score:.6f}\n"
                       for line, of_line in enumerate(found) for each in of_line)
        self.assertEqual(text, program("--beam", "6", "--n-best", "3", "--alpha", "0", "--length-penalty", "power",
                                       "--stop", "beam_finished", "--max-extra-length", "20"))
        self.assertEqual(found[2], [Translation("", 0.0, 0.0)])
        found = self.translator.translate(LINES, search="sampling", top_p=0.9, seed=7, write_unknown=False)
        self.assertEqual("".join(of_line[0].text + "\n" for of_line in found),
                         program("--search", "sampling", "--top-p", "0.9", "--seed", "7", "--write-unknown", "false"))
        self.assertEqual(self.translator.translate([]), [])

    def test_a_draft_changes_nothing(self):
        searches = [{"beam": 1}, {"search": "sampling", "temperature": 0.7, "seed": 3}, {"beam": 1, "proposals": 64},
                    {}, {"beam": 4, "n_best": 2}, {"search": "sampling", "n_best": 2}]
        expected = [self.translator.translate(LINES, **search) for search in searches]
        with tempfile.TemporaryDirectory() as folder:
            untrained = pathlib.Path(folder, "draft")
            write_draft(untrained, MODEL, 24, 2, seed=1)
            for draft in (MODEL, str(untrained)):
                with Translator(MODEL, threads=2, draft=draft) as translator:
                    for search, plain in zip(searches, expected):
                        self.assertEqual(translator.translate(LINES, **search), plain, (draft, search))
                    self.assertEqual(translator.score(LINES[:1], ["Guten Morgen."]),
                                     self.translator.score(LINES[:1], ["Guten Morgen."]))
        other = pathlib.Path(SOURCE, "tests/formats/0.1.0/run")
        for draft, part in ((other, f"{other}: has another vocabulary"), ("/nowhere", "/nowhere"), ("a\0b", "draft: has a NUL")):
            with self.assertRaisesRegex(Mistake, re.escape(part)):
                Translator(MODEL, draft=draft)
        self.assertRaises(TypeError, lambda: Translator(MODEL, draft=7))

    def test_scores_are_those_of_search(self):
        best, second = self.translator.translate(LINES[:1], n_best=2)[0]
        self.assertAlmostEqual(self.translator.score(LINES[0], second.text), second.log_probability, places=4)
        found = self.translator.score(LINES[:1] * 2, [best.text, second.text])
        self.assertEqual(found[1], self.translator.score(LINES[0], second.text))
        self.assertGreater(found[0], found[1])
        self.assertEqual(self.translator.score([], []), [])
        self.assertEqual(self.translator.score(LINES[0], second.text, beam=7), found[1])
        for settings, part in (({"beam": 0}, "decoding.beam"), ({"heads": 4}, "heads"),
                               ({"target_language": "deu_Latn"}, "decoding.target_language")):
            with self.assertRaisesRegex(Mistake, part):
                self.translator.score(LINES[0], second.text, **settings)

    def test_what_is_refused_is_named(self):
        for settings, message in (
                ({"seed=1\nbeam": 3}, "'seed=1\\nbeam': is the name of no setting"), ({"beam=2": 3}, "'beam=2': is the name of no setting"),
                ({"a\0": 3}, "'a\\x00': is the name of no setting"), ({"seed": "1\nbeam=3"}, "seed: takes one line, found '1\\nbeam=3'")):
            for call in (lambda: self.translator.translate(LINES, **settings), lambda: self.translator.score("a", "b", **settings)):
                with self.assertRaises(Mistake) as refused:
                    call()
                self.assertEqual(str(refused.exception), message)
        for number in (-1, 1 << 63):
            with self.assertRaises(Mistake) as refused:
                self.translator.translate(LINES, beam=number)
            self.assertEqual(str(refused.exception), f"beam: takes a number from 0 to {2**63 - 1}, found {number}")
        for arguments, message in (({"directory": ""}, "directory: is empty; name a folder"),
                                   ({"directory": MODEL, "draft": ""}, "transformer_options.draft: is empty; name a folder")):
            with self.assertRaises(Mistake) as refused:
                Translator(**arguments)
            self.assertEqual(str(refused.exception), message)

    def test_numbers_of_others_are_numbers(self):
        class Four:
            def __index__(self):
                return 4

        self.assertEqual(self.translator.translate(LINES, beam=Four()), self.translator.translate(LINES, beam=4))

    def test_what_is_given_is_asked_on_the_callers_thread(self):
        class Number:
            def told(number, value):
                threads.append(threading.get_ident())
                return value

            def __index__(number):
                return number.told(4)

            def __float__(number):
                return number.told(4.0)

            def __str__(number):
                return number.told("0.9")

        def lines():
            threads.append(threading.get_ident())
            yield from LINES

        threads, four = [], Number()
        found = self.translator.translate(lines(), beam=four, alpha=four, search="sampling", seed=7, top_p=four)
        self.assertEqual(found, self.translator.translate(LINES, beam=4, alpha=4, search="sampling", seed=7, top_p=0.9))
        scores = self.translator.score(lines(), lines(), alpha=four)
        self.assertEqual(scores, self.translator.score(LINES, LINES, alpha=0.9))
        self.assertEqual((len(threads), set(threads)), (7, {threading.get_ident()}))
        database = sqlite3.connect(":memory:")
        self.addCleanup(database.close)
        rows = database.execute("select 'Good morning.'")
        self.assertEqual(self.translator.translate(row[0] for row in rows), self.translator.translate(LINES[:1]))

    def test_a_translator_is_not_copied(self):
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "neither copied nor pickled: share it"):
                copied(self.translator)

    def test_processes_that_fork_makes_use_the_model(self):
        expected = self.translator.translate(LINES), self.translator.score(LINES, LINES)

        def use(sender):
            sender.send((self.translator.translate(LINES), self.translator.score(LINES, LINES)))
            self.translator.close()
            sender.send("closed")

        for _ in range(2):
            fork = multiprocessing.get_context("fork")
            receiver, sender = fork.Pipe(duplex=False)
            process = fork.Process(target=use, args=(sender,))
            process.start()
            for wanted in (expected, "closed"):
                self.assertTrue(receiver.poll(60), "it does not come back")
                self.assertEqual(receiver.recv(), wanted)
            process.join(60)
            self.assertEqual(process.exitcode, 0)
        self.assertEqual(self.translator.translate(LINES), expected[0])

    def test_ctrl_c_ends_the_wait(self):
        program = (f"import sys; sys.path[:0] = [{PACKAGE!r}]; from transformer_cpp import Translator\n"
                   "translator = Translator(sys.argv[1], threads=1)\n"
                   "print('loaded', flush=True)\n"
                   "try: translator.translate(['Where is the station? ' * 40] * 4000, beam=8)\n"
                   "except KeyboardInterrupt: print('interrupted', flush=True)")
        process = subprocess.Popen([sys.executable, "-c", program, str(MODEL)], stdout=subprocess.PIPE, text=True)
        self.assertEqual(process.stdout.readline(), "loaded\n")
        time.sleep(3)  # the lines are handed over
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.communicate(timeout=60)[0], "interrupted\n")  # all of them take minutes
        self.assertEqual(process.returncode, 0)

    def test_another_search_than_the_models_own(self):
        with tempfile.TemporaryDirectory() as folder:
            stored = pathlib.Path(folder, "model")
            shutil.copytree(MODEL, stored)
            config = stored / "config.yaml"
            config.write_text(config.read_text().replace("decoding:\n", "decoding:\n  search: sampling\n  temperature: 0.7\n"))
            with Translator(stored, threads=1) as translator:
                self.assertEqual(translator.translate(LINES, search="beam"), self.translator.translate(LINES))

    def test_control_characters_say_nothing(self):
        self.assertEqual(self.translator.translate(["Good\0 mor\x07ning."]), self.translator.translate(["Good morning."]))
        # A word of nothing else stays a word.
        lines = ["NUL \0 inside", "\0", "Yes. \0"]
        with_others = [line.replace("\0", "\x07") for line in lines]
        self.assertEqual(self.translator.translate(lines), self.translator.translate(with_others))
        self.assertEqual(self.translator.score(lines, lines), self.translator.score(with_others, with_others))
        self.assertNotEqual(self.translator.translate(lines), self.translator.translate([line.replace("\0", "") for line in lines]))

    def test_what_is_wrong_is_named(self):
        translate = self.translator.translate
        for part, call in {
                "/nowhere": lambda: Translator("/nowhere"),
                "NUL": lambda: Translator("a\0b"),
                "float32, bf16, int8, found 'fp64'": lambda: Translator(MODEL, precision="fp64"),
                "int8, found '\\udc80'": lambda: Translator(MODEL, precision="\udc80"),
                "threads": lambda: Translator(MODEL, threads=5000),
                "from 0 to 9223372036854775807, found -1": lambda: translate(LINES, beam=-1),
                "decoding.beam": lambda: translate(LINES, beam=0),
                "decoding.n_best": lambda: translate(LINES, beam=2, n_best=3),
                "decoding.alpha": lambda: translate(LINES, alpha=float("nan")),
                "gnmt, power, found 'none'": lambda: translate(LINES, length_penalty="none"),
                "exact, beam_finished": lambda: translate(LINES, stop=""),
                "line 2 of lines": lambda: translate(["a", "\ud800"]),
                "takes at most": lambda: translate(["q " * 10000]),
                "longer than 1 MiB": lambda: translate(["q" * (1 << 20) + "q"]),
                "has 1 line, and source has 2": lambda: self.translator.score(["a", "b"], ["c"]),
        }.items():
            with self.subTest(part), self.assertRaisesRegex(Mistake, re.escape(part)) as raised:
                call()
            self.assertIsInstance(raised.exception, (TransformerError, ValueError))
        self.assertTrue(issubclass(Failure, RuntimeError))
        for call in (lambda: translate("one line"), lambda: translate([b"bytes"]), lambda: translate([None]),
                     lambda: translate(LINES, beam="4"), lambda: translate(LINES, beam=True),
                     lambda: Translator(MODEL, precision=8), lambda: Translator(None)):
            self.assertRaises(TypeError, call)

    def test_threads_share_a_translator(self):
        expected = {beam: self.translator.translate(LINES, beam=beam) for beam in (1, 4)}
        wrong = []

        def work(beam):
            for _ in range(5):
                found = self.translator.translate(LINES, beam=beam)
                if found != expected[beam]:
                    wrong.append(found)
                try:
                    self.translator.translate(["\ud800"])
                    wrong.append("not refused")
                except Mistake:
                    pass

        threads = [threading.Thread(target=work, args=(1 if i % 2 else 4,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_close_waits_for_those_who_translate(self):
        for _ in range(5):
            translator = Translator(MODEL, threads=1)
            started, results = threading.Event(), []

            def work():
                try:
                    while True:
                        results.append(translator.translate(LINES[:2])[0][0].text)
                        started.set()
                except Mistake as error:
                    results.append(str(error))

            thread = threading.Thread(target=work)
            thread.start()
            started.wait(60)
            translator.close()
            thread.join(60)
            self.assertEqual(results.pop(), "this Translator is closed")
            self.assertEqual(set(results), {program(lines=LINES[:1]).rstrip("\n")})
            translator.close()

    def test_memory_is_released(self):
        def use():
            with Translator(MODEL, threads=1) as translator:
                translator.translate(LINES)
            translator = Translator(MODEL, threads=1)
            try:
                translator.translate([LINES[0] * 10000])
                self.fail("a line that is too long")
            except Mistake:
                pass
            del translator  # by its last reference, though a call failed

        gc.disable()
        self.addCleanup(gc.enable)
        for _ in range(3):
            use()
        before = resident()
        for _ in range(10):
            use()
        size = (MODEL / "model.safetensors").stat().st_size
        self.assertLess(resident() - before, 2 * size)

    def test_what_is_called_as_the_program_ends_is_done(self):
        for at_the_end in ("say", "import atexit; atexit.register(say.__del__)"):
            program = (f"import os, sys; sys.path[:0] = [{PACKAGE!r}]; from transformer_cpp import Translator\n"
                       "class Say:\n"
                       "    translator = None\n"
                       "    def __del__(self):\n"
                       "        translator, self.translator = self.translator, None\n"
                       "        if translator: os.write(1, translator.translate(['Good morning.'])[0][0].text.encode())\n"
                       "say = Say()\n"
                       "say.translator = Translator(sys.argv[1], threads=1)\n" + at_the_end)
            with self.subTest(at_the_end):
                done = subprocess.run([sys.executable, "-c", program, str(MODEL)], capture_output=True, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stdout, done.stderr), (0, self.translator.translate(["Good morning."])[0][0].text, ""))

    def test_it_declares_what_the_header_does(self):
        header = pathlib.Path(SOURCE, "transformer/interface/transformer.h").read_text()
        functions = set(re.findall(r"\btransformer_(\w+)\(", re.sub("//.*", "", header)))
        self.assertEqual(set(declared._DECLARED), functions)
        self.assertIn(f"#define TRANSFORMER_ABI {declared.ABI}\n", header)
        for struct, name in ((declared.Options, "options"), (declared.Search, "search")):
            body = re.search(rf"struct transformer_{name} {{(.*?)}}", header, re.DOTALL).group(1)
            self.assertEqual([field for field, _ in struct._fields_],
                             re.findall(r"(\w+);", re.sub("//.*", "", body)))
        self.assertRegex(version(), r"^\d+\.\d+\.\d+$")
        self.assertEqual(ctypes.sizeof(declared.Options), 32)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
