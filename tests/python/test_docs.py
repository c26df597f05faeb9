"""The documentation: its links and code hold, it names all that is public, and the site builds."""

import ast
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from running import run

import gristmill as gm

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SITE = DOCS / "site"
sys.path.insert(0, str(SITE))
charts, commands_page, configuration_page, examples_page = map(
    importlib.import_module, ("charts", "commands_page", "configuration_page", "examples_page")
)

PAGES = sorted(path for path in DOCS.rglob("*.md"))
TOP = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "SECURITY.md", "CHANGELOG.md")]
MADE = {*examples_page.pages(ROOT), "reference/commands.md", "reference/configuration.md"}
LINK = re.compile(r"\]\((?![a-z]+:)([^)\s#]*)(#[^)\s]*)?\)")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
MARKUP = re.compile(r"[`*]|\[([^\]]*)\]\([^)]*\)")
HAVE_MKDOCS = all(map(importlib.util.find_spec, ("mkdocs", "material", "mkdocstrings")))


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def without_fences(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def blocks(path, language):
    """(line, code) of each block of a language."""
    text = path.read_text()
    return [(text[: f.start()].count("\n") + 1, f[2]) for f in FENCE.finditer(text) if f[1] == language]


def anchors(path):
    """What a browser can jump to on a page, as MkDocs and GitHub name it."""
    text = without_fences(path.read_text())
    headings = re.findall(r"^#+ (.*?)(?: \{ #(\S+) \})?$", text, re.M)
    plain = [own or MARKUP.sub(r"\1", words) for words, own in headings]
    return {
        re.sub(r"[^\w\- .]", "", words.lower()).strip().replace(" ", "-").replace(".", "") for words in plain
    }


@pytest.mark.parametrize("path", [*PAGES, *TOP], ids=name_of)
def test_every_link_leads_somewhere(path):
    for target, anchor in LINK.findall(without_fences(path.read_text())):
        there = (path.parent / target).resolve() if target else path
        made = there.is_relative_to(DOCS) and there.relative_to(DOCS).as_posix() in MADE
        assert made or there.exists(), f"{name_of(path)} links to {target}, which does not exist"
        if anchor and not made:
            assert anchor[1:] in anchors(there), f"{name_of(path)}: there is no {target}{anchor}"


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page():
    navigation = (SITE / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r"[\w/-]+\.md", navigation)
    there = {path.relative_to(DOCS).as_posix() for path in PAGES} | MADE
    assert len(listed) == len(set(listed))
    assert set(listed) == there | {path.name for path in TOP[1:]}


PYTHON = [
    pytest.param(code, id=f"{name_of(path)}:{line}")
    for path in [*PAGES, ROOT / "README.md"]
    for line, code in blocks(path, "python")
]
# Those of quick starts and porting pages that use us; what a peer's would be is only compiled.
PLAYED = [
    pytest.param(code, id=f"{name_of(path)}:{line}")
    for path in PAGES
    if path.parent.name in ("quickstart", "porting")
    for line, code in blocks(path, "python")
    if re.search(r"^(import|from) gristmill", code, re.M)
]


@pytest.mark.parametrize("code", PYTHON)
def test_every_python_block_compiles(code):
    compile(code, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("code", PLAYED)
def test_the_snippets_of_quick_starts_and_porting_run(code, tmp_path):
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "snippet.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "snippet.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr


def test_there_is_something_to_compile_and_to_play():
    assert len(PYTHON) > 15
    assert len(PLAYED) > 8


@pytest.mark.parametrize(
    "code", [code for path in PAGES for _, code in blocks(path, "yaml") if "env:" in code]
)
def test_every_configuration_on_a_page_is_valid(code):
    gm.Config.from_yaml(code)


def test_every_public_name_is_in_the_reference():
    described = {
        name
        for path in (DOCS / "reference" / "python").glob("*.md")
        for name in re.findall(r"^::: gristmill\.(\S+)$", path.read_text(), re.M)
    }
    assert set(gm.__all__) <= described
    assert "compat.faster_fifo" in described


def test_the_configuration_page_has_every_option():
    from gristmill import _core

    page = configuration_page.page()
    options = _core.config_options()
    assert len(options) > 40
    for option in options:
        assert f"`{option.key}`" in page


def test_the_commands_page_has_every_command_with_an_example():
    page = commands_page.page()
    names = [name for name, _ in commands_page.commands()]
    assert {"gristmill train", "gristmill soak", "gristmill bench compare"} <= set(names)
    for name in names:
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert f"$ {name}" in section


@pytest.mark.parametrize("name", [name for name, _ in commands_page.commands()])
def test_every_commands_help_has_an_example_of_itself(name):
    result = run(*name.split()[1:], "--help")
    assert result.returncode == 0, result.stderr
    assert f"Example: {name}" in " ".join(result.stdout.split())


def test_the_examples_named_on_the_pages_of_examples_are_all_that_there_are():
    shown = {file for _, files in examples_page.EXAMPLES.values() for file in files}
    there = {
        path.relative_to(ROOT / "examples").as_posix()
        for path in (ROOT / "examples").rglob("*")
        if path.suffix in (".py", ".cc")
    }
    assert there <= shown
    for name, text in examples_page.pages(ROOT).items():
        assert text.startswith("# "), name


def test_a_figure_of_the_readme_or_the_front_page_is_that_of_its_page():
    """Figures are kept on one page each; rows that are shown elsewhere are the same rows."""
    known = {line for path in PAGES if path.name != "index.md" for line in path.read_text().splitlines()}
    for path in (ROOT / "README.md", DOCS / "index.md"):
        rows = re.findall(r"^\|.*\d[\d ,.]*\d{3}.*\|$|^\| \*\*.*\*\* \|.*\|$", path.read_text(), re.M)
        assert rows
        for row in rows:
            assert row in known, f"{name_of(path)}: {row}"


def test_bars_are_drawn_from_a_tables_column():
    table = "| | rate |\n| --- | --- |\n| gm.Queue | 1 000 (9 – 10) |\n| other | 100 |\n| none | – |\n"
    drawn = charts.with_bars(f"text\n\n<!-- bars: 1 -->\n\n{table}\nmore\n")
    widths = [float(width) for width in re.findall(r'<rect[^>]* width="(\d+)"', drawn)]
    assert len(widths) == 2
    assert widths[0] > widths[1] > 0
    assert ">1 000<" in drawn
    assert table in drawn
    with pytest.raises(ValueError, match="no figures"):
        charts.bars("| | a |\n| --- | --- |\n| b | c |\n", 1)


@pytest.mark.skipif(not HAVE_MKDOCS, reason="MkDocs is not installed; make docs installs it")
def test_the_site_builds_without_a_warning_and_needs_no_network(tmp_path):
    done = subprocess.run(
        [
            *f"{sys.executable} -m mkdocs build --strict".split(),
            "-f",
            SITE / "mkdocs.yml",
            "-d",
            tmp_path / "site",
        ],
        capture_output=True,
        text=True,
        timeout=110,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = {path.relative_to(tmp_path / "site").as_posix(): path for path in tmp_path.rglob("*.html")}
    assert {"index.html", "reference/python/queues.html", "source/core/box.h.html"} <= set(pages)
    queues = pages["reference/python/queues.html"].read_text()
    # Written in Python, inherited from a compiled class, and of a compiled class.
    for words in (
        "any objects that pickle",
        "Puts the objects of an iterable",
        "Takes exactly n trajectories",
    ):
        assert words in queues
    for name, path in pages.items():
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="?([^"\s>]+)', path.read_text())
        loaded += re.findall(
            r'<link[^>]*rel="?(?:stylesheet|preconnect)"?[^>]*href="?([^"\s>]+)', path.read_text()
        )
        assert not [url for url in loaded if "//" in url], name
