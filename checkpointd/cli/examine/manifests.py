"""Look into the static-pod directory for what the kubelet reads and nobody meant it to."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from checkpointd.cli.examine.finding import Finding, good, note, unknown, warning
from checkpointd.cli.examine.kubelet import OTHERS_WRITE
from checkpointd.cli.examine.scene import Scene
from checkpointd.clients.static_pods import ManifestReader
from checkpointd.errors import SourceError
from checkpointd.model import naming
from checkpointd.model.observation import ManifestFile

STRAY = re.compile(
    r"""
    .*~ | \#.*\# | .*\.\d+
    | .*\.(bak|backup|old|orig|mcdorig|save|saved|copy|disabled|off|rej|swp|tmp|new)
    | .*\.(dpkg-\w+|rpm(new|save|orig)|ucf-\w+)
    | .*[ ._-](bak|backup|old|orig|copy|disabled)(\.ya?ml|\.json)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What editors, package managers and people call what they put aside."""
CHECKPOINTER = "pod-checkpointer"
CHECKPOINTER_DIRECTORIES = ("inactive-manifests", "checkpoint-secrets", "checkpoint-configmaps")
"""bootkube, cmd/checkpoint: beside the static-pod directory."""
_MANY = 20


def examine_manifests(scene: Scene) -> Iterator[Finding]:
    """Say which entries of the static-pod directory are not what they should be."""
    path = Path(scene.place("manifest_dir").value)
    try:
        files = ManifestReader().read(path)
        hidden = _hidden(path)
    except (SourceError, OSError) as error:
        if not path.exists():
            yield good("manifests", f"none: {path} does not exist")
        else:
            yield unknown("manifests", str(error), "run this as root")
        return
    found = [*strays(files), *duplicates(files), *_modes(path, files), *hidden]
    found += checkpointer(path.parent, files)
    ours = sum(file.ours for file in files.values())
    yield good("manifests", f"{len(files)} in {path}, {ours} of them active copies")
    yield from found[:_MANY]
    if len(found) > _MANY:
        yield note("manifests", f"and {len(found) - _MANY} more findings of this kind")


def strays(files: Mapping[str, ManifestFile]) -> Iterator[Finding]:
    """Say which entries are no manifests, or look as if they were put aside."""
    for name, file in files.items():
        if file.problem.startswith("a directory"):
            yield note(name, "a directory: the kubelet skips it")
        elif file.problem:
            yield warning(
                name,
                f"no Pod: {file.problem}",
                "the kubelet reads it every 20 s and complains; where a Pod was, it is stopped",
                "repair it, or move it out of this directory",
            )
        elif STRAY.fullmatch(name):
            yield warning(
                name,
                f"looks put aside, but the kubelet runs it as {file.namespace}/{file.pod_name}: it "
                "reads every file, whatever its ending",
                "an old pod runs beside the new one, or in its place",
                "move it out of this directory",
            )


def duplicates(files: Mapping[str, ManifestFile]) -> Iterator[Finding]:
    """Say which pods several files define."""
    named: dict[tuple[str, str], list[str]] = {}
    for name, file in files.items():
        if file.pod_name:
            named.setdefault((file.namespace, file.pod_name), []).append(name)
    for (namespace, pod), names in named.items():
        if len(names) > 1:
            yield warning(
                f"{namespace}/{pod}",
                f"is defined by {', '.join(sorted(names))}",
                "the kubelet takes the last one that it reads and kills the pod of the others",
                "leave one of them in this directory",
            )


def checkpointer(directory: Path, files: Mapping[str, ManifestFile]) -> Iterator[Finding]:
    """Say whether bootkube's pod-checkpointer is, or was, at work; ``directory`` is above."""
    present = [name for name in CHECKPOINTER_DIRECTORIES if (directory / name).exists()]
    running = [name for name, file in files.items() if CHECKPOINTER in file.pod_name]
    if running:
        yield warning(
            CHECKPOINTER,
            f"bootkube's runs here too: {', '.join(running)}",
            "both place copies of the same pods",
            "remove it from the cluster and from this directory",
        )
    elif present:
        yield note(
            CHECKPOINTER,
            f"bootkube's has left {', '.join(present)} in {directory}",
            "remove them once checkpointd has checkpoints of its own",
        )


def _modes(directory: Path, files: Mapping[str, ManifestFile]) -> Iterator[Finding]:
    for name in files:
        # The manifest directory may be a single file, which is its own path then.
        path = directory / name if directory.is_dir() else directory
        try:
            status = path.stat()
        except OSError:
            continue
        if status.st_mode & OTHERS_WRITE and stat.S_ISREG(status.st_mode):
            yield warning(
                name,
                f"may be written by others than its owner ({stat.filemode(status.st_mode)})",
                "who can write it can have the whole node",
                f"chmod 0600 {path}",
            )


def _hidden(path: Path) -> list[Finding]:
    """Return what begins with a dot: the kubelet does not see it."""
    if not path.is_dir():
        return []
    found: list[Finding] = []
    for entry in sorted(path.iterdir()):
        if entry.name.startswith(naming.TEMPORARY_PREFIX):
            words = "ours, not finished: removed at the next start"
            found.append(note(entry.name, words))
        elif entry.name.startswith("."):
            words = "hidden: the kubelet does not read it"
            found.append(note(entry.name, words, "move it away if nobody needs it"))
    return found
