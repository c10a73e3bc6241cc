/* The Python module plimsoll.reference_server._oracle: one function that serves until a signal handler raises.
 *
 * The interpreter's lock is given up; every 50 ms, and whenever a signal came, Python's own handlers get a look.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "oracle.h"

#include <errno.h>

#define PULSE_NS 50000000LL

static PyObject *run(Loop *l)
{
    for (;;) {
        PyThreadState *state = PyEval_SaveThread();
        int error = loop_run(l, mono_ns() + PULSE_NS);
        PyEval_RestoreThread(state);
        if (error) {
            errno = error;
            return PyErr_SetFromErrno(PyExc_OSError);
        }
        if (PyErr_CheckSignals() != 0)
            return NULL;
    }
}

static PyObject *serve(PyObject *module, PyObject *arguments, PyObject *named)
{
    static char *names[] = {"listener", "created_s", "ttft_ns", "itl_ns", "tokens",      "jitter", "service",
                            "seed",     "stalls",    "spin_ns", "n_rows", "stamp_bytes", NULL};
    Loop l = {.epoll = -1, .timer = -1, .spare_fd = -1};
    const char *jitter, *service, *stalls;
    Py_ssize_t jitter_len, service_len, stalls_len;
    long long created, ttft, itl, tokens, spin, stamp_bytes;
    unsigned long long seed, n_rows;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "iLLLLy#y#Ky#LKL", names, &l.listener, &created, &ttft, &itl, &tokens,
                                     &jitter, &jitter_len, &service, &service_len, &seed, &stalls, &stalls_len, &spin, &n_rows, &stamp_bytes))
        return NULL;
    const Py_ssize_t table = (Py_ssize_t)(N_JITTER * sizeof(i64));
    if ((jitter_len != 0 && jitter_len != table) || (service_len != 0 && service_len != table))
        return PyErr_Format(PyExc_ValueError, "jitter and service must hold no or %d int64", N_JITTER);
    if (stalls_len % (Py_ssize_t)sizeof(Stall) != 0 || tokens < 1 || tokens > MAX_TOKENS)
        return PyErr_Format(PyExc_ValueError, "stalls must be pairs of int64, tokens 1 to %d", MAX_TOKENS);
    l.ttft_ns = ttft;
    l.itl_ns = itl;
    l.tokens = tokens;
    l.spin_ns = spin;
    l.seed = seed;
    l.jitter = jitter_len ? (const i64 *)(const void *)jitter : NULL;
    l.service = service_len ? (const i64 *)(const void *)service : NULL;
    l.stalls = (const Stall *)(const void *)stalls;
    l.n_stalls = (size_t)stalls_len / sizeof(Stall);
    PyObject *result = NULL;
    if (!script_make(&l.script, created) || !truth_make(&l.truth, n_rows, stamp_bytes))
        PyErr_NoMemory();
    else if (!loop_open(&l))
        PyErr_SetFromErrno(PyExc_OSError);
    else
        result = run(&l);
    loop_close(&l);
    return result;
}

static PyMethodDef METHODS[] = {
    {"serve", (PyCFunction)(void (*)(void))serve, METH_VARARGS | METH_KEYWORDS,
     "serve(listener, created_s, ttft_ns, itl_ns, tokens, jitter, service, seed, stalls, spin_ns, n_rows, stamp_bytes)\n\n"
     "Serve on a listening, non-blocking socket until a signal handler raises."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, .m_name = "_oracle", .m_doc = "The oracle server's loop.", .m_size = 0, .m_methods = METHODS,
};

PyMODINIT_FUNC PyInit__oracle(void)
{
    return PyModule_Create(&MODULE);
}
