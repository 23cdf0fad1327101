"""Small real servers that stand in for the systems that checkpointd talks to."""

import os

# Read when grpc is imported, which the fakes do: else it tells on stderr of each connection's end.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
