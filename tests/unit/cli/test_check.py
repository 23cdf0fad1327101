"""`check` and `render`: files in, verdicts and manifests out, nothing of a cluster."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import cast

import pytest

from checkpointd import json_fields
from checkpointd.__main__ import main
from checkpointd.json_fields import Json

GOOD = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: proxy, namespace: kube-system}
spec:
  template:
    metadata: {labels: {app: proxy}}
    spec:
      automountServiceAccountToken: false
      containers:
      - name: proxy
        image: registry.example/proxy:1
        volumeMounts: [{name: certs, mountPath: /certs}]
      volumes: [{name: certs, secret: {secretName: proxy-certs, defaultMode: 0o400}}]
"""
REFUSED = """
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: edge}
spec:
  automountServiceAccountToken: false
  runtimeClassName: kata
  containers: [{name: web, image: registry.example/web:1}]
"""
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"
SECRET = """
apiVersion: v1
kind: Secret
metadata: {name: proxy-certs, namespace: kube-system}
stringData: {key: hunter2}
"""


class Ran:
    """Hold what one command printed and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def json(self) -> Json:
        """Return what was printed as JSON."""
        return json_fields.parse_object(self.out, "output")


class Run:
    """Run commands that read files below a directory."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.capsys = capsys

    def __call__(self, *argv: str) -> Ran:
        config = self.root / "checkpointd.toml"
        config.write_text('[paths]\nstate = "/store"\n')
        try:
            code = main(["--config", str(config), *argv])
        except SystemExit as stop:
            code = int(stop.code or 0)
        out, err = self.capsys.readouterr()
        return Ran(code, out, err)

    def file(self, *texts: str, name: str = "a.yaml") -> str:
        """Write a file of several documents and return its path."""
        path = self.root / name
        path.write_text("---\n".join(texts))
        return str(path)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(tmp_path, capsys)


# ---- check --------------------------------------------------------------------------------------
def test_check_prints_a_line_per_workload_and_says_with_zero_that_all_are_ok(run: Run) -> None:
    file = run.file(GOOD, SERVICE)
    ran = run("check", file)
    assert ran.code == 0
    assert ran.out == f"ok                DaemonSet kube-system/proxy (shareable)  {file}:2\n"
    assert ran.err == "1 workloads: 1 ok; passed over: 1 Service\n"


def test_check_tells_path_reason_and_remedy_of_a_refusal(run: Run) -> None:
    ran = run("check", run.file(GOOD, REFUSED))
    assert ran.code == 1
    assert "refused           Pod edge/web" in ran.out
    assert "  - spec.runtimeClassName: the kubelet looks the class up in the API server" in ran.out
    assert "    remedy: use the runtime's default handler" in ran.out


def test_check_with_warnings_is_still_zero(run: Run) -> None:
    ran = run("check", run.file(GOOD.replace("namespace: kube-system}", "name: proxy}")))
    assert ran.code == 0
    assert ran.out.startswith("ok with warnings  DaemonSet default/proxy")
    assert "metadata.name: the key stands there more than once" in ran.out


def test_check_json_has_everything(run: Run) -> None:
    file = run.file(GOOD, REFUSED, SERVICE, "a: [\n")
    ran = run("check", "--json", "--kubernetes-version", "v1.35.2", file)
    assert ran.code == 1
    found = ran.json
    assert (found["ok"], found["kubernetes_version"]) == (False, "v1.35.2")
    assert found["passed_over"] == [{"file": file, "line": 25, "kind": "Service"}]
    (unreadable,) = json_fields.objects(found, "unreadable")
    assert unreadable["line"] == 28
    good, refused = json_fields.objects(found, "workloads")
    assert good == {
        "file": file,
        "line": 2,
        "path": "",
        "kind": "DaemonSet",
        "namespace": "kube-system",
        "name": "proxy",
        "outcome": "ok",
        "copy": "shareable",
        "findings": [],
    }
    assert (refused["outcome"], refused["copy"]) == ("refused", None)
    assert refused["findings"] == [
        {
            "level": "refusal",
            "path": "spec.runtimeClassName",
            "reason": "the kubelet looks the class up in the API server",
            "remedy": "use the runtime's default handler",
        }
    ]


