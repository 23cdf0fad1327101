"""The contract tests on a real node: where the embedded one answers otherwise, it is wrong.

They run once, all together, in a machine that sees this repository and its Python; here each of
their modules is a test, which fails with the names of what failed there.
"""

from __future__ import annotations

import shlex
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeMachine
from tests.e2e.node import selfhosted
from tests.e2e.node.machine import Machine

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(540)]

ROOT = Path(__file__).parents[2]
MODULES = sorted(path.stem for path in (ROOT / "tests/contract").glob("test_*.py"))
ADMIN = "/etc/kubernetes/admin.conf"
RESULTS = "/run/contract-results.xml"
SKIPPED: Mapping[str, str] = {}
"""Contract tests that a real node cannot have, each with the reason."""


@dataclass
class Results:
    """What became of one module's tests: how many passed, and what the others said, by name."""

    passed: int = 0
    failed: dict[str, str] = field(default_factory=dict[str, str])
    skipped: dict[str, str] = field(default_factory=dict[str, str])


@pytest.fixture(scope="module")
def results(
    make_shared_machine: MakeMachine, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Results]:
    """Run all contract tests on a machine."""
    shown = (ROOT, Path(sys.base_prefix)) if Path(sys.base_prefix) != Path("/usr") else (ROOT,)
    machine = make_shared_machine("contracts", "10.99.0.1/24", shown)
    made = selfhosted.make_control_plane(machine, tmp_path_factory.mktemp("pki") / "pki")
    made.install_kubelet(machine)
    open_read_only_port(machine)
    made.wait_for_node(machine)
    made.install_admin(machine, ADMIN)
    return run_contracts(machine)


def open_read_only_port(machine: Machine) -> None:
    """Have the kubelet list its pods on the port that asks for no credentials, too."""
    unit = "/etc/systemd/system/kubelet.service"
    machine.sh(f"sed -i 's/--read-only-port=0/--read-only-port=10255/' {unit}")
    machine.sh("systemctl daemon-reload && systemctl restart kubelet")


def run_contracts(machine: Machine) -> Mapping[str, Results]:
    """Run pytest in the machine; return what became of each module."""
    pytest_command = [
        sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short",
        f"--junitxml={RESULTS}", "tests/contract",
    ]  # fmt: skip
    here = f"cd {shlex.quote(str(ROOT))} && CHECKPOINTD_TEST_ADMIN={ADMIN}"
    said = machine.sh(f"{here} {shlex.join(pytest_command)}", check=False, timeout=400)
    print(said)
    assert machine.path(RESULTS).exists(), said
    return read_results(machine.path(RESULTS).read_text())


def read_results(text: str) -> Mapping[str, Results]:
    """Read JUnit's XML as pytest writes it."""
    found: defaultdict[str, Results] = defaultdict(Results)
    for case in ElementTree.fromstring(text).iter("testcase"):
        module = found[case.attrib["classname"].rpartition(".")[2]]
        name = case.attrib["name"]
        for outcome in case:
            words = f"{outcome.get('message', '')}\n{outcome.text or ''}"
            if outcome.tag in {"failure", "error"}:
                module.failed[name] = words
            elif outcome.tag == "skipped":
                module.skipped[name] = words
        if name not in module.failed and name not in module.skipped:
            module.passed += 1
    return found


@pytest.mark.parametrize("module", MODULES)
def test_what_holds_on_the_embedded_node_holds_on_a_real_one(
    results: Mapping[str, Results], module: str
) -> None:
    found = results[module]
    told = "\n\n".join(f"{name}\n{words}" for name, words in found.failed.items())
    assert not found.failed, f"{len(found.failed)} of {module} failed: {[*found.failed]}\n{told}"
    assert found.skipped.keys() <= SKIPPED.keys(), found.skipped
    assert found.passed
