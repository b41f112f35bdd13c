"""A tiny agent behind an endpoint."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from endpoint_client import Client
from paths import ROOT
from served import serving

from crbc_rl.policies.load import load_policy
from crbc_rl.policies.transformers import TransformersPolicy


@pytest.fixture(scope="module")
def policy() -> TransformersPolicy:
    return load_policy(ROOT / "warmstarts" / "sokoban-tiny")


@pytest.fixture(scope="module")
def client(policy: TransformersPolicy) -> Iterator[Client]:
    with serving(policy) as url:
        yield Client(url)
