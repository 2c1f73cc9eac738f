"""Reports: the verdicts of `gflow verify` as one self-contained HTML page, as Markdown, or as checked JSON."""

from gflow.report.document import load as load
from gflow.report.pages import render as render
