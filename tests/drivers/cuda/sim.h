/* Shared by the parts of the stand-in. One lock guards everything. It is never held while work runs or a wait sleeps.
 *
 * Order of the parts: common < log < device < context < stream < nt < semaphore, memory < vmm, work, memops < capture < graph. */
#ifndef SIMCUDA_SIM_H
#define SIMCUDA_SIM_H

#include "../common/payload.h"
#include "cuda_abi.h"

#define MAX_DEVICES 16
#define MAX_STACK 64

/* Measured: 1,020 appends behind an unmet wait return immediately; the wait is one more. */
#define MAX_PLACES 1021
/* Measured: pageable copies to the device return immediately up to 2 MiB and block from 4 MiB on. */
#define MAX_STAGED (2u << 20)

/* ---- objects */
typedef enum {
    SIM_CONTEXT = 1, SIM_STREAM, SIM_EVENT, SIM_SEMAPHORE, SIM_MEMORY, SIM_MIPMAP, SIM_ARRAY, SIM_GRAPH, SIM_EXEC, SIM_NODE,
    SIM_PHYSICAL
} sim_kind;

/* ---- each call: refused before it acts (not initialised, forked, configured failure), and logged */
enum { CALL_ANY = 1, CALL_WORK = 2, CALL_FORKED = 4 };
CUresult sim_enter(const char *name, int flags, const char *format, ...) SIM_PRINTF(3, 4);
CUresult sim_leave(const char *name, CUresult code);
/* " name=<hex>" of a UTF-16 name without its NUL; "" for none. */
const char *sim_name(const void *name);

/* ANY: works without cuInit. WORK: reports failures of earlier work. FORKED: also works in a forked child. */
#define CALL_AS(flags, ...)                                          \
    do {                                                             \
        CUresult refused_ = sim_enter(__func__, flags, __VA_ARGS__); \
        if (refused_) return sim_leave(__func__, refused_);          \
        pthread_mutex_lock(&sim.lock);                               \
    } while (0)
#define CALL(...) CALL_AS(0, __VA_ARGS__)
#define RETURN(code)                       \
    do {                                   \
        CUresult result_ = (code);         \
        pthread_mutex_unlock(&sim.lock);   \
        return sim_leave(__func__, result_); \
    } while (0)
#define REFUSE_IF(condition, code)         \
    do {                                   \
        if (condition) RETURN(code);       \
    } while (0)
#define TRY(expression)                    \
    do {                                   \
        CUresult tried_ = (expression);    \
        if (tried_) RETURN(tried_);        \
    } while (0)

/* ---- the process */
typedef struct sim_stream sim_stream;
typedef struct sim_capture sim_capture;
typedef struct sim_work sim_work;

typedef struct sim_context {
    sim_object object;
    int device;
    unsigned flags;
    unsigned long long id;
    bool primary;
    int retained;          /* of the primary context */
    sim_stream *legacy;
    sim_stream *streams;   /* all streams since the last reset of the context, linked by `sibling` */
    struct sim_context *before;
} sim_context;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;       /* an operation was completed */
    bool initialised, forked, gone, windows, tegra, guard;
    bool held_by_others;          /* a thread is blocked in a free: see sim_hold_others */
    pthread_t holder;
    int version, device_count;
    int connections;              /* hardware queues of each context */
    uint64_t submitted;           /* operations of all streams */
    sim_context primary[MAX_DEVICES];
    unsigned long long next_id;
    sim_capture *captures;        /* active captures */
    CUresult async_error;         /* of earlier work, not yet reported */
} sim_process;

typedef struct sim_thread {
    sim_context *stack[MAX_STACK];
    int depth;
    int capture_mode;
    bool in_host_function;
    sim_stream *per_thread[MAX_STACK]; /* its default stream in each context */
    int per_thread_count;
} sim_thread;

extern sim_process sim;

extern __thread sim_thread sim_self;

/* ---- devices: an attribute of SIMCUDA_ATTRIBUTES */
bool sim_told(int attribute, int *value);

/* ---- contexts */
CUresult sim_current(sim_context **out);
/* Each context, past or present, by number; NULL at the end. */
sim_context *sim_context_at(size_t number);
CUresult sim_context_destroy(sim_context *context);

