/* The thread: one epoll set, one timerfd armed with absolute times, commands through an eventfd. */
#include "engine.h"

#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define BATCH 128

Exchange *exchange_take(Engine *e)
{
    Exchange *x = e->free_exchanges;
    if (x) {
        e->free_exchanges = x->next;
    } else if (!(x = calloc(1, sizeof *x))) {
        atomic_store(&e->over_memory, true);
        atomic_store(&e->stopped, true);
        return NULL;
    }
    exchange_clear(x);
    return x;
}

/* As new, but for the memory of its buffers. */
void exchange_clear(Exchange *x)
{
    Buffer head = x->head;
    Rope body = x->body, marks = x->marks;
    memset(x, 0, sizeof *x);
    memset(&x->row, 0xff, sizeof x->row); /* every field -1 */
    x->head = head;
    x->body = body;
    x->marks = marks;
    Row *row = &x->row;
    row->bytes_out = row->bytes_in = row->stamp = row->settled = row->error = row->detail = 0;
    row->head_len = row->body_len = row->n_marks = 0;
    row->status = ST_UNFINISHED;
    row->attempts = 1;
}

void exchange_free(Exchange *x)
{
    free(x->head.data);
    rope_clear(&x->body, false);
    rope_clear(&x->marks, false);
    free(x);
}

/* What it holds of its response, room to grow included. */
i64 exchange_bytes(const Exchange *x)
{
    return (i64)(x->head.cap + x->body.held + x->marks.held);
}

static void bury(Engine *e)
{
    for (Connection *c; (c = e->doomed);) {
        e->doomed = c->dnext;
        c->doomed = false;
        if (!c->gone)
            connection_lost(e, c, c->fault);
    }
}

static void free_graves(Engine *e)
{
    for (Connection *c; (c = e->graves);) {
        if (c->doomed) /* still on the other list */
            return;
        e->graves = c->next;
        free(c);
    }
}

/* Python may not hear of it from the next turn: without a query in flight or due that can be a warm-up away. */
static void publish(Engine *e)
{
    atomic_store_explicit(&e->issued_all, lanes_finished(e), memory_order_release);
}

static void give_up(Engine *e, int status)
{
    atomic_store(&e->stopped, true);
    while (e->wait_first) /* first: else each of them would get a connection of one that is given up */
        pool_cancel(e, e->wait_first, status, E_GIVEN_UP);
    while (e->first)
        pool_cancel(e, e->first, status, E_GIVEN_UP);
}

static bool commands(Engine *e)
{
    i64 n = atomic_load(&e->cmd_open);
    if (n) {
        pool_open(e, n);
        atomic_fetch_sub(&e->cmd_open, n); /* afterwards: in between both counters say that connecting goes on */
    }
    i64 t0 = atomic_load(&e->cmd_t0);
    if (t0 && !e->t0) {
        e->t0 = t0;
        e->pulse_at = t0 - AHEAD_NS + PULSE_NS;
        lanes_start(e);
    }
    if (atomic_load(&e->cmd_stop))
        atomic_store(&e->stopped, true);
    i64 status = atomic_exchange(&e->cmd_give_up_status, -1);
    if (status >= 0)
        give_up(e, (int)status);
    if (atomic_load_explicit(&e->given, memory_order_relaxed))
        turns_take(e);
    publish(e);
    return !atomic_load(&e->cmd_quit);
}

/* Sleep until the next appointment: 0 to poll, -1 to block with the timer armed. */
static int arm(Engine *e)
{
    i64 next = lanes_next(e), pool = pool_next(e);
    i64 lanes = next;
    next = pool < next ? pool : next;
    if (e->t0 && e->pulse_at < next)
        next = e->pulse_at;
    if (next == NEVER)
        return -1;
    i64 now = mono_ns();
    if (next <= now || (lanes != NEVER && lanes - e->spin <= now))
        return 0;
    if (next == lanes)
        next -= e->spin;
    if (next != e->armed) {
        struct itimerspec at = {.it_value = {.tv_sec = next / 1000000000LL, .tv_nsec = next % 1000000000LL}};
        timerfd_settime(e->timer, TFD_TIMER_ABSTIME, &at, NULL);
        e->armed = next;
    }
    return -1;
}

static void turn(Engine *e, struct epoll_event *events, int n)
{
    e->now = mono_ns();
    if (e->armed <= e->now)
        e->armed = 0;
    lanes_run(e); /* what is due goes first */
    for (int i = 0; i < n; i++) {
        void *what = events[i].data.ptr;
        if (what == &e->timer)
            continue;
        if (what == &e->command) {
            uint64_t count;
            ssize_t ignored = read(e->command, &count, sizeof count);
            (void)ignored;
            continue;
        }
        connection_event(e, what, events[i].events);
        if (e->doomed)
            bury(e);
        lanes_run(e);
    }
    while (e->doomed)
        bury(e);
    if (pool_next(e) <= e->now)
        pool_timers(e);
    if (e->t0 && e->pulse_at <= e->now)
        pulse(e);
    while (e->doomed)
        bury(e);
    free_graves(e);
    publish(e);
}

