"""The verbs of the `passwright` command, one a file: HELP, add_arguments(parser), run(args) -> exit status.

At import a verb loads argparse and nothing heavy; it imports what it runs inside run().
"""
