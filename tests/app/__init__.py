"""Tests of the server and of what it builds."""

#: The engine without weights, for ``SD_SOURCE``; see `tests.app.fake_source`.
SOURCE = "tests.app.fake_source:FakeSource"
