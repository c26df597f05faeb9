"""A profile as one page that opens without a network: everything is in it, the pictures are SVG."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from gristmill.profiling import svg
from gristmill.profiling.histogram import BOUNDS
from gristmill.profiling.measure import Profile
from gristmill.profiling.text import TITLES, document, figures, seconds_text

COLORS = {
    "environment": "#3b82c4",
    "inference": "#7a5cc4",
    "assemble": "#4aa7a0",
    "space_wait": "#d9d9d9",
    "copy": "#e08a3c",
    "parameters": "#c9b458",
    "batch_wait": "#d9d9d9",
    "batch_view": "#4aa7a0",
    "forward": "#7a5cc4",
    "loss": "#b05c9b",
    "backward": "#3b82c4",
    "optimiser": "#5aa469",
    "publish": "#e08a3c",
    "log": "#8a8a8a",
    "learn": "#3b82c4",
}
# Of the trace that is drawn: enough for some batches, few enough to see each span.
_TIMELINE_SPANS = 3000


def page(profile: Profile) -> str:
    """The whole page. Names from outside are escaped."""
    told = profile.diagnosis
    parts = [
        f"<h1>{_text(profile.config_name)}</h1>",
        f'<p class="dim">{_text(_subtitle(profile))}</p>',
        f'<p class="verdict {_text(told.certainty)}">{_text(told.sentence)}</p>',
        "<h2>Where the time goes</h2>",
        _legend(profile),
        _share_bars(profile),
        _table(profile),
        "<h2>Figures</h2>",
        _figures(profile),
        "<h2>Over time</h2>",
        _over_time(profile),
        "<h2>Policy lag</h2>",
        '<p class="dim">How many versions old trajectories were when they were learned from.</p>',
        _lag(profile),
    ]
    if profile.trace is not None:
        parts += ["<h2>Timeline</h2>", _timeline(profile)]
    data = json.dumps(document(profile)).replace("<", "\\u003c")
    return _PAGE.replace("@TITLE@", _text(f"gristmill profile: {profile.config_name}")).replace(
        "@BODY@", "\n".join(parts) + f'\n<script type="application/json" id="profile">{data}</script>'
    )


def _subtitle(profile: Profile) -> str:
    config = profile.config
    workers = config["workers.count"]
    return (
        f"{config['learner.algorithm']} on {config['env.id']}, {workers} worker{'s' * (workers != 1)} × "
        f"{config['workers.envs_per_worker']} environments, {profile.cores} cores, measured for "
        f"{profile.seconds:.1f} s: {profile.whole.frames_per_s:,.0f} frames/s"
    )


def _text(value: Any) -> str:
    return html.escape(str(value), quote=True)


def _legend(profile: Profile) -> str:
    stages = (*profile.whole.workers.stages, *profile.whole.learner.stages)
    seen = dict.fromkeys(stage.name for stage in stages if stage.share >= 0.001)
    return (
        '<p class="legend">'
        + "".join(f'<span><i style="background:{COLORS[n]}"></i>{_text(TITLES[n])}</span>' for n in seen)
        + "</p>"
    )


def _share_bars(profile: Profile) -> str:
    rows = []
    for process in profile.processes:
        parts = [
            (COLORS[s.name], s.share, f"{TITLES[s.name]}: {s.share:.1%}, p50 {seconds_text(s.p50_s)}")
            for s in process.stages
        ]
        rows.append((process.name, parts))
    return svg.share_bars(rows)


def _table(profile: Profile) -> str:
    rows = []
    for process in (profile.whole.workers, profile.whole.learner):
        for stage in process.stages:
            if not stage.count and not stage.seconds:
                continue
            cells = (
                process.name,
                TITLES[stage.name],
                f"{stage.share:.1%}",
                seconds_text(stage.p50_s),
                seconds_text(stage.p99_s),
                f"{stage.rate:,.0f}",
            )
            rows.append("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("process", "stage", "share", "p50", "p99", "per second"))
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"


def _figures(profile: Profile) -> str:
    rows = figures(profile.whole, profile.config["queue.capacity"])
    return (
        '<table class="figures">'
        + "".join(f"<tr><td>{_text(name)}</td><td>{_text(value)}</td></tr>" for name, value in rows)
        + "</table>"
    )


def _over_time(profile: Profile) -> str:
    times = [sample.time_s for sample in profile.samples]
    capacity = profile.config["queue.capacity"]

    def chart(title: str, values: Sequence[float], most: float, color: str, form: str) -> str:
        return svg.line_chart(title, times, values, most, color, form)

    frames = [sample.frames_per_s for sample in profile.samples]
    return (
        chart("frames/s", frames, max([*frames, 1.0]) * 1.1, "#3b82c4", "{:,.0f}")
        + chart(
            f"queue fill, of {capacity} trajectories",
            [sample.queue_size for sample in profile.samples],
            capacity,
            "#e08a3c",
            "{:,.0f}",
        )
        + chart(
            "workers waiting for space", [s.space_wait for s in profile.samples], 1.0, "#7a5cc4", "{:.0%}"
        )
        + chart(
            "learner waiting for batches", [s.batch_wait for s in profile.samples], 1.0, "#5aa469", "{:.0%}"
        )
    )


def _lag(profile: Profile) -> str:
    counts = profile.whole.policy_lag
    last = int(np.max(np.nonzero(counts)[0], initial=0))
    bars = [(f"{BOUNDS[i]:,.0f}", int(counts[i])) for i in range(last + 1)]
    return svg.bar_chart(bars, "#7a5cc4", "trajectories")


def _timeline(profile: Profile) -> str:
    """The trace's end: every process a track, an arrow for each put that the learner took."""
    trace = profile.trace
    assert trace is not None
    ends = [int(track.spans[-1, 0] + track.spans[-1, 1]) for track in trace.tracks if len(track.spans)]
    if not ends:
        return "<p>No spans were traced.</p>"
    end = min(ends)
    # From the back, until there are enough spans on any track.
    begins = [
        int(track.spans[max(0, len(track.spans) - _TIMELINE_SPANS), 0])
        for track in trace.tracks
        if len(track.spans)
    ]
    begin = max(max(begins), end - 100_000_000)
    names = list(TITLES)
    tracks = []
    for track in trace.tracks:
        spans = [
            (b - begin, d, COLORS[names[s]], TITLES[names[s]])
            for b, d, s, _ in track.spans.tolist()
            if b + d >= begin and b <= end
        ]
        tracks.append((track.name, spans))
    arrows = []
    for flow in trace.flows:
        copied = trace.tracks[flow.worker].spans[flow.copied]
        viewed = trace.tracks[0].spans[flow.viewed]
        a, b = int(copied[0]), int(viewed[0] + viewed[1])
        if a >= begin and b <= end:
            arrows.append((flow.worker, a - begin, 0, b - begin, f"{flow.count} trajectories"))
    note = (
        f"The last {(end - begin) / 1e6:.1f} ms of the trace. An arrow leads from a worker's copy into the "
        f"queue to the batch in which the learner took it: each trajectory was copied "
        f"{trace.copies_per_trajectory:.2f} times. Turn the wheel to zoom, drag to move."
    )
    return f'<p class="dim">{_text(note)}</p>' + svg.timeline(tracks, arrows, end - begin)


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>@TITLE@</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 980px; margin: 32px auto; padding: 0 20px;
  color: #222; }
