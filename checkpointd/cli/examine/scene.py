"""Read what all examinations start from: settings, kubelet, record, the picture."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from checkpointd import settings
from checkpointd.cli import picture
from checkpointd.cli.picture import Picture
from checkpointd.clients import kubeconfig, kubelet_process
from checkpointd.clients.credentials import Credentials
from checkpointd.clients.proc import Procfs
from checkpointd.clock import Clock
from checkpointd.errors import CheckpointdError, ConfigError, SourceError, StoreError
from checkpointd.model.checkpoint import NodeRecord
from checkpointd.model.observation import KubeletProcess
from checkpointd.observe import places
from checkpointd.observe.places import Place
from checkpointd.settings import Paths, Settings
from checkpointd.store import node as node_file
from checkpointd.store.walk import Directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Hold what is known at the start; a ``..._problem`` is why something is not.

    ``kubelet`` is None where no kubelet runs (or where that is not known), ``record`` where nothing
    is recorded, ``picture`` where the daemon has left none. ``is_last_good`` says that ``settings``
    are an earlier configuration's, ``problems`` what is wrong with the present one.
    """

    config_file: Path
    settings: Settings
    problems: tuple[str, ...] = ()
    is_last_good: bool = False
    kubelet: KubeletProcess | None = None
    kubelet_problem: str = ""
    record: NodeRecord | None = None
    record_problem: str = ""
    picture: Picture | None = None
    picture_problem: str = ""

    @property
    def paths(self) -> Paths:
        """Return the places of the host."""
        return self.settings.paths

    @property
    def node_name(self) -> Place:
        """Return the node's name and who told of it."""
        return places.find_node_name(self.settings.policy.node_name, self.kubelet, self.record)

    def place(self, name: str) -> Place:
        """Return one of ``places.DEFAULTS`` and who told of it."""
        return places.find(name, self.settings.kubelet, self.kubelet, self.record)

    def credentials(self) -> Credentials:
        """Return who we are to the API server. Raises SourceError."""
        return kubeconfig.Kubeconfig(Path(self.place("kubeconfig").value)).read()

    def credentials_or_none(self) -> Credentials | None:
        """Return who we are to the kubelet, None where the kubeconfig cannot be read."""
        try:
            return self.credentials()
        except SourceError:
            return None


def look(config_file: Path) -> Scene:
    """Read it all. Raises ConfigError for a configuration that was named and is not there."""
    found, problems, is_last_good = _read_settings(config_file)
    kubelet, kubelet_problem = _find_kubelet(found.paths)
    record, record_problem = _read_record(found.paths)
    seen, picture_problem = _read_picture(config_file)
    return Scene(
        config_file=config_file,
        settings=found,
        problems=problems,
        is_last_good=is_last_good,
        kubelet=kubelet,
        kubelet_problem=kubelet_problem,
        record=record,
        record_problem=record_problem,
        picture=seen,
        picture_problem=picture_problem,
    )


def _read_settings(file: Path) -> tuple[Settings, tuple[str, ...], bool]:
    try:
        loaded = settings.load_or_last_good(file)
    except ConfigError as error:
        faults = tuple(str(problem) for problem in error.problems)
        return Settings(paths=settings.read_paths(file)), faults, False
    return loaded.settings, tuple(map(str, loaded.problems)), loaded.is_last_good


def _find_kubelet(paths: Paths) -> tuple[KubeletProcess | None, str]:
    try:
        procfs = Procfs(paths.proc)
        process = procfs.find_kubelet()
        if process is None:
            return None, ""
        boot_id = Clock(paths.boot_id).boot_id
        return kubelet_process.read_kubelet(procfs, process, boot_id), ""
    except (SourceError, OSError) as error:
        return None, str(error)


def _read_record(paths: Paths) -> tuple[NodeRecord | None, str]:
    try:
        if not paths.state.exists():
            return None, ""
        with Directory.open(paths.state) as root:
            return node_file.read_node(root), ""
    except (StoreError, OSError) as error:
        return None, str(error)


def _read_picture(config_file: Path) -> tuple[Picture | None, str]:
    try:
        return picture.read(config_file), ""
    except (CheckpointdError, OSError) as error:
        return None, str(error).partition("\n")[0]
