"""Figures outside the page: one script, one self-contained file, a still."""

from figures.export.bundle import BundleError, bundle, view
from figures.export.standalone import ExportError, standalone

__all__ = ["BundleError", "ExportError", "bundle", "standalone", "view"]
