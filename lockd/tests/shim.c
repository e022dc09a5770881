/* What a system may do to the server, done on purpose. For LD_PRELOAD.
 *
 * Told by the environment; what is not there does not happen:
 *
 *   SHIM_CLOCK=FILE       the wall clock is set by as many seconds as the file's first eight bytes
 *                         say, as soon as they say so. The next eight count how often the wall
 *                         clock was read, and the last eight how often something was to wait for
 *                         a moment on it
 *   SHIM_DISK=STEP:N:WHAT the N-th time that the state directory sees a STEP (open, write, fsync or
 *                         rename), WHAT happens: the call fails with EIO or ENOSPC, the process is
 *                         killed before it or after it, it takes a second (slow), or (short) a
 *                         write takes one byte
 *   SHIM_STOP=CALL:FILE   once the file is there the process takes it away and stops, as by SIGSTOP:
 *                         before it next receives from a socket (recv), or after a wait has found
 *                         something (wait)
 *
 * A file named state.new is the state directory's; fsync and rename are used for nothing else.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

struct wall {
    int64_t set_by;
    int64_t reads;
    int64_t waits;
};

static struct wall *wall;

static char step[16], what[16];
static unsigned at;
static unsigned seen;
static int state_fd = -1;
static char stop_call[8], stop_file[256];

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_gettimeofday)(struct timeval *, void *);
static int (*real_timerfd_create)(int, int);
static int (*real_clock_nanosleep)(clockid_t, int, const struct timespec *, struct timespec *);
static int (*real_open)(const char *, int, ...);
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_fsync)(int);
static int (*real_rename)(const char *, const char *);
static ssize_t (*real_recv)(int, void *, size_t, int);
static int (*real_epoll_wait)(int, struct epoll_event *, int, int);

static void fail(const char *why) {
    fprintf(stderr, "shim: %s\n", why);
    abort();
}

static void find(void *slot, const char *name) {
    void *symbol = dlsym(RTLD_NEXT, name);
    if (symbol == NULL) {
        fail(name);
    }
    memcpy(slot, &symbol, sizeof symbol);
}

__attribute__((constructor)) static void begin(void) {
    if (real_rename != NULL) {
        return;
    }
    find(&real_clock_gettime, "clock_gettime");
    find(&real_gettimeofday, "gettimeofday");
    find(&real_timerfd_create, "timerfd_create");
    find(&real_clock_nanosleep, "clock_nanosleep");
    find(&real_open, "open");
    find(&real_write, "write");
    find(&real_fsync, "fsync");
    find(&real_recv, "recv");
    find(&real_epoll_wait, "epoll_wait");
    find(&real_rename, "rename");
    const char *clock = getenv("SHIM_CLOCK");
    if (clock != NULL) {
        int file = real_open(clock, O_RDWR | O_CLOEXEC);
        void *page = mmap(NULL, sizeof *wall, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (file < 0 || page == MAP_FAILED) {
            fail("SHIM_CLOCK");
        }
        wall = page;
        close(file);
    }
    const char *disk = getenv("SHIM_DISK");
    if (disk != NULL && sscanf(disk, "%15[a-z]:%u:%15s", step, &at, what) != 3) {
        fail("SHIM_DISK");
    }
    const char *stop = getenv("SHIM_STOP");
    if (stop != NULL && sscanf(stop, "%7[a-z]:%255s", stop_call, stop_file) != 2) {
        fail("SHIM_STOP");
    }
}

static int is_wall(clockid_t clock) {
    return wall != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ||
                            clock == CLOCK_REALTIME_ALARM || clock == CLOCK_TAI);
}

static int64_t read_wall(void) {
    __atomic_fetch_add(&wall->reads, 1, __ATOMIC_SEQ_CST);
    return __atomic_load_n(&wall->set_by, __ATOMIC_SEQ_CST);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    begin();
    int result = real_clock_gettime(clock, now);
    if (result == 0 && is_wall(clock)) {
        now->tv_sec += read_wall();
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    begin();
    int result = real_gettimeofday(now, zone);
    if (result == 0 && wall != NULL) {
        now->tv_sec += read_wall();
    }
    return result;
}

time_t time(time_t *now) {
    struct timespec value;
    if (clock_gettime(CLOCK_REALTIME, &value) != 0) {
        return (time_t)-1;
    }
    if (now != NULL) {
        *now = value.tv_sec;
    }
    return value.tv_sec;
}

int timerfd_create(int clock, int flags) {
    begin();
    if (is_wall(clock)) {
        __atomic_fetch_add(&wall->waits, 1, __ATOMIC_SEQ_CST);
    }
    return real_timerfd_create(clock, flags);
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time,
                    struct timespec *left) {
    begin();
    if (is_wall(clock)) {
        __atomic_fetch_add(&wall->waits, 1, __ATOMIC_SEQ_CST);
    }
    return real_clock_nanosleep(clock, flags, time, left);
}

/* Whether this is the call at which something happens. */
static int is_due(const char *name) {
    return strcmp(step, name) == 0 && ++seen == at;
}

/* What happens before the call; whether it fails. */
static int before(int due) {
    if (due && strcmp(what, "before") == 0) {
        raise(SIGKILL);
    }
    if (due && strcmp(what, "slow") == 0) {
        sleep(1);
    }
    if (due && strcmp(what, "EIO") == 0) {
        errno = EIO;
        return 1;
    }
    if (due && strcmp(what, "ENOSPC") == 0) {
        errno = ENOSPC;
        return 1;
    }
    return 0;
}

static void after(int due) {
    if (due && strcmp(what, "after") == 0) {
        raise(SIGKILL);
    }
}

static int open_any(const char *path, int flags, mode_t mode) {
    begin();
    const char *name = strrchr(path, '/');
    if (name == NULL || strcmp(name, "/state.new") != 0) {
        return real_open(path, flags, mode);
    }
    int due = is_due("open");
    if (before(due)) {
        return -1;
    }
    state_fd = real_open(path, flags, mode);
    after(due);
    return state_fd;
}

static mode_t mode_of(int flags, va_list arguments) {
    return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}

int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return open_any(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    return open_any(path, flags | O_LARGEFILE, mode);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    begin();
    int due = fd >= 0 && fd == state_fd && is_due("write");
    if (before(due)) {
        return -1;
    }
    if (due && strcmp(what, "short") == 0) {
        count = 1;
    }
    ssize_t result = real_write(fd, bytes, count);
    after(due);
    return result;
}

int fsync(int fd) {
    begin();
    int due = is_due("fsync");
    if (before(due)) {
        return -1;
    }
    int result = real_fsync(fd);
    if (fd == state_fd) {
        state_fd = -1;
    }
    after(due);
    return result;
}

int rename(const char *from, const char *to) {
    begin();
    int due = is_due("rename");
    if (before(due)) {
        return -1;
    }
    int result = real_rename(from, to);
    after(due);
    return result;
}

static void stop_at(const char *call) {
    if (strcmp(stop_call, call) == 0 && unlink(stop_file) == 0) {
        raise(SIGSTOP);
    }
}

ssize_t recv(int fd, void *bytes, size_t count, int flags) {
    begin();
    stop_at("recv");
    return real_recv(fd, bytes, count, flags);
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout) {
    begin();
    int found = real_epoll_wait(fd, events, most, timeout);
    if (found > 0) {
        stop_at("wait");
    }
    return found;
}
