"""Place a stored rendering as one copy: give it a name, a UID and the paths of its files.

It ends at the gate: what does not pass is refused and never written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from checkpointd import json_fields
from checkpointd.errors import FieldError
from checkpointd.json_fields import Json
from checkpointd.model import pods
from checkpointd.model.files import Refusal
from checkpointd.model.pods import Slot
from checkpointd.render import gate, rules, volumes, wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Hold what makes a stored rendering one copy.

    ``paths`` maps each stored volume to the absolute directory of its files. ``hostname`` is ""
    where the parent's cannot be had. ``version`` is the program's.
    """

    name: str
    uid: str
    hostname: str
    node_name: str
    slot: Slot
    generation: str
    activation: int
    parent_name: str
    parent_uid: str
    version: str
    paths: Mapping[str, str]


def place(manifest: Json, placement: Placement) -> bytes | tuple[Refusal, ...]:
    """Return the final bytes of a copy's manifest, or why the gate lets it not pass.

    A volume of ours without a path in ``placement`` keeps its place-holder, which the gate refuses.
    """
    try:
        placed = _placed(wire.plain(manifest), placement)
    except FieldError as error:
        return (rules.malformed(error, "spec"),)
    return gate.check_manifest(placed, placement.node_name) or json_fields.write_canonical(placed)


def _placed(manifest: Json, placement: Placement) -> wire.Object:
    metadata = json_fields.mapping(manifest, "metadata")
    annotations = dict(json_fields.texts(metadata, "annotations")) | _annotations(placement)
    spec = dict(json_fields.mapping(manifest, "spec"))
    if placement.hostname:
        spec["hostname"] = placement.hostname
    if "volumes" in spec:
        spec["volumes"] = [
            _filled(volume, placement.paths) for _path, volume in wire.volumes(manifest)
        ]
    named = {"name": placement.name, "uid": placement.uid, "annotations": annotations}
    return {**manifest, "metadata": {**metadata, **named}, "spec": spec}


def _filled(volume: Json, paths: Mapping[str, str]) -> Json:
    path = paths.get(json_fields.optional_text(volume, "name"))
    return volumes.fill(volume, path) if path and volumes.is_place_holder(volume) else volume


def _annotations(placement: Placement) -> dict[str, str]:
    return {
        pods.LEGACY_CHECKPOINT_OF: placement.parent_name,
        pods.COPY_SLOT: placement.slot.name,
        pods.COPY_GENERATION: placement.generation,
        pods.COPY_ACTIVATION: str(placement.activation),
        pods.COPY_PARENT_UID: placement.parent_uid,
        pods.COPY_VERSION: placement.version,
    }
