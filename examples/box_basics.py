"""Sharing state between your own processes: read in place, never torn, never blocked by who died.

python examples/box_basics.py
"""

import multiprocessing

import torch
from torch import nn

import gristmill as gm


def follow(settings, parameters, report):
    """A process that acts on the newest parameters."""
    module = nn.Linear(8, 2)
    version = 0
    report.put("ready")
    while not settings.done:
        version = parameters.watch(version, timeout=60)
        parameters.load_into(module)  # or, without a copy: with parameters.pin() as pin: pin.tensors()
        # All of one version: the bias is the weights' sum, whenever we look.
        with torch.no_grad():
            assert torch.isclose(module.bias.sum(), module.weight.sum(), atol=1e-3)
    report.put((version, settings.learning_rate))


def main():
    torch.manual_seed(0)
    module = nn.Linear(8, 2)
    settings = gm.Box(learning_rate=1e-3, done=False)  # numbers, flags, short texts, times, arrays
    parameters = gm.Box(module.state_dict())
    report = gm.Queue()

    context = multiprocessing.get_context("spawn")
    followers = [
        context.Process(target=follow, args=(settings, parameters, report), daemon=True) for _ in range(2)
    ]

    def publish():
        with torch.no_grad():
            module.weight.normal_()
            module.bias.fill_(module.weight.sum() / 2)
        return parameters.publish(module)

    publish()
    for follower in followers:
        follower.start()
    for _ in followers:
        report.get(timeout=60)  # "ready"
    for _ in range(2000):
        publish()
    settings.update(learning_rate=1e-4, done=True)  # both at once
    version = publish()
    for follower in followers:
        seen, learning_rate = report.get(timeout=60)
        print(f"saw version {seen} of {version}, learning rate {learning_rate}")
        assert learning_rate == 1e-4
        follower.join(60)


if __name__ == "__main__":
    main()
