"""Measurements of the harness itself, one a file: HELP, add_arguments(parser), run(args) -> exit status."""
