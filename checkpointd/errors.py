"""Hold the one tree of errors, split by what the catcher does with each.

Library exceptions are translated into these in ``clients`` and ``store`` only (``raise X from
error``). An expected answer is a value (``Unknown``, ``Refusal``, ``Outcome``), not an exception.
"""

from __future__ import annotations

from dataclasses import dataclass


class CheckpointdError(Exception):
    """Be the root of all errors that the program raises on purpose.

    ``exit_code`` is from sysexits.h.
    """

    exit_code = 70


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """Name one fault of the configuration: where it is, what it is, what to do."""

    file: str
    key: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}: {self.key}" if self.key else self.file
        return f"{place}: {self.message}"


class ConfigError(CheckpointdError):
    """Report every fault of the configuration at once."""

    exit_code = 78

    def __init__(self, problems: tuple[ConfigProblem, ...]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = problems


class FieldError(CheckpointdError):
    """Report untrusted JSON whose field is missing or of the wrong type; names the field's path."""

    exit_code = 65


class StoreError(CheckpointdError):
    """Report a fault of our own disk: the catcher quarantines what is damaged and goes on."""

    exit_code = 74


class DamagedError(StoreError):
    """Report content that its checksum or its schema contradicts."""


class NoSpaceError(StoreError):
    """Report a full file system (or quota): what was being written is not there."""


class NewerSchemaError(StoreError):
    """Report a store written by a newer program: it is refused and not touched."""

    exit_code = 78


class LockedError(StoreError):
    """Report that another instance holds the store."""

    exit_code = 75


class SourceError(CheckpointdError):
    """Report that a source gave no usable answer: the catcher makes it ``Unknown``."""

    exit_code = 69


class RefusedError(SourceError):
    """Report a connection that was refused, reset or closed in the handshake."""


class SilentError(SourceError):
    """Report a connection that gave no answer in time."""


class RejectedError(SourceError):
    """Report an answer that is not the one asked for (401, 403, 404, 429, 5xx, HTML, truncated).

    ``retry_after`` is for how many seconds the server wants to be left alone, 0 if it did not say.
    """

    def __init__(self, message: str, status: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class ActionError(CheckpointdError):
    """Report an effect that could not be made: it becomes an Outcome and comes back by itself."""

    exit_code = 74


class InvariantError(CheckpointdError):
    """Report a fault of our own: nothing is done in this cycle, it is logged and counted."""


class UsageError(CheckpointdError):
    """Report a command line or an operator's file that cannot be served."""

    exit_code = 64
