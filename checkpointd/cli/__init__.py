"""Serve the command line: one module per verb, thin; they read files and print.

A verb must work while the daemon is dead: it asks no daemon, no cluster and no kubelet. What it
prints may come from an API server's or a kubelet's answer, so ``screen`` cleans it.
"""
