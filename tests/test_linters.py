"""Run the linters and type checkers as tests: a failed one's message is what the tool says."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOOLS = Path(sys.executable).parent
LONGEST_FILE = 500
# `systemd-analyze security`, in tenths. What is left is what checkpointd is for: the network, root,
# other users' files, processes and owners; each directive in the unit says why it is there.
EXPOSURE = {"checkpointd.service": 25, "checkpointd-freeze.service": 12}

# Where git is not there to say what .gitignore says.
IGNORED = {".git", ".venv", "build", "dist", "__pycache__", ".hypothesis", ".artifacts"} | {
    f".{tool}_cache" for tool in ("mypy", "pytest", "ruff", "import_linter")
}
UNITS = sorted((ROOT / "systemd").iterdir())
SERVICES = [unit for unit in UNITS if unit.suffix == ".service"]


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run one tool; fail with what it printed if it exits other than 0."""
    done = subprocess.run(
        command, cwd=cwd, check=False, capture_output=True, text=True, timeout=600
    )
    if done.returncode != 0:
        name = Path(command[0]).name
        pytest.fail(f"{name} exited {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)


def fail_with(lines: list[str]) -> None:
    """Fail with these lines, if there are any."""
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def project_files() -> list[Path]:
    """List the files that are, or would be, in the repository; without git, what lies here."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if shutil.which(command[0]) and (ROOT / ".git").exists():
        listed = subprocess.run(
            command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
        )
        found = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        found = [p for p in ROOT.rglob("*") if not IGNORED.intersection(p.relative_to(ROOT).parts)]
    return [path for path in found if path.is_file()]


def python_files() -> list[Path]:
    """List the Python files that people wrote."""
    return [p for p in project_files() if p.suffix == ".py" and "_generated" not in p.parts]


# --- The tools -----------------------------------------------------------------------------------


def test_ruff_finds_nothing() -> None:
    run(TOOLS / "ruff", "check", "--quiet", "--output-format=concise")


def test_ruff_would_format_nothing() -> None:
    run(TOOLS / "ruff", "format", "--check", "--quiet", "--diff")


@pytest.mark.timeout(600)
def test_mypy_finds_nothing() -> None:
    run(TOOLS / "mypy", "--no-error-summary")


@pytest.mark.timeout(600)
def test_pyright_finds_nothing() -> None:
    run(TOOLS / "basedpyright", "--warnings")


def test_modules_import_only_from_the_floors_below() -> None:
    run(TOOLS / "lint-imports", "--no-cache")


# --- The units -----------------------------------------------------------------------------------


def stage_units(at: Path) -> None:
    """Lay the units, those they name, and an executable for each command into a root of its own."""
    units = at / "lib/systemd/system"
    units.mkdir(parents=True)
    for unit in UNITS:
        shutil.copy(unit, units)
        for command in re.findall(r"^Exec\w+=[-+@!:]*(/\S+)", unit.read_text(), re.MULTILINE):
            program = at / command.lstrip("/")
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
    for source in Path("/lib/systemd/system").iterdir():
        if source.suffix in {".target", ".slice", ".socket"} and source.is_file():
            shutil.copy(source, units)


needs_systemd_analyze = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine"
)


@needs_systemd_analyze
def test_systemd_takes_the_units_without_a_word(tmp_path: Path) -> None:
    stage_units(tmp_path)
    done = subprocess.run(
        ["systemd-analyze", "verify", f"--root={tmp_path}", "--man=no", *(u.name for u in UNITS)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    # An unknown directive is only a warning, with exit code 0.
    fail_with((done.stdout + done.stderr).splitlines())
    assert done.returncode == 0


@needs_systemd_analyze
@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_no_unit_is_more_exposed_than_it_was(unit: Path) -> None:
    threshold = f"--threshold={EXPOSURE[unit.name]}"
    run("systemd-analyze", "security", "--offline=yes", "--no-pager", threshold, unit)


# --- The house rules that no tool knows ----------------------------------------------------------


def test_no_file_outgrows_its_reader() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in python_files()}
    fail_with(
        [
            f"{path.relative_to(ROOT)}: {lines} lines, split what is over {LONGEST_FILE}"
            for path, lines in lengths.items()
            if lines > LONGEST_FILE
        ]
    )


SUPPRESSION = re.compile(
    r"#\s*(?P<what>noqa|type:\s*ignore|pyright:\s*ignore|mypy:\s*ignore)"
    r"(?P<codes>:\s*[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*|\[[\w, -]+\])?"
)
REASON = re.compile(r"[A-Za-z]{2,}.*[A-Za-z]{2,}")


def suppression_faults(source: str) -> list[str]:
    """Say of each suppression in `source` without a code, or without a reason, where it stands.

    The reason stands after the suppression, or in a comment of its own on the line above.
    """
    lines = source.splitlines()
    faults: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or not SUPPRESSION.search(token.string):
            continue
        row = token.start[0]
        above = lines[row - 2].strip() if row > 1 else ""
        if any(found["codes"] is None for found in SUPPRESSION.finditer(token.string)):
            faults.append(f"{row}: no code: {token.string}")
        elif not REASON.search(SUPPRESSION.sub("", token.string)) and not above.startswith("#"):
            faults.append(f"{row}: no reason: {token.string}")
    return faults


def test_every_suppression_has_its_code_and_its_reason() -> None:
    fail_with(
        [
            f"{path.relative_to(ROOT)}:{fault}"
            for path in python_files()
            for fault in suppression_faults(path.read_text())
        ]
    )


@pytest.mark.parametrize(
    ("line", "faults"),
    [
        ("x = 1  # noqa", 1),
        ("x = 1  # noqa: S603", 1),
        ("x = 1  # noqa: S603, S607 - the command is a constant", 0),
        ("x = 1  # type: ignore", 1),
        ("x = 1  # type: ignore[attr-defined]", 1),
        ("x = 1  # type: ignore[attr-defined]  # the stub is older than the library", 0),
        ("# The stub is older than the library.\nx = 1  # pyright: ignore[reportPrivateUsage]", 0),
        ("x = '# noqa'", 0),
    ],
)
def test_a_suppression_without_code_or_reason_is_found(line: str, faults: int) -> None:
    assert len(suppression_faults(line + "\n")) == faults


# Places on one machine, and the hosts that packages come from: a clone elsewhere has other ones.
PRIVATE = re.compile(
    r"(?<![\w.}])/work/(?:main|shared|\.library)|/root/\.\w|/home/\w+/"
    r"|\b(?:pypi|pythonhosted|npmjs|debian|golang)\.(?:org|com|net)\b"
)


def test_nothing_points_at_one_machine_or_at_a_registry() -> None:
    fail_with(
        [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
            for path in project_files()
            if path != Path(__file__).resolve()
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
            if PRIVATE.search(line)
        ]
    )


@pytest.mark.parametrize("script", [".ci/run", "tests/e2e/setup"])
def test_scripts_can_be_run(script: str) -> None:
    path = ROOT / script
    if not path.exists():
        pytest.skip(f"no {script}")
    assert os.access(path, os.X_OK), f"{script} is not executable"
