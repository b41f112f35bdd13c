"""The tests of the adapter for verl, in an environment of their own: scripts/test_verl.sh."""

from __future__ import annotations

import os

import torchvision_on_cpu  # noqa: F401 (processors of frames want torchvision)
from command import ENVIRONMENT

os.environ.update(ENVIRONMENT)
