"""What the metrics of speech count from and how they are made, as text: a part of docs/metrics.md. It computes nothing."""

from __future__ import annotations

DEFINITIONS = """## Speech

**The line that everything counts on.** t0 is the instant of audio sample 0 on a simulated microphone (`media_start_ns`); sample s is
spoken at t0 + s / rate. Where speech begins and ends, and where each word ends, comes from the clip's labels, never from the
server. The name of a metric carries what it counts from, because "time to first partial" and "time to final" have three
published meanings each. Connection and handshake are `session_ready`, and in nothing that counts from speech.

- Audio at 1x is sent frame by frame on absolute deadlines: at the end of a frame's span (`capture`, as a microphone has it), or at its
  start (`eager`, which flatters every latency by a frame). Metrics that count from true speech have values at 1x only.
- A real-time factor of 1x audio is 1 by construction. So `rtf` and `rtfx` are of files and bursts, paced requests are counted as
  missing, and the test of live recognition is `lag_slope`: above 0 the lag grows as long as anyone speaks, and
  1 / (1 - slope) is the real-time factor.
- The generator's own lateness is `audio_frame_lag`. A session is late when its p99 is above half a frame or one frame above two; with
  more than 1 % late sessions the run is INVALID. Late sessions stay in every number: late audio can only make an endpoint look slower.
  Audio that was sent in time and not taken (`unsent_bytes`) is back-pressure, is reported, and makes no run invalid.

**Playback.** Chunk i arrives at t_i and plays for d_i, with C_i of audio before it; a player at 1x starts at t_1 (in the report also
with 100, 200 and 400 ms gathered first, or all there is) and needs chunk i at start + C_i + S, where S is how long it has stood still. A
chunk later than that by more than 20 ms, one period of a sound device, is a stall: S grows by all of its lateness, and the player
goes on at once. `stall_ratio` is S / (D + S) with D all audio. `startup_delay` is max(t_i - t_1 - C_i, 0) and tolerates nothing. For
example 100 ms of audio at each of 0, 150 and 240 ms: the second is 50 ms late, the third is then in time, so `stall_ratio` is
50 / 350, `longest_stall` 50 ms and `startup_delay` 50 ms. Audio that never came stalls nobody: promise `ratio(error)` too.

**Word errors.** Errors are the fewest words substituted, left out or added (Levenshtein in words), after both texts went through one
normaliser. Its name and version are in the report, and rates under two normalisers are two different numbers:

| normaliser | what it does |
|---|---|
| `none` | words as they stand between white space |
| `basic` | Unicode NFKC, no case, punctuation and symbols as white space, an apostrophe inside a word stays; any language |
| `whisper-english` | the English one of `whisper-normalizer`: numbers, contractions, spellings; most published English rates |

The headline is pooled, errors of all sessions over words of all references, and it is what `accuracy(wer) <= 5%` promises of a load
run, judged as observed. `wer` is the rate of one session, so `mean(wer)` is the mean of utterances. A failed session is wrong in every
word; one that failed before its words were counted has as many as the others on average. Slices (noise, accent, length) come from
the source. Bounds are Wilson's, on words over their design effect (the variance between sessions over what independent words would
have), with Student's t; by simulation they hold 90 % of the time or more at 95 %, but less where a handful of sessions has
all errors (74 % at a rate of 1 % in clusters over 30 sessions). In a load test the rate is a guard: compare it with the same
clips at concurrency 1.
"""
