"""Whatever a pod looks like: rendering answers, and nothing passes that the gate would not."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from checkpointd import json_fields
from checkpointd.errors import FieldError
from checkpointd.json_fields import Json
from checkpointd.model import naming
from checkpointd.model.files import Candidate, Refused
from checkpointd.render import volumes, wire
from checkpointd.render.copy import NodeFacts, manifest_of, refusals, render
from checkpointd.render.gate import check_manifest
from checkpointd.render.placing import Placement, place
from tests.builders.pods import (
    Object,
    container,
    files_of,
    host_path_volume,
    mount,
    owner,
    raw_pod,
    secret_volume,
)

NODE = NodeFacts(node_name="node-1", kubelet_version="v1.33.1")

NAMES = st.sampled_from(["a", "b", "web", "main", "kube-api-access-x"])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), NAMES
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)

JUNK_OBJECTS = st.dictionaries(st.text(max_size=8), JUNK, max_size=3)


def some(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[Object]:
    """Return objects with any of ``fields``."""
    return st.fixed_dictionaries({}, optional=fields)


def or_junk(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Return mostly ``strategy``, at times something of another type."""
    return st.integers(0, 19).flatmap(lambda n: JUNK if n == 0 else strategy)


def with_spec(spec: Object) -> Object:
    """Return a pod of sound metadata with this spec."""
    return {**raw_pod(), "spec": spec}


def turned_around(pairs: list[tuple[str, object]]) -> Object:
    """Return an object whose fields are in the opposite order."""
    return dict(reversed(pairs))


REFERENCE = some(name=NAMES, key=NAMES, optional=st.booleans(), secretName=NAMES)
HANDLER = some(
    httpGet=some(port=st.sampled_from(["web", 80, "81"]), path=st.just("/")),
    tcpSocket=some(port=st.sampled_from(["web", 80])),
    grpc=some(port=st.just(80)),
)
ENV = some(
    name=st.sampled_from(["A", "B", "a=b"]),
    value=st.text(max_size=5),
    valueFrom=some(
        secretKeyRef=REFERENCE,
        configMapKeyRef=REFERENCE,
        fieldRef=some(
            fieldPath=st.sampled_from(["metadata.name", "status.podIP", "metadata.labels['app']"])
        ),
    ),
)
CONTAINER = some(
    name=NAMES,
    image=st.just("image:1"),
    imagePullPolicy=st.just("Always"),
    env=or_junk(st.lists(ENV, max_size=2)),
    envFrom=st.lists(some(secretRef=REFERENCE, configMapRef=REFERENCE), max_size=1),
    volumeMounts=or_junk(
        st.lists(some(name=NAMES, mountPath=NAMES, readOnly=st.booleans()), max_size=2)
    ),
    ports=or_junk(
        st.lists(
            some(name=st.just("web"), containerPort=st.just(80), hostPort=st.just(80)), max_size=2
        )
    ),
    livenessProbe=or_junk(HANDLER),
    lifecycle=some(preStop=HANDLER),
    resources=some(limits=st.just({"cpu": "1"})),
)
VOLUME = some(
    name=NAMES,
    secret=REFERENCE,
    configMap=REFERENCE,
    hostPath=some(path=st.sampled_from(["/run/x", "/etc", "{a}", "../x"])),
    emptyDir=st.just({}),
    projected=some(sources=st.lists(some(secret=REFERENCE, downwardAPI=st.just({})), max_size=2)),
    persistentVolumeClaim=REFERENCE,
    rbd=some(secretRef=REFERENCE),
    unknown=REFERENCE,
)
SPEC = some(
    containers=or_junk(st.lists(CONTAINER, max_size=2)),
    initContainers=or_junk(st.lists(CONTAINER, max_size=1)),
    ephemeralContainers=st.lists(CONTAINER, max_size=1),
    volumes=or_junk(st.lists(VOLUME, max_size=3)),
    hostNetwork=or_junk(st.booleans()),
    serviceAccountName=or_junk(NAMES),
    serviceAccount=NAMES,
    imagePullSecrets=st.lists(REFERENCE, max_size=1),
    priority=or_junk(st.integers(-5, 5)),
    priorityClassName=st.sampled_from(["system-node-critical", "mine"]),
    nodeSelector=st.just({"a": "b"}),
    restartPolicy=st.sampled_from(["Always", "Never"]),
    resourceClaims=st.lists(REFERENCE, max_size=1),
)
PODS = st.one_of(
    JUNK_OBJECTS,
    some(
        metadata=or_junk(
            some(
                name=NAMES,
                namespace=NAMES,
                uid=st.just("0a-1b"),
                labels=or_junk(st.just({"app": "web"})),
                annotations=or_junk(st.just({"x.example/a": "b"})),
                ownerReferences=or_junk(st.just([owner()])),
            )
        ),
        spec=or_junk(SPEC),
        status=JUNK,
    ),
    SPEC.map(with_spec),
)

