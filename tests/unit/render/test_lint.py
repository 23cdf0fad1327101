"""Warnings: what depends on the kubelet's version, and fields that no kubelet knows."""

from __future__ import annotations

import pytest

from checkpointd.render.lint import lint, parse_version
from tests.builders.pods import copy_container, copy_pod, mount


@pytest.mark.parametrize(
    ("text", "version"),
    [("v1.30.2+k3s1", (1, 30)), ("1.20.2", (1, 20)), ("", None), ("unknown", None)],
)
def test_versions_are_read(text: str, version: tuple[int, int] | None) -> None:
    assert parse_version(text) == version


def test_what_an_old_kubelet_would_ignore_is_warned_of() -> None:
    pod = copy_pod(
        containers=[copy_container(livenessProbe={"grpc": {"port": 80}})],
        initContainers=[copy_container("proxy", restartPolicy="Always")],
        hostUsers=False,
    )
    assert lint(pod, "v1.36.2") == ()
    assert lint(pod, "") == ()
    fields = [warning.partition(":")[0] for warning in lint(pod, "v1.20.2")]
    assert fields == [
        "spec.containers[0].livenessProbe.grpc",
        "spec.initContainers[0].restartPolicy",
        "spec.hostUsers",
    ]


def test_a_misspelt_field_is_warned_of_with_its_nearest_neighbour() -> None:
    pod = copy_pod(
        restartPolcy="Always",
        containers=[copy_container(volumeMounts=[mount("v", readonly=True)])],
    )
    warnings = lint(pod, "v1.36.2")
    assert "spec.restartPolcy" in warnings[0]
    assert "did you mean restartPolicy?" in warnings[0]
    assert "did you mean readOnly?" in warnings[1]
