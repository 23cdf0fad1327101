"""Whatever a file holds: it is judged or told of, and nothing else is raised."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from checkpointd.cli import documents
from checkpointd.errors import FieldError
from checkpointd.render import trial, workloads
from checkpointd.render.copy import NodeFacts
from checkpointd.render.trial import Outcome

NODE = NodeFacts(node_name="node", kubelet_version="v1.34.1")


def some(**fields: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Return objects with any of ``fields``, at times something else."""
    objects: st.SearchStrategy[object] = st.fixed_dictionaries({}, optional=fields)
    return st.one_of(objects, JUNK)


JUNK: st.SearchStrategy[object] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=6,
)
WORDS: st.SearchStrategy[object] = st.text(max_size=5)
LISTS: st.SearchStrategy[object] = st.lists(some(name=WORDS, image=WORDS), max_size=3)
SPEC = some(containers=LISTS, volumes=LISTS, automountServiceAccountToken=st.booleans())
TEMPLATE = some(metadata=some(labels=JUNK, annotations=JUNK), spec=SPEC)
KIND: st.SearchStrategy[object] = st.sampled_from([*workloads.TEMPLATES, "List", "PodList"])
VERSION: st.SearchStrategy[object] = st.sampled_from(["v1", "apps/v1", "batch/v1"])
DOCUMENTS = some(
    kind=KIND,
    apiVersion=VERSION,
    metadata=some(name=WORDS, namespace=WORDS, uid=WORDS),
    spec=st.one_of(SPEC, some(template=TEMPLATE)),
    template=TEMPLATE,
    items=st.lists(some(kind=KIND, metadata=some(name=WORDS), spec=SPEC), max_size=3),
)
BITS = (
    *("a", ":", " ", "\n", "-", "---", "&a", "*a", "<<", "{", "}", "[", "]", ",", "!!int", "0x1"),
    *("'", '"', "|", ">", "#", "%", "?", "~", "y", "1e3", "\t", "!", "é", "\x00", "kind: Pod"),
)
YAML_BITS = st.lists(st.sampled_from(BITS), max_size=30)


@given(DOCUMENTS)
def test_every_object_is_judged_or_is_a_field_error(document: object) -> None:
    try:
        found = list(workloads.find(document))
    except FieldError:
        return
    for one in found:
        if isinstance(one, workloads.Workload):
            verdict = trial.judge(one, NODE)
            refuses = any(finding.refuses for finding in verdict.findings)
            assert refuses is (verdict.outcome is Outcome.REFUSED)
            assert refuses is (verdict.candidate is None)


@given(st.one_of(st.binary(max_size=60), YAML_BITS.map(lambda bits: "".join(bits).encode())))
def test_every_file_is_read_or_told_of(content: bytes) -> None:
    for read in documents.parse(content, "a file"):
        assert read.line >= 1
        assert not (read.problem and read.value is not None)


@given(st.lists(JUNK.filter(lambda value: value == value), max_size=3))
def test_objects_in_json_that_follow_each_other_are_read_as_json(values: list[object]) -> None:
    text = "".join(json.dumps({"a": value}) + "\n" for value in values).encode()
    as_json = [read.value for read in documents.parse(text, "a file")]
    assert as_json == [json.loads(line) for line in text.splitlines()]
