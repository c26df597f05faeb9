"""Bars beside the tables: `<!-- bars: COLUMN -->` before a table draws that column (from 1), logarithmically.

Figures stay in the tables alone; what is drawn is read from them when the site is built.
"""

from __future__ import annotations

import html
import math
import re

_MARK = re.compile(r"^<!-- bars: (\d+) -->\n\n?((?:\|.*\n)+)", re.M)
_NUMBER = re.compile(r"\d[\d  ,]*(?:\.\d+)?")
_WIDTH, _ROW, _LETTER = 940, 30, 8


def with_bars(markdown: str) -> str:
    return _MARK.sub(lambda found: bars(found[2], int(found[1])) + "\n\n" + found[2], markdown)


def bars(table: str, column: int) -> str:
    """An SVG element. Raises ValueError for a table in which that column has no figures."""
    header, _, *rows = (_cells(line) for line in table.strip().splitlines())
    drawn = [(row[0], row[column], value) for row in rows if (value := _value(row[column])) is not None]
    if not drawn:
        raise ValueError(f"no figures in column {column} of a table that begins with {header}")
    largest = max(value for _, _, value in drawn)
    # A decade below the smallest, so that its bar is seen.
    floor = math.log10(min(value for _, _, value in drawn)) - 0.5
    left = _LETTER * max(len(_plain(name)) for name, _, _ in drawn) + 10
    wide = _WIDTH - left - 150
    parts = []
    for i, (name, text, value) in enumerate(drawn):
        length = wide * (math.log10(value) - floor) / (math.log10(largest) - floor)
        y = i * _ROW
        ours = " ours" if re.search(r"gristmill|gm\.|TimerQueue", name) else ""
        parts.append(f'<text x="{left - 10}" y="{y + 19}" text-anchor="end">{_plain(name)}</text>')
        parts.append(
            f'<rect class="bar{ours}" x="{left}" y="{y + 4}" width="{length:.0f}" height="20" rx="3"/>'
        )
        figure = _plain(text.partition(" (")[0])
        parts.append(f'<text x="{left + length + 8:.0f}" y="{y + 19}">{figure}</text>')
    title = f"{_plain(header[column])} (logarithmic)"
    box = f"0 0 {_WIDTH} {len(drawn) * _ROW}"
    picture = f'<svg viewBox="{box}" role="img" aria-label="{title}">{"".join(parts)}</svg>'
    return f'<figure class="bars"><figcaption>{title}</figcaption>{picture}</figure>'


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _value(text: str) -> float | None:
    found = _NUMBER.search(text)
    return float(re.sub(r"[  ,]", "", found[0])) if found else None


def _plain(text: str) -> str:
    return html.escape(re.sub(r"[`*]", "", text))