FIELD_PATHS = ("metadata.uid", "status.podIP", "metadata.labels['app']")


@st.composite
def sound_pods(draw: st.DrawFn) -> Object:
    """Return a pod that is refused by nothing."""
    variables: list[Object] = [
        {"name": "A", "value": value} for value in draw(st.lists(st.text(max_size=5), max_size=2))
    ]
    for path in draw(st.lists(st.sampled_from(FIELD_PATHS), max_size=2)):
        variables.append({"name": "B", "valueFrom": {"fieldRef": {"fieldPath": path}}})
    mounted = draw(st.lists(st.sampled_from(["s", "h"]), unique=True))
    fields: Object = {"env": variables, "volumeMounts": [mount(name) for name in mounted]}
    if draw(st.booleans()):
        fields["ports"] = [{"name": "web", "containerPort": 80}]
        fields["livenessProbe"] = {"httpGet": {"path": "/", "port": "web"}}
    return raw_pod(
        containers=[container(**fields)],
        volumes=[secret_volume("s"), host_path_volume("h", "/run/h")],
        owners=[owner()],
        hostNetwork=draw(st.booleans()),
        terminationGracePeriodSeconds=draw(st.integers(0, 600)),
        nodeSelector={"a": "b"},
        imagePullSecrets=[{"name": "s"}],
    )


SOUND = sound_pods()


def placement(candidate: Candidate) -> Placement:
    digest = naming.activation_digest(candidate.hash, "boot", 1)
    return Placement(
        name=naming.copy_name(candidate.parent_name, digest, NODE.node_name),
        uid=naming.copy_uid(digest),
        hostname=candidate.hostname,
        node_name=NODE.node_name,
        slot=candidate.slot,
        generation=candidate.hash,
        activation=1,
        parent_name=candidate.parent_name,
        parent_uid=candidate.parent_uid,
        version="0",
        paths={volume: f"/store/{volume}" for volume in candidate.contents},
    )


def render_all(pod: Json) -> Candidate | Refused:
    """Render with files for whatever volumes the pod asks for."""
    try:
        wanted = volumes.stored_volumes(pod)
    except FieldError:
        wanted = ()
    return render(pod, {volume.name: files_of(volume.name) for volume in wanted}, NODE)


@given(PODS)
def test_rendering_answers_whatever_the_pod_looks_like(pod: Object) -> None:
    result = render_all(pod)
    if isinstance(result, Refused):
        assert result.refusals
        assert all(r.field and r.reason and r.remedy for r in result.refusals)
    else:
        assert refusals(pod) == ()


@given(PODS)
def test_the_gate_answers_whatever_the_manifest_looks_like(pod: Object) -> None:
    assert check_manifest(pod, NODE.node_name) == check_manifest(pod, NODE.node_name)


@given(st.one_of(PODS, SOUND))
def test_c3_no_reference_to_the_api_server_survives(pod: Object) -> None:
    result = render_all(pod)
    if isinstance(result, Candidate):
        placed = place(result.manifest, placement(result))
        assert isinstance(placed, bytes)
        manifest = json_fields.parse_object(placed, "copy")
        assert check_manifest(manifest, NODE.node_name) == ()
        words = ("secretKeyRef", "configMapKeyRef", "secretRef", "configMapRef", "secretName")
        assert not any(f'"{word}"'.encode() in placed for word in words)


@given(SOUND)
def test_a_sound_pod_is_never_refused(pod: Object) -> None:
    assert isinstance(render_all(pod), Candidate)


@given(SOUND)
def test_b4_rendering_is_idempotent_byte_for_byte(pod: Object) -> None:
    once = manifest_of(pod, NODE)
    twice = manifest_of(once, NODE)
    assert json_fields.write_canonical(once) == json_fields.write_canonical(twice)


@given(SOUND)
def test_the_order_of_the_fields_does_not_matter(pod: Object) -> None:
    turned = json.loads(json.dumps(pod), object_pairs_hook=turned_around)
    first, second = render_all(pod), render_all(turned)
    assert isinstance(first, Candidate)
    assert isinstance(second, Candidate)
    assert (first.hash, first.spec_hash) == (second.hash, second.spec_hash)


@given(JUNK_OBJECTS)
def test_what_was_copied_can_be_written(value: Object) -> None:
    try:
        copied = wire.plain(value)
    except FieldError:
        return
    assert json.loads(json_fields.write_canonical(copied)) == copied
