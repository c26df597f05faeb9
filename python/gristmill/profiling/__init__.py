"""Where a run's time goes: what `gristmill profile` and `top` read from its board, and say about it."""
