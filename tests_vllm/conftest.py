"""Makes torchvision importable, with which vLLM reads frames, before anything imports transformers.

The package index has builds of it for GPUs alone. Beside a torch without, their compiled operators are missing, and an
import ends where it names them. So these are declared. None of them is called for a frame.
"""

import sys
from pathlib import Path

import torch

FOLDER = Path(sys.prefix) / "torchvision"
OPERATORS = torch.library.Library("torchvision", "FRAGMENT")  # a declaration lasts as long as this object

if FOLDER.is_dir():
    sys.path.append(str(FOLDER))
    for name in ("nms", "qnms"):
        OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
