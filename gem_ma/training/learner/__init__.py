"""What turns advantages into new weights: learners, losses, critics, parity, cloning.

`CATALOG`: learner name -> "module:Class". An engine that trains asks the registry for its learner,
since it may not import from this room, which lies floors above it.
"""

CATALOG = {
    "table": "gem_ma.training.learner.table_learner:TableLearner",
    "sharded": "gem_ma.training.learner.sharded_learner:ShardedLearner",
    "tinker": "gem_ma.training.learner.tinker_learner:TinkerLearner",
    "torch": "gem_ma.training.learner.torch_learner:TorchLearner",
}
