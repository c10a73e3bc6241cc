/* The Python type plimsoll.harness.generator._engine.Engine. Every call is short and holds the GIL; the engine's thread never takes it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "binding.h"

#include <stdlib.h>
#include <string.h>

Engine *engine_of(EngineObject *self)
{
    if (!self->engine)
        PyErr_SetString(PyExc_RuntimeError, "the engine is closed");
    return self->engine;
}

static Engine *engine_new(void)
{
    Engine *e = calloc(1, sizeof *e);
    if (!e) {
        PyErr_NoMemory();
        return NULL;
    }
    e->epoll = e->timer = e->command = e->anchor = e->bell = -1;
    e->max_duration = -1;
    e->max_duration_at = NEVER;
    atomic_store(&e->cmd_give_up_status, -1);
    pthread_mutex_init(&e->lock, NULL);
    return e;
}

static int engine_init(PyObject *object, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"addresses", "run_id", "timeout_ns", "connect_timeout_ns", "max_connections",
                            "outstanding_limit", "send_request_id", "stamping", "spin_ns", "held_limit",
                            "waiting_limit", "highest_fd", "first_query", "traces", NULL};
    EngineObject *self = (EngineObject *)object;
    PyObject *addresses, *traces = Py_None;
    const char *run_id;
    Py_ssize_t run_id_len;
    long long timeout, connect_timeout, max_connections, outstanding, spin, held = 1LL << 30, waiting = 4LL << 30,
              highest_fd = NEVER, first_query = 0;
    int send_id, stamping;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Oy#LLLLppL|LLLLO", names, &addresses, &run_id, &run_id_len, &timeout,
                                     &connect_timeout, &max_connections, &outstanding, &send_id, &stamping, &spin, &held,
                                     &waiting, &highest_fd, &first_query, &traces))
        return -1;
    if (self->engine) {
        PyErr_SetString(PyExc_RuntimeError, "an engine is made once");
        return -1;
    }
    if (!(self->engine = engine_new()))
        return -1;
    Engine *e = self->engine;
    if (run_id_len > (Py_ssize_t)sizeof e->run_id) {
        PyErr_SetString(PyExc_ValueError, "run_id is longer than 64 bytes");
        return -1;
    }
    memcpy(e->run_id, run_id, (size_t)run_id_len);
    e->run_id_len = (size_t)run_id_len;
    e->timeout = timeout;
    e->connect_timeout = connect_timeout;
    e->max_connections = max_connections > 0 ? max_connections : NEVER;
    e->outstanding_limit = outstanding;
    e->send_request_id = send_id;
    e->stamping = stamping;
    e->spin = spin;
    e->held_limit = held;
    e->waiting_limit = waiting;
    e->highest_fd = highest_fd;
    e->first_query = first_query;
    e->traced = traces != Py_None;
    if (e->traced) {
        unsigned long long high, low, least;
        if (!PyArg_ParseTuple(traces, "KKK", &high, &low, &least))
            return -1;
        e->trace_high = high;
        e->trace_low = low;
        e->trace_least = least;
    }
    return add_addresses(e, addresses);
}

/* open(n): start the thread and open n connections ahead */
static PyObject *engine_open(PyObject *object, PyObject *args)
{
    Engine *e = engine_of((EngineObject *)object);
    long long n;
    if (!e || !PyArg_ParseTuple(args, "L", &n))
        return NULL;
    if (!e->thread_started && !engine_start(e))
        return PyErr_SetFromErrno(PyExc_OSError);
    if (n > 0)
        atomic_fetch_add(&e->cmd_open, n);
    engine_wake(e);
    Py_RETURN_NONE;
}

/* go(t0_ns, max_duration_ns): -1 is no limit */
static PyObject *go(PyObject *object, PyObject *args)
{
    Engine *e = engine_of((EngineObject *)object);
    long long t0, limit;
    if (!e || !PyArg_ParseTuple(args, "LL", &t0, &limit))
        return NULL;
    e->max_duration = limit; /* published by the store of t0 */
    atomic_store(&e->cmd_t0, t0);
    engine_wake(e);
    Py_RETURN_NONE;
}

static PyObject *stop(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Engine *e = engine_of((EngineObject *)object);
    if (!e)
        return NULL;
    atomic_store(&e->cmd_stop, true);
    engine_wake(e);
    Py_RETURN_NONE;
}

