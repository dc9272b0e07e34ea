"""Compare decisions of kube-scheduler and steersman on random clusters: `python -m tests.support.differential.compare`.

A difference is shrunk by Hypothesis to a small cluster that shows it.
"""

from __future__ import annotations

import argparse
import json
import logging
from pathlib import Path

import structlog
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st
from tests.support.differential.clusters import Cluster, clusters
from tests.support.differential.comparison import Findings, differences
from tests.support.differential.configurations import configurations, ends_kube_scheduler
from tests.support.differential.explainer import Explainer, explainer
from tests.support.differential.nodes import Object

CLUSTERS_A_SEED = 300
DEFAULT: st.SearchStrategy[Object | None] = st.none()


def compare(
    explainer: Explainer,
    findings: Findings,
    number: int,
    examples: int = CLUSTERS_A_SEED,
    configured: st.SearchStrategy[Object | None] = DEFAULT,
) -> None:
    """Compare on so many clusters, which the number determines, with a configuration drawn for each.

    Raises:
        AssertionError: a decision differs; it has the smallest cluster that was found to show it.
    """

    @seed(number)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(clusters(), configured)
    def decisions_are_equal(cluster: Cluster, configuration: Object | None) -> None:
        assume(configuration is None or not ends_kube_scheduler(configuration, cluster.objects))
        found = differences(explainer, cluster, findings, configuration)
        if found:
            found.append(f"the configuration: {json.dumps(configuration)}")
            objects = "\n".join(json.dumps(each) for each in (*cluster.objects, *cluster.pods))
            raise AssertionError("\n".join((*found, "the cluster:", objects)))

    decisions_are_equal()


def main() -> None:
    """Compare until enough pods are, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=100_000, help="how many are compared")
    parser.add_argument("--seed", type=int, default=1, help="the first one; each has its clusters")
    parser.add_argument("--configurations", action="store_true", help="draw kube-scheduler's configurations, too")
    parser.add_argument("--output", type=Path, help="file for the findings as JSON")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    findings, number, found = Findings(), options.seed, dict[int, str]()
    configured = configurations() if options.configurations else DEFAULT
    with explainer() as scheduler:
        while findings.pods < options.pods:
            try:
                compare(scheduler, findings, number, configured=configured)
            except AssertionError as error:
                found[number] = str(error)
                print(f"seed {number}: {error}", flush=True)
            number += 1
            summary = {**vars(findings), "seeds": [options.seed, number - 1], "differences": found}
            if options.output is not None:
                options.output.write_text(json.dumps(summary, indent=2) + "\n")
    print(json.dumps(summary, indent=2))


if __name__ == "__main__":
    main()
