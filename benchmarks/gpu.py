"""On a GPU: training steps in bf16 against nn.Transformer, eager and compiled, the same weights and batches, and decoding
with the shipped model. scripts/gpu runs it. Needs Python's torch and nothing else; results go to
benchmarks/results/gpu-NAME.txt."""

import collections
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARIES = ROOT / "build" / "release" / "bin"
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))
from common import Parser, lines_of  # noqa: E402
from pairs import Side  # noqa: E402
from tensor_file import save_file  # noqa: E402

# Width, feed-forward width, heads; FLOPs of a target token with its source token, as in data_parallel.py.
MODELS = {"base": (512, 2048, 8, 378e6), "big": (1024, 4096, 16, 1.27e9)}
VOCABULARY, ROWS, LENGTH = 37000, 200, 64
# Batches of text have about as many tokens, and another length each.
LENGTHS = (64, 33, 47, 96, 25, 71, 128, 54)
ROUNDS, SECONDS = 3, 4
PROFILED, KERNELS = len(LENGTHS), 40  # steps in a profile, and how many kernels of it are listed
# Dense bf16 FLOP/s by the makers' data sheets, of names of which the first that fits counts.
PEAKS = {"H100 PCIe": 756e12, "H100 NVL": 835e12, "H200 NVL": 835e12, "H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "A10G": 70e12, "4090": 165e12}


def batches(file):
    generator = torch.Generator().manual_seed(1)
    ids = lambda length: torch.randint(4, VOCABULARY, (ROWS * LENGTH // length, length), generator=generator)
    save_file({f"{i}.{part}": ids(length) for i, length in enumerate(LENGTHS)
               for part in ("source", "target_input", "target_output")}, file)


def training_rate(command, say_profile):
    """Target tokens a second, the median of rounds; `say_profile`, where given, gets a profile of some steps after them."""
    with Side(command, None) as side:
        side.ask("run", 0, 10)  # compiles, chooses kernels, fills caches
        count = max(5, round(SECONDS * 10 / float(side.ask("run", 0, 10).split()[0])))
        count += -count % len(LENGTHS)  # every side has as many batches of each length
        rates = []
        for _ in range(ROUNDS):
            seconds, tokens, _ = map(float, side.ask("run", 0, count).split())
            rates.append(tokens / seconds)
        if say_profile:
            with tempfile.NamedTemporaryFile(suffix=".json") as trace:
                side.ask("profile", 0, PROFILED, trace.name)
                say_profile(json.loads(pathlib.Path(trace.name).read_text())["traceEvents"])
        return statistics.median(rates)


def work_of_kernels(events):
    """Lines: where a step's time goes on the GPU, by kernels of the same name."""
    kernels = collections.defaultdict(list)
    begin, end = float("inf"), 0.0
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            kernels[event["name"]].append(event["dur"])
            begin, end = min(begin, event["ts"]), max(end, event["ts"] + event["dur"])
    if not kernels:
        yield "the profile has no kernels of a GPU"
        return
    busy = sum(map(sum, kernels.values()))
    yield (f"{sum(map(len, kernels.values())) / PROFILED:.0f} kernels and {(end - begin) / PROFILED / 1000:.2f} ms a step, "
           f"under the profiler; the GPU works {busy / (end - begin):.0%} of the time")
    by_time = sorted(kernels.items(), key=lambda item: -sum(item[1]))
    for name, times in by_time[:KERNELS]:
        yield f"{sum(times) / busy:6.1%} {len(times) / PROFILED:6.0f}x {statistics.median(times):8.1f} us  {name[:150]}"
    rest = [time for _, times in by_time[KERNELS:] for time in times]
    yield f"{sum(rest) / busy:6.1%} {len(rest) / PROFILED:6.0f}x              of {max(0, len(by_time) - KERNELS)} other names"


def training(model, folder, say, peak):
    d_model, d_ff, heads, flops = MODELS[model]
    settings = json.dumps({"d_model": d_model, "d_ff": d_ff, "heads": heads, "layers": 6, "vocabulary": VOCABULARY,
                           "dropout": 0.1, "dropout_everywhere": False})
    weights, file = folder / f"{model}.safetensors", folder / "batches.safetensors"
    subprocess.run([BINARIES / "train_worker", settings, "init", weights], check=True)
    arguments = [settings, "bf16", 1, weights, file, "cuda"]
    torch_side = [sys.executable, ROOT / "benchmarks" / "peers" / "torch_train.py"]
    commands = {"ours": [BINARIES / "train_worker", *arguments], "eager": [*torch_side, *arguments],
                "compiled": [*torch_side, *arguments, "compiled"]}
    ours = None
    # One after the other: a small GPU's memory does not hold all. Where one cannot run, the others' figures stand.
    for name, command in commands.items():
        try:
            profile = (lambda events: say("\n".join(f"  {line}" for line in work_of_kernels(events)))) if name == "ours" else None
            rate = training_rate(command, profile)
        except (OSError, RuntimeError, ValueError) as error:
            say(f"training {model} bf16, {name}: failed: {error}")
            if name == "ours":
                raise
            continue
        share = f", {rate * flops / peak:.0%} of the peak" if peak else ""
        ratio = f"; ours is {ours / rate:.2f}x" if ours else ""
        say(f"training {model} bf16, {name}: {rate:.0f} target tokens/s{share}{ratio}")
        if name == "ours":
            ours = rate


def decoding(folder, say):
    lines = lines_of(ROOT / "data" / "tatoeba-en-de" / "valid.en.gz")
    few, many = folder / "few.txt", folder / "many.txt"
    for file, chosen in ((few, lines[:8]), (many, lines * 4)):
        file.write_text("".join(f"{line}\n" for line in chosen), encoding="utf-8")
    for precision in ("float32", "fp16", "bf16"):
        seconds = {}
        for file in (few, many):  # the start is in both
            begun = time.perf_counter()
            subprocess.run([BINARIES / "translate", "--model", ROOT / "data" / "model-en-de", "--device", "cuda",
                            "--precision", precision, "--input", file], check=True, stdout=subprocess.DEVNULL)
            seconds[file] = time.perf_counter() - begun
        sentences = 4 * len(lines) - 8
        say(f"decoding the shipped model in {precision}: {sentences / (seconds[many] - seconds[few]):.0f} sentences/s")


def main():
    Parser(description=__doc__).parse_args()
    if not torch.cuda.is_available():
        sys.exit("gpu: this machine has no GPU that torch can use; nothing was measured")
    name = torch.cuda.get_device_name()
    peak = next((flops for part, flops in PEAKS.items() if re.search(rf"\b{part}\b", name)), None)
    results = ROOT / "benchmarks" / "results" / f"gpu-{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}.txt"
    results.parent.mkdir(parents=True, exist_ok=True)
    unfinished = results.with_name(results.name + ".partial")  # figures of an earlier run stay until there are new ones
    with open(unfinished, "w") as file, tempfile.TemporaryDirectory() as temporary:
        def say(line):
            print(line, flush=True)
            print(line, file=file, flush=True)

        say(f"{name}, torch {torch.__version__}; batches of {ROWS * LENGTH} + {ROWS * LENGTH} "
            f"tokens, {min(LENGTHS)} to {max(LENGTHS)} a sentence, medians of {ROUNDS}")
        folder = pathlib.Path(temporary)
        batches(folder / "batches.safetensors")
        for model in MODELS:
            training(model, folder, say, peak)
        decoding(folder, say)
    unfinished.replace(results)
    print(f"gpu: {results}")


main()
