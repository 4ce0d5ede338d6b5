"""What the pages tell people to type works: howto_test.py PYTHON_PROGRAMS C_LIBRARY SOURCE_DIR PROGRAM...

The commands of transformer/HOWTO.md are run as they stand there, in its order, in a folder with the same names as the
repository; sizes are cut down by the table below and by configurations of the same names. C_LIBRARY is none where Python
cannot load it. Of all pages every option that a command gives is one that its program has. Beside the standard library: PyYAML, and torch,
whose torchrun reads what clusters are told."""

import ast
import gzip
import inspect
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

import torch.distributed.run
import yaml
from torch.distributed.elastic.rendezvous import dynamic_rendezvous

from programs import ENVIRONMENT, ProgramTest
from toy import WORDS, write_corpus

PYTHON_PROGRAMS, LIBRARY, SOURCE = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
PROGRAMS = {path.name: path for path in map(pathlib.Path, sys.argv[4:])}
PAGE = SOURCE / "transformer" / "HOWTO.md"
BLOCK = re.compile(r"(?:<!-- file (\S+) -->\n)?^```(\w+)\n(.*?)^```$", re.M | re.S)
# What is written there, and what takes its place.
CUT = {
    "vocabulary_size: 8000": "vocabulary_size: 320",
    "warmup_steps: 200": "warmup_steps: 2",
    " steps: 4000": " steps: 6",
    "batch_tokens: 4000": "batch_tokens: 300",
    "validate_every: 500": "validate_every: 3",
    "checkpoint_every: 500": "checkpoint_every: 3",
    "encoder_layers: 3": "encoder_layers: 1",
    "seeds: [1, 2]": "seeds: [1]",
    # What teaches has to end its sentences.
    "bin/train my.yaml        ": "bin/train my.yaml --set training.steps=300 --set training.warmup_steps=30"
                                 " --set training.validate_every=300 --set training.checkpoint_every=300        ",
    "bin/train reverse.yaml": "bin/train reverse.yaml --set training.steps=300 --set training.warmup_steps=30"
                              " --set training.validate_every=300 --set training.checkpoint_every=300",
    "--search sampling --input": "--search sampling --top-k 5 --input",  # a model of so few steps might write any byte
    "serve --model": "serve --port 0 --model",
    # There is neither a cluster nor a GPU.
    "--nnodes 4 --nproc-per-node 8": "--nnodes 1 --nproc-per-node 2",
    "HOST:29500": "localhost:0",
    "training.device=cuda": "training.device=cpu",
    "training.precision=bf16": "training.threads=1",
    "training.batch_tokens=400000": "training.batch_tokens=300",
    "training.micro_batch=auto": "training.micro_batch=fixed",
}
SMALL = """extends: {source}/configs/{name}
model: {{layers: 1, d_model: 32, d_ff: 64, heads: 2, vocabulary_size: 1500}}
training: {{steps: 20, warmup_steps: 5, batch_tokens: 300, validate_every: 10, checkpoint_every: 10, average_checkpoints: 1,
           threads: 1, max_minutes: 0}}
"""


