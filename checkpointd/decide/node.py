"""Follow what node.json keeps: the world, contact with it, the boot, what was discovered."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from checkpointd.decide import words
from checkpointd.decide.scene import Scene
from checkpointd.model.checkpoint import Checkpoint, NodeRecord
from checkpointd.model.evidence import Api, Want
from checkpointd.model.moments import Instant, Seen
from checkpointd.model.observation import Observation
from checkpointd.model.policy import Policy


def find_name(policy: Policy, observation: Observation, record: NodeRecord | None) -> str:
    """Return the node's name: set, else the kubelet's, else as recorded, else ""."""
    if policy.node_name:
        return policy.node_name
    machine = observation.machine
    if isinstance(machine, Seen) and machine.value.kubelet is not None:
        return machine.value.kubelet.node_name
    return record.node_name if record is not None else ""


def follow(known: NodeRecord | None, scene: Scene) -> NodeRecord:
    """Return node.json as it should be."""
    record = known or NodeRecord(
        node_name=scene.policy.node_name,
        boot_id=scene.now.boot_id,
        anchor="",
        anchor_uid="",
        node_uid="",
        in_contact=False,
        contact_changed=None,
        node_deleted_since=None,
        all_gone_since=None,
        discovered={},
    )
    record = replace(
        record,
        boot_id=scene.now.boot_id,
        node_name=_follow_name(record, scene),
        discovered={**record.discovered, **_discover(scene.observation)},
        all_gone_since=scene.all_gone_since,
    )
    return _follow_world(_follow_contact(record, scene), scene)


def _follow_name(record: NodeRecord, scene: Scene) -> str:
    """Keep the name that the API server knew until it knows the new one."""
    if record.node_name and scene.api is not Api.TRUSTED:
        return record.node_name
    return scene.policy.node_name or record.node_name


def _follow_contact(record: NodeRecord, scene: Scene) -> NodeRecord:
    reached = scene.observation.api_contact.reached
    if reached == record.in_contact and record.contact_changed is not None:
        return record
    return replace(record, in_contact=reached, contact_changed=scene.now)


def _follow_world(record: NodeRecord, scene: Scene) -> NodeRecord:
    if scene.api is Api.NODE_DELETED:
        since = record.node_deleted_since
        same_boot = since is not None and since.boot_id == scene.now.boot_id
        return replace(record, node_deleted_since=since if same_boot else scene.now)
    world = scene.observation.world
    if scene.api is not Api.TRUSTED or not isinstance(world, Seen):
        return record
    anchor, anchor_uid = record.anchor, record.anchor_uid
    if world.value.anchor_uid and not anchor_uid:
        anchor, anchor_uid = world.value.anchor, world.value.anchor_uid
    is_new = bool(record.node_uid) and world.value.node_uid != record.node_uid
    return replace(
        record,
        anchor=anchor,
        anchor_uid=anchor_uid,
        node_uid=world.value.node_uid,
        node_deleted_since=None,
        node_renewed=scene.now if is_new else record.node_renewed,
    )


def _discover(observation: Observation) -> dict[str, str]:
    found: dict[str, str] = {}
    machine = observation.machine
    if isinstance(machine, Seen) and machine.value.kubelet is not None:
        kubelet = machine.value.kubelet
        found = {
            "manifest_dir": kubelet.manifest_dir,
            "root_dir": kubelet.root_dir,
            "cri_socket": kubelet.cri_socket,
            "kubeconfig": kubelet.kubeconfig,
            "cgroup_root": kubelet.cgroup_root,
        }
    if isinstance(observation.world, Seen):
        found["service_host"] = observation.world.value.service_host
        found["service_port"] = observation.world.value.service_port
        found["kubelet_version"] = observation.world.value.kubelet_version
    if isinstance(observation.runtime, Seen):
        found["runtime_version"] = observation.runtime.value.version
    return {key: value for key, value in found.items() if value}


def all_gone_since(checkpoints: Collection[Checkpoint], count: int, scene: Scene) -> Instant | None:
    """Return since when all of two or more checkpoints have been gone at once (rule 5).

    Of some of ``count`` nothing may be known now: they speak neither for it nor against it.
    """
    known = scene.record.all_gone_since if scene.record is not None else None
    if scene.api is not Api.TRUSTED or (count and not checkpoints):
        return known
    if count < 2 or any(words.find_want(each) is Want.HERE for each in checkpoints):
        return None
    if known is not None and known.boot_id == scene.now.boot_id:
        return known
    return scene.now
