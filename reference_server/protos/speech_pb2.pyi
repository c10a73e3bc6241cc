from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Encoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENCODING_UNSPECIFIED: _ClassVar[Encoding]
    LINEAR16: _ClassVar[Encoding]
    FLOAT32: _ClassVar[Encoding]
    MULAW: _ClassVar[Encoding]
    ALAW: _ClassVar[Encoding]

class SpeechEvent(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SPEECH_EVENT_UNSPECIFIED: _ClassVar[SpeechEvent]
    SPEECH_STARTED: _ClassVar[SpeechEvent]
    SPEECH_ENDED: _ClassVar[SpeechEvent]
ENCODING_UNSPECIFIED: Encoding
LINEAR16: Encoding
FLOAT32: Encoding
MULAW: Encoding
ALAW: Encoding
SPEECH_EVENT_UNSPECIFIED: SpeechEvent
SPEECH_STARTED: SpeechEvent
SPEECH_ENDED: SpeechEvent

class RecogniseConfig(_message.Message):
    __slots__ = ("model", "encoding", "sample_rate_hertz", "interim_results", "single_utterance", "endpointing_ms", "voice_activity_events")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RATE_HERTZ_FIELD_NUMBER: _ClassVar[int]
    INTERIM_RESULTS_FIELD_NUMBER: _ClassVar[int]
    SINGLE_UTTERANCE_FIELD_NUMBER: _ClassVar[int]
    ENDPOINTING_MS_FIELD_NUMBER: _ClassVar[int]
    VOICE_ACTIVITY_EVENTS_FIELD_NUMBER: _ClassVar[int]
    model: str
    encoding: Encoding
    sample_rate_hertz: int
    interim_results: bool
    single_utterance: bool
    endpointing_ms: int
    voice_activity_events: bool
    def __init__(self, model: _Optional[str] = ..., encoding: _Optional[_Union[Encoding, str]] = ..., sample_rate_hertz: _Optional[int] = ..., interim_results: _Optional[bool] = ..., single_utterance: _Optional[bool] = ..., endpointing_ms: _Optional[int] = ..., voice_activity_events: _Optional[bool] = ...) -> None: ...

class RecogniseRequest(_message.Message):
    __slots__ = ("config", "audio")
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    config: RecogniseConfig
    audio: bytes
    def __init__(self, config: _Optional[_Union[RecogniseConfig, _Mapping]] = ..., audio: _Optional[bytes] = ...) -> None: ...

class Word(_message.Message):
    __slots__ = ("text", "start_s", "end_s", "confidence")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    START_S_FIELD_NUMBER: _ClassVar[int]
    END_S_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    text: str
    start_s: float
    end_s: float
    confidence: float
    def __init__(self, text: _Optional[str] = ..., start_s: _Optional[float] = ..., end_s: _Optional[float] = ..., confidence: _Optional[float] = ...) -> None: ...

class RecogniseResult(_message.Message):
    __slots__ = ("transcript", "is_final", "start_s", "end_s", "confidence", "words")
    TRANSCRIPT_FIELD_NUMBER: _ClassVar[int]
    IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    START_S_FIELD_NUMBER: _ClassVar[int]
    END_S_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    transcript: str
    is_final: bool
    start_s: float
    end_s: float
    confidence: float
    words: _containers.RepeatedCompositeFieldContainer[Word]
    def __init__(self, transcript: _Optional[str] = ..., is_final: _Optional[bool] = ..., start_s: _Optional[float] = ..., end_s: _Optional[float] = ..., confidence: _Optional[float] = ..., words: _Optional[_Iterable[_Union[Word, _Mapping]]] = ...) -> None: ...

class RecogniseResponse(_message.Message):
    __slots__ = ("result", "event", "event_s", "server_timing", "request_id")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    EVENT_S_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIMING_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    result: RecogniseResult
    event: SpeechEvent
    event_s: float
    server_timing: str
    request_id: str
    def __init__(self, result: _Optional[_Union[RecogniseResult, _Mapping]] = ..., event: _Optional[_Union[SpeechEvent, str]] = ..., event_s: _Optional[float] = ..., server_timing: _Optional[str] = ..., request_id: _Optional[str] = ...) -> None: ...

class SynthesiseRequest(_message.Message):
    __slots__ = ("model", "text", "encoding", "sample_rate_hertz", "speed")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_RATE_HERTZ_FIELD_NUMBER: _ClassVar[int]
    SPEED_FIELD_NUMBER: _ClassVar[int]
    model: str
    text: str
    encoding: Encoding
    sample_rate_hertz: int
    speed: float
    def __init__(self, model: _Optional[str] = ..., text: _Optional[str] = ..., encoding: _Optional[_Union[Encoding, str]] = ..., sample_rate_hertz: _Optional[int] = ..., speed: _Optional[float] = ...) -> None: ...

class SynthesiseResponse(_message.Message):
    __slots__ = ("audio", "server_timing", "audio_s", "request_id")
    AUDIO_FIELD_NUMBER: _ClassVar[int]
    SERVER_TIMING_FIELD_NUMBER: _ClassVar[int]
    AUDIO_S_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    audio: bytes
    server_timing: str
    audio_s: float
    request_id: str
    def __init__(self, audio: _Optional[bytes] = ..., server_timing: _Optional[str] = ..., audio_s: _Optional[float] = ..., request_id: _Optional[str] = ...) -> None: ...
