/* The native engine: schedule, stamped HTTP/1.1 transport and recording of one worker, in one thread without the GIL.
 *
 * It does what harness/generator/issuer.py, http/pool.py, stream.py and wire/http1.py do, for cleartext HTTP/1.1, and nothing else:
 * it interprets no body. All times are int64 nanoseconds of CLOCK_MONOTONIC; -1 means "did not happen".
 */
#ifndef PLIMSOLL_ENGINE_H
#define PLIMSOLL_ENGINE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

typedef int64_t i64;

#define NEVER INT64_MAX
#define MAX_HEAD 65536               /* bytes of one response head, and of its trailers */
#define MAX_HEADERS 256
#define MAX_BODY (256LL << 20)
#define MAX_ADDRESSES 16
#define BACKOFF_NS 10000000LL        /* as harness/transport/client.py */
#define PULSE_NS 10000000LL
#define STALL_NS 10000000LL
#define AHEAD_NS 1000000LL            /* as harness/process/vitals.py */
#define BINS 2048
#define READ_SIZE 262144
#define KEEP_HEAD 4096               /* what a free exchange may keep of its buffers */
#define WEIGH_EVERY (8LL << 20)      /* as harness/transport/held.py */

/* plimsoll.slo.records.records.Status */
enum { ST_OK = 0, ST_TIMEOUT = 3, ST_CONNECT = 4, ST_PROTOCOL = 5, ST_CANCELLED = 7, ST_UNFINISHED = 8 };

/* Why an exchange failed; harness/generator/native.py makes the text of it. `detail` is an errno, or an index into WIRE_ERRORS. */
enum { E_NONE = 0, E_TIMEOUT, E_CONNECT, E_CONNECT_TIMEOUT, E_CLOSED_EARLY, E_CLOSED_MIDDLE, E_WIRE, E_GIVEN_UP, E_CANCELLED, E_TOO_MUCH };

/* Bytes that Python keeps until the sample's row is back. */
typedef struct {
    const char *prefix, *suffix;
    size_t prefix_len, suffix_len;
    bool head;
} Request;

/* One finished sample. The order is harness/generator/native.py's ROW. */
typedef struct {
    i64 query_id, sample_ix, payload_ix, due, ready, sent, headers, first_byte, done, connect;
    i64 bytes_out, bytes_in, code, status, stamp, phase;
    i64 attempts;                    /* 1: written once */
    i64 settled;                     /* 1: nothing in the response needs Python */
    i64 head_len, body_len, n_marks; /* what collect() puts into its blob: head, body, marks */
    i64 error, detail;
} Row;

typedef struct {
    char *data;
    size_t len, cap;
} Buffer;

typedef struct Block {
    struct Block *next;
    uint32_t len, size;
    char data[];
} Block;

/* See rope.c. `held`: bytes of memory in its blocks. */
typedef struct {
    Block *first, *last;
    size_t len, held;
} Rope;

/* body[:end] had arrived by ns. */
typedef struct {
    i64 ns, end;
} Mark;

enum { P_HEAD, P_LENGTH, P_CHUNK_SIZE, P_CHUNK_EXT, P_CHUNK_LF, P_CHUNK_DATA, P_CHUNK_CR, P_CHUNK_END,
       P_TRAILER, P_UNTIL_CLOSE, P_DONE };

/* Reads one response after the other; any split of the bytes gives the same result. */
typedef struct {
    int state, code, n_headers;
    bool head_request, final, framed, keep_alive, plain;
    i64 left, digits;
    size_t heads;                    /* bytes of all heads so far, interim ones too, and of the trailers */
    size_t line, line_at;            /* bytes of the current framing line; where the trailer line begins in the head */
} Parser;

struct Connection;
struct Lane;

/* All samples of a query of a closed loop: its slot comes free when the last one is over. */
typedef struct {
    i64 left;
} Query;

typedef struct Exchange {
    Row row;
    Request request;
    i64 deadline;
    i64 cancel_after;                /* cancelled so long after it was taken up; -1: never */
    i64 at;                          /* what it waits for in a heap: when it is due or cancelled */
    size_t heap;                     /* its place there, from 1; 0: in none */
    struct Connection *on;
    struct Lane *lane;
    Query *query;
    struct Exchange *next, *prev;    /* in flight, in order of the deadline */
    struct Exchange *wnext, *wprev;  /* waiting for a connection */
    bool waiting;
    Buffer head;
    Rope body, marks;                /* marks: of Mark, one a read */
} Exchange;

