/* One TCP connection: connecting, writing, and reads that carry the kernel's arrival stamp. */
#include "engine.h"

#include <errno.h>
#include <linux/tcp.h> /* libc's own has a shorter tcp_info */
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_TIMESTAMPING
#define SO_TIMESTAMPING 37
#endif
#define RX_SOFTWARE (1 << 3)
#define REPORT_SOFTWARE (1 << 4)
#define SMALL_REQUEST 16384

bool ask_for_stamps(int fd)
{
    const int stamps = RX_SOFTWARE | REPORT_SOFTWARE;
    return setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &stamps, sizeof stamps) == 0;
}

static bool watch(Engine *e, Connection *c, int operation, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = c};
    return epoll_ctl(e->epoll, operation, c->fd, &event) == 0;
}

static void note_exhaustion(Engine *e, int code)
{
    if (code == EMFILE || code == ENFILE || code == EADDRNOTAVAIL || code == ENOBUFS || code == ENOMEM)
        atomic_fetch_add(&e->exhausted[code], 1);
}

static void drop_socket(Connection *c)
{
    if (c->fd >= 0)
        close(c->fd); /* which takes it out of the epoll set */
    c->fd = -1;
    c->writing = false;
}

/* The connection will be lost as soon as the caller is done: never from inside a call that uses it. */
void connection_doom(Engine *e, Connection *c, int fault)
{
    if (c->doomed || c->gone)
        return;
    c->doomed = true;
    c->fault = fault;
    c->dnext = e->doomed;
    e->doomed = c;
}

static void start(Engine *e, Connection *c);

static void failed(Engine *e, Connection *c, int code)
{
    note_exhaustion(e, code);
    if (!connection_next_address(e, c))
        connection_doom(e, c, code);
}

bool connection_next_address(Engine *e, Connection *c)
{
    drop_socket(c);
    if (c->tried + 1 >= e->n_addresses)
        return false;
    c->tried++;
    start(e, c);
    return true;
}

static void start(Engine *e, Connection *c)
{
    const Address *to = &e->addresses[(c->first + c->tried) % e->n_addresses];
    const int on = 1;
    c->fd = socket(to->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || c->fd > e->highest_fd) {
        int code = c->fd < 0 ? errno : EMFILE;
        drop_socket(c);
        note_exhaustion(e, code);
        connection_doom(e, c, code);
        return;
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (e->stamping && !ask_for_stamps(c->fd))
        e->stamping = false; /* this kernel has none: every stamp is a userland one, and says so */
    c->last = mono_ns();
    bool begun = connect(c->fd, (const struct sockaddr *)&to->addr, to->len) == 0 || errno == EINPROGRESS;
    if (!begun || !watch(e, c, EPOLL_CTL_ADD, EPOLLOUT))
        failed(e, c, errno);
}

/* Begin a connection for an exchange, or ahead of any (NULL). */
Connection *connection_new(Engine *e, Exchange *x)
{
    Connection *c = calloc(1, sizeof *c);
    if (!c) {
        atomic_store(&e->over_memory, true);
        atomic_store(&e->stopped, true);
        return NULL;
    }
    c->fd = -1;
    c->first = e->preferred;
    c->exchange = x;
    c->opening = mono_ns();
    c->deadline = c->opening + e->connect_timeout;
    c->next = e->all;
    if (e->all)
        e->all->prev = c;
    e->all = c;
    e->n_connections++;
    atomic_fetch_add_explicit(&e->opened, 1, memory_order_relaxed);
    c->connecting = true;
    c->cprev = e->connecting_last;
    *(e->connecting_last ? &e->connecting_last->cnext : &e->connecting_first) = c;
    e->connecting_last = c;
    atomic_fetch_add(&e->connecting, 1);
    if (x)
        x->on = c;
    start(e, c);
    return c;
}

static void opened(Engine *e, Connection *c)
{
    int code = 0;
    socklen_t size = sizeof code;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &code, &size) != 0)
        code = errno;
    if (code) {
        failed(e, c, code);
        return;
    }
    e->preferred = (c->first + c->tried) % e->n_addresses;
    watch(e, c, EPOLL_CTL_MOD, EPOLLIN);
    connecting_remove(e, c);
    c->open = true;
    if (c->exchange) {
        c->exchange->row.connect = mono_ns() - c->opening;
        connection_begin(e, c, c->exchange);
    } else {
        pool_idle(e, c);
    }
}

