"""The thread that renders parents: what it posts, and when it says nothing."""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from checkpointd.clock import Clock
from checkpointd.json_fields import Json
from checkpointd.model.decision import Question, Topic
from checkpointd.model.files import Candidate, Refused
from checkpointd.model.moments import Instant, Seen, Unknown
from checkpointd.model.observation import CandidateRead, Fact
from checkpointd.model.pods import ApiPod, slot_for
from checkpointd.observe.candidates import CandidateThread, Surroundings
from checkpointd.render.copy import NodeFacts
from tests.builders.kubelet_volumes import volume_directory, write_volume
from tests.builders.pods import (
    PARENT_UID,
    Object,
    config_map_volume,
    container,
    mount,
    raw_pod,
    secret_volume,
)


def api_pod(raw: Json | None) -> ApiPod:
    return ApiPod(
        namespace="kube-system",
        name="web",
        uid=PARENT_UID,
        slot=slot_for("kube-system", "web", None),
        controller=None,
        created="2026-01-01T00:00:00Z",
        marked=raw is not None,
        mark_note="",
        terminating=False,
        phase="Running",
        reason="",
        ready=True,
        started="2026-01-01T00:00:00Z",
        images=(),
        restart_policy="Always",
        grace_seconds=30,
        activation_priority=0,
        raw=raw,
    )


@dataclass
class Node:
    """A node with one parent: what the thread asks others for."""

    root: Path | None
    raw: Json | None = None
    node: NodeFacts = field(default_factory=lambda: NodeFacts(node_name="node-1"))
    max_bytes: int = 1024 * 1024
    facts: list[Fact] = field(default_factory=list[Fact])

    def __post_init__(self) -> None:
        surroundings = Surroundings(
            find_pod=self.find_pod,
            root=lambda: self.root,
            node=lambda: self.node,
            max_bytes=lambda: self.max_bytes,
        )
        self.thread = CandidateThread(self.facts.append, Clock(), surroundings)

    def find_pod(self, uid: str) -> ApiPod | None:
        return api_pod(self.raw) if uid == PARENT_UID and self.raw is not None else None

    def look(self, after: Instant | None = None) -> list[Seen[Candidate | Refused] | Unknown]:
        """Let the thread look once; return what it posted."""
        self.facts.clear()
        question = Question(Topic.CANDIDATE, PARENT_UID, period=0.0, after=after)
        self.thread.ask(frozenset({question}))
        self.thread.step()
        posted = [fact for fact in self.facts if isinstance(fact, CandidateRead)]
        assert len(posted) == len(self.facts)
        assert all(fact.parent_uid == PARENT_UID for fact in posted)
        return [fact.result for fact in posted]

    def candidate(self, after: Instant | None = None) -> Candidate:
        """Let the thread look once and return the one candidate that it posted."""
        (result,) = self.look(after)
        assert isinstance(result, Seen)
        assert isinstance(result.value, Candidate)
        return result.value


def secret_place(root: Path) -> Path:
    return volume_directory(root, PARENT_UID, "secret", "certs")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    write_volume(secret_place(tmp_path), {"tls.key": b"1"})
    return Node(root=tmp_path, raw=raw_pod(volumes=[secret_volume("certs")]))


def test_the_first_look_posts_the_candidate_with_its_bytes(node: Node) -> None:
    candidate = node.candidate()
    assert candidate.parent_name == "web"
    assert [entry.data for entry in candidate.files[0].entries] == [None, b"1"]
    assert candidate.contents == {"certs": candidate.files[0].hash}


def test_nothing_is_said_while_nothing_changes(node: Node) -> None:
    node.candidate()
    assert node.look() == []


def test_a_look_without_change_reads_no_file(node: Node, tmp_path: Path) -> None:
    node.candidate()
    # Whoever read now would find a folder that is gone.
    directory = secret_place(tmp_path)
    shutil.rmtree(directory / (directory / "..data").readlink())
    assert node.look() == []


def test_new_content_is_told(node: Node, tmp_path: Path) -> None:
    old = node.candidate()
    write_volume(secret_place(tmp_path), {"tls.key": b"2"})
    new = node.candidate()
    assert new.hash != old.hash
    assert new.spec_hash == old.spec_hash


def test_content_that_was_written_anew_but_is_the_same_is_not_told(
    node: Node, tmp_path: Path
) -> None:
    first = node.candidate()
    write_volume(secret_place(tmp_path), {"tls.key": b"1"})
    told = node.look()
    for result in told:
        assert isinstance(result, Seen)
        assert isinstance(result.value, Candidate)
        # Only the time when it was put there may be news.
        assert result.value.placed != first.placed
    assert node.look() == []


def test_a_new_spec_is_told_and_a_new_status_is_not(node: Node) -> None:
    old = node.candidate()
    node.raw = raw_pod(volumes=[secret_volume("certs")], status={"phase": "Running", "x": 1})
    assert node.look() == []
    node.raw = raw_pod(volumes=[secret_volume("certs")], hostPID=True)
    assert node.candidate().spec_hash != old.spec_hash


def test_the_images_that_ran_are_news(node: Node) -> None:
    node.candidate()
    ran = {"containerStatuses": [{"name": "main", "imageID": "sha256:abc"}]}
    node.raw = raw_pod(volumes=[secret_volume("certs")], status=ran)
    assert list(node.candidate().images.values()) == ["sha256:abc"]


def test_whoever_asks_for_a_later_answer_gets_the_bytes_again(node: Node) -> None:
    node.candidate()
    again = node.candidate(after=node.thread.clock.now())
    assert again.files[0].entries
    assert node.look(after=Instant(boot_id=node.thread.clock.boot_id, seconds=0.0)) == []


