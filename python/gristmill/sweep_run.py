"""One run of gm.sweep: ``python -m gristmill.sweep_run PARENT CONFIG RUN_DIR RESULT``; of no use by hand."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from gristmill import _core


def main() -> int:
    """Trains, or goes on where it was interrupted, and leaves the result as JSON."""
    parent, config, run_dir, result_file = sys.argv[1:]
    _core.die_with_parent(int(parent))

    from gristmill.result import RunFailedError
    from gristmill.training import resume, train

    try:
        if any(Path(run_dir, "checkpoints").glob("*")):
            result = resume(run_dir)
        else:
            # It had begun, and left nothing to go on from.
            shutil.rmtree(run_dir, ignore_errors=True)
            result = train(config)
    except KeyboardInterrupt:
        return 130
    except RunFailedError as error:
        result = error.result
    partial = Path(result_file + ".partial")
    partial.write_text(json.dumps(result.to_dict()))
    os.replace(partial, result_file)
    return 1 if result.end == "failed" else 0


if __name__ == "__main__":
    sys.exit(main())
