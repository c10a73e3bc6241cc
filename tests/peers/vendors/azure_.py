"""Azure's SDK (its own native client) against the server at the given address: live recognition and speech; prints one
JSON object.

``azure_.py URL FAILING_URL``: at the second the key is refused. Run by tests/e2e/test_fakes_by_sdk.py in
.venv-vendors; not imported by the suite.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

import azure.cognitiveservices.speech as sdk
from typed import show

RATE = 16_000


def config(url: str, key: str = "key") -> Any:
    return sdk.SpeechConfig(subscription=key, host=url.replace("http://", "ws://"))


def listen(url: str, seconds: float, *, detailed: bool = False, key: str = "key") -> dict[str, Any]:
    """One continuous recognition of so much silence, in its events."""
    settings = config(url, key)
    if detailed:
        settings.output_format = sdk.OutputFormat.Detailed
    stream = sdk.audio.PushAudioInputStream(sdk.audio.AudioStreamFormat(RATE, 16, 1))
    recogniser = sdk.SpeechRecognizer(settings, audio_config=sdk.audio.AudioConfig(stream=stream))
    events: list[list[Any]] = []
    over = threading.Event()
    recogniser.session_started.connect(lambda event: events.append(["session_started"]))
    recogniser.speech_start_detected.connect(lambda event: events.append(["speech_start", event.offset]))
    recogniser.speech_end_detected.connect(lambda event: events.append(["speech_end", event.offset]))
    recogniser.recognizing.connect(lambda event: events.append(["recognizing", event.result.text]))
    recogniser.recognized.connect(lambda event: events.append(["recognized", event.result.text, event.result.duration]))

    def on_canceled(event: Any) -> None:
        events.append(["canceled", event.cancellation_details.reason.name, event.cancellation_details.code.name])
        events[-1].append(event.cancellation_details.error_details)
        over.set()

    recogniser.canceled.connect(on_canceled)
    recogniser.session_stopped.connect(lambda event: over.set())
    recogniser.start_continuous_recognition_async().get()
    stream.write(bytes(round(RATE * seconds) * 2))
    stream.close()
    ended = over.wait(6)
    recogniser.stop_continuous_recognition_async().get()
    return {"events": events, "ended": ended}


def speak(url: str, text: str) -> dict[str, Any]:
    """The audio of a text, chunk by chunk."""
    # Given only a host the SDK asks for another path than it does in Azure's regions.
    there = f"{url.replace('http://', 'ws://')}/tts/cognitiveservices/websocket/v1"
    settings = sdk.SpeechConfig(subscription="key", endpoint=there)
    settings.set_speech_synthesis_output_format(sdk.SpeechSynthesisOutputFormat.Raw24Khz16BitMonoPcm)
    synthesiser = sdk.SpeechSynthesizer(settings, audio_config=None)
    chunks: list[int] = []
    over = threading.Event()
    synthesiser.synthesizing.connect(lambda event: chunks.append(len(event.result.audio_data)))
    synthesiser.synthesis_completed.connect(lambda event: over.set())
    synthesiser.synthesis_canceled.connect(lambda event: over.set())
    result = synthesiser.speak_text_async(text).get()
    over.wait(6)  # the SDK calls back from a thread of its own, the last chunks behind the result
    first_ms = result.properties.get_property(sdk.PropertyId.SpeechServiceResponse_SynthesisFirstByteLatencyMs)
    if result.reason is sdk.ResultReason.Canceled:
        details = result.cancellation_details
        return {"reason": details.reason.name, "code": details.error_code.name, "details": details.error_details}
    return {"reason": result.reason.name, "chunks": chunks, "bytes": len(result.audio_data), "first_ms": first_ms}


def main(url: str, failing: str) -> None:
    show(
        {
            "heard": listen(url, 0.7),
            "detailed": listen(url, 0.7, detailed=True),
            "spoken": speak(url, "one two three"),
            "failing": speak(failing, "one"),
        }
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