/* ---- streams: queues with a worker thread each */
struct sim_stream {
    sim_object object;
    sim_context *context;
    sim_stream *sibling;
    unsigned flags;
    int priority;
    unsigned long long id;
    bool is_legacy, has_worker, destroyed;
    struct sim_op *head, *tail;
    uint64_t submitted, completed;
    int places, waits;            /* uncompleted operations that take a place, and that wait */
    pthread_cond_t more;
    sim_capture *capture;
    struct sim_node **frontier;   /* in a capture: dependencies of the next node */
    unsigned frontier_count;
};

typedef struct {
    sim_stream *stream;
    uint64_t number;              /* met when this many operations of the stream are completed */
} sim_point;

typedef struct sim_op {
    struct sim_op *next;
    sim_work *work;
    uint64_t number;              /* among the operations of all streams */
    bool takes_place;
    unsigned waits_count;
    sim_point waits[];
} sim_op;

static inline bool sim_met(sim_point point) { return !point.stream || point.stream->completed >= point.number; }
CUresult sim_stream_of(CUstream handle, sim_stream **out);
sim_stream *sim_stream_new(sim_context *context, unsigned flags, int priority);
/* Takes ownership of `work`; NULL: a marker. Sleeps without the lock while the queue is full. */
sim_point sim_enqueue(sim_stream *stream, sim_work *work, const sim_point *also, unsigned also_count);
sim_point sim_record(sim_stream *stream);
void sim_sleep_until(sim_point point);
bool sim_stream_idle(sim_stream *stream);
void sim_drain_device(int device);
void sim_hold_others(void);
void sim_let_others(void);
void sim_drain_context(sim_context *context);

/* ---- semaphores */
#ifdef _WIN32
typedef struct sim_mutex sim_mutex;
HANDLE sim_nt_open(const void *handle, const wchar_t *name, bool kmt);
sim_mutex *sim_mutex_open(HANDLE handle);
void sim_mutex_close(sim_mutex *mutex);
bool sim_mutex_try(sim_mutex *mutex, uint64_t key);
void sim_mutex_release(sim_mutex *mutex, uint64_t key);
void sim_nt_hide(const char *symbol);
void sim_hide_newer(void);
#endif

typedef struct sim_semaphore {
    sim_object object;
    bool destroying;
    int type;                        /* the imported type */
    sim_payload payload;
    int queued, device;
} sim_semaphore;

typedef struct {
    bool is_signal, counted;
    unsigned count, next;
    int64_t deadline_ns;             /* of the keyed mutex that is waited for; 0: not set */
    sim_semaphore **semaphores;
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params;  /* those of a signal are equal up to the key, and of the same size */
} sim_batch;

/* ---- memory */
typedef struct {
    uintptr_t address;
    size_t size;
    char *data;                      /* address for reads and writes of this process */
    int type;                        /* MEMORY_HOST, MEMORY_DEVICE */
    bool mapped, registered, read_only; /* registered: memory of the program */
    sim_context *context;            /* NULL: a mapping of physical memory */
    int device, file;                /* the fd of its file plus one; 0: no file */
    struct sim_physical *physical;
    bool accessible;                 /* cuMemSetAccess permits reads and writes of the physical memory */
    void *map, *guard;
    size_t map_size, guard_size;
} sim_allocation;

sim_allocation *sim_allocation_of(CUdeviceptr address);
/* Takes ownership of `map`, and begins at `offset` in it. */
sim_allocation *sim_allocation_add(sim_context *context, int type, void *map, size_t map_size, size_t offset, size_t size);
void sim_allocation_remove(sim_allocation *gone);
/* Whether an allocation has bytes of the range. */
bool sim_allocated_in(CUdeviceptr address, size_t size);
/* NULL: not inside an allocation. */
char *sim_data(CUdeviceptr address, size_t size);
void sim_free_all(sim_context *context);
bool sim_mapped_in(CUdeviceptr address, size_t size);
CUresult sim_map_physical(struct sim_physical *physical, int fd, int device, CUdeviceptr address, size_t size, void *place);
void sim_unmap_physical(sim_allocation *gone);
int sim_file_of(sim_allocation *allocation);
unsigned sim_handle_types(const struct sim_physical *physical);
CUresult sim_external_share(CUexternalMemory handle, size_t offset, size_t size, void **map, size_t *map_size);

