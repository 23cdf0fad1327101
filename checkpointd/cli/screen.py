"""Lay text out: width, colour, tables, and no control characters from others' mouths."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TextIO

NARROWEST = 40
NARROWEST_COLUMN = 8
PLAIN_WIDTH = 100
"""What is no terminal gets lines of this width; tables are never cut there."""


class Style(Enum):
    """Name what is set off, with its SGR code (ECMA-48)."""

    BOLD = "1"
    DIM = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """Lay text out for one stream."""

    width: int = PLAIN_WIDTH
    is_terminal: bool = False
    has_colour: bool = False

    def paint(self, text: str, *styles: Style) -> str:
        """Set ``text`` off, where the stream shows it."""
        if not self.has_colour or not styles:
            return text
        return f"\x1b[{';'.join(style.value for style in styles)}m{text}\x1b[0m"

    def wrap(self, text: str, first: str = "", rest: str | None = None) -> list[str]:
        """Break ``text`` into lines; ``first`` and ``rest`` stand before them."""
        indent = " " * len(first) if rest is None else rest
        lines = textwrap.wrap(
            clean(text),
            self.width,
            initial_indent=first,
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=False,
        )
        return lines or [first.rstrip()]

    def table(self, rows: Sequence[Sequence[str]]) -> list[str]:
        """Align columns; on a terminal they are cut to fit, but never the first: it is the name."""
        cells = [[clean(cell) for cell in row] for row in rows]
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        while self.is_terminal and sum(widths) + 2 * (len(widths) - 1) > self.width:
            widest = max(range(1, len(widths)), key=widths.__getitem__)
            if widths[widest] <= NARROWEST_COLUMN:
                break
            widths[widest] -= 1
        return [
            "  ".join(_fit(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]


def screen_for(stream: TextIO, environ: Mapping[str, str] = os.environ) -> Screen:
    """Look at the stream: a terminal's width and colours; NO_COLOR (no-color.org) and dumb ones."""
    if not stream.isatty():
        return Screen()
    plain = bool(environ.get("NO_COLOR")) or environ.get("TERM", "dumb") == "dumb"
    width = max(NARROWEST, shutil.get_terminal_size().columns)
    return Screen(width=width, is_terminal=True, has_colour=not plain)


def clean(text: str) -> str:
    """Replace what could steer a terminal: names and errors come from strangers."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def show(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Print lines; what the stream's encoding lacks is escaped."""
    out = sys.stdout if stream is None else stream
    encoding = out.encoding or "utf-8"
    text = "".join(line + "\n" for line in lines)
    out.write(text.encode(encoding, "backslashreplace").decode(encoding))


def _fit(cell: str, width: int) -> str:
    return cell.ljust(width) if len(cell) <= width else cell[: width - 2] + ".."
