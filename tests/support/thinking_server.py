"""An endpoint whose model thinks, with the chat templates of Qwen3 and Qwen3.5 real tokens of a small tokenizer, and a
reasoning parser as vLLM has one, or without."""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any, Literal

from anyio.abc import SocketStream
from support.llm_server import LlmServer, Request, good_answer, send
from transformers import PreTrainedTokenizerFast

from apollod.demo.tiny_model import make_tokenizer
from apollod.trainer.objectives.encoding import tokenise
from apollod.trainer.objectives.tokens import Tokens
from apollod.wire.records import decode_record

HERE = Path(__file__).parent / "chat_templates"
TEMPLATES = {
    name: (HERE / f"{file}.jinja").read_text(encoding="utf-8")
    for name, file in (("qwen3", "Qwen-Qwen3-0.6B"), ("qwen3.5", "Qwen3.5-4B"))
}
OPENED, CLOSED = "<think>\n", "\n</think>\n\n"
Parser = Literal["", "reasoning", "reasoning_content"]
"""The field in which vLLM gives the thought; older versions call it reasoning_content."""


def thinking_tokenizer(template: str) -> PreTrainedTokenizerFast:
    """With both tags and two new lines as one token each, as in the vocabularies of Qwen."""
    tokenizer = copy.deepcopy(_tokenizer())
    tokenizer.add_tokens(["<think>", "</think>", "\n\n"])
    tokenizer.chat_template = template
    return tokenizer


@cache
def _tokenizer() -> PreTrainedTokenizerFast:
    """Trained once a process."""
    return make_tokenizer()


def shown(tokenizer: PreTrainedTokenizerFast, tokens: Tokens) -> str:
    """The tokens as text, the learned ones between « and »."""
    text, before = "", False
    for id_, learned in zip(tokens.ids, tokens.mask, strict=True):
        text += ("«" if learned and not before else "»" if before and not learned else "") + tokenizer.decode([id_])
        before = learned
    return text + ("»" if before else "")


class ThinkingModel:
    """Says `says`, after a thought where its prompt leaves room for one: `bare`, or `told` where there is a system
    message. `stops`: it never gets out of its thought."""

    def __init__(
        self, template: str, parser: Parser, says: str = "Ahoy.", bare: str = "Greet.", told: str = "They want Ahoy.",
        stops: bool = False,
    ) -> None:  # fmt: skip
        self.tokenizer = thinking_tokenizer(template)
        self.parser, self.says, self.bare, self.told, self.stops = parser, says, bare, told, stops

    async def behave(self, server: LlmServer, stream: SocketStream, request: Request) -> None:
        body = request.body
        if request.path == "/tokenize":
            answer = self._tokens(body)
        elif request.path == "/detokenize":
            answer = {"prompt": self.tokenizer.decode(body["tokens"])}
        elif request.path.endswith("/chat/completions"):
            answer = self._said(body)
        else:
            answer = good_answer(request)
            scored = [
                {str(token): {"logprob": -1.0}} | {str(n): {"logprob": -2.0 - n} for n in range(20)}
                for token in body["prompt"][1:]
            ]
            answer["choices"][0]["prompt_logprobs"] = [None, *scored]
        await send(stream, json.dumps(answer).encode(), X_Apollod_Weights_Version="4")

    def prompt(self, body: dict[str, Any]) -> str:
        """What its template makes of a request's messages; as in vLLM 0.32 a thought is `reasoning`."""
        messages = [
            {key: value for key, value in one.items() if key != "reasoning_content"}
            | ({"reasoning_content": one["reasoning"]} if "reasoning" in one else {})
            for one in body["messages"]
        ]
        fields = body.get("chat_template_kwargs", {})
        invites = body.get("add_generation_prompt", True)
        return str(
            self.tokenizer.apply_chat_template(messages, add_generation_prompt=invites, tokenize=False, **fields)
        )

    def _tokens(self, body: dict[str, Any]) -> dict[str, Any]:
        text = body["prompt"] if "prompt" in body else self.prompt(body)
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        texts = self.tokenizer.convert_ids_to_tokens(ids)
        return {"count": len(ids), "max_model_len": 4096, "tokens": ids, "token_strs": texts}

    def _said(self, body: dict[str, Any]) -> dict[str, Any]:
        prompt = self.prompt(body)
        thought = self.told if body["messages"][0]["role"] == "system" else self.bare
        schema = body.get("response_format")
        thinks = not prompt.endswith(OPENED + CLOSED) and not (schema and not self.parser)
        opens = "" if prompt.endswith(OPENED) else OPENED
        message: dict[str, Any] = {"role": "assistant"}
        if not thinks:
            message["content"] = self.says
        elif self.parser:
            message |= {"content": None if self.stops else f"\n\n{self.says}", self.parser: f"{thought}\n"}
        else:
            message["content"] = opens + thought + ("" if self.stops else CLOSED + self.says)
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": message}
        if body.get("logprobs"):
            choice["logprobs"] = {"content": [{"token": "a", "logprob": -0.5}] * 3}
        return {
            "id": "c", "model": body["model"], "choices": [choice],
            "usage": {"prompt_tokens": 2, "completion_tokens": 3},
        }  # fmt: skip

    def learned(self, record: bytes) -> str:
        """What the trainer learns of a canonical record, shown."""
        return shown(self.tokenizer, tokenise(self.tokenizer, decode_record(record), 1000))
