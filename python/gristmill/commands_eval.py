"""`eval`: episodes with a run's newest policy, in a window or a film if wanted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from gristmill._core import ConfigError
from gristmill.evaluation import Evaluation
from gristmill.evaluation import evaluate as play

_FORMATS = {".gif": "GIF", ".webp": "WEBP", ".png": "PNG"}
_FRAMES_PER_SECOND = 50
_MOST_FRAMES = 3000


def evaluate(
    run: str,
    episodes: int,
    seed: int,
    greedy: bool,
    render: bool,
    video: Path | None,
    as_json: bool,
    trust: bool = False,
) -> int:
    """Returns the exit code."""
    if render and video is not None:
        raise ConfigError("--render and --video exclude each other; expected one of them")
    film = Film(video) if video is not None else None
    if film is not None:
        # Pictures need no screen, and SDL complains where there is none.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        result = play(run, episodes, seed, greedy, "rgb_array", film.add, trust)
        film.write()
    else:
        result = play(run, episodes, seed, greedy, "human" if render else None, trust=trust)
    print(json.dumps(_figures(result)) if as_json else _sentence(result))
    if film is not None and not as_json:
        print(film.path)
    return 0


def _figures(result: Evaluation) -> dict[str, Any]:
    return {
        "episodes": len(result.returns),
        "mean_return": result.mean_return,
        "deviation": result.deviation,
        "min_return": min(result.returns),
        "max_return": max(result.returns),
        "mean_length": result.mean_length,
        "frames": result.frames,
        "returns": result.returns,
    }


def _sentence(result: Evaluation) -> str:
    count = len(result.returns)
    return (
        f"{count} episode{'s' * (count != 1)}: mean return {result.mean_return:.1f} ± {result.deviation:.1f} "
        f"({min(result.returns):.1f} to {max(result.returns):.1f}), mean length {result.mean_length:.0f} "
        f"(policy after {result.frames:,} frames)"
    )


class Film:
    """Pictures that become an animated file."""

    def __init__(self, path: Path) -> None:
        """Raises ConfigError for what cannot be written, before anything is played."""
        if path.suffix.lower() not in _FORMATS:
            raise ConfigError(f"--video {path}: expected a name that ends in {', '.join(_FORMATS)}")
        if not path.parent.is_dir():
            raise ConfigError(f"--video {path}: no folder {path.parent}")
        self.path = path
        self._pictures: list[Any] = []

    def add(self, picture: Any) -> None:
        """picture: uint8 [height, width, 3]. Only the first minute is kept."""
        from PIL import Image

        if len(self._pictures) < _MOST_FRAMES:
            self._pictures.append(Image.fromarray(picture))

    def write(self) -> None:
        first, *others = self._pictures
        first.save(
            self.path,
            format=_FORMATS[self.path.suffix.lower()],
            save_all=True,
            append_images=others,
            duration=1000 // _FRAMES_PER_SECOND,
            loop=0,
        )
