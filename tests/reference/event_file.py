"""What TensorBoard's own reader makes of an event file.

event_file.py read FILE EXPECTED.json WATCHED_FROM   its curves are EXPECTED's: tag -> [[step, value], ..]
event_file.py damage FILE                            every flipped byte hides the record it is in
"""

import json
import logging
import pathlib
import struct
import sys
import tempfile
import time

import numpy as np
from tensorboard.backend.event_processing import event_accumulator, event_file_loader, io_wrapper

logging.disable(logging.WARNING)  # "Purging expired events", which is what is tested


def accumulator(path):
    return event_accumulator.EventAccumulator(str(path), size_guidance={event_accumulator.SCALARS: 0})


def check(events, expected):
    events.Reload()
    assert events.file_version == 2, events.file_version
    assert set(events.Tags()["scalars"]) == set(expected), (events.Tags()["scalars"], set(expected))
    for tag, points in expected.items():
        found = events.Scalars(tag)
        assert [event.step for event in found] == [step for step, _ in points], (tag, found)
        assert [event.value for event in found] == [float(np.array(value, np.float32)) for _, value in points], (tag, found)
        assert all(time.time() - 60 < event.wall_time <= time.time() for event in found), found
        assert [event.wall_time for event in found] == sorted(event.wall_time for event in found), found


def read(file, expected, watched_from):
    file = pathlib.Path(file)
    assert io_wrapper.IsSummaryEventsFile(str(file)), file.name
    expected = json.loads(pathlib.Path(expected).read_text())
    check(accumulator(file), expected)
    if watched_from:
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / file.name
            content = file.read_bytes()
            copy.write_bytes(content[:watched_from])
            watching = accumulator(copy)
            watching.Reload()
            with copy.open("ab") as out:
                out.write(content[watched_from:])
            check(watching, expected)


def damage(file):
    content = pathlib.Path(file).read_bytes()
    ends = [0]
    while ends[-1] < len(content):
        ends.append(ends[-1] + 16 + struct.unpack_from("<Q", content, ends[-1])[0])
    assert len(ends) == 4, ends
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "tfevents"
        records = lambda: len(list(event_file_loader.RawEventFileLoader(str(copy)).Load()))
        copy.write_bytes(content)
        assert records() == 3
        for position in range(len(content)):
            flipped = bytearray(content)
            flipped[position] ^= 1 << position % 8
            copy.write_bytes(flipped)
            intact = sum(end <= position for end in ends[1:])
            assert records() == intact, (position, ends)


if sys.argv[1] == "read":
    read(sys.argv[2], sys.argv[3], int(sys.argv[4]))
else:
    damage(sys.argv[2])
