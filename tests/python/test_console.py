"""What is shown on a terminal, whoever wrote it."""

import io

import pytest

from gristmill import console
from gristmill.progress import LiveProgress, Progress

# Clears the screen, sets the title, turns the direction of writing, pretends to be another line.
HOSTILE = "a\x1b[2Jb\x1b]0;title\x07c\u202ed\re\x9bf"
SHOWN = "a\\x1b[2Jb\\x1b]0;title\\x07c\\u202ed\\re\\x9bf"
MARKUP = "[bold]not bold[/] [link=file:///etc]x[/link] :smile:"


def test_control_characters_are_shown_and_not_obeyed():
    assert console.printable(HOSTILE) == SHOWN
    assert (
        console.printable("two lines\n\tand a tab, in Grüßen: 你好 ±")
        == "two lines\n\tand a tab, in Grüßen: 你好 ±"
    )


def test_an_errors_text_is_escaped(capsys):
    assert console.failed(f"no run there: {HOSTILE}", 2) == 2
    assert capsys.readouterr().err == f"no run there: {SHOWN}\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("kind", [Progress, LiveProgress])
def test_what_a_run_says_is_escaped(kind, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    progress = kind(stream)
    values = {
        "train.total_frames": 10,
        "workers.count": 1,
        "workers.envs_per_worker": 1,
        "learner.algorithm": "appo",
        "env.id": HOSTILE + MARKUP,
    }
    progress.started("runs/" + HOSTILE, values)
    assert stream.getvalue().count(SHOWN) == 2
    assert MARKUP in stream.getvalue()
    stream.truncate(0)
    # With the live line of figures on the screen.
    progress.metrics({"time/total_timesteps": 5})
    before = len(stream.getvalue())
    progress.message(f"worker 0 failed: {HOSTILE} {MARKUP}")
    progress.ended()
    text = stream.getvalue()[before:]
    assert SHOWN in text
    assert MARKUP in text


def test_a_style_is_ours_alone():
    stream = Terminal()
    Progress(stream).say("solved \x1b[31m", "32")
    assert stream.getvalue() == "\x1b[32msolved \\x1b[31m\x1b[0m\n"
