"""API status, container runtime and kernel name the same containers, and tell of deaths in turn."""

from __future__ import annotations

import os
import signal
import time

from checkpointd.clients import pidfd
from checkpointd.model.observation import ContainerState
from checkpointd.model.selection import Selection
from checkpointd.observe.api import pods
from tests.contract.subject import Subject, condition, uid_of
from tests.fakes.waiting import wait_for


def test_the_ids_of_the_api_status_are_those_of_the_runtime_and_of_the_cgroups(
    subject: Subject,
) -> None:
    made = subject.run(subject.pod(subject.container(name="a"), subject.container(name="b")))
    uid = uid_of(made)
    parsed = pods.parse_pod(made, Selection(), subject.node_name)
    (sandbox,) = subject.sandboxes(uid)
    containers = {container.id for container in subject.containers(uid)}
    assert parsed.ready_containers == containers
    assert subject.leaves(uid).keys() == {*containers, sandbox.id}
    assert len(containers) == 2


def test_a_sandbox_has_one_process_the_pause_and_a_container_has_its_own(subject: Subject) -> None:
    uid = uid_of(subject.run(subject.pod()))
    (sandbox,) = subject.sandboxes(uid)
    for leaf in subject.tree.read_pod(uid).leaves:
        assert leaf.only_pause is (leaf.id == sandbox.id)
        assert leaf.pids
        assert all(subject.procfs.read_pod(pid) == uid for pid in leaf.pids)


def test_a_uid_that_nobody_has_has_no_leaves(subject: Subject) -> None:
    assert subject.leaves("ffffffff-0000-0000-0000-000000000000") == {}


def test_a_pidfd_tells_of_a_containers_death_before_the_runtime_does(subject: Subject) -> None:
    uid = uid_of(subject.run(subject.pod()))
    (container,) = subject.containers(uid)
    pid = min(subject.leaves(uid)[container.id])
    deaths = pidfd.Deaths()
    try:
        assert deaths.watch(frozenset({pid})) == frozenset()
        os.kill(pid, signal.SIGKILL)
        assert deaths.wait(10) == {pid}
        died = time.monotonic()
    finally:
        deaths.close()
    wait_for("its cgroup is empty", lambda: not subject.leaves(uid).get(container.id))
    emptied = time.monotonic()
    wait_for("the runtime says so", lambda: _state(subject, uid, container.id) != "running", 20)
    assert died <= emptied <= time.monotonic()


def test_a_pod_that_has_ended_has_no_cgroup(subject: Subject) -> None:
    made = subject.run(subject.pod())
    subject.delete_pod(made["metadata"]["name"])
    wait_for("it has ended", lambda: subject.leaves(uid_of(made)) == {})
    assert condition(made, "Ready") == "True"


def _state(subject: Subject, uid: str, container: str) -> str:
    states = {one.id: one.state for one in subject.containers(uid)}
    return states.get(container, ContainerState.EXITED).value
