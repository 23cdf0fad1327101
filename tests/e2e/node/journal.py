"""What a unit has written to a machine's journal since a moment."""

from __future__ import annotations

import fnmatch

from tests.e2e.node.machine import Machine
from tests.e2e.node.waiting import NotYetError, wait_for


class Journal:
    """The lines of one unit from now on."""

    def __init__(self, machine: Machine, unit: str = "checkpointd") -> None:
        """Begin after the last line of the unit, which must have one."""
        self._machine = machine
        self._unit = unit
        # Of the unit, for after a line of another one journalctl skips the first that matches.
        end = machine.sh(f"journalctl --sync; journalctl -n 1 -o cat -u {unit} --show-cursor")
        self._cursor = end.rpartition("-- cursor: ")[2].strip()

    def lines(self) -> list[str]:
        """Return the messages since then, PID 1's about the unit among them."""
        show = f"journalctl -q -o cat -u {self._unit} --after-cursor='{self._cursor}'"
        return self._machine.sh(f"journalctl --sync; {show}").splitlines()

    def count(self, beginning: str) -> int:
        """Return how many lines begin with a pattern of fnmatch."""
        return sum(fnmatch.fnmatchcase(line, f"{beginning}*") for line in self.lines())

    def wait_for(self, beginning: str, timeout: float) -> None:
        """Return once a line begins with a pattern of fnmatch."""

        def is_there() -> bool:
            if not self.count(beginning):
                raise NotYetError(" | ".join(self.lines()[-5:]))
            return True

        wait_for(f"the journal says: {beginning}", is_there, timeout, 0.2)
