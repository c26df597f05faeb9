"""The built-in network as a torch module: the twin of rollout/policy.h, for learners in Python."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional

_ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "elu": functional.elu}
_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


class MlpPolicy(nn.Module):
    """Actor and critic on hidden layers, shared or a network each. Parameters have the names and shapes of
    the C++ policy's, and begin as its do: orthogonal, gain √2 in hidden layers, 0.01 for the actor, 1 for
    the critic.

    environment: its description, as Rollouts.environment gives it.
    """

    def __init__(
        self,
        environment: Mapping[str, Any],
        *,
        hidden_sizes: Sequence[int] = (64, 64),
        activation: str = "tanh",
        shared_trunk: bool = True,
        initial_log_std: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self._activation = _ACTIVATIONS[activation]
        shape = environment["observation"]["shape"]
        self._dims, self._inputs = len(shape), math.prod(shape)
        self.discrete = "count" in environment["action"]
        outputs = environment["action"]["count"] if self.discrete else len(environment["action"]["low"])
        generator = torch.Generator().manual_seed(seed)

        def trunk() -> nn.ModuleList:
            widths = [self._inputs, *hidden_sizes]
            return nn.ModuleList(
                _linear(i, o, math.sqrt(2), generator) for i, o in itertools.pairwise(widths)
            )

        self.shared_trunk = shared_trunk
        if shared_trunk:
            self.trunk = trunk()
        else:
            self.actor_trunk, self.critic_trunk = trunk(), trunk()
        self.actor = _linear(hidden_sizes[-1], outputs, 0.01, generator)
        self.critic = _linear(hidden_sizes[-1], 1, 1.0, generator)
        if not self.discrete:
            self.actor.log_std = nn.Parameter(torch.full((outputs,), initial_log_std))

    def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """observations [..., *shape], float32 or uint8 (scaled by 1/255). Returns (logits or means [..., A],
        values [...])."""
        lead = observations.shape[: observations.ndim - self._dims]
        flat = observations.reshape(*lead, self._inputs)
        flat = flat.float() / 255 if flat.dtype == torch.uint8 else flat
        if self.shared_trunk:
            hidden = critic_hidden = self._through(self.trunk, flat)
        else:
            hidden = self._through(self.actor_trunk, flat)
            critic_hidden = self._through(self.critic_trunk, flat)
        return self.actor(hidden), self.critic(critic_hidden)[..., 0]

    def evaluate(
        self, observations: torch.Tensor, actions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(log_probs, entropies, values) of actions, each [...]."""
        outputs, values = self(observations)
        if self.discrete:
            log_probs = functional.log_softmax(outputs, -1)
            taken = log_probs.gather(-1, actions.long()[..., None])[..., 0]
            return taken, -(log_probs.exp() * log_probs).sum(-1), values
        log_std = self.actor.log_std
        z = (actions - outputs) * torch.exp(-log_std)
        taken = (-0.5 * z * z - log_std - _HALF_LOG_2PI).sum(-1)
        return taken, (log_std + 0.5 + _HALF_LOG_2PI).sum().expand_as(taken), values

    def act(self, observations: torch.Tensor, state: None = None) -> dict[str, torch.Tensor]:
        """As gristmill.acting wants it: sampled actions, their log-probabilities, and values."""
        outputs, values = self(observations)
        if self.discrete:
            log_probs = functional.log_softmax(outputs, -1)
            actions = torch.multinomial(log_probs.exp(), 1)
            return {
                "actions": actions[:, 0],
                "log_probs": log_probs.gather(1, actions)[:, 0],
                "values": values,
            }
        z = torch.randn_like(outputs)
        log_std = self.actor.log_std
        log_probs = (-0.5 * z * z - log_std - _HALF_LOG_2PI).sum(-1)
        return {"actions": outputs + z * torch.exp(log_std), "log_probs": log_probs, "values": values}

    def _through(self, layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = self._activation(layer(x))
        return x


def flattened(values: Any, twin: MlpPolicy) -> torch.Tensor:
    """The parameters in the order of the C++ policy's buffer: [parameter_count] float32. values: an
    MlpPolicy, or a state dict of one."""
    state = values.state_dict() if hasattr(values, "state_dict") else values
    parts = []
    for name, expected in _ordered(twin):
        if name not in state:
            raise KeyError(f"parameter '{name}' is missing; expected float32 {list(expected.shape)}")
        if tuple(state[name].shape) != tuple(expected.shape):
            raise TypeError(
                f"parameter '{name}' has shape {list(state[name].shape)}, expected {list(expected.shape)}"
            )
        parts.append(state[name].detach().reshape(-1).float().cpu())
    return torch.cat(parts)


def parameter_count(policy: MlpPolicy) -> int:
    return sum(parameter.numel() for _, parameter in _ordered(policy))


def _ordered(policy: MlpPolicy) -> list[tuple[str, torch.Tensor]]:
    """Hidden layers first, then both heads' weights, both biases, the deviations: as in rollout/policy.cc."""
    state = policy.state_dict()
    heads = ["actor.weight", "critic.weight", "actor.bias", "critic.bias", "actor.log_std"]
    names = [name for name in state if name not in heads] + [name for name in heads if name in state]
    return [(name, state[name]) for name in names]


def _linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    with torch.no_grad():
        gaussian = torch.randn(max(inputs, outputs), min(inputs, outputs), generator=generator)
        q, r = torch.linalg.qr(gaussian)
        q = q * torch.sign(torch.diagonal(r))
        layer.weight.copy_((q.T if outputs < inputs else q) * gain)
        layer.bias.zero_()
    return layer
