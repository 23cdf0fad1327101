"""Name the kinds of events, their fields and levels; write lines for a terminal.

A line says one thing once: whoever writes it sees to that. No secret value may be handed in; names
come from pods and are shown with their control characters escaped. The journal's own protocol is in
``clients.journal``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum
from typing import cast

from checkpointd.model.decision import Severity

LOGGER = "checkpointd"
NOTICE = 25
"""Between INFO and WARNING, as syslog has it."""
_FIELDS = "journal_fields"
_PRIORITIES = (
    (logging.CRITICAL, 2),
    (logging.ERROR, 3),
    (logging.WARNING, 4),
    (NOTICE, 5),
    (logging.INFO, 6),
)


class Event(Enum):
    """Give each kind of event its MESSAGE_ID: random, never changed (systemd.journal-fields(7))."""

    STARTED = "336d727eef1242f1a17013ceb0bacc46"
    STOPPED = "f2f2798a644b4e66bd14a1ed467d4e59"
    TRANSITION = "e918b3ce818d4c4eb2f992b55f474007"
    ACTION_FAILED = "e2464d99627d454292b6f9d46618fae2"
    SOURCE_GONE = "aa5bf372845b49e3be446c4234ea0ed9"
    SOURCE_BACK = "030e02747d964f789c96fbb0e945f720"
    ALARM = "6ec3cfe3a0d9468780bbca32234eb8d5"
    SETTINGS = "f11110ac3cf64fce9c1fc285b9432b1b"
    OPERATOR = "f6e49a7f8f7c4bf5a829b4a1671b9a52"
    REFUSED = "26b4d13a95ca4d1bbcd6ce232c45a2e2"
    FAULT = "a502abda2c56450992ea4bbf1848ed22"


def level(severity: Severity) -> int:
    """Return the level of ``logging`` for a reason."""
    return {Severity.INFO: logging.INFO, Severity.NOTICE: NOTICE}.get(severity, logging.WARNING)


def priority(number: int) -> int:
    """Return the syslog priority (0-7, syslog(3)) of a level of ``logging``."""
    return next((value for least, value in _PRIORITIES if number >= least), 7)


def fields(  # noqa: PLR0913 - one parameter per field of the journal
    event: Event,
    *,
    namespace: str = "",
    pod: str = "",
    slot: str = "",
    state: str = "",
    rule: str = "",
    reason: str = "",
) -> Mapping[str, object]:
    """Return what ``logging``'s calls take as ``extra``; empty fields are left out."""
    given = {
        "MESSAGE_ID": event.value,
        "NAMESPACE": namespace,
        "POD": pod,
        "SLOT": slot,
        "STATE": state,
        "RULE": rule,
        "REASON": reason,
    }
    return {_FIELDS: {name: value for name, value in given.items() if value}}


def fields_of(record: logging.LogRecord) -> Mapping[str, str]:
    """Return the fields that ``fields`` gave to a record, {} where there are none."""
    given: object = getattr(record, _FIELDS, None)
    return cast("Mapping[str, str]", given) if isinstance(given, dict) else {}


def printable(text: str) -> str:
    """Return ``text`` with everything escaped that could steer a terminal; line breaks stay."""
    return "".join(
        character if character.isprintable() or character == "\n" else ascii(character)[1:-1]
        for character in text
    )


class PlainFormatter(logging.Formatter):
    """Write lines for a terminal, or with ``prefix`` for a stream that the journal reads.

    The prefix is sd-daemon(3)'s ``<priority>``, before each line of a record.
    """

    def __init__(self, *, prefix: bool = False) -> None:
        super().__init__("%(message)s" if prefix else "%(asctime)s %(levelname)s %(message)s")
        self._prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        text = printable(super().format(record))
        if not self._prefix:
            return text
        head = f"<{priority(record.levelno)}>"
        return "\n".join(head + line for line in text.split("\n"))


def set_up(handler: logging.Handler, least: str) -> logging.Logger:
    """Make ``handler`` the only one of the program's logger, and close the others.

    ``least`` names the lowest level: debug, info, notice, warning or error.
    """
    logging.addLevelName(NOTICE, "NOTICE")
    logger = logging.getLogger(LOGGER)
    for other in logger.handlers:
        if other is not handler:
            other.close()
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(NOTICE if least == "notice" else least.upper())
    return logger
