"""Which node of the cluster a series is of: by its name, an address, or a host name with or without its domain."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping

from steersman.cluster.model import Node
from steersman.cluster.node_labels import HOSTNAME
from steersman.prometheus.configuration import NodeMapping

Addresses = Mapping[str, tuple[str, ...]]
"""By name of a node what else it is called: its addresses and its host name."""


def addresses_of(nodes: Iterable[Node | None]) -> Addresses:
    """Return what nodes are called: `status.addresses` and the label of their host names."""
    return {node.name: (*node.addresses, node.labels.get(HOSTNAME, node.name)) for node in nodes if node is not None}


class NodeNames:
    """Finds nodes by what labels of series call them.

    A name that two nodes share finds neither of them.

    Args:
        mapping: how the value of a label is read.
        addresses: of the cluster's nodes.
    """

    def __init__(self, mapping: NodeMapping, addresses: Addresses) -> None:
        self._pattern, self._names = re.compile(mapping.pattern), mapping.names
        self._nodes = frozenset(addresses)
        self._full = _unique((_normalized(name), node) for node, names in addresses.items() for name in (node, *names))
        self._short = _unique(
            (short, node)
            for node, names in addresses.items()
            for name in (node, *names)
            if (short := _host(_normalized(name)))
        )

    def find(self, text: str) -> str:
        """Return the node that the value of a label means, "" if it means none.

        `names` of the configuration decide first, then names of nodes, then addresses, then host names without domain.
        """
        matched = self._pattern.fullmatch(text)
        named = (matched[1] or "") if matched is not None else ""
        if named in self._names:
            named = self._names[named]
        if not named or named in self._nodes:
            return named
        # The whole text first: the default pattern would cut the last group off an IPv6 address, as if it were a port.
        for name in (_normalized(text) if _is_address(text) else "", _normalized(named)):
            if name and (node := self._full.get(name) or self._short.get(_host(name), "")):
                return node
        return ""


def _unique(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the node of each name, without names of several nodes."""
    nodes: dict[str, set[str]] = {}
    for name, node in pairs:
        nodes.setdefault(name, set()).add(node)
    return {name: next(iter(those)) for name, those in nodes.items() if len(those) == 1}


def _normalized(name: str) -> str:
    """Return a name in one spelling: an address as ipaddress writes it, a host in lower case without a last dot."""
    bare = name.strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return name.lower().rstrip(".")
    return str(getattr(address, "ipv4_mapped", None) or address)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


def _host(name: str) -> str:
    """Return a host name without its domain, "" of an address."""
    return "" if _is_address(name) else name.partition(".")[0]
