"""A process's stages by number, as the board's clocks and spans have them (core/measures.h)."""

from __future__ import annotations

from gristmill import _core

STAGES: tuple[str, ...] = (*_core.stages(learner=False), *_core.stages(learner=True))

# A worker's.
ENVIRONMENT, INFERENCE, ASSEMBLE, SPACE_WAIT, COPY, PARAMETERS = (
    STAGES.index(name)
    for name in ("environment", "inference", "assemble", "space_wait", "copy", "parameters")
)
# A learner's that is a loop of the user's own.
BATCH_WAIT, BATCH_VIEW, LEARN, PUBLISH = (
    STAGES.index(name) for name in ("batch_wait", "batch_view", "learn", "publish")
)