class HowToTest(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        programs = cls.root / "build" / "release" / "bin"
        programs.mkdir(parents=True)
        for name, program in PROGRAMS.items():
            (programs / name).symlink_to(program.resolve())
        (cls.root / "configs").mkdir()
        for name in ("tatoeba-en-de.yaml", "parsing-tiny.yaml"):
            (cls.root / "configs" / name).write_text(SMALL.format(source=SOURCE, name=name))
        with open(cls.root / "configs" / "parsing-tiny.yaml", "a") as config:
            config.write("decoding: {beam: 2, batch_sentences: 8}\n")
        (cls.root / "data" / "gum").mkdir(parents=True)
        for part, trees in (("train", 150), ("dev", 3)):
            with gzip.open(SOURCE / "data" / "gum" / f"{part}.mrg.gz", "rt") as whole:
                short = [tree for tree in re.split(r"\n(?=\()", whole.read()) if tree.count("(") < 25]
            with gzip.open(cls.root / "data" / "gum" / f"{part}.mrg.gz", "wt") as few:
                few.write("\n".join(short[:trees]) + "\n")
        (cls.root / "my").mkdir()
        for name, lines, seed in (("train", 400, 1), ("valid", 20, 2), ("more", 40, 3)):
            write_corpus(cls.root / "my", name, lines, seed)
            (cls.root / "my" / f"{name}.de").rename(cls.root / "my" / f"{name}.fr")
        (cls.root / "my" / "more.en").unlink()
        (cls.root / "other.fr").write_text("".join(reversed((cls.root / "my" / "valid.fr").read_text().splitlines(True))))
        cls.environment = dict(ENVIRONMENT, PATH=f"{PYTHON_PROGRAMS}:{os.environ['PATH']}", TRANSFORMER_LIBRARY=str(LIBRARY),
                               PYTHONPATH=str(SOURCE / "transformer" / "interface" / "python"))

    def run_text(self, text):
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=self.root, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, env=self.environment, timeout=600)
        self.assertEqual(done.returncode, 0, f"{text}\n{done.stdout}{done.stderr}")
        return done.stdout

    def ask(self, command, port):
        words = shlex.split(command.replace(":5000", f":{port}"))
        self.assertEqual(words[0], "curl")
        data = "&".join(words[i + 1] for i, word in enumerate(words) if word == "-d")
        form = urllib.parse.urlencode(urllib.parse.parse_qsl(data)).encode()
        deadline = time.monotonic() + 300
        while True:
            try:
                with urllib.request.urlopen(f"http://{words[-1]}", form, timeout=60) as answer:
                    return answer.read().decode()
            except urllib.error.HTTPError as error:
                # It listens before its models are loaded.
                if error.code != 503 or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def serve(self, text, question):
        server = subprocess.Popen(["bash", "-c", f"exec {text.strip()}"], cwd=self.root, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.environment)
        try:
            read = []
            for line in server.stdout:
                read.append(line)
                if found := re.search(r"127\.0\.0\.1:(\d+)", line):
                    self.assertIn("translatedText", self.ask(question, found[1]))
                    return
            self.fail("".join(read))
        finally:
            server.terminate()
            server.communicate(timeout=60)

    def test_how_tos(self):
        page, unused = PAGE.read_text(), set(CUT)
        server = None
        for match in BLOCK.finditer(page):
            file, language, text = match.groups()
            if file:
                self.assertEqual(text, (SOURCE / file).read_text(), file)
                continue
            for whole, cut in CUT.items():
                if whole in text:
                    unused.discard(whole)
                    text = text.replace(whole, cut)
            with self.subTest(text=text):
                if language == "yaml" or "import ray" in text or language == "python" and LIBRARY.name == "none":
                    continue
                if language == "python":
                    done = subprocess.run([sys.executable, "-c", text], cwd=self.root, capture_output=True, text=True,
                                          env=self.environment, timeout=300)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(len(done.stdout.splitlines()), 3)
                elif "bin/serve" in text:
                    server = text
                elif text.startswith("curl"):
                    self.serve(server, text)
                else:
                    self.assertEqual(language, "sh")
                    if "import --from hugging-face opus-mt-en-fr" in text:
                        # Somebody else's model: this one, as transformers saves it.
                        self.run_text("build/release/bin/export --to hugging-face --model runs/en-fr --output opus-mt-en-fr")
                    self.run_text(text)
        self.assertEqual(unused, set())
        for made in ("runs/tuned", "runs/student-int8", "runs/large", "runs/parsing-tiny", "opus-mt-en-fr-tuned",
                     "runs/same-pieces"):
            self.assertTrue(any((self.root / made).glob("*.safetensors")), made)
        self.assertEqual((self.root / "runs/same-pieces/vocabulary.model").read_bytes(),
                         (self.root / "runs/en-fr/vocabulary.model").read_bytes())
        for made in ("runs/idea/report.html", "run.html", "student.fr", "runs/treebank/dev.parsed"):
            self.assertGreater((self.root / made).stat().st_size, 0, made)
        self.assertLess(sum(file.lstat().st_size for file in self.root.rglob("*") if file.is_file()), 2e8)

    def test_options_on_the_pages_exist(self):
        helps = {name: subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
                 for name, program in PROGRAMS.items()}
        count = 0
        for page in (SOURCE / "README.md", PAGE, SOURCE / "configs" / "README.md", SOURCE / "data" / "README.md"):
            for _, language, text in BLOCK.findall(page.read_text()):
                if language != "sh":
                    continue
                text = re.sub(r"\s#.*", "", text.replace("\\\n", " "))
                for program, arguments in re.findall(r"build/release/bin/(\w+)([^|;\n]*)", text):
                    known = helps[program]
                    if program in ("evaluate", "treebank"):
                        command = arguments.split()[0]
                        known = subprocess.run([PROGRAMS[program], command, "--help"], capture_output=True, text=True,
                                               check=True).stdout
                    for option in re.findall(r"(?<!\S)(--[\w-]+)", arguments):
                        with self.subTest(page=page.name, program=program, option=option):
                            self.assertRegex(known, rf"(^|[\s,]){option}(?![\w-])")
                        count += 1
        self.assertGreater(count, 60)

    def test_torchrun_understands_what_clusters_are_told(self):
        commands = []
        for _, language, text in BLOCK.findall(PAGE.read_text()):
            if "torchrun" not in text:
                continue
            if language == "sh":
                commands.append(shlex.split(text.replace("\\\n", " ")))
            elif language == "yaml":
                service, job = yaml.safe_load_all(text)
                pod = job["spec"]["template"]["spec"]
                self.assertEqual(service["spec"]["selector"]["job-name"], job["metadata"]["name"])
                self.assertEqual(service["metadata"]["name"], pod["subdomain"])
                commands.append(pod["containers"][0]["command"])
                self.assertIn(f"{job['metadata']['name']}-0.{pod['subdomain']}:29500", commands[-1])
                variable, = pod["containers"][0]["env"]
                self.assertIn(variable["name"], inspect.getsource(dynamic_rendezvous))
            else:
                lists = [[getattr(item, "value", "HOST:29500") for item in node.elts]
                         for node in ast.walk(ast.parse(text)) if isinstance(node, ast.List)]
                commands += [words for words in lists if words and words[0] == "torchrun"]
        self.assertEqual(len(commands), 3)
        helped = subprocess.run([PROGRAMS["train"], "--help"], capture_output=True, text=True, check=True).stdout
        for command in commands:
            with self.subTest(command=command):
                parsed = torch.distributed.run.get_args_parser().parse_args(command[1:])
                least, most = torch.distributed.run.parse_min_max_nnodes(parsed.nnodes)
                self.assertEqual((parsed.nproc_per_node, parsed.rdzv_backend, parsed.no_python, most),
                                 ("8", "c10d", True, 4))
                self.assertIn(least, (1, 4))
                self.assertTrue(parsed.rdzv_endpoint.endswith(":29500"))
                self.assertEqual(parsed.training_script, "build/release/bin/train")
                for word in parsed.training_script_args:
                    self.assertTrue(not word.startswith("--") or f"  {word} " in helped, word)

    def test_settings_in_the_table_exist(self):
        settings = subprocess.run([PROGRAMS["train"], "--settings"], capture_output=True, text=True, check=True).stdout
        options = subprocess.run([PROGRAMS["translate"], "--help"], capture_output=True, text=True, check=True).stdout
        rows = re.findall(r"^\| [^|]+ \| ([^|]*) \|", PAGE.read_text().split("\n## ")[-1], re.M)
        named = re.findall(r"`([^`]*)`", " ".join(rows[1:]))
        section = ""
        for name in named:
            if name.startswith("--"):
                for option in re.findall(r"--[\w-]+", name):
                    self.assertRegex(options, rf"(^|[\s,]){option}(?![\w-])")
            elif name.split()[0] not in PROGRAMS:
                setting = name.split(":")[0]  # without its value; the section of the one before where it names none
                section = setting.split(".")[0] if "." in setting else section
                self.assertIn(f"  {section}.{setting.split('.')[-1]}", settings)
        self.assertGreater(len(named), 30)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
