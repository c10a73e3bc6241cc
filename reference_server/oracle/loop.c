/* The loop: one epoll, one timerfd with absolute deadlines, one heap. It accepts, wakes and closes; it says nothing. */
#include "oracle.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define BATCH 64
#define NAP_NS 15000LL               /* going to sleep and waking up takes about as long: shorter waits are polled out */

/* -- connections -------------------------------------------------------------------------------------------------- */

bool loop_watch(Loop *l, Connection *c, uint32_t events)
{
    if (c->watched == events)
        return true;
    struct epoll_event e = {.events = events, .data.ptr = c};
    c->watched = events;
    return epoll_ctl(l->epoll, EPOLL_CTL_MOD, c->fd, &e) == 0;
}

static Connection *connection_new(Loop *l, int fd)
{
    Connection *c = l->idle, *all;
    if (c) {
        l->idle = c->next;
        all = c->all;
    } else {
        c = malloc(sizeof(*c));
        if (!c)
            return NULL;
        all = l->all;
        l->all = c;
    }
    *c = (Connection){.fd = fd, .watched = EPOLLIN, .heap_at = -1, .seq = NO_ROW, .all = all};
    return c;
}

/* Frees everything at once, but for the struct itself: events of this batch may still point to it. */
void connection_close(Loop *l, Connection *c)
{
    if (c->fd < 0)
        return;
    if (c->phase == P_HELD || c->phase == P_ANSWERING || c->phase == P_STREAMING)
        close_row(l, c, T_CUT, -1);
    heap_remove(&l->heap, c);
    close(c->fd);
    c->fd = -1;
    free(c->in.data);
    free(c->out.data);
    c->in = c->out = (Buffer){0};
    c->next = l->gone;
    l->gone = c;
}

/* Out of descriptors: the spare one lets us accept and close, which is better than a listener that is always ready. */
static bool refuse_one(Loop *l)
{
    static const char NOTE[] = "plimsoll.reference_server.oracle: out of file descriptors, so connections are refused. "
                               "Raise the limit (ulimit -n) and start again\n";
    if (l->spare_fd < 0 || close(l->spare_fd) != 0)
        return false;
    int fd = accept(l->listener, NULL, NULL);
    if (fd >= 0)
        close(fd);
    l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (l->n_refused++ == 0 && write(STDERR_FILENO, NOTE, sizeof(NOTE) - 1) < 0)
        return false;
    return fd >= 0;
}

static void accept_some(Loop *l)
{
    for (int i = 0; i < BATCH; i++) {
        int fd = accept4(l->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
        if (fd < 0) {
            if (errno == ECONNABORTED || errno == EINTR || ((errno == EMFILE || errno == ENFILE) && refuse_one(l)))
                continue;
            return;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        Connection *c = connection_new(l, fd);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        if (!c)
            close(fd);
        else if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &e) != 0)
            connection_close(l, c);
    }
}

/* -- time --------------------------------------------------------------------------------------------------------- */

/* When the stall that now lies in is over; -1: none. */
i64 stalled_until(Loop *l, i64 now)
{
    if (l->first_request < 0)
        return -1;
    i64 since = now - l->first_request, until = -1;
    for (size_t i = 0; i < l->n_stalls; i++)
        if (l->stalls[i].at <= since && since < l->stalls[i].until && l->stalls[i].until > until)
            until = l->stalls[i].until;
    return until < 0 ? -1 : l->first_request + until;
}

/* Write what is due, a batch at most, so that sockets are read in between. */
static void fire_due(Loop *l)
{
    for (int i = 0; i < BATCH && l->heap.len; i++) {
        i64 now = mono_ns();
        Connection *c = l->heap.at[0].who;
        if (l->heap.at[0].due > now || (l->n_stalls && stalled_until(l, now) >= 0))
            return;
        connection_due(l, c, now);
    }
}

/* How long epoll may wait, in ms; sets the timer for the next due time. */
static int patience(Loop *l, i64 until)
{
    i64 now = mono_ns();
    if (now >= until)
        return 0;
    if (l->heap.len) {
        i64 when = l->heap.at[0].due, stall = l->n_stalls ? stalled_until(l, now) : -1;
        when = (stall > when ? stall : when) - l->spin_ns;
        if (when - now < NAP_NS)
            return 0;
        if (l->armed < 0 || when < l->armed) {
            struct itimerspec spec = {.it_value = {when / 1000000000LL, when % 1000000000LL}};
            if (timerfd_settime(l->timer, TFD_TIMER_ABSTIME, &spec, NULL) == 0)
                l->armed = when;
        }
    }
    return (int)((until - now) / 1000000) + 1;
}

/* -- running ------------------------------------------------------------------------------------------------------ */

static bool watch_own(Loop *l, int fd, void *mark, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.ptr = mark};
    return epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

/* False: errno says why. The caller calls loop_close in any case. */
bool loop_open(Loop *l)
{
    l->armed = l->first_request = -1;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    l->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    l->scratch = malloc(SCRATCH);
    if (l->epoll < 0 || l->timer < 0 || !l->scratch)
        return false;
    /* Edge-triggered: the timer need not be read, setting it anew is enough. */
    return watch_own(l, l->timer, &l->timer, EPOLLIN | EPOLLET) && watch_own(l, l->listener, l, EPOLLIN);
}

void loop_close(Loop *l)
{
    for (Connection *c = l->all, *next; c; c = next) {
        next = c->all;
        connection_close(l, c);
        free(c);
    }
    for (int *fd = (int[]){l->epoll, l->timer, l->spare_fd, -2}; *fd != -2; fd++)
        if (*fd >= 0)
            close(*fd);
    truth_free(&l->truth);
    free(l->heap.at);
    free(l->scratch);
    free(l->script.memory);
}

static void handle(Loop *l, const struct epoll_event *e)
{
    if (e->data.ptr == &l->timer) {
        l->armed = -1;
        return;
    }
    if (e->data.ptr == l) {
        accept_some(l);
        return;
    }
    Connection *c = e->data.ptr;
    if (c->fd < 0)
        return;
    if (e->events & EPOLLIN)
        connection_readable(l, c);
    else if (e->events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP))
        connection_close(l, c);
    if (c->fd >= 0 && (e->events & EPOLLOUT) && c->out.len)
        connection_writable(l, c);
}

/* Serve until that instant, or until a signal came. 0, or the errno of an epoll that broke. */
int loop_run(Loop *l, i64 until)
{
    struct epoll_event events[BATCH];
    do {
        fire_due(l);
        int n = epoll_wait(l->epoll, events, BATCH, patience(l, until));
        if (n < 0)
            return errno == EINTR ? 0 : errno;
        for (int i = 0; i < n; i++) {
            handle(l, &events[i]);
            if (l->heap.len)
                fire_due(l);
        }
        while (l->gone) {
            Connection *c = l->gone;
            l->gone = c->next;
            c->next = l->idle;
            l->idle = c;
        }
    } while (mono_ns() < until);
    return 0;
}
