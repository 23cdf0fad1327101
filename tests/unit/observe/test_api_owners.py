"""Does a DaemonSet want this node: the scheduler's rules, and what is in doubt."""

from __future__ import annotations

import pytest

from checkpointd.errors import FieldError
from checkpointd.model.observation import OwnerWord
from checkpointd.observe.api import owners

Object = dict[str, object]
WANTS, NOT_HERE = OwnerWord.WANTS, OwnerWord.NOT_HERE


def node(*taints: Object, **labels: str) -> Object:
    return {"metadata": {"name": "node-1", "labels": labels}, "spec": {"taints": list(taints)}}


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> Object:
    return {"key": key, "effect": effect, "value": value}


def daemon_set(**spec: object) -> Object:
    return {"metadata": {"name": "web"}, "spec": {"template": {"spec": spec}}}


def affinity(*terms: Object) -> Object:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


def expression(key: str, operator: str, *values: str) -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def by_name(name: str) -> Object:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}


def test_a_daemon_set_without_conditions_wants_every_node() -> None:
    assert owners.judge_daemon_set(daemon_set(), node()) is WANTS


def test_a_daemon_set_that_is_being_deleted_is_gone() -> None:
    gone = {**daemon_set(), "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert owners.judge_daemon_set(gone, node()) is OwnerWord.GONE


@pytest.mark.parametrize(
    ("labels", "word"), [({"role": "master"}, WANTS), ({"role": "a"}, NOT_HERE), ({}, NOT_HERE)]
)
def test_a_node_selector_must_match(labels: dict[str, str], word: OwnerWord) -> None:
    wanted = daemon_set(nodeSelector={"role": "master"})
    assert owners.judge_daemon_set(wanted, node(**labels)) is word


@pytest.mark.parametrize(
    ("term", "word"),
    [
        (expression("a", "In", "1", "2"), WANTS),
        (expression("a", "In", "2"), NOT_HERE),
        (expression("a", "NotIn", "1"), NOT_HERE),
        (expression("b", "NotIn", "1"), WANTS),
        (expression("a", "Exists"), WANTS),
        (expression("b", "Exists"), NOT_HERE),
        (expression("b", "DoesNotExist"), WANTS),
        (expression("a", "Gt", "0"), WANTS),
        (expression("a", "Gt", "1"), NOT_HERE),
        (expression("a", "Lt", "2"), WANTS),
        (expression("b", "Lt", "2"), NOT_HERE),
        (expression("a", "Resembles", "9"), WANTS),
        ({}, NOT_HERE),
        (
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]},
            WANTS,
        ),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}, NOT_HERE),
    ],
)
def test_one_required_term_must_hold(term: Object, word: OwnerWord) -> None:
    wanted = daemon_set(affinity=affinity(term))
    assert owners.judge_daemon_set(wanted, node(a="1")) is word


def test_terms_are_alternatives_and_none_at_all_hold_nowhere() -> None:
    either = daemon_set(affinity=affinity(expression("b", "Exists"), expression("a", "Exists")))
    assert owners.judge_daemon_set(either, node(a="1")) is WANTS
    assert owners.judge_daemon_set(daemon_set(affinity=affinity()), node(a="1")) is NOT_HERE


@pytest.mark.parametrize(
    ("keeps_away", "tolerations", "word"),
    [
        (taint("a"), [], NOT_HERE),
        (taint("a", "NoExecute"), [], NOT_HERE),
        (taint("a", "PreferNoSchedule"), [], WANTS),
        (taint("a"), [{"operator": "Exists"}], WANTS),
        (taint("a"), [{"key": "a", "operator": "Exists"}], WANTS),
        (taint("a"), [{"key": "b", "operator": "Exists"}], NOT_HERE),
        (taint("a", value="1"), [{"key": "a", "value": "1"}], WANTS),
        (taint("a", value="1"), [{"key": "a", "value": "2"}], NOT_HERE),
        (taint("a"), [{"operator": "Exists", "effect": "NoExecute"}], NOT_HERE),
        (taint("a", value="5"), [{"key": "a", "operator": "Gt", "value": "3"}], WANTS),
        (taint("node.kubernetes.io/unschedulable"), [], WANTS),
        (taint("node.kubernetes.io/not-ready", "NoExecute"), [], WANTS),
        (taint("node.kubernetes.io/not-ready"), [], NOT_HERE),
    ],
)
def test_taints_must_be_tolerated_but_those_that_every_daemon_tolerates(
    keeps_away: Object, tolerations: list[Object], word: OwnerWord
) -> None:
    wanted = daemon_set(tolerations=tolerations)
    assert owners.judge_daemon_set(wanted, node(keeps_away)) is word


def test_a_daemon_set_for_one_node_by_name() -> None:
    assert owners.judge_daemon_set(daemon_set(nodeName="node-2"), node()) is NOT_HERE
    assert owners.judge_daemon_set(daemon_set(nodeName="node-1"), node()) is WANTS


def test_what_cannot_be_read_is_an_error_and_not_a_word() -> None:
    with pytest.raises(FieldError):
        owners.judge_daemon_set(daemon_set(nodeSelector=["a"]), node())
