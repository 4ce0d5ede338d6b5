"""Translates text with trained models of the project `transformer`, on CPUs.

    from transformer_cpp import Translator

    with Translator("runs/en-de") as translator:
        print(translator.translate(["Good morning."])[0][0].text)

It needs neither NumPy nor torch: the work is done by libtransformer.so, which comes with this package.
"""

from transformer_cpp.translator import Failure, Mistake, Translation, Translator, TransformerError, version

__all__ = ["Failure", "Mistake", "Translation", "Translator", "TransformerError", "version"]
__version__ = version()
