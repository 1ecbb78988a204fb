"""What any engine needs that asks a server: requests, replies, faults, keys, budgets."""
