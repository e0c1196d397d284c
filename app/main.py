"""One reader's page. Bokeh runs this file once per request; the work is in imported modules."""

from __future__ import annotations

import panel as pn

from app import page

doc = pn.state.curdoc
assert doc is not None
request = page.Request.of(
    arguments=pn.state.session_args or {}, headers=pn.state.headers or {}, path=pn.state.app_url
)
doc.title = page.title(request)
doc.template_variables.update(page.variables(request))
