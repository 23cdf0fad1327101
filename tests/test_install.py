"""Install into a stage with `make install`, as a package or an image would; no root."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import checkpointd

ROOT = Path(__file__).resolve().parent.parent


def make(target: str, stage: Path) -> None:
    """Run one target of the Makefile on `stage`."""
    command = ["make", "-s", target, f"DESTDIR={stage}", f"NODE_PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def files(stage: Path) -> set[str]:
    """List what is in `stage`, but for compiled files."""
    found = (path for path in stage.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {str(path.relative_to(stage)) for path in found}


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    make("install", tmp_path)
    return tmp_path


def test_install_lays_the_program_the_units_the_roles_and_the_configuration(stage: Path) -> None:
    modules = {
        f"usr/lib/checkpointd/{path.relative_to(ROOT)}" for path in ROOT.glob("checkpointd/**/*.py")
    }
    units = {f"lib/systemd/system/{path.name}" for path in ROOT.glob("systemd/*")}
    roles = {
        f"usr/share/checkpointd/rbac/{path.name}" for path in ROOT.glob("packaging/rbac/*.yaml")
    }
    assert roles
    assert files(stage) == modules | units | roles | {
        "usr/bin/checkpointd",
        "etc/checkpointd/checkpointd.toml",
    }
    assert (stage / "etc/checkpointd/checkpointd.toml.d").is_dir()


def test_install_keeps_a_configuration_that_is_there(stage: Path) -> None:
    configuration = stage / "etc/checkpointd/checkpointd.toml"
    configuration.write_text("# mine\n")
    make("install", stage)
    assert configuration.read_text() == "# mine\n"


def test_install_leaves_no_module_of_an_older_version(stage: Path) -> None:
    old = stage / "usr/lib/checkpointd/checkpointd/old.py"
    old.write_text("")
    make("install", stage)
    assert not old.exists()


def test_uninstall_leaves_the_configuration_alone(stage: Path) -> None:
    make("uninstall", stage)
    assert files(stage) == {"etc/checkpointd/checkpointd.toml"}


def test_the_launcher_runs_what_was_installed_from_any_directory(stage: Path) -> None:
    launcher = stage / "usr/bin/checkpointd"
    text = launcher.read_text()
    assert text.startswith("#!/usr/bin/python3 -I\n")
    assert launcher.stat().st_mode & 0o777 == 0o755
    launcher.write_text(text.replace("/usr/lib/checkpointd", str(stage / "usr/lib/checkpointd")))
    done = subprocess.run(
        [sys.executable, "-I", launcher, "version"],
        cwd="/",
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert checkpointd.__version__ in done.stdout, done.stderr
