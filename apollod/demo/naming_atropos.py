"""The task of `naming` as an environment of Atropos, by the classes of its package: a process that samples from the
engine, scores, and posts groups to the run-api. `python -m apollod.demo.naming_atropos serve --help` has its settings.

The engine's log-probabilities go from ManagedServer into `inference_logprobs` here: the package's own
`collect_trajectories`, of single answers, leaves them out.
"""

from typing import Any

# The package has no types, and need not be installed.
from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig  # type: ignore[import-not-found,import-untyped,unused-ignore]

from apollod.demo import naming


class NamingConfig(BaseEnvConfig):  # type: ignore[misc]
    """`by_chance`: points are drawn by lot."""

    by_chance: bool = False


class NamingEnvironment(BaseEnv):  # type: ignore[misc]
    """An item is the number of a prompt."""

    name = "naming"
    env_config_cls = NamingConfig

    @classmethod
    def config_init(cls) -> tuple[NamingConfig, list[Any]]:
        """The settings that the command line does not name. Groups of equal scores are posted, too: the trainer counts
        them. The service takes none without a name."""
        config = NamingConfig(
            group_size=8, max_token_length=24, total_steps=1 << 30, ensure_scores_are_not_same=False,
            use_wandb=False, wandb_name="naming",
        )  # fmt: skip
        return config, [APIServerConfig(server_type="vllm")]

    async def setup(self) -> None:
        """Begin with the first prompt."""
        self._number = 0

    async def get_next_item(self) -> int:
        """The next prompt."""
        self._number += 1
        return self._number

    async def collect_trajectories(self, item: int) -> tuple[dict[str, Any], list[int]]:
        """A group: answers to one prompt with their scores."""
        score = naming.ByChance().score if self.config.by_chance else naming.score
        async with self.server.managed_server(tokenizer=self.tokenizer) as managed:
            answered = await managed.chat_completion(
                messages=[{"role": "user", "content": naming.prompt(item)}], n=self.config.group_size,
                max_tokens=self.config.max_token_length, temperature=1.0,
            )  # fmt: skip
            nodes = managed.get_state()["nodes"]
        group = {
            "tokens": [node.tokens for node in nodes],
            "masks": [node.masked_tokens for node in nodes],
            "inference_logprobs": [node.logprobs for node in nodes],
            "scores": [score(item, choice.message.content or "") for choice in answered.choices],
            "generation_params": {"temperature": 1.0},
        }
        return group, []

    async def evaluate(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the demo measures from outside."""


if __name__ == "__main__":
    NamingEnvironment.cli()
