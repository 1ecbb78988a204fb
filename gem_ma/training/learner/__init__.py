"""What turns advantages into new weights: learners, losses, critics, parity, cloning.

Learner name -> "module:Class". An engine that trains asks the registry for its learner, since it
stands floors below this room.
"""

CATALOG = {
    "table": "gem_ma.training.learner.table_learner:TableLearner",
    "torch": "gem_ma.training.learner.torch_learner:TorchLearner",
}
