"""The common form of benchmarks' reports, and what changed between two of them."""

import json
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
from running import run

from gristmill import _core
from gristmill.bench import box, compare, pipeline, queue, result, timers, train
from gristmill.profiling import measure


def report(**values):
    """One test, "speed", with contestants' values; a name that begins with "our" is ours."""
    made = result.Report("made-up", [])
    for name, figures in values.items():
        made.measurements.append(
            result.Measurement("speed", name, name.startswith("our"), "frames/s", False, list(figures))
        )
    return made


def test_a_ratio_is_of_medians_against_the_best_and_its_spread_of_neighbours():
    made = report(ours=(100, 300, 200), slow=(10, 10, 10), fast=(50, 100, 200))
    found = made.compare("speed", "ours", ["slow", "fast"], 1.5)
    assert found.ratio == pytest.approx(2.0)
    assert (found.low, found.high) == (pytest.approx(1.0), pytest.approx(3.0))
    assert found.met is True


def test_less_is_better_turns_the_ratio_round():
    made = report(ours=(2.0,), peer=(8.0,))
    for m in made.measurements:
        m.less_is_better = True
    assert made.compare("speed", "ours", ["peer"]).ratio == pytest.approx(4.0)


def test_a_missing_peer_has_no_ratio_and_its_reason_is_shown(tmp_path):
    made = report(ours=(1.0,))
    made.measurements.append(result.Measurement("speed", "gone", False, "frames/s", False, [], "no wheel"))
    found = made.compare("speed", "ours", ["gone"], 2)
    assert (found.ratio, found.met) == (None, None)
    assert "missing: no wheel" in result.page(made)


def test_a_report_comes_back_from_its_file_as_it_was(tmp_path):
    made = report(ours=(1.5, 2.5), peer=(1.0, 1.0))
    made.compare("speed", "ours", ["peer"], 1.2)
    path = tmp_path / "report.json"
    made.write(path)
    assert json.loads(path.read_text())["format"] == result.FORMAT
    assert result.read(path) == made


