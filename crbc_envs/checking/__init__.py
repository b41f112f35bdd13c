"""`check_anchor_env`: checks that an environment meets the contract of anchors."""
