"""Data-parallel training with one and two processes on this machine's cores, and a model of 8 and 64 GPUs.

    .venv/bin/python benchmarks/data_parallel.py [--train build/release/bin/train] [--rounds 5]

Each round trains the same model for a few steps with one process and with two, a thread each, on the same global
batches. Printed are the medians of the rounds: a step's time, the bytes of gradients that are summed, and how much of
the summing is hidden behind the backward pass, read from the Chrome trace of rank 0, and rank 0's memory, with Adam's moments
whole and shared out (training.shard_optimizer). Standard library only.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))
from common import Parser, above, lines_of  # noqa: E402

STEPS, TRACED = 12, 8

# A model whose gradients take time to travel: 7.6 million parameters, 30 MB.
CONFIG = """
data: {{train_source: [{root}/data/tatoeba-en-de/train.en.gz], train_target: [{root}/data/tatoeba-en-de/train.de.gz],
        max_length: 60, cache: {cache}}}
vocabulary: {{sample_sentences: 100000}}
model: {{d_model: 256, d_ff: 1024, heads: 4, layers: 3, vocabulary_size: 8000, dropout: 0.1}}
training: {{steps: {steps}, batch_tokens: 2048, micro_batch_tokens: 1024, threads: 1, log_every: 4, validate_every: 0,
            validate_bleu: false, checkpoint_every: 0, average_checkpoints: 1, keep_checkpoints: 1,
            bucket_mb: {bucket_mb}, shard_optimizer: {sharded}}}
