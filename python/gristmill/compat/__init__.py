"""Modules with other libraries' names, signatures and defaults, on gristmill's parts."""