h1 { font-size: 24px; margin: 0; } h2 { font-size: 17px; margin: 32px 0 6px; }
.dim { color: #666; margin: 4px 0 12px; }
.verdict { border-left: 4px solid #3b82c4; background: #f3f7fb; padding: 12px 16px; font-size: 16px; }
.verdict.unsure { border-color: #c9b458; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; margin: 10px 0; }
td, th { padding: 3px 14px 3px 0; text-align: right; border-bottom: 1px solid #eee; font-weight: normal; }
th { color: #666; } td:nth-child(-n+2), th:nth-child(-n+2) { text-align: left; }
.legend span { margin-right: 16px; white-space: nowrap; font-size: 13px; }
.legend i { display: inline-block; width: 11px; height: 11px; margin-right: 5px; border-radius: 2px; }
svg { display: block; max-width: 100%; margin: 6px 0; }
svg text { font: 12px system-ui, sans-serif; fill: #444; }
</style>
</head>
<body>
@BODY@
<script>
// The timeline: the wheel zooms around the pointer, dragging moves.
for (const svg of document.querySelectorAll("svg.timeline")) {
  const inner = svg.querySelector(".spans"), left = 80, width = +svg.dataset.width - left;
  let scale = 1, shift = 0;
  const show = () => {
    shift = Math.min(0, Math.max(shift, width * (1 - scale)));
    inner.setAttribute("transform", `translate(${left + shift} 0) scale(${scale} 1)`);
  };
  const x = event => (event.clientX - svg.getBoundingClientRect().left) *
    (+svg.dataset.width / svg.getBoundingClientRect().width) - left;
  svg.addEventListener("wheel", event => {
    event.preventDefault();
    const at = (x(event) - shift) / scale;
    scale = Math.min(400, Math.max(1, scale * Math.exp(-event.deltaY / 400)));
    shift = x(event) - at * scale;
    show();
  }, {passive: false});
  let from = null;
  svg.addEventListener("pointerdown", event => {
    from = x(event) - shift;
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", event => {
    if (from !== null) { shift = x(event) - from; show(); }
  });
  svg.addEventListener("pointerup", () => { from = null; });
}
document.body.dataset.ready = "true";
</script>
</body>
</html>
"""
