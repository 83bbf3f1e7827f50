"""The demo: a plan-and-execute workflow that researches a folder of documents and writes a report."""
