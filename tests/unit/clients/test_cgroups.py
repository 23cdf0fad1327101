from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clients import cgroups, proc
from checkpointd.errors import SourceError
from checkpointd.model.observation import Leaf
from tests.fakes.cgroup_tree import SCOPES, CgroupTree
from tests.fakes.processes import running

UID = "0f3a1b2c-1111-2222-3333-444455556666"
BOX, APP = "a" * 64, "b" * 64
V1 = ("systemd", "pids", "memory")
REAL = Path("/proc")


def reader(tree: CgroupTree, cgroup_root: str = "") -> cgroups.Cgroups:
    return cgroups.Cgroups(tree.root, proc.Procfs(REAL), lambda: cgroup_root)


@pytest.fixture
def pause(tmp_path: Path) -> Iterator[int]:
    with running(tmp_path, "pause") as process:
        yield process.pid


@pytest.mark.parametrize("controllers", [(), V1, ("memory",)], ids=["v2", "v1", "v1-memory"])
@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
@pytest.mark.parametrize("runtime", sorted(SCOPES))
@pytest.mark.parametrize("qos", ["", "burstable", "besteffort"])
@pytest.mark.parametrize("cgroup_root", ["", "/machine-one"])
def test_a_pod_is_found_wherever_kubelet_and_runtime_put_it(
    tmp_path: Path,
    controllers: tuple[str, ...],
    driver: str,
    runtime: str,
    qos: str,
    cgroup_root: str,
) -> None:
    tree = CgroupTree(
        root=tmp_path,
        controllers=controllers,
        driver=driver,
        runtime=runtime,
        cgroup_root=cgroup_root,
    ).make()
    tree.place(tree.container(UID, APP, qos), [os.getpid(), 2])
    read = reader(tree, cgroup_root).read_pod(UID)
    assert read.uid == UID
    assert read.leaves == (Leaf(id=APP, pids=(os.getpid(), 2), only_pause=False),)
    assert proc.parse_pod(tree.membership(tree.container(UID, APP, qos))) == UID


def test_a_pod_without_a_cgroup_has_no_leaves(tmp_path: Path) -> None:
    tree = CgroupTree(root=tmp_path).make()
    assert reader(tree).read_pod(UID).leaves == ()


def test_an_empty_leaf_is_told_apart_from_none(tmp_path: Path) -> None:
    tree = CgroupTree(root=tmp_path).make()
    tree.place(tree.container(UID, APP), [])
    assert reader(tree).read_pod(UID).leaves == (Leaf(id=APP, pids=(), only_pause=False),)


def test_a_tree_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        reader(CgroupTree(root=tmp_path / "nowhere")).read_pod(UID)


def test_a_tree_without_any_hierarchy_is_unknown(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no cgroup hierarchy"):
        reader(CgroupTree(root=tmp_path)).read_pod(UID)


def test_a_list_of_processes_that_is_none_is_unknown(tmp_path: Path) -> None:
    tree = CgroupTree(root=tmp_path).make()
    tree.place(tree.container(UID, APP), [])
    (tmp_path / tree.container(UID, APP) / "cgroup.procs").write_text("many", encoding="ascii")
    with pytest.raises(SourceError, match="not a list of processes"):
        reader(tree).read_pod(UID)


def test_nested_cgroups_count_to_their_container(tmp_path: Path) -> None:
    tree = CgroupTree(root=tmp_path).make()
    tree.place(tree.container(UID, APP), [])
    tree.place(f"{tree.container(UID, APP)}/init.scope", [7])
    tree.place(f"{tree.container(UID, APP)}/system.slice/sshd.service", [8, 9])
    (leaf,) = reader(tree).read_pod(UID).leaves
    assert sorted(leaf.pids) == [7, 8, 9]


def test_processes_in_the_pods_own_cgroup_are_a_leaf_without_a_name(tmp_path: Path) -> None:
    tree = CgroupTree(root=tmp_path).make()
    tree.place(tree.pod(UID), [11])
    assert reader(tree).read_pod(UID).leaves == (Leaf(id="", pids=(11,), only_pause=False),)


def test_crios_monitor_is_no_container(tmp_path: Path) -> None:
    tree = CgroupTree(root=tmp_path, driver="systemd", runtime="crio").make()
    tree.place(f"{tree.pod(UID)}/crio-conmon-{APP}.scope", [12])
    tree.place(tree.container(UID, APP), [13])
    assert [leaf.id for leaf in reader(tree).read_pod(UID).leaves] == [APP]


def test_a_leaf_whose_one_process_is_a_pause_says_so(tmp_path: Path, pause: int) -> None:
    tree = CgroupTree(root=tmp_path / "cgroup").make()
    tree.place(tree.container(UID, BOX), [pause])
    tree.place(tree.container(UID, APP), [pause, os.getpid()])
    leaves = {leaf.id: leaf.only_pause for leaf in reader(tree).read_pod(UID).leaves}
    assert leaves == {BOX: True, APP: False}


def test_a_pod_that_comes_and_goes_is_followed(tmp_path: Path) -> None:
    tree = CgroupTree(root=tmp_path).make()
    read = reader(tree)
    tree.place(tree.container(UID, APP), [1])
    assert len(read.read_pods([UID])[UID].leaves) == 1
    tree.remove(tree.pod(UID))
    assert read.read_pods([UID])[UID].leaves == ()
    tree.place(tree.container(UID, APP, "besteffort"), [2])
    assert read.read_pods([UID])[UID].leaves[0].pids == (2,)


@pytest.mark.parametrize("uid", ["", "../../etc", "a/b", "a_b", ".", "x" * 300])
def test_a_uid_that_is_no_name_has_no_cgroup(tmp_path: Path, uid: str) -> None:
    tree = CgroupTree(root=tmp_path).make()
    assert reader(tree).read_pod(uid).leaves == ()


@pytest.mark.parametrize(
    ("text", "uid"),
    [
        ("0::/kubepods/burstable/podabc-1/f00\n", "abc-1"),
        ("12:pids:/kubepods/podabc-1/f00\n1:name=systemd:/kubepods/podabc-1/f00\n", "abc-1"),
        ("0::/a.slice/a-kubepods.slice/a-kubepods-podab_1.slice/x.scope\n", "ab-1"),
        ("0::/../../kubepods/besteffort/podabc/f00\n", "abc"),
        ("0::/system.slice/kubelet.service\n", None),
        ("0::/user.slice/pod-of-mine/x\n", None),
        ("", None),
    ],
)
def test_the_pod_of_a_process_is_read_from_its_cgroup(text: str, uid: str | None) -> None:
    assert proc.parse_pod(text) == uid
