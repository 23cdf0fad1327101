"""Small real servers that stand in for the systems that checkpointd talks to."""
