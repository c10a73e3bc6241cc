/* What Python gives an engine before the run: addresses, requests, lanes. Everything is checked here, once. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "binding.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

static int add_address(Engine *e, PyObject *item)
{
    int family, port;
    unsigned scope = 0;
    const char *host;
    if (!PyArg_ParseTuple(item, "isi|I", &family, &host, &port, &scope))
        return -1;
    Address *a = &e->addresses[e->n_addresses];
    struct sockaddr_in *v4 = (struct sockaddr_in *)&a->addr;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&a->addr;
    a->addr.ss_family = (sa_family_t)family;
    int known = family == AF_INET ? inet_pton(family, host, &v4->sin_addr)
                : family == AF_INET6 ? inet_pton(family, host, &v6->sin6_addr) : 0;
    if (known != 1) {
        PyErr_Format(PyExc_ValueError, "%s is no IP address of family %d", host, family);
        return -1;
    }
    if (family == AF_INET) {
        v4->sin_port = htons((uint16_t)port);
        a->len = sizeof *v4;
    } else {
        v6->sin6_port = htons((uint16_t)port);
        v6->sin6_scope_id = scope;
        a->len = sizeof *v6;
    }
    e->n_addresses++;
    return 0;
}

int add_addresses(Engine *e, PyObject *list)
{
    Py_ssize_t n = PySequence_Size(list);
    if (n < 0)
        return -1;
    if (n == 0) {
        PyErr_SetString(PyExc_ValueError, "no address");
        return -1;
    }
    for (Py_ssize_t i = 0; i < n && i < MAX_ADDRESSES; i++) {
        PyObject *item = PySequence_GetItem(list, i);
        int bad = !item || add_address(e, item);
        Py_XDECREF(item);
        if (bad)
            return -1;
    }
    return 0;
}

/* One (prefix, suffix, head), whose bytes stay Python's. */
static bool read_request(PyObject *item, Request *r)
{
    Py_ssize_t prefix, suffix;
    int head;
    if (!PyArg_ParseTuple(item, "y#y#p", &r->prefix, &prefix, &r->suffix, &suffix, &head))
        return false;
    r->prefix_len = (size_t)prefix;
    r->suffix_len = (size_t)suffix;
    r->head = head;
    return true;
}

/* set_requests([(prefix, suffix, head) or None, ...]), or set_requests({...}): what the lanes bring is kept in there */
PyObject *set_requests(PyObject *object, PyObject *list)
{
    EngineObject *self = (EngineObject *)object;
    Engine *e = engine_of(self);
    if (!e)
        return NULL;
    if ((!PyList_Check(list) && !PyDict_Check(list)) || (PyDict_Check(list) ? self->known : self->requests)) {
        PyErr_SetString(PyExc_TypeError, "give one list, once");
        return NULL;
    }
    if (PyDict_Check(list)) {
        self->known = Py_NewRef(list); /* for as long as there is an engine */
        Py_RETURN_NONE;
    }
    /* A tuple of our own: a list could be changed under the engine's thread. */
    if (!(self->requests = PyList_AsTuple(list)))
        return NULL;
    Py_ssize_t n = PyTuple_Size(self->requests);
    if (!(e->requests = calloc((size_t)n + 1, sizeof(Request))))
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyTuple_GetItem(self->requests, i);
        if (item != Py_None && !read_request(item, &e->requests[i]))
            return NULL;
    }
    e->n_requests = n;
    Py_RETURN_NONE;
}

