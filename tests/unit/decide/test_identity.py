"""Who this node is: by its own name, by its credentials, by what was recorded."""

from __future__ import annotations

from dataclasses import replace

from checkpointd.decide import decide
from checkpointd.model.decision import Decision, SaveNode, Severity
from checkpointd.model.observation import Observation
from tests.builders.observations import (
    NODE,
    NOW,
    POLICY,
    kubelet,
    machine,
    node_record,
    observation,
    silent,
    stored,
)

UNNAMED = replace(POLICY, node_name="")
OTHER = machine(kubelet(started=920, node_name="other"))


def decided(seen: Observation, recorded: str = NODE) -> Decision:
    return decide(seen, stored(node=node_record(node_name=recorded)), UNNAMED, NOW)


def alarms(decision: Decision) -> list[str]:
    return [r.sentence for r in decision.reasons if r.severity is Severity.ALARM]


def recorded_name(decision: Decision) -> str:
    (name,) = (a.record.node_name for a in decision.actions if isinstance(a, SaveNode))
    return name


def test_credentials_of_this_node_or_of_nobody_in_particular_are_well() -> None:
    for user in (f"system:node:{NODE}", "system:serviceaccount:a:b", ""):
        assert alarms(decided(observation(api_user=user))) == []


def test_a_kubeconfig_of_another_node_is_an_alarm_whether_the_api_answers_or_not() -> None:
    for seen in (observation(api_user="system:node:b"), silent(api_user="system:node:b")):
        (alarm,) = alarms(decided(seen))
        assert f"the kubeconfig speaks for b, but this node is {NODE}" in alarm
        assert "[node] name" in alarm


def test_another_name_is_an_alarm_until_the_api_server_answers_for_it() -> None:
    lost = decided(silent(machine=OTHER))
    assert any(f"this node was {NODE} and is now other" in alarm for alarm in alarms(lost))
    assert recorded_name(lost) == NODE
    found = decided(observation(machine=OTHER))
    assert recorded_name(found) == "other"
    assert not any(
        "is now" in alarm for alarm in alarms(decided(observation(machine=OTHER), "other"))
    )
