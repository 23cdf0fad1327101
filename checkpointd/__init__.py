"""checkpointd keeps marked pods of a Kubernetes node alive while no API server answers.

This package holds the version and nothing else: `ls` shows the design (observe, decide, act),
`__main__` starts the program.
"""

__version__ = "0.1.0"
