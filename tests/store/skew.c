/* Loaded before libc (LD_PRELOAD): the wall clock of a process stands SKEW_FILE's milliseconds beside the true one.
 *
 * The file holds one little-endian int64 and is mapped, so whoever writes it moves the clock of a running server at once.
 * Monotonic clocks are left alone, as a step of the wall clock leaves them.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t in_step = 0;
static const volatile int64_t *skew_ms;

static int64_t skew(void) {
    if (skew_ms == NULL) {
        const char *path = getenv("SKEW_FILE");
        int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof in_step, PROT_READ, MAP_SHARED, fd, 0);
        skew_ms = map == MAP_FAILED ? &in_step : map;
        if (fd >= 0)
            close(fd);
    }
    return *skew_ms;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int failed = (int)syscall(SYS_clock_gettime, clock, now);
    if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t ms = skew(), ns = now->tv_nsec + ms % 1000 * 1000000;
        now->tv_sec += ms / 1000 + (ns < 0 ? -1 : ns / 1000000000);
        now->tv_nsec = ns < 0 ? ns + 1000000000 : ns % 1000000000;
    }
    return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec exact;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
        return (time_t)-1;
    if (out != NULL)
        *out = exact.tv_sec;
    return exact.tv_sec;
}
