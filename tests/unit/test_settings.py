"""Test the configuration: each key good and bad, all faults at once, drop-ins, the round trip."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from checkpointd import settings
from checkpointd.errors import ConfigError, ConfigProblem
from checkpointd.model.pods import Slot
from checkpointd.model.policy import Witness
from checkpointd.model.selection import Rule
from checkpointd.settings import Settings

ROOT = Path(__file__).resolve().parents[2]

GOOD = {
    "node.name": ('"worker-1.example.org"', "worker-1.example.org"),
    "selection.namespaces": ('["kube-system", "edge"]', ("kube-system", "edge")),
    "selection.max-pods": ("5", 5),
    "selection.max-bytes": ('"1GiB"', 1 << 30),
    "selection.rule": (
        '[{namespace = "edge", labels = {"app.kubernetes.io/name" = "web"}}]',
        (Rule(namespace="edge", labels={"app.kubernetes.io/name": "web"}),),
    ),
    "kubelet.address": ('"::1"', "::1"),
    "kubelet.port": ("10250", 10250),
    "kubelet.read-only-port": ("10255", 10255),
    "kubelet.healthz-port": ("10248", 10248),
    "witnesses.runtime": ("false", False),
    "witnesses.kernel": ("false", False),
    "witnesses.runningpods": ("false", False),
    "times.jitter": ("0", 0.0),
    "times.hand-back-exits": ("7", 7),
    "log.level": ('"debug"', "debug"),
}
BAD = {
    "node.name": ('"Worker_1"', "a node's name"),
    "selection.namespaces": ('["kube_system"]', '"kube_system" is not a namespace'),
    "selection.max-pods": ("0", "0 is below the bound 1"),
    "selection.max-bytes": ('"50 megs"', "a size"),
    "selection.rule": ('"kube-system"', "[[selection.rule]] tables"),
    "kubelet.address": ('"localhost"', "an IP address"),
    "kubelet.port": ("65536", "65536 is above the bound 65535"),
    "times.jitter": ("1.5", "1.5 is above the bound 1.0"),
    "times.hand-back-exits": ("true", "a whole number"),
    "log.level": ('"loud"', '"debug", "info"'),
}


def example(key: settings.Key) -> tuple[str, object]:
    """Return a good value of a key, as TOML and as parsed."""
    if key.name in GOOD:
        return GOOD[key.name]
    if key.section == "times":
        return '"2m30s"', 150.0
    return '"/srv/x"', Path("/srv/x") if key.section == "paths" else "/srv/x"


def write(file: Path, text: str) -> Path:
    """Write one configuration file, its directory too."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def line(name: str, value: str) -> str:
    """Make the TOML of one key."""
    section, _, option = name.partition(".")
    # These two are a fault unless both are set.
    other = {"client-key": "client-certificate", "client-certificate": "client-key"}.get(option)
    return f"[{section}]\n{option} = {value}\n" + (f'{other} = "/other"\n' if other else "")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Name a configuration file."""
    return tmp_path / "checkpointd.toml"


def problems(file: Path) -> tuple[ConfigProblem, ...]:
    """Load a faulty configuration and return all that is said."""
    with pytest.raises(ConfigError) as caught:
        settings.load(file)
    return caught.value.problems


# ---- the table ----------------------------------------------------------------------------------
@pytest.mark.parametrize("key", settings.KEYS, ids=lambda key: key.name)
def test_each_key_takes_a_good_value(key: settings.Key, file: Path) -> None:
    text, value = example(key)
    loaded = settings.load(write(file, line(key.name, text)))
    assert key.value_in(loaded) == value
    assert loaded.origins[key.name] == str(file)


@pytest.mark.parametrize("key", settings.KEYS, ids=lambda key: key.name)
def test_each_key_names_a_bad_value(key: settings.Key, file: Path) -> None:
    text, expected = BAD.get(key.name, ('"soon"', ""))
    (problem,) = problems(write(file, line(key.name, text)))
    assert (problem.file, problem.key) == (str(file), key.name)
    assert expected in problem.message


@pytest.mark.parametrize("key", settings.KEYS, ids=lambda key: key.name)
def test_each_default_lies_within_its_bounds(key: settings.Key) -> None:
    if isinstance(key.default, int | float) and key.least is not None and key.most is not None:
        assert key.least <= key.default <= key.most


def test_every_setting_has_its_key() -> None:
    fields = {key.field for key in settings.KEYS} | {"policy.witnesses", "kubelet.node_name"}
    default = Settings()
    for prefix, part in (
        ("paths", default.paths),
        ("kubelet", default.kubelet),
        ("policy.times", default.policy.times),
        ("policy.selection", default.policy.selection),
    ):
        assert {f"{prefix}.{field.name}" for field in dataclasses.fields(part)} <= fields


def test_the_shipped_file_is_the_table() -> None:
    assert (ROOT / "etc/checkpointd.toml").read_text(encoding="utf-8") == settings.shipped()


def test_the_shipped_file_changes_nothing_as_it_is_or_uncommented(tmp_path: Path) -> None:
    shipped = settings.shipped()
    assert settings.load(write(tmp_path / "a.toml", shipped)) == Settings()
    lines = [s.removeprefix("# ") if " = " in s else s for s in shipped.splitlines()]
    uncommented = "\n".join(
        s for s in lines if "k8s-app" not in s and not s.startswith("namespace =")
    )
    assert settings.load(write(tmp_path / "b.toml", uncommented)) == Settings()


# ---- values -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "seconds"),
    [('"500ms"', 0.5), ('"90s"', 90.0), ('"1h30m"', 5400.0), ("45", 45.0), ("0.25", 0.25)],
)
def test_times_are_texts_or_seconds(text: str, seconds: float, file: Path) -> None:
    loaded = settings.load(write(file, line("times.retire-daemon-set", text)))
    assert loaded.policy.times.retire_daemon_set == seconds


def test_a_bound_is_named_in_the_words_of_the_file(file: Path) -> None:
    (problem,) = problems(write(file, line("times.boot-hold", '"1h30m"')))
    assert problem.message == '"90m" is above the bound "1h"'


@pytest.mark.parametrize("text", ['"5 minutes"', '""', '"-5s"', "nan", "inf", "true", '"5"', "[5]"])
def test_no_time_is_guessed(text: str, file: Path) -> None:
    (problem,) = problems(write(file, line("times.boot-hold", text)))
    assert "a time such as" in problem.message


def test_the_nodes_name_holds_for_decide_and_for_the_kubelet(file: Path) -> None:
    loaded = settings.load(write(file, '[node]\nname = "a"\n'))
    assert (loaded.policy.node_name, loaded.kubelet.node_name) == ("a", "a")


def test_a_witness_can_be_switched_off(file: Path) -> None:
    loaded = settings.load(write(file, "[witnesses]\nkernel = false\n"))
    assert loaded.policy.witnesses == {Witness.RUNTIME, Witness.RUNNING_PODS}


# ---- faults -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("[times]\nboot-hld = 3\n", "times.boot-hld", "did you mean `boot-hold`?"),
        ("[times]\nboot_hold = 3\n", "times.boot_hold", "did you mean `boot-hold`?"),
        ("[selecton]\n", "selecton", "did you mean `selection`?"),
        ("[node]\nboot-hold = 3\n", "node.boot-hold", "belongs into [times]"),
        ("namespaces = []\n", "namespaces", "belongs into [selection]"),
        ("[node]\nqqq = 3\n", "node.qqq", "known are: name"),
        ("times = 3\n", "times", "expected the section [times]"),
    ],
)
def test_an_unknown_key_names_its_nearest_neighbour(
    text: str, key: str, said: str, file: Path
) -> None:
    (problem,) = problems(write(file, text))
    assert problem.key == key
    assert said in problem.message


def test_all_faults_are_named_at_once_each_with_its_file(file: Path) -> None:
    write(file, '[times]\nboot-hold = "soon"\nspeed = 1\n[log]\nlevel = 3\n')
    drop_in = write(file.parent / "checkpointd.toml.d/10.toml", "[times]\nhand-back = 0\n")
    broken = write(file.parent / "checkpointd.toml.d/20.toml", "[times]\nx = = 3\n")
    said = [(problem.file, problem.key) for problem in problems(file)]
    assert said == [
        (str(file), "times.boot-hold"),
        (str(file), "times.speed"),
        (str(file), "log.level"),
        (str(drop_in), "times.hand-back"),
        (str(broken), ""),
    ]
    assert "line 2" in problems(file)[-1].message


def test_a_fault_is_named_even_where_a_later_file_would_win(file: Path) -> None:
    write(file, "[times]\nboot-hold = -1\n")
    write(file.parent / "checkpointd.toml.d/10.toml", "[times]\nboot-hold = 1\n")
    (problem,) = problems(file)
    assert problem.file == str(file)


def test_each_fault_of_a_rule_has_its_place(file: Path) -> None:
    text = """
    [[selection.rule]]
    namespace = "a"
    labels = { app = "x" }
    [[selection.rule]]
    namespace = "a"
    labels = { app = "x" }
    [[selection.rule]]
    name = "web"
    labels = { app = 3 }
    [[selection.rule]]
    namespace = "b"
    """
    said = {problem.key: problem.message for problem in problems(write(file, text))}
    assert said["selection.rule[2]"] == "says the same as selection.rule[1]"
    assert "unknown key" in said["selection.rule[3].name"]
    assert "got nothing" in said["selection.rule[3].namespace"]
    assert "selection.rule[3].labels.app" in said
    assert "expected labels" in said["selection.rule[4].labels"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[times]\noffer-again = "1h"\n', "times.offer-again"),
        ("[witnesses]\nruntime = false\nkernel = false\n", "witnesses"),
        ('[kubelet]\nclient-key = "/k"\n', "kubelet.client-certificate"),
        ('[selection]\nnamespaces = ["a", "a"]\n', "selection.namespaces"),
    ],
)
def test_what_contradicts_itself_is_a_fault(text: str, key: str, file: Path) -> None:
    (problem,) = problems(write(file, text))
    assert (problem.file, problem.key) == (str(file), key)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"# ok\n\xff\n", "line 2 is not UTF-8"),
        (b"a = [" + b"[" * 5000, "not TOML"),
        (b"#" * ((1 << 20) + 1), "longer than"),
    ],
)
def test_a_file_that_is_no_toml_is_one_fault(content: bytes, said: str, file: Path) -> None:
    file.write_bytes(content)
    (problem,) = problems(file)
    assert said in problem.message


def test_a_pipe_in_the_place_of_a_file_is_a_fault_and_not_waited_for(file: Path) -> None:
    os.mkfifo(file)
    (problem,) = problems(file)
    assert problem.message == "is not a file"


def test_a_file_that_was_named_and_is_not_there_is_a_fault(file: Path) -> None:
    (problem,) = problems(file)
    assert "No such file" in problem.message


# ---- drop-ins -----------------------------------------------------------------------------------
def test_drop_ins_win_per_key_in_lexical_order(file: Path) -> None:
    write(file, '[times]\nboot-hold = "1s"\nmin-dwell = "2s"\n[log]\nlevel = "debug"\n')
    folder = file.parent / "checkpointd.toml.d"
    write(folder / "20-b.toml", '[times]\nboot-hold = "3s"\n')
    write(folder / "10-a.toml", '[times]\nboot-hold = "4s"\nmin-dwell = "5s"\n')
    write(folder / ".hidden.toml", "[times]\nboot-hold = 6\n")
    write(folder / "30-c.toml.dpkg-old", "no toml")
    loaded = settings.load(file)
    assert (loaded.policy.times.boot_hold, loaded.policy.times.min_dwell) == (3.0, 5.0)
    assert loaded.log_level == "debug"
    assert loaded.origins["times.boot-hold"] == str(folder / "20-b.toml")


def test_what_holds_is_listed_with_its_origin(file: Path) -> None:
    loaded = settings.load(write(file, line("times.boot-hold", "75")))
    listed = {entry.key: entry for entry in settings.effective(loaded)}
    assert len(listed) == len(settings.KEYS)
    assert (listed["times.boot-hold"].value, listed["times.boot-hold"].origin) == (
        '"75s"',
        str(file),
    )
    assert listed["times.min-dwell"].origin == "default"


# ---- the last good one --------------------------------------------------------------------------
def test_everything_that_is_dumped_reads_back_the_same(tmp_path: Path) -> None:
    lines: dict[str, list[str]] = {}
    for key in settings.KEYS:
        if key.name == "witnesses.kernel":
            continue
        lines.setdefault(key.section, []).append(f"{key.option} = {example(key)[0]}")
    text = "\n".join(f"[{section}]\n" + "\n".join(some) for section, some in lines.items())
    loaded = settings.load(write(tmp_path / "a.toml", text))
    assert settings.load(write(tmp_path / "b.toml", settings.dump(loaded))) == loaded


def test_odd_texts_and_times_survive_the_dump(tmp_path: Path) -> None:
    odd = dataclasses.replace(
        Settings(),
        kubelet=dataclasses.replace(Settings().kubelet, root_dir='/a "b"\\ c é'),
        policy=dataclasses.replace(
            Settings().policy,
            times=dataclasses.replace(Settings().policy.times, boot_hold=0.1 + 0.2, min_dwell=0.0),
        ),
    )
    assert settings.load(write(tmp_path / "c.toml", settings.dump(odd))) == odd


def test_the_defaults_dump_to_a_comment() -> None:
    assert settings.dump(Settings()).splitlines()[1:] == []


def test_a_bad_configuration_at_start_means_the_last_good_one(file: Path) -> None:
    state = file.parent / "state"
    write(file, f'[paths]\nstate = "{state}"\n[times]\nboot-hold = "soon"\n')
    write(
        state / "settings.last-good.toml", f'[paths]\nstate = "{state}"\n[times]\nboot-hold = 7\n'
    )
    loaded = settings.load_or_last_good(file)
    assert loaded.is_last_good
    assert [problem.key for problem in loaded.problems] == ["times.boot-hold"]
    assert loaded.settings.policy.times.boot_hold == 7.0


def test_a_bad_configuration_without_a_last_good_one_is_an_error(file: Path) -> None:
    write(file, f'[paths]\nstate = "{file.parent}"\n[times]\nboot-hold = "soon"\n')
    with pytest.raises(ConfigError):
        settings.load_or_last_good(file)
    write(file.parent / "settings.last-good.toml", "[tim")
    with pytest.raises(ConfigError) as caught:
        settings.load_or_last_good(file)
    assert len(caught.value.problems) == 2


def test_a_good_configuration_does_not_ask_for_the_last_one(file: Path) -> None:
    loaded = settings.load_or_last_good(write(file, ""))
    assert (loaded.settings, loaded.is_last_good) == (Settings(), False)


# ---- reload -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [(4, 2, False), (4, 1, True), (1, 0, True), (0, 0, False), (2, 2, False), (2, 5, False)],
)
def test_a_reload_that_would_unmark_more_than_half_is_refused(
    before: int, after: int, refused: bool
) -> None:
    slots = [Slot("kube-system", f"ds.{number}") for number in range(5)]
    said = settings.refuses_reload(
        Settings(), Settings(), frozenset(slots[:before]), frozenset(slots[:after])
    )
    assert bool(said) is refused


def test_a_reload_never_moves_the_store() -> None:
    moved = dataclasses.replace(Settings(), paths=settings.Paths(state=Path("/elsewhere")))
    said = settings.refuses_reload(Settings(), moved, frozenset(), frozenset())
    assert "restart" in said
