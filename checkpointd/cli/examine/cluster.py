"""Ask the API server: is it trusted, is it ours, what time has it, and what does it let us do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

from checkpointd.cli.examine.finding import Finding, Level, fault, good, note, unknown, warning
from checkpointd.cli.examine.scene import Scene
from checkpointd.clients import access_review
from checkpointd.clients.kube import KubeClient, Timeouts
from checkpointd.clients.kube_answers import Missing
from checkpointd.clock import Clock
from checkpointd.errors import RejectedError, SourceError
from checkpointd.model import permissions
from checkpointd.model.checkpoint import NodeRecord
from checkpointd.model.observation import World
from checkpointd.observe.api import world
from checkpointd.render import lint

TIMEOUTS = Timeouts(connect=3.0, read=5.0)
FINE_GRAINED = (1, 33)
"""KubeletFineGrainedAuthz is on by default since then."""
_PROXY = note(
    str(permissions.GET_KUBELET_PODS),
    "of no use: this kubelet is older than 1.33 and asks for nodes/proxy, which must not be granted"
    " for this; its pod-resources socket serves",
)
MOST_SKEW = 30.0
"""Seconds: beyond this, tokens and certificates are judged wrongly at their ends."""


def examine_api(scene: Scene) -> Iterator[Finding]:
    """Say whether the API server answers, whether it is ours, and what time it has."""
    name = scene.node_name.value
    if not name:
        yield unknown("API server", "the node's name is not known", "see node name")
        return
    client = KubeClient(scene.credentials, TIMEOUTS)
    try:
        node = client.get_node(name)
        found = world.read_world(client, node, name)
        yield good("API server", f"{client.peer} answers and its certificate is trusted")
        yield clock(client.server_date, Clock.wall())
        user = access_review.read_user(client)
        if user:
            yield good("API server", f"takes us for {user}")
        yield from _cluster(scene.record, found, node)
    except SourceError as error:
        yield _failure(error)
    finally:
        client.drop_connections()


def examine_permissions(scene: Scene) -> Iterator[Finding]:
    """Ask for each permission that the daemon uses; one that is missing is told with its cost."""
    name = scene.node_name.value
    if not name:
        yield unknown("permissions", "the node's name is not known", "see node name")
        return
    client = KubeClient(scene.credentials, TIMEOUTS)
    try:
        for permission in permissions.ALL:
            if permission is permissions.GET_KUBELET_PODS and asks_for_proxy(scene):
                yield _PROXY
            else:
                yield _permission(client, permission, name)
    except SourceError as error:
        yield unknown("permissions", f"{error}: what is granted cannot be asked")
    finally:
        client.drop_connections()


def asks_for_proxy(scene: Scene) -> bool:
    """Tell whether the kubelet is so old that it asks for nodes/proxy (kubelet facts K-16)."""
    known = scene.record.discovered if scene.record is not None else None
    version = lint.parse_version(known.get("kubelet_version", "")) if known is not None else None
    return version is not None and version < FINE_GRAINED


def _permission(client: KubeClient, permission: permissions.Permission, node: str) -> Finding:
    """Return what the API server says of one permission. Raises SourceError if nobody answers."""
    try:
        allowed = access_review.is_allowed(client, permission, node)
    except RejectedError as error:
        return unknown(str(permission), str(error))
    if allowed:
        return good(str(permission), "granted")
    return Finding(
        level=Level.FAULT if permission.needed else Level.WARNING,
        subject=str(permission),
        says="not granted",
        costs=permission.costs,
        remedy=permission.remedy,
    )


def _failure(error: SourceError) -> Finding:
    """Return what a failure means: no answer is unknown, a refusal of our identity is a fault."""
    if isinstance(error, RejectedError) and error.status in (401, 403):
        remedy = "renew the node's credentials; see credentials"
        costs = "the API server is unknown: copies start as if none answered"
        return fault("API server", str(error), costs, remedy)
    return unknown("API server", str(error))


def clock(date: str, now: datetime) -> Finding:
    """Compare the clocks; ``date`` is an HTTP header (RFC 9110, whole seconds)."""
    try:
        theirs = parsedate_to_datetime(date)
    except (ValueError, TypeError, IndexError):
        return note("clock", "the API server does not tell its time")
    if theirs.tzinfo is None:
        theirs = theirs.replace(tzinfo=timezone.utc)
    apart = (now - theirs).total_seconds()
    words = f"{abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} the API server's"
    if abs(apart) <= MOST_SKEW:
        return good("clock", f"at most {MOST_SKEW:.0f} s from the API server's")
    costs = "certificates and tokens are judged by another time"
    return warning("clock", f"this node's is {words}", costs, "synchronise both (NTP)")


def _is_foreign(record: NodeRecord, found: World) -> bool:
    same = record.anchor_uid != "" and found.anchor == record.anchor
    return same and found.anchor_uid != record.anchor_uid


def _cluster(record: NodeRecord | None, found: World, node: object) -> Iterator[Finding]:
    if isinstance(node, Missing):
        yield warning(
            "cluster",
            f"it has no Node {node.name}",
            "nothing is started; after 1 h copies stop, but for one that serves the API",
            "let the kubelet register again, or decommission this node",
        )
        return
    if record is None or not record.node_uid:
        yield note("cluster", "not known yet: the daemon records it at its first contact")
    elif _is_foreign(record, found):
        yield fault(
            "cluster",
            f"not the one that we know: {found.anchor} has UID {found.anchor_uid}, "
            f"not {record.anchor_uid}",
            "nothing is started, stopped or removed",
            'bring the right API server back; or see the README, "foreign world"',
        )
    else:
        yield good("cluster", "the one that we know")
