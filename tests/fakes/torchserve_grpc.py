"""TorchServe's inference API over gRPC for one model, whose handler streams words (``StreamPredictions``) or joins
them.

No SDK speaks to it: messages are of TorchServe's own descriptors.
"""

from __future__ import annotations

import asyncio

import grpc

from tests.fakes.grpc_stage import Messages, Refusal, Services, Stage, main

KINDS = Messages("torchserve")
_P = "org.pytorch.serve.grpc.inference."
_MODEL = "echo"


async def _asked(stage: Stage) -> list[bytes]:
    request = KINDS[_P + "PredictionsRequest"].FromString(await stage.read() or b"")
    if request.model_name != _MODEL:
        text = f"Model not found with model name: {request.model_name}. ModelNotFoundException"
        raise Refusal(grpc.StatusCode.NOT_FOUND, text)
    if not request.input:
        raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "input is required")
    stage.log.config = ",".join(sorted(request.input))
    return [b"word%d " % i for i in range(stage.knobs.pieces)]


async def predict(stage: Stage) -> None:
    """``Predictions``."""
    words = await _asked(stage)
    await asyncio.sleep(stage.knobs.answer_ms / 1000)
    await stage.say(KINDS[_P + "PredictionResponse"](prediction=b"".join(words)), "answer")


async def stream(stage: Stage) -> None:
    """``StreamPredictions``."""
    for word in await _asked(stage):
        await asyncio.sleep(stage.knobs.answer_ms / 1000)
        await stage.say(KINDS[_P + "PredictionResponse"](prediction=word), "piece")


SERVICES: Services = {_P + "InferenceAPIsService": {"Predictions": predict, "StreamPredictions": stream}}

if __name__ == "__main__":
    main(SERVICES, __doc__ or "")
