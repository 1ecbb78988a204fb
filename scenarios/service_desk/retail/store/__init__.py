"""The shop as the benchmarks have it: records, tools over them, tasks. Knows no wording."""
