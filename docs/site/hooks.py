"""What the site has beside the pages under docs/: pages made from the programs, and links out of docs/.

In the repository the pages link to headers, examples and the files of the top folder; here such a link leads
to the page that shows the file.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from mkdocs.structure.files import File, Files, InclusionLevel

sys.path.insert(0, str(Path(__file__).parent))
import charts
import commands_page
import configuration_page
import examples_page

ROOT = Path(__file__).resolve().parents[2]
# Files of the top folder that are pages, and others that a page of another name stands for.
TOP_PAGES = ("ARCHITECTURE.md", "SECURITY.md", "CHANGELOG.md")
STAND_INS = {"README.md": "index.md"} | {
    f"examples/{file}": f"examples/{name}.md"
    for name, (_, files) in examples_page.EXAMPLES.items()
    for file in (*files, name)
}
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")

_ROW = re.compile(r"^\|.*$", re.M)
_THOUSANDS = re.compile(r"(?<=\d) (?=\d{3}\b)")


def on_files(files: Files, config) -> Files:
    for name in TOP_PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    generated = {
        **examples_page.pages(ROOT),
        "reference/commands.md": commands_page.page(),
        "reference/configuration.md": configuration_page.page(),
    }
    for name, text in generated.items():
        files.append(File.generated(config, name, content=text))
    shown = {target for file in files.documentation_pages() for target in _sources(file)}
    for name in sorted(shown):
        page = File.generated(
            config, f"source/{name}.md", content=_source_page(name), inclusion=InclusionLevel.NOT_IN_NAV
        )
        files.append(page)
    return files


def on_page_markdown(markdown: str, page, config, files: Files) -> str:
    name = page.file.src_uri

    def lead(link: re.Match[str]) -> str:
        target = _target(name, link[1])
        if target is None:
            return link[0]
        return os.path.relpath(target, os.path.dirname(name) or ".") + (link[2] or "")

    text = charts.with_bars(_LINK.sub(lead, markdown))
    # 1 234 567 in a table is one number, and is not broken.
    return _ROW.sub(lambda row: _THOUSANDS.sub("\u202f", row[0]), text)


def _target(page: str, link: str) -> str | None:
    """The page that a link out of docs/ leads to; None for one that needs no help."""
    base = ROOT if page in TOP_PAGES else ROOT / "docs" / os.path.dirname(page)
    path = Path(os.path.normpath(base / link))
    if not path.exists() or not path.is_relative_to(ROOT):
        return None  # a page that is made, or a mistake, which MkDocs tells
    name = path.relative_to(ROOT).as_posix()
    if name in TOP_PAGES:
        return name
    if name.startswith("docs/"):
        return name.removeprefix("docs/")
    return STAND_INS.get(name, f"source/{name}.md")


def _sources(file: File) -> list[str]:
    targets = (_target(file.src_uri, link[1]) for link in _LINK.finditer(file.content_string))
    return [t.removeprefix("source/").removesuffix(".md") for t in targets if t and t.startswith("source/")]


def _source_page(name: str) -> str:
    path = ROOT / name
    language = examples_page.language_of(path)
    code = f"~~~~ {{ .{language} }}\n{path.read_text().rstrip()}\n~~~~\n"
    return f"---\nsearch: {{exclude: true}}\n---\n# {name}\n\n{code}"
