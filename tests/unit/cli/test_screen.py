"""Test layout: width, colour, tables, and what strangers may not do to a terminal."""

from __future__ import annotations

import io

import pytest

from checkpointd.cli import screen
from checkpointd.cli.screen import Screen, Style


class Terminal(io.StringIO):
    """Stand for a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "has_colour"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_colour_only_on_a_terminal_that_wants_it(environ: dict[str, str], has_colour: bool) -> None:
    assert screen.screen_for(Terminal(), environ).has_colour is has_colour
    assert not screen.screen_for(io.StringIO(), environ).has_colour


def test_paint_leaves_plain_streams_alone() -> None:
    assert Screen().paint("a", Style.RED) == "a"
    assert Screen(has_colour=True).paint("a", Style.BOLD, Style.RED) == "\x1b[1;31ma\x1b[0m"


def test_lines_are_broken_at_the_width_and_indented() -> None:
    assert Screen(width=12).wrap("aaa bbb ccc ddd", "- ") == ["- aaa bbb", "  ccc ddd"]
    assert Screen(width=12).wrap("", "name ") == ["name"]


def test_a_table_fits_a_terminal_and_is_whole_elsewhere() -> None:
    rows = [("POD", "NEXT"), ("kube-system/a", "activate when the hold is over")]
    cut = Screen(width=30, is_terminal=True).table(rows)
    assert max(map(len, cut)) <= 30
    assert cut[1].endswith("..")
    assert Screen(width=30).table(rows)[1] == "kube-system/a  activate when the hold is over"


def test_what_an_encoding_lacks_is_escaped() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    screen.show(["caf\u00e9"], stream)
    stream.seek(0)
    assert stream.read() == "caf\\xe9\n"


def test_control_characters_are_replaced() -> None:
    assert screen.clean("a\x1b[31m\tb\u202ec") == "a?[31m b?c"
