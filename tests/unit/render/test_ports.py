"""What becomes of ports: those of the host's network go, once nothing names them any more."""

from __future__ import annotations

from checkpointd import json_fields
from checkpointd.json_fields import Json
from checkpointd.model.files import Candidate, Refused
from checkpointd.render.copy import NodeFacts, render
from tests.builders.pods import Object, container, raw_pod

NODE = NodeFacts(node_name="node-1")


def rendered(pod: Json) -> Candidate:
    result = render(pod, {}, NODE)
    assert isinstance(result, Candidate), result
    return result


def refused(pod: Json) -> list[str]:
    result = render(pod, {}, NODE)
    assert isinstance(result, Refused), "not refused"
    return [refusal.field for refusal in result.refusals]


def served(**fields: object) -> Object:
    return container(ports=[{"name": "web", "containerPort": 8443, "hostPort": 8443}], **fields)


def test_e5_host_network_ports_are_dropped_once_their_names_are_numbers() -> None:
    get = {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 5}
    pod = raw_pod(
        hostNetwork=True,
        containers=[
            served(
                livenessProbe=get,
                readinessProbe={"tcpSocket": {"port": "web"}},
                startupProbe={"grpc": {"port": 8443}},
                lifecycle={"preStop": {"httpGet": {"port": "web"}}, "postStart": {"exec": {}}},
            )
        ],
        initContainers=[served(name="proxy", restartPolicy="Always", livenessProbe=get)],
    )
    candidate = rendered(pod)
    (main,) = json_fields.objects(candidate.manifest, "spec", "containers")
    (proxy,) = json_fields.objects(candidate.manifest, "spec", "initContainers")
    number = {"httpGet": {"path": "/", "port": 8443}, "periodSeconds": 5}
    assert "ports" not in main
    assert "ports" not in proxy
    assert main["livenessProbe"] == number
    assert proxy["livenessProbe"] == number
    assert main["readinessProbe"] == {"tcpSocket": {"port": 8443}}
    assert main["startupProbe"] == {"grpc": {"port": 8443}}
    assert main["lifecycle"] == {"preStop": {"httpGet": {"port": 8443}}, "postStart": {"exec": {}}}


def test_a_name_that_no_port_has_is_refused() -> None:
    get = {"httpGet": {"path": "/", "port": "other"}}
    pod = raw_pod(hostNetwork=True, containers=[served(livenessProbe=get)])
    assert refused(pod) == ["spec.containers[0].livenessProbe.httpGet.port"]


def test_a_pod_with_a_network_of_its_own_keeps_its_ports() -> None:
    ports = [{"name": "web", "containerPort": 80, "protocol": "TCP"}]
    probe = {"httpGet": {"path": "/", "port": "web"}}
    pod = raw_pod(containers=[container(ports=ports, livenessProbe=probe)])
    (kept,) = json_fields.objects(rendered(pod).manifest, "spec", "containers")
    assert (kept["ports"], kept["livenessProbe"]) == (ports, probe)
