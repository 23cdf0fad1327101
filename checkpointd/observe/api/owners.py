"""Say what a DaemonSet says of this node: does it want a pod here. Pure.

What cannot be told for sure counts as wanted: a copy then stays. The rules are those of
kubernetes/pkg/controller/daemon/daemon_controller.go, NodeShouldRunDaemonPod.
"""

from __future__ import annotations

from checkpointd import json_fields
from checkpointd.errors import FieldError
from checkpointd.json_fields import Json
from checkpointd.model.observation import OwnerWord

_DAEMON_TOLERATED = frozenset(
    {
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
        ("node.kubernetes.io/network-unavailable", "NoSchedule"),
    }
)
"""pkg/controller/daemon/util/daemonset_util.go, AddOrUpdateDaemonPodTolerations.

network-unavailable is tolerated by pods of the host's network only; for others it passes by itself.
"""


def judge_daemon_set(daemon_set: Json, node: Json) -> OwnerWord:
    """Say whether a DaemonSet that was read wants the Node that was read. Raises FieldError."""
    if json_fields.has_field(daemon_set, "metadata", "deletionTimestamp"):
        return OwnerWord.GONE
    spec = json_fields.mapping(daemon_set, "spec", "template", "spec")
    node_name = json_fields.text(node, "metadata", "name")
    wanted_name = json_fields.optional_text(spec, "nodeName")
    wants = (
        wanted_name in ("", node_name)
        and _selector_matches(spec, node)
        and _affinity_matches(spec, node)
        and _taints_are_tolerated(spec, node)
    )
    return OwnerWord.WANTS if wants else OwnerWord.NOT_HERE


def _selector_matches(spec: Json, node: Json) -> bool:
    labels = json_fields.texts(node, "metadata", "labels")
    return json_fields.texts(spec, "nodeSelector").items() <= labels.items()


def _affinity_matches(spec: Json, node: Json) -> bool:
    """Tell whether one of the required terms holds; no terms at all hold everywhere."""
    required = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    if not json_fields.has_field(spec, *required):
        return True
    terms = json_fields.objects(spec, *required, "nodeSelectorTerms")
    return any(_term_matches(term, node) for term in terms)


def _term_matches(term: Json, node: Json) -> bool:
    labels = json_fields.texts(node, "metadata", "labels")
    name = json_fields.text(node, "metadata", "name")
    expressions = json_fields.objects(term, "matchExpressions")
    by_field = json_fields.objects(term, "matchFields")
    if not expressions and not by_field:
        # An empty term matches nothing (core/v1 NodeSelectorTerm).
        return False
    return all(
        _requirement_holds(one, labels.get(json_fields.text(one, "key"))) for one in expressions
    ) and all(
        json_fields.text(one, "key") != "metadata.name" or _requirement_holds(one, name)
        for one in by_field
    )


def _requirement_holds(requirement: Json, value: str | None) -> bool:
    """Apply one NodeSelectorRequirement; an operator that is not known holds."""
    operator = json_fields.text(requirement, "operator")
    values = tuple(
        json_fields.as_text(one, "values") for one in json_fields.sequence(requirement, "values")
    )
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(operator, value, values)
        case _:
            return True


def _compares(operator: str, value: str | None, values: tuple[str, ...]) -> bool:
    try:
        label, bound = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return label > bound if operator == "Gt" else label < bound


def _taints_are_tolerated(spec: Json, node: Json) -> bool:
    tolerations = json_fields.objects(spec, "tolerations")
    return all(
        any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in json_fields.objects(node, "spec", "taints")
        if _keeps_daemons_away(taint)
    )


def _keeps_daemons_away(taint: Json) -> bool:
    effect = json_fields.text(taint, "effect")
    key = json_fields.text(taint, "key")
    return effect in ("NoSchedule", "NoExecute") and (key, effect) not in _DAEMON_TOLERATED


def _tolerates(toleration: Json, taint: Json) -> bool:
    """Apply core/v1 Toleration.ToleratesTaint; an operator that is not known tolerates."""
    effect = json_fields.optional_text(toleration, "effect")
    key = json_fields.optional_text(toleration, "key")
    if effect not in ("", json_fields.text(taint, "effect")):
        return False
    if key not in ("", json_fields.text(taint, "key")):
        return False
    operator = json_fields.optional_text(toleration, "operator") or "Equal"
    if operator != "Equal":
        return True
    if not key:
        raise FieldError("tolerations: no key and no operator Exists")
    given = json_fields.optional_text(toleration, "value")
    return given == json_fields.optional_text(taint, "value")
