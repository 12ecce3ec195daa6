"""Parts of the command line, which `hmmlib.__main__` puts together."""
