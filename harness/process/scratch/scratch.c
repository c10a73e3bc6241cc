/* Memory for numpy's large arrays that the kernel may write to disk and drop.
 *
 * An array of some megabytes, once a process holds enough of them, gets its memory from a file without a name, mapped
 * shared: its pages belong to the page cache, so a process that works through 100 GB of arrays needs no more memory
 * than it looks at. A thread of its own lets go of the pages when more than so many are resident; their content stays
 * where it is. Small arrays, and all where no disk takes the file, are numpy's own business. What is freed is used
 * again: a page that is new to the process costs more than most sums over it.
 *
 * numpy hands its allocator over by PyDataMem_SetHandler (NEP 49); places in its table of functions are part of its
 * ABI. Reserved space (fallocate) and not just a hole: writing to a hole on a full disk would end the process.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    void *ctx;
    void *(*malloc)(void *ctx, size_t size);
    void *(*calloc)(void *ctx, size_t n, size_t size);
    void *(*realloc)(void *ctx, void *ptr, size_t size);
    void (*free)(void *ctx, void *ptr, size_t size);
} Allocator;

/* numpy's PyDataMem_Handler, version 1. */
typedef struct {
    char name[127];
    uint8_t version;
    Allocator allocator;
} Handler;

enum { SET_HANDLER = 304, GET_HANDLER = 305 };
enum { MOST = 4096, KEPT = 6, TICK_NS = 1000000, SLICE_NS = 100000, SEEN = 16 };
#define PAGE ((size_t)4096)
#define LARGE ((size_t)1 << 20)
#define TMPFS 0x01021994
#define RAMFS 0x858458f6

typedef struct {
    char *at;
    size_t size;
    int free, in_memory;
} Mapping;

static Handler *numpys; /* where small arrays come from */
static PyObject *numpys_capsule;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Mapping mappings[MOST];
static int n_mappings;
static char folder[4096];
static size_t threshold, budget, resident_limit;
static size_t anonymous; /* bytes of large arrays that are in no file */
static size_t mapped, peak_mapped;
static int statm = -1;   /* /proc/self/statm */
static size_t at_first, other; /* resident pages of libraries, in bytes: when this began, and of late */
static pthread_t watcher;
static int watching;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;

/* -- files ------------------------------------------------------------------------------------------------------- */

static int nameless_file(size_t size) {
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, 0600);
    if (fd < 0) {
        char name[sizeof folder + 32];
        snprintf(name, sizeof name, "%s/.plimsoll-scratch-XXXXXX", folder);
        fd = mkostemp(name, O_CLOEXEC);
        if (fd < 0) return -1;
        unlink(name);
    }
    if (fallocate(fd, 0, 0, (off_t)size) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static size_t rounded(size_t size) { return (size + PAGE - 1) / PAGE * PAGE; }

/* The freed mapping of nearly the size that was let go of last is used again: its pages are there, for certain if it
 * is in memory. Call with the lock held. */
static char *again(size_t size) {
    int found = -1;
    for (int i = n_mappings - 1; i >= 0; i--)
        if (mappings[i].free && mappings[i].size >= size && mappings[i].size - size <= size / 4 &&
            (found < 0 || mappings[i].in_memory > mappings[found].in_memory))
            found = i;
    if (found < 0) return NULL;
    mappings[found].free = 0;
    return mappings[found].at;
}

/* Unmap one. Call with the lock held. */
static void drop(int i) {
    munmap(mappings[i].at, mappings[i].size);
    if (mappings[i].in_memory)
        __atomic_sub_fetch(&anonymous, mappings[i].size, __ATOMIC_RELAXED);
    else
        mapped -= mappings[i].size;
    memmove(&mappings[i], &mappings[i + 1], (size_t)(n_mappings - i - 1) * sizeof *mappings);
    n_mappings--;
}

/* Whether so many bytes may be in memory: the oldest freed ones make room. Call with the lock held. */
static int fits(size_t size) {
    for (int i = 0; size <= budget && i < n_mappings;)
        if (__atomic_load_n(&anonymous, __ATOMIC_RELAXED) + size > budget && mappings[i].free && mappings[i].in_memory)
            drop(i);
        else
            i++;
    return __atomic_load_n(&anonymous, __ATOMIC_RELAXED) + size <= budget;
}

/* -- pages ------------------------------------------------------------------------------------------------------- */

/* Resident pages of files, in bytes. */
static size_t resident(int fd) {
    char text[128];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0) return 0;
    text[n] = 0;
    unsigned long size = 0, all = 0, shared = 0;
    return sscanf(text, "%lu %lu %lu", &size, &all, &shared) == 3 ? shared * PAGE : 0;
}