static PyObject *give_up(PyObject *object, PyObject *args)
{
    Engine *e = engine_of((EngineObject *)object);
    int status;
    if (!e || !PyArg_ParseTuple(args, "i", &status))
        return NULL;
    atomic_store(&e->cmd_stop, true);
    atomic_store(&e->cmd_give_up_status, status);
    engine_wake(e);
    Py_RETURN_NONE;
}

/* Take finished exchanges off the list until their responses fill about `limit` bytes. */
static Exchange *take_finished(Engine *e, i64 limit, Buffer *settled)
{
    pthread_mutex_lock(&e->lock);
    *settled = e->rows;
    memset(&e->rows, 0, sizeof e->rows);
    Exchange *first = e->finished, *last = NULL;
    for (Exchange *x = first; x && limit > 0; x = x->next) {
        i64 held = exchange_bytes(x);
        e->unsettled -= held;
        limit -= held + (i64)sizeof *x;
        last = x;
    }
    e->finished = last ? last->next : first;
    if (last)
        last->next = NULL;
    pthread_mutex_unlock(&e->lock);
    return last ? first : NULL;
}

static char *put(char *to, const void *from, size_t n)
{
    if (n)
        memcpy(to, from, n);
    return to + n;
}

static char *put_rope(char *to, const Rope *r)
{
    for (const Block *block = r->first; block; block = block->next)
        to = put(to, block->data, block->len);
    return to;
}

/* Rows and responses of finished exchanges, each copied once. Frees the exchanges whatever happens. */
static PyObject *unpack(Exchange *first, Py_ssize_t n, Py_ssize_t size, const Buffer *settled)
{
    PyObject *rows = PyBytes_FromStringAndSize(NULL, n * (Py_ssize_t)sizeof(Row));
    PyObject *blob = PyBytes_FromStringAndSize(NULL, size);
    char *row = rows ? PyBytes_AsString(rows) : NULL, *at = blob ? PyBytes_AsString(blob) : NULL;
    for (Exchange *x = first, *next; x; x = next) {
        next = x->next;
        if (row && at) {
            row = put(row, &x->row, sizeof x->row);
            at = put_rope(put_rope(put(at, x->head.data, x->head.len), &x->body), &x->marks);
        }
        exchange_free(x);
    }
    if (!rows || !blob) {
        Py_XDECREF(rows);
        Py_XDECREF(blob);
        return NULL;
    }
    return Py_BuildValue("y#NN", settled->data ? settled->data : "", (Py_ssize_t)settled->len, rows, blob);
}

/* collect(limit) -> (settled rows, other rows, what belongs to the others): finished since the last call */
static PyObject *collect(PyObject *object, PyObject *args)
{
    Engine *e = engine_of((EngineObject *)object);
    Buffer settled;
    long long limit;
    Py_ssize_t n = 0, size = 0;
    if (!e || !PyArg_ParseTuple(args, "L", &limit))
        return NULL;
    Exchange *first = take_finished(e, limit, &settled);
    for (const Exchange *x = first; x; x = x->next, n++)
        size += (Py_ssize_t)(x->head.len + x->body.len + x->marks.len);
    PyObject *result = unpack(first, n, size, &settled);
    free(settled.data);
    return result;
}

static PyObject *exhausted_of(Engine *e)
{
    PyObject *found = PyDict_New();
    for (int code = 0; found && code < 256; code++) {
        long long n = atomic_load(&e->exhausted[code]);
        if (!n)
            continue;
        PyObject *key = PyLong_FromLong(code), *value = PyLong_FromLongLong(n);
        if (!key || !value || PyDict_SetItem(found, key, value) < 0)
            Py_CLEAR(found);
        Py_XDECREF(key);
        Py_XDECREF(value);
    }
    return found;
}

