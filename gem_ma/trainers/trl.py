"""Scenarios inside TRL: its `GRPOTrainer` learns from plays of this library, with an advantage for
each turn.

`examples/with_trl.py` is a whole script: rollouts = Rollouts(CONFIG), and a `TurnTrainer` with
`rollout_func=rollouts`, `reward_funcs=rollouts.total` and `train_dataset=rollouts.dataset(COUNT)`.

A prompt of the data set names a start and an agent, and TRL repeats it `num_generations` times:
these plays are a group. TRL takes one row a prompt. Written for TRL 1.16.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from gem_ma.api import Source
from gem_ma.config.loading import Overrides
from gem_ma.engines.local.transformers import Transformers
from gem_ma.kernel.errors import ConfigError, DataError
from gem_ma.system.extras import install
from gem_ma.trainers.course import Course, Start
from gem_ma.trainers.samples import Sample

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # it warns that `rollout_func` may change
try:
    from datasets import Dataset
    from trl import GRPOTrainer
except ImportError as error:
    raise ConfigError(f"the integration wants TRL ({error}); type: {install('trl')}") from error

# Columns of a rollout that TRL hands on to the reward functions.
ADVANTAGES = "token_advantages"
TOTAL = "total"
# Under which TRL's checkpoints hold what the plays after it depend on.
PROGRESS = "gem_ma.progress"
# A logit whose probability is 0 in every precision; an infinity would make TRL's entropy a NaN.
NEVER = -1e4
# Arguments of TRL that change what is sampled, and the values that change nothing.
UNCUT: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("top_p", (None, 1.0)),
    ("top_k", (None, 0, -1)),
    ("min_p", (None, 0.0)),
    ("repetition_penalty", (None, 1.0)),
    ("generation_kwargs", (None, {})),
)


class Rollouts:
    """TRL's `rollout_func`: plays with the model that TRL trains in the seats of one policy.

    Arguments as those of `Course`. `per_turn`: advantages are the config's, one a turn, which
    wants a `TurnTrainer`; False: TRL's own, from the reward of the episode. Raises ConfigError for
    what TRL would silently lose.
    """

    def __init__(
        self,
        source: Source,
        overrides: Overrides = (),
        *,
        policy: str | None = None,
        per_turn: bool = True,
    ) -> None:
        self.course = Course(source, overrides, policy=policy)
        self.per_turn = per_turn
        self.policy = self.course.policies[self.course.policy]
        engine = self.policy.core
        if not isinstance(engine, Transformers):
            raise ConfigError(
                f"policies.{self.policy.name}: TRL's weights are played in this process, so its"
                " model is transformers/FOLDER"
            )
        self.engine = engine
        self._check_sampling()
        self.engine.unshare()
        self.checked: Any = None  # the trainer that was looked at

    def dataset(self, count: int) -> Dataset:
        """So many prompts, each once: TRL repeats them."""
        return Dataset.from_list([{"prompt": str(start)} for start in self.course.starts(count)])

    def total(self, completions: Sequence[Any], total: Sequence[float | None], **_: Any) -> Any:
        """TRL's reward function: what the agent was paid in the episode; None where the play
        failed, which TRL leaves out."""
        return list(total)

    def __call__(self, prompts: Sequence[str], trainer: Any) -> dict[str, list[Any]]:
        """One row for each prompt, in their order. Raises DataError where an agent has more than
        one row."""
        self._check(trainer)
        self._publish(trainer)
        # an evaluation plays beside the training, which must not notice it
        course = self.course if trainer.model.training else self.course.aside()
        starts = [Start.of(prompt) for prompt in prompts]
        episodes, ids = course.play(starts)
        by_seat: dict[tuple[Any, str], Sample] = {}
        made = course.learn(episodes)
        # TRL writes it into its checkpoints
        trainer.state.stateful_callbacks[PROGRESS] = self.course.progress()
        for sample in made:
            if sample.parts > 1:
                raise DataError(
                    f"episode {sample.episode}: the history of {sample.agent} was rewritten, so it"
                    f" has {sample.parts} rows, and TRL takes one a prompt; take the window or the"
                    " summary out of the config, or train with gem-ma train"
                )
            by_seat[sample.episode, sample.agent] = sample
        self._count(trainer, episodes, len(by_seat))
        rows = [by_seat.get((id, start.agent)) for id, start in zip(ids, starts, strict=True)]
        return self._columns(rows)

    def _columns(self, rows: Sequence[Sample | None]) -> dict[str, list[Any]]:
        """The rows as TRL's columns. A play that failed, or in which the agent never spoke, is a
        row without a trained token and without a reward."""
        end = min(self.engine.vocabulary.ends)  # any id does: it is not trained
        columns: dict[str, list[Any]] = {
            "prompt_ids": [[end] if row is None else row.prompt_ids.tolist() for row in rows],
            "completion_ids": [[end] if row is None else row.response_ids.tolist() for row in rows],
            "logprobs": [[0.0] if row is None else row.logprobs.tolist() for row in rows],
            "env_mask": [[0] if row is None else row.mask.astype(int).tolist() for row in rows],
            TOTAL: [None if row is None else row.total for row in rows],
        }
        if self.per_turn:
            columns[ADVANTAGES] = [
                [0.0] if row is None else row.token_advantages.tolist() for row in rows
            ]
        return columns

    def _publish(self, trainer: Any) -> None:
        """Takes the present weights of the trainer."""
        model = trainer.accelerator.unwrap_model(trainer.model)
        weights = dict(model.named_parameters())
        if missing := sorted(set(self.engine.weights()) - set(weights)):
            raise ConfigError(
                f"policies.{self.policy.name}: TRL trains another model than the config names; it"
                f" has no {missing[0]}"
            )
        self.engine.take(weights)
        self.engine.version += 1

    def _count(self, trainer: Any, episodes: Sequence[Any], rows: int) -> None:
        """Hands to TRL's log how many plays came to nothing."""
        mode = "train" if trainer.model.training else "eval"
        failed = sum(not episode.end.scored for episode in episodes)
        trainer._metrics[mode]["plays/failed"].append(failed / len(episodes))
        trainer._metrics[mode]["plays/rows"].append(float(rows))

    def _check_sampling(self) -> None:
        """Raises ConfigError for a way to sample that TRL's loss does not know."""
        where = f"policies.{self.policy.name}"
        how = self.policy.sampling
        if self.engine.binding.constrain:
            raise ConfigError(
                f"{where}.constrain: TRL weighs every id of the vocabulary, also those that were"
                f" not allowed; set {where}.constrain=null"
            )
        for name, off in (("top_p", 1.0), ("top_k", 0)):
            if getattr(how, name) != off:
                raise ConfigError(
                    f"{where}.{name}: TRL's loss does not know which ids were cut off; take it out"
                )

    def _check(self, trainer: Any) -> None:
        """Raises ConfigError where TRL would silently learn something else than was played."""
        if trainer is self.checked:
            return
        heat = self.policy.sampling.temperature
        unlearned = [name for name, off in UNCUT if getattr(trainer.args, name, off[0]) not in off]
        wrong = {
            f"temperature={trainer.args.temperature}: the config samples at {heat}, so that the"
            " log-probabilities would differ; make them equal": trainer.args.temperature != heat,
            "use_vllm=True: plays are sampled in this process; leave it off": trainer.args.use_vllm,
            "tools= and environment_factory=: the tools are the scenario's, and what they answer"
            " would be trained on; leave them out": bool(trainer.tools),
            f"{unlearned[0] if unlearned else ''}= cuts what is sampled, and plays are sampled as"
            " the config says; leave it out": bool(unlearned),
            "reward_funcs: TurnTrainer learns from the config's rewards alone, so another function"
            " would be logged and not learned from; give it rollouts.total, and pay in the"
            " scenario or by a reward wrapper": (
                isinstance(trainer, TurnTrainer) and self._counted(trainer) != [self.total]
            ),
            "several processes: each would compute advantages from its share alone; start one": (
                trainer.accelerator.num_processes > 1
            ),
            "peft_config: the adapter's weights have no place in the engine; train the whole"
            " model, or train LoRA with gem-ma train": hasattr(
                trainer.accelerator.unwrap_model(trainer.model), "peft_config"
            ),
            "GRPOTrainer knows one advantage an episode, and the config's are one a turn; take"
            " TurnTrainer, or Rollouts(..., per_turn=False)": (
                self.per_turn and not isinstance(trainer, TurnTrainer)
            ),
            "TurnTrainer wants Rollouts(..., per_turn=True)": (
                not self.per_turn and isinstance(trainer, TurnTrainer)
            ),
        }
        if faults := [text for text, there in wrong.items() if there]:
            raise ConfigError(f"TRL: {faults[0]}")
        for model in (trainer.model, trainer.ref_model):
            if model is not None:
                self._ban(trainer.accelerator.unwrap_model(model))
        if before := trainer.state.stateful_callbacks.get(PROGRESS):  # of a checkpoint
            self.course.restore(before)
        self.checked = trainer

    def _counted(self, trainer: Any) -> list[Any]:
        pairs = zip(trainer.reward_funcs, trainer.reward_weights, strict=True)
        return [function for function, weight in pairs if float(weight)]

    def _ban(self, model: Any) -> None:
        """Takes the ids that are never sampled out of TRL's scores too: of a small model they
        hold several percent of the probability, and the ratios would be wrong by that. Out of the
        reference's scores as well: the divergence of the two would be infinite."""
        banned = sorted(self.engine.vocabulary.banned)
        original = model.get_output_embeddings
        if banned:
            # TRL asks for the head at every pass, and computes the scores from what it gets
            model.get_output_embeddings = lambda: _Head(original(), banned)


