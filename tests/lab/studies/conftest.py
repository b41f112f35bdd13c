"""What tests of studies share."""

from __future__ import annotations

import pytest
import yaml
from kept_fixtures import STUDY

from crbc_lab.studies.comparison.definition import load_study


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump(STUDY, sort_keys=False))
    return load_study(str(path))