/* -- writing -- */

static void keep_unsent(Engine *e, Connection *c, const char *data, size_t n)
{
    if (!buffer_add(&c->unsent, data, n)) {
        connection_doom(e, c, ENOMEM);
        return;
    }
    if (!c->writing) {
        c->writing = true;
        watch(e, c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
    }
}

/* Bytes that the kernel took; -1: no more will be. */
static ssize_t push(Engine *e, Connection *c, const char *data, size_t n)
{
    ssize_t sent = send(c->fd, data, n, MSG_NOSIGNAL);
    if (sent < 0) {
        if (errno == EAGAIN || errno == EINTR)
            return 0;
        /* The peer may have answered and closed before it took the whole request: what it said is read first. */
        c->reset = c->reset || errno == ECONNRESET; /* said once: what is read after it looks like an orderly end */
        if (errno != EPIPE && errno != ECONNRESET)
            connection_doom(e, c, errno);
        return -1;
    }
    c->taken += sent;
    return sent;
}

static void write_out(Engine *e, Connection *c, const char *data, size_t n)
{
    ssize_t sent = c->writing ? 0 : push(e, c, data, n);
    if (sent >= 0 && (size_t)sent < n)
        keep_unsent(e, c, data + sent, n - (size_t)sent);
}

void connection_write(Engine *e, Connection *c, const Request *r, const char *id, size_t id_len)
{
    char small[SMALL_REQUEST];
    size_t total = r->prefix_len + id_len + r->suffix_len;
    char *data = total <= sizeof small ? small : malloc(total);
    Exchange *x = c->exchange;
    if (!data) {
        connection_doom(e, c, ENOMEM);
        return;
    }
    memcpy(data, r->prefix, r->prefix_len);
    memcpy(data + r->prefix_len, id, id_len);
    memcpy(data + r->prefix_len + id_len, r->suffix, r->suffix_len);
    x->row.bytes_out = (i64)total;
    c->last = mono_ns();
    if (x->row.sent < 0)
        x->row.sent = c->last;
    else
        x->row.attempts++;
    c->before = c->taken;
    write_out(e, c, data, total);
    if (data != small)
        free(data);
}

static void flush_unsent(Engine *e, Connection *c)
{
    while (c->unsent_at < c->unsent.len) {
        ssize_t sent = push(e, c, c->unsent.data + c->unsent_at, c->unsent.len - c->unsent_at);
        if (sent == 0)
            return;
        if (sent < 0)
            break;
        c->unsent_at += (size_t)sent;
    }
    c->writing = false;
    c->unsent_at = 0;
    buffer_trim(&c->unsent, 0);
    watch(e, c, EPOLL_CTL_MOD, EPOLLIN);
}

/* -- reading -- */

static i64 kernel_stamp(Engine *e, Connection *c, struct msghdr *m, i64 now)
{
    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SO_TIMESTAMPING) {
            struct timespec t;
            memcpy(&t, CMSG_DATA(h), sizeof t);
            if (t.tv_sec)
                return wall_to_mono(e, (i64)t.tv_sec * 1000000000LL + t.tv_nsec, c->last, now);
        }
    }
    return -1;
}

static void take(Engine *e, Connection *c, const char *data, size_t n, i64 t)
{
    Exchange *x = c->exchange;
    if (x->row.first_byte < 0)
        x->row.first_byte = t;
    x->row.bytes_in += (i64)n;
    size_t before = x->body.len;
    int result = parser_feed(&c->parser, x, data, n);
    if (c->parser.final && x->row.headers < 0)
        x->row.headers = t;
    if (x->body.len > before)
        rope_add(&x->marks, &(Mark){t, (i64)x->body.len}, sizeof(Mark)); /* without memory: the time of the mark before */
    if (result >= 0)
        connection_give_up(e, c, ST_PROTOCOL, E_WIRE, result, t);
    else if (result == PARSE_COMPLETE)
        connection_complete(e, c, t);
}

