"""The lean decoder in C: source, the compiler call that builds it, and its binding."""
