"""A policy of the user's own, as a worker runs it.

Any object with

    act(obs, state) -> actions
    act(obs, state) -> {"actions": …, "log_probs": …, "values": …, anything: …}
    act(obs, state) -> (either of these, next_state)

obs: a tensor [E, *shape], float32 or uint8, over the worker's own buffer: read it, do not keep or change it.
"actions": [E] whole numbers for Discrete actions, [E, dims] for Box. "log_probs" and "values": [E], if the
learner wants them. Whatever else is named becomes a field of the trajectories, [n, T, …].

A recurrent policy has initial_state(count) as well, which returns a tensor, or a tuple, list or dict of
tensors, [count, …] each; act() then gets it, with the rows of environments whose episode has just begun set
back to it. With value(obs, state) -> [E], final observations are valued by that instead of act().

act() runs under torch.inference_mode. In a worker process a torch.nn.Module is in eval mode, and its
parameters are those of the newest published version, in place: act() must not write them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gristmill import _tensors

if TYPE_CHECKING:
    from gristmill.box import Box, BoxPin

# A step's fields that every trajectory has, whatever the policy; a policy's own may not be called so.
RESERVED = (
    "observations",
    "rewards",
    "terminated",
    "truncated",
    "final_values",
    "final_observations",
    "episode_returns",
    "episode_lengths",
    "version",
    "versions",
    "worker",
    "slot",
)


class PolicyError(TypeError):
    """A policy does not keep to the contract of gristmill.acting. Trying again is no help."""


@dataclasses.dataclass
class Acted:
    """What act() returned, as arrays [E, …], and the state that follows."""

    fields: dict[str, np.ndarray]
    dtypes: dict[str, str]
    state: Any


class ActingPolicy:
    """Calls a policy for `count` environments of one description. One thread at a time."""

    def __init__(self, policy: Any, environment: Mapping[str, Any], count: int) -> None:
        if not callable(getattr(policy, "act", None)):
            raise PolicyError(
                f"policy is {type(policy).__name__}, which has no act(obs, state); see gristmill.acting"
            )
        self.policy = policy
        self.count = count
        action = environment["action"]
        self.action_count = action.get("count", 0)
        self.action_shape = () if self.action_count else (len(action["low"]),)
        self._module = policy if isinstance(policy, torch.nn.Module) else None
        self._binding = None if self._module is None else ParameterBinding(self._module)

    @property
    def has_parameters(self) -> bool:
        return self._binding is not None and bool(self._binding.names)

    def use(self, box: Box) -> int:
        """Acts on the box's newest version from now on; returns it."""
        if self._binding is None:
            return box.version
        return self._binding.use(box)

    def initial_state(self) -> Any:
        """For the first episodes; None for a policy without one."""
        make = getattr(self.policy, "initial_state", None)
        if make is None:
            return None
        with torch.inference_mode():
            state = make(self.count)
        for name, leaf in state_leaves(state).items():
            if not isinstance(leaf, torch.Tensor) or leaf.ndim < 1 or len(leaf) != self.count:
                raise PolicyError(
                    f"initial_state({self.count}): {name} is {_told(leaf)}; expected a tensor "
                    f"[{self.count}, …]"
                )
        return state

    def act(self, observations: torch.Tensor, state: Any) -> Acted:
        """Raises PolicyError when the result is not what the contract says."""
        with torch.inference_mode():
            result = self.policy.act(observations, state)
        following = None
        if isinstance(result, tuple) and len(result) == 2:
            result, following = result
        if not isinstance(result, Mapping):
            result = {"actions": result}
        if "actions" not in result:
            raise PolicyError(f"act() returned {', '.join(result)}; expected 'actions' among them")
        if (following is None) != (state is None):
            raise PolicyError(
                "act() returned a state, but the policy has no initial_state(count)"
                if state is None
                else "the policy has an initial_state(), so act() must return (…, next_state)"
            )
        fields: dict[str, np.ndarray] = {}
        dtypes: dict[str, str] = {}
        for name, value in result.items():
            if name in RESERVED or name == "state" or name.startswith("state."):
                raise PolicyError(f"act() returned '{name}', which is a field of the trajectory already")
            dtypes[name] = _tensors.dtype_of(value) if hasattr(value, "dtype") else ""
            fields[name] = _array(value)
        self._check(fields)
        for name in ("log_probs", "values"):
            if name in fields:
                fields[name] = self._per_environment(name, fields[name])
        return Acted(fields, dtypes, following)

    def values(self, observations: torch.Tensor, state: Any) -> np.ndarray:
        """Of observations, [E]; called only when act() returns values."""
        value = getattr(self.policy, "value", None)
        if value is None:
            return self.act(observations, state).fields["values"]
        with torch.inference_mode():
            return self._per_environment("values", _array(value(observations, state)))

    def _check(self, fields: dict[str, np.ndarray]) -> None:
        actions = fields["actions"]
        expected = (self.count, *self.action_shape)
        if actions.shape != expected:
            raise PolicyError(f"act(): 'actions' has shape {list(actions.shape)}, expected {list(expected)}")
        if self.action_count:
            if actions.dtype.kind not in "iu":
                raise PolicyError(f"act(): 'actions' is {actions.dtype}; Discrete actions are whole numbers")
            if int(actions.min()) < 0 or int(actions.max()) >= self.action_count:
                raise PolicyError(
                    f"act(): 'actions' goes from {actions.min()} to {actions.max()}, expected 0 to "
                    f"{self.action_count - 1}"
                )
        elif not np.isfinite(actions).all():
            raise PolicyError("act(): 'actions' holds what is not finite")
        for name, array in fields.items():
            if array.ndim < 1 or len(array) != self.count:
                raise PolicyError(
                    f"act(): '{name}' has shape {list(array.shape)}; its first extent should be "
                    f"{self.count}, the number of environments"
                )

    def _per_environment(self, name: str, array: np.ndarray) -> np.ndarray:
        if array.shape == (self.count, 1):
            array = array[:, 0]
        if array.shape != (self.count,):
            raise PolicyError(f"'{name}' has shape {list(array.shape)}, expected [{self.count}]")
        return array


