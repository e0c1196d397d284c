"""What `panel serve` looks for in a folder before it serves it; no request comes here.

The article is a route (app/routes.py): its bytes are made once and sent to every reader, without a
Bokeh session.
"""