def test_every_benchmarks_report_is_what_the_schema_says():
    schema = json.loads((Path(result.__file__).parent / "report.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    queues = queue.all_tests(0.001)
    for test in queues:
        for contestant in test.contestants:
            contestant.runs = [1.0, 2.0] if contestant.ours else []
            contestant.missing = "" if contestant.ours else "no wheel"
    case = timers.Case(1000, 100, 10)
    for runs in case.runs.values():
        runs.append({"cpu_s": 0.5, "longest": 1000.0})
    costs = {size: [{"ns": 1.0, "in_turn_ns": 2.0, "scattered_ns": 3.0}] for size in timers.SIZES}
    ours = train.Contestant("a", "ours", "", ours=True, runs=[{"fps": 10.0, "solved_at_s": 3.0}])
    reports = [
        queue.as_report(queues, {}),
        timers.as_report([case], costs, {}, {}),
        box.as_report({"gristmill": [{"read": 1e-8}]}, {"sharedbox": "no wheel"}, {}),
        train.as_report([ours, train.Contestant("b", "peer", "", ours=False, missing="gone")], 1),
    ]
    for made in reports:
        jsonschema.validate(json.loads(json.dumps(made.document())), schema)
        assert made.measurements


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "gristmill-bench/1", "bench": 1}'])
def test_what_is_no_report_is_refused_by_name(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"other\.json"):
        result.read(path)


def test_only_repeats_that_all_lie_on_one_side_are_a_change():
    before = report(ours_a=(100, 101, 102), ours_b=(100, 120, 140), ours_c=(100, 100, 100), ours_d=(100, 100))
    after = report(ours_a=(110, 111, 112), ours_b=(130, 150, 160), ours_c=(98, 98, 98), ours_d=(50, 50))
    verdicts = {c.contestant: c.verdict for c in compare.changes(before, after)}
    assert verdicts == {"ours_a": "better", "ours_b": "same", "ours_c": "same", "ours_d": "unsure"}
    back = {c.contestant: c.verdict for c in compare.changes(after, before)}
    assert back["ours_a"] == "worse"


def test_peers_that_changed_as_well_put_it_down_to_the_machine():
    before = report(ours=(100, 100, 100), peer=(10, 10, 10))
    after = report(ours=(200, 200, 200), peer=(20, 20, 20))
    assert "the machine was not the same" in compare.sentence(compare.changes(before, after))
    assert "machine" not in compare.sentence(compare.changes(before, report(ours=(200,) * 3, peer=(10,) * 3)))


def test_the_command_compares_two_files_and_can_fail(tmp_path):
    report(ours=(100, 101, 102)).write(tmp_path / "a.json")
    report(ours=(50, 51, 52)).write(tmp_path / "b.json")
    done = run("bench", "compare", tmp_path / "a.json", tmp_path / "b.json")
    assert done.returncode == 0, done.stderr
    assert "1 worse beyond noise" in done.stdout
    assert run("bench", "compare", tmp_path / "a.json", tmp_path / "b.json", "--fail").returncode == 1
    assert run("bench", "compare", tmp_path / "a.json", tmp_path / "none.json").returncode != 0


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.loads = []

    def handle_starttag(self, _tag, attributes):
        self.loads += [value for name, value in attributes if name in ("src", "href")]


def test_the_page_escapes_names_and_loads_nothing(tmp_path):
    made = report(**{"our <b>": (1.0, 2.0)})
    written = result.page(made)
    tags = _Tags()
    tags.feed(written)
    assert tags.loads == []
    assert "<b>" not in written
    result.plot(made, tmp_path / "bars.png")
    assert (tmp_path / "bars.png").stat().st_size > 1000


def test_bench_trains_report_keeps_unsolved_runs_apart():
    runs = [{"fps": 10.0, "solved_at_s": None}, {"fps": 20.0, "solved_at_s": 3.0}]
    ours = train.Contestant("a", "ours", "", ours=True, runs=runs)
    gone = train.Contestant("b", "peer", "", ours=False, missing="no wheel")
    made = train.as_report([ours, gone], 2)
    assert [m.values for m in made.measurements if m.ours] == [[10.0, 20.0], [3.0]]
    assert {m.missing for m in made.measurements if not m.ours} == {"no wheel"}


def test_the_pipelines_limit_counts_step_write_and_copy():
    values = {
        "env.kwargs": '{"observation": [84, 84, 4], "dtype": "uint8", "step_us": 1000}',
        "workers.count": 2,
        "workers.envs_per_worker": 4,
        "workers.unroll": 8,
        "queue.capacity": 8,
    }
    assert pipeline.observation_bytes(values) == 84 * 84 * 4
    limit = pipeline.measure_limit(values, 0.05)
    assert limit.at_once == min(2, measure.usable_cores())
    # A worker of 1 ms a step: a little below 1000 frames/s each.
    assert 750 < limit.frames_per_s / limit.at_once < 1000
    # Nothing writes or copies 28 kB in 50 ns, or takes a tenth of a millisecond for it.
    assert 50e-9 < limit.write_s < 100e-6
    assert 50e-9 < limit.copy_s < 100e-6
    best = limit.faster(pipeline.Limit(limit.step_s, 1.0, 1e-9, limit.at_once))
    assert (best.write_s, best.copy_s) == (limit.write_s, 1e-9)
    with_copy_free = limit.at_once / (limit.step_s + limit.write_s + 1e-9)
    assert best.frames_per_s == pytest.approx(with_copy_free)


def test_a_larger_frame_takes_longer_to_write_and_to_copy():
    small, large = (_core.memory_speed(frame, 4, 8, 8, 0.05) for frame in (1 << 10, 1 << 18))
    assert large[0] > 10 * small[0]
    assert large[1] > 10 * small[1]
    for wrong in ((0, 4, 8, 8, 0.1), (64, 4, 0, 8, 0.1), (64, 4, 8, 3, 0.1), (64, 4, 8, 8, 0.0)):
        with pytest.raises(ValueError, match="memory_speed"):
            _core.memory_speed(*wrong)


def test_figures_are_readable():
    assert result.figure_text(1.5e-6, "s") == "1.5 µs"
    assert result.figure_text(2.5e9, "B/s") == "2.5 GB/s"
    assert result.figure_text(498_000, "frames/s") == "498 k frames/s"


def test_comparing_a_report_that_is_not_there_says_what_was_expected(tmp_path):
    done = run("bench", "compare", tmp_path / "no_such.json", tmp_path / "neither.json")
    assert done.returncode == 2
    assert "no_such.json: No such file or directory; expected a report" in done.stderr
