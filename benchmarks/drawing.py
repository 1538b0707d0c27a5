"""Draws the results: for each case, the times of other readers divided by ours, on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

# The peers, in the order of their bars. Limits, such as local files, and our own variants appear only in the tables.
_PEERS = {
    "polars": ("Polars, the same signed URLs", "#0075ff"),
    "incumbent-delta": ("delta-sharing 1.4, delta format", "#e07b00"),
    "incumbent-parquet": ("delta-sharing 1.4, parquet format", "#b5b5b5"),
}
_WIDTH, _LEFT, _RIGHT, _TOP = 860, 170, 60, 70
_BAR, _GAP = 12, 12
_LEAST, _MOST = 0.5, 100.0
_TICKS = (0.5, 1, 2, 5, 10, 20, 50, 100)


def draw(kept: Sequence[dict[str, Any]]) -> str:
    """Return an SVG of the cases that have a peer, as ``results.facts`` describes them; equal numbers give an equal
    SVG.

    The SVG is readable on light and dark pages.
    """
    cases = [(case["case"], _ratios(case)) for case in kept]
    cases = [(name, ratios) for name, ratios in cases if ratios]
    height = _TOP + sum(len(ratios) * _BAR + _GAP for _, ratios in cases) + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="11" fill="#808080">',
        f'<text x="{_LEFT}" y="16" font-size="14">Times as long as delta_sharing_client (logarithmic)</text>',
        *_legend(),
        *_axis(height),
    ]
    top = float(_TOP)
    for name, ratios in cases:
        middle = top + len(ratios) * _BAR / 2 + 4
        parts.append(f'<text x="{_LEFT - 8}" y="{middle:.1f}" text-anchor="end">{escape(name)}</text>')
        for contender, ratio in ratios:
            parts += _bar(contender, ratio, top)
            top += _BAR
        top += _GAP
    return "\n".join([*parts, "</svg>"]) + "\n"


def _ratios(case: dict[str, Any]) -> list[tuple[str, float]]:
    results = {one["contender"]: one["median"] for one in case["measured"]}
    ours = results.get("ours")
    return [(peer, results[peer] / ours) for peer in _PEERS if ours and peer in results]


def _x(ratio: float) -> float:
    share = math.log(min(max(ratio, _LEAST), _MOST) / _LEAST) / math.log(_MOST / _LEAST)
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _bar(contender: str, ratio: float, top: float) -> list[str]:
    start, end = sorted((_x(1), _x(ratio)))
    color = _PEERS[contender][1]
    return [
        f'<rect x="{start:.1f}" y="{top:.1f}" width="{max(end - start, 1):.1f}" height="{_BAR - 2}" fill="{color}"/>',
        f'<text x="{end + 4:.1f}" y="{top + _BAR - 3:.1f}" font-size="10">{ratio:.1f}</text>',
    ]


def _legend() -> list[str]:
    result, x = [], float(_LEFT)
    for label, color in _PEERS.values():
        result.append(f'<rect x="{x:.0f}" y="26" width="10" height="10" fill="{color}"/>')
        result.append(f'<text x="{x + 14:.0f}" y="35">{escape(label)}</text>')
        x += 30 + 6.3 * len(label)
    return result


def _axis(height: int) -> list[str]:
    results = []
    for tick in _TICKS:
        x, width = _x(tick), 2 if tick == 1 else 0.5
        results.append(
            f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{height - 10}" stroke="#808080" '
            f'stroke-width="{width}"/>'
        )
        results.append(f'<text x="{x:.1f}" y="{_TOP - 14}" text-anchor="middle">{tick:g}</text>')
    return results
