"""Build or fetch what end-to-end tests start, into the user's cache: `python -m tests.support.programs`.

Tests do the same where it is missing; a compiler that runs before them takes no time of theirs.
"""

from tests.e2e.telemetry import prometheus
from tests.support.chart.helm import helm_program
from tests.support.kubernetes import control_plane_programs
from tests.support.servers.plugin_scheduler import plugged_scheduler

if __name__ == "__main__":
    print(prometheus.programs())
    print(control_plane_programs())
    print(plugged_scheduler().parent)
    print(helm_program().parent)
