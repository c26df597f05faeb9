"""`gristmill soak`: processes killed and stopped at every step, and the count of what was lost."""
