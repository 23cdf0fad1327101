"""A real node for the tests: machines (systemd in a container), a control plane, kubelets, cables.

Nothing here imports the daemon; what a test knows of it, it reads as an operator would.
"""