/* set_plain(success: 1000 bytes of 0 and 1, needles: list of bytes) */
PyObject *set_plain(PyObject *object, PyObject *args)
{
    Engine *e = engine_of((EngineObject *)object);
    const char *success;
    Py_ssize_t size;
    PyObject *needles;
    if (!e || !PyArg_ParseTuple(args, "y#O", &success, &size, &needles))
        return NULL;
    if (e->thread_started) {
        PyErr_SetString(PyExc_ValueError, "say what is plain before open()");
        return NULL;
    }
    if (size != (Py_ssize_t)sizeof e->success || !PyList_Check(needles) || PyList_Size(needles) > 4) {
        PyErr_SetString(PyExc_ValueError, "success is 1000 bytes and there are at most 4 needles");
        return NULL;
    }
    memcpy(e->success, success, sizeof e->success);
    for (Py_ssize_t i = 0; i < PyList_Size(needles); i++) {
        char *needle;
        Py_ssize_t n;
        if (PyBytes_AsStringAndSize(PyList_GetItem(needles, i), &needle, &n) < 0)
            return NULL;
        if (n == 0 || n > (Py_ssize_t)sizeof e->needles[0]) {
            PyErr_SetString(PyExc_ValueError, "a needle has 1 to 64 bytes");
            return NULL;
        }
        memcpy(e->needles[i], needle, (size_t)n);
        e->needle_len[i] = (size_t)n;
    }
    e->n_needles = (int)PyList_Size(needles);
    e->settles_plain = true;
    Py_RETURN_NONE;
}

/* The columns of a stretch, as Python gives them. */
enum { DUE, IDS, OFFSETS, SAMPLE, PAYLOAD, CANCEL, N_COLUMNS };

/* What a stretch is made of: false, with an error, where an array is no list of int64. */
static bool view_columns(PyObject *const *columns, Py_buffer *views)
{
    for (int i = 0; i < N_COLUMNS; i++) {
        Py_buffer *view = &views[i];
        if (!columns[i] || columns[i] == Py_None)
            continue;
        if (PyObject_GetBuffer(columns[i], view, PyBUF_ND | PyBUF_FORMAT) < 0)
            return false;
        bool whole = view->format && (strcmp(view->format, "l") == 0 || strcmp(view->format, "q") == 0);
        if (!whole || view->itemsize != (Py_ssize_t)sizeof(i64) || view->ndim != 1) {
            PyErr_SetString(PyExc_ValueError, "the plan's arrays are one-dimensional and int64");
            return false;
        }
    }
    return true;
}

static bool valid_stretch(const Engine *e, const Stretch *s)
{
    if (s->offsets[0] != 0 || s->offsets[s->n_rows] != s->n_samples)
        return false;
    for (i64 i = 0; i < s->n_rows; i++)
        if (s->offsets[i + 1] <= s->offsets[i] || (s->ids && s->ids[i] < 0))
            return false;
    for (i64 i = 0; i < s->n_samples; i++)
        if (s->sample[i] < 0 || s->payload[i] < 0
            || (!s->requests && (s->payload[i] >= e->n_requests || !e->requests[s->payload[i]].prefix)))
            return false;
    return true;
}

/* Our own copy of the columns, looked at; NULL, with an error, for what is no part of a plan. */
static Stretch *copy_stretch(const Engine *e, const Py_buffer *views, bool closed, PyObject *requests)
{
    i64 n[N_COLUMNS], total = 0;
    for (int i = 0; i < N_COLUMNS; i++)
        total += n[i] = views[i].obj ? views[i].shape[0] : 0;
    i64 rows = n[OFFSETS] - 1;
    bool fits = rows >= 0 && n[SAMPLE] == n[PAYLOAD] && (!views[CANCEL].obj || n[CANCEL] == rows)
                && (closed ? rows > 0 : n[DUE] == rows && n[IDS] == rows);
    i64 own = requests ? n[SAMPLE] : 0;
    fits = fits && (!requests || (PyList_Check(requests) && PyList_Size(requests) == own));
    Stretch *s = fits ? malloc(sizeof *s + (size_t)own * sizeof(Request) + (size_t)total * sizeof(i64)) : NULL;
    if (fits && !s)
        return (Stretch *)PyErr_NoMemory();
    if (s) {
        s->requests = own ? (Request *)(s + 1) : NULL;
        i64 *at = (i64 *)((Request *)(s + 1) + own), **to[N_COLUMNS] = {&s->due, &s->ids, &s->offsets, &s->sample, &s->payload, &s->cancel};
        for (int i = 0; i < N_COLUMNS; at += n[i++]) {
            *to[i] = views[i].obj ? at : NULL;
            if (n[i])
                memcpy(at, views[i].buf, (size_t)n[i] * sizeof(i64));
        }
        s->n_rows = rows;
        s->n_samples = n[SAMPLE];
        atomic_init(&s->next, NULL);
        for (i64 i = 0; i < own; i++)
            if (!read_request(PyList_GetItem(requests, i), &s->requests[i])) {
                free(s);
                return NULL;
            }
        if (valid_stretch(e, s))
            return s;
        free(s);
    }
    PyErr_SetString(PyExc_ValueError, "the plan's arrays contradict each other or the requests");
    return NULL;
}

