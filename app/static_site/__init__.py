"""The article as a folder of files, for any static host or none: `python -m app build -o site`.

The same templates and the same code as the served page make it; `place.Copy` gives the addresses
of files where `app.places.Served` gives those of routes.
"""