/* Let go of all pages of arrays while more than so many are resident. Returns whether it did. */
static int relieve(size_t limit) {
    int fd = __atomic_load_n(&statm, __ATOMIC_RELAXED);
    if (fd < 0 || resident(fd) <= __atomic_load_n(&other, __ATOMIC_RELAXED) + limit) return 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < n_mappings; i++)
        if (!mappings[i].in_memory) madvise(mappings[i].at, mappings[i].size, MADV_DONTNEED);
    pthread_mutex_unlock(&lock);
    return 1;
}

/* Have the kernel let this thread run soon after it wakes, for short times (Linux 6.12; elsewhere nothing changes). */
static void run_promptly(void) {
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t slice_ns, deadline, period;
    } wanted = {sizeof wanted, 0, 0x08, getpriority(PRIO_PROCESS, 0), 0, SLICE_NS, 0, 0}; /* the policy stays */
    syscall(SYS_sched_setattr, 0, &wanted, 0);
}

static void *watch(void *unused) {
    (void)unused;
    run_promptly();
    /* Of libraries: the least that was left of late, because others touch arrays while this lets go of them. */
    size_t left[SEEN];
    int seen = 0;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (mapped <= resident_limit) pthread_cond_wait(&wake, &lock);
        pthread_mutex_unlock(&lock);
        if (relieve(resident_limit)) {
            left[seen++ % SEEN] = resident(statm);
            if (seen >= SEEN) {
                size_t least = left[0];
                for (int i = 1; i < SEEN; i++) least = left[i] < least ? left[i] : least;
                /* Not without end: who reads faster than this lets go would be let have ever more. */
                if (least > at_first + resident_limit) least = at_first + resident_limit;
                __atomic_store_n(&other, least, __ATOMIC_RELAXED);
            }
        }
        size_t half = __atomic_load_n(&other, __ATOMIC_RELAXED) + resident_limit / 2;
        nanosleep(&(struct timespec){0, resident(statm) > half ? TICK_NS / 4 : TICK_NS}, NULL);
    }
    return NULL;
}

static char *map(size_t wanted, int zeroed) {
    size_t size = rounded(wanted);
    char *at = NULL;
    pthread_mutex_lock(&lock);
    at = again(size);
    int full = n_mappings == MOST, in_memory = at == NULL && fits(size);
    pthread_mutex_unlock(&lock);
    if (at != NULL && zeroed) memset(at, 0, wanted);
    if (at != NULL || full) return at;
    int fd = in_memory ? -1 : nameless_file(size);
    if (fd < 0 && !in_memory) return NULL;
    at = mmap(NULL, size, PROT_READ | PROT_WRITE, in_memory ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED | MAP_NORESERVE,
              fd, 0);
    if (fd >= 0) close(fd);
    if (at == MAP_FAILED) return NULL;
    /* Where the disk's pages may be large, an array has one fault where it had 512. */
    madvise(at, size, MADV_HUGEPAGE);
    pthread_mutex_lock(&lock);
    if (n_mappings == MOST) {
        pthread_mutex_unlock(&lock);
        munmap(at, size);
        return NULL;
    }
    mappings[n_mappings++] = (Mapping){at, size, 0, in_memory};
    if (in_memory)
        __atomic_add_fetch(&anonymous, size, __ATOMIC_RELAXED);
    else
        mapped += size;
    if (mapped > peak_mapped) peak_mapped = mapped;
    pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
    return at;
}