/* A short slice lets a waking thread take the core from one that computes (Linux 6.12 and later; else it is ignored). */
static void ask_for_promptness(void)
{
    struct sched_attr_v0 {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {.size = sizeof attr, .nice = getpriority(PRIO_PROCESS, 0), .runtime = 100000}; /* as nice as it was started */
    syscall(SYS_sched_setattr, 0, &attr, 0);
    prctl(PR_SET_TIMERSLACK, 1);
}

static void *run(void *argument)
{
    Engine *e = argument;
    struct epoll_event events[BATCH];
    atomic_store(&e->tid, (long long)syscall(SYS_gettid));
    ask_for_promptness();
    while (commands(e)) {
        int n = epoll_wait(e->epoll, events, BATCH, arm(e));
        turn(e, events, n < 0 ? 0 : n);
    }
    return NULL;
}

/* Whoever waits for this eventfd wakes up. */
void ring(int bell)
{
    uint64_t one = 1;
    ssize_t ignored = write(bell, &one, sizeof one);
    (void)ignored;
}

void engine_wake(Engine *e)
{
    ring(e->command);
}

/* Make what the thread needs and start it. False, with errno, if the system has no more of it. */
bool engine_start(Engine *e)
{
    sigset_t all, before;
    e->buffer = malloc(READ_SIZE);
    e->epoll = epoll_create1(EPOLL_CLOEXEC);
    e->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    e->command = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (!e->buffer || e->epoll < 0 || e->timer < 0 || e->command < 0)
        return false;
    /* Linux stamps packets only while some socket asks for it: as harness/transport/stream.py, one asks all the time. */
    e->anchor = e->stamping ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0) : -1;
    if (e->anchor >= 0)
        ask_for_stamps(e->anchor);
    struct epoll_event timer = {.events = EPOLLIN | EPOLLET, .data.ptr = &e->timer}; /* re-armed, never read */
    struct epoll_event command = {.events = EPOLLIN, .data.ptr = &e->command};
    if (epoll_ctl(e->epoll, EPOLL_CTL_ADD, e->timer, &timer) || epoll_ctl(e->epoll, EPOLL_CTL_ADD, e->command, &command))
        return false;
    sigfillset(&all); /* signals are Python's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    errno = pthread_create(&e->thread, NULL, run, e);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    e->thread_started = errno == 0;
    return e->thread_started;
}

/* Stop the thread, close every connection and free everything. What is in flight is dropped: give it up before. */
void engine_destroy(Engine *e)
{
    if (e->thread_started) {
        atomic_store(&e->cmd_quit, true);
        engine_wake(e);
        pthread_join(e->thread, NULL);
        e->thread_started = false;
    }
    e->doomed = NULL;
    while (e->all)
        connection_close(e, e->all);
    for (Connection *c; (c = e->graves);) {
        e->graves = c->next;
        free(c);
    }
    while (e->first) {
        Exchange *x = e->first;
        e->first = x->next;
        if (x->query && --x->query->left == 0)
            free(x->query);
        x->next = e->free_exchanges;
        e->free_exchanges = x;
    }
    for (Exchange *x; (x = e->free_exchanges);) {
        e->free_exchanges = x->next;
        exchange_free(x);
    }
    turns_take(e);
    while (e->turns.len)
        exchange_free(e->turns.of[--e->turns.len]);
    for (int i = 0; i < e->n_lanes; i++) {
        free(e->lanes[i].release);
        for (Stretch *s; (s = e->lanes[i].at);) {
            e->lanes[i].at = atomic_load(&s->next);
            free(s);
        }
    }
    if (e->epoll >= 0)
        close(e->epoll);
    if (e->timer >= 0)
        close(e->timer);
    if (e->command >= 0)
        close(e->command);
    if (e->anchor >= 0)
        close(e->anchor);
    if (e->bell >= 0)
        close(e->bell);
    e->epoll = e->timer = e->command = e->anchor = e->bell = -1;
    free(e->buffer);
    free(e->cancels.of);
    free(e->turns.of);
    e->buffer = NULL;
    e->cancels = e->turns = (Heap){0};
    for (Exchange *x; (x = e->finished);) {
        e->finished = x->next;
        exchange_free(x);
    }
    free(e->rows.data);
    memset(&e->rows, 0, sizeof e->rows);
}
