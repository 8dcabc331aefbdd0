"""The actions of `passwright bi`, one a file: HELP, add_arguments(parser), run(args) -> exit status."""
