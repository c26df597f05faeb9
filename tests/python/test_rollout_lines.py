"""What workers of gm.Rollouts say, where the loop's own process says it."""

import logging
import sys
import warnings

import rollout_policies
import torch
from running import await_until

import gristmill as gm


class Chatty:
    """Prints, logs and warns once, at its first step."""

    def __init__(self):
        self.said = False

    def act(self, obs, state):
        if not self.said:
            self.said = True
            print("printed \x1b[31mred")
            print("complained", file=sys.stderr)
            logging.getLogger("mine").info("logged")
            warnings.warn("warned", RuntimeWarning, stacklevel=1)
        return torch.zeros(len(obs), dtype=torch.int64)


def rollouts(policy, **options):
    given = {"workers": 2, "envs_per_worker": 2, "unroll": 4, **options}
    return gm.Rollouts(rollout_policies.Counter, policy, **given)


def run_until(made, heard):
    for _ in made.batches(4, timeout=60):
        if heard():
            return


def test_it_goes_to_the_logger_with_the_workers_number(caplog, capsys):
    caplog.set_level("INFO", logger="gristmill")
    with rollouts(Chatty()) as made:
        run_until(made, lambda: sum("warned" in r.message for r in caplog.records) == 2)
    told = {(r.levelname, r.message) for r in caplog.records if r.message.startswith("worker ")}
    for worker in (0, 1):
        assert ("INFO", f"worker {worker}: printed red") in told
        assert ("WARNING", f"worker {worker}: complained") in told
        assert ("INFO", f"worker {worker}: mine: logged") in told
        assert any(level == "WARNING" and "RuntimeWarning: warned" in text for level, text in told)
    assert "printed" not in capsys.readouterr().out


def test_prints_are_not_lost_where_nobody_has_set_up_logging(capsys):
    logger = logging.getLogger("gristmill")
    before = logger.level
    logger.setLevel("WARNING")
    try:
        with rollouts(Chatty()) as made:
            run_until(made, lambda: made.statistics()["frames"] > 100)
    finally:
        logger.setLevel(before)
    out = capsys.readouterr().out.splitlines()
    assert {"worker 0: printed red", "worker 1: printed red"} <= set(out)
    assert "worker 0: complained" not in out  # that is a warning


class LastWords:
    def act(self, obs, state):
        return torch.zeros(len(obs), dtype=torch.int64)

    def __del__(self):
        print("good bye")


def test_what_is_said_at_the_end_is_still_told(caplog):
    caplog.set_level("INFO", logger="gristmill")
    with rollouts(LastWords(), workers=1) as made:
        run_until(made, lambda: True)
    assert any(r.message == "worker 0: good bye" for r in caplog.records)


def test_workers_of_the_built_in_policy_say_nothing_that_is_no_warning(caplog, capsys):
    caplog.set_level("INFO", logger="gristmill")
    with gm.Rollouts("cartpole", workers=1, envs_per_worker=2, unroll=4) as made:
        run_until(made, lambda: made.statistics()["frames"] > 100)
    assert not [r.message for r in caplog.records if "steps" in r.message]
    assert capsys.readouterr().out == ""


def test_an_account_of_a_flood_says_how_much_was_dropped(caplog):
    caplog.set_level("WARNING", logger="gristmill")
    with rollouts(Flooding(), workers=1) as made:
        batches = made.batches(2, timeout=60)
        next(batches)
        await_until(lambda: made._said._logs.dropped > 0, "a line that gives way")
    assert any("lines that workers said were dropped" in r.message for r in caplog.records)


class Flooding(Chatty):
    def act(self, obs, state):
        print(("x" * 4000 + "\n") * 50)
        return torch.zeros(len(obs), dtype=torch.int64)
