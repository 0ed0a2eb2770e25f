"""Audits of style statistics that other software computed."""
