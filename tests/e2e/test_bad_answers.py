"""An API server and a kubelet that answer nonsense: what runs stays, what is stored stays.

The daemon sees both through gates that spoil their answers; the kubelet itself does not. Each fault
is named in `checkpointd status`, and the journal tells of its coming and its end once.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.e2e.conftest import MakeMachine
from tests.e2e.node import api, cluster, faulty_api, gated, measure, objects, workloads
from tests.e2e.node.daemon import CHECKPOINTS, answer
from tests.e2e.node.faulty_api import OTHER_UID, SERVICE, Fault
from tests.e2e.node.gated import Gated
from tests.e2e.node.journal import Journal
from tests.e2e.node.waiting import NotYetError, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

NODE = "gated"
SLOTS = ("ds.agent", "ds.shared")


@dataclass(frozen=True)
class Case:
    """A fault of the API server: what it does, what `status` says, what the journal says."""

    name: str
    fault: Fault
    says: str
    gone: str
    back: str = "API server: answers (127.0.0.1:7443)"
    explains: str = ""
    keeps_words: bool = True
    """Whether the API server's last trusted word stays as it was."""


def lost(name: str, fault: Fault, says: str) -> Case:
    """Return the case of an answer that counts as none."""
    return Case(name, fault, says, f"API server: no answer: {says}", explains=f"unknown: {says}")


LOST = (
    lost("401", faulty_api.status(401), "HTTP 401: a fault of the test: Unauthorized"),
    lost("403", faulty_api.status(403), "HTTP 403: a fault of the test: Forbidden"),
    lost("500", faulty_api.status(500), "HTTP 500: a fault of the test: Internal Server Error"),
    lost(
        "HTML",
        faulty_api.html,
        "the answer is not JSON but 'text/html': what answers there is no API server",
    ),
    lost("truncated", faulty_api.truncated, "the answer: not JSON: "),
)
ANSWERING = (
    Case(
        "429",
        faulty_api.status(429, "Retry-After: 2"),
        "answers, not yet trusted",
        "API server: answers, but does not tell of our pods: HTTP 429: a fault of the test",
        "API server: tells of our pods again",
        "HTTP 429",
    ),
    Case(
        "empty list",
        faulty_api.empty_list,
        "the API server wants none of the checkpointed pods any more, all at once",
        "the API server wants none of the checkpointed pods any more, all at once",
        "over: the API server wants none of the checkpointed pods any more",
        "gone - API server: trusted",
        keeps_words=False,
    ),
    Case(
        "another Node",
        faulty_api.other_uid(f"/api/v1/nodes/{NODE}"),
        "our Node was made anew",
        f"API server: the Node was made anew: its UID is {OTHER_UID}",
        f"API server: the Node was made anew: its UID is *, it was {OTHER_UID}",
        "API server: trusted",
    ),
    Case(
        "another Service",
        faulty_api.other_uid(SERVICE),
        "another world answers at the API server's address",
        "another world answers at the API server's address",
        "over: another world answers at the API server's address",
        "API server: foreign world",
    ),
)
KUBELET_CASES = (
    ("401", faulty_api.status(401), "HTTP 401: the kubelet does not know this client"),
    ("403", faulty_api.status(403), "HTTP 403: this client needs the permission"),
    ("429", faulty_api.status(429), "HTTP 429"),
    ("500", faulty_api.status(500), "HTTP 500: the kubelet says that it is not well"),
    ("HTML", faulty_api.html, "the answer is not a list of objects"),
    ("truncated", faulty_api.cut_list, "the answer is cut short"),
    ("reset", faulty_api.reset, "Connection reset by peer"),
)


@pytest.fixture(scope="module")
def node(
    make_shared_machine: MakeMachine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Gated]:
    """The node of all tests of this module. They build on each other, in their order."""
    machine = make_shared_machine(NODE, "10.99.0.1/24")
    with gated.make_gated(machine, tmp_path_factory.mktemp("bad") / "pki") as made:
        yield made


