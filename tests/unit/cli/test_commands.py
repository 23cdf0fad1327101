"""Test the command line as an operator has it: a machine's files, arguments, text and exit code."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import checkpointd
from checkpointd.__main__ import main
from checkpointd.cli import arguments
from checkpointd.json_fields import mapping, parse_object, text
from checkpointd.model.evidence import Api, Is
from checkpointd.model.status import KubeletStatus, NextStatus, SourceState, SourceStatus
from tests.unit.cli import builders
from tests.unit.cli.builders import Machine


@pytest.fixture
def node(tmp_path: Path) -> Machine:
    """Lay out a machine on which the daemon lives and has written nothing yet."""
    node = builders.machine(tmp_path)
    # The daemon of the builders started 5000 s before it wrote.
    node.process(builders.node(now=node.now()).pid, started=node.now().seconds - 5000)
    return node


class Ran:
    """Hold what one command printed and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err


@pytest.fixture
def run(node: Machine, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs one command on the machine."""
    return Run(node, capsys)


class Run:
    """Run commands on a machine."""

    def __init__(self, node: Machine, capsys: pytest.CaptureFixture[str]) -> None:
        self.node = node
        self.capsys = capsys

    def __call__(self, *argv: str) -> Ran:
        try:
            code = main(["--config", str(self.node.config), *argv])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = self.capsys.readouterr()
        return Ran(code, out, err)


# ---- status -------------------------------------------------------------------------------------
def test_status_of_a_healthy_node_is_zero(node: Machine, run: Run) -> None:
    now = node.now()
    node.write(builders.node(builders.checkpoint(now=now), now=now))
    ran = run("status")
    assert ran.code == 0
    assert "checkpointd 0.1.0 on node worker-1: healthy" in ran.out
    assert (
        "kube-system/kube-apiserver-x7k2p  stored  1 h  exclusive, API  0a1b2c3d proven" in ran.out
    )
    assert "API       trusted for 1 h 6 min (10.0.0.1:6443)" in ran.out
    assert "NOT RUNNING" not in ran.out


def test_b8_status_with_a_serving_copy_is_two(node: Machine, run: Run) -> None:
    now = node.now()
    node.write(builders.node(builders.serving(now=now), now=now))
    ran = run("status")
    assert ran.code == 2
    assert "a copy is active" in ran.out
    assert "hand back when a successor may start" in ran.out


def test_status_shows_all_that_stands_in_the_picture(node: Machine, run: Run) -> None:
    node.write(builders.everything(node.now()))
    out = run("status").out
    for expected in (
        "the configuration is faulty",
        "kube-system/web-0: marked, but NOT checkpointed:",
        "spec.volumes[1].persistentVolumeClaim: a static pod may not reference a claim",
        "remedy: use a hostPath",
        "edge/web: not a listed namespace",
        "node: hold without an end (x)",
        "frozen    PID 1 says stopping",
    ):
        assert expected in out


@pytest.mark.parametrize("what", ["alarm", "source", "api", "refused", "refused now", "pod alarm"])
def test_status_is_one_for_all_that_leaves_a_pod_unguarded(
    what: str, node: Machine, run: Run
) -> None:
    now = node.now()
    good = builders.node(builders.checkpoint(now=now), now=now)
    one = good.checkpoints[0]
    api = dataclasses.replace(good.api, state=Api.UNKNOWN, why="connection refused")
    source = SourceStatus(name="runtime", state=SourceState.UNKNOWN, since=now, why="no socket")
    worse = {
        "alarm": dataclasses.replace(good, alarms=("disk full",)),
        "source": dataclasses.replace(good, sources=(source,)),
        "api": dataclasses.replace(good, api=api),
        "refused": dataclasses.replace(good, refused=(builders.refused(),)),
        "waiting": dataclasses.replace(good, waiting=(builders.waiting(),)),
        "refused now": dataclasses.replace(
            good, checkpoints=(dataclasses.replace(one, refusal="spec.x: no"),)
        ),
        "pod alarm": dataclasses.replace(
            good, checkpoints=(dataclasses.replace(one, alarms=("hand-back gave up",)),)
        ),
    }
    node.write(worse[what])
    ran = run("status")
    assert (ran.code, "worker-1: degraded" in ran.out) == (1, True)


def test_b14_status_counts_the_marked_pods_that_have_no_checkpoint_yet(
    node: Machine, run: Run
) -> None:
    good = builders.node(now=node.now())
    node.write(dataclasses.replace(good, waiting=(builders.waiting(),)))
    shown = run("status").out
    assert "0 of 1 marked pods have a checkpoint" in shown
    assert "kube-system/dns-1: volume certs: not filled yet" in shown
    told = run("explain", "dns-1")
    assert "no checkpoint yet: volume certs: not filled yet" in told.out
    assert run("status", "dns-1").code == 1


def test_an_optional_source_that_is_unknown_is_shown_and_not_held_against_the_node(
    node: Machine, run: Run
) -> None:
    source = SourceStatus(
        name="/runningpods/", state=SourceState.UNKNOWN, since=node.now(), why="403", needed=False
    )
    node.write(dataclasses.replace(builders.node(now=node.now()), sources=(source,)))
    ran = run("status")
    assert ran.code == 0
    assert "unknown   /runningpods/ for 0 s: 403 (optional)" in ran.out
    assert "No checkpoints" in ran.out


@pytest.mark.parametrize(
    ("kubelet", "said"),
    [
        (KubeletStatus(present=Is.NO), "kubelet   no kubelet process"),
        (KubeletStatus(present=Is.UNKNOWN, why="no /proc"), "kubelet   unknown, no /proc"),
        (KubeletStatus(present=Is.YES, pid=7, answers=Is.NO), "(pid 7), gives NO LIST of its pods"),
    ],
)
def test_status_never_takes_an_unknown_kubelet_for_none(
    kubelet: KubeletStatus, said: str, node: Machine, run: Run
) -> None:
    node.write(dataclasses.replace(builders.node(now=node.now()), kubelet=kubelet))
    assert said in run("status").out


def test_what_is_due_says_when(node: Machine, run: Run) -> None:
    now = node.now()
    due = NextStatus(what="activate", at=now.plus(300))
    one = dataclasses.replace(builders.checkpoint(now=now), next=due)
    node.write(builders.node(one, now=now))
    assert "activate (in 5 min)" in run("status").out or "activate (in 4 min" in run("status").out


def test_a_name_from_a_stranger_cannot_steer_the_terminal(node: Machine, run: Run) -> None:
    now = node.now()
    one = dataclasses.replace(
        builders.checkpoint(now=now), sentence="\x1b]0;x\x07 evil\nline", warnings=("\x9b2J",)
    )
    node.write(dataclasses.replace(builders.node(one, now=now), summary="a\x1b[2Jb"))
    out = run("status").out + run("explain", one.slot).out
    assert not {"\x1b", "\x07", "\x9b"} & set(out)


def test_status_of_one_pod_has_its_own_exit_code(node: Machine, run: Run) -> None:
    now = node.now()
    node.write(
        builders.node(builders.serving(now=now), builders.checkpoint("pod.dns", now), now=now)
    )
    assert run("status", "kube-apiserver-x7k2p").code == 2
    assert run("status", "dns-x7k2p").code == 0
    assert "WHAT IS KNOWN" not in run("status", "dns-x7k2p").out


# ---- the daemon is dead -------------------------------------------------------------------------
def dead_no_process(node: Machine) -> None:
    """Remove the daemon's process."""
    (node.root / f"proc/{builders.node().pid}/stat").unlink()


def dead_other_process(node: Machine) -> None:
    """Give its pid to a process that started after the picture was made."""
    node.process(builders.node().pid, started=node.now().seconds + 100)


def dead_zombie(node: Machine) -> None:
    """Leave only a zombie."""
    node.process(builders.node().pid, started=1, state="Z")


def stopped(node: Machine) -> None:
    """Stop its process, as SIGSTOP does."""
    node.process(builders.node().pid, started=1, state="T")


def dead_other_boot(node: Machine) -> None:
    """Boot the machine anew."""
    (node.root / "boot_id").write_text("5f0c2b9a-0000-4000-8000-000000000002\n")


@pytest.mark.parametrize(
    "die",
    [dead_no_process, dead_other_process, dead_zombie, dead_other_boot, stopped],
    ids=["no process", "other process", "zombie", "other boot", "stopped"],
)
def test_a_dead_daemon_is_said_plainly_with_the_age_of_the_picture(
    die: object, node: Machine, run: Run
) -> None:
    now = node.now()
    node.write(builders.node(builders.checkpoint(now=now), now=now))
    assert callable(die)
    die(node)
    ran = run("status")
    assert ran.code == 1
    assert ran.out.startswith("THE DAEMON IS NOT RUNNING. This is what it saw ")
    assert " s ago" in ran.out.splitlines()[0]
    assert "systemctl start checkpointd" in ran.out
    assert "daemon    running" not in ran.out
    assert "API       trusted for 1 h 6 min" in ran.out
    assert parse_object(run("status", "--json").out, "out")["daemon_alive"] is False


def test_a_serving_copy_outranks_a_dead_daemon(node: Machine, run: Run) -> None:
    now = node.now()
    node.write(builders.node(builders.serving(now=now), now=now))
    dead_no_process(node)
    assert run("status").code == 2


# ---- explain ------------------------------------------------------------------------------------
def test_explain_tells_witnesses_rule_and_what_comes_next(node: Machine, run: Run) -> None:
    now = node.now()
    node.write(builders.node(builders.serving(now=now), now=now))
    ran = run("explain", "kube-apiserver-x7k2p")
    assert ran.code == 0
    for expected in (
        "kube-system/kube-apiserver-x7k2p: serving for 1 min 30 s",
        "rule 3b: the API server's last pod was deleted",
        "next: hand back when a successor may start",
        "does the parent run? yes",
        "- runtime: 2 containers run (2 s ago)",
        "- kernel: 3 processes (1 min 5 s ago)",
        "copy        kube-apiserver-x7k2p-c1f2 (uid uid-copy)",
        "yielding -> stored, rule 4 done: the parent is Ready",
    ):
        assert expected in ran.out


@pytest.mark.parametrize(
    "name",
    [
        "kube-apiserver-x7k2p",
        "kube-system/kube-apiserver-x7k2p",
        "ds.kube-apiserver",
        "kube-system/ds.kube-apiserver",
        "kube-apiserver",
        "kube-apiserver-x7k2p-c1f2",
    ],
)
def test_a_pod_may_be_named_in_every_way_that_an_operator_sees_it(
    name: str, node: Machine, run: Run
) -> None:
    now = node.now()
    node.write(builders.node(builders.serving(now=now), now=now))
    assert "slot        kube-system/ds.kube-apiserver" in run("explain", name).out


def test_an_ambiguous_name_lists_the_choices(node: Machine, run: Run) -> None:
    now = node.now()
    other = dataclasses.replace(builders.checkpoint(now=now), namespace="edge")
    node.write(builders.node(builders.checkpoint(now=now), other, now=now))
    ran = run("explain", "kube-apiserver")
    assert (ran.code, ran.out) == (64, "")
    assert "kube-system/kube-apiserver-x7k2p\n  edge/kube-apiserver-x7k2p" in ran.err


def test_a_name_that_is_not_there_says_what_is_near(node: Machine, run: Run) -> None:
    node.write(builders.node(builders.checkpoint(now=node.now()), now=node.now()))
    ran = run("explain", "kube-apiservr")
    assert ran.code == 64
    assert "Did you mean kube-system/kube-apiserver-x7k2p?" in ran.err
    assert "checkpointd status" in run("explain", "zzz").err


def test_explain_says_why_a_marked_pod_has_no_checkpoint(node: Machine, run: Run) -> None:
    node.write(builders.everything(node.now()))
    assert "remedy: use a hostPath" in run("explain", "web-0").out
    assert "edge/web: its mark does not count" in run("explain", "edge/web").out
    assert run("status", "web-0").code == 1


# ---- JSON ---------------------------------------------------------------------------------------
def test_json_carries_the_file_and_what_only_a_reader_knows(node: Machine, run: Run) -> None:
    node.write(builders.everything(node.now()))
    ran = run("status", "--json")
    found = parse_object(ran.out, "out")
    assert ran.code == 2
    assert (found["schema"], found["daemon_alive"]) == (1, True)
    assert found["counts"] == {"checkpoints": 2, "active": 1, "refused": 1, "waiting": 1}
    assert text(found, "health") == "a copy is active"


@pytest.mark.parametrize(
    ("pod", "key"), [("dns-x7k2p", "checkpoint"), ("web-0", "refused"), ("web", "ignored")]
)
def test_json_of_one_pod_says_what_it_is(pod: str, key: str, node: Machine, run: Run) -> None:
    node.write(builders.everything(node.now()))
    for verb in ("status", "explain"):
        found = parse_object(run(verb, pod, "--json").out, "out")
        assert mapping(found, key)["namespace"] in ("kube-system", "edge")


def test_version_is_told(run: Run) -> None:
    assert run("version").out.startswith(f"checkpointd {checkpointd.__version__} ")
    assert json.loads(run("version", "--json").out)["version"] == checkpointd.__version__


# ---- what goes wrong ----------------------------------------------------------------------------
def test_without_a_picture_the_operator_is_told_what_to_do(run: Run) -> None:
    ran = run("status")
    assert ran.code == 69
    assert "systemctl start checkpointd" in ran.err
    assert "journalctl -u checkpointd" in ran.err


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [
        ("", 65, "cannot be understood: status.json: not JSON"),
        ('{"schema": 1, "node": 3}', 65, "status.json.node: expected str"),
        ("[]", 65, "expected an object"),
        ('{"schema": 0}', 65, "has schema 0"),
        ('{"schema": 2}', 78, "has schema 2, this program knows 1"),
        ('{"node": "a"}', 65, "schema: missing"),
    ],
)
def test_a_picture_that_is_broken_or_of_another_version_is_named(
    content: str, code: int, said: str, node: Machine, run: Run
) -> None:
    node.status_file.write_text(content)
    for argv in (("status",), ("explain", "x"), ("status", "--json")):
        ran = run(*argv)
        assert (ran.code, ran.out) == (code, "")
        assert said in ran.err