static Stretch *new_stretch(const Engine *e, PyObject *const *columns, bool closed, PyObject *requests)
{
    Py_buffer views[N_COLUMNS];
    memset(views, 0, sizeof views);
    requests = requests == Py_None ? NULL : requests;
    Stretch *s = view_columns(columns, views) ? copy_stretch(e, views, closed, requests) : NULL;
    for (int i = 0; i < N_COLUMNS; i++)
        if (views[i].obj)
            PyBuffer_Release(&views[i]);
    return s;
}

static Lane *new_lane(Engine *e)
{
    if (e->n_lanes == 2 || e->thread_started) {
        PyErr_SetString(PyExc_ValueError, "there are at most two lanes, added before open()");
        return NULL;
    }
    Lane *lane = &e->lanes[e->n_lanes];
    memset(lane, 0, sizeof *lane);
    return lane;
}

static PyObject *keep_lane(Engine *e, Lane *lane, Stretch *rows, int whole)
{
    if (!rows)
        return NULL;
    lane->at = lane->last = rows;
    atomic_store(&lane->whole, whole);
    e->n_lanes++;
    Py_RETURN_NONE;
}

/* open_lane(phase, due, ids, offsets, sample, payload, limit, cancel, whole, requests): limit -1 is none, cancel an array
   or None; not whole: more() brings the rows that follow; requests: a list of the samples' own, or None */
PyObject *open_lane(PyObject *object, PyObject *args)
{
    Engine *e = engine_of((EngineObject *)object);
    PyObject *columns[N_COLUMNS] = {NULL}, *requests = NULL;
    long long limit;
    int phase, whole = 1;
    Lane *lane = e ? new_lane(e) : NULL;
    if (!lane || !PyArg_ParseTuple(args, "iOOOOOL|OpO", &phase, &columns[DUE], &columns[IDS], &columns[OFFSETS],
                                   &columns[SAMPLE], &columns[PAYLOAD], &limit, &columns[CANCEL], &whole, &requests))
        return NULL;
    lane->phase = phase;
    lane->limit = limit;
    return keep_lane(e, lane, new_stretch(e, columns, false, requests), whole);
}

/* closed_lane(phase, offsets, sample, payload, slots, first_id, id_step, ends_at_t0, max_queries, min_queries, min_duration,
   cancel, whole, requests): whole, query k has row k modulo their number; else each has the next row, and more() brings
   them */
PyObject *closed_lane(PyObject *object, PyObject *args)
{
    Engine *e = engine_of((EngineObject *)object);
    PyObject *columns[N_COLUMNS] = {NULL}, *requests = NULL;
    long long slots, first, step, most, least, duration;
    int phase, ends, whole = 1;
    Lane *lane = e ? new_lane(e) : NULL;
    if (!lane || !PyArg_ParseTuple(args, "iOOOLLLpLLL|OpO", &phase, &columns[OFFSETS], &columns[SAMPLE], &columns[PAYLOAD],
                                   &slots, &first, &step, &ends, &most, &least, &duration, &columns[CANCEL], &whole,
                                   &requests))
        return NULL;
    if (slots < 1 || first < 0 || step < 1) {
        PyErr_SetString(PyExc_ValueError, "the plan's arrays contradict each other or the requests");
        return NULL;
    }
    lane->closed = true;
    lane->cyclic = whole;
    lane->phase = phase;
    lane->slots = slots;
    lane->next_id = first;
    lane->id_step = step;
    lane->ends_at_t0 = ends;
    lane->max_queries = most;
    lane->min_queries = least;
    lane->min_duration = duration;
    return keep_lane(e, lane, new_stretch(e, columns, true, requests), whole);
}

