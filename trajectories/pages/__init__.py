"""Pages: HTML that opens anywhere: one file, no network. render.py renders, charts.py draws, the rest says what of."""
