"""Pages: HTML that opens from disk, with no network: the report, one file; the viewer, a folder. See README.md."""
