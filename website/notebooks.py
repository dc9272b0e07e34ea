"""Notebooks as Markdown: text as it is, code as code, and what the code printed or drew if the notebook has it."""

from __future__ import annotations

import json
from typing import Any


def as_page(content: str) -> str:
    """Return the Markdown of a notebook (JSON of nbformat 4)."""
    parts = list[str]()
    for cell in json.loads(content)["cells"]:
        source = _text(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code" and source.strip():
            parts.append(f"```python\n{source}\n```")
            parts += [output for each in cell.get("outputs", ()) if (output := _output(each))]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    """Return what a cell showed: a picture, a table, or text; scripts are left out."""
    if output["output_type"] == "stream":
        return _block(_text(output["text"]))
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img alt="Output of the cell above" src="data:image/png;base64,{_text(data["image/png"]).strip()}">'
    if "text/html" in data and "<script" not in (page := _text(data["text/html"])):
        lines = [line for line in page.splitlines() if line.strip()]  # a blank line would end the HTML
        return "\n".join(('<div class="notebook-output">', *lines, "</div>"))
    return _block(_text(data["text/plain"])) if "text/plain" in data else ""


def _block(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"


def _text(value: str | list[str]) -> str:
    return value if isinstance(value, str) else "".join(value)
