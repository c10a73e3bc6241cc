"""What every metric says of every kind of answer, as tables: the part of docs/metrics.md that is a specification.

The tables are the expectations of tests/unit/test_metric_conformance.py, which writes each case as bytes with arrival times,
lets the harness take it apart and compares every cell to the nanosecond. Change a cell and a test fails; so does a case
without a row. This module holds text and computes nothing.
"""

from __future__ import annotations

SPECIFICATION = """## Every kind of answer

What each metric makes of each kind of answer. Every request here was due at 0, taken up at 1 ms and sent at 2 ms; the answer's
head came at 10 ms and its end at 60 ms. Unless the case says otherwise it is a chat stream of the chunks `a` at 20, `b` at
30 and `c` at 50 ms, whose usage block counts 3 tokens. Times are in ms. Each row is a test of the bytes themselves.

- `-` is missing: no value, counted as missing, and it breaks a limit on a single request, since no data is not a pass.
- `inf` is the worst: what a user waits for (`ttft`, `ttft_answer`, `e2e`) never came, in a run where others got it. Alone it
  is `-`: an endpoint that never streams has no first token.
- `free` is outside the definition: no value, counted as missing, and it satisfies such a limit.

Every answer below has a `lag` of 2, a `generator_lag` of 1, an `error` of 0 and, as it came over a connection that was open
already, a `connect` that is `free`.

| case | what comes | ttfb | ttft | ttft_answer | tpot | itl | e2e | latency | service_time |
|---|---|---|---|---|---|---|---|---|---|
| `plain` | as above | 10 | 20 | 20 | 15 | 10, 20 | 50 | 60 | 58 |
| `role_only` | a chunk with the role alone at 12 | 10 | 20 | 20 | 15 | 10, 20 | 50 | 60 | 58 |
| `empty_chunk` | chunks of `""` at 12 and 25, of `null` at 55 | 10 | 20 | 20 | 15 | 10, 20 | 50 | 60 | 58 |
| `keep_alive` | comments at 12 and 40 | 10 | 20 | 20 | 15 | 10, 20 | 50 | 60 | 58 |
| `no_choices` | a chunk of `choices: []` at 12 (Azure's filter results) | 10 | 20 | 20 | 15 | 10, 20 | 50 | 60 | 58 |
| `several_tokens` | 2 chunks, at 20 and 50, of 4 tokens | 10 | 20 | 20 | 10 | 30 | 50 | 60 | 58 |
| `one_read` | all three chunks in one read, at 50 | 10 | 50 | 50 | 0 | 0, 0 | 50 | 60 | 58 |
| `reasoning_first` | `a` and `b` are reasoning | 10 | 20 | 50 | 15 | 10, 20 | 50 | 60 | 58 |
| `reasoning_only` | all three are reasoning | 10 | 20 | inf | 15 | 10, 20 | 50 | 60 | 58 |
| `tool_call` | a tool's name, then its arguments in two chunks | 10 | 20 | 20 | 15 | 10, 20 | 50 | 60 | 58 |
| `refusal` | the chunks are a refusal | 10 | 20 | 20 | 15 | 10, 20 | 50 | 60 | 58 |
| `usage_says_more` | usage counts 7 tokens | 10 | 20 | 20 | 5 | 10, 20 | 50 | 60 | 58 |
| `usage_says_none` | usage counts 0 tokens: not believed | 10 | 20 | 20 | 15 | 10, 20 | 50 | 60 | 58 |
| `usage_missing` | no usage block | 10 | 20 | 20 | 15 | 10, 20 | 50 | 60 | 58 |
| `usage_on_each` | a running usage on every chunk: 1, 2, 3 | 10 | 20 | 20 | 15 | 10, 20 | 50 | 60 | 58 |
| `one_token` | `a` alone, 1 token | 10 | 20 | 20 | free | free | 20 | 60 | 58 |
| `zero_tokens` | a finish reason and no text, 0 tokens | 10 | inf | inf | free | free | inf | 60 | 58 |
| `one_chunk` | the whole answer of 4 tokens in one chunk at 20 | 10 | 20 | 20 | 0 | free | 20 | 60 | 58 |
| `no_done` | a finish reason, but no `[DONE]` | 10 | 20 | 20 | 15 | 10, 20 | 50 | 60 | 58 |
| `not_streamed` | one JSON body at 60, 3 tokens | 10 | inf | inf | - | - | inf | 60 | 58 |
| `not_streamed_no_usage` | one JSON body at 60 without usage | 10 | inf | inf | - | - | inf | 60 | 58 |

Tokens are counted from the server's usage block (`usage`), and where there is none from the number of chunks that carried
output (`chunks`), which is an estimate. Plimsoll runs no tokenizer: it would have to be the server's own, and a wrong one
shifts every `tpot` in silence. The column `tokens_from` of a run tells which it was. Input tokens come from the usage block
alone: where there is none, and in rows that failed before it came, `n_in` is the length that the payload was made with, the column
`n_in_from` says `plan`, and no rate has it (`throughput.input_tokens_planned` has their sum).

| case | tokens | counted from | output_tokens | output_rate | fluidity | reader_idle | reader_stalls | reader_in_time |
|---|---|---|---|---|---|---|---|---|
| `plain` | 3 | usage | 3 | 50 | 1 | 0 | 0 | 1 |
| `role_only` | 3 | usage | 3 | 50 | 1 | 0 | 0 | 1 |
| `empty_chunk` | 3 | usage | 3 | 50 | 1 | 0 | 0 | 1 |
| `keep_alive` | 3 | usage | 3 | 50 | 1 | 0 | 0 | 1 |
| `no_choices` | 3 | usage | 3 | 50 | 1 | 0 | 0 | 1 |
| `several_tokens` | 4 | usage | 4 | 66.66666666666667 | 1 | 0 | 0 | 1 |
| `one_read` | 3 | usage | 3 | 50 | 1 | 0 | 0 | 1 |
| `reasoning_first` | 3 | usage | 3 | 50 | 1 | 0 | 0 | 1 |
| `reasoning_only` | 3 | usage | 3 | 50 | 1 | 0 | 0 | 1 |
| `tool_call` | 3 | usage | 3 | 50 | 1 | 0 | 0 | 1 |
| `refusal` | 3 | usage | 3 | 50 | 1 | 0 | 0 | 1 |
| `usage_says_more` | 7 | usage | 7 | 116.66666666666667 | 1 | 0 | 0 | 1 |
| `usage_says_none` | 3 | chunks | 3 | 50 | 1 | 0 | 0 | 1 |
| `usage_missing` | 3 | chunks | 3 | 50 | 1 | 0 | 0 | 1 |
| `usage_on_each` | 3 | usage | 3 | 50 | 1 | 0 | 0 | 1 |
| `one_token` | 1 | usage | 1 | 16.666666666666668 | 1 | 0 | 0 | 1 |
| `zero_tokens` | 0 | usage | 0 | 0 | free | free | free | free |
| `one_chunk` | 4 | usage | 4 | 66.66666666666667 | 1 | 0 | 0 | 1 |
| `no_done` | 3 | usage | 3 | 50 | 1 | 0 | 0 | 1 |
| `not_streamed` | 3 | usage | 3 | 50 | - | - | - | - |
| `not_streamed_no_usage` | - | nothing | - | - | - | - | - | - |

A request that failed has, whatever it did before, `ttfb`, `ttft`, `ttft_answer`, `tpot`, `e2e`, `latency`, `service_time`,
`reader_idle` and `reader_stalls` of +inf, `fluidity`, `reader_in_time`, `output_rate` and `output_tokens` of 0, `error` of
1, and it breaks every limit on a single request. In `itl` it has as many gaps as the longest answer of the run, here the two
of a plain one: what never came never comes. The rest:

| case | what happened | status | tokens | itl | lag | generator_lag | connect |
|---|---|---|---|---|---|---|---|
| `cancelled` | given up after `a` and `b` | CANCELLED | 2 | 10, inf | 2 | 1 | - |
| `timed_out` | the time limit, after `a` and `b` | TIMEOUT | 2 | 10, inf | 2 | 1 | - |
| `timed_out_early` | the time limit, before any byte | TIMEOUT | - | inf, inf | 2 | 1 | - |
| `cut` | the connection closed after `a` and `b` | PROTOCOL | 2 | 10, inf | 2 | 1 | - |
| `cut_cleanly` | the stream ended after `a` and `b`, without an end | PROTOCOL | 2 | 10, inf | 2 | 1 | - |
| `error_event` | an error event after `a` and `b` | HTTP | 2 | 10, inf | 2 | 1 | - |
| `error_overloaded` | an error event after `a`: overloaded | REFUSED | 1 | inf, inf | 2 | 1 | - |
| `no_reason` | `[DONE]` after `a` and `b`, but no finish reason | PROTOCOL | 2 | 10, inf | 2 | 1 | - |
| `no_reason_whole` | one JSON body at 60 without a finish reason | PROTOCOL | 3 | inf, inf | 2 | 1 | - |
| `given_up_whole` | one JSON body at 60, finish reason `abort` | HTTP | 3 | inf, inf | 2 | 1 | - |
| `two_choices` | `b` belongs to a second choice (`n: 2`) | PROTOCOL | 1 | inf, inf | 2 | 1 | - |
| `given_up` | finish reason `error` after `a` and `b` | HTTP | 2 | 10, inf | 2 | 1 | - |
| `empty_stream` | a stream of nothing | PROTOCOL | - | inf, inf | 2 | 1 | - |
| `not_json` | an event after `a` that is not JSON | PROTOCOL | 1 | inf, inf | 2 | 1 | - |
| `http_error` | status 500 | HTTP | - | inf, inf | 2 | 1 | - |
| `refused` | status 429 or 503 | REFUSED | - | inf, inf | 2 | 1 | - |
| `no_connection` | the connection was refused | CONNECT | - | inf, inf | inf | 1 | - |
| `connect_then_error` | a connection made in 3 ms, then status 500 | HTTP | - | inf, inf | 2 | 1 | 3 |
| `unfinished` | still under way when the run ended, after `a` and `b` | UNFINISHED | 2 | 10, inf | 2 | 1 | - |
| `unsent` | never sent | UNSENT | - | inf, inf | inf | inf | - |

In a run that streams nothing at all, and one where no request has the stamps, a metric that needs them has no value rather
than a worst one: it does not apply. A request of the warm-up has no value of any metric.

## What a whole answer is

A server that is stopped, or that drops one request for another, may end a stream politely: no error, and even the usual end
marker. What such an answer lacks is the reason to end. So an answer is a success only if it has its protocol's: without one it
is PROTOCOL (`ended without a finish reason`), and HTTP if the reason is that the server gave it up (`abort`, `error`,
`cancelled`, `timeout`). Where the last column has an option, `target.options.finish_reason: optional` takes the end
marker alone, for a server that never gives a reason. Each row is tested with the bytes of a whole and of a cut answer.

| protocol | an answer is whole once it has | it is cut without it, even after | option |
|---|---|---|---|
| `openai-chat` | a `finish_reason` | `[DONE]` | yes |
| `openai-completions` | a `finish_reason` | `[DONE]` | yes |
| `openai-responses` | the status `completed` or `incomplete` | `[DONE]` | no |
| `anthropic-messages` | a `stop_reason` | `message_stop` | yes |
| `ollama-chat` | a `done_reason` | `done: true` | yes |
| `ollama-generate` | a `done_reason` | `done: true` | yes |
| `tgi-generate` | `generated_text`, and in `details` a `finish_reason` (unless `details: false` was asked for) | `generated_text` | yes |
| `llamacpp-completion` | `stop: true` and a `stop_type` (of older servers a `stopped_...` flag) | `stop: true` | yes |
| `http` | a reason at `finish_path`, where that is given; else the end that `done` or `done_path` names; else the response's own end | `done` | yes |
| `openai-transcriptions` | of a stream `transcript.text.done` or a `finish_reason`; else `text` | `[DONE]` | yes |
| `openai-speech` | of events `speech.audio.done` or `[DONE]`; of bytes the response's own end | other events | no |
| `openai-realtime` | `response.done` of status `completed` or `incomplete`; a transcript of each item | `response.done` | no |
| `triton-generate` | an event with the output, and the response's own end: Triton marks no other | other events | no |
| `triton-stream` | an answer marked `triton_final_response`, of a server that marks any; else the call's status | other answers | no |

An embedding, a tensor or a click-through rate is whole when its body is: the length of the response says so. gRPC calls end with a
status (`grpc` also by `done_path`), live sessions with the message that their section names as the end; a session that closes before
it was cut.

A stream holds one answer. Where several share it (`n: 2`, `best_of`), the gaps between chunks belong to none of them: the options refuse
to ask for it, and a stream that has more than choice 0 is PROTOCOL. In one piece (`stream: false`) any number of choices is one answer,
whole when each has its reason; its output tokens are those of all of them.

`exact_output` asks for an exact number of output tokens, and not every server obeys. An answer with fewer is a success, since
its protocol says that it is whole, but it is counted (`counts.short_of_asked` of `counts.asked_exactly` in the report) and the report warns.
"""
