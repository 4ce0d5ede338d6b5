"""A model directory, opened for translating and scoring."""

import contextlib
import ctypes
import operator
import os
import sys
import threading
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, TypeVar, Union

from transformer_cpp.library import Options, Search, library

_LENGTH_PENALTIES = ("gnmt", "power")
_STOPS = ("exact", "beam_finished")
_Result = TypeVar("_Result")


class TransformerError(Exception):
    """What went wrong, in a line that names it and what to do."""


class Mistake(TransformerError, ValueError):
    """In what was given: a folder that is no model, an option, a line."""


class Failure(TransformerError, RuntimeError):
    """While running: out of memory, say."""


class Translation(NamedTuple):
    text: str
    score: float  # log probability / length penalty, and what coverage costs
    log_probability: float


def version() -> str:
    return library.transformer_version().decode()


def _check(status: int) -> None:
    if status != 0:
        raise (Mistake if status == 2 else Failure)(library.transformer_error().decode())


def _interruptibly(call: Callable[[], _Result]) -> _Result:
    """What `call` returns or raises. Ctrl-C ends the wait for it, though not the call, which nobody waits for then."""
    # While the interpreter ends, no thread begins any more.
    if threading.current_thread() is not threading.main_thread() or sys.is_finalizing():
        return call()
    done: List[Tuple[bool, object]] = []

    def run() -> None:
        try:
            done.append((True, call()))
        except BaseException as error:  # the caller's
            done.append((False, error))

    # Signals reach Python code alone, which the main thread has to be in.
    thread: Optional[threading.Thread] = threading.Thread(target=run, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no more threads
        thread = None
    if thread is None:
        return call()
    thread.join()
    returned, result = done.pop()  # which an error's traceback would keep, and all that `call` holds with it
    try:
        if not returned:
            raise result
        return result
    finally:
        del result


def _number(name: str, given: int) -> int:
    try:
        value = None if isinstance(given, bool) else operator.index(given)
    except TypeError:
        value = None
    if value is None:
        raise TypeError(f"{name} takes an integer, found {given!r}")
    most = (1 << 63) - 1
    if not 0 <= value <= most:
        raise Mistake(f"{name}: takes a number from 0 to {most}, found {value}")
    return value


def _path(name: str, value: Union[str, os.PathLike]) -> bytes:
    path = os.fsencode(value)
    if b"\0" in path:
        raise Mistake(f"{name}: has a NUL in its name")
    return path


def _one_of(name: str, value: str, names: Tuple[str, ...]) -> int:
    if value not in names:
        raise Mistake(f"{name}: takes one of: {', '.join(names)}, found {value!r}")
    return names.index(value)


def _setting_lines(settings: Dict[str, Union[bool, int, float, str]]) -> bytes:
    lines = []
    for name, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if any(mark in name for mark in "=\n\0"):
            raise Mistake(f"{name!r}: is the name of no setting")
        if "\n" in text or "\0" in text:
            raise Mistake(f"{name}: takes one line, found {value!r}")
        lines.append(f"{name}={text}")
    return "\n".join(lines).encode(errors="backslashreplace")


def _lines(name: str, lines: Sequence[str]):
    if isinstance(lines, (str, bytes)):
        raise TypeError(f"{name} takes a list of lines, found one {type(lines).__name__}")
    encoded = []
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str):
            raise TypeError(f"line {number} of {name} is no str, but {type(line).__name__}")
        try:
            # A NUL would end the line; where texts are normalised, all control characters are the same.
            encoded.append(line.replace("\0", "\1").encode())
        except UnicodeEncodeError as error:
            raise Mistake(f"line {number} of {name}: not text ({error.reason})") from None
    return (ctypes.c_char_p * len(encoded))(*encoded), len(encoded)


