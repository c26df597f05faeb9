"""`with box.write() as w`: several fields, read and written as one version."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from gristmill import _box

if TYPE_CHECKING:
    from gristmill.box import Box


class BoxWriting:
    """What `with box.write() as w` hands out: reads see what was assigned, the box sees it at the end."""

    def __init__(self, box: Box) -> None:
        object.__setattr__(self, "_box", box)
        object.__setattr__(self, "_held", _box.begin_write(box, None))
        object.__setattr__(self, "_changes", {})

    def __getattr__(self, name: str) -> Any:
        changes = self._changes
        return changes[name] if name in changes else getattr(self._box, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._changes.update(self._box._flatten({name: value}))

    def __enter__(self) -> BoxWriting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._changes:
                self._held.commit(self._changes)
        finally:
            self._held.release()
