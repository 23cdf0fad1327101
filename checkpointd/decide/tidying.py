"""Forget what was observed and is no longer needed, once it is known what is asked next."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TypeVar

from checkpointd.model.checkpoint import Stored
from checkpointd.model.decision import Question, Topic
from checkpointd.model.files import Candidate, Refused
from checkpointd.model.moments import Seen, Unknown
from checkpointd.model.observation import NOT_YET_READ, Observation

T = TypeVar("T")


def tidy(before: Observation, stored: Stored, questions: frozenset[Question]) -> Observation:
    """Drop what is no longer needed: file bytes that are stored, answers that nobody asks for.

    Why something could not be read is no news once nobody asks for it; what ran, and which images
    were there, is no answer to whoever asks next.
    """
    topics = {question.topic for question in questions}
    before = _shelve(before, topics)
    asked = {question.target for question in questions if question.topic is Topic.CANDIDATE}
    known = {
        generation.hash
        for checkpoint in stored.checkpoints.values()
        for generation in checkpoint.generations
    }
    kept = {
        uid: _without_bytes(reading, known)
        for uid, reading in before.candidates.items()
        if uid in asked
    }
    if kept == before.candidates and all(kept[uid] is before.candidates[uid] for uid in kept):
        return before
    return replace(before, candidates=kept)


def _shelve(before: Observation, asked: Collection[Topic]) -> Observation:
    lease = before.lease if Topic.LEASE in asked else _shelved(before.lease)
    running_pods = (
        before.running_pods if Topic.RUNNING_PODS in asked else _forgotten(before.running_pods)
    )
    images = before.images if Topic.IMAGES in asked else _forgotten(before.images)
    known = (before.lease, before.running_pods, before.images)
    if all(new is old for new, old in zip((lease, running_pods, images), known, strict=True)):
        return before
    return replace(before, lease=lease, running_pods=running_pods, images=images)


def _shelved(reading: Seen[T] | Unknown) -> Seen[T] | Unknown:
    if isinstance(reading, Seen) or reading.why == NOT_YET_READ:
        return reading
    return Unknown(NOT_YET_READ, reading.since)


def _forgotten(reading: Seen[T] | Unknown) -> Seen[T] | Unknown:
    """Forget what is read only while it is asked for: by the next time it may long be otherwise."""
    return Unknown(NOT_YET_READ, reading.at) if isinstance(reading, Seen) else _shelved(reading)


def _without_bytes(
    reading: Seen[Candidate | Refused] | Unknown, known: set[str]
) -> Seen[Candidate | Refused] | Unknown:
    if not isinstance(reading, Seen) or not isinstance(reading.value, Candidate):
        return reading
    candidate = reading.value
    if not candidate.files or candidate.hash not in known:
        return reading
    return replace(reading, value=replace(candidate, files=()))
