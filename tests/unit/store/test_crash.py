"""SIGKILL before and after every effect: what is found then is the old or the new, never half.

Each case runs in a forked process that is killed at one effect; then the store is loaded as after a
start, and the same is done again, which must end as if nothing had happened. After an effect is
before the next one, as far as a disk can tell: only the last is tried on both sides.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from checkpointd.act.manifests import ManifestDirectory
from checkpointd.json_fields import write_canonical
from checkpointd.model.checkpoint import Checkpoint, Phase
from checkpointd.store.checkpoints import CheckpointStore
from checkpointd.store.durable import Disk
from tests.builders import stored
from tests.fakes.faulty_disk import FaultyDisk

OLD = stored.candidate()
NEW = stored.candidate(stored.volume("certs", {"tls.crt": b"certificate 2", "tls.key": b"key 2"}))
ACTIVATION = stored.activation(OLD)


@dataclass
class Site:
    """A store and a manifest directory below one path."""

    top: Path
    disk: Disk

    def __post_init__(self) -> None:
        (self.top / "manifests").mkdir(exist_ok=True)
        self.manifests = ManifestDirectory(self.disk, lambda: self.top / "manifests")
        self.store = CheckpointStore(self.top / "store", self.disk)
        self.stored = self.store.load()
        self.manifests.remove_leftovers()


def manifest() -> bytes:
    annotations = {
        "checkpointer.alpha.coreos.com/checkpoint-of": "api",
        "checkpointd.io/slot": stored.SLOT.name,
    }
    metadata = {"name": ACTIVATION.name, "namespace": "kube-system", "annotations": annotations}
    return write_canonical({"apiVersion": "v1", "kind": "Pod", "metadata": metadata})


def inactive() -> Checkpoint:
    return stored.checkpoint(OLD)


def active() -> Checkpoint:
    return replace(inactive(), phase=Phase.OFFERED, activation=ACTIVATION, activations=1)


def start(site: Site) -> None:
    site.store.save_checkpoint(stored.checkpoint())
    site.store.write_generation(OLD, 1, stored.NOW)
    site.store.save_checkpoint(inactive())


def snapshot(site: Site) -> None:
    site.store.write_generation(NEW, 2, stored.NOW)
    site.store.save_checkpoint(stored.checkpoint(OLD, NEW))


def snapshot_beside_copy(site: Site) -> None:
    site.store.write_generation(NEW, 2, stored.NOW)
    known = stored.checkpoint(OLD, NEW)
    site.store.save_checkpoint(
        replace(known, phase=Phase.OFFERED, activation=ACTIVATION, activations=1)
    )


def activate(site: Site) -> None:
    site.store.save_checkpoint(active())
    site.store.read_manifest(stored.SLOT, OLD.hash)
    site.store.make_active(stored.SLOT, stored.COPY_UID, OLD.hash)
    site.manifests.place(ACTIVATION.file, manifest())


def hand_back(site: Site) -> None:
    site.manifests.remove(ACTIVATION.file)
    site.store.save_checkpoint(replace(active(), phase=Phase.STORED, activation=None))
    site.store.remove_active(stored.SLOT, stored.COPY_UID)


def rotate(site: Site) -> None:
    rotated = replace(ACTIVATION, generation=NEW.hash)
    site.store.save_checkpoint(
        replace(stored.checkpoint(OLD, NEW), phase=Phase.SERVING, activation=rotated)
    )
    site.store.make_active(stored.SLOT, stored.COPY_UID, NEW.hash)


def prune(site: Site) -> None:
    site.store.save_checkpoint(stored.checkpoint(NEW))
    site.store.prune(stored.SLOT, frozenset({NEW.hash}))


def remove(site: Site) -> None:
    site.store.remove(stored.SLOT)


STORIES: dict[str, tuple[Callable[[Site], None], tuple[Callable[[Site], None], ...]]] = {
    "first snapshot": (start, ()),
    "snapshot": (snapshot, (start,)),
    "activation": (activate, (start,)),
    "hand-back": (hand_back, (start, activate)),
    "rotation": (rotate, (start, activate, snapshot_beside_copy)),
    "pruning": (prune, (start, snapshot)),
    "removal": (remove, (start, activate, hand_back)),
}


def run_and_die(site_top: Path, act: Callable[[Site], None], at: int, when: str) -> bool:
    """Run ``act`` in a process of its own that is killed at an effect; False if it was not."""
    with warnings.catch_warnings():
        # Python 3.12 warns of threads: the child only calls what needs none of them.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            disk = FaultyDisk()
            site = Site(site_top, disk)
            disk.arm(at, when)
            act(site)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def check_no_half_manifest(top: Path) -> None:
    """Check what a kubelet sees: whole manifests, whose files are all there."""
    directory = top / "manifests"
    for path in directory.iterdir() if directory.exists() else ():
        if path.name.startswith("."):
            continue
        assert path.read_bytes() == manifest()
        volumes = top / "store/checkpoints/kube-system" / stored.SLOT.name / "active"
        certs = volumes / stored.COPY_UID / "certs"
        pair = (certs / "tls.crt").read_bytes(), (certs / "tls.key").read_bytes()
        assert pair in ((b"certificate 1", b"key 1"), (b"certificate 2", b"key 2"))


def check_loaded(site: Site) -> None:
    """Check that nothing is damaged and that every generation named is whole."""
    assert site.stored.damaged == ()
    for checkpoint in site.stored.checkpoints.values():
        for generation in checkpoint.generations:
            assert site.store.read_manifest(stored.SLOT, generation.hash)
    assert list(site.top.rglob(".checkpointd-*")) == []


def copy(template: Path, to: Path) -> None:
    shutil.copytree(template, to, symlinks=True, ignore=shutil.ignore_patterns("reserve"))


@pytest.fixture
def ram() -> Iterator[Path]:
    """Return a directory in memory where there is one: a killed process does not need a disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


@pytest.mark.parametrize("story", STORIES)
def test_d2_d4_d6_a_crash_at_any_effect_leaves_the_old_or_the_new(ram: Path, story: str) -> None:
    act, before = STORIES[story]
    template = ram / "template"
    (template / "store").mkdir(mode=0o700, parents=True)
    for earlier in before:
        earlier(Site(template, Disk()))
    finished = ram / "finished"
    copy(template, finished)
    old = Site(finished, Disk()).stored.checkpoints
    counter = FaultyDisk()
    site = Site(finished, counter)
    counter.arm(0, "before")
    act(site)
    effects = counter.calls
    new = Site(finished, Disk()).stored.checkpoints
    wanted = stored.tree(finished)
    points = [(at, "before") for at in range(1, effects + 1)] + [(effects, "after")]
    for number, (at, when) in enumerate(points):
        top = ram / str(number)
        copy(template, top)
        assert run_and_die(top, act, at, when), f"not killed {when} effect {at}"
        check_no_half_manifest(top)
        found = Site(top, Disk())
        check_loaded(found)
        assert found.stored.checkpoints in (old, new, {stored.SLOT: stored.checkpoint()})
        act(found)
        Site(top, Disk())
        assert stored.tree(top) == wanted, f"killed {when} effect {at}"
        shutil.rmtree(top)
    print(f"{story}: {effects} effects, {len(points)} kills")