@pytest.fixture(autouse=True)
def all_is_mended(node: Gated) -> Iterator[None]:
    """Leave no fault behind, however a test ends."""
    yield
    node.api_gate.turn(faulty_api.pass_on)
    spoil_kubelet(node, faulty_api.pass_on)


@contextmanager
def nothing_changes(node: Gated, *, with_states: bool = True) -> Generator[None]:
    """Fail if store, static-pod directory or the pods' processes are other ones afterwards.

    A slot's state.json is looked at only if it must not even be written.
    """
    before = look(node, with_states=with_states)
    manifests = measure.DirectoryWatch(node.machine, cluster.MANIFESTS)
    try:
        yield
    finally:
        manifests.close()
    assert manifests.changes == []
    assert look(node, with_states=with_states) == before


def look(node: Gated, *, with_states: bool) -> dict[str, object]:
    """Return all that must stay."""
    store, manifests = (node.machine.path(path) for path in (CHECKPOINTS, cluster.MANIFESTS))
    stored = {
        str(path): path.read_bytes()
        for path in store.rglob("*")
        if path.is_file() and (with_states or not path.name.startswith("state.json"))
    }
    placed = {path.name: (path.read_bytes(), path.stat().st_ino) for path in manifests.iterdir()}
    return {"stored": stored, "placed": placed, "running": processes(node)}


def processes(node: Gated) -> dict[str, list[int]]:
    """Return the web servers of both pods and of their copies, by what they belong to."""
    found: dict[str, list[int]] = {}
    for name in node.pods:
        checkpoint = node.daemon.checkpoint(f"ds.{name}")
        found[name] = measure.processes_of(node.machine, node.uid(name), "httpd")
        copy = objects.find(checkpoint, "activation", "uid")
        if isinstance(copy, str):
            found[f"copy of {name}"] = measure.processes_of(node.machine, copy, "httpd")
    return found


def told(node: Gated, verb: str) -> str:
    """Return what an operator reads, on one line."""
    return re.sub(r"\s+", " ", node.machine.sh(f"checkpointd {verb}", check=False))


def wait_until_told(node: Gated, verb: str, words: str) -> None:
    """Return once `status` or `explain` says something."""

    def is_told() -> bool:
        text = told(node, verb)
        if words not in text:
            raise NotYetError(text)
        return True

    wait_for(f"checkpointd {verb} says: {words}", is_told, 30, 0.2)


def wait_until_well(node: Gated) -> None:
    """Return once the API server is trusted and nothing is active or unknown."""

    def is_well() -> bool:
        text = told(node, "status")
        if not text.startswith("checkpointd 0.1.0 on node gated: healthy"):
            raise NotYetError(text)
        return True

    wait_for("all is as before", is_well, 60, 0.2)


@pytest.mark.parametrize("case", [*LOST, *ANSWERING], ids=lambda case: case.name)
def test_a_bad_answer_of_the_api_server_changes_nothing_while_the_pods_run(
    node: Gated, case: Case
) -> None:
    wait_until_well(node)
    journal = Journal(node.machine)
    with nothing_changes(node, with_states=case.keeps_words):
        node.api_gate.turn(case.fault)
        wait_until_told(node, "status", case.says)
        wait_until_told(node, "explain agent", case.explains)
        journal.wait_for(case.gone, 30)
        node.api_gate.turn(faulty_api.pass_on)
        journal.wait_for(case.back, 30)
        wait_until_well(node)
    assert (journal.count(case.gone), journal.count(case.back)) == (1, 1)


def test_an_api_server_that_comes_and_goes_changes_nothing_while_the_pods_run(node: Gated) -> None:
    journal = Journal(node.machine)
    with nothing_changes(node):
        for is_up in (False, True) * 8:
            node.api_gate.turn(faulty_api.pass_on if is_up else faulty_api.reset)
            # How long a moment is must differ from how long the daemon waits between two tries.
            time.sleep(0.3 if is_up else 0.6)  # nothing to wait for: this is the fault itself
        wait_until_well(node)
    gone, back = journal.count("API server: no answer:"), journal.count("API server: answers (")
    assert (gone, back) in {(0, 0), (1, 1)}


