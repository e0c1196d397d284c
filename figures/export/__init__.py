"""Figures outside the page: one script, one self-contained file, a still."""
