"""Real vLLM on CPU serves a small random model with the templates of Qwen3 and Qwen3.5, with its reasoning
parser and without: where it puts thoughts, and that it is asked about the very tokens that the trainer learns."""

from pathlib import Path

import anyio
import pytest
from support.engine_host import Engine
from support.thinking_server import TEMPLATES, shown, thinking_tokenizer
from transformers import AutoModelForCausalLM

from apollod.adapters.llm.client import HttpLlm
from apollod.adapters.llm.endpoint import Endpoint
from apollod.adapters.llm.log_probabilities import teacher_of
from apollod.adapters.llm.openai_api import Choice, Sampling
from apollod.core.settings import Thinking
from apollod.curation.surrounding_texts import answered
from apollod.demo.tiny_model import save
from apollod.trainer.objectives.context import CONTEXT
from apollod.trainer.objectives.encoding import load_tokenizer
from apollod.wire.comparisons import with_file
from apollod.wire.records import decode_record, record_of_forms
from apollod.wire.teacher import GivenTeacher, digest_of, write_teacher

pytestmark = pytest.mark.engine

ASKED = [{"role": "user", "content": "Hello!"}]
TOLD = [{"role": "system", "content": "Say Ahoy."}, *ASKED]


@pytest.mark.parametrize(("template", "parser"), [("qwen3", False), ("qwen3.5", True)])
def test_thoughts_of_a_real_engine(tiny_model: Path, tmp_path: Path, template: str, parser: bool) -> None:
    model = tmp_path / "thinking"
    weights, tokens = AutoModelForCausalLM.from_pretrained(tiny_model), thinking_tokenizer(TEMPLATES[template])
    weights.resize_token_embeddings(len(tokens))  # the tags are tokens, as the reasoning parser wants
    save(weights, tokens, model)
    engine = Engine(tmp_path, model, *(("--reasoning-parser", "qwen3") if parser else ())).wait_ready()
    try:
        tokenizer, url = load_tokenizer(str(model)), f"http://127.0.0.1:{engine.port}/v1"

        async def learned(thought: str) -> str:
            async with HttpLlm(Endpoint(url, "tiny")) as llm:
                blob = write_teacher(await teacher_of(llm, TOLD, "Ahoy.", thought=thought))
            record = record_of_forms([*ASKED, answered("Ahoy.", thought)]).canonical
            given = decode_record(with_file(record, GivenTeacher(digest_of(blob), blob)))
            return shown(tokenizer, CONTEXT.encode(tokenizer, given, 512))

        assert anyio.run(learned, "").endswith("assistant\n<think>\n\n</think>\n\n«Ahoy.<|im_end|>»\n")
        assert anyio.run(learned, "Greet.").endswith("assistant\n<think>\nGreet.\n</think>\n\n«Ahoy.<|im_end|>»\n")

        async def said(thinking: Thinking) -> Choice:
            async with HttpLlm(Endpoint(url, "tiny")) as llm:
                sampling = Sampling(max_tokens=8, temperature=0.0, thinking=thinking)
                return (await llm.complete(ASKED, sampling)).choices[0]

        off, on = anyio.run(said, "off"), anyio.run(said, "on")
        assert off.text and not off.unfinished
        opened = template == "qwen3.5"
        assert (on.text == "" and bool(on.reasoning) and on.unfinished) == opened, "random weights end no thought"
    finally:
        engine.close()
