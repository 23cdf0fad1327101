from __future__ import annotations

import hashlib
import json
import os
import socket
from pathlib import Path

import pytest

from checkpointd.clients import static_pods
from checkpointd.errors import SourceError
from checkpointd.model import pods
from checkpointd.model.observation import ManifestFile
from checkpointd.model.pods import Slot

NOTES = {
    pods.COPY_SLOT: "ds.kube-apiserver",
    pods.COPY_PARENT_UID: "uid-1",
    pods.COPY_GENERATION: "f00",
    pods.COPY_ACTIVATION: "3",
    pods.LEGACY_CHECKPOINT_OF: "kube-apiserver-abcde",
}


def manifest(annotations: object = None, **metadata: object) -> bytes:
    named: dict[str, object] = {"name": "web", "namespace": "apps", "uid": "u-1", **metadata}
    if annotations is not None:
        named["annotations"] = annotations
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": named}).encode()


def parse(content: bytes, name: str = "a.json") -> ManifestFile:
    return static_pods.parse_manifest(name, content, "s")


def read_one(path: Path) -> ManifestFile:
    (file,) = static_pods.ManifestReader().read(path).values()
    return file


def test_a_foreign_pod_is_named() -> None:
    file = parse(manifest())
    assert (file.namespace, file.pod_name, file.uid) == ("apps", "web", "u-1")
    assert not file.ours
    assert file.problem == ""


def test_our_own_manifest_says_what_it_is_a_copy_of() -> None:
    file = parse(manifest(NOTES, namespace="kube-system"), "checkpointd.kube-system.x.json")
    assert file.ours
    assert file.slot == Slot("kube-system", "ds.kube-apiserver")
    assert (file.generation, file.activation) == ("f00", 3)
    assert (file.parent_uid, file.parent_name) == ("uid-1", "kube-apiserver-abcde")


@pytest.mark.parametrize(
    ("name", "annotations"),
    [("kube-apiserver.json", NOTES), ("checkpointd.a.b.json", {}), ("checkpointd.a.b.json", None)],
)
def test_name_and_annotations_together_make_it_ours(name: str, annotations: object) -> None:
    assert not parse(manifest(annotations), name).ours


KUBEADM = b"""
apiVersion: v1
kind: Pod
metadata:
  annotations:
    kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint: 10.0.0.1:6443
  creationTimestamp: null
  labels: {component: kube-apiserver}
  name: kube-apiserver
  namespace: kube-system
spec: {containers: [{name: a, command: [x, --name=y]}]}
"""


@pytest.mark.parametrize(
    "content",
    [
        KUBEADM,
        b"---\n" + KUBEADM + b"---\nkind: Other\n",
        b"{kind: Pod, metadata: {name: kube-apiserver, namespace: kube-system}}",
        b'{"kind": "Pod", "metadata": {name: kube-apiserver, namespace: "kube-system"}}',
        b"kind: Pod\nmetadata: &m {name: kube-apiserver, namespace: kube-system}\nspec: {x: *m}",
    ],
)
def test_d2_a_foreign_pod_in_yaml_is_named_in_every_style(content: bytes) -> None:
    file = parse(content, "kube-apiserver.yaml.backup")
    assert (file.namespace, file.pod_name) == ("kube-system", "kube-apiserver")
    assert file.problem == ""


def test_a_static_pod_without_namespace_is_in_default() -> None:
    assert parse(manifest(namespace="")).namespace == "default"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"README",
        b"{",
        b"[]",
        b"a: [",
        b"\x00\xff\xfe",
        b'{"kind": "PodList", "items": []}',
        b'{"kind": "Pod"}',
        b'{"kind": "Pod", "metadata": []}',
        b'{"kind": "Pod", "metadata": {"name": 1}}',
        b"!!python/object/apply:os.system ['true']",
        b"[" * 100_000,
        b"a: " + b"x" * static_pods.YAML_LIMIT,
    ],
)
def test_d2_what_is_no_pod_is_a_problem_and_nothing_more(content: bytes) -> None:
    file = parse(content)
    assert file.problem
    assert file.pod_name == ""
    assert not file.ours


def test_a_problem_does_not_quote_the_file() -> None:
    assert "hunter2" not in parse(b"kind: Pod\npassword: hunter2: [").problem


