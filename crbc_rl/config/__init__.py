"""Configs: their sections and keys, how they are read, and the modules that they may name."""

from crbc_rl.config.read import explain as explain
from crbc_rl.config.read import flat as flat
from crbc_rl.config.read import load_config as load_config
from crbc_rl.config.read import parse as parse
from crbc_rl.config.read import parse_config as parse_config
from crbc_rl.config.read import read_mapping as read_mapping
from crbc_rl.config.read import set_value as set_value
from crbc_rl.config.sections import CLIPPED as CLIPPED
from crbc_rl.config.sections import CRITIC as CRITIC
from crbc_rl.config.sections import KEEP as KEEP
from crbc_rl.config.sections import EnvConfig as EnvConfig
from crbc_rl.config.sections import LossConfig as LossConfig
from crbc_rl.config.sections import OptimConfig as OptimConfig
from crbc_rl.config.sections import RolloutConfig as RolloutConfig
from crbc_rl.config.sections import RunConfig as RunConfig
from crbc_rl.config.sections import Section as Section
from crbc_rl.config.sections import TrainConfig as TrainConfig