/* See heap.c. */
typedef struct {
    Exchange **of;
    size_t len, cap;
} Heap;

typedef struct Connection {
    int fd, tried, fault;
    bool open, reused, writing, gone, reset;
    Exchange *exchange;
    i64 opening, deadline, last;
    i64 taken, before;               /* bytes that the kernel took in all; of them, before those of this request */
    int first;                       /* the address it tried first: what the others prefer may change meanwhile */
    Parser parser;
    Buffer unsent;
    size_t unsent_at;
    struct Connection *next, *prev;  /* all connections */
    struct Connection *inext, *iprev; bool idle;       /* the idle stack */
    struct Connection *cnext, *cprev; bool connecting; /* in order of the deadline */
    struct Connection *dnext; bool doomed;             /* to be lost, buried */
} Connection;

/* Consecutive rows of a plan: our own copy, one allocation. */
typedef struct Stretch {
    i64 n_rows, n_samples;
    i64 *due, *ids;                  /* of an open loop */
    i64 *offsets, *sample, *payload;
    i64 *cancel;                     /* per row: cancelled so long after it was taken up, -1: never; NULL: none is */
    Request *requests;               /* per sample; NULL: the engine's, by payload */
    struct Stretch *_Atomic next;
} Stretch;

typedef struct Lane {
    struct Engine *engine;
    bool closed, finished, begun;
    bool cyclic;                     /* a closed loop whose rows are all there: query k has row k modulo their number */
    int phase;
    Stretch *at;                     /* the rows at hand; the thread frees those that are used up */
    Stretch *last;                   /* what Python gave last: Python's own */
    atomic_bool whole;               /* nothing follows the last */
    atomic_llong used;               /* rows of all stretches that are used up */
    atomic_llong dry;                /* since when there are no rows for what is due or free; 0: there are */
    /* open */
    i64 row, released, cursor, cursor_row, limit, flying;
    /* closed */
    i64 slots, free_slots, next_id, id_step, issued, busy, last_due;
    i64 max_queries, min_queries, min_duration;
    bool ends_at_t0;
    struct Lane *successor, *predecessor;
    i64 *release;                    /* times at which slots that met a dead endpoint come free: a ring */
    size_t release_head, release_len, release_cap;
} Lane;

typedef struct {
    struct sockaddr_storage addr;
    socklen_t len;
} Address;

/* A histogram of durations, 32 bins an octave of microseconds (2.2 % wide); written by the thread, read by Python. */
typedef struct {
    atomic_llong bins[BINS], max;
} Histogram;

typedef struct Engine {
    /* set before the thread starts */
    Address addresses[MAX_ADDRESSES];
    int n_addresses;
    i64 timeout, connect_timeout, max_connections, outstanding_limit, spin, held_limit, waiting_limit, max_duration;
    i64 highest_fd; /* a connection beyond it would take a descriptor that the worker's own files need */
    bool send_request_id, stamping, settles_plain;
    char run_id[64];
    size_t run_id_len;
    i64 first_query; /* what ids begin at on the wire */
    bool traced;     /* each request has a trace context: slo/records/trace_ids.py says which */
    uint64_t trace_high, trace_low, trace_least;
    unsigned char success[1000];
    char needles[4][64];
    size_t needle_len[4];
    int n_needles;
    Request *requests;
    i64 n_requests;
    Lane lanes[2];
    int n_lanes;

    /* the thread's own */
    pthread_t thread;
    bool thread_started;
    int epoll, timer, command, anchor;
    int bell;                        /* rings when a measured exchange has ended, for whoever builds the next turn; -1: nobody */
    i64 armed, now, t0, pulse_at, max_duration_at;
    i64 wall_offset, wall_previous, wall_sampled;
    int preferred;
    i64 n_connections;
    i64 unweighed;                   /* bytes that came since the answers in flight were weighed */
    Connection *all, *idle_top, *idle_bottom, *connecting_first, *connecting_last, *doomed, *graves;
    Exchange *first, *last, *free_exchanges, *wait_first, *wait_last;
    Heap cancels, turns;             /* turns: of sessions, handed over before they are due */
    Lane later;                      /* of those turns */
    char *buffer;

    /* shared: commands in, counters out */
    atomic_llong cmd_open, cmd_t0, cmd_give_up_status;
    Exchange *_Atomic given;         /* turns that the thread has not seen yet */
    atomic_bool turning;             /* more may come */
    atomic_bool cmd_stop, cmd_quit;
    atomic_bool stopped, issued_all, max_duration_hit, over_memory;
    atomic_llong sent, in_flight, aborted, connecting, opened, retried, kernel_reads, user_reads, clock_steps, refused;
    atomic_llong pool_waits, stall_count, stall_total, tid;
    Histogram stalls, waits;
    atomic_llong exhausted[256];     /* by errno */

    /* finished rows, handed to Python */
    pthread_mutex_t lock;
    Buffer rows;                     /* of those that are settled */
    Exchange *finished, *finished_last; /* the others, as they are: Python takes and frees them */
    i64 unsettled;                   /* bytes in them: beyond waiting_limit the run is given up */
} Engine;

