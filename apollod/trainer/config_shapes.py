"""`python -m apollod.trainer.config_shapes MODEL_DIR`: prints names and shapes of the tensors in a checkpoint of this
config.json, as one line of JSON. The model is built without memory, by the class that the trainer uses; 64 layers of
5120 take half a second beside the imports. For processes that must not import torch themselves (store/model_files.py).
"""

import json
import os
import sys

from apollod import foreign_wheels


def main(model_dir: str) -> int:
    """Exit code 1, with a line on stderr, if transformers cannot build the model."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    foreign_wheels.guard()
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.core_model_loading import revert_weight_conversion

    try:
        config = AutoConfig.from_pretrained(model_dir, local_files_only=True)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]
        tensors = revert_weight_conversion(model, dict(model.named_parameters()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        sys.stderr.write(f"transformers cannot build it ({' '.join(str(error).split())[:300]})\n")
        return 1
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    sys.stdout.write(json.dumps({"text": config.get_text_config().to_dict(), "shapes": shapes}, default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
