"""Set the scene of one decision: what all slots share, the API server's state first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from checkpointd.decide.timers import Timers
from checkpointd.model.checkpoint import NodeRecord
from checkpointd.model.evidence import Api, Is, Order
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.observation import Observation, Verb, World
from checkpointd.model.pods import ApiPod
from checkpointd.model.policy import Policy

GOING_DOWN = "stopping"
COMING_UP = frozenset({"starting", "running", "degraded"})
"""SystemState of PID 1 that overrules a stale freeze file (rule 11)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Hold what all slots of one decision share; ``concern`` makes the part of it for one slot.

    ``pods`` are by UID. ``order`` is the operator's for the slot. ``source_ready``, ``cut_off`` and
    ``lease_is_fresh`` are found once for the node: ``runs.is_source_ready`` and ``deadlines``.
    """

    observation: Observation
    record: NodeRecord | None
    policy: Policy
    api: Api
    frozen: bool
    timers: Timers = field(compare=False)
    wall: str
    all_gone_since: Instant | None
    pods: Mapping[str, ApiPod]
    order: Order = Order.NONE
    source_ready: bool = False
    cut_off: Is = Is.UNKNOWN
    lease_is_fresh: bool = False

    @property
    def now(self) -> Instant:
        """Return the decision's instant."""
        return self.timers.now


def judge_api(observation: Observation, record: NodeRecord | None) -> Api:
    """Say what the API server's state means: only ``TRUSTED`` removes or hands back anything.

    Before a first trusted contact nothing is started either (design, section 2): ``NEVER``.
    """
    contact = observation.api_contact
    if not contact.reached and contact.answers_since is not None:
        return Api.ANSWERING
    if not contact.reached:
        return _judge_silence(record)
    if contact.refusals:
        return Api.REFUSED
    if isinstance(observation.world, Unknown):
        return Api.ANSWERING
    verdict = _judge_world(observation.world.value, record)
    if verdict is Api.TRUSTED and isinstance(observation.api_pods, Unknown):
        return Api.ANSWERING
    return verdict


def _judge_silence(record: NodeRecord | None) -> Api:
    """Return UNKNOWN, or why silence starts nothing: its last word stands until a newer one."""
    if record is None or not record.node_uid:
        return Api.NEVER
    return Api.UNKNOWN if record.node_deleted_since is None else Api.DELETED_LAST


def _judge_world(world: World, record: NodeRecord | None) -> Api:
    known = record is not None and bool(record.node_uid)
    if record is None or not known:
        return Api.TRUSTED if world.node_found else Api.ANSWERING
    same_anchor = world.anchor == record.anchor and bool(record.anchor_uid)
    if same_anchor and world.anchor_uid != record.anchor_uid:
        return Api.FOREIGN
    if not world.node_found:
        return Api.NODE_DELETED if same_anchor else Api.FOREIGN
    if not same_anchor and world.node_uid != record.node_uid:
        return Api.FOREIGN
    return Api.TRUSTED


def is_frozen(observation: Observation) -> bool:
    """Tell whether the machine goes down (rule 11)."""
    match observation.manager_state:
        case Seen(state):
            return state == GOING_DOWN or (observation.frozen_file and state not in COMING_UP)
        case Unknown():
            return observation.frozen_file


def find_order(observation: Observation, key: str, wall: str) -> Order:
    """Return the operator's order for ``<namespace>.<slot>``; the node's hold comes first."""
    order = Order.NONE
    for name in (key, "node"):
        override = observation.overrides.get(name)
        if override is None or _has_expired(override.until, wall):
            continue
        if name == key or override.verb is Verb.HOLD:
            order = Order(override.verb.value)
    return order


def _has_expired(until: str, wall: str) -> bool:
    if not until:
        return False
    try:
        return parse_wall(until) <= parse_wall(wall)
    except ValueError:
        return False  # an unreadable end is no end: the operator's word stands


def parse_wall(text: str) -> datetime:
    """Parse RFC 3339. Raises ValueError."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
