"""The stream must be Go's, number by number: the expected values were printed by a Go 1.26 program."""

import pytest

from steersman.workloads.generators.inflation import GoRand


@pytest.mark.parametrize(
    ("seed", "first", "perm", "shuffled", "digest", "last"),
    [
        (0, [8717895732742165505, 2259404117704393152, 353, 298], [5, 6, 8, 10, 2, 1, 11, 4, 9, 0, 7, 3],
         [1, 3, 8, 4, 9, 2, 5, 6, 0, 7], 5684275330306186216, 8420887878122025986),
        (42, [3440579354231278675, 608747136543856411, 668, 574], [6, 5, 0, 10, 2, 1, 3, 7, 9, 11, 8, 4],
         [2, 3, 5, 4, 1, 0, 8, 9, 6, 7], 5424014159272295937, 2664195179027349419),
        (-7, [747107023976529931, 7084732931963018726, 490, 576], [5, 10, 9, 8, 3, 6, 1, 7, 11, 4, 0, 2],
         [4, 7, 2, 5, 9, 0, 6, 8, 1, 3], -6194671015572554181, 437853040472165487),
        (1 << 40, [5470237361722394362, 6322525149314491254, 585, 985], [8, 7, 9, 2, 1, 5, 4, 0, 3, 6, 10, 11],
         [3, 8, 0, 5, 1, 2, 4, 6, 7, 9], 3731801907292523691, 8256016662701749293),
    ],
)  # fmt: skip
def test_stream_matches_go(seed, first, perm, shuffled, digest, last):
    random = GoRand(seed)
    assert [random.int63(), random.int63(), random.intn(1000), random.intn(1024)] == first
    assert random.perm(12) == perm
    items = list(range(10))
    random.shuffle(items)
    assert items == shuffled
    mixed = 0
    for i in range(100_000):
        mixed ^= (random.int63() * i + random.intn(i + 1)) % 2**64
    assert mixed == digest % 2**64
    assert random.int63() == last
