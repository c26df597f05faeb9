"""TensorBoard event files, written here: importing TensorBoard's own writer takes longer than a short
run's start-up, and its thread would contend with the learner.

A file is a sequence of records: length (uint64), masked CRC-32C of the length, an Event message, masked
CRC-32C of that. https://github.com/tensorflow/tensorboard: compat/proto/event.proto, summary.proto.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Mapping
from pathlib import Path


class EventFile:
    """Scalars of one run. One thread; every write reaches the file."""

    def __init__(self, folder: str | Path) -> None:
        """Raises OSError."""
        name = f"events.out.tfevents.{int(time.time())}.{os.uname().nodename}.{os.getpid()}"
        self._file = open(Path(folder) / name, "ab")  # noqa: SIM115
        self._write(_double(1, time.time()) + _bytes(3, b"brain.Event:2"))

    def add_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """One value of each tag. Raises OSError."""
        summary = b"".join(
            _bytes(1, _bytes(1, tag.encode()) + _float(2, value)) for tag, value in scalars.items()
        )
        self._write(_double(1, time.time()) + _varint_field(2, step) + _bytes(5, summary))

    def close(self) -> None:
        self._file.close()

    def _write(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        # One write: a crash in between leaves a cut record, which readers skip.
        self._file.write(length + _masked_crc(length) + event + _masked_crc(event))
        self._file.flush()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint_field(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _float(number: int, value: float) -> bytes:
    return _varint(number << 3 | 5) + struct.pack("<f", value)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc_table()


def _masked_crc(data: bytes) -> bytes:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