class Translator:
    """A model directory, loaded. Threads may share one; its memory is released by `close`, at the end of a `with`, or
    with the last reference, as soon as no call uses it any more. The weights of a packed model are mapped: while it is in
    use, put another in its place by renaming, never by writing into its files, which may end the process.

    precision: what weights and activations are rounded to, "float32" (as trained), "bf16" or "int8"; None: as the
    model is stored, which for most is float32, and for a packed one what it was packed to.
    threads: that a call uses, each with lines of its own; 0: as OMP_NUM_THREADS says, else one for each
    processor.
    draft: the directory of a small model of the same vocabulary that guesses what this one then checks, several word
    pieces at a time: faster where few lines are translated at once, and the same to the last bit. For calls with one
    hypothesis a line (beam=1, or search="sampling"); others do without it.
    """

    def __init__(self, directory: Union[str, os.PathLike], *, precision: Optional[str] = None, threads: int = 0,
                 draft: Optional[Union[str, os.PathLike]] = None) -> None:
        self._model = None
        self._users = 0
        self._closed = False
        self._lock = threading.Lock()
        if not isinstance(precision, (str, type(None))):
            raise TypeError(f"precision takes a str or None, found {precision!r}")
        path = _path("directory", directory)
        options = Options(ctypes.sizeof(Options),
                          None if precision is None else precision.replace("\0", "?").encode(errors="backslashreplace"),
                          _number("threads", threads),
                          None if draft is None else _path("draft", draft))
        model = ctypes.c_void_p()
        _check(library.transformer_load(path, options, model))
        self._model = model

    def translate(self, lines: Sequence[str], *, beam: Optional[int] = None, n_best: Optional[int] = None,
                  alpha: Optional[float] = None, length_penalty: Optional[str] = None, stop: Optional[str] = None,
                  max_extra_length: Optional[int] = None,
                  batch_sentences: Optional[int] = None,
                  **settings: Union[bool, int, float, str]) -> List[List[Translation]]:
        """The translations of each line, `n_best` of them, the best first; one, "", of a line without text.

        What is not given is as in the model's config.yaml. beam: hypotheses kept for each line; alpha: exponent of the
        length penalty, "gnmt" or "power"; stop: when a line is done, "exact" or "beam_finished"; max_extra_length: word
        pieces by which output may be longer than its line; batch_sentences has no effect here, where all calls share
        the batches of the model's own setting. Any other setting of
        the section `decoding` by its name: search="sampling", top_p=0.9, seed=7, no_repeat_ngram=3.
        Ctrl-C ends the call at once; its lines are decoded to their end all the same, before those of later calls.
        """
        # What is the caller's is asked on the caller's thread: a cursor of a database, say, refuses any other.
        numbers = {"beam": beam, "n_best": n_best, "max_extra_length": max_extra_length,
                   "batch_sentences": batch_sentences}
        given = {name: _number(name, value) for name, value in numbers.items() if value is not None}
        if alpha is not None:
            given["alpha"] = float(alpha)
        if length_penalty is not None:
            given["length_penalty"] = _one_of("length_penalty", length_penalty, _LENGTH_PENALTIES)
        if stop is not None:
            given["stop"] = _one_of("stop", stop, _STOPS)
        if settings:
            given["settings"] = _setting_lines(settings)
        array, count = _lines("lines", lines)
        return _interruptibly(lambda: self._translated(array, count, given))

    def _translated(self, array: ctypes.Array, count: int,
                    given: Dict[str, Union[int, float, bytes]]) -> List[List[Translation]]:
        with self._in_use() as model:
            search = Search(ctypes.sizeof(Search))
            _check(library.transformer_search_defaults(model, search))
            for name, value in given.items():
                setattr(search, name, value)
            found = ctypes.c_void_p()
            _check(library.transformer_translate(model, array, count, search, found))
        try:
            return [[Translation(library.transformer_translation_text(found, line, rank).decode(),
                                 library.transformer_translation_score(found, line, rank),
                                 library.transformer_translation_log_probability(found, line, rank))
                     for rank in range(library.transformer_translations_of_line(found, line))]
                    for line in range(count)]
        finally:
            library.transformer_translations_free(found)

    def score(self, source: Union[str, Sequence[str]], target: Union[str, Sequence[str]],
              **settings: Union[bool, int, float, str]) -> Union[float, List[float]]:
        """The log-probability, in nats, that the model gives to `target` as the whole translation of `source`: a number
        for two lines, a list for two lists of lines. For a model of many languages with what these are:
        source_language="eng_Latn", target_language="fra_Latn"."""
        if isinstance(source, str) and isinstance(target, str):
            return self.score([source], [target], **settings)[0]
        sources, count = _lines("source", source)
        targets, other = _lines("target", target)
        if count != other:
            raise Mistake(f"target: has {other} line{'s' if other != 1 else ''}, and source has {count}")
        text = _setting_lines(settings)
        return _interruptibly(lambda: self._scores(sources, targets, count, text))

    def _scores(self, sources: ctypes.Array, targets: ctypes.Array, count: int, settings: bytes) -> List[float]:
        found = (ctypes.c_double * count)()
        with self._in_use() as model:
            _check(library.transformer_score_with(model, settings, sources, targets, count, found, None))
        return list(found)

    def close(self) -> None:
        """Releases the model, when the calls that use it have ended; nothing is translated after that."""
        with self._lock:
            self._closed = True
        self._release()

    def __reduce__(self):
        raise TypeError("a Translator can be neither copied nor pickled: share it, or open its directory again")

    def __enter__(self) -> "Translator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            self.close()

    @contextlib.contextmanager
    def _in_use(self) -> Iterator[ctypes.c_void_p]:
        """The model; `close` in one thread does not take it from under another's call."""
        with self._lock:
            if self._closed:
                raise Mistake("this Translator is closed")
            self._users += 1
        try:
            yield self._model
        finally:
            with self._lock:
                self._users -= 1
            self._release()

    def _release(self) -> None:
        with self._lock:
            model = None
            if self._closed and self._users == 0:
                model, self._model = self._model, None
        if model:
            library.transformer_model_free(model)
