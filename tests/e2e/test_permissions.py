"""What the node's identity may not do: each missing permission is named, with what it costs.

One node for all, whose certificate has what Kubernetes gives to every node, until the roles that
are shipped are granted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import MakeMachine
from tests.e2e.node import api, cluster, daemon, objects, standalone, workloads
from tests.e2e.node.api import Api, client_context
from tests.e2e.node.journal import Journal
from tests.e2e.node.standalone import Standalone
from tests.e2e.node.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

RBAC = "/apis/rbac.authorization.k8s.io/v1"
SHIPPED = "/usr/share/checkpointd/rbac"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ORDERS = f"{daemon.STORE}/overrides"
SLOT = "ds.agent"
COPY = f"{daemon.COPY_PREFIX}kube-system.agent"
KUBELET_PEM = "/var/lib/kubelet/pki/kubelet-client-current.pem"
USER_SETTINGS = f"{daemon.SETTINGS}/user.toml"
OTHER_CONFIG = "/etc/kubernetes/other.conf"

OWNERS = 'no permission "get daemonsets.apps": the copy of a DaemonSet\'s pod is not stopped'
KUBELET = 'needs the permission "get" on "nodes/pods"'


@dataclass(frozen=True)
class Stage(Standalone):
    """The node with a marked DaemonSet."""

    def notes(self) -> list[str]:
        """Return what the status says of the node that is odd and does no harm."""
        return [str(note) for note in objects.items(self.daemon.status(), "notes")]

    def has_note(self, beginning: str) -> bool:
        """Say whether one of the notes begins so."""
        return any(note.startswith(beginning) for note in self.notes())

    def grant(self, text: str) -> None:
        """Do as `kubectl apply -f` with roles in YAML."""
        for made in yaml.safe_load_all(text):
            self.cluster.api.create(f"{RBAC}/{made['kind'].lower()}s", made)

    def take_away(self, *names: str) -> None:
        """Delete cluster roles and their bindings."""
        for name in names:
            for kind in ("clusterrolebindings", "clusterroles"):
                self.cluster.api.delete(f"{RBAC}/{kind}/{name}")

    def shipped(self) -> str:
        """Return the roles that an operator is told to apply."""
        files = self.machine.sh(f"cat {SHIPPED}/*.yaml")
        return f"{files}---\n{self.machine.sh('checkpointd doctor --rbac')}"

    def exit_code(self) -> str:
        """Return what `checkpointd status` exits with."""
        return self.machine.sh("checkpointd status > /dev/null; echo $?").strip()

    def order(self, verb: str) -> None:
        """Have an order for the slot, as the README says."""
        path = f"{ORDERS}/kube-system.{SLOT}.json"
        self.machine.sh(f"""echo '{{"verb": "{verb}"}}' > {path}""")

    def restart(self) -> None:
        """Start the daemon anew: its credentials are another's."""
        self.machine.sh("systemctl restart checkpointd")

    def release(self) -> None:
        """Take all orders back."""
        self.machine.sh(f"rm -f {ORDERS}/*.json")

    def wait_for_problem(self, words: str) -> None:
        """Return when the status says these words of the API server."""
        wait_for(words, lambda: words in self.api_problem(), 60, 0.2)

    def api_problem(self) -> str:
        """Return what the status says is wrong with the API server."""
        found = objects.find(self.daemon.status(), "api", "why")
        return found if isinstance(found, str) else ""

    def phase(self) -> object:
        """Return the phase of the slot."""
        return objects.find(self.daemon.checkpoint(SLOT), "phase")


