"""Make the container images of the tests without a registry; imports nothing of this project.

An image is a docker-archive of one layer, as `ctr images import` reads it. The output directory
appears whole or not at all.

usage: build_images.py DIRECTORY_OF_BINARIES OUT
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import struct
import sys
import tarfile
import tempfile
from pathlib import Path

BUSYBOX = Path("/bin/busybox")
APPLETS = ("sh", "sleep", "httpd", "cat", "ls", "stat", "find", "sha256sum", "id", "date", "true")

PAUSE_AT = 0x400000
PAUSE_SIGNALS = struct.pack("<Q", 1 << 2 - 1 | 1 << 15 - 1)  # SIGINT and SIGTERM
PAUSE_CODE = (
    "b80e000000 31ff be{signals} 31d2 41ba08000000 0f05"  # rt_sigprocmask(SIG_BLOCK, signals)
    "b880000000 bf{signals} 31f6 31d2 41ba08000000 0f05"  # rt_sigtimedwait(signals)
    "85c0 78e6"  # again where it was interrupted
    "b83c000000 31ff 0f05"  # exit(0)
)
"""x86-64, in hexadecimal."""


def pause_program() -> bytes:
    """Return the smallest program that is to its node what Kubernetes' pause is.

    One process of that name, by which a sandbox is known, that ends when it is asked to.
    """
    offset = 64 + 56
    signals = struct.pack("<I", PAUSE_AT + offset).hex()
    content = PAUSE_SIGNALS + bytes.fromhex(PAUSE_CODE.format(signals=signals))
    entry, size = PAUSE_AT + offset + len(PAUSE_SIGNALS), offset + len(content)
    header = b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 2, 62, 1, entry, 64, 0, 0, 64, 56, 1, 0, 0, 0
    )
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, PAUSE_AT, PAUSE_AT, size, size, 0x1000)
    return header + segment + content


def add_file(tar: tarfile.TarFile, name: str, payload: bytes, mode: int = 0o644) -> None:
    """Add a file of root's, with a fixed time, so that equal input makes equal images."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(payload), mode
    tar.addfile(member, io.BytesIO(payload))


def layer(programs: dict[str, bytes]) -> bytes:
    """Return a layer with busybox, the links of its applets, and further programs by path."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for directory, mode in (("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777), ("usr", 0o755)):
            member = tarfile.TarInfo(directory)
            member.type, member.mode = tarfile.DIRTYPE, mode
            tar.addfile(member)
        add_file(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n")
        add_file(tar, "bin/busybox", BUSYBOX.read_bytes(), 0o755)
        for applet in APPLETS:
            member = tarfile.TarInfo(f"bin/{applet}")
            member.type, member.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(member)
        for name, program in programs.items():
            add_file(tar, name, program, 0o755)
    return buffer.getvalue()


def write_image(out: Path, tag: str, command: list[str], programs: dict[str, bytes]) -> None:
    """Write the archive of one image, named by its tag, to `out`."""
    content = layer(programs)
    digest = hashlib.sha256(content).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": command, "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    layer_name = f"{digest}/layer.tar"
    index = [{"Config": config_name, "RepoTags": [tag], "Layers": [layer_name]}]
    with tarfile.open(out, "w") as tar:
        add_file(tar, config_name, config)
        add_file(tar, layer_name, content)
        add_file(tar, "manifest.json", json.dumps(index).encode())


def main(binaries: Path, out: Path) -> None:
    """Write all images into the directory `out`, which must not be there yet."""
    work = Path(tempfile.mkdtemp(prefix=f"{out.name}.", dir=out.parent))
    try:
        write_image(
            work / "pause.tar",
            "registry.local/pause:1",
            ["/bin/pause"],
            {"bin/pause": pause_program()},
        )
        write_image(work / "busybox.tar", "registry.local/busybox:1", ["/bin/sh"], {})
        write_image(
            work / "kube-apiserver.tar",
            "registry.local/kube-apiserver:v1.20.2",
            ["/bin/kube-apiserver"],
            {"bin/kube-apiserver": (binaries / "kube-apiserver").read_bytes()},
        )
        work.chmod(0o755)
        work.rename(out)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