static Lane *lane_of(Engine *e, int phase)
{
    for (int i = 0; i < e->n_lanes; i++)
        if (e->lanes[i].phase == phase)
            return &e->lanes[i];
    PyErr_SetString(PyExc_ValueError, "there is no such lane");
    return NULL;
}

/* more(phase, due, ids, offsets, sample, payload, cancel, whole, requests): the rows that follow; whole: the last */
PyObject *more(PyObject *object, PyObject *args)
{
    Engine *e = engine_of((EngineObject *)object);
    PyObject *columns[N_COLUMNS], *requests = NULL;
    int phase, whole;
    if (!e || !PyArg_ParseTuple(args, "iOOOOOOp|O", &phase, &columns[DUE], &columns[IDS], &columns[OFFSETS],
                                &columns[SAMPLE], &columns[PAYLOAD], &columns[CANCEL], &whole, &requests))
        return NULL;
    Lane *lane = lane_of(e, phase);
    if (lane && atomic_load(&lane->whole)) {
        PyErr_SetString(PyExc_ValueError, "the lane is whole: nothing follows");
        return NULL;
    }
    Stretch *rows = lane ? new_stretch(e, columns, lane->closed, requests) : NULL;
    if (!rows)
        return NULL;
    atomic_store_explicit(&lane->last->next, rows, memory_order_release);
    lane->last = rows;
    atomic_store(&lane->whole, whole); /* after the rows: the thread asks for this first */
    engine_wake(e);
    Py_RETURN_NONE;
}

/* used(phase) -> rows of the stretches that are used up, and since when there are none left (0: there are) */
PyObject *used(PyObject *object, PyObject *args)
{
    Engine *e = engine_of((EngineObject *)object);
    int phase;
    if (!e || !PyArg_ParseTuple(args, "i", &phase))
        return NULL;
    Lane *lane = lane_of(e, phase);
    return lane ? Py_BuildValue("LL", atomic_load(&lane->used), atomic_load(&lane->dry)) : NULL;
}

/* bell() -> a descriptor that can be read when a measured exchange has ended: turns of sessions follow */
PyObject *bell(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Engine *e = engine_of((EngineObject *)object);
    if (!e)
        return NULL;
    if (e->thread_started || e->bell >= 0) {
        PyErr_SetString(PyExc_ValueError, "ask for the bell once, before open()");
        return NULL;
    }
    if ((e->bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    atomic_store(&e->turning, true);
    return PyLong_FromLong(e->bell);
}

/* turn(query_id, sample_ix, payload, due_ns, cancel_ns, (prefix, suffix, head)): one more sample of the measured load, sent
   when it is due (absolute) or at once; cancel -1: never */
PyObject *turn(PyObject *object, PyObject *args)
{
    Engine *e = engine_of((EngineObject *)object);
    long long query, sample, payload, due, cancel;
    Request request;
    PyObject *words;
    if (!e || !PyArg_ParseTuple(args, "LLLLLO", &query, &sample, &payload, &due, &cancel, &words)
        || !read_request(words, &request))
        return NULL;
    if (!atomic_load(&e->turning) || query < 0 || sample < 0 || payload < 0) {
        PyErr_SetString(PyExc_ValueError, "no such turn, or no turn is expected");
        return NULL;
    }
    Exchange *x = calloc(1, sizeof *x);
    if (!x)
        return PyErr_NoMemory();
    exchange_clear(x);
    x->row.query_id = query;
    x->row.sample_ix = sample;
    x->row.payload_ix = payload;
    x->row.due = due;
    x->cancel_after = cancel;
    x->request = request;
    x->next = atomic_load(&e->given);
    while (!atomic_compare_exchange_weak(&e->given, &x->next, x))
        ;
    engine_wake(e);
    Py_RETURN_NONE;
}

/* turned(): no further turn comes */
PyObject *turned(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Engine *e = engine_of((EngineObject *)object);
    if (!e)
        return NULL;
    atomic_store(&e->turning, false);
    engine_wake(e);
    Py_RETURN_NONE;
}