/* The place of a mapping that begins here, -1 for none. Call with the lock held. */
static int place_of(const void *ptr) {
    if (((uintptr_t)ptr & (PAGE - 1)) != 0) return -1;
    for (int i = n_mappings - 1; i >= 0; i--)
        if (mappings[i].at == ptr) return mappings[i].free ? -1 : i;
    return -1;
}

/* Unmap the oldest freed ones but the last few, and those in memory. Call with the lock held. */
static void forget(void) {
    int kept = 0;
    for (int i = n_mappings - 1; i >= 0; i--)
        if (mappings[i].free && !mappings[i].in_memory && ++kept > KEPT) drop(i);
}

static int unmap(void *ptr) {
    pthread_mutex_lock(&lock);
    int i = place_of(ptr);
    if (i >= 0) {
        Mapping one = mappings[i];
        one.free = 1;
        memmove(&mappings[i], &mappings[i + 1], (size_t)(n_mappings - i - 1) * sizeof *mappings);
        mappings[n_mappings - 1] = one;
        forget();
    }
    pthread_mutex_unlock(&lock);
    return i >= 0;
}

/* -- numpy's face ------------------------------------------------------------------------------------------------ */

static void *counted(void *ptr) {
    if (ptr != NULL) {
        size_t size = malloc_usable_size(ptr);
        if (size >= LARGE) __atomic_add_fetch(&anonymous, size, __ATOMIC_RELAXED);
    }
    return ptr;
}

static void uncounted(void *ptr, size_t hint) {
    if (ptr == NULL || hint < LARGE) return;
    size_t size = malloc_usable_size(ptr);
    if (size >= LARGE) __atomic_sub_fetch(&anonymous, size, __ATOMIC_RELAXED);
}

static void *our_malloc(void *ctx, size_t size) {
    (void)ctx;
    if (size < LARGE) return numpys->allocator.malloc(numpys->allocator.ctx, size);
    relieve(resident_limit); /* on a busy host the watcher may be late */
    if (size >= threshold) {
        void *at = map(size, 0);
        if (at != NULL) return at;
    }
    return counted(numpys->allocator.malloc(numpys->allocator.ctx, size));
}

static void *our_calloc(void *ctx, size_t n, size_t size) {
    (void)ctx;
    size_t whole;
    if (__builtin_mul_overflow(n, size, &whole)) return NULL;
    if (whole < LARGE) return numpys->allocator.calloc(numpys->allocator.ctx, n, size);
    relieve(resident_limit);
    if (whole >= threshold) {
        void *at = map(whole, 1);
        if (at != NULL) return at;
    }
    return counted(numpys->allocator.calloc(numpys->allocator.ctx, n, size));
}

static void our_free(void *ctx, void *ptr, size_t size) {
    (void)ctx;
    if (((uintptr_t)ptr & (PAGE - 1)) == 0 && ptr != NULL && unmap(ptr)) return;
    uncounted(ptr, size);
    numpys->allocator.free(numpys->allocator.ctx, ptr, size);
}

static void *our_realloc(void *ctx, void *ptr, size_t size) {
    if (ptr != NULL && ((uintptr_t)ptr & (PAGE - 1)) == 0) {
        pthread_mutex_lock(&lock);
        int i = place_of(ptr);
        size_t had = i >= 0 ? mappings[i].size : 0;
        pthread_mutex_unlock(&lock);
        if (i >= 0) {
            if (size <= had && size >= had / 2) return ptr;
            void *at = our_malloc(ctx, size);
            if (at == NULL) return NULL;
            memcpy(at, ptr, size < had ? size : had);
            unmap(ptr);
            return at;
        }
    }
    size_t had = ptr == NULL ? 0 : malloc_usable_size(ptr);
    void *at = numpys->allocator.realloc(numpys->allocator.ctx, ptr, size);
    if (at != NULL) {
        if (had >= LARGE) __atomic_sub_fetch(&anonymous, had, __ATOMIC_RELAXED);
        counted(at);
    }
    return at;
}

static Handler ours = {"plimsoll_scratch", 1, {NULL, our_malloc, our_calloc, our_realloc, our_free}};

/* -- Python's face ----------------------------------------------------------------------------------------------- */