def test_bad_answers_of_the_kubelet_change_nothing_while_the_pods_run(node: Gated) -> None:
    once = {**workloads.agent_pod_spec(8082), "hostNetwork": False, "restartPolicy": "Never"}
    metadata = {"name": "once", "annotations": workloads.MARK}
    spec = {**once, "nodeName": NODE}
    # While a marked pod has no checkpoint, the kubelet is asked for its list every 2 s.
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    node.cluster.api.create(api.PODS, pod)
    wait_until_told(node, "status", "kube-system/once: marked, but NOT checkpointed")
    journal = Journal(node.machine)
    with nothing_changes(node):
        for _name, fault, says in KUBELET_CASES:
            spoil_kubelet(node, fault)
            wait_until_told(node, "status", says)
            assert "gives NO LIST of its pods" in told(node, "status")
            wait_until_told(node, "explain agent", says)
        spoil_kubelet(node, faulty_api.pass_on)
        journal.wait_for("the kubelet's list of pods: read from the secure port", 15)
    assert journal.count("the kubelet's list of pods: unknown: ") == 1
    assert journal.count("the kubelet's list of pods: read from the secure port") == 1
    node.cluster.api.delete(f"{api.PODS}/once", grace_seconds=0)
    wait_until_well(node)


def spoil_kubelet(node: Gated, fault: Fault) -> None:
    """Have the daemon ask a kubelet that answers like this, its health port too."""
    node.kubelet_gate.turn(fault)
    node.healthz_gate.turn(fault)


def test_bad_answers_change_nothing_while_the_pods_run_and_their_kubelet_does_not_know_them(
    node: Gated,
) -> None:
    with nothing_changes(node, with_states=False):
        node.api_gate.turn(faulty_api.reset)
        node.cut_kubelet_off()
        go_through(node, LOST)
        node.api_gate.turn(faulty_api.reset)
        for slot in SLOTS:
            node.daemon.wait_for_checkpoint(slot, "nobody would restart it", is_unmanaged, 30)


def test_bad_answers_stop_no_copy_and_touch_no_manifest(node: Gated) -> None:
    node.api_gate.turn(faulty_api.reset)
    for name in node.pods:
        for process in measure.processes_of(node.machine, node.uid(name), "httpd"):
            os.kill(process, signal.SIGKILL)
    for slot in SLOTS:
        node.daemon.wait_for_checkpoint(slot, "its copy runs", is_serving, 60)
    running = processes(node)
    assert [len(running[f"copy of {name}"]) for name in node.pods] == [1, 1]
    with nothing_changes(node, with_states=False):
        # These first: from a minute after its loss the API server is asked every 5 s only.
        go_through(node, (*reversed(ANSWERING), *LOST))
        node.api_gate.turn(faulty_api.reset)
        for _name, fault, says in KUBELET_CASES[::2]:
            spoil_kubelet(node, fault)
            wait_until_told(node, "status", says)
    node.api_gate.turn(faulty_api.pass_on)
    spoil_kubelet(node, faulty_api.pass_on)
    node.connect_kubelet()
    for name, slot in zip(node.pods, SLOTS, strict=True):
        node.daemon.wait_until_stored(slot, node.pods[name], 180)
    wait_until_well(node)
    assert node.daemon.copies() == []
    assert all(len(found) == 1 for found in processes(node).values())


def go_through(node: Gated, cases: Iterable[Case]) -> None:
    """Let the API server answer these kinds of nonsense, one after the other, each until named."""
    for case in cases:
        node.api_gate.turn(case.fault)
        wait_until_told(node, "status", case.says)


def is_unmanaged(checkpoint: object) -> bool:
    """Say whether the daemon knows that nobody would restart a slot's pod."""
    return answer(checkpoint, "will the kubelet restart it?").startswith("no;")


def is_serving(checkpoint: object) -> bool:
    """Say whether a slot's copy runs."""
    return objects.find(checkpoint, "phase") == "serving"
