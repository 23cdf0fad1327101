"""From a stored rendering to the bytes of one copy."""

from __future__ import annotations

from dataclasses import replace

from checkpointd import json_fields
from checkpointd.model import naming
from checkpointd.model.files import Candidate
from checkpointd.model.pods import Slot
from checkpointd.render.copy import NodeFacts, render
from checkpointd.render.placing import Placement, place
from tests.builders.pods import container, files_of, host_path_volume, mount, raw_pod, secret_volume

PLACEMENT = Placement(
    name="web-1a2b3c",
    uid=naming.copy_uid(naming.activation_digest("hash", "boot", 3)),
    hostname="web",
    node_name="node-1",
    slot=Slot("kube-system", "pod.web"),
    generation="hash",
    activation=3,
    parent_name="web",
    parent_uid="0b7e2f0c",
    version="0.1",
    paths={"s": "/var/lib/checkpointd/active/s"},
)


def candidate() -> Candidate:
    pod = raw_pod(
        volumes=[secret_volume("s"), host_path_volume("h", "/run/h")],
        containers=[container(volumeMounts=[mount("s"), mount("h")])],
        annotations={"x.example/kept": "yes"},
    )
    result = render(pod, {"s": files_of("s")}, NodeFacts(node_name="node-1"))
    assert isinstance(result, Candidate)
    return result


def test_a_placed_copy_has_its_name_its_files_and_our_annotations() -> None:
    placed = place(candidate().manifest, PLACEMENT)
    assert isinstance(placed, bytes)
    manifest = json_fields.parse_object(placed, "copy")
    assert manifest["metadata"] == {
        "name": "web-1a2b3c",
        "namespace": "kube-system",
        "uid": PLACEMENT.uid,
        "labels": {"app": "web"},
        "annotations": {
            "x.example/kept": "yes",
            "checkpointer.alpha.coreos.com/checkpoint-of": "web",
            "checkpointd.io/slot": "pod.web",
            "checkpointd.io/generation": "hash",
            "checkpointd.io/activation": "3",
            "checkpointd.io/parent-uid": "0b7e2f0c",
            "checkpointd.io/written-by": "0.1",
        },
    }
    assert json_fields.objects(manifest, "spec", "volumes") == (
        {
            "name": "s",
            "hostPath": {"path": "/var/lib/checkpointd/active/s", "type": "Directory"},
        },
        {"name": "h", "hostPath": {"path": "/run/h", "type": ""}},
    )
    assert json_fields.text(manifest, "spec", "hostname") == "web"


def test_the_same_placement_gives_the_same_bytes() -> None:
    assert place(candidate().manifest, PLACEMENT) == place(candidate().manifest, PLACEMENT)


def test_placing_changes_nothing_in_the_rendering() -> None:
    rendering = candidate()
    before = json_fields.write_canonical(rendering.manifest)
    place(rendering.manifest, PLACEMENT)
    assert json_fields.write_canonical(rendering.manifest) == before


def test_a_volume_without_a_path_is_refused_and_not_written() -> None:
    refusals = place(candidate().manifest, replace(PLACEMENT, paths={}))
    assert not isinstance(refusals, bytes)
    assert [refusal.field for refusal in refusals] == ["spec.volumes[0].hostPath.path"]


def test_a_path_is_never_given_to_a_volume_of_the_pods_own() -> None:
    placement = replace(PLACEMENT, paths={**PLACEMENT.paths, "h": "/elsewhere"})
    placed = place(candidate().manifest, placement)
    assert isinstance(placed, bytes)
    assert b"/elsewhere" not in placed


def test_a_name_or_uid_that_a_kubelet_would_not_take_is_refused() -> None:
    for changed in (
        replace(PLACEMENT, uid="A_B"),
        replace(PLACEMENT, name="x" * 250),
        replace(PLACEMENT, hostname="a.b"),
    ):
        assert not isinstance(place(candidate().manifest, changed), bytes)


def test_a_damaged_rendering_is_refused() -> None:
    assert not isinstance(place({"metadata": 1}, PLACEMENT), bytes)
    assert not isinstance(place({}, PLACEMENT), bytes)


def test_without_a_hostname_the_copy_has_none() -> None:
    placed = place(candidate().manifest, replace(PLACEMENT, hostname=""))
    assert isinstance(placed, bytes)
    assert b'"hostname"' not in placed