typedef struct sim_array {
    sim_object object;
    struct sim_mipmap *mipmap;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    size_t element, offset, slices;
    size_t columns, rows; /* pixels, or blocks of pixels */
} sim_array;

typedef struct sim_mipmap {
    sim_object object;
    char *data;
    void *map;
    size_t map_size;
    int device;
    unsigned levels;
    sim_array *level[16];
} sim_mipmap;

/* ---- work: the action of a stream operation or a graph node */
typedef struct {
    int type;                        /* MEMORY_HOST: an address of the program; else from the table */
    uintptr_t address;
    sim_array *array;
    size_t x, y, z, pitch, height;
} sim_side;

typedef struct {
    sim_side from, to;
    size_t width, height, depth;
    char *staged;
} sim_copy;

struct sim_work {
    int node;                        /* NODE_…; 0: cannot be captured */
    bool takes_place, waits;         /* waits: for a semaphore or a word */
    union {
        sim_batch batch;
        sim_copy copy;
        struct { CUdeviceptr to; size_t count; unsigned value, width; } set;
        struct { CUhostFn function; void *data; } host;
        struct { CUstreamBatchMemOpParams *params; unsigned count, next; } memops;
        struct { sim_work **nodes; bool *depends; unsigned count; } graph;
        struct { struct sim_event *event; uint64_t generation; } stamp;
    };
    /* Outside the lock. False: not yet. Only waits return it, and only without `for_ever`. */
    bool (*run)(sim_work *work, bool for_ever);
    sim_work *(*copy_of)(const sim_work *work);
    void (*drop)(sim_work *work);    /* under the lock */
};

sim_work *sim_work_new(int node, bool (*run)(sim_work *, bool));
sim_work *sim_work_copy(const sim_work *work);
void sim_work_drop(sim_work *work);
void sim_async(CUresult code);
/* Refuses invalid uses; aborts where the driver crashes. */
CUresult sim_batch_work(sim_work **out, bool is_signal, const CUexternalSemaphore *semaphores, const void *params,
                        unsigned count);
/* Words: waits and writes, each waiting for the one before it. */
CUresult sim_memops_work(sim_work **out, const CUstreamBatchMemOpParams *params, unsigned count);
/* It will run: its semaphores cannot be destroyed before it has. */
void sim_batch_count(sim_work *work);

/* ---- captures and graphs */
/* A call that is not allowed during a capture: invalidates the capture. */
CUresult sim_unsafe(void);
/* The stream itself is captured: queries invalidate the capture. */
CUresult sim_not_captured(sim_stream *stream);
/* Uses the legacy stream: not allowed while a blocking stream of the context is captured. */
CUresult sim_legacy(sim_stream *stream, bool invalidate);
CUresult sim_submit(sim_stream *stream, sim_work *work);
void sim_capture_invalidate(sim_capture *capture);
void sim_capture_leave(sim_stream *stream);
CUresult sim_capture_wait(sim_stream *stream, struct sim_event *event, bool *handled);
void sim_capture_record(sim_stream *stream, struct sim_event *event);

struct sim_capture {
    sim_capture *next;
    unsigned long long id;
    int mode;
    sim_thread *owner;            /* the thread that began it */
    sim_stream *origin;
    struct sim_graph *graph;
    bool invalid, ended;
};

typedef struct sim_event {
    sim_object object;
    sim_context *context;
    unsigned flags;
    bool recorded;
    sim_point point;
    uint64_t generation;
    int64_t time_ns;                 /* of the newest record, after it is reached */
    sim_capture *capture;            /* the capture of the record, active or ended */
    struct sim_node **frontier;
    unsigned frontier_count;
} sim_event;

typedef struct sim_node {
    sim_object object;
    struct sim_graph *graph;
    unsigned index;
    sim_work *work;
    struct sim_node **depends;
    unsigned depends_count;
} sim_node;

typedef struct sim_graph {
    sim_object object;
    sim_node **nodes;
    unsigned count;
} sim_graph;

typedef struct sim_exec {
    sim_object object;
    sim_work **nodes;
    sim_node **origin;
    bool *depends;                   /* [i * count + j]: node i comes after node j */
    unsigned count;
    sim_point last;
} sim_exec;

sim_node *sim_graph_add(sim_graph *graph, sim_work *work, sim_node *const *depends, unsigned count);

#endif
