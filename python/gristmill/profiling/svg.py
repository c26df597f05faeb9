"""The pictures of a profile's page, as SVG text. Texts are escaped here."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

_WIDTH = 940
_LEFT = 80


def _text(value: object) -> str:
    return html.escape(str(value), quote=True)


def _svg(height: float, inner: str, extra: str = "") -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" width="{_WIDTH}" '
        f'height="{height:.0f}" role="img" {extra}>{inner}</svg>'
    )


def share_bars(rows: Sequence[tuple[str, Sequence[tuple[str, float, str]]]]) -> str:
    """rows: (name, (colour, share, title) …); a bar of the whole width is a share of 1."""
    inner, wide = [], _WIDTH - _LEFT
    for i, (name, parts) in enumerate(rows):
        y, x = i * 30 + 2, float(_LEFT)
        inner.append(f'<text x="0" y="{y + 17}">{_text(name)}</text>')
        inner.append(f'<rect x="{_LEFT}" y="{y}" width="{wide}" height="24" fill="#f4f4f4"/>')
        for color, share, title in parts:
            width = min(share * wide, _WIDTH - x)
            if width < 0.2:
                continue
            inner.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="24" fill="{color}">'
                f"<title>{_text(title)}</title></rect>"
            )
            if width > 34:
                fill = "#444" if color == "#d9d9d9" else "#fff"
                inner.append(
                    f'<text x="{x + width / 2:.1f}" y="{y + 16}" text-anchor="middle" style="fill:{fill}">'
                    f"{share:.0%}</text>"
                )
            x += width
    return _svg(len(rows) * 30 + 4, "".join(inner))


def _round_up(value: float) -> float:
    """To 1, 2 or 5 times a power of ten, where it is not a share or a small whole number."""
    if value <= 1 or (value == int(value) and value <= 10_000):
        return value
    size = 10.0 ** math.floor(math.log10(value))
    return next(part * size for part in (1, 2, 5, 10) if part * size >= value)


def line_chart(
    title: str, times: Sequence[float], values: Sequence[float], most: float, color: str, form: str
) -> str:
    """values over times [s], from 0 to `most`."""
    height, bottom = 136, 110
    most = _round_up(most)
    end = max([*times, 1e-9])
    inner = [f'<text x="0" y="12" font-weight="600">{_text(title)}</text>']
    for part in (0.0, 0.5, 1.0):
        y = bottom - part * 78
        inner.append(f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH}" y2="{y}" stroke="#e6e6e6"/>')
        inner.append(
            f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{_text(form.format(part * most))}</text>'
        )
    for second in range(0, int(end) + 1, max(1, round(end / 8))):
        x = _LEFT + second / end * (_WIDTH - _LEFT - 30)
        inner.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{second} s</text>')
    points = " ".join(
        f"{_LEFT + t / end * (_WIDTH - _LEFT - 30):.1f},{bottom - min(v / most, 1.0) * 78:.1f}"
        for t, v in zip(times, values, strict=True)
    )
    inner.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.8"/>')
    return _svg(height, "".join(inner))


def bar_chart(bars: Sequence[tuple[str, int]], color: str, unit: str) -> str:
    """bars: (label, count)."""
    most, wide = max([count for _, count in bars] + [1]), (_WIDTH - _LEFT) / max(len(bars), 1)
    wide = min(wide, 80)
    inner = []
    for i, (label, count) in enumerate(bars):
        tall = count / most * 100
        x = _LEFT + i * wide
        inner.append(
            f'<rect x="{x + 1:.1f}" y="{118 - tall:.1f}" width="{wide - 2:.1f}" height="{tall:.1f}" '
            f'fill="{color}"><title>{_text(label)}: {count:,} {_text(unit)}</title></rect>'
        )
        if wide >= 22 or i % max(1, round(22 / wide)) == 0:
            inner.append(f'<text x="{x + wide / 2:.1f}" y="134" text-anchor="middle">{_text(label)}</text>')
        if wide > 44 and count:
            inner.append(
                f'<text x="{x + wide / 2:.1f}" y="{114 - tall:.1f}" text-anchor="middle">{count:,}</text>'
            )
    inner.append(f'<line x1="{_LEFT}" y1="118" x2="{_WIDTH}" y2="118" stroke="#ccc"/>')
    return _svg(142, "".join(inner))


def timeline(
    tracks: Sequence[tuple[str, Sequence[tuple[int, int, str, str]]]],
    arrows: Sequence[tuple[int, int, int, int, str]],
    end_ns: int,
) -> str:
    """tracks: (name, (begin, duration, colour, title) …), times in ns from 0 to end_ns. arrows: (track, time,
    track, time, title)."""
    wide, tall = _WIDTH - _LEFT, 44
    scale = wide / max(end_ns, 1)
    names, inner = [], []
    for i, (name, spans) in enumerate(tracks):
        y = i * tall + 14
        names.append(f'<text x="0" y="{y + 17}">{_text(name)}</text>')
        for begin, duration, color, title in spans:
            x = max(begin, 0) * scale
            width = max(min((begin + duration) * scale, wide) - x, 0.05)
            inner.append(
                f'<rect x="{x:.3f}" y="{y}" width="{width:.3f}" height="24" fill="{color}">'
                f"<title>{_text(title)}: {duration / 1000:,.1f} µs</title></rect>"
            )
    for source, begin, target, end, title in arrows:
        y1, y2 = source * tall + 14, target * tall + 14 + 24
        inner.append(
            f'<line x1="{begin * scale:.3f}" y1="{y1}" x2="{end * scale:.3f}" y2="{y2}" stroke="#c0392b" '
            f'stroke-width="1" vector-effect="non-scaling-stroke"><title>{_text(title)}</title></line>'
        )
    height = len(tracks) * tall + 34
    axis = "".join(
        f'<text x="{part * wide:.1f}" y="{height - 6}" text-anchor="{anchor}">'
        f"{part * end_ns / 1e6:.1f} ms</text>"
        for part, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
    )
    clip = f'<clipPath id="plot"><rect x="{_LEFT}" y="0" width="{wide}" height="{height}"/></clipPath>'
    moved = f'transform="translate({_LEFT} 0)"'
    plot = f'<g clip-path="url(#plot)"><g class="spans" {moved}>{"".join(inner)}</g></g>'
    return _svg(
        height,
        f"{clip}{''.join(names)}{plot}<g {moved}>{axis}</g>",
        f'class="timeline" data-width="{_WIDTH}"',
    )
