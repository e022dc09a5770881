/* What a host can find out about its own process. */
#ifndef HOST_H
#define HOST_H

#include "check.h"

#include <dirent.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static inline int thread_id(void)
{
    return (int)syscall(SYS_gettid);
}

static inline int entries(const char *path)
{
    int count = 0;
    DIR *directory = opendir(path);
    CHECK(directory != NULL);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static inline int open_descriptors(void)
{
    return entries("/proc/self/fd") - 1; /* the one that reads the directory */
}

static inline int running_threads(void)
{
    return entries("/proc/self/task");
}

/* Threads that have ended may still be listed for a moment. */
#define AWAIT_THREADS(number)                                                                      \
    do {                                                                                           \
        uint64_t until_ = now_ms() + 30000;                                                        \
        while (running_threads() != (number) && now_ms() < until_)                                 \
            sleep_ms(1);                                                                           \
        SAME(number, running_threads());                                                           \
    } while (0)

/* Processor time that this process has used. */
static inline uint64_t cpu_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

static atomic_bool busy_enough;

/* A thread: keeps the locks of a client busy until it is `busy_enough`. */
static inline void *keeps_busy(void *argument)
{
    lockclient *client = argument;
    while (!atomic_load(&busy_enough)) {
        lockclient_ticket *ticket = NULL;
        lockclient_status status =
            lockclient_acquire_start(client, "used", NUL, 60000, 1000, 0, &ticket);
        CHECK(status == LOCKCLIENT_OK || status == LOCKCLIENT_E_QUEUE_FULL);
        lockclient_ticket_free(ticket);
    }
    return NULL;
}

/* Waits for a child and wants it to end well. */
static inline void reap(pid_t child)
{
    int status = 0;
    CHECK(child > 0);
    while (waitpid(child, &status, 0) < 0)
        CHECK(errno == EINTR);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* The number of the library's epoll: this program has no other yet. */
static inline int epoll_of_the_library(void)
{
    for (int fd = 3; fd < 1024; fd++) {
        char path[64], name[64] = {0};
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, name, sizeof name - 1) > 0 && strstr(name, "eventpoll") != NULL)
            return fd;
    }
    fail(__FILE__, __LINE__, "the library has no epoll");
}

#endif
