"""libtransformer.so, as its header transformer/interface/transformer.h declares it."""

import ctypes
import os
import pathlib
from ctypes import POINTER, Structure, c_char_p, c_double, c_int, c_size_t, c_uint32, c_void_p

ABI = 1


class Options(Structure):
    _fields_ = [("size", c_size_t), ("precision", c_char_p), ("threads", c_size_t), ("draft", c_char_p)]


class Search(Structure):
    _fields_ = [("size", c_size_t), ("beam", c_size_t), ("n_best", c_size_t), ("alpha", c_double),
                ("length_penalty", c_int), ("stop", c_int), ("max_extra_length", c_size_t),
                ("batch_sentences", c_size_t), ("settings", c_char_p)]


_LINES = POINTER(c_char_p)
_DECLARED = {
    "abi": (c_uint32,),
    "version": (c_char_p,),
    "error": (c_char_p,),
    "load": (c_int, c_char_p, POINTER(Options), POINTER(c_void_p)),
    "model_free": (None, c_void_p),
    "search_defaults": (c_int, c_void_p, POINTER(Search)),
    "translate": (c_int, c_void_p, _LINES, c_size_t, POINTER(Search), POINTER(c_void_p)),
    "translations_free": (None, c_void_p),
    "translations_lines": (c_size_t, c_void_p),
    "translations_of_line": (c_size_t, c_void_p, c_size_t),
    "translation_text": (c_char_p, c_void_p, c_size_t, c_size_t),
    "translation_score": (c_double, c_void_p, c_size_t, c_size_t),
    "translation_log_probability": (c_double, c_void_p, c_size_t, c_size_t),
    "score": (c_int, c_void_p, _LINES, _LINES, c_size_t, POINTER(c_double), POINTER(c_size_t)),
    "score_with": (c_int, c_void_p, c_char_p, _LINES, _LINES, c_size_t, POINTER(c_double), POINTER(c_size_t)),
}


def _open():
    # Its own beside this file; TRANSFORMER_LIBRARY names another, as a build's.
    name = f"libtransformer.so.{ABI}"
    beside = pathlib.Path(__file__).parent / "lib" / name
    opened = ctypes.CDLL(os.environ.get("TRANSFORMER_LIBRARY") or (str(beside) if beside.exists() else name))
    for function, (result, *arguments) in _DECLARED.items():
        declared = getattr(opened, f"transformer_{function}")
        declared.restype, declared.argtypes = result, arguments
    if opened.transformer_abi() != ABI:
        raise ImportError(f"{opened._name} has the interface {opened.transformer_abi()}, and {ABI} is needed")
    return opened


library = _open()
