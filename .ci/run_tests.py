"""Runs every test suite and ends with one line, "N passed, N failed", summed over all.

A suite that cannot be built, that crashes or that outlives its limit counts as failed: what cannot be
counted is never taken for passed. Standard library only.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
JOBS = str(os.cpu_count() or 1)

# What the fault tests are called: these `make repeat` plays many times.
REPEATED_CTEST = "Fault|Kill|Dead|Dies|Died|Crash|Stopped|Hung|Threads|Damage|WorkerPool"
REPEATED_PYTEST = "kill or fault or crash or interrupt or ctrl_c or hang or raise or dead or ends_its_process"


@dataclass
class Tally:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: "Tally") -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self) -> str:
        text = f"{self.passed} passed, {self.failed} failed"
        return f"{text}, {self.skipped} skipped" if self.skipped else text


def run(command: list[str], limit_s: float, env: dict[str, str] | None = None) -> int:
    """Runs a command in a process group of its own; its exit code, or 124 when it outlived the limit."""
    print("$", " ".join(command), flush=True)
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, **(env or {})}, stdin=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            return process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            print(f"still running after {limit_s:.0f} s: killed", flush=True)
            return 124
        except KeyboardInterrupt:
            print("interrupted", flush=True)
            raise
        finally:
            # Whatever the command left behind, and the command itself if it has not ended.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def read_ctest(report: Path) -> Tally:
    tally = Tally()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            tally.failed += 1
        elif skipped is None:
            tally.passed += 1
        elif skipped.get("message", "").startswith("SKIP_"):
            tally.skipped += 1
        else:
            tally.failed += 1  # not run: its executable is missing, or what it depends on failed
    return tally


def ctest(preset: str, limit_s: float, extra: list[str]) -> Tally:
    tally = Tally()
    if run(["cmake", "--preset", preset], 600) or run(
        ["cmake", "--build", "--preset", preset, "-j", JOBS], 3000
    ):
        print(f"{preset}: the build failed", flush=True)
        return Tally(failed=1)
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "ctest.xml"
        code = run(["ctest", "--preset", preset, "--output-junit", str(report), *extra], limit_s)
        if report.exists():
            tally = read_ctest(report)
    if code and not tally.failed:
        print(f"{preset}: ctest ended with {code}", flush=True)
        tally.failed = 1
    return tally


def pytest(limit_s: float, extra: list[str]) -> Tally:
    """Counts each outcome as it happens (.ci/pytest_tally.py): a crash keeps what went before."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "outcomes"
        env = {"PYTHONPATH": str(ROOT / ".ci"), "GRISTMILL_TALLY": str(record)}
        code = run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-p",
                "pytest_tally",
                "-q",
                "--continue-on-collection-errors",
                *extra,
            ],
            limit_s,
            env,
        )
        lines = record.read_text().splitlines() if record.exists() else []
    under_way = ""
    for event in map(json.loads, lines):
        if event["outcome"] == "started":
            under_way = event["test"]
        else:
            under_way = ""
            setattr(tally, event["outcome"], getattr(tally, event["outcome"]) + 1)
    if code and under_way:
        print(f"python: the run ended with {code} inside {under_way}", flush=True)
        tally.failed += 1
    elif code and not tally.failed:
        print(f"python: pytest ended with {code}", flush=True)
        tally.failed = 1
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--suites", default="release,tsan,asan-core,python", help="of: a CMake preset, python"
    )
    parser.add_argument("--repeat", type=int, default=0, metavar="N", help="N rounds of the fault tests only")
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="only these Python tests (pytest's -k)")
    parser.add_argument("-R", default="", metavar="REGEX", help="only these C++ tests (ctest's -R)")
    options = parser.parse_args()

    # A script's background job ignores SIGINT, and so would all that it starts: tests of Ctrl-C among them.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    ctest_extra = ["-R", options.R] if options.R else []
    pytest_extra = ["-k", options.k] if options.k else []
    rounds = 1
    if options.repeat:
        rounds = options.repeat
        ctest_extra = ["-R", options.R or REPEATED_CTEST, "--repeat", f"until-fail:{rounds}"]
        pytest_extra = ["-k", options.k or REPEATED_PYTEST]
    suites = options.suites.split(",")
    if options.repeat and options.suites == parser.get_default("suites"):
        suites = ["release", "python"]

    total = Tally()
    results = []
    for suite in suites:
        started = time.monotonic()
        if suite == "python":
            tally = Tally()
            for _ in range(rounds):
                tally.add(pytest(2400, pytest_extra))
        else:
            tally = ctest(suite, 1800 * rounds, ctest_extra)
        results.append(f"{suite}: {tally} ({time.monotonic() - started:.0f} s)")
        print(results[-1], flush=True)
        total.add(tally)

    print("\n" + "\n".join(results))
    print(f"{total.passed} passed, {total.failed} failed")
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
