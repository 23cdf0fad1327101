"""Be scheduler and DaemonSet controller of a cluster with one node; both survive the API's outage.

main(["--api-port", PORT, "--pki", DIRECTORY, "--node", NAME])
"""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

from tests.fakes.api_client import FAILURES, PODS, ApiClient, ApiError, pod_path
from tests.fakes.api_objects import Object

ROUND_SECONDS = 0.1
DAEMON_SETS = "/apis/apps/v1/daemonsets"


class Controllers:
    """Do rounds: each DaemonSet wants one pod here; each pod without a node gets this one."""

    def __init__(self, client: ApiClient, node: str) -> None:
        self._client = client
        self._node = node

    def run(self) -> None:
        """Do rounds for ever."""
        while True:
            try:
                self.do_round()
            except FAILURES:
                self._client.close()
            threading.Event().wait(ROUND_SECONDS)

    def do_round(self) -> None:
        """Do one round. Raises FAILURES."""
        pods = self._client.list(PODS)
        for daemon_set in self._client.list(DAEMON_SETS):
            self._sync(daemon_set, pods)
        for pod in pods:
            if not pod["spec"].get("nodeName"):
                metadata = pod["metadata"]
                path = pod_path(metadata["namespace"], metadata["name"])
                self._client.patch(path, {"spec": {"nodeName": self._node}})

    def _sync(self, daemon_set: Object, pods: list[Object]) -> None:
        uid = daemon_set["metadata"]["uid"]
        mine = [pod for pod in pods if uid in _controllers(pod)]
        for pod in mine:
            if pod.get("status", {}).get("phase") == "Failed":
                # pkg/controller/daemon: a failed pod is deleted, then replaced.
                metadata = pod["metadata"]
                self._delete(pod_path(metadata["namespace"], metadata["name"]))
        # A terminating pod still counts: its replacement comes when it has gone.
        if not mine and not daemon_set["spec"]["template"]["spec"].get("nodeSelector"):
            self._create(daemon_set)

    def _delete(self, path: str) -> None:
        try:
            self._client.delete(path)
        except ApiError as error:
            if error.status != 404:
                raise

    def _create(self, daemon_set: Object) -> None:
        metadata, template = daemon_set["metadata"], daemon_set["spec"]["template"]
        owner = {
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": metadata["name"],
            "uid": metadata["uid"], "controller": True, "blockOwnerDeletion": True,
        }  # fmt: skip
        made = {
            "metadata": {
                "generateName": f"{metadata['name']}-",
                "labels": template["metadata"].get("labels", {}),
                "annotations": template["metadata"].get("annotations", {}),
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
        }
        self._client.create(f"/api/v1/namespaces/{metadata['namespace']}/pods", made)


def _controllers(pod: Object) -> set[str]:
    owners = pod["metadata"].get("ownerReferences", [])
    return {owner["uid"] for owner in owners if owner.get("controller")}


def main(arguments: list[str]) -> int:
    """Run until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--api-port", type=int, required=True)
    parser.add_argument("--pki", type=Path, required=True)
    parser.add_argument("--node", required=True)
    options = parser.parse_args(arguments)
    Controllers(ApiClient(options.api_port, options.pki), options.node).run()
    return 0
