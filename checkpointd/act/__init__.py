"""Make the effects of a decision: each becomes an Outcome; a failed one comes back by itself.

Belongs here: the static-pod directory, stopping copies through the runtime, and the dispatch from
``Action`` to the store. Must not: decide, wait for the runtime, or touch a file that is not ours.
"""
