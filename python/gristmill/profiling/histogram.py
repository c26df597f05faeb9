"""Quantiles of the board's histograms (core/log_histogram.h)."""

from __future__ import annotations

import numpy as np

from gristmill import _core

BOUNDS = np.array(_core.histogram_bounds(), dtype=np.float64)


def counts_of(data: bytes) -> np.ndarray:
    """uint64 [buckets]."""
    return np.frombuffer(data, np.uint64)


def quantile(counts: np.ndarray, q: float) -> float:
    """The value below which a share q of what was recorded lies, to an eighth; NaN when nothing was."""
    total = int(counts.sum())
    if total == 0:
        return float("nan")
    sums = np.cumsum(counts)
    bucket = int(np.searchsorted(sums, q * total))
    bucket = min(bucket, len(counts) - 1)
    if bucket + 1 == len(BOUNDS):
        return float(BOUNDS[bucket])
    low, high = BOUNDS[bucket], BOUNDS[bucket + 1]
    if high - low <= 1:
        return float(low)  # whole numbers have a bucket each
    before = float(sums[bucket] - counts[bucket])
    return float(low + (high - low) * (q * total - before) / float(counts[bucket]))


def mean(counts: np.ndarray) -> float:
    """To an eighth; NaN when nothing was recorded."""
    total = int(counts.sum())
    if total == 0:
        return float("nan")
    highs = np.append(BOUNDS[1:], BOUNDS[-1] + 1)
    middles = np.where(highs - BOUNDS <= 1, BOUNDS, (BOUNDS + highs) / 2)
    return float((counts * middles).sum() / total)
