"""Print the story: what happens, when, and what the daemon itself says of it."""

from __future__ import annotations

import re
import shutil
import textwrap
import threading
import time
from pathlib import Path

FOLLOW_SECONDS = 0.05
_LINE = re.compile(r"[-\d]+ [\d:,]+ (?P<level>\w+) (?P<text>.*)")
_WITNESSES = re.compile(r" \[[^\]]*\]")
LEVELS = frozenset({"NOTICE", "WARNING", "ERROR"})


class Narrator:
    """Print with the seconds since the beginning."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._width = min(shutil.get_terminal_size((100, 24)).columns, 110)

    def chapter(self, title: str) -> None:
        """Begin a chapter."""
        with self._lock:
            print(f"\n{title}\n{'-' * len(title)}", flush=True)

    def say(self, text: str, *, mark: str = " ") -> None:
        """Tell one thing, wrapped."""
        head = f"{time.monotonic() - self._began:5.1f} s {mark} "
        lines = textwrap.wrap(text, self._width - len(head), break_on_hyphens=False)
        with self._lock:
            print(head + f"\n{' ' * len(head)}".join(lines), flush=True)

    def show(self, text: str) -> None:
        """Show what a command printed."""
        with self._lock:
            print(textwrap.indent(text.rstrip(), " " * 10), flush=True)


class LogFollower:
    """Print the daemon's lines that matter, as they are written."""

    def __init__(self, narrator: Narrator, path: Path) -> None:
        self._narrator = narrator
        self._path = path
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> LogFollower:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _follow(self) -> None:
        position = 0
        while True:
            last = self._stopping.is_set()
            if self._path.exists():
                with self._path.open() as file:
                    file.seek(position)
                    content = file.read()
                whole, newline, _ = content.rpartition("\n")
                position += len((whole + newline).encode())
                for line in whole.splitlines():
                    self._print(line)
            if last:
                return
            self._stopping.wait(FOLLOW_SECONDS)

    def _print(self, line: str) -> None:
        found = _LINE.fullmatch(line)
        if found and found["level"] in LEVELS:
            self._narrator.say(_WITNESSES.sub("", found["text"]), mark="|")
