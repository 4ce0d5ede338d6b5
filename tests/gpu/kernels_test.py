"""Kernels for GPUs compile, for every size that they are asked for: kernels_test.py. Needs no GPU, only NVRTC, which comes
with Python's torch for CUDA."""

import ctypes
import importlib.util
import pathlib
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FUSED = ROOT / "transformer" / "model" / "fused"


def nvrtc():
    folder = pathlib.Path(importlib.util.find_spec("nvidia").submodule_search_locations[0])
    return ctypes.CDLL(str(next(folder.glob("cu*/lib/libnvrtc.so.*"))))


class KernelsTest(unittest.TestCase):
    def compiled(self, name, architecture, **sizes):
        """The log of compiling a file, and the machine code or PTX."""
        library, program = nvrtc(), ctypes.c_void_p()
        included = ("gpu_arguments.h", "gpu_numbers.cuh")
        headers = (ctypes.c_char_p * 2)(*((FUSED / file).read_bytes() for file in included))
        names = (ctypes.c_char_p * 2)(*(file.encode() for file in included))
        self.assertEqual(library.nvrtcCreateProgram(ctypes.byref(program), (FUSED / name).read_bytes(), name.encode(), 2,
                                                    headers, names), 0)
        options = [f"--gpu-architecture={architecture}", "--std=c++17", *(f"-D{key}={value}" for key, value in sizes.items())]
        result = library.nvrtcCompileProgram(program, len(options),
                                             (ctypes.c_char_p * len(options))(*(option.encode() for option in options)))
        size = ctypes.c_size_t()
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        self.assertEqual(result, 0, log.value.decode())
        self.assertEqual(log.value.decode().strip(), "")
        code = library.nvrtcGetPTXSize if architecture.startswith("compute") else library.nvrtcGetCUBINSize
        self.assertEqual(code(program, ctypes.byref(size)), 0)
        library.nvrtcDestroyProgram(ctypes.byref(program))
        return size.value

    def test_every_size_compiles(self):
        # PTX is what a driver gets; machine code has registers and shared memory to fit in.
        for architecture in ("compute_80", "sm_80", "sm_90"):
            for width in (64, 128, 192, 512, 1024, 1536, 2048):
                with self.subTest(architecture=architecture, width=width):
                    self.assertGreater(self.compiled("gpu_kernels.cu", architecture, WIDTH=width, LENGTH=0, HEAD=0), 1000)
            for length in (64, 128):
                for head in (32, 64):
                    with self.subTest(architecture=architecture, length=length, head=head):
                        self.assertGreater(
                            self.compiled("gpu_attention.cu", architecture, WIDTH=0, LENGTH=length, HEAD=head), 1000)


unittest.main(verbosity=2)
