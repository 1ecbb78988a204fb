"""A seat for any program: an agent that was built with somebody else's library plays in any
scenario, and what its model samples here is on record, and learned from.

The program is a client over HTTP. Behind its seat stands a policy of the config, which it calls as
it would call any model. `program` is the seat, `desk` hands seats out, `door` is the server,
`requests`, `sayings` and `answers` are the format of chat completions. Rules, rewards and other
agents are not known here.

Decisions: docs/decisions.md#serving
"""
