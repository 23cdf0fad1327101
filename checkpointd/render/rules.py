"""Say what a row of a table of rules is: what it forbids, whose source says so, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from checkpointd.errors import FieldError
from checkpointd.json_fields import Json
from checkpointd.model.files import Refusal

Finding = tuple[str, str]
"""(path of the field, what is wrong there: "" where the row says it all)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Forbid one thing of a Pod.

    ``name`` is the field as the API reference writes it, ``source`` the file and function that the
    rule was read from. ``find`` yields each place that breaks it and may raise FieldError.
    """

    name: str
    source: str
    reason: str
    remedy: str
    find: Callable[[Json], Iterator[Finding]]

    def refusals(self, pod: Json) -> Iterator[Refusal]:
        """Yield a refusal for each place that breaks the rule."""
        try:
            for path, detail in self.find(pod):
                reason = f"{self.reason}: {detail}" if detail else self.reason
                yield Refusal(field=path, reason=reason, remedy=self.remedy)
        except FieldError as error:
            yield malformed(error, self.name)


def refuse_all(rules: Iterable[Rule], pod: Json) -> tuple[Refusal, ...]:
    """Return what all rules say, each refusal once, in the order of the rules."""
    found = (refusal for rule in rules for refusal in rule.refusals(pod))
    return tuple(dict.fromkeys(found))


_FROM_THE_TOP = re.compile(r"(pod|manifest|metadata|spec|status|apiVersion|kind)\b[\w.\[\]-]*")


def malformed(error: FieldError, fallback: str) -> Refusal:
    """Return the refusal of a field that is missing or of the wrong type.

    An error that names a path within a container or volume keeps it in its reason.
    """
    path, _separator, reason = str(error).partition(": ")
    is_whole = _FROM_THE_TOP.fullmatch(path) is not None
    return Refusal(
        field=path if is_whole else fallback,
        reason=reason if is_whole else str(error),
        remedy="correct the pod's field",
    )
