/* Time: the monotonic clock, the map from the kernel's wall-clock stamps to it, and the loop's own stalls. */
#include "engine.h"

#include <math.h>
#include <time.h>

#define OFFSET_MAX_AGE_NS 50000000LL
#define STEP_NS 250000LL
#define SLACK_NS 20000LL

static i64 read_clock(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (i64)t.tv_sec * 1000000000LL + t.tv_nsec;
}

i64 mono_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

i64 thread_cpu_ns(pthread_t thread)
{
    clockid_t clock;
    return pthread_getcpuclockid(thread, &clock) == 0 ? read_clock(clock) : 0;
}

/* CLOCK_REALTIME - CLOCK_MONOTONIC: the tightest of three bracketed readings. */
static i64 sample_offset(void)
{
    i64 width = INT64_MAX, best = 0;
    for (int i = 0; i < 3; i++) {
        i64 before = mono_ns(), wall = read_clock(CLOCK_REALTIME), after = mono_ns();
        if (after - before < width) {
            width = after - before;
            best = wall - (before + after) / 2;
        }
    }
    return best;
}

static void resample(Engine *e, i64 now)
{
    i64 offset = sample_offset(), moved = offset - e->wall_offset;
    if (e->wall_sampled == 0) {
        e->wall_previous = offset;
    } else if (moved > STEP_NS || moved < -STEP_NS) {
        e->wall_previous = e->wall_offset;
        atomic_fetch_add(&e->clock_steps, 1);
    }
    e->wall_offset = offset;
    e->wall_sampled = now;
}

static bool fits(i64 stamp, i64 earliest, i64 now)
{
    return earliest - SLACK_NS <= stamp && stamp <= now + SLACK_NS;
}

/* The monotonic time of a kernel stamp, or -1: the same rule as harness/clock.py WallMap. */
i64 wall_to_mono(Engine *e, i64 wall, i64 earliest, i64 now)
{
    if (e->wall_sampled == 0 || now - e->wall_sampled > OFFSET_MAX_AGE_NS)
        resample(e, now);
    i64 stamp = wall - e->wall_offset;
    if (!fits(stamp, earliest, now)) {
        i64 stale = e->wall_offset;
        resample(e, now);
        const i64 offsets[3] = {e->wall_offset, e->wall_previous, stale};
        int i = 0;
        while (i < 3 && !fits(stamp = wall - offsets[i], earliest, now))
            i++;
        if (i == 3) {
            atomic_fetch_add(&e->refused, 1);
            return -1;
        }
    }
    return stamp < earliest ? earliest : stamp > now ? now : stamp;
}

void histogram_add(Histogram *h, i64 ns)
{
    int bin = ns < 1000 ? 0 : (int)(log2((double)ns / 1000.0) * 32) + 1;
    atomic_fetch_add_explicit(&h->bins[bin < BINS ? bin : BINS - 1], 1, memory_order_relaxed);
    if (ns > atomic_load_explicit(&h->max, memory_order_relaxed))
        atomic_store_explicit(&h->max, ns, memory_order_relaxed);
}

/* Nearest rank: the upper edge of its bin, never above the maximum. */
i64 histogram_percentile(Histogram *h, double p)
{
    i64 total = 0, seen = 0, most = atomic_load(&h->max);
    for (int i = 0; i < BINS; i++)
        total += atomic_load(&h->bins[i]);
    i64 rank = (i64)ceil(p * (double)total);
    for (int i = 0; i < BINS && total; i++) {
        seen += atomic_load(&h->bins[i]);
        if (seen >= rank) {
            i64 edge = (i64)(1000.0 * exp2(i / 32.0));
            return edge < most ? edge : most;
        }
    }
    return 0;
}

/* A beat every 10 ms measures how late the loop runs it: our own stalls. */
void pulse(Engine *e)
{
    i64 late = e->now - e->pulse_at;
    histogram_add(&e->stalls, late);
    if (late > STALL_NS) {
        atomic_fetch_add(&e->stall_count, 1);
        atomic_fetch_add(&e->stall_total, late);
    }
    e->pulse_at = e->now + PULSE_NS;
}
