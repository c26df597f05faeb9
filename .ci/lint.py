"""clang-format, clang-tidy and ruff over what git tracks; --fix formats in place instead.

clang-tidy covers the C++ sources of the release build but tests/, headers through the sources that
include them. Sources that include torch's headers take two minutes each, all of it spent in those headers:
only --torch looks at them.
A file whose text, included headers, flags and checks are unchanged since it was clean is not looked at
again (the record is in build/lint). Standard library only.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATABASE = ROOT / "build" / "release"
RECORD = ROOT / "build" / "lint"
CLANG_FORMAT = "clang-format-16"
CLANG_TIDY = "clang-tidy-16"
RUFF = str(Path(sys.executable).parent / "ruff")


def tracked(*patterns: str) -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listed.stdout.split() if (ROOT / name).exists()]


def passes(title: str, command: list[str]) -> bool:
    started = time.monotonic()
    good = subprocess.run(command, cwd=ROOT).returncode == 0
    print(f"{title}: {'clean' if good else 'FAILED'} ({time.monotonic() - started:.1f} s)", flush=True)
    return good


@cache
def text(path: Path) -> bytes:
    return path.read_bytes()


def closure(path: Path, seen: set[Path]) -> None:
    """`path` and every header of ours that it includes, directly or not."""
    if path in seen or not path.exists():
        return
    seen.add(path)
    for name in re.findall(rb'^\s*#include\s+"([^"]+)"', text(path), re.MULTILINE):
        for base in (ROOT, path.parent):
            closure(base / name.decode(), seen)


def includes_torch(files: set[Path]) -> bool:
    return any(re.search(rb"^\s*#include\s+<(torch|ATen|c10)/", text(path), re.MULTILINE) for path in files)


def fingerprint(entry: dict[str, str], files: set[Path], version: bytes) -> str:
    digest = hashlib.sha256(version + text(ROOT / ".clang-tidy") + entry["command"].encode())
    for path in sorted(files):
        digest.update(str(path).encode() + text(path))
    return digest.hexdigest()


def tidy_one(entry: dict[str, str], mark: Path) -> tuple[str, str, float]:
    started = time.monotonic()
    command = [CLANG_TIDY, "-p", str(RECORD), "--quiet", "--extra-arg=-Wno-unknown-warning-option"]
    done = subprocess.run([*command, entry["file"]], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 0:
        mark.touch()
    output = done.stdout if done.stdout.strip() else done.stderr
    return entry["file"], "" if done.returncode == 0 else output, time.monotonic() - started


def tidy(wanted: list[str], torch: bool) -> bool:
    started = time.monotonic()
    database = DATABASE / "compile_commands.json"
    if not database.exists():
        print(f"clang-tidy: {database} is missing; run `make setup` first")
        return False
    RECORD.mkdir(parents=True, exist_ok=True)
    version = subprocess.run([CLANG_TIDY, "--version"], capture_output=True, check=True).stdout
    ours = {name for name in tracked("*.cc") if not name.startswith("tests/")}
    # GCC's precompiled headers are nothing to clang: files are looked at without.
    entries = json.loads(database.read_text())
    for entry in entries:
        entry["command"] = re.sub(r"-Winvalid-pch|-include \S*cmake_pch\.hxx", "", entry["command"])
    (RECORD / "compile_commands.json").write_text(json.dumps(entries))
    todo, unchanged, left_out = [], 0, 0
    for entry in entries:
        name = os.path.relpath(entry["file"], ROOT)
        if name not in ours or (wanted and name not in wanted):
            continue
        files: set[Path] = set()
        closure(Path(entry["file"]), files)
        if includes_torch(files) and not torch and not wanted:
            left_out += 1
            continue
        mark = RECORD / fingerprint(entry, files, version)
        if mark.exists():
            unchanged += 1
        else:
            todo.append((entry, mark))
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for file, output, took in pool.map(lambda job: tidy_one(*job), todo):
            name = os.path.relpath(file, ROOT)
            print(f"  {name}: {'FAILED' if output else 'clean'} ({took:.0f} s)", flush=True)
            if output:
                failed += 1
                print(output, flush=True)
    checked = f"{len(todo)} files looked at, {unchanged} unchanged since they were clean"
    if left_out:
        checked += f", {left_out} that include torch left out (--torch)"
    print(f"clang-tidy: {'FAILED' if failed else 'clean'}, {checked} ({time.monotonic() - started:.0f} s)")
    return failed == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--fix", action="store_true", help="format in place and apply ruff's safe fixes; no clang-tidy"
    )
    parser.add_argument("--no-tidy", action="store_true", help="leave clang-tidy out")
    parser.add_argument("--torch", action="store_true", help="clang-tidy: sources that include torch too")
    parser.add_argument("files", nargs="*", help="clang-tidy: only these sources")
    options = parser.parse_args()
    cxx = tracked("*.cc", "*.h")
    if options.fix:
        good = passes("clang-format", [CLANG_FORMAT, "-i", *cxx])
        good &= passes("ruff check", [RUFF, "check", "--fix", "."])
        good &= passes("ruff format", [RUFF, "format", "."])
        return 0 if good else 1
    good = passes("clang-format", [CLANG_FORMAT, "--dry-run", "-Werror", *cxx])
    good &= passes("ruff check", [RUFF, "check", "."])
    good &= passes("ruff format", [RUFF, "format", "--check", "."])
    if not options.no_tidy:
        good &= tidy(options.files, options.torch)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
