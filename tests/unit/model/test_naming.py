"""Names of copies: what kubelets, file systems and DNS allow, and no two alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from checkpointd.model import naming
from checkpointd.render.gate import check_manifest
from checkpointd.render.identity import is_subdomain
from tests.builders.pods import copy_pod

DIGEST = naming.activation_digest("generation", "boot", 1)
LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,60}[a-z0-9])?", fullmatch=True)
NAMES = st.lists(LABELS, min_size=1, max_size=4).map(".".join).filter(is_subdomain)


@given(NAMES, LABELS)
def test_a_copys_name_fits_with_the_nodes_name_and_is_a_subdomain(name: str, node: str) -> None:
    full = f"{naming.copy_name(name, DIGEST, node)}-{node}"
    assert is_subdomain(full)
    # The kubelet makes a log directory <namespace>_<name>_<uid>.
    assert len("_".join(("n" * 63, full, naming.copy_uid(DIGEST)))) <= 255


@given(NAMES, NAMES.filter(lambda node: len(node) <= 200))
def test_a_node_with_a_very_long_name_gets_a_valid_copy_too(name: str, node: str) -> None:
    assert is_subdomain(f"{naming.copy_name(name, DIGEST, node)}-{node}")


@given(st.text(max_size=5), st.text(max_size=5), st.integers(0, 9))
def test_every_uid_is_one_that_the_kubelet_can_bear(first: str, second: str, number: int) -> None:
    uid = naming.copy_uid(naming.activation_digest(first, second, number))
    assert check_manifest(copy_pod(metadata={"uid": uid}), "node-1") == ()


def test_a_short_name_stays_and_long_ones_that_differ_at_the_end_stay_apart() -> None:
    assert naming.copy_name("web", DIGEST, "node-1") == f"web-{DIGEST[:6]}"
    long = "a" * 240
    assert naming.copy_name(f"{long}-1", DIGEST, "n") != naming.copy_name(f"{long}-2", DIGEST, "n")


def test_each_activation_has_a_name_and_a_uid_of_its_own() -> None:
    digests = {
        naming.activation_digest(generation, boot, counter)
        for generation in ("a", "b")
        for boot in ("1", "2")
        for counter in (1, 2)
    }
    assert len({naming.copy_name("web", digest, "n") for digest in digests}) == 8
    assert len({naming.copy_uid(digest) for digest in digests}) == 8


def test_s5_file_names_of_two_pods_never_collide() -> None:
    assert naming.manifest_file("a-b", "c") != naming.manifest_file("a", "b-c")
    assert naming.manifest_file("a", "b.c") != naming.manifest_file("a.b", "d.c")
    assert naming.manifest_file("a", "b") == "checkpointd.a.b.json"
    long = naming.manifest_file("a", "b" * 250)
    assert len(long) < 200
    assert long != naming.manifest_file("a", "b" * 251)


def test_the_hostname_is_a_label_or_none() -> None:
    assert naming.copy_hostname("", "web") == "web"
    assert naming.copy_hostname("own", "web") == "own"
    assert naming.copy_hostname("", "w" * 62 + "-x") == "w" * 62
    assert naming.copy_hostname("", "web.a") == ""