static void read_in(Engine *e, Connection *c)
{
    char control[CMSG_SPACE(3 * sizeof(struct timespec))];
    struct iovec iov = {.iov_base = e->buffer, .iov_len = READ_SIZE};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(c->fd, &m, 0);
    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            connection_lost(e, c, errno);
        return;
    }
    i64 now = e->now = mono_ns();
    if (n == 0) {
        connection_lost(e, c, 0);
        return;
    }
    i64 t = m.msg_controllen ? kernel_stamp(e, c, &m, now) : -1;
    bool kernel = t >= 0;
    if (!kernel)
        t = now;
    atomic_fetch_add_explicit(kernel ? &e->kernel_reads : &e->user_reads, 1, memory_order_relaxed);
    c->last = t;
    if (!c->exchange) {
        pool_forget(e, c); /* bytes that answer nothing: this connection can't be trusted */
        return;
    }
    if (!kernel)
        c->exchange->row.stamp = 1;
    take(e, c, e->buffer, (size_t)n, t);
    if ((e->unweighed += n) > WEIGH_EVERY)
        pool_relieve(e);
}

void connection_event(Engine *e, Connection *c, uint32_t events)
{
    if (c->gone || c->doomed || c->fd < 0)
        return;
    if (!c->open) {
        opened(e, c);
        return;
    }
    if (events & EPOLLOUT && c->writing)
        flush_unsent(e, c);
    if (events & (EPOLLIN | EPOLLERR | EPOLLHUP) && !c->doomed)
        read_in(e, c);
}

/* -- ending -- */

/* Whether the server can't have read a byte of the request that is on this connection, as harness/transport/stream.py finds it.
 *
 * Whatever a host sends acknowledges all that reached it, so a FIN that acknowledges nothing of the request left before
 * the request came. A reset proves nothing: it is not read for what it acknowledges, and follows at once on a request
 * that was read as well. */
static bool unread(const Connection *c, int fault)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    if (c->taken == c->before)
        return true;
    if (fault || c->reset || getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0
        || size < offsetof(struct tcp_info, tcpi_bytes_acked) + sizeof info.tcpi_bytes_acked)
        return false;
    return (i64)info.tcpi_bytes_acked - 1 <= c->before; /* the SYN counts as one */
}

/* The connection is over: `fault` is an errno, or 0 for an orderly end of stream. */
void connection_lost(Engine *e, Connection *c, int fault)
{
    Exchange *x = c->exchange;
    i64 now = e->now = mono_ns();
    connecting_remove(e, c);
    if (!x) {
        pool_forget(e, c);
    } else if (!c->open) {
        connection_give_up(e, c, ST_CONNECT, E_CONNECT, fault, now);
    } else if (!fault && parser_eof(&c->parser)) {
        x->row.stamp = 1; /* the kernel stamps bytes, and what ended this body was none */
        connection_complete(e, c, now);
    } else if (c->reused && x->row.first_byte < 0 && unread(c, fault)) {
        c->exchange = NULL;
        x->on = NULL;
        pool_retry(e, x);
        pool_forget(e, c); /* opens a connection for it */
    } else {
        connection_give_up(e, c, fault == ECONNRESET || fault == EPIPE ? ST_CONNECT : ST_PROTOCOL,
                           x->row.first_byte >= 0 ? E_CLOSED_MIDDLE : E_CLOSED_EARLY, fault, now);
    }
}

/* Close now. The memory lives until the loop has gone through the events it holds. */
void connection_close(Engine *e, Connection *c)
{
    if (c->gone)
        return;
    c->gone = true;
    c->open = false;
    connecting_remove(e, c);
    drop_socket(c);
    buffer_trim(&c->unsent, 0);
    *(c->prev ? &c->prev->next : &e->all) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    e->n_connections--;
    c->next = e->graves;
    e->graves = c;
}
