import os
from pathlib import Path
from typing import Any
import anyio, pytest
from apollod.supervisor.config import load_config
from apollod.supervisor.executor.environment_effects import environments_of

TALK = Path(__file__).parents[1] / "support" / "verifiers_talk.py"

@pytest.mark.engine
def test_x(vllm: Any, tiny_model, tmp_path: Path) -> None:
    config = load_config(None, [f"model.path={tiny_model}", f"state.dir={tmp_path}", f"engine.port={vllm.port}", "engine.served_name=tiny",
      "environment.talk.kind=verifiers", f"environment.talk.entry={TALK}", "environment.talk.group=4", "environment.talk.max_tokens=12", "environment.talk.timeout_s=30",
      "environment.talk.python=/tmp/h/vf-env/bin/python", "environment.talk.settings={turns = 2}", "quality.every_steps=0"], {})
    print(config.environment)
    async def run():
        env = environments_of(config)["talk"]
        try:
            import time
            t=time.time()
            for n in (1,2):
                print(await env.group(n), time.time()-t)
        finally:
            await env.close()
    anyio.run(run)
    assert 0