static void **numpys_functions(void) {
    PyObject *module = PyImport_ImportModule("numpy._core._multiarray_umath");
    if (module == NULL) return NULL;
    PyObject *table = PyObject_GetAttrString(module, "_ARRAY_API");
    Py_DECREF(module);
    if (table == NULL) return NULL;
    void **found = PyCapsule_GetPointer(table, NULL);
    Py_DECREF(table); /* numpy keeps it */
    return found;
}

static PyObject *install(PyObject *self, PyObject *args) {
    (void)self;
    const char *where;
    Py_ssize_t least, kept, most;
    if (!PyArg_ParseTuple(args, "snnn", &where, &least, &kept, &most)) return NULL;
    if (strlen(where) >= sizeof folder || least < (Py_ssize_t)LARGE || kept < 0 || most < (Py_ssize_t)LARGE) {
        PyErr_SetString(PyExc_ValueError, "wants a folder, and sizes of at least a megabyte");
        return NULL;
    }
    struct statfs disk;
    if (statfs(where, &disk) != 0) return PyErr_SetFromErrnoWithFilename(PyExc_OSError, where);
    if (disk.f_type == TMPFS || (unsigned long)disk.f_type == RAMFS) {
        PyErr_Format(PyExc_OSError, "%s is in memory", where);
        return NULL;
    }
    /* Arrays of up to 4 MB come from memory that was freed, whose pages are there: the kernel need not clear new ones. */
    mallopt(M_TRIM_THRESHOLD, 16 << 20);
    mallopt(M_MMAP_THRESHOLD, 4 << 20);
    void **numpy = numpys_functions();
    if (numpy == NULL) return NULL;
    pthread_mutex_lock(&lock);
    strcpy(folder, where);
    int fd = nameless_file(PAGE);
    if (fd < 0) {
        pthread_mutex_unlock(&lock);
        return PyErr_SetFromErrnoWithFilename(PyExc_OSError, where);
    }
    close(fd);
    threshold = (size_t)least, budget = (size_t)kept, resident_limit = (size_t)most;
    if (statm < 0 && (statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC)) >= 0) at_first = other = resident(statm);
    int begun = watching || pthread_create(&watcher, NULL, watch, NULL) == 0;
    watching = begun;
    pthread_mutex_unlock(&lock);
    if (!begun) {
        PyErr_SetString(PyExc_OSError, "no thread could be started");
        return NULL;
    }
    if (numpys == NULL) {
        PyObject *(*get)(void) = (PyObject * (*)(void)) numpy[GET_HANDLER];
        numpys_capsule = get();
        if (numpys_capsule == NULL) return NULL;
        numpys = PyCapsule_GetPointer(numpys_capsule, "mem_handler");
        if (numpys == NULL) return NULL;
    }
    PyObject *(*set)(PyObject *) = (PyObject * (*)(PyObject *)) numpy[SET_HANDLER];
    PyObject *capsule = PyCapsule_New(&ours, "mem_handler", NULL);
    if (capsule == NULL) return NULL;
    PyObject *before = set(capsule);
    Py_DECREF(capsule);
    if (before == NULL) return NULL;
    Py_DECREF(before);
    Py_RETURN_NONE;
}

static PyObject *held(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    pthread_mutex_lock(&lock);
    size_t now = mapped, most = peak_mapped;
    pthread_mutex_unlock(&lock);
    return Py_BuildValue("(nnn)", (Py_ssize_t)now, (Py_ssize_t)most,
                         (Py_ssize_t)__atomic_load_n(&anonymous, __ATOMIC_RELAXED));
}

static PyMethodDef methods[] = {
    {"install", install, METH_VARARGS,
     "install(folder, threshold, budget, resident): numpy's arrays of at least `threshold` bytes come from files in "
     "`folder` once others hold `budget` bytes; of those files about `resident` bytes are in memory at most. Raises "
     "OSError for a folder that is in memory itself or takes no such file."},
    {"held", held, METH_NOARGS, "held() -> (bytes mapped, the most that were, bytes of large arrays in memory)."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_scratch", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__scratch(void) { return PyModule_Create(&module); }
