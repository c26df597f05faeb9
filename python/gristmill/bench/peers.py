"""The peers: where each lives, how it is installed, and how it is started.

Each peer has a virtual environment of its own under .venv-peers, made from the pinned list in
requirements/, and a driver script in drivers/ that runs in it. `python -m gristmill.bench.peers`
installs all.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).resolve().parent
# torch first and alone, pinned: whatever is installed after it finds it there, and brings no other.
_TORCH = "torch==2.13.0"


class PeerMissingError(Exception):
    """This peer cannot be had here; the message says why."""


def default_folder() -> Path:
    """.venv-peers of the source tree when running from one, else of the current folder."""
    root = _HERE.parents[2]
    return (root if (root / "pyproject.toml").exists() else Path.cwd()) / ".venv-peers"


@dataclass(frozen=True)
class Peer:
    key: str
    title: str
    settings: str
    requirements: Path
    driver: Path
    arguments: tuple[str, ...]  # {seed} and {folder} are filled in
    torch: bool = True

    def _stamp(self) -> str:
        return hashlib.sha256(self.requirements.read_bytes()).hexdigest()

    def installed(self, folder: Path) -> bool:
        stamp = folder / self.key / ".stamp"
        return stamp.exists() and stamp.read_text() == self._stamp()

    def python(self, folder: Path) -> Path:
        return folder / self.key / "bin" / "python"

    def install(self, folder: Path) -> None:
        """Makes the environment. Idempotent; some minutes the first time. Raises PeerMissingError."""
        if self.installed(folder):
            return
        environment = folder / self.key
        python = self.python(folder)
        try:
            if not python.exists():
                venv.create(environment, with_pip=True)
            pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q"]
            first = [[_TORCH]] if self.torch else []
            for what in (*first, ["-r", str(self.requirements)]):
                done = subprocess.run([*pip, *what], capture_output=True, text=True, stdin=subprocess.DEVNULL)
                if done.returncode:
                    reasons = [line for line in done.stderr.splitlines() if "ERROR" in line]
                    raise PeerMissingError(
                        (reasons or done.stderr.splitlines() or ["pip failed"])[-1].strip()
                    )
        except (OSError, subprocess.SubprocessError) as error:
            raise PeerMissingError(str(error)) from error
        (environment / ".stamp").write_text(self._stamp())

    def command(self, folder: Path, seed: int, scratch: Path) -> list[str]:
        filled = [a.format(seed=seed, folder=scratch) for a in self.arguments]
        return [str(self.python(folder)), str(self.driver), *filled]


PEERS: dict[str, Peer] = {
    "sf": Peer(
        key="sample-factory",
        title="Sample Factory 2.1.1, APPO",
        settings="tuned: 2 workers × 64 environments, 64×64, batch 2048 × 2, 2 epochs, lr 1e-3",
        requirements=_HERE / "requirements" / "sample-factory.txt",
        driver=_HERE / "drivers" / "run_sample_factory.py",
        arguments=(
            *(
                "--algo=APPO",
                "--env=CartPole-v1",
                "--experiment=bench",
                "--train_dir={folder}",
                "--seed={seed}",
            ),
            *(
                "--use_rnn=False",
                "--recurrence=1",
                "--with_vtrace=False",
                "--reward_scale=0.1",
                "--device=cpu",
            ),
            *("--num_workers=2", "--num_envs_per_worker=64", "--policy_workers_per_policy=1"),
            *("--batch_size=2048", "--num_batches_per_epoch=2", "--num_epochs=2", "--learning_rate=0.001"),
            *("--encoder_mlp_layers", "64", "64", "--restart_behavior=overwrite"),
        ),
    ),
    "sb3": Peer(
        key="sb3",
        title="Stable-Baselines3 2.9.2, PPO",
        settings="rl-zoo's settings, 8 environments in one process",
        requirements=_HERE / "requirements" / "sb3.txt",
        driver=_HERE / "drivers" / "run_stable_baselines3.py",
        arguments=("{seed}",),
    ),
    "queue": Peer(
        key="queue",
        title="faster-fifo 1.5.2 and pyzmq 27.3.0",
        settings="as they come",
        requirements=_HERE / "requirements" / "queue.txt",
        driver=_HERE / "drivers" / "run_queue.py",
        arguments=(),
        torch=False,
    ),
    "timers": Peer(
        key="timers",
        title="sortedcontainers 2.4.0",
        settings="as it comes",
        requirements=_HERE / "requirements" / "timers.txt",
        driver=_HERE / "drivers" / "run_timers.py",
        arguments=(),
        torch=False,
    ),
}


def main() -> int:
    failed = 0
    for peer in PEERS.values():
        folder = default_folder()
        if not peer.installed(folder):
            print(f"{peer.title}: installing into {folder / peer.key} …", flush=True)
        try:
            peer.install(folder)
            print(f"{peer.title}: ready")
        except PeerMissingError as error:
            failed = 1
            print(f"{peer.title}: cannot be installed: {error}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
