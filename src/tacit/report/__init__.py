"""Pages: results in, one self-contained HTML file out. Never sees a model."""
