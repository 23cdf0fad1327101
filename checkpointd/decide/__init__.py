"""Decide what to do: one pure function from observation, checkpoints and policy to a Decision.

``fold`` sums up facts, ``words`` keeps the API's last word per slot, ``runs`` weighs the witnesses,
``evidence`` reduces all to one value per question, ``table`` holds the transitions, ``plan`` turns
them into actions and questions, ``invariants`` checks the result, ``explain`` tells it to people.
Nothing here does I/O, reads a clock or logs.
"""

from checkpointd.decide.plan import decide

__all__ = ["decide"]
