"""What workers in Python have in common (decode_worker.cpp describes their commands; worker.h is the same for those in
C++)."""

import pathlib
import sys


def status(field):
    """A field of /proc/self/status that counts kB, in bytes."""
    for line in open("/proc/self/status"):
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def read_sources(file):
    """Ids of word pieces without the end, a sentence a line."""
    return [[int(i) for i in line.split()] for line in pathlib.Path(file).read_text().splitlines()]


def obey(name, before, decode, others=None):
    """Obeys commands until there are no more. `before` is the memory before the model was loaded. `decode` (batch, beam,
    first, count, steps) gives seconds, tokens with ends, and the ids of every output without its end. `others`: by their
    names, what answers further commands, given their words."""
    print(f"ready {name} {before}", flush=True)
    for command in sys.stdin:
        verb, *words = command.split()
        if verb == "memory":
            print(status("VmHWM"), status("VmRSS"), flush=True)
            continue
        if verb in (others or {}):
            print(others[verb](*words), flush=True)
            continue
        seconds, tokens, outputs = decode(*map(int, words[:5]))
        if words[5] != "-":
            pathlib.Path(words[5]).write_text("".join(" ".join(map(str, output)) + "\n" for output in outputs))
        print(f"{seconds:.6f}", tokens, flush=True)