@pytest.fixture(scope="module")
def stage(make_shared_machine: MakeMachine, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    machine = make_shared_machine("rights", "10.99.0.1/24")
    directory: Path = tmp_path_factory.mktemp("rights") / "pki"
    made = standalone.make_standalone(machine, directory, {"retire-store": '"10m"'})
    agent = workloads.start_agent(made.cluster, 8081)
    made.daemon.wait_until_stored(SLOT, agent, 60)
    return Stage(made.machine, made.cluster, made.daemon)


@pytest.fixture
def roles(stage: Stage) -> Iterator[None]:
    """Grant what is shipped, for the time of a test."""
    stage.grant(stage.shipped())
    yield
    stage.take_away("checkpointd-owners", f"checkpointd-kubelet-{stage.machine.name}")


def test_without_the_roles_each_is_named_once_with_its_cost_and_nothing_else_is_wrong(
    stage: Stage,
) -> None:
    wait_for("it is known what is missing", lambda: stage.has_note(OWNERS), 30, 0.2)
    (note,) = stage.notes()
    assert f"{SHIPPED}/checkpointd-owners.yaml" in note
    journal = stage.machine.sh("journalctl -u checkpointd -o cat")
    assert journal.count(OWNERS) == 1
    assert journal.count(KUBELET) <= 1  # it is asked only where others do not know what runs
    assert "the kubelet's list of pods: read from the pod-resources socket" in journal
    assert (stage.exit_code(), stage.phase()) == ("0", "stored")
    doctor = stage.machine.sh("checkpointd doctor", check=False)
    for permission in ("get daemonsets.apps", "get nodes/pods"):
        assert permission in doctor


@pytest.mark.usefixtures("roles")
def test_a_role_that_is_granted_is_noticed_and_one_that_is_taken_away_again(stage: Stage) -> None:
    journal = Journal(stage.machine)
    before = workloads.ready_pod(stage.cluster, "agent")
    assert before is not None
    stage.cluster.api.delete(f"{api.PODS}/{objects.text(before, 'metadata', 'name')}")
    wait_for("the DaemonSet was read", lambda: stage.notes() == [], 90, 0.2)
    journal.wait_for(f"over: {OWNERS}", 10)
    assert stage.exit_code() == "0"
    after = wait_for("there is a new pod", lambda: another_pod(stage, before), 150, 0.2)

    stage.take_away("checkpointd-owners")
    try:
        journal = Journal(stage.machine)
        stage.cluster.api.delete(f"{api.PODS}/{objects.text(after, 'metadata', 'name')}")
        wait_for("it is noticed", lambda: stage.has_note(OWNERS), 90, 0.2)
        journal.wait_for(OWNERS, 10)
        last = wait_for("there is a new pod", lambda: another_pod(stage, after), 150, 0.2)
        stage.daemon.wait_until_stored(SLOT, last, 60)
        assert journal.count(OWNERS) == 1
    finally:
        stage.grant(stage.machine.sh(f"cat {SHIPPED}/checkpointd-owners.yaml"))


@pytest.mark.usefixtures("roles")
def test_a_nodes_certificate_reaches_the_pods_of_its_own_kubelet_alone(stage: Stage) -> None:
    """By the word of the API server: a kubelet before 1.33 asks it for nodes/proxy instead."""
    own, other = stage.machine.name, "another"
    own_node, other_node = as_node(stage, own), as_node(stage, other)
    pods = {"verb": "get", "resource": "nodes", "subresource": "pods"}
    assert may(own_node, **pods, name=own)
    assert not may(own_node, **pods, name=other)
    assert not may(own_node, **pods)
    assert not may(other_node, **pods, name=own)
    assert not may(other_node, **pods, name=other)
    for verb in ("get", "create"):
        assert not may(own_node, verb=verb, resource="nodes", subresource="proxy", name=own)
    sets = {"group": "apps", "resource": "daemonsets"}
    assert may(other_node, **sets, verb="get")
    assert not may(other_node, **sets, verb="list")


def test_of_an_identity_that_may_nothing_each_permission_is_named_in_turn(stage: Stage) -> None:
    """A user of its own, without the rights that every node has."""
    install_user(stage, "keeper")
    steps = (
        ('no permission "get nodes": no API server is trusted', "nodes", "get"),
        ('no permission "list pods": it is not known which pods', "pods", "list"),
        ('no permission "watch pods": it is not seen which pods', "pods", "watch"),
    )
    stage.machine.write(USER_SETTINGS, f'[kubelet]\nkubeconfig = "{OTHER_CONFIG}"\n')
    journal = Journal(stage.machine)
    stage.restart()
    for denial, resource, verb in steps:
        stage.wait_for_problem(denial)
        stage.grant(role_for("keeper", f"{verb}-{resource}", resource, verb))
    stage.daemon.wait_for_checkpoint(SLOT, "stored", daemon.is_stored, 60)
    wait_for("the API is trusted", lambda: stage.api_problem() == "", 60, 0.2)
    denials = [OWNERS, 'no permission "get services": another cluster\'s API server']
    wait_for("all notes", lambda: all(map(stage.has_note, denials)), 60, 0.2)
    for denial in (*denials, 'API server: no answer: *no permission "get nodes"'):
        assert journal.count(denial) == 1, denial
    assert stage.daemon.copies() == []
    stage.machine.path(USER_SETTINGS).unlink()
    stage.restart()


def test_a_copy_whose_daemon_set_cannot_be_read_stays_until_the_role_is_granted(
    stage: Stage,
) -> None:
    pod = workloads.ready_pod(stage.cluster, "agent")
    assert pod is not None
    stage.daemon.wait_until_stored(SLOT, pod, 60)
    stage.stop_controllers()
    stage.cluster.api.delete(f"{api.PODS}/{objects.text(pod, 'metadata', 'name')}")
    stage.order("activate")
    stage.daemon.wait_for_checkpoint(SLOT, "its copy runs", is_serving, 150)
    stage.release()
    stage.cluster.api.delete(f"{workloads.DAEMON_SETS}/agent")
    stage.wait_for_alarm("the DaemonSet cannot be read", OWNERS, "the copy stays")
    assert stage.daemon.copies()
    stage.grant(stage.machine.sh(f"cat {SHIPPED}/checkpointd-owners.yaml"))
    wait_for("the copy goes", lambda: not stage.daemon.copies(), 90, 0.2)
    wait_for("no alarm is left", lambda: stage.alarms() == [], 30, 0.2)


def is_serving(checkpoint: object) -> bool:
    """Say whether a slot's copy runs."""
    return objects.find(checkpoint, "phase") == "serving"


def another_pod(stage: Stage, other: object) -> object | None:
    """Return the DaemonSet's Ready pod, if it is not that one."""
    uid = objects.text(other, "metadata", "uid")
    return workloads.ready_pod(stage.cluster, "agent", other_than=uid)


def as_node(stage: Stage, name: str) -> Api:
    """Return the API server as the node of that name sees it."""
    authority = stage.cluster.authority
    node = authority.issue(f"as-{name}", f"/O=system:nodes/CN=system:node:{name}")
    return Api(stage.machine, ("127.0.0.1", cluster.API_PORT), client_context(authority, node))


def may(client: Api, **attributes: str) -> bool:
    """Say whether the API server lets a client do that."""
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    review = client.create(REVIEWS, {**kind, "spec": {"resourceAttributes": attributes}})
    return objects.find(review, "status", "allowed") is True


def install_user(stage: Stage, name: str) -> None:
    """Write a kubeconfig for a user who may nothing yet."""
    user = stage.cluster.authority.issue(name, f"/CN={name}")
    pem = f"/etc/kubernetes/{name}.pem"
    stage.machine.write(pem, user.certificate.read_bytes() + user.key.read_bytes(), 0o600)
    config = stage.machine.path("/etc/kubernetes/kubelet.conf").read_text()
    stage.machine.write(OTHER_CONFIG, config.replace(KUBELET_PEM, pem), 0o600)


def role_for(user: str, name: str, resource: str, verb: str) -> str:
    """Return a cluster role that lets a user do one thing, and its binding, as YAML (JSON is)."""
    version, metadata = "rbac.authorization.k8s.io/v1", {"name": name}
    role = {
        "kind": "ClusterRole",
        "rules": [{"apiGroups": [""], "resources": [resource], "verbs": [verb]}],
    }
    binding = {
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    made = ({"apiVersion": version, "metadata": metadata, **each} for each in (role, binding))
    return "\n---\n".join(map(json.dumps, made))