"""


def total(intervals):
    """Length of the union of intervals."""
    length, end = 0.0, float("-inf")
    for first, last in sorted(intervals):
        length += max(0.0, last - max(first, end))
        end = max(end, last)
    return length


def communication(trace):
    """Of a step, from rank 0's trace: microseconds of backward passes, of sums, and of sums within the passes' work."""
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("ph") == "X"]
    spans = lambda name: [(event["ts"], event["ts"] + event["dur"]) for event in events if event["name"] == name]
    # What the thread of the backward pass computes; the pass itself ends only when all sums have come back.
    work = [(event["ts"], event["ts"] + event["dur"]) for event in events
            if event["name"].startswith("autograd::engine::evaluate_function")]
    backward, sums, hidden = spans("backward"), [], 0.0
    for first, last in backward:
        inside = [span for span in spans("gloo:all_reduce") if first <= span[0] < last]
        computed = max((end for start, end in work if first <= start < last), default=first)
        sums += inside
        hidden += total([(start, min(end, computed)) for start, end in inside if start < computed])
    return {"backward": total(backward) / TRACED, "sums": total(sums) / TRACED, "hidden": hidden / TRACED,
            "buckets": len(sums) / TRACED}


def run(train, folder, config, name, processes, first=None):
    """`first` is an earlier run, whose vocabulary and weights this one takes: learning a vocabulary takes longer."""
    output = folder / name
    command = [train, config, "--output", output, "--processes", str(processes), "--profile", str(TRACED)]
    if first:
        command += ["--init-from", first]
    subprocess.run(command, check=True, capture_output=True, env=dict(os.environ, OMP_NUM_THREADS="1"))
    lines = [json.loads(line) for line in lines_of(output / "metrics.jsonl")]
    speeds = [line["tokens_per_second"] for line in lines if line.get("kind") == "train"]
    result = communication(output / "trace.json")
    result["tokens_per_second"] = speeds[-1]  # of steps that are no longer traced
    result["memory"] = max(line["memory"] for line in lines if line.get("kind") == "train")
    result["parameters"] = json.loads((output / "summary.json").read_text())["parameters"]
    return result


def measure(train, rounds):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        settings = [(1, 25, False), (2, 25, False), (2, 4, False), (2, 4, True)]  # processes, bucket_mb, sharded

        def go(label, processes, bucket_mb, sharded, first=None):
            config = folder / f"{bucket_mb}-{sharded}.yaml"
            config.write_text(CONFIG.format(root=ROOT, steps=STEPS, cache=folder / "cache", bucket_mb=bucket_mb,
                                            sharded=str(sharded).lower()))
            return run(train, folder, config, label, processes, first)

        go("first", 1, 25, False)
        results = {setting: [] for setting in settings}
        for round_ in range(rounds):
            for setting in settings:
                results[setting].append(go("-".join(map(str, (*setting, round_))), *setting, folder / "first"))

    memory = lambda of: statistics.median(result["memory"] for result in of) / 1e6
    print("| processes | bucket_mb | moments | step, of one process | sums of gradients a step | time of sums, of the "
          "backward pass | hidden behind it | memory of rank 0 |\n|---|---|---|---|---|---|---|---|\n"
          f"| 1 | | whole | 1.00 | none | | | {memory(results[settings[0]]):.0f} MB |")
    for processes, bucket_mb, sharded in settings[1:]:
        of = results[processes, bucket_mb, sharded]
        middle = lambda key: statistics.median(map(key, of))
        time = statistics.median(one["tokens_per_second"] / two["tokens_per_second"]
                                 for one, two in zip(results[settings[0]], of))
        print(f"| {processes} | {bucket_mb} | {'shared' if sharded else 'whole'} | {time:.2f} | {of[0]['parameters'] * 4 / 1e6:.1f} MB in "
              f"{middle(lambda r: r['buckets']):.0f} buckets | {middle(lambda r: r['sums'] / r['backward']):.2f} | "
              f"{middle(lambda r: r['hidden'] / r['sums']):.0%} | {memory(of):.0f} MB |")
    print(f"\nA step is of the same 2,048 tokens either way; 0.50 would be perfect. {rounds} rounds, medians.\n")


# --- On paper ---------------------------------------------------------------------------------------------------------

# Parameters, those of the shared embedding among them, and FLOPs of a target token with its source token, forward and
# backward.
MODELS = {"base": (65e6, 37_000 * 512, 378e6), "big": (213e6, 37_000 * 1024, 1.27e9)}
# Bus bandwidth of NCCL's all-reduce in bytes a second: what nccl-tests reports. On eight GPUs of one machine, people
# measured about 200e9 on A100s (NVIDIA/nccl-tests issue 149) and 370e9 to 480e9 on H100s, without and with NVLink SHARP
# (issue 212, by NCCL's maintainers). Between machines a ring can be no faster than their network cards: eight of 200 or
# of 400 Gb/s, or a single one of 100 Gb/s, of which we take four fifths.
MACHINES = [
    ("8 A100, one machine", 8, 200e9, 312e12),
    ("8 H100, one machine", 8, 370e9, 990e12),
    ("64 A100, 8 x 200 Gb/s a machine", 64, 0.8 * 8 * 25e9, 312e12),
    ("64 H100, 8 x 400 Gb/s a machine", 64, 0.8 * 8 * 50e9, 990e12),
    ("64 A100, 100 Gb/s a machine", 64, 0.8 * 12.5e9, 312e12),
]
UTILISATION = 0.4   # of the GPU's bf16 peak, reached by the step
LATENCY = 30e-6     # of one all-reduce
BUCKET = 25 * 2**20


def on_paper():
    print("| machines | model | tokens of a GPU | gradients | backward pass | sums | not hidden | efficiency |")
    print("|---|---|---|---|---|---|---|---|")
    for name, gpus, bandwidth, peak in MACHINES:
        for model, (parameters, embedding, flops) in MODELS.items():
            # As many tokens a GPU as the paper has in a step; and the paper's step, shared out over the GPUs.
            for tokens in (25_000, 25_000 // gpus):
                compute = flops * tokens / (UTILISATION * peak)
                backward = compute * 2 / 3
                wire = lambda bytes: 2 * (gpus - 1) / gpus * bytes / bandwidth + LATENCY
                # Buckets become ready evenly over the backward pass, and are summed one after another. The embedding
                # has a bucket of its own: it is also the projection's matrix, and complete only at the end.
                layers = 4 * (parameters - embedding)
                buckets = int(-(-layers // BUCKET))
                ready = [(backward * number / buckets, layers / buckets) for number in range(1, buckets + 1)]
                end = sums = 0.0
                for time, size in [*ready, (backward, 4 * embedding)]:
                    end = max(end, time) + wire(size)
                    sums += wire(size)
                exposed = end - backward
                print(f"| {name} | {model} | {tokens:,} | {4 * parameters / 1e6:.0f} MB in {buckets + 1} buckets | "
                      f"{backward * 1e3:.1f} ms | {sums * 1e3:.1f} ms | {exposed * 1e3:.1f} ms | "
                      f"{compute / (compute + exposed):.0%} |")


def moments_on_paper():
    """What a rank holds of weights, gradients and moments in float32, and what it hears of the others' weights."""
    print("\n| model | processes | weights and gradients | moments | moments shared out | weights told a step |")
    print("|---|---|---|---|---|---|")
    for model, (parameters, _, _) in MODELS.items():
        for ranks in (1, 2, 3, 8, 64):
            print(f"| {model} | {ranks} | {8 * parameters / 1e6:.0f} MB | {8 * parameters / 1e6:.0f} MB | "
                  f"{8 * parameters / ranks / 1e6:.0f} MB | {4 * parameters * (ranks - 1) / ranks / 1e6:.0f} MB |")


if __name__ == "__main__":
    parser = Parser(description=__doc__)
    parser.add_argument("--train", default=ROOT / "build/release/bin/train", type=pathlib.Path)
    parser.add_argument("--rounds", default=5, type=above(0))
    parser.add_argument("--paper-only", action="store_true", help="no measurement, only the model of 8 and 64 GPUs")
    arguments = parser.parse_args()
    if not arguments.paper_only:
        measure(arguments.train, arguments.rounds)
    on_paper()
    moments_on_paper()
