"""sb3-contrib: MaskablePPO on whole groups. `GroupVecEnv` tells it the masks, and this is its buffer.

agent = MaskablePPO("MlpPolicy", GroupVecEnv(rounds), n_steps=rounds.horizon, vf_coef=0.0,
                    rollout_buffer_class=MaskableLiveRolloutBuffer)
"""

from __future__ import annotations

from crbc_rl.adapters import require

require("sb3-contrib", "2.8", "2.10", "sb3")

from sb3_contrib.common.maskable.buffers import MaskableRolloutBuffer

from crbc_rl.adapters.sb3 import LiveRolloutBuffer


class MaskableLiveRolloutBuffer(LiveRolloutBuffer, MaskableRolloutBuffer):
    """MaskablePPO's buffer without the rows of idle members."""
