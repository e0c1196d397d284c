"""A loop whose condition is slow: waiting for it, or guessing it and running ahead."""
