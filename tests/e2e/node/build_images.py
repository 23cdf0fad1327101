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
import sys
import tarfile
import tempfile
from pathlib import Path

BUSYBOX = Path("/bin/busybox")
APPLETS = ("sh", "sleep", "httpd", "cat", "ls", "stat", "find", "sha256sum", "id", "date", "true")


def add_file(tar: tarfile.TarFile, name: str, payload: bytes, mode: int = 0o644) -> None:
    """Add a file of root's, with a fixed time, so that equal input makes equal images."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(payload), mode
    tar.addfile(member, io.BytesIO(payload))


def layer(programs: dict[str, Path]) -> bytes:
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
        for name, source in programs.items():
            add_file(tar, name, source.read_bytes(), 0o755)
    return buffer.getvalue()


def write_image(out: Path, tag: str, command: list[str], programs: dict[str, Path]) -> None:
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
        write_image(work / "pause.tar", "registry.local/pause:1", ["/bin/sleep", "100000000"], {})
        write_image(work / "busybox.tar", "registry.local/busybox:1", ["/bin/sh"], {})
        write_image(
            work / "kube-apiserver.tar",
            "registry.local/kube-apiserver:v1.20.2",
            ["/bin/kube-apiserver"],
            {"bin/kube-apiserver": binaries / "kube-apiserver"},
        )
        work.chmod(0o755)
        work.rename(out)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
