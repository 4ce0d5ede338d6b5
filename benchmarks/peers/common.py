"""What all benchmarks have in common: command lines that are checked before anything is measured, and the lines of a text.
Standard library only."""

import argparse
import gzip
import math
import pathlib
import re


class Parser(argparse.ArgumentParser):
    """Options have to be written out: a shortened one would be taken for any that begins so."""

    def __init__(self, **settings):
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **settings)

    def check_model(self, option, folder, *more):
        """Ends the program where `folder` is no model directory, or lacks any of `more`."""
        for name in ("config.yaml", "model.safetensors", *more):
            if not (folder / name).is_file():
                self.error(f"argument {option}: {folder} is no such model: it has no {name}")


def above(bound, kind=int):
    """An option's `type`: numbers above `bound`."""
    def number(text):
        value = kind(text)
        if not bound < value < math.inf:
            raise argparse.ArgumentTypeError(f"expected a number above {bound}, not '{text}'")
        return value

    number.__name__ = kind.__name__  # what argparse says that a text is none of
    return number


def pattern(text):
    """An option's `type`: regular expressions."""
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no regular expression: {error}") from None


def output_file(text):
    """An option's `type`: a file that can be written where a measurement has ended."""
    file = pathlib.Path(text)
    if file.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder; name a file")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be written: {error.strerror}") from None
    return file


def lines_of(file):
    """Of a text, plain or .gz. Only a line feed ends one; str.splitlines() also cuts at U+0085, U+2028 and others, which
    may stand in a sentence."""
    with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8", newline="\n") as text:
        return [line.removesuffix("\n") for line in text]