class ParameterBinding:
    """Makes a module's parameters views of a box's newest version: they are not copied. Buffers are, since
    a module may write them."""

    def __init__(self, module: torch.nn.Module) -> None:
        state = module.state_dict(keep_vars=True)
        self.names = list(state)
        # A tied parameter has several names; each name is a field, the last one counts.
        self._in_place = [(n, t) for n, t in state.items() if isinstance(t, torch.nn.Parameter)]
        self._copied = [(n, t) for n, t in state.items() if not isinstance(t, torch.nn.Parameter)]
        self._pin: BoxPin | None = None

    def use(self, box: Box) -> int:
        if not self.names:
            return box.version
        pin = box.pin()
        for name, parameter in self._in_place:
            parameter.data = pin.tensor(name)
        for name, buffer in self._copied:
            buffer.copy_(pin.tensor(name))
        # The former pin ends with its last view, and those are gone now.
        self._pin = pin
        return pin.version


def box_fields(policy: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    """What a box holds for this policy: every parameter and buffer, by its name in the state dict."""
    if not isinstance(policy, torch.nn.Module):
        return {}
    return {name: (_tensors.dtype_of(t), tuple(t.shape)) for name, t in policy.state_dict().items()}


def state_leaves(state: Any) -> dict[str, Any]:
    """The tensors of a state by the name of their field: "state", or "state.0", "state.h", …"""
    if state is None:
        return {}
    if isinstance(state, Mapping):
        return {f"state.{name}": leaf for name, leaf in state.items()}
    if isinstance(state, tuple | list):
        return {f"state.{i}": leaf for i, leaf in enumerate(state)}
    return {"state": state}


def state_reset(state: Any, initial: Any, ended: np.ndarray) -> Any:
    """`state` with the rows of `ended` [E] as in `initial`."""
    mask = torch.from_numpy(ended)

    def one(leaf: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        return torch.where(mask.view(-1, *[1] * (leaf.ndim - 1)), first, leaf)

    with torch.inference_mode():
        if isinstance(state, Mapping):
            return {name: one(leaf, initial[name]) for name, leaf in state.items()}
        if isinstance(state, tuple | list):
            leaves = [one(leaf, first) for leaf, first in zip(state, initial, strict=True)]
            if hasattr(state, "_fields"):
                return type(state)(*leaves)
            return type(state)(leaves)
        return one(state, initial)


def _array(value: Any) -> np.ndarray:
    return _tensors.readable(value) if isinstance(value, torch.Tensor) else np.asarray(value)


def _told(value: Any) -> str:
    return f"a tensor {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
