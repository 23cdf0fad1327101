"""What doctor makes of what it sees: each judgement on plain values and small directories."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from checkpointd.cli.examine import cluster, daemon, disk, identity, kubelet, manifests, sections
from checkpointd.cli.examine.disk import Mount
from checkpointd.cli.examine.finding import Finding, Level, good, unknown
from checkpointd.cli.examine.scene import Scene
from checkpointd.clients.certificates import Certificate
from checkpointd.errors import SourceError
from checkpointd.model.checkpoint import NodeRecord
from checkpointd.model.observation import ManifestFile
from checkpointd.observe.places import Origin, Place
from checkpointd.settings import KubeletSettings, Settings

NOW = datetime(2026, 3, 1, tzinfo=timezone.utc)
YEAR = timedelta(days=365)
EMPTY = Scene(config_file=Path("/c"), settings=Settings())
AS_ROOT = os.geteuid() == 0


def levels(findings: Iterable[Finding]) -> list[Level]:
    """Return how bad each finding is; every bad one says what it costs and what to do."""
    found = list(findings)
    for finding in found:
        if finding.level in (Level.WARNING, Level.FAULT):
            assert finding.costs
            assert finding.remedy
    return [finding.level for finding in found]


# ---- sections ---------------------------------------------------------------------------------
def test_an_examination_that_hangs_is_unknown_and_keeps_what_it_has() -> None:
    def hang(_scene: Scene) -> Iterator[Finding]:
        yield good("a", "seen")
        time.sleep(60)

    def swift(_scene: Scene) -> Iterator[Finding]:
        yield good("b", "seen")

    pair = (("slow", hang), ("swift", swift))
    slow, fast = sections.examine(EMPTY, pair, time.monotonic() + 0.2)
    assert levels(slow.findings) == [Level.OK, Level.UNKNOWN]
    assert levels(fast.findings) == [Level.OK]
    assert sections.worst([slow, fast]) is Level.UNKNOWN


def test_an_examination_that_fails_is_unknown() -> None:
    def fail(_scene: Scene) -> Iterator[Finding]:
        yield good("a", "seen")
        raise SourceError("no answer")

    (found,) = sections.examine(EMPTY, (("it", fail),), time.monotonic() + 10)
    assert found.findings[1] == unknown("it", "no answer")


def test_the_worst_finding_makes_the_exit_code() -> None:
    codes = [level.exit_code for level in Level]
    assert codes == [0, 0, 1, 1, 2]


# ---- daemon ---------------------------------------------------------------------------------
def test_missing_capabilities_are_named_with_what_they_cost() -> None:
    assert levels(daemon.capabilities(0b10000000000000001101)) == [Level.OK]
    (found,) = daemon.capabilities(0b1101)
    assert found.level is Level.WARNING
    assert "CAP_SYS_PTRACE" in found.says
    assert "serves the API" in found.costs
    assert levels(daemon.capabilities(None)) == [Level.UNKNOWN]
    assert len(list(daemon.capabilities(0))) == 4


def test_a_kubelet_in_another_unit_wants_an_order() -> None:
    assert levels(daemon.order("kubelet.service", ("kubelet.service", "b"))) == [Level.OK]
    (found,) = daemon.order("k3s.service", ("kubelet.service",))
    assert found.level is Level.WARNING
    assert "Before=k3s.service" in found.remedy
    assert levels(daemon.order("", ())) == []


@pytest.mark.parametrize(
    ("directory", "writable", "is_good"),
    [
        ("/etc/kubernetes/manifests", ("-/etc/kubernetes",), True),
        ("/etc/kubelet.d", ("-/etc/kubernetes",), False),
        ("/etc/kubernetes-other/manifests", ("-/etc/kubernetes",), False),
        ("/anywhere", ("/",), True),
        ("/etc/kubelet.d", (), False),
    ],
)
def test_a_unit_must_be_able_to_write_manifests(
    directory: str, writable: tuple[str, ...], is_good: bool
) -> None:
    assert levels(daemon.writes(directory, writable)) == ([] if is_good else [Level.WARNING])


def test_faults_of_the_configuration_are_told_one_by_one() -> None:
    scene = Scene(config_file=Path("/c"), settings=Settings(), problems=("a: 1", "b: 2"))
    assert levels(daemon.examine_configuration(scene)) == [Level.FAULT, Level.FAULT]
    last_good = Scene(
        config_file=Path("/c"), settings=Settings(), problems=("a: 1",), is_last_good=True
    )
    assert levels(daemon.examine_configuration(last_good)) == [Level.WARNING]
    assert levels(daemon.examine_configuration(EMPTY)) == [Level.OK]


# ---- kubelet ---------------------------------------------------------------------------------
def place(path: Path) -> Place:
    return Place(str(path), Origin.KUBELET)


def test_a_static_pod_directory_may_be_absent_or_a_link_but_no_file(tmp_path: Path) -> None:
    assert levels(kubelet.directory("d", place(tmp_path / "absent"))) == [Level.NOTE]
    (tmp_path / "file").touch()
    assert levels(kubelet.directory("d", place(tmp_path / "file"))) == [Level.FAULT]
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    first, *_ = kubelet.directory("d", place(tmp_path / "link"))
    assert first.level is Level.NOTE
    assert f"{tmp_path}/real" in first.says


def test_a_static_pod_directory_that_others_write_is_warned_of(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir(mode=0o700)
    if AS_ROOT:
        assert levels(kubelet.directory("d", place(tmp_path / "d"))) == [Level.OK]
    (tmp_path / "d").chmod(0o777)
    assert levels(kubelet.directory("d", place(tmp_path / "d"))) == [Level.WARNING]


def test_without_a_kubelet_its_things_are_notes(tmp_path: Path) -> None:
    settings = KubeletSettings(manifest_dir=str(tmp_path / "m"), root_dir=str(tmp_path / "r"))
    scene = Scene(config_file=Path("/c"), settings=Settings(kubelet=settings))
    found = list(kubelet.examine_kubelet(scene))
    assert levels(found) == [Level.WARNING, Level.UNKNOWN, Level.NOTE, Level.NOTE]
    assert "set in the configuration" in found[2].says


def test_a_runtime_that_is_not_there_is_a_warning(tmp_path: Path) -> None:
    settings = KubeletSettings(cri_socket=str(tmp_path / "none.sock"))
    scene = Scene(config_file=Path("/c"), settings=Settings(kubelet=settings))
    assert levels(kubelet.examine_runtime(scene)) == [Level.WARNING]


# ---- disk ---------------------------------------------------------------------------------
MOUNTS = """\
21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
22 21 0:20 / /run rw,nosuid - tmpfs tmpfs rw,size=1k
23 21 8:2 / /var rw - xfs /dev/sda2 ro,attr2
24 23 0:30 / /var/lib/a\\040b rw shared:1 - nfs4 host:/x rw
25 21 8:3 / /var rw - btrfs /dev/sda3 rw
odd line
"""


@pytest.mark.parametrize(
    ("path", "kind", "where", "read_only"),
    [
        ("/home/x", "ext4", "/", False),
        ("/run/checkpointd", "tmpfs", "/run", False),
        ("/var/lib/checkpointd", "btrfs", "/var", False),
        ("/var/lib/a b/c", "nfs4", "/var/lib/a b", False),
        ("/var2", "ext4", "/", False),
    ],
)
def test_a_paths_file_system_is_the_deepest_and_last_mount(
    path: str, kind: str, where: str, read_only: bool
) -> None:
    found = disk.find_mount(Path(path), MOUNTS)
    assert found == Mount(kind=kind, where=where, read_only=read_only)


def test_a_file_system_may_be_read_only_itself() -> None:
    found = disk.find_mount(Path("/var/x"), MOUNTS.replace("25 21 8:3 /", "odd"))
    assert found == Mount(kind="xfs", where="/var", read_only=True)
    text = "21 1 8:1 / / rw - ext4 /dev/sda1 ro\n"
    assert disk.find_mount(Path("/a"), text) == Mount(kind="ext4", where="/", read_only=True)
    assert disk.find_mount(Path("/a"), "") is None


@pytest.mark.parametrize(
    ("kind", "read_only", "level"),
    [
        ("ext4", False, Level.OK),
        ("ext4", True, Level.FAULT),
        ("tmpfs", False, Level.FAULT),
        ("nfs4", False, Level.WARNING),
        ("fuse.sshfs", False, Level.WARNING),
    ],
)
def test_a_store_needs_a_disk_of_this_node(kind: str, read_only: bool, level: Level) -> None:
    assert levels([disk.judge_mount(Mount(kind=kind, where="/", read_only=read_only))]) == [level]


@pytest.mark.parametrize(
    ("blocks", "inodes", "expected"),
    [
        (1 << 20, 1 << 20, [Level.OK]),
        (1 << 10, 1 << 20, [Level.WARNING]),
        (1, 1 << 20, [Level.FAULT]),
        (1 << 20, 5, [Level.OK, Level.WARNING]),
    ],
)
def test_room_is_bytes_and_inodes(blocks: int, inodes: int, expected: list[Level]) -> None:
    found = os.statvfs_result(
        (4096, 4096, 1 << 30, blocks, blocks, 1 << 30, inodes, inodes, 0, 255)
    )
    assert levels(disk.room(Path("/"), found)) == expected


# ---- manifests ---------------------------------------------------------------------------------
def a_file(name: str, pod: str = "", **more: object) -> ManifestFile:
    problem = str(more.get("problem", ""))
    return ManifestFile(
        name=name, sha256="x", namespace="kube-system", pod_name=pod, problem=problem
    )


def of(*files: ManifestFile) -> dict[str, ManifestFile]:
    return {file.name: file for file in files}


@pytest.mark.parametrize(
    "name",
    [
        "a.yaml~", "a.yaml.bak", "a.yaml.orig", "a.yaml.1", "#a.yaml#", "a.yaml.dpkg-old",
        "a.yaml.rpmsave", "a.yaml.mcdorig", "a.bak.yaml", "a-backup.yaml", "a copy.yaml",
        "a.disabled", "a.OLD", "a.yaml.swp",
    ],
)  # fmt: skip
def test_d2_what_looks_put_aside_is_run_all_the_same(name: str) -> None:
    assert levels(manifests.strays(of(a_file(name, "a")))) == [Level.WARNING]


@pytest.mark.parametrize("name", ["a.yaml", "etcd", "kube-apiserver.json", "copybook.yaml"])
def test_a_plain_manifest_is_no_stray(name: str) -> None:
    assert levels(manifests.strays(of(a_file(name, "a")))) == []


def test_what_is_no_manifest_is_warned_of() -> None:
    files = of(a_file("a", problem="kind: not a Pod"), a_file("d", problem="a directory: skipped"))
    assert levels(manifests.strays(files)) == [Level.WARNING, Level.NOTE]


def test_files_of_one_pod_are_named_together() -> None:
    files = of(a_file("a", "x"), a_file("b", "y"), a_file("c", "x"), a_file("d"), a_file("e"))
    (found,) = manifests.duplicates(files)
    assert found.subject == "kube-system/x"
    assert "a, c" in found.says


def test_bootkubes_checkpointer_is_seen(tmp_path: Path) -> None:
    assert levels(manifests.checkpointer(tmp_path, {})) == []
    (tmp_path / "inactive-manifests").mkdir()
    assert levels(manifests.checkpointer(tmp_path, {})) == [Level.NOTE]
    running = of(a_file("a.json", "pod-checkpointer-node-1"))
    assert levels(manifests.checkpointer(tmp_path, running)) == [Level.WARNING]


def test_a_directory_is_looked_through(tmp_path: Path) -> None:
    directory = tmp_path / "manifests"
    directory.mkdir()
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
    for name in ("a.yaml", "a.yaml.bak", ".a.yaml.swp", ".checkpointd-x"):
        (directory / name).write_text(pod)
        (directory / name).chmod(0o600)
    (directory / "a.yaml").chmod(0o666)
    scene = Scene(
        config_file=Path("/c"),
        settings=Settings(kubelet=KubeletSettings(manifest_dir=str(directory))),
    )
    found = [(one.subject, one.level) for one in manifests.examine_manifests(scene)]
    assert found == [
        ("manifests", Level.OK),
        ("a.yaml.bak", Level.WARNING),
        ("default/a", Level.WARNING),
        ("a.yaml", Level.WARNING),
        (".a.yaml.swp", Level.NOTE),
        (".checkpointd-x", Level.NOTE),
    ]


def test_a_directory_that_is_not_there_is_empty(tmp_path: Path) -> None:
    settings = KubeletSettings(manifest_dir=str(tmp_path / "absent"))
    scene = Scene(config_file=Path("/c"), settings=Settings(kubelet=settings))
    assert levels(manifests.examine_manifests(scene)) == [Level.OK]


# ---- identity ---------------------------------------------------------------------------------
def certificate(user: str = "system:node:node-1", *, left: timedelta = YEAR) -> Certificate:
    return Certificate(
        subject=f"CN={user}",
        issuer="CN=ca",
        user=user,
        names=(),
        not_before=NOW - YEAR,
        not_after=NOW + left,
    )


@pytest.mark.parametrize(
    ("left", "level"),
    [(YEAR, Level.OK), (timedelta(days=3), Level.WARNING), (-timedelta(days=1), Level.FAULT)],
)
def test_a_certificate_is_good_until_its_end(left: timedelta, level: Level) -> None:
    assert levels(identity.client(certificate(left=left), "node-1", NOW)) == [level]


def test_a_certificate_of_the_future_is_a_wrong_clock() -> None:
    (found,) = identity.client(certificate(), "node-1", NOW - 2 * YEAR)
    assert found.level is Level.FAULT
    assert "clock" in found.remedy


def test_a_certificate_of_another_node_is_a_fault() -> None:
    found = identity.client(certificate("system:node:node-2"), "node-1", NOW)
    assert levels(found) == [Level.OK, Level.FAULT]
    assert levels(identity.client(certificate("checkpointd"), "node-1", NOW)) == [Level.OK]
    assert levels(identity.client(certificate("system:node:node-2"), "", NOW)) == [Level.OK]


def test_a_kubeconfig_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    settings = KubeletSettings(kubeconfig=str(tmp_path / "absent"))
    scene = Scene(config_file=Path("/c"), settings=Settings(kubelet=settings))
    assert levels(identity.examine_credentials(scene)) == [Level.FAULT]


# ---- cluster ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("date", "level"),
    [
        ("Sun, 01 Mar 2026 00:00:00 GMT", Level.OK),
        ("Sun, 01 Mar 2026 00:00:20 GMT", Level.OK),
        ("Sun, 01 Mar 2026 00:10:00 GMT", Level.WARNING),
        ("Sat, 28 Feb 2026 23:00:00 GMT", Level.WARNING),
        ("Sun, 01 Mar 2026 00:00:00", Level.OK),
        ("", Level.NOTE),
        ("yesterday", Level.NOTE),
    ],
)
def test_two_clocks_are_compared(date: str, level: Level) -> None:
    assert levels([cluster.clock(date, NOW)]) == [level]


def test_without_a_name_nothing_can_be_asked() -> None:
    assert levels(cluster.examine_api(EMPTY)) == [Level.UNKNOWN]
    assert levels(cluster.examine_permissions(EMPTY)) == [Level.UNKNOWN]


@pytest.mark.parametrize(
    ("version", "is_old"), [("v1.20.2", True), ("v1.32.9", True), ("v1.33.0", False), ("", False)]
)
def test_an_old_kubelet_asks_for_more_than_is_ever_granted(version: str, is_old: bool) -> None:
    record = NodeRecord(
        node_name="n", boot_id="b", anchor="", anchor_uid="", node_uid="u", in_contact=True,
        contact_changed=None, node_deleted_since=None, all_gone_since=None,
        discovered={"kubelet_version": version},
    )  # fmt: skip
    scene = Scene(config_file=Path("/c"), settings=Settings(), record=record)
    assert cluster.asks_for_proxy(scene) is is_old
    assert not cluster.asks_for_proxy(EMPTY)
