"""`python -m apollod.engine.gateway ARGS...`: the engine child when the engine is elsewhere. ARGS are those of vLLM's
API server; those that concern its own model are ignored.

From the environment: APOLLOD_SOCKET, APOLLOD_PARENT_PID, and the terms of the bridge (`wire.engine_terms`).
"""

import argparse
import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from fastapi import FastAPI

from apollod.adapters.ipc.channel import Link
from apollod.adapters.system.own_process import die_with_supervisor
from apollod.bridges.memory_file import map_memory
from apollod.engine.gateway.bridges import Bridge, Disk, Memmap, Restart
from apollod.engine.gateway.proxy import MODELS, Proxy
from apollod.engine.gateway.receivers import Receiver
from apollod.engine.gateway.sending import Sending
from apollod.engine.gateway.weights import Weights
from apollod.engine.http.routes import plugin
from apollod.errors import ApolloError, LinkClosed, ModelRefused, ShareRefused
from apollod.explain import line_of
from apollod.failpoints import failpoint
from apollod.wire import messages as msg
from apollod.wire.engine_terms import RECEIVERS_VARIABLE, SendTerms

logger = logging.getLogger("apollod.gateway")

EXIT_REFUSED = 2
AT_ONCE = 8  # tensors compared in a row before requests get a turn
NO_GPU = 'send by bridge = "gloo" (another apollod) or "disk", or leave out APOLLOD_DEVICE=cpu where there is one'
METHODS = ["GET", "POST", "PUT", "DELETE"]


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM. Returns 2 if the model or the directory of versions is refused."""
    die_with_supervisor()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    args = _parse(arguments)
    socket_path = os.environ["APOLLOD_SOCKET"]
    terms = msgspec.json.decode(os.environ[RECEIVERS_VARIABLE], type=SendTerms)
    try:
        worker = Link.connect(socket_path)
        worker.send(msg.Hello("engine-worker", os.getpid(), versions=_versions()))
        weights = _load(worker, Path(args.model), terms)
        asyncio.run(_serve(args, terms, weights, socket_path))
    except ApolloError as error:
        sys.stderr.write(f"apollod.engine.gateway: {error.line()}\n")
        return EXIT_REFUSED
    return 0


def _versions() -> dict[str, str]:
    return {"apollod": version_of("apollod")}


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="apollod.engine.gateway")
    parser.add_argument("--model", required=True)
    parser.add_argument("--served-model-name", default="apollo")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    return parser.parse_known_args(arguments)[0]


def _load(link: Link, directory: Path, terms: SendTerms) -> Weights:
    """Load the checkpoint into memory of the supervisor, and send the manifest. Raises ModelRefused for a model that
    cannot be shared, after telling the supervisor."""
    started = time.monotonic()
    try:
        if terms.bridge == "nccl" and not terms.gpu:
            raise ShareRefused('[weights] bridge = "nccl" needs a GPU here, and there is none', NO_GPU)
        weights = Weights(directory, terms.bridge)
        weights.manifest.check()
        size = weights.manifest.storages[0].bytes
        if terms.gpu:
            from apollod.engine.gateway.device_memory import on_device  # needs torch, which takes seconds to import

            memory, handle = on_device(size)
            weights.manifest = msgspec.structs.replace(weights.manifest, storages=(handle,))
            weights.load(memory)
        else:
            weights.load(memoryview(map_memory(link.reserve(size), size)))
    except (ModelRefused, ShareRefused) as refused:
        link.send(msg.LoadRefused(str(refused), refused.hint))
        raise
    failpoint("engine.weights-loaded")
    link.send(msg.Loaded(weights.manifest, time.monotonic() - started))
    return weights


async def _serve(args: argparse.Namespace, terms: SendTerms, weights: Weights, socket_path: str) -> None:
    keys = [key for key in [os.environ.get("VLLM_API_KEY", "")] if key]
    routes = plugin()
    routes.open_to(args.host, keys)
    link = Link.connect(socket_path)
    link.send(msg.Hello("engine-api", os.getpid(), versions=_versions()))
    try:
        bridge = bridge_of(terms, weights)
    except OSError as error:
        raise ShareRefused(f"{terms.directory} cannot be used: {error}", "set [weights] directory") from error

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        yield
        await asyncio.to_thread(bridge.close)  # before the signal that ends uvicorn ends this process

    app = FastAPI(openapi_url=None, lifespan=lifespan)
    routes.attach_router(app)
    receivers = [Receiver(one, terms.timeout_s) for one in terms.receivers]
    sending = Sending(terms.bridge, bridge, weights, receivers, routes.served, link.send)
    proxy = Proxy(sending, args.served_model_name, keys)
    for path, handler in (("/health", proxy.health), ("/metrics", proxy.metrics), (MODELS, proxy.models)):
        app.add_api_route(path, handler, methods=["GET"], response_model=None)
    app.add_api_route("/{path:path}", proxy.passed, methods=METHODS, response_model=None)
    orders = Orders(link, sending, weights)
    threading.Thread(target=orders.listen, args=(asyncio.get_running_loop(),), daemon=True).start()
    watching = asyncio.create_task(sending.watch())
    config = uvicorn.Config(app, args.host, args.port, log_level="info", timeout_graceful_shutdown=5)
    await uvicorn.Server(config).serve()
    watching.cancel()


def bridge_of(terms: SendTerms, weights: Weights) -> Bridge:
    """The bridge of these terms. Raises OSError for a directory that cannot be made, ModelRefused for a model that it
    cannot send."""
    directory = Path(terms.directory)
    match terms.bridge:
        case "disk":
            return Disk(directory)
        case "restart":
            return Restart(directory, terms.command, terms.timeout_s)
        case "memmap":
            return Memmap(directory)
        case "gloo" | "tensor" as by:
            from apollod.engine.gateway.to_apollod import ToApollod  # needs torch, which takes seconds to import

            return ToApollod(terms, by, weights)
        case "nccl":
            from apollod.engine.gateway.nccl_channel import NcclChannels
            from apollod.engine.gateway.nccl_sending import Nccl

            return Nccl(terms, weights, NcclChannels(terms))
        case "lora":
            from apollod.engine.gateway.lora import Lora  # needs torch, too

            return Lora(terms, weights)


class Orders:
    """Carries out the supervisor's orders, one after another."""

    def __init__(self, link: Link, sending: Sending, weights: Weights) -> None:
        self._link, self._sending, self._weights = link, sending, weights

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Thread: blocks on the link, and works on the server's loop."""
        try:
            while True:
                order = self._link.receive()
                self._link.send(asyncio.run_coroutine_threadsafe(self.carry_out(order), loop).result())
        except LinkClosed as closed:
            logger.warning("%s; serving goes on, learning does not reach this process", closed.line())

    async def carry_out(self, order: Any) -> msgspec.Struct:
        """The answer to an order."""
        match order:
            case msg.RefreshEngine(version=version, forget=forget):
                began, error = time.monotonic(), ""
                try:
                    error = await self._sending.refresh(version, salted=forget != "keep")
                except Exception as failure:
                    logger.exception("version %d was not sent", version)
                    error = line_of(failure)
                return msg.Refreshed(version, len(self._weights.changing), time.monotonic() - began, error)
            case msg.Pause():  # engines elsewhere do not see what the trainer writes: they are held while they load
                await self._sending.hold()
                return msg.Paused(0.0)
            case msg.ResumeEngine():
                return msg.EngineResumeReport(0.0)
            case msg.CompareWeights(step=step, digests=digests):
                names, found = self._weights.changing, dict[str, str]()
                for first in range(0, len(names), AT_ONCE):
                    found |= await asyncio.to_thread(self._weights.differing, names[first : first + AT_ONCE], digests)
                return msg.Compared(step, found)
        raise ApolloError(f"the supervisor sent {type(order).__name__}", "use one version of apollod everywhere")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
