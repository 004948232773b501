"""Documents: tables and charts for the terminal, CSV, Markdown, LaTeX and HTML."""
