"""A run's plays as files that other tools read. It reads episodes, asks a judge what they came to,
and plays nothing.

| format | a row is | read back |
| --- | --- | --- |
| jsonl | an episode, as `episodes.jsonl` has it; the last attempt of each | without loss |
| parquet | an episode with its turns, token rows and rewards as columns | without loss |
| | beside it, in a folder: a turn; a model's reply or a call of a tool | |
| hf | an episode, a file per split, as a folder that `datasets.load_dataset` opens | without loss |
| messages | what one agent saw and said in one episode, with rewards and tokens by turn | no |
| sft | the same, of won episodes, up to the agent's last word | no |
| preference | one view of an agent, and two acts of which one led to more | no |
| tau1, tau2 | a talk of `assistant` and `user`, as those benchmarks store results | no |
"""
