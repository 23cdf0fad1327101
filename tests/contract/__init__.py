"""One suite per source: what checkpointd relies on, on the embedded node and on a real one."""
