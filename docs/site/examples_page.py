"""Pages of the programs in examples/: what each says of itself, how it is called, and its whole text."""

from __future__ import annotations

import ast
from pathlib import Path

# Page: (title, the files that it shows). The first file's docstring introduces it.
EXAMPLES = {
    "custom_learner": ("A learner of your own", ["custom_learner.py"]),
    "custom_policy": ("A policy of your own", ["custom_policy.py"]),
    "custom_env": ("An environment in Python", ["custom_env.py"]),
    "cpp_env": ("An environment in C++", ["cpp_env/run.py", "cpp_env/catch.cc", "cpp_env/CMakeLists.txt"]),
    "queue_basics": ("Queues between your own processes", ["queue_basics.py"]),
    "box_basics": ("Boxes between your own processes", ["box_basics.py"]),
    "sweep": ("Settings × seeds", ["sweep.py"]),
    "train": ("Training in C++", ["train.cc"]),
}
_LANGUAGES = {".py": "python", ".cc": "cpp", ".h": "cpp", ".txt": "cmake", ".yaml": "yaml"}


def pages(root: Path) -> dict[str, str]:
    """{"examples/NAME.md": text}, with an overview as index.md."""
    texts = {f"examples/{name}.md": _page(root, title, files) for name, (title, files) in EXAMPLES.items()}
    rows = [
        f"| [{title}]({name}.md) | {_words(root, files)[0]} |" for name, (title, files) in EXAMPLES.items()
    ]
    texts["examples/index.md"] = "\n".join(
        [
            "# Examples",
            "",
            "Each of these programs runs as it is, in under a minute, and is played by the tests.",
            "",
            "| | |",
            "| --- | --- |",
            *rows,
            "",
        ]
    )
    return texts


def language_of(path: Path) -> str:
    return _LANGUAGES.get(path.suffix, "text")


def _page(root: Path, title: str, files: list[str]) -> str:
    lines = [f"# {title}", "", *_words(root, files), ""]
    for name in files:
        path = root / "examples" / name
        lines += [
            f'``` {{ .{language_of(path)} title="examples/{name}" }}',
            path.read_text().rstrip(),
            "```",
            "",
        ]
    return "\n".join(lines)


def _words(root: Path, files: list[str]) -> list[str]:
    """Paragraphs of the program's own introduction: the docstring, or the comment at the top."""
    path = root / "examples" / files[0]
    text = path.read_text()
    if path.suffix == ".py":
        words = ast.get_docstring(ast.parse(text)) or ""
    else:
        lines = (line.removeprefix("//").strip() for line in text.splitlines() if line.startswith("//"))
        words = "\n".join(lines)
    blocks = [block.strip() for block in words.split("\n\n") if block.strip()]
    return [_console(block) if _is_command(block) else " ".join(block.split()) + "\n" for block in blocks]


def _is_command(block: str) -> bool:
    return block.startswith(("python ", "build/"))


def _console(block: str) -> str:
    return "\n".join(["", "```console", *(f"$ {line.strip()}" for line in block.splitlines()), "```", ""])
