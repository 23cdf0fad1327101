"""Run the benchmark: `make bench`, or with options `make bench BENCH="--pods 10 --quick"`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.bench import crowd, figures, floor, latency, real, steady
from tests.bench.crowd import Crowd, Program
from tests.bench.figures import Rounds, Row
from tests.fakes import workloads
from tests.fakes.machine.processes import Forking, Processes
from tests.fakes.node import DEFAULT_TIMES, SHORT_TIMES

SIZES = (110, 10, 30, 250)
MOST_MARKED = 20
"""The budget's, and as many as one namespace may have by default."""
STEADY_TIMES = {**DEFAULT_TIMES, "answers-apart": "1s"}
"""A real node's, but for the first contact."""

QUICK = Rounds(
    starts=3, deletions=3, boots=3, floors=5, events=8, real_deletions=2, real_boots=1,
    idle_seconds=20.0,
)  # fmt: skip
SMOKE = Rounds(
    starts=1, deletions=1, boots=1, floors=1, events=1, real_deletions=1, real_boots=1,
    idle_seconds=1.0,
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Measure, print, and return 0: a budget that is missed is no failure of the benchmark."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--pods", type=int, action="append", help="instead of 110, 10, 30, 250")
    parser.add_argument(
        "--quick", action="store_true", help="few rounds: minutes, not half an hour"
    )
    parser.add_argument("--smoke", action="store_true", help="each thing once")
    parser.add_argument("--only", choices=("steady", "latency"), help="one half of the rows")
    parser.add_argument(
        "--real-node",
        action="store_true",
        help="the first two rows on make e2e's node (root)",
    )
    parser.add_argument("--python", default=sys.executable, help="the daemon's interpreter")
    options = parser.parse_args(arguments)
    rounds = SMOKE if options.smoke else QUICK if options.quick else Rounds()
    rows: list[Row] = []
    if options.real_node:
        pods = options.pods[0] if options.pods else SIZES[0]
        return _print(list(_told(real.measure_node(pods, _marked(pods), rounds))))
    with tempfile.TemporaryDirectory(prefix="bench-") as directory, Forking() as processes:
        program = crowd.install(options.python, Path(directory))
        for pods in options.pods or SIZES:
            # Where growth is shown a few rounds do.
            some = rounds if pods == SIZES[0] or options.pods else min_rounds(rounds)
            rows += _told(_measure(processes, program, pods, some, options.only or ""))
    return _print(rows)


def _told(rows: Iterable[Row]) -> Iterator[Row]:
    """Say each row at once: the whole takes long."""
    for row in rows:
        told = f"{row.pods} pods: {row.what}: {', '.join(row.cells()[3:])}"
        print(told.rstrip(", "), file=sys.stderr, flush=True)
        yield row


def _print(rows: list[Row]) -> int:
    print(figures.table(rows))
    print(f"load of the machine, 1, 5 and 15 minutes: {os.getloadavg()}")
    return 0


def _marked(pods: int) -> int:
    return min(MOST_MARKED, max(2, pods * MOST_MARKED // SIZES[0]))


def min_rounds(rounds: Rounds) -> Rounds:
    """Return the quicker one of these rounds and the quick ones."""
    return min(rounds, QUICK, key=lambda each: each.idle_seconds)


def _measure(
    processes: Processes, program: Program, pods: int, rounds: Rounds, only: str
) -> Iterator[Row]:
    marked = _marked(pods)
    if only != "latency":
        with Crowd(processes, program, times=STEADY_TIMES) as node:
            node.start_elsewhere()
            node.fill(pods, marked)
            yield from floor.measure(node, pods, rounds.floors)
            yield from steady.measure(node, pods, marked, rounds)
    if only != "steady":
        with Crowd(processes, program, times=SHORT_TIMES) as node:
            node.start_elsewhere()
            node.fill(pods, marked)
            yield latency.measure_silent(node, pods)
        with Crowd(processes, program, times=SHORT_TIMES, self_hosted=True) as node:
            node.boot(daemon=False)
            workloads.self_host(node)
            node.fill(pods, marked - 1)
            yield latency.measure_deleted(node, pods, rounds.deletions)
            yield from latency.measure_boot(node, pods, rounds.boots)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
