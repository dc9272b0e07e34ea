"""The nodes of an extender's question and answer in compiled code: hundreds of names for every pod.

What is slow about them is not the arithmetic. On a busy machine nothing of a table of strings is in a cache when a
question comes, and each string that is looked up there waits for memory several times, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from steersman.compiled import inner, kernel

Bytes = npt.NDArray[np.uint8]
Slots = npt.NDArray[np.int64]

HIGHEST = 10
"""The best score that an extender may give."""
HEAD = b'{"Host":"'
QUOTE, COMMA, OPENS, CLOSES, BRACE, BACKSLASH, ZERO, END = b'",[]}\\0\0'
LONGEST_SCORE = 4
"""Bytes that may follow a node's text: two digits, a brace, and a comma or bracket."""
NOBODY = -1
FNV_BASIS, FNV_PRIME = np.uint64(14695981039346656037), np.uint64(1099511628211)
"""Of the hash FNV-1a with 64 bits, http://www.isthe.com/chongo/tech/comp/fnv/."""


class NodeTexts(NamedTuple):
    """What is said of N nodes, to be found by their names.

    Attributes:
        rows: [N, W] the JSON of each one's `HostPriority` up to its score, and END as often as there is room.
        table: [M] slots at the hash of their name or, where that is taken, further on; NOBODY: free. M is a power of 2.
        asked: [N] the last question that named the node.
        questions: [1] so far.
    """

    rows: Bytes
    table: npt.NDArray[np.int32]
    asked: npt.NDArray[np.int32]
    questions: npt.NDArray[np.int32]


def node_texts(names: Sequence[str]) -> NodeTexts:
    """The texts of one node or more, by slot; "" where there is none."""
    hosts = [b'{"Host":%b,"Score":' % msgspec.json.encode(name) for name in names]
    width = max(map(len, hosts)) + 1
    texts = NodeTexts(
        rows=np.frombuffer(b"".join(host.ljust(width, bytes([END])) for host in hosts), np.uint8).reshape(-1, width),
        table=np.full(1 << (2 * len(hosts)).bit_length(), NOBODY, dtype=np.int32),
        asked=np.zeros(len(hosts), dtype=np.int32),
        questions=np.zeros(1, dtype=np.int32),
    )
    _enter(texts)
    return texts


@kernel
def find_nodes(texts: NodeTexts, json: Bytes, slots: Slots) -> int:
    """Look up the nodes that a JSON array of names stands for.

    Args:
        texts: of all nodes.
        json: [B] its bytes.
        slots: [N] those of the nodes are written to it.

    Returns:
        How many there are. 0: it is not plainly a list of different nodes that are known, and must be read by all rules
        of JSON: it may hold escapes or spaces, be no list, or name a node twice or one that is not known.
    """
    texts.questions[0] += 1
    found, i, end = 0, 0, json.shape[0]
    while i + 1 < end and json[i] == (COMMA if found else OPENS) and json[i + 1] == QUOTE:
        first = i + 2
        i, key = _hashed(json, first)
        slot = _find(texts, json, first, i, key)
        if slot == NOBODY or texts.asked[slot] == texts.questions[0]:
            return 0
        texts.asked[slot] = texts.questions[0]
        slots[found] = slot
        found, i = found + 1, i + 1
    return found if i == end - 1 and json[i] == CLOSES else 0


@kernel
def write_answer(rows: Bytes, slots: Slots, ranks: npt.NDArray[np.int64], answer: Bytes) -> int:
    """Write an extender's answer; how many bytes it has, 0 if not all of the nodes are known.

    Args:
        rows: [N, W] see `NodeTexts`.
        slots: [K] of the nodes in question, one or more; below 0 for one that is not known.
        ranks: [K] their scores, 0 to HIGHEST.
        answer: [1 + K (W + LONGEST_SCORE)] is written to.
    """
    answer[0], end = OPENS, 1
    for i in range(slots.shape[0]):
        if slots[i] < 0:
            return 0
        j = 0
        while rows[slots[i], j] != END:
            answer[end] = rows[slots[i], j]
            end, j = end + 1, j + 1
        if ranks[i] == HIGHEST:
            answer[end] = ZERO + 1
            end += 1
        answer[end], answer[end + 1], answer[end + 2] = ZERO + ranks[i] % HIGHEST, BRACE, COMMA
        end += 3
    answer[end - 1] = CLOSES
    return end


@inner
def _hashed(text: Bytes, first: int) -> tuple[int, np.uint64]:
    """Where the string that begins there ends, or becomes more than plain text, and the hash of what comes before."""
    i, key = first, FNV_BASIS
    while i < text.shape[0] and text[i] != QUOTE and text[i] != BACKSLASH:
        key = (key ^ np.uint64(text[i])) * FNV_PRIME
        i += 1
    return i, key


@inner
def _find(texts: NodeTexts, text: Bytes, first: int, end: int, key: np.uint64) -> int:
    """The slot of the node whose name stands in a text from `first` to a quote at `end`, NOBODY: there is none."""
    last, head, width = texts.table.shape[0] - 1, len(HEAD), texts.rows.shape[1]
    place = np.int64(key & np.uint64(last))
    while texts.table[place] != NOBODY and head + end - first < width:
        slot = texts.table[place]
        i = first
        while i < end and texts.rows[slot, head + i - first] == text[i]:
            i += 1
        if i == end and texts.rows[slot, head + i - first] == QUOTE:
            return int(slot)
        place = (place + 1) & last
    return NOBODY


@kernel
def _enter(texts: NodeTexts) -> None:
    last, head = texts.table.shape[0] - 1, len(HEAD)
    for slot in range(texts.rows.shape[0]):
        if texts.rows[slot, head] != QUOTE:  # there is a node
            place = np.int64(_hashed(texts.rows[slot], head)[1] & np.uint64(last))
            while texts.table[place] != NOBODY:
                place = (place + 1) & last
            texts.table[place] = slot
