/* The oracle: a scripted SSE server in one thread that knows when it wrote every byte, to a few microseconds.
 *
 * It shares a wire with its clients and no code. It reads as much of HTTP/1.1 as load generators send, and looks for
 * two keys in a body; it is no JSON parser and no general server. All times are int64 nanoseconds of CLOCK_MONOTONIC;
 * -1 means "did not happen".
 */
#ifndef PLIMSOLL_ORACLE_H
#define PLIMSOLL_ORACLE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#pragma GCC visibility push(hidden)

typedef int64_t i64;

#define NO_ROW UINT64_MAX
#define MAX_LINE 8192
#define MAX_HEAD 65536
#define MAX_BODY (64LL << 20)
#define MAX_EARLY 65536              /* bytes of later requests that are kept while an answer is under way */
#define MAX_TOKENS 131072
#define MAX_ID 128
#define QUEUE_SEED 0x9e3779b97f4a7c15u /* so that a request's service and its jitter are independent */
#define N_WORDS 16
#define N_JITTER 4096                /* steps of the inverse distributions of jitter and service */
#define SCRATCH (1 << 16)
#define LINGER_NS 1000000000LL       /* how long the peer may take to hang up after our last byte */
#define LIST_SLICE (256u << 10)      /* bytes of truth rendered between two looks at the clock */

static inline i64 mono_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (i64)t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* ---- request.c: one request head, any split */

enum { M_OTHER, M_GET, M_HEAD, M_POST };

typedef struct {
    uint32_t head_len, path_at, path_len, id_at, id_len; /* offsets into the request */
    uint8_t method;
    bool close, http10, expects;
    i64 body_len;
    const char *wrong;               /* why it was refused */
} Request;

int parse_head(const char *data, size_t len, size_t scanned, Request *r);
bool body_streams(const char *body, size_t len);
i64 body_tokens(const char *body, size_t len, i64 otherwise);

/* ---- script.c: the bytes of answers */

typedef struct {
    char *data;
    size_t len, cap;
} Buffer;

typedef struct {
    const char *data;
    size_t len;
} Piece;

typedef struct {
    Piece first, word[N_WORDS];      /* answer head and first event; every later event */
    char *memory, frame[160];        /* what all events begin with */
} Script;

bool buffer_room(Buffer *b, size_t n);
void put_number(Buffer *b, i64 value);
bool script_make(Script *s, i64 created_s);
Piece script_last(const Script *s, i64 n_prompt, i64 n_tokens, char *into, size_t size);
i64 draw(const i64 *table, uint64_t seed, const char *id, size_t len);

extern const Piece ANSWER_OK, ANSWER_OK_BARE, ANSWER_MODELS, ANSWER_MODELS_BARE, ANSWER_CONTINUE;

/* ---- truth.c: what was written when, for the last requests */

enum { T_OPEN, T_OK, T_CUT };

typedef struct {
    i64 received, first_due, itl, end_before, done;
    i64 (*stamps)[2];                /* before and after each token's write; the stream owns it while it is open */
    uint32_t n_tokens, n_written, id_len;
    uint8_t outcome;
    char id[MAX_ID];
} Row;

typedef struct {
    Row *rows;
    uint64_t n_rows, tail, head;     /* rows [tail, head) are remembered, row i in slot i % n_rows */
    i64 stamp_bytes, max_stamp_bytes;
    uint64_t n_dropped;
} Truth;

bool truth_make(Truth *t, uint64_t n_rows, i64 max_stamp_bytes);
void truth_free(Truth *t);
uint64_t truth_open(Truth *t, const char *id, size_t id_len, i64 received);
Row *truth_row(Truth *t, uint64_t seq);
void truth_close(Truth *t, uint64_t seq, int outcome, i64 done, i64 (*stamps)[2]);
void truth_clear(Truth *t);
bool truth_json(const Row *row, Buffer *b);
bool truth_binary(const Row *row, Buffer *b);

/* ---- heap.c: who is due next */

typedef struct Connection Connection;

typedef struct {
    i64 due;
    Connection *who;
} Due;

typedef struct {
    Due *at;
    size_t len, cap;
} Heap;

bool heap_set(Heap *h, Connection *c, i64 due);
void heap_remove(Heap *h, Connection *c);

/* ---- loop.c: sockets, time, stalls */

/* READING: between answers. HELD: an answer waits for the end of a stall. DRAINING: hung up on, waits for the peer. */
enum { P_READING, P_HELD, P_ANSWERING, P_STREAMING, P_LISTING, P_DRAINING };

struct Connection {
    int fd;
    uint32_t watched;                /* epoll events asked for */
    i64 heap_at;                     /* index in the heap or -1 */
    uint8_t phase;
    bool close_after, have_head, binary, listed;
    Request request;                 /* the head of a request whose body is not there yet */
    Buffer in, out;
    size_t scanned, out_at;
    Piece held;
    uint64_t seq, list_end;          /* truth: our row; the listing's next row is seq */
    i64 (*stamps)[2];
    i64 first_due, before, n_prompt;
    uint32_t n_tokens, n_written;
    Connection *next, *all;
};

typedef struct {
    i64 at, until;                   /* since the first request */
} Stall;

typedef struct {
    int listener, epoll, timer, spare_fd;
    i64 ttft_ns, itl_ns, tokens, spin_ns, armed, first_request, n_refused;
    i64 free_at;                     /* the queue: when the request served last is, or was, over */
    uint64_t seed, n_anonymous, n_queued;
    const i64 *jitter, *service;     /* N_JITTER values, or NULL */
    const Stall *stalls;
    size_t n_stalls;
    Heap heap;
    Script script;
    Truth truth;
    Connection *idle, *gone, *all;   /* free; closed in this batch of events, so not yet free; every one ever made */
    char *scratch;
} Loop;

bool loop_open(Loop *l);
void loop_close(Loop *l);
int loop_run(Loop *l, i64 until);
i64 stalled_until(Loop *l, i64 now);
bool loop_watch(Loop *l, Connection *c, uint32_t events);
void connection_close(Loop *l, Connection *c);

/* ---- answer.c: which request gets which answer */

i64 through_queue(Loop *l, Connection *c, const char *request, i64 now);
void resume(Loop *l, Connection *c);
void connection_readable(Loop *l, Connection *c);

/* ---- stream.c: one stream's timetable */

void start_stream(Loop *l, Connection *c, const char *request, i64 now);
void write_event(Loop *l, Connection *c, i64 now);
void event_written(Loop *l, Connection *c);
void close_row(Loop *l, Connection *c, int outcome, i64 done);

/* ---- listing.c: the truth, slice by slice */

void start_list(Loop *l, Connection *c, bool binary);
bool render_slice(Loop *l, Connection *c);

/* ---- write.c: getting bytes out */

bool send_piece(Loop *l, Connection *c, Piece p);
void say(Loop *l, Connection *c, Piece p);
void answered(Loop *l, Connection *c);
void refuse(Loop *l, Connection *c, int code, const char *why);
void hang_up(Loop *l, Connection *c);
void connection_writable(Loop *l, Connection *c);
void connection_due(Loop *l, Connection *c, i64 now);

#pragma GCC visibility pop
#endif
