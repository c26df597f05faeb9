"""Configurations in Python. Names, types, ranges and texts are those of the C++ side."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from gristmill import _core

Overrides = Mapping[str, Any] | Iterable[str] | None


class Config:
    """Every option of a run, as attributes: ``config.learner.gamma = 0.98``.

    A value of the wrong type or out of range, and an unknown name, raise ConfigError at once;
    contradictions between options when the configuration is used.
    """

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        """values: nested ({"learner": {"gamma": 0.98}}) or dotted ({"learner.gamma": 0.98}) names."""
        object.__setattr__(self, "_values", _decoded(_core.default_values()))
        self.update(values or {})

    @classmethod
    def load(cls, path: str | os.PathLike[str], overrides: Overrides = None) -> Config:
        """From a YAML file."""
        return cls.from_resolved(_core.load_config(os.fspath(path), override_texts(overrides)))

    @classmethod
    def from_yaml(cls, text: str) -> Config:
        """From YAML text, as to_yaml() writes it."""
        return cls.from_resolved(_core.parse_config(text))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """The same as Config(values)."""
        return cls(values)

    @classmethod
    def from_resolved(cls, resolved: _core.ResolvedConfig) -> Config:
        """From what resolve() returns."""
        config = cls()
        config._values.update(_decoded(resolved.values))
        return config

    def update(self, values: Mapping[str, Any]) -> None:
        """Sets several options at once; names as in the constructor."""
        for key, value in _flat(values):
            self.set(key, value)

    def set(self, key: str, value: Any) -> None:
        """Sets the option with this dotted name."""
        try:
            checked = _core.check_override(f"{key}={_text(value)}")
        except _core.ConfigError as error:
            raise _core.ConfigError(str(error).removeprefix("override: ")) from None
        # As C++ read it: 1e6 frames are an integer, a tuple a list.
        self._values[key] = _decoded(checked)[key]

    def get(self, key: str) -> Any:
        """The option with this dotted name."""
        if key not in self._values:
            self.set(key, 0)  # raises, and names the nearest
        return self._values[key]

    def resolve(self, overrides: Overrides = None) -> _core.ResolvedConfig:
        """Checked as a whole, for training. Raises ConfigError."""
        defaults = _decoded(_core.default_values())
        texts = [f"{key}={_text(value)}" for key, value in self._values.items() if value != defaults[key]]
        return _core.parse_config("", "Config", texts + override_texts(overrides))

    def to_dict(self) -> dict[str, Any]:
        """Nested, as in YAML."""
        nested: dict[str, Any] = {}
        for key, value in self._values.items():
            section, _, name = key.rpartition(".")
            (nested.setdefault(section, {}) if section else nested)[name] = value
        return nested

    def to_yaml(self, with_help: bool = False) -> str:
        """Every option, as a config file. Raises ConfigError for contradictions."""
        return self.resolve().dump(with_help)

    def __getattr__(self, name: str) -> Any:
        return _attribute(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if _is_section(self, name):
            raise AttributeError(f"{name} is a section; set its options, or use update()")
        self.set(name, value)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.to_dict()]

    def __eq__(self, other: object) -> bool:
        return self._values == other._values if isinstance(other, Config) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        defaults = _decoded(_core.default_values())
        changed = {key: value for key, value in self._values.items() if value != defaults[key]}
        return f"Config({changed})"

    def __getstate__(self) -> dict[str, Any]:
        return dict(self._values)

    def __setstate__(self, values: dict[str, Any]) -> None:
        object.__setattr__(self, "_values", values)


class Section:
    """The options whose names begin alike: ``config.learner``."""

    def __init__(self, config: Config, prefix: str) -> None:
        object.__setattr__(self, "_config", config)
        object.__setattr__(self, "_prefix", prefix)

    def __getattr__(self, name: str) -> Any:
        return _attribute(self._config, f"{self._prefix}.{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        self._config.set(f"{self._prefix}.{name}", value)

    def __dir__(self) -> list[str]:
        return list(self._config.to_dict()[self._prefix])

    def __repr__(self) -> str:
        return f"{self._prefix}: {self._config.to_dict()[self._prefix]}"


def override_texts(overrides: Overrides) -> list[str]:
    """["learner.gamma=0.98"] of a mapping, or of such texts."""
    if overrides is None:
        return []
    if isinstance(overrides, str):
        raise TypeError(f"overrides: expected a mapping or a list of 'key=value', got {overrides!r}")
    if isinstance(overrides, Mapping):
        return [f"{key}={_text(value)}" for key, value in _flat(overrides)]
    return list(overrides)


def resolve(config: Config | Mapping[str, Any] | str | os.PathLike[str], overrides: Overrides = None):
    """A file's path, a mapping or a Config, checked as a whole. Raises ConfigError."""
    if isinstance(config, Config):
        return config.resolve(overrides)
    if isinstance(config, Mapping):
        return Config(config).resolve(overrides)
    return _core.load_config(os.fspath(config), override_texts(overrides))


def _is_section(config: Config, name: str) -> bool:
    return any(key.startswith(name + ".") for key in config._values)


def _attribute(config: Config, key: str) -> Any:
    if key.startswith("_"):
        raise AttributeError(key)
    if key in config._values:
        return config._values[key]
    if _is_section(config, key):
        return Section(config, key)
    try:
        return config.get(key)
    except _core.ConfigError as error:
        raise AttributeError(str(error)) from None


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in values.items():
        name = f"{prefix}{key}"
        # env.kwargs is a mapping itself.
        if isinstance(value, Mapping) and name != "env.kwargs":
            yield from _flat(value, name + ".")
        else:
            yield name, value


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, tuple):
        value = list(value)
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError) as error:
        raise _core.ConfigError(f"{value!r} cannot be an option's value: {error}") from None


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a number, text, list or mapping")


def _decoded(values: dict[str, Any]) -> dict[str, Any]:
    values["env.kwargs"] = json.loads(values["env.kwargs"])
    return values
