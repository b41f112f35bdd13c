"""Print docs/tutorial.ipynb, the notebook of docs/tutorial.md: `python scripts/notebook.py > docs/tutorial.ipynb`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs/tutorial.md"


def notebook(page: str) -> dict[str, Any]:
    """Python blocks become cells of code, and what stands between them cells of text. Pictures are drawn in it."""
    cells: list[dict[str, Any]] = []
    for number, text in enumerate(re.split(r"```python\n(.*?)```\n", page, flags=re.DOTALL)):
        kind = "code" if number % 2 else "markdown"
        source = text.strip("\n") if kind == "code" else re.sub(r"!\[.*?\]\(.*?\)\n", "", text).strip("\n")
        if source:
            cell: dict[str, Any] = {
                "cell_type": kind,
                "id": f"cell-{len(cells)}",
                "metadata": {},
                "source": source.splitlines(True),
            }
            cells.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


if __name__ == "__main__":
    print(json.dumps(notebook(PAGE.read_text(encoding="utf-8")), indent=1, ensure_ascii=False))
