from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpointd.clients import inotify

QUEUE = Path("/proc/sys/fs/inotify/max_queued_events")


def every(name: str) -> bool:
    return not name.startswith(".")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "manifests"
    made.mkdir()
    return made


@pytest.fixture
def watch(directory: Path) -> Iterator[inotify.DirectoryWatch]:
    made = inotify.DirectoryWatch()
    made.watch({str(directory): every})
    yield made
    made.close()


def changed(watch: inotify.DirectoryWatch, seconds: float = 10) -> list[str]:
    return sorted(Path(path).name for path in watch.wait(seconds))


def settle(watch: inotify.DirectoryWatch) -> None:
    while watch.wait(0):
        pass


def test_a_new_a_changed_and_a_removed_file_are_worth_a_look(
    watch: inotify.DirectoryWatch, directory: Path
) -> None:
    assert watch.why_not == ""
    (directory / "a.json").write_text("1", encoding="ascii")
    assert changed(watch) == ["manifests"]
    settle(watch)
    (directory / "a.json").chmod(0o600)
    assert changed(watch) == ["manifests"]
    settle(watch)
    (directory / "a.json").unlink()
    assert changed(watch) == ["manifests"]


def test_our_own_temporary_files_are_not(watch: inotify.DirectoryWatch, directory: Path) -> None:
    (directory / ".checkpointd-1").write_text("1", encoding="ascii")
    assert changed(watch, 0) == []
    (directory / ".checkpointd-1").rename(directory / "a.json")
    assert changed(watch) == ["manifests"]


def test_only_the_names_that_are_wanted_count(
    watch: inotify.DirectoryWatch, directory: Path
) -> None:
    watch.watch({str(directory): lambda name: name == "frozen"})
    (directory / "status.json").write_text("1", encoding="ascii")
    assert changed(watch, 0) == []
    (directory / "frozen").touch()
    assert changed(watch) == ["manifests"]


def test_h3_a_moved_directory_is_left_and_the_new_one_watched(
    watch: inotify.DirectoryWatch, directory: Path
) -> None:
    moved = directory.rename(directory.with_name("old"))
    assert changed(watch) == ["manifests"]
    directory.mkdir()
    watch.watch({str(directory): every})
    settle(watch)
    (moved / "a.json").touch()
    assert changed(watch, 0) == []
    (directory / "a.json").touch()
    assert changed(watch) == ["manifests"]


def test_h3_a_removed_directory_is_seen_and_its_successor_watched(
    watch: inotify.DirectoryWatch, directory: Path
) -> None:
    directory.rmdir()
    assert changed(watch) == ["manifests"]
    watch.watch({str(directory): every})
    directory.mkdir()
    watch.watch({str(directory): every})
    settle(watch)
    (directory / "a.json").touch()
    assert changed(watch) == ["manifests"]


def test_h3_a_directory_replaced_behind_our_back_is_watched_at_the_next_look(
    watch: inotify.DirectoryWatch, directory: Path
) -> None:
    directory.rmdir()
    directory.mkdir()
    # The new one may well have the number of the old one.
    assert changed(watch) == ["manifests"]
    watch.watch({str(directory): every})
    settle(watch)
    (directory / "a.json").touch()
    assert changed(watch) == ["manifests"]


def test_d14_a_link_that_points_elsewhere_now_is_followed(
    watch: inotify.DirectoryWatch, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    link = tmp_path / "link"
    link.symlink_to("one")
    watch.watch({str(link): every})
    link.unlink()
    link.symlink_to("two")
    watch.watch({str(link): every})
    settle(watch)
    (tmp_path / "one" / "a").touch()
    assert changed(watch, 0) == []
    (tmp_path / "two" / "a").touch()
    assert changed(watch) == ["link"]


def test_h2_an_overflow_is_worth_a_look_at_everything(
    watch: inotify.DirectoryWatch, directory: Path, tmp_path: Path
) -> None:
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    watch.watch({str(directory): every, str(quiet): every})
    file = directory / "a"
    # Two names in turn: the kernel makes one event of several that are alike.
    for _ in range(int(QUEUE.read_text(encoding="ascii")) // 3 + 1):
        file.touch()
        file.unlink()
    assert changed(watch) == ["manifests", "quiet"]


def test_a_name_that_is_no_text_is_worth_a_look(
    watch: inotify.DirectoryWatch, directory: Path
) -> None:
    Path(os.fsdecode(os.fsencode(directory) + b"/\xff\xfe")).touch()
    assert changed(watch) == ["manifests"]


def test_two_paths_to_one_directory_are_both_told(
    watch: inotify.DirectoryWatch, directory: Path
) -> None:
    link = directory.with_name("link")
    link.symlink_to(directory)
    watch.watch({str(directory): every, str(link): every})
    (directory / "a").touch()
    assert changed(watch) == ["link", "manifests"]


def test_a_wake_ends_the_wait(watch: inotify.DirectoryWatch) -> None:
    waker = threading.Thread(target=watch.wake)
    waker.start()
    assert changed(watch, 60) == []
    waker.join()


def test_the_library_is_quiet(
    watch: inotify.DirectoryWatch, capfd: pytest.CaptureFixture[str]
) -> None:
    watch.watch({"/nowhere/at/all": every})
    logging.getLogger("pyinotify").error("boo")
    assert capfd.readouterr() == ("", "")


# In processes of their own: no asyncore to import, no descriptor left.
WITHOUT_ASYNCORE = """
import sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name == "asyncore":
            raise ModuleNotFoundError("No module named 'asyncore'", name="asyncore")
sys.meta_path.insert(0, Gone())
sys.modules.pop("asyncore", None)
from checkpointd.clients import inotify
import os, tempfile
watch = inotify.DirectoryWatch()
assert "asyncore" not in sys.modules
with tempfile.TemporaryDirectory() as place:
    watch.watch({place: lambda name: True})
    open(os.path.join(place, "a"), "w").close()
    assert watch.wait(10) == {place}, watch.why_not
print("watched")
"""
WITHOUT_INOTIFY = """
import os, resource
from checkpointd.clients import inotify
inotify.DirectoryWatch().close()
free = len(os.listdir("/proc/self/fd")) - 1
# Room for the eventfd and not for the inotify instance: EMFILE.
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
place = os.environ["PLACE"]
resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
watch = inotify.DirectoryWatch()
watch.watch({place: lambda name: True})
assert watch.wait(0) == frozenset()
watch.wake()
assert watch.wait(60) == frozenset()
print(watch.why_not)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
watch.watch({place: lambda name: True})
assert watch.why_not == ""
os.mkdir(os.path.join(place, "new"))
assert watch.wait(60) == {place}
"""


def run(program: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_h1_pyinotify_works_without_asyncore() -> None:
    assert run(WITHOUT_ASYNCORE) == "watched\n"


def test_h1_without_inotify_waits_and_wakes_work_and_it_is_tried_again(directory: Path) -> None:
    assert run(WITHOUT_INOTIFY, PLACE=str(directory)).startswith("inotify:")
