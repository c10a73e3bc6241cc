"""MLServer's model for the interop tests: tensors come back, texts come back word by word, thirteen elements are
refused.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.errors import InferenceError
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput


class Echo(MLModel):
    async def load(self) -> bool:
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        if any(13 in tensor.shape for tensor in payload.inputs):
            raise InferenceError("thirteen is refused")
        outputs = [
            ResponseOutput(name=f"{tensor.name}_out", shape=tensor.shape, datatype=tensor.datatype, data=tensor.data)
            for tensor in payload.inputs
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)

    async def predict_stream(self, payloads: AsyncIterator[InferenceRequest]) -> AsyncIterator[InferenceResponse]:
        async for payload in payloads:
            text = StringCodec.decode_input(payload.inputs[0])[0]
            for word in text.split():
                yield InferenceResponse(
                    model_name=self.name, outputs=[StringCodec.encode_output("text_output", [f"{word} "])]
                )
