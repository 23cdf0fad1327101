"""What a kubelet makes of its static-pod directory, and that we read it as it does."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clients.static_pods import ManifestReader
from checkpointd.model.pods import LEGACY_CHECKPOINT_OF
from tests.contract.subject import NAMESPACE, Subject
from tests.fakes.api_objects import Object
from tests.fakes.waiting import holds_for, wait_for


@pytest.fixture
def directory(subject: Subject) -> Iterator[Path]:
    """Give the directory, and take away what a test put there without ``place``."""
    path = Path(subject.kubelet.manifest_dir)
    before = set(path.iterdir())
    yield path
    for entry in set(path.iterdir()) - before:
        if entry.is_dir() and not entry.is_symlink():
            entry.rmdir()
        else:
            entry.unlink()


def static_pod(subject: Subject, **annotations: str) -> Object:
    """Return a static pod with a UID of its own."""
    pod = subject.pod()
    pod["metadata"]["uid"] = str(uuid.uuid4())
    pod["metadata"]["annotations"].update(annotations)
    return pod


def is_up(subject: Subject, uid: str) -> bool:
    """Tell whether a container of a pod runs."""
    return any(one.state.value == "running" for one in subject.containers(uid))


def names_of(subject: Subject) -> set[tuple[str, str]]:
    """Return the static pods that the kubelet has a sandbox for, by the names in their files."""
    suffix = f"-{subject.node_name}"
    return {
        (sandbox.namespace, sandbox.name.removesuffix(suffix))
        for sandbox in subject.sandboxes()
        if sandbox.config_source == "file" and sandbox.ready
    }


def test_k3_what_comes_by_rename_runs_with_its_uid_and_goes_when_it_is_removed(
    subject: Subject,
) -> None:
    pod = static_pod(subject, **{LEGACY_CHECKPOINT_OF: "parent"})
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    path = subject.place("contract-1.json", pod)
    wait_for("it runs", lambda: is_up(subject, uid))
    (sandbox,) = subject.sandboxes(uid)
    assert (sandbox.namespace, sandbox.name) == (NAMESPACE, f"{name}-{subject.node_name}")
    # Who looks at the runtime alone knows a copy by that.
    assert (sandbox.config_source, sandbox.checkpoint_of) == ("file", "parent")
    path.unlink()
    wait_for("it has ended", lambda: not subject.leaves(uid), 30)


def test_k9_the_mirror_is_the_nodes_and_carries_labels_and_annotations(subject: Subject) -> None:
    pod = static_pod(subject)
    uid = pod["metadata"]["uid"]
    path = subject.place("contract-2.json", pod)
    mirror = subject.wait_until_ready(f"{pod['metadata']['name']}-{subject.node_name}")
    metadata = mirror["metadata"]
    assert metadata["uid"] != uid
    assert metadata["labels"] == {"contract": "test"}
    notes = metadata["annotations"]
    assert notes["kubernetes.io/config.mirror"] == notes["kubernetes.io/config.hash"] == uid
    assert notes["kubernetes.io/config.source"] == "file"
    assert notes["example.org/note"] == "a note"
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Node", subject.node_name, True)
    assert mirror["spec"]["nodeName"] == subject.node_name
    path.unlink()
    wait_for("it has gone", lambda: subject.find_pod(metadata["name"]) is None, 60)


def test_k1_the_kubelet_runs_what_we_read_and_we_read_what_it_runs(
    subject: Subject, directory: Path
) -> None:
    before = names_of(subject)
    elsewhere = directory.parent / "contract-linked.json"
    elsewhere.write_text(json.dumps(static_pod(subject)))
    (directory / "contract-a").symlink_to(elsewhere)
    (directory / "contract-b.dir").mkdir()
    (directory / "contract-c").symlink_to("no-such-file")
    hidden, other = static_pod(subject), static_pod(subject)
    (directory / ".contract-d.json").write_text(json.dumps(hidden))
    subject.place("contract-e.json", "{ this is no manifest")
    subject.place("contract-f.bak", static_pod(subject))
    nameless = static_pod(subject)
    del nameless["metadata"]["name"]
    subject.place("contract-g.json", nameless)
    subject.place("contract-h.json", {**other, "kind": "ConfigMap"})
    subject.place("contract-i.yaml", _yaml(static_pod(subject)))
    subject.place("contract-j", static_pod(subject))
    files = ManifestReader().read(directory)
    named = {(one.namespace, one.pod_name) for one in files.values() if one.pod_name}
    try:
        wait_for("it runs them", lambda: named <= names_of(subject), 60)
        assert len(named - before) == 4
        for refused in (hidden, other):
            assert (NAMESPACE, refused["metadata"]["name"]) not in names_of(subject)
        assert {name for name, one in files.items() if one.problem} == {
            "contract-b.dir", "contract-c", "contract-e.json", "contract-g.json", "contract-h.json",
        }  # fmt: skip
    finally:
        elsewhere.unlink()


def test_a_name_that_begins_with_a_dot_is_none_until_it_is_renamed(
    subject: Subject, directory: Path
) -> None:
    pod = static_pod(subject)
    uid = pod["metadata"]["uid"]
    fresh = directory / ".checkpointd-contract"
    fresh.write_text(json.dumps(pod))
    holds_for("it does not run", lambda: not subject.sandboxes(uid), 0.5)
    fresh.rename(directory / "contract-20.json")
    wait_for("it runs", lambda: is_up(subject, uid))
    (directory / "contract-20.json").rename(fresh)
    wait_for("it has ended", lambda: not subject.leaves(uid), 30)


def _yaml(pod: Object) -> str:
    """Write a pod as YAML that is no JSON."""
    (container,) = pod["spec"]["containers"]
    return "\n".join(
        [
            "# a comment",
            "apiVersion: v1",
            "kind: Pod",
            "metadata:",
            f"  name: {pod['metadata']['name']}",
            f"  namespace: {NAMESPACE}",
            f"  uid: {pod['metadata']['uid']}",
            "spec:",
            "  automountServiceAccountToken: false",
            "  terminationGracePeriodSeconds: 1",
            "  containers:",
            f"  - {json.dumps(container)}",
            "",
        ]
    )
