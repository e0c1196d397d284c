"""``python -m app load``: two hundred readers at once, on a server of its own, and what it cost."""
