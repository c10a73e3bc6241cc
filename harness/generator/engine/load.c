/* What Python gives an engine before the run: addresses, requests, lanes. Everything is checked here, once. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "binding.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

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

/* set_requests([(prefix, suffix, head) or None, ...]) */
PyObject *set_requests(PyObject *object, PyObject *list)
{
    EngineObject *self = (EngineObject *)object;
    Engine *e = engine_of(self);
    if (!e)
        return NULL;
    if (!PyList_Check(list) || self->requests) {
        PyErr_SetString(PyExc_TypeError, "give one list, once");
        return NULL;
    }
    /* A tuple of our own: a list could be changed under the engine's thread. */
    if (!(self->requests = PyList_AsTuple(list)))
        return NULL;
    Py_ssize_t n = PyTuple_Size(self->requests);
    if (!(e->requests = calloc((size_t)n + 1, sizeof(Request))))
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyTuple_GetItem(self->requests, i);
        Request *r = &e->requests[i];
        Py_ssize_t prefix, suffix;
        int head;
        if (item == Py_None)
            continue;
        if (!PyArg_ParseTuple(item, "y#y#p", &r->prefix, &prefix, &r->suffix, &suffix, &head))
            return NULL;
        r->prefix_len = (size_t)prefix;
        r->suffix_len = (size_t)suffix;
        r->head = head;
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

/* One int64 array of the plan; it stays alive as long as the engine. */
static const i64 *take_array(EngineObject *self, PyObject *array, i64 *n)
{
    if (self->n_buffers == MAX_BUFFERS) {
        PyErr_SetString(PyExc_ValueError, "too many lanes");
        return NULL;
    }
    Py_buffer *view = &self->buffers[self->n_buffers];
    if (PyObject_GetBuffer(array, view, PyBUF_ND | PyBUF_FORMAT) < 0)
        return NULL;
    self->n_buffers++;
    bool whole = view->format && (strcmp(view->format, "l") == 0 || strcmp(view->format, "q") == 0);
    if (!whole || view->itemsize != (Py_ssize_t)sizeof(i64) || view->ndim != 1 || (uintptr_t)view->buf % sizeof(i64)) {
        PyErr_SetString(PyExc_ValueError, "the plan's arrays are one-dimensional and int64");
        return NULL;
    }
    *n = view->shape[0];
    return view->buf;
}

/* The delays of a lane's rows, or None. False, with an error, for anything else. */
static bool take_cancel(EngineObject *self, Lane *lane, PyObject *array)
{
    i64 n;
    if (!array || array == Py_None)
        return true;
    if (!(lane->cancel = take_array(self, array, &n)))
        return false;
    if (n != lane->n_rows)
        PyErr_SetString(PyExc_ValueError, "there is one delay of cancellation per row");
    return n == lane->n_rows;
}

static bool valid_plan(const Engine *e, const Lane *lane, i64 n_offsets, i64 n_samples)
{
    if (n_offsets < 1 || n_offsets != lane->n_rows + 1 || lane->offsets[0] != 0 || lane->offsets[lane->n_rows] != n_samples)
        return false;
    if (lane->closed && (lane->n_rows < 1 || lane->slots < 1 || lane->next_id < 0 || lane->id_step < 1))
        return false;
    for (i64 i = 0; i < lane->n_rows; i++)
        if (lane->offsets[i + 1] <= lane->offsets[i] || (lane->ids && lane->ids[i] < 0))
            return false;
    for (i64 i = 0; i < n_samples; i++)
        if (lane->sample[i] < 0 || lane->payload[i] < 0 || lane->payload[i] >= e->n_requests || !e->requests[lane->payload[i]].prefix)
            return false;
    return true;
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

static PyObject *keep_lane(Engine *e, Lane *lane, i64 n_offsets, i64 n_samples, i64 n_payloads)
{
    if (n_samples != n_payloads || !valid_plan(e, lane, n_offsets, n_samples)) {
        PyErr_SetString(PyExc_ValueError, "the plan's arrays contradict each other or the requests");
        return NULL;
    }
    e->n_lanes++;
    Py_RETURN_NONE;
}

/* open_lane(phase, due, ids, offsets, sample, payload, limit, cancel): limit -1 is none, cancel an array or None */
PyObject *open_lane(PyObject *object, PyObject *args)
{
    EngineObject *self = (EngineObject *)object;
    Engine *e = engine_of(self);
    PyObject *due, *ids, *offsets, *sample, *payload, *cancel = NULL;
    long long limit;
    int phase;
    i64 n, m, k, n_ids;
    Lane *lane = e ? new_lane(e) : NULL;
    if (!lane || !PyArg_ParseTuple(args, "iOOOOOL|O", &phase, &due, &ids, &offsets, &sample, &payload, &limit, &cancel))
        return NULL;
    if (!(lane->due = take_array(self, due, &lane->n_rows)) || !(lane->ids = take_array(self, ids, &n_ids))
        || !(lane->offsets = take_array(self, offsets, &n)) || !(lane->sample = take_array(self, sample, &m))
        || !(lane->payload = take_array(self, payload, &k)))
        return NULL;
    if (!take_cancel(self, lane, cancel))
        return NULL;
    lane->phase = phase;
    lane->limit = limit;
    return keep_lane(e, lane, n_ids == lane->n_rows ? n : -1, m, k);
}

/* closed_lane(phase, offsets, sample, payload, slots, first_id, id_step, ends_at_t0, max_queries, min_queries, min_duration, cancel) */
PyObject *closed_lane(PyObject *object, PyObject *args)
{
    EngineObject *self = (EngineObject *)object;
    Engine *e = engine_of(self);
    PyObject *offsets, *sample, *payload, *cancel = NULL;
    long long slots, first, step, most, least, duration;
    int phase, ends;
    i64 n, m, k;
    Lane *lane = e ? new_lane(e) : NULL;
    if (!lane || !PyArg_ParseTuple(args, "iOOOLLLpLLL|O", &phase, &offsets, &sample, &payload, &slots, &first, &step, &ends,
                                   &most, &least, &duration, &cancel))
        return NULL;
    if (!(lane->offsets = take_array(self, offsets, &n)) || !(lane->sample = take_array(self, sample, &m))
        || !(lane->payload = take_array(self, payload, &k)))
        return NULL;
    lane->n_rows = n - 1;
    if (!take_cancel(self, lane, cancel))
        return NULL;
    lane->closed = true;
    lane->phase = phase;
    lane->slots = slots;
    lane->next_id = first;
    lane->id_step = step;
    lane->ends_at_t0 = ends;
    lane->max_queries = most;
    lane->min_queries = least;
    lane->min_duration = duration;
    return keep_lane(e, lane, n, m, k);
}