def test_whoever_asks_again_after_a_pause_gets_the_bytes_again(node: Node) -> None:
    node.candidate()
    node.thread.ask(frozenset())
    node.thread.step()
    assert node.candidate().files[0].entries


def test_d9_files_that_are_gone_are_unknown_and_told_once(node: Node, tmp_path: Path) -> None:
    node.candidate()
    kept = secret_place(tmp_path).rename(tmp_path / "kept")
    (result,) = node.look()
    assert isinstance(result, Unknown)
    assert "certs" in result.why
    assert node.look() == []
    kept.rename(secret_place(tmp_path))
    assert node.candidate().files[0].entries


def test_d9_half_a_set_of_volumes_is_no_candidate(tmp_path: Path) -> None:
    write_volume(secret_place(tmp_path), {"tls.key": b"1"})
    volumes: list[Object] = [secret_volume("certs"), config_map_volume("config")]
    node = Node(root=tmp_path, raw=raw_pod(volumes=volumes))
    (result,) = node.look()
    assert isinstance(result, Unknown)
    write_volume(volume_directory(tmp_path, PARENT_UID, "configmap", "config"), {"a": b"2"})
    assert set(node.candidate().contents) == {"certs", "config"}


def test_a_volume_that_no_container_mounts_is_not_looked_for(tmp_path: Path) -> None:
    write_volume(secret_place(tmp_path), {"tls.key": b"1"})
    mounting = container(volumeMounts=[mount("certs")])
    volumes: list[Object] = [secret_volume("certs"), config_map_volume("unused")]
    node = Node(root=tmp_path, raw=raw_pod(volumes=volumes, containers=[mounting]))
    assert set(node.candidate().contents) == {"certs"}


def test_a_refused_pod_is_told_without_its_files(tmp_path: Path) -> None:
    node = Node(
        root=tmp_path / "nowhere",
        raw=raw_pod(volumes=[secret_volume("certs")], runtimeClassName="gvisor"),
    )
    (result,) = node.look()
    assert isinstance(result, Seen)
    assert isinstance(result.value, Refused)
    assert [refusal.field for refusal in result.value.refusals] == ["spec.runtimeClassName"]
    assert result.value.parent_uid == PARENT_UID
    assert node.look() == []


def test_a_pod_without_files_needs_no_root_directory() -> None:
    assert Node(root=None, raw=raw_pod()).candidate().files == ()


def test_without_the_kubelets_root_or_the_apis_pod_it_is_unknown(node: Node) -> None:
    node.root = None
    (result,) = node.look()
    assert isinstance(result, Unknown)
    node.raw = None
    (result,) = node.look()
    assert isinstance(result, Unknown)


def test_without_the_nodes_name_it_is_unknown_and_no_refusal(node: Node) -> None:
    node.node = NodeFacts(node_name="")
    (result,) = node.look()
    assert isinstance(result, Unknown)
    node.node = NodeFacts(node_name="node-1")
    assert node.candidate().files


def test_too_many_bytes_are_refused_until_root_allows_more(node: Node, tmp_path: Path) -> None:
    write_volume(secret_place(tmp_path), {"tls.key": b"x" * 5000})
    node.max_bytes = 1000
    (result,) = node.look()
    assert isinstance(result, Seen)
    assert isinstance(result.value, Refused)
    node.max_bytes = 10_000
    assert node.candidate().files


def test_a_malformed_pod_is_a_refusal(node: Node) -> None:
    node.raw = {"metadata": {"uid": PARENT_UID}, "spec": "none"}
    (result,) = node.look()
    assert isinstance(result, Seen)
    assert isinstance(result.value, Refused)


def test_a_fault_of_our_own_is_unknown_and_the_next_look_tells_again(node: Node) -> None:
    node.candidate()
    node.facts.clear()
    node.thread.report_failure("a bug")
    (fact,) = node.facts
    assert isinstance(fact, CandidateRead)
    assert isinstance(fact.result, Unknown)
    assert node.candidate().files[0].entries


def test_a_fault_in_one_pod_costs_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("checkpointd").propagate = True
    pods = {uid: api_pod(raw_pod(uid, uid=uid)) for uid in ("uid-a", "uid-c")}
    facts: list[Fact] = []
    surroundings = Surroundings(
        find_pod=lambda uid: pods[uid],  # of uid-b it knows nothing: a KeyError
        root=lambda: tmp_path,
        node=lambda: NodeFacts(node_name="node-1"),
        max_bytes=lambda: 1024,
    )
    thread = CandidateThread(facts.append, Clock(), surroundings)
    asked = (Question(Topic.CANDIDATE, uid, period=0.0) for uid in ("uid-a", "uid-b", "uid-c"))
    thread.ask(frozenset(asked))
    for _ in range(3):
        thread.step()
    found = {fact.parent_uid: fact.result for fact in facts if isinstance(fact, CandidateRead)}
    assert len(facts) == 3
    assert isinstance(found["uid-a"], Seen)
    assert isinstance(found["uid-c"], Seen)
    failed = found["uid-b"]
    assert isinstance(failed, Unknown)
    assert failed.why == "a fault of ours: KeyError: 'uid-b'"
    assert len(caplog.records) == 1


def test_only_who_is_due_is_looked_at(node: Node) -> None:
    question = Question(Topic.CANDIDATE, PARENT_UID, period=3600.0)
    node.thread.ask(frozenset({question, replace(question, topic=Topic.LEASE)}))
    node.thread.step()
    assert len(node.facts) == 1
    assert 0 < node.thread.step() <= 3600
    assert len(node.facts) == 1
