"""Hold tests/field-reports.md to its word: each report has its tests, and each test its report."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PAGE = "field-reports.md"
REPORTS = {
    "A": "1 2 3 4 5 6 7 8 9 10 11 13 14",
    "B": "1 2 3 4 5 6 7 8 9 11 12 13 14",
    "C": "1 2 3 4 5 6 7 8 9 10 11 12 15 16 17",
    "D": "1 2 4 5 6 9 10 11 12 14 15",
    "E": "1 2 3 4 5 8 9 10",
    "F": "1 2 3 4 5",
    "G": "1 2 4 5",
    "H": "1 2 3 4 5 6 8 11 12",
    "I": "1 2 3 4 5",
    "S": "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15",
}
"""All reports; a number that is missing was no report of its own."""
OWN = {
    "A": REPORTS["A"],
    "B": REPORTS["B"],
    "C": "1 2 3 4 5 6 7 8 9 12 15",
    "D": REPORTS["D"],
    "E": "1 2 3 4 5",
    "H": REPORTS["H"],
}
"""The reports that must have a test named after them."""
LATER = re.compile(r"\bissues? [4-8]\b", re.IGNORECASE)


def all_tests() -> dict[str, list[str]]:
    """Return every test as the page names it, with the reports that its name carries."""
    return {
        f"{path.relative_to(TESTS)}::{name}": reports_of(name)
        for path in sorted(TESTS.rglob("test_*.py"))
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE)
    }


def reports_of(name: str) -> list[str]:
    """Return the reports in a test's name: ``test_a3b_e5_...`` is of A3 and E5."""
    found: list[str] = []
    for part in name.split("_")[1:]:
        report = re.fullmatch(r"([a-is][0-9]+)[a-e]?", part)
        if report is None:
            break
        found.append(report[1].upper())
    return found


def sections() -> Iterator[tuple[str, list[str], str]]:
    """Yield each report of the page with its tests and its text."""
    page = (TESTS / PAGE).read_text(encoding="utf-8")
    for report, text in re.findall(r"^### (\w+): ((?:.|\n)*?)(?=^##|\Z)", page, re.MULTILINE):
        yield report, re.findall(r"^- `(.+)`$", text, re.MULTILINE), text


def fail_with(lines: list[str]) -> None:
    """Fail with these lines, if there are any."""
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def all_of(reports: dict[str, str]) -> list[str]:
    """Return the reports of several groups, in order."""
    return [f"{group}{number}" for group, numbers in reports.items() for number in numbers.split()]


def test_every_report_is_on_the_page_once_and_in_order() -> None:
    assert [report for report, _tests, _text in sections()] == all_of(REPORTS)


def test_every_report_that_must_have_a_test_of_its_own_has_one() -> None:
    named = {report for reports in all_tests().values() for report in reports}
    fail_with([f"no test is named after {r}" for r in all_of(OWN) if r not in named])


def test_every_report_has_tests_or_says_what_does_it_later() -> None:
    fail_with(
        [
            f"{PAGE}: {report} has no test and names no issue"
            for report, tests, text in sections()
            if not tests and not LATER.search(text)
        ]
    )


def test_every_test_on_the_page_exists() -> None:
    known = all_tests()
    fail_with(
        [
            f"{PAGE}: {report}: there is no {test}"
            for report, tests, _text in sections()
            for test in tests
            if test not in known
        ]
    )


def test_every_test_that_is_named_after_a_report_is_on_the_page() -> None:
    listed = {(report, test) for report, tests, _text in sections() for test in tests}
    fail_with(
        [
            f"{PAGE}: add to {report}: - `{test}`"
            for test, reports in all_tests().items()
            for report in reports
            if (report, test) not in listed
        ]
    )


def test_no_test_is_on_the_page_twice_under_one_report() -> None:
    fail_with(
        [
            f"{PAGE}: {report}: {test} is there twice"
            for report, tests, _text in sections()
            for test in set(tests)
            if tests.count(test) > 1
        ]
    )
