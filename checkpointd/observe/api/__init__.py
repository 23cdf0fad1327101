"""Observe the API server: this node's pods by LIST and WATCH, and what decide asks for.

``pods``, ``owners`` and ``world`` parse and judge answers; ``contact`` says whether there are any;
``watch`` and ``look`` are the two source threads.
"""
