"""`check_anchor_env`: what any anchor-aware environment must satisfy."""
