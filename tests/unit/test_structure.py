"""The structure of the code: what import-linter has no contract for."""

from __future__ import annotations

from graphlib import TopologicalSorter

import grimp


def test_imports_have_no_cycles() -> None:
    graph = grimp.build_graph("steersman")  # imports for types alone count, too
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()
