"""Words and figures that the pages and the command line both show."""
