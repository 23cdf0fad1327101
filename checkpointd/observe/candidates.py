"""Answer what a parent's copy would be now: its files read and its pod rendered.

A look that finds the same pod and the same ``..data`` links reads no file and says nothing. The
thread keeps no bytes: they go to the cycle with the fact, which drops them once they are stored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from checkpointd import json_fields, log
from checkpointd.clock import Clock
from checkpointd.errors import FieldError, SourceError
from checkpointd.json_fields import Json
from checkpointd.model.decision import Question, Topic
from checkpointd.model.files import Candidate, Refusal, Refused, VolumeFiles
from checkpointd.model.moments import Instant, Seen, Unknown, seen
from checkpointd.model.observation import CandidateRead, Fact
from checkpointd.model.pods import ApiPod
from checkpointd.observe import volumes
from checkpointd.observe.source import Schedule, SourceThread
from checkpointd.render import copy
from checkpointd.render.copy import NodeFacts
from checkpointd.render.volumes import StoredVolume, stored_volumes
from checkpointd.render.wire import without

LOOK_EVERY = 30.0
"""Seconds at most between two looks at the questions; each has its own period."""

_NOISE = ("resourceVersion", "managedFields", "generation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Hold whom the thread asks at each look.

    ``find_pod`` gives the API's pod of a UID, ``root`` the kubelet's root directory, None where
    they are not known. ``max_bytes`` is root's cap on the files of a pod.
    """

    find_pod: Callable[[str], ApiPod | None]
    root: Callable[[], Path | None]
    node: Callable[[], NodeFacts]
    max_bytes: Callable[[], int]


Answer = Candidate | Refused | Unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class _Basis:
    """Hold all that a rendering rests on, without a byte of a file: equal ones render the same.

    ``raw`` is the object that ``pod``, ``wanted`` and ``refused`` were made of: as long as it is
    the same, so are they. ``refused`` is why, whatever the files are; they are not read then.
    """

    raw: Json = field(compare=False)
    pod: Json
    wanted: tuple[StoredVolume, ...]
    refused: tuple[Refusal, ...]
    targets: tuple[str, ...]
    node: NodeFacts
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """Hold what was last posted for a parent, without bytes; ``basis`` is None for Unknown."""

    at: Instant
    answer: Answer
    basis: _Basis | None


class CandidateThread(SourceThread):
    """Answer ``Topic.CANDIDATE``; the target is the parent's UID."""

    topics = frozenset({Topic.CANDIDATE})

    def __init__(
        self, post: Callable[[Fact], None], clock: Clock, surroundings: Surroundings
    ) -> None:
        super().__init__("candidates", post, clock)
        self._around = surroundings
        self._schedule = Schedule()
        self._told: dict[str, _Told] = {}

    def step(self) -> float:
        """Look at each parent that is due."""
        asked = self.asked
        self._schedule.ask(asked)
        targets = {question.target for question in asked}
        # Who is asked for again after a pause hears the answer again.
        self._told = {uid: told for uid, told in self._told.items() if uid in targets}
        for question in self._schedule.due(self.clock.now()):
            self._look(question)
        return self._schedule.seconds_to_next(self.clock.now(), LOOK_EVERY)

    def report_failure(self, why: str) -> None:
        """Post Unknown for each parent that is asked for."""
        at = self.clock.now()
        for question in self.asked:
            self._told.pop(question.target, None)
            self.post(CandidateRead(question.target, Unknown(why, at)))

    def _look(self, question: Question) -> None:
        at = self.clock.now()
        self._schedule.answered(question, at)
        told = self._told.get(question.target)
        if told is not None and question.after is not None and told.at.is_before(question.after):
            told = None
        basis: _Basis | None = None
        answer: Answer
        try:
            basis = self._basis(question.target, told)
            if told is not None and told.basis == basis:
                self._told[question.target] = replace(told, basis=basis)
                return
            answer = self._render(question.target, basis)
        except (SourceError, FieldError) as error:
            answer, basis = Unknown(str(error), at), None
        except Exception as error:
            # Of one pod, and no reason to say nothing of the others.
            answer, basis = Unknown(f"a fault of ours: {type(error).__name__}: {error}", at), None
            if told is None or not _is_same(told.answer, answer):
                logging.getLogger(log.LOGGER).exception("pod %s is not rendered", question.target)
        self._tell(question.target, told, _Told(at=at, answer=answer, basis=basis))

    def _tell(self, uid: str, before: _Told | None, now: _Told) -> None:
        """Post an answer that is not the one before, and remember it without its bytes."""
        if before is None or not _is_same(before.answer, now.answer):
            self.post(CandidateRead(uid, _reading(now.answer, now.at)))
            self._told[uid] = replace(now, answer=_without_bytes(now.answer))
        else:
            self._told[uid] = replace(before, basis=now.basis)

    def _basis(self, uid: str, told: _Told | None) -> _Basis:
        """Look at the pod and the links of its volumes. Raises SourceError, FieldError."""
        pod = self._around.find_pod(uid)
        if pod is None or pod.raw is None:
            raise SourceError("the API server has not told of this pod, or it is not marked")
        node = self._around.node()
        if not node.node_name:
            raise SourceError("the node's name is not known yet")
        old = told.basis if told is not None else None
        basis = replace(
            old if old is not None and old.raw is pod.raw else _basis_of(pod.raw),
            node=node,
            max_bytes=self._around.max_bytes(),
        )
        if not basis.wanted:
            return basis
        return replace(basis, targets=volumes.read_targets(self._root(), uid, basis.wanted))

    def _render(self, uid: str, basis: _Basis) -> Candidate | Refused:
        if basis.refused:
            return Refused(parent_uid=uid, refusals=basis.refused)
        files: Mapping[str, VolumeFiles] | Refusal = {}
        if basis.wanted:
            files = volumes.read_volumes(self._root(), uid, basis.wanted, basis.max_bytes)
        if isinstance(files, Refusal):
            return Refused(parent_uid=uid, refusals=(files,))
        return copy.render(basis.raw, files, basis.node)

    def _root(self) -> Path:
        root = self._around.root()
        if root is None:
            raise SourceError("the kubelet's root directory is not known yet")
        return root


def _reading(answer: Answer, at: Instant) -> Seen[Candidate | Refused] | Unknown:
    return answer if isinstance(answer, Unknown) else seen(answer, at)


def _is_same(before: Answer, now: Answer) -> bool:
    if isinstance(before, Unknown) and isinstance(now, Unknown):
        return before.why == now.why
    return before == _without_bytes(now)


def _without_bytes(answer: Answer) -> Answer:
    return replace(answer, files=()) if isinstance(answer, Candidate) else answer


def _basis_of(raw: Json) -> _Basis:
    """Return what of a pod rendering reads: its status changes far more often than this."""
    refused = copy.refusals(raw)
    pod = raw
    if not refused:
        metadata = without(json_fields.mapping(raw, "metadata"), *_NOISE)
        pod = {"metadata": metadata, "spec": raw.get("spec"), "images": copy.images(raw)}
    return _Basis(
        raw=raw,
        pod=pod,
        wanted=() if refused else stored_volumes(raw),
        refused=refused,
        targets=(),
        node=NodeFacts(node_name=""),
        max_bytes=0,
    )
