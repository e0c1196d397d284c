"""A class reads together: one room a server, a teacher who leads it, pages that follow.

`room.py` is the room (what is shown, who has guessed what, the race that all watch), `checks.py`
what may enter it, `socket.py` the WebSocket `/room`, `pages.py` its HTTP routes, `address.py` the
teacher's secret link and the address that the class is given. Everything is in memory and
forgotten with the server: there are no names, no accounts, and nothing that tells one page from
another but a number drawn at random for the time that its tab is open.
"""
