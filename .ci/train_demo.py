"""`make train`: trains from a config file and says in one sentence whether it was solved, and how fast."""

import json
import subprocess
import sys
from pathlib import Path


def main() -> int:
    config, *overrides = sys.argv[1:]
    program = Path(sys.executable).parent / "gristmill"
    command = [str(program), "train", config, *overrides, "--json"]
    print("$ gristmill " + " ".join(command[1:]), flush=True)
    result = None
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                parsed = json.loads(line)
            except ValueError:
                parsed = None
            if isinstance(parsed, dict):
                result = parsed
            else:
                print(line, end="", flush=True)
    if process.returncode:
        return process.returncode
    if result is None:
        print("gristmill train printed no result", file=sys.stderr)
        return 1
    if not result["solved"]:
        print(
            f"Not solved: the mean return of the last 100 episodes is {result['mean_return']:.1f} "
            f"after {result['frames']:,} frames ({result['run_dir']})."
        )
        return 1
    print(
        f"Solved {result['solved_at_s']:.2f} s after the program was started: mean return "
        f"{result['mean_return']:.1f} over 100 episodes, {result['frames']:,} frames at "
        f"{result['fps']:,.0f} frames/s. The run is in {result['run_dir']}."
    )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
