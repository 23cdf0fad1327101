"""Make a port of a machine refuse connections while its server runs on, as a dead server would."""

from __future__ import annotations

from tests.e2e.node.machine import Machine

RULE = "INPUT -p tcp --dport {} -j REJECT --reject-with tcp-reset"


def refuse(machine: Machine, port: int) -> None:
    """Reset all connections to a TCP port of the machine, and each new one, until accept()."""
    machine.sh(f"iptables -I {RULE.format(port)} && ss -HK '( sport = {port} or dport = {port} )'")


def accept(machine: Machine, port: int) -> None:
    """Let connections to that port through again."""
    machine.sh(f"iptables -D {RULE.format(port)}")
