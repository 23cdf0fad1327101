"""Talk to other systems: kubelet, API server, runtime, kernel, systemd. Thin and typed.

Library exceptions become errors of ``checkpointd.errors`` here. Clients keep no opinion: they
neither decide nor combine, and write nothing to our disk.
"""
