"""Serve the command line: one module per verb, thin; they read files and print.

A verb must work while the daemon is dead: it asks no daemon, no cluster and no kubelet, but for
``doctor``, which waits for none of them beyond its time. What it
prints may come from an API server's or a kubelet's answer, so ``screen`` cleans it.
"""
