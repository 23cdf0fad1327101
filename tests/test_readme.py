"""Hold the README to its word: what it tells an operator to type or to look at exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checkpointd import settings
from checkpointd.cli import arguments
from checkpointd.model import permissions, pods
from checkpointd.model.evidence import Api
from checkpointd.model.observation import Verb
from checkpointd.store import overrides

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def found(pattern: str) -> set[str]:
    """Return what the README has of a pattern; there must be some."""
    matches = set(re.findall(pattern, README))
    assert matches, f"the README has no {pattern}"
    return matches


def test_every_verb_exists() -> None:
    verbs = found(r"(?:`|^    |\n    )checkpointd ([a-z]+)")
    assert verbs <= {"run", "help", *arguments.VERBS}
    assert {"status", "explain", "check", "render", "config", "doctor"} <= verbs


def test_every_role_exists() -> None:
    files = {path.name for path in (ROOT / "packaging/rbac").iterdir()}
    assert found(r"/usr/share/checkpointd/rbac/([a-z-]+\.yaml)") <= files
    names = {role.name for role in permissions.ROLES}
    assert found(r"`(checkpointd-(?:owners|kubelet))") == names


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", makefile, re.MULTILINE))
    assert found(r"(?:`|\n    )make ([a-z0-9]+)") <= targets


def test_every_unit_exists() -> None:
    units = {path.stem for path in (ROOT / "systemd").glob("*.service")}
    assert units == {"checkpointd", "checkpointd-freeze"}
    assert "systemctl enable --now checkpointd checkpointd-freeze" in README


def test_every_package_is_the_one_that_the_makefile_names() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    needed = set(re.findall(r"python3-[a-z]+", makefile))
    assert needed <= found(r"python3-[a-z]+")


def test_the_example_of_a_configuration_is_a_good_one(tmp_path: Path) -> None:
    (example,) = re.findall(r"toml\.d/10-selection\.toml\n((?:    .*\n)+)", README)
    file = tmp_path / "example.toml"
    file.write_text(re.sub(r"^    ", "", example, flags=re.MULTILINE))
    loaded = settings.load(file)
    assert loaded.policy.selection.namespaces == ("kube-system", "edge")
    assert [rule.namespace for rule in loaded.policy.selection.rules] == ["edge"]


@pytest.mark.parametrize("text", sorted(set(re.findall(r"echo '(\{.*\})'", README))))
def test_each_order_to_write_is_understood(text: str) -> None:
    assert overrides.parse_override(text.encode(), "README").verb is Verb.HOLD


def test_every_annotation_is_one_that_counts() -> None:
    known = {
        pods.CHECKPOINT_MARK,
        pods.RESTART_MARK,
        pods.PORT_SHARING_MARK,
        pods.TWO_WRITERS_MARK,
    }
    assert found(r"checkpointd\.io/[a-z-]+") <= known


@pytest.mark.parametrize("state", [Api.UNKNOWN, Api.FOREIGN, Api.NODE_DELETED])
def test_each_state_of_the_api_is_explained_as_status_says_it(state: Api) -> None:
    assert f"`API {state.value}`" in README
