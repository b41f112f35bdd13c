"""The tests of generation with vLLM, in an environment of their own: scripts/test_vllm.sh."""

import torchvision_on_cpu  # noqa: F401 (vLLM reads frames with torchvision)
