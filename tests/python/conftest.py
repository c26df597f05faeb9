"""Fixtures of more than one file."""

import datetime
import os
from pathlib import Path

import numpy as np
import pytest
from running import FAULTY_FRAMES, SMALL, segments_of, workers_of

import gristmill as gm


@pytest.fixture
def faulty(tmp_path, monkeypatch, caplog):
    """Runs fault_environments.Fault; `once`: the worker goes wrong, but not its successor. With one worker,
    only a successor that takes part can end the run; and the queue has no more places than a batch needs, so
    that one that was lost would stop it."""
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
    caplog.set_level("INFO", logger="gristmill")

    def run(kind, at=1_000, once=True, frames=FAULTY_FRAMES, **options):
        config = gm.Config(SMALL)
        config.run.dir = tmp_path / "runs"
        kwargs = {"kind": kind, "at": at}
        if once:
            kwargs["once"] = str(tmp_path / "went_wrong")
        config.update(
            {
                "env.id": "gymnasium:fault_environments:Fault-v0",
                "env.kwargs": kwargs,
                "train.total_frames": frames,
                "workers.count": 1,
                "queue.capacity": config.learner.batch_trajectories,
                **options,
            }
        )
        return gm.train(config)

    yield run
    assert not segments_of(os.getpid())
    assert not workers_of(os.getpid())


@pytest.fixture
def box():
    """A box with a field of every type."""
    made = gm.Box(
        lr=3e-4,
        step=0,
        phase="warmup",
        done=False,
        token=b"\0\1",
        since=datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
        at=datetime.datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC),
        weights=np.arange(6, dtype="f4").reshape(2, 3),
    )
    yield made
    if not made.closed:
        made.unlink()