def test_check_reads_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(GOOD.encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    ran = run("check", "-")
    assert ran.code == 0
    assert "standard input:2" in ran.out


def test_check_goes_on_behind_a_file_that_cannot_be_read(run: Run) -> None:
    ran = run("check", str(run.root / "absent.yaml"), run.file(GOOD))
    assert ran.code == 1
    unread, good = ran.out.splitlines()
    assert unread.startswith("unreadable")
    assert "No such file" in unread
    assert good.startswith("ok ")


def test_check_of_nothing_is_not_good(run: Run) -> None:
    ran = run("check", run.file("# an empty chart\n"))
    assert ran.code == 1
    assert ran.err == "nothing to check: no document in what was read\n"


def test_check_of_other_objects_alone_is_good(run: Run) -> None:
    ran = run("check", run.file(SERVICE))
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "0 workloads; passed over: 1 Service\n"


def test_check_tells_of_fields_that_an_old_kubelet_lacks(run: Run) -> None:
    file = run.file(GOOD.replace("      containers:", "      hostUsers: false\n      containers:"))
    assert run("check", "--kubernetes-version", "1.35", file).out.startswith("ok  ")
    old = run("check", "--kubernetes-version", "1.28", file)
    assert "spec.template.spec.hostUsers: kubelets before 1.33 ignore hostUsers" in old.out


def test_check_refuses_a_version_that_is_none(run: Run) -> None:
    ran = run("check", "--kubernetes-version", "latest", run.file(GOOD))
    assert ran.code == 64
    assert '"latest" is no version of Kubernetes' in ran.err


def test_check_cleans_what_would_steer_a_terminal(run: Run) -> None:
    text = REFUSED.replace("name: web, namespace", 'name: "web\\e[31m", namespace')
    ran = run("check", run.file(text))
    assert ran.code == 1
    assert "\x1b" not in ran.out


def test_check_tells_no_value_of_a_secret(run: Run) -> None:
    broken = SECRET.replace("stringData: {key: hunter2}", "stringData: {key: [hunter2}")
    ran = run("check", run.file(SECRET, broken, GOOD))
    assert "hunter2" not in ran.out + ran.err


# ---- render -------------------------------------------------------------------------------------
def manifests(text: str) -> list[Json]:
    """Return the JSON objects that follow each other in a text."""
    found: list[Json] = []
    decoder = json.JSONDecoder()
    while text.strip():
        value, end = cast("tuple[Json, int]", decoder.raw_decode(text.lstrip()))
        found.append(value)
        text = text.lstrip()[end:]
    return found


def test_render_prints_the_manifest_and_names_what_is_left_open(run: Run) -> None:
    ran = run("render", run.file(SECRET, GOOD))
    assert ran.code == 0
    (manifest,) = manifests(ran.out)
    assert manifest["kind"] == "Pod"
    uid = json_fields.text(manifest, "metadata", "uid")
    (volume,) = json_fields.objects(manifest, "spec", "volumes")
    assert volume == {
        "name": "certs",
        "hostPath": {
            "path": f"/store/checkpoints/kube-system/ds.proxy/active/{uid}/certs",
            "type": "Directory",
        },
    }
    assert "volume certs: the files of secret proxy-certs are not read" in ran.err
    assert "name, UID and generation are examples" in ran.err
    assert "hunter2" not in ran.out + ran.err


def test_render_says_why_it_refuses(run: Run) -> None:
    ran = run("render", run.file(REFUSED))
    assert (ran.code, ran.out) == (1, "")
    assert "spec.runtimeClassName: the kubelet looks the class up" in ran.err


def test_render_prints_one_manifest_after_the_other(run: Run) -> None:
    ran = run("render", run.file(GOOD, REFUSED, GOOD.replace("proxy", "other")))
    assert ran.code == 1
    names = [json_fields.text(one, "metadata", "name") for one in manifests(ran.out)]
    assert [name.partition("-")[0] for name in names] == ["proxy", "other"]


def test_render_json_has_manifests_and_findings(run: Run) -> None:
    ran = run("render", "--json", run.file(GOOD, REFUSED))
    good, refused = json_fields.objects(ran.json, "workloads")
    assert json_fields.text(good, "manifest", "kind") == "Pod"
    assert json_fields.sequence(good, "left_open")
    assert (refused["manifest"], refused["outcome"]) == (None, "refused")


def test_render_of_no_workload_says_so(run: Run) -> None:
    ran = run("render", run.file(SERVICE))
    assert ran.code == 1
    assert "nothing to render" in ran.err


def test_render_takes_the_nodes_name(run: Run) -> None:
    long = "n" * 200
    ran = run("render", "--node-name", long, run.file(GOOD))
    (manifest,) = manifests(ran.out)
    assert len(json_fields.text(manifest, "metadata", "name")) + 201 <= 253


# ---- help ---------------------------------------------------------------------------------------
def test_help_of_a_verb_shows_examples_and_exit_codes(run: Run) -> None:
    ran = run("help", "check")
    assert ran.code == 0
    assert "\n  helm template chart | checkpointd check" in ran.out
    assert "exit codes:" in ran.out
    assert run("check", "--help").out == ran.out


def test_help_alone_lists_the_verbs(run: Run) -> None:
    ran = run("help")
    assert ran.code == 0
    assert "check " in ran.out
    assert "render " in ran.out


def test_help_of_no_verb_is_wrong_usage(run: Run) -> None:
    assert run("help", "nonsense").code == 64
