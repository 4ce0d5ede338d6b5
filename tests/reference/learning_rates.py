"""Rates of the first 50 steps, peak 0.003, that PyTorch's schedulers set: learning_rates.py WARMUP FALLING FLAT
LINEAR.

FALLING: after a linear warm-up, the rate of each step from that of the step before: it falls by sqrt((s - 1) / s), the
inverse square root written as a recurrence. FLAT: a linear warm-up, then constant. LINEAR: a linear warm-up, then a
linear decay to 0 after step 40.
"""

import math
import sys
import warnings

import torch
from torch.optim import lr_scheduler

warnings.simplefilter("ignore")  # no optimizer step is ever taken
warmup, steps = int(sys.argv[1]), 50


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.003)


def record(of, scheduler, file):
    with open(file, "w") as out:
        for _ in range(steps):
            print(repr(of.param_groups[0]["lr"]), file=out)
            scheduler.step()


def linear(of):
    # The first step, PyTorch's epoch 0, has 1 / warmup of the rate; step `warmup`, epoch warmup - 1, all of it.
    return lr_scheduler.LinearLR(of, start_factor=1 / warmup, end_factor=1, total_iters=warmup - 1)


def factor(epoch):
    step = epoch + 1
    return step / (step - 1) if step <= warmup else math.sqrt((step - 1) / step)


falling = optimizer()
falling.param_groups[0]["lr"] = 0.003 / warmup
record(falling, lr_scheduler.MultiplicativeLR(falling, factor), sys.argv[2])
flat = optimizer()
record(flat, linear(flat) if warmup > 1 else lr_scheduler.ConstantLR(flat, factor=1, total_iters=0), sys.argv[3])
straight = optimizer()
decay = lr_scheduler.LinearLR(straight, start_factor=1, end_factor=0, total_iters=41 - warmup)
if warmup > 1:
    # Milestone: the epoch from which the second scheduler counts, where it still gives all of the rate.
    decay = lr_scheduler.SequentialLR(straight, [linear(straight), decay], milestones=[warmup - 1])
record(straight, decay, sys.argv[4])