static PyObject *counters(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Engine *e = engine_of((EngineObject *)object);
    if (!e)
        return NULL;
    PyObject *exhausted = exhausted_of(e);
    if (!exhausted)
        return NULL;
#define N(name) atomic_load(&e->name)
    return Py_BuildValue(
        "{s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:L,s:i,s:i,s:i,s:N}", "sent", N(sent), "in_flight",
        N(in_flight), "aborted", N(aborted), "connecting", N(connecting) + N(cmd_open), "opened", N(opened), "retried", N(retried),
        "kernel_reads", N(kernel_reads), "user_reads", N(user_reads), "clock_steps", N(clock_steps), "refused", N(refused),
        "pool_waits", N(pool_waits), "pool_wait_p99_ns", (long long)histogram_percentile(&e->waits, 0.99), "cpu_ns",
        (long long)(e->thread_started ? thread_cpu_ns(e->thread) : 0), "tid", N(tid), "stall_max_ns", N(stalls.max), "stall_count", N(stall_count), "stall_total_ns",
        N(stall_total), "stall_p99_ns", (long long)histogram_percentile(&e->stalls, 0.99),
        "max_duration_hit", (int)N(max_duration_hit), "over_memory", (int)N(over_memory), "stopped", (int)N(stopped),
        "exhausted", exhausted);
#undef N
}

/* state() -> (issued_all, in_flight): cheap enough to be asked all the time */
static PyObject *state(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Engine *e = engine_of((EngineObject *)object);
    if (!e)
        return NULL;
    int issued = atomic_load_explicit(&e->issued_all, memory_order_acquire);
    return Py_BuildValue("iL", issued, (long long)atomic_load(&e->in_flight));
}

static void release(EngineObject *self)
{
    Engine *e = self->engine;
    self->engine = NULL;
    if (e) {
        Py_BEGIN_ALLOW_THREADS
        engine_destroy(e);
        Py_END_ALLOW_THREADS
        pthread_mutex_destroy(&e->lock);
        free(e->requests);
        free(e);
    }
    Py_CLEAR(self->requests);
    Py_CLEAR(self->known);
}

static PyObject *engine_close(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    release((EngineObject *)object);
    Py_RETURN_NONE;
}

static void engine_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    release((EngineObject *)object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef METHODS[] = {
    {"set_requests", set_requests, METH_O, NULL},   {"set_plain", set_plain, METH_VARARGS, NULL},
    {"open_lane", open_lane, METH_VARARGS, NULL},   {"closed_lane", closed_lane, METH_VARARGS, NULL},
    {"more", more, METH_VARARGS, NULL},             {"used", used, METH_VARARGS, NULL},
    {"bell", bell, METH_NOARGS, NULL},              {"turn", turn, METH_VARARGS, NULL},
    {"turned", turned, METH_NOARGS, NULL},          {"open", engine_open, METH_VARARGS, NULL},      {"go", go, METH_VARARGS, NULL},
    {"stop", stop, METH_NOARGS, NULL},              {"give_up", give_up, METH_VARARGS, NULL},
    {"collect", collect, METH_VARARGS, NULL},       {"counters", counters, METH_NOARGS, NULL},
    {"state", state, METH_NOARGS, NULL},            {"close", engine_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot SLOTS[] = {
    {Py_tp_doc, "The schedule, the stamped HTTP/1.1 transport and the rows of one worker, in a thread of its own."},
    {Py_tp_init, engine_init},
    {Py_tp_dealloc, engine_dealloc},
    {Py_tp_methods, METHODS},
    {0, NULL},
};

static PyType_Spec SPEC = {"plimsoll.harness.generator._engine.Engine", sizeof(EngineObject), 0, Py_TPFLAGS_DEFAULT, SLOTS};

static PyMethodDef FUNCTIONS[] = {
    {"fold", fold, METH_VARARGS, "Where the events of a plain event stream end, and which are like a template."},
    {"read_response", read_response, METH_VARARGS, "The response parser by itself: for tests."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {PyModuleDef_HEAD_INIT, "_engine", NULL, -1, FUNCTIONS, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__engine(void)
{
    PyObject *module = PyModule_Create(&MODULE), *type = module ? PyType_FromSpec(&SPEC) : NULL;
    PyObject *errors = type ? PyTuple_New(N_WIRE_ERRORS) : NULL;
    for (int i = 0; errors && i < N_WIRE_ERRORS; i++)
        PyTuple_SetItem(errors, i, PyUnicode_FromString(WIRE_ERRORS[i]));
    if (!errors || PyModule_AddObjectRef(module, "Engine", type) < 0
        || PyModule_AddObjectRef(module, "WIRE_ERRORS", errors) < 0)
        Py_CLEAR(module);
    Py_XDECREF(type);
    Py_XDECREF(errors);
    return module;
}