/* buffer.c */
bool buffer_add(Buffer *b, const void *data, size_t n);
void buffer_trim(Buffer *b, size_t keep);

/* rope.c */
bool rope_add(Rope *r, const void *data, size_t n);
bool rope_finds(const Rope *r, const char *needle, size_t n);
bool rope_copy(const Rope *r, Buffer *to);
void rope_clear(Rope *r, bool keep);

/* parser.c */
extern const char *const WIRE_ERRORS[];
extern const int N_WIRE_ERRORS;
enum { PARSE_MORE = -1, PARSE_COMPLETE = -2 };
void parser_start(Parser *p, bool head_request);
/* PARSE_MORE, PARSE_COMPLETE, or the index of a WIRE_ERRORS text. */
int parser_feed(Parser *p, Exchange *x, const char *data, size_t n);
bool parser_eof(Parser *p);

/* clock.c */
i64 mono_ns(void);
i64 thread_cpu_ns(pthread_t thread);
i64 wall_to_mono(Engine *e, i64 wall, i64 earliest, i64 now);
void pulse(Engine *e);
void histogram_add(Histogram *h, i64 ns);
i64 histogram_percentile(Histogram *h, double p);

/* lanes.c */
void lanes_start(Engine *e);
void lanes_run(Engine *e);
i64 lanes_next(const Engine *e);
bool lanes_finished(const Engine *e);
void lane_done(Exchange *x);
void turns_take(Engine *e);

/* heap.c */
bool heap_add(Engine *e, Heap *h, Exchange *x, i64 at);
void heap_remove(Heap *h, Exchange *x);

/* pool.c */
void pool_send(Engine *e, Exchange *x);
void pool_open(Engine *e, i64 connections);
void pool_cancel(Engine *e, Exchange *x, int status, int error);
void pool_timers(Engine *e);
void pool_relieve(Engine *e);
i64 pool_next(const Engine *e);
void pool_finish(Engine *e, Exchange *x);
void connection_begin(Engine *e, Connection *c, Exchange *x);
void connection_give_up(Engine *e, Connection *c, int status, int error, i64 detail, i64 t);
void connection_complete(Engine *e, Connection *c, i64 t);
void pool_idle(Engine *e, Connection *c);
void pool_forget(Engine *e, Connection *c);
void pool_retry(Engine *e, Exchange *x);
void connecting_remove(Engine *e, Connection *c);

/* connection.c */
bool ask_for_stamps(int fd);
Connection *connection_new(Engine *e, Exchange *x);
void connection_event(Engine *e, Connection *c, uint32_t events);
void connection_write(Engine *e, Connection *c, const Request *r, const char *id, size_t id_len);
void connection_doom(Engine *e, Connection *c, int fault);
void connection_lost(Engine *e, Connection *c, int fault);
bool connection_next_address(Engine *e, Connection *c);
void connection_close(Engine *e, Connection *c);

/* loop.c */
void exchange_clear(Exchange *x);
Exchange *exchange_take(Engine *e);
void exchange_free(Exchange *x);
i64 exchange_bytes(const Exchange *x);
bool engine_start(Engine *e);
void ring(int bell);
void engine_wake(Engine *e);
void engine_destroy(Engine *e);

#endif