def test_fields_of_a_newer_program_are_passed_over(node: Machine, run: Run) -> None:
    node.write(builders.node(now=node.now()))
    document = dict(parse_object(node.status_file.read_text(), "x"))
    node.status_file.write_text(json.dumps({**document, "mood": "fine"}))
    assert run("status").code == 0


def test_reads_work_beside_a_faulty_configuration(node: Machine, run: Run) -> None:
    node.write(builders.node(now=node.now()))
    with node.config.open("a") as stream:
        stream.write("[times]\nboot-hold = 'soon'\n")
    assert run("status").code == 0
    ran = run("config")
    assert ran.code == 78
    assert f"{node.config}: times.boot-hold: expected a time" in ran.err


def test_a_configuration_that_was_named_and_is_not_there_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--config", str(tmp_path / "none.toml")]) == 78
    assert "No such file" in capsys.readouterr().err


def test_config_shows_each_key_with_its_file(node: Machine, run: Run) -> None:
    out = run("config").out
    assert "times.boot-hold " in out
    (line,) = [line for line in out.splitlines() if line.startswith("paths.run")]
    assert line.split()[1:] == [f'"{node.root}/run"', str(node.config)]
    found = json.loads(run("config", "--json").out)
    assert found["times.boot-hold"] == {"toml": '"30s"', "origin": "default"}


@pytest.mark.parametrize("argv", [["frobnicate"], ["status", "--yaml"], ["explain"]])
def test_a_wrong_command_line_never_looks_like_a_serving_copy(argv: list[str], run: Run) -> None:
    ran = run(*argv)
    assert ran.code == 64
    assert "usage: checkpointd" in ran.err


def test_without_a_verb_help_is_printed(run: Run) -> None:
    ran = run()
    assert ran.code == 0
    for verb in ("run", *arguments.VERBS):
        assert f"    {verb} " in ran.out


@pytest.mark.parametrize("argv", [["--config", "/a", "run"], ["run", "--config", "/a"]])
def test_run_hands_the_configuration_to_the_daemon(argv: list[str]) -> None:
    given: list[Path] = []

    def daemon(config_file: Path) -> int:
        given.append(config_file)
        return 7

    assert arguments.main(argv, daemon) == 7
    assert given == [Path("/a")]
