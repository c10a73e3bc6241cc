"""KServe's Python server for the interop tests: a model that gives its tensors back, over HTTP and gRPC."""

from __future__ import annotations

import sys
from typing import Any

from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer
from kserve.errors import InvalidInput


class Echo(Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__("echo")
        self.ready = True

    def predict(self, payload: InferRequest, headers: Any = None, response_headers: Any = None) -> InferResponse:
        if any(13 in tensor.shape for tensor in payload.inputs):
            raise InvalidInput("thirteen is refused")
        outputs = []
        for tensor in payload.inputs:
            output = InferOutput(f"{tensor.name}_out", list(tensor.shape), tensor.datatype)
            output.set_data_from_numpy(tensor.as_numpy(), binary_data=False)
            outputs.append(output)
        return InferResponse(response_id=payload.id or "r", model_name=self.name, infer_outputs=outputs)


if __name__ == "__main__":
    ModelServer(http_port=int(sys.argv[1]), grpc_port=int(sys.argv[2]), workers=1).start([Echo()])