class _Head:
    """An output head [V, width] with a bias that no banned id outweighs. The model's own head has
    no such weight, so nothing of this is learned or saved."""

    def __init__(self, head: Any, banned: Sequence[int]) -> None:
        import torch

        self._head = head
        self.weight = head.weight
        bias = torch.zeros(len(head.weight)) if head.bias is None else head.bias.detach().clone()
        bias = bias.to(head.weight.device, head.weight.dtype)
        bias[list(banned)] = NEVER
        self.bias = bias if head.bias is None else head.bias + (bias - head.bias.detach())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._head, name)


class TurnTrainer(GRPOTrainer):
    """`GRPOTrainer` with the advantages of `Rollouts`: one for each sampled token, [B, T]. TRL's
    own, from the rewards of the group, are computed and logged, and not learned from."""

    _advantages: Sequence[Sequence[float]] = ()

    def _generate(self, prompts: list[Any]) -> Any:
        made = super()._generate(prompts)
        extra = made[5]
        # taken out of what reward functions see: a list for each row would be logged too
        self._advantages = extra.pop(ADVANTAGES)
        return made

    def _generate_and_score_completions(self, inputs: list[Any]) -> Any:
        import torch

        batch = super()._generate_and_score_completions(inputs)
        # as wide as the padded completions: the loss multiplies place by place
        wide = torch.zeros_like(batch["completion_mask"], dtype=torch.float32)
        for number, values in enumerate(self._advantages):
            wide[number, : len(values)] = torch.tensor(values)
        batch["advantages"] = wide
        return batch