def test_d2_every_entry_without_a_dot_is_read_whatever_its_name(tmp_path: Path) -> None:
    for name in ("a.json", "a.json.bak", "a~", "README", ".hidden", ".checkpointd-1"):
        (tmp_path / name).write_bytes(manifest())
    files = static_pods.ManifestReader().read(tmp_path)
    assert list(files) == ["README", "a.json", "a.json.bak", "a~"]
    assert {file.sha256 for file in files.values()} == {hashlib.sha256(manifest()).hexdigest()}


def test_d2_what_is_no_file_is_named_as_a_problem(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "gone").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(static_pods.SIZE_LIMIT + 1)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        files = static_pods.ManifestReader().read(tmp_path)
    assert {name: file.sha256 for name, file in files.items()} == dict.fromkeys(
        ("dir", "fifo", "gone", "huge", "loop", "socket"), ""
    )
    assert all(file.problem for file in files.values())
    assert "restart the kubelet" in files["fifo"].problem


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "real").write_bytes(manifest())
    (tmp_path / "dir" / "link.json").symlink_to("../real")
    assert read_one(tmp_path / "dir").pod_name == "web"


def test_the_path_may_be_a_single_file(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_bytes(KUBEADM)
    assert read_one(tmp_path / "pod.yaml").pod_name == "kube-apiserver"


def test_a_missing_directory_is_unknown_and_not_empty(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        static_pods.ManifestReader().read(tmp_path / "manifests")


def test_a_change_in_place_is_seen(tmp_path: Path) -> None:
    reader = static_pods.ManifestReader()
    path = tmp_path / "a.json"
    path.write_bytes(manifest())
    before = path.stat()
    assert reader.read(tmp_path)["a.json"].pod_name == "web"
    path.write_bytes(manifest(name="wob"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert reader.read(tmp_path)["a.json"].pod_name == "wob"


def test_a_number_of_an_activation_that_no_number_can_be_counts_as_none() -> None:
    notes = {**NOTES, pods.COPY_ACTIVATION: "9" * 5000}
    assert parse(manifest(notes), "checkpointd.apps.x.json").activation == 0


# ---- reading again and again ---------------------------------------------------------------------
def bytes_read() -> int:
    """Return how many bytes this process has read so far (proc(5))."""
    line = Path("/proc/self/io").read_text().splitlines()[0]
    return int(line.removeprefix("rchar:"))


def test_a_file_that_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    # Files that are older than a tick: links to our own modules, which the kubelet follows too.
    sources = sorted(Path(static_pods.__file__).parent.glob("*.py"))
    for number, source in enumerate(sources):
        (tmp_path / f"{number}.yaml").symlink_to(source)
    reader = static_pods.ManifestReader()
    first = reader.read(tmp_path)
    before = bytes_read()
    assert reader.read(tmp_path) == first
    assert bytes_read() - before < sum(source.stat().st_size for source in sources) / 10


def test_a_change_that_keeps_size_and_modification_time_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(manifest(name="one"))
    os.utime(file, (1, 1))
    reader = static_pods.ManifestReader()
    assert reader.read(tmp_path)["a.json"].pod_name == "one"
    file.write_bytes(manifest(name="two"))
    os.utime(file, (1, 1))
    assert reader.read(tmp_path)["a.json"].pod_name == "two"


# ---- the directory itself ------------------------------------------------------------------------
def test_a_plain_directory_is_nothing_to_tell_of(tmp_path: Path) -> None:
    assert static_pods.judge_place(tmp_path) == static_pods.Place()


def test_d14_a_link_to_a_directory_is_noted(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    place = static_pods.judge_place(tmp_path / "link")
    assert place.note == f"{tmp_path}/link is a link to {tmp_path}/real: copies are placed there"
    assert (place.problem, place.is_absent) == ("", False)


def test_d14_a_dangling_link_is_a_problem_with_a_remedy_and_not_an_absence(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("away")
    place = static_pods.judge_place(tmp_path / "link")
    assert "which is not there" in place.problem
    assert f"mkdir -m 0700 {tmp_path}/away" in place.problem
    assert not place.is_absent


def test_d14_an_absent_directory_is_a_problem_with_a_remedy(tmp_path: Path) -> None:
    place = static_pods.judge_place(tmp_path / "absent")
    assert place.problem.endswith(f": mkdir -m 0700 {tmp_path}/absent")
    assert place.is_absent


def test_a_file_in_its_place_is_a_problem_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_bytes(b"kind: Pod")
    assert "staticPodPath" in static_pods.judge_place(tmp_path / "pod.yaml").problem
