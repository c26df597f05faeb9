"""Runs the fuzz targets of tests/fuzz, each for a given time, and ends with one line that counts findings.

What adds to a target's coverage is kept in build/fuzz/corpus/TARGET, and where a later run begins; what was
found lies in build/fuzz/findings, and `build/fuzz/tests/fuzz/TARGET_fuzz FILE` repeats it. Standard library
only.
"""

import argparse
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "fuzz"
SEEDS = ROOT / "tests" / "fuzz" / "corpus"
FINDINGS = BUILD / "findings"
# Of one input: slower, or larger, is a finding.
INPUT_SECONDS = 20
INPUT_MEGABYTES = 3000
LONGEST_INPUT = 4096


@dataclass
class Outcome:
    target: str
    code: int
    log: str

    def number(self, pattern: str) -> int:
        found = re.findall(pattern, self.log)
        return int(found[-1]) if found else 0

    def __str__(self) -> str:
        ended = "nothing found" if self.code == 0 else f"FOUND SOMETHING (exit code {self.code})"
        inputs = self.number(r"stat::number_of_executed_units: (\d+)")
        covered = self.number(r"cov: (\d+)")
        return f"{self.target:18} {inputs:>12,} inputs  {covered:>6,} places covered  {ended}"


def build() -> bool:
    return all(
        subprocess.run(command, cwd=ROOT).returncode == 0
        for command in (
            ["cmake", "--preset", "fuzz"],
            [
                "cmake",
                "--build",
                "--preset",
                "fuzz",
                "-j",
                str(os.cpu_count() or 1),
                "--target",
                "fuzz_targets",
            ],
        )
    )


def fuzz(target: str, seconds: int) -> Outcome:
    corpus = BUILD / "corpus" / target
    corpus.mkdir(parents=True, exist_ok=True)
    FINDINGS.mkdir(parents=True, exist_ok=True)
    # Python keeps much to its end.
    leaks = 0 if target == "codec" else 1
    done = subprocess.run(
        [
            BUILD / "tests" / "fuzz" / f"{target}_fuzz",
            f"-max_total_time={seconds}",
            f"-timeout={INPUT_SECONDS}",
            f"-rss_limit_mb={INPUT_MEGABYTES}",
            f"-max_len={LONGEST_INPUT}",
            f"-artifact_prefix={FINDINGS}/{target}-",
            "-print_final_stats=1",
            corpus,
            SEEDS / target,
        ],
        env={
            **os.environ,
            "ASAN_OPTIONS": f"detect_leaks={leaks}:strict_string_checks=1",
            "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return Outcome(target, done.returncode, done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="targets at a time")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="only these")
    options = parser.parse_args()
    known = sorted(path.name for path in SEEDS.iterdir() if path.is_dir())
    if unknown := set(options.targets) - set(known):
        parser.error(f"no target {', '.join(sorted(unknown))}; expected of: {', '.join(known)}")
    if not build():
        print("the fuzz targets cannot be built")
        return 1
    targets = [
        target
        for target in options.targets or known
        if (BUILD / "tests" / "fuzz" / f"{target}_fuzz").exists()
    ]
    printing = threading.Lock()

    def one(target: str) -> Outcome:
        outcome = fuzz(target, options.seconds)
        with printing:
            if outcome.code:
                print(outcome.log)
            print(outcome, flush=True)
        return outcome

    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(one, targets))
    found = sum(outcome.code != 0 for outcome in outcomes)
    print(f"{len(targets)} targets, {options.seconds} s each, {found} with findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
