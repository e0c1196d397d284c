"""The server of the article: its page, its routes and the live race."""
