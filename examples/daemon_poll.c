/* A single-threaded daemon around poll(2) that takes and gives back locks without ever blocking:
 * thousands of acquires in flight, one descriptor for all of them.
 *
 *   daemon_poll HOST:PORT < jobs
 *
 * A job is a line "KEY HOLD_MS": take the lock, do HOLD_MS of work (here: a timer), give it back.
 * For each job there is one line on standard output: "done KEY TOKEN", or "failed KEY STATUS".
 * The end of the input, or SIGTERM, ends the daemon once the jobs in flight have ended.
 */
#include "lockclient.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS 60000
#define WORK_BUDGET_MS 5000
#define MOST_IN_FLIGHT 4096 /* more jobs stay in the pipe */

struct job {
    char key[129];
    uint64_t hold_ms;
    lockclient_ticket *ticket; /* while it waits for its lock */
    uint64_t token;            /* while it holds it */
    uint64_t ends_ms;
    struct job *next;
};

static lockclient *client;
static struct job *working;   /* hold their locks */
static struct job *releasing; /* want to give theirs back, and met a full queue */
static int in_flight;
static int signals[2];

static uint64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000 + (uint64_t)time.tv_nsec / 1000000;
}

static void on_signal(int number)
{
    int saved = errno;
    char byte = (char)number;
    ssize_t written = write(signals[1], &byte, 1);
    (void)written;
    errno = saved;
}

static void finish(struct job *job, const char *what)
{
    printf("failed %s %s\n", job->key, what);
    free(job);
    in_flight--;
}

/* Asks for a job's lock, and returns at once. */
static void start(const char *line)
{
    struct job *job = calloc(1, sizeof *job);
    if (job == NULL)
        exit(1);
    if (sscanf(line, "%128s %" SCNu64, job->key, &job->hold_ms) != 2) {
        fprintf(stderr, "not a job: %s\n", line);
        free(job);
        return;
    }
    in_flight++;
    lockclient_status status =
        lockclient_acquire_start(client, job->key, LOCKCLIENT_NUL_TERMINATED, WAIT_MS,
                                 LOCKCLIENT_DEFAULT_LEASE_MS, WORK_BUDGET_MS, &job->ticket);
    if (status != LOCKCLIENT_OK) {
        finish(job, lockclient_status_name(status));
        return;
    }
    lockclient_ticket_set_user(job->ticket, job);
}

/* Begins the work of every job whose lock has come. */
static void take_results(void)
{
    for (lockclient_ticket *ticket; (ticket = lockclient_next_completed(client)) != NULL;) {
        struct job *job = lockclient_ticket_user(ticket);
        lockclient_grant grant;
        lockclient_status status = lockclient_ticket_poll(ticket, &grant);
        lockclient_ticket_free(ticket);
        job->ticket = NULL;
        if (status != LOCKCLIENT_OK) {
            /* LOCKCLIENT_INDETERMINATE as well: the work is not begun. */
            finish(job, lockclient_status_name(status));
            continue;
        }
        job->token = grant.token;
        job->ends_ms = now_ms() + job->hold_ms;
        job->next = working;
        working = job;
    }
}

/* Gives back what is done, without waiting for the answer. */
static void give_back(void)
{
    uint64_t now = now_ms();
    for (struct job **at = &working; *at != NULL;) {
        struct job *job = *at;
        if (job->ends_ms > now) {
            at = &job->next;
            continue;
        }
        *at = job->next;
        job->next = releasing;
        releasing = job;
    }
    while (releasing != NULL) {
        struct job *job = releasing;
        lockclient_status status = lockclient_release_start(
            client, job->key, LOCKCLIENT_NUL_TERMINATED, job->token);
        if (status == LOCKCLIENT_E_QUEUE_FULL)
            return; /* there is room again soon */
        releasing = job->next;
        printf("done %s %" PRIu64 "\n", job->key, job->token);
        free(job);
        in_flight--;
    }
}

/* How long poll may sleep. */
static int patience(void)
{
    if (releasing != NULL)
        return 1;
    uint64_t now = now_ms(), least = 60000;
    for (const struct job *job = working; job != NULL; job = job->next) {
        uint64_t left = job->ends_ms > now ? job->ends_ms - now : 0;
        least = left < least ? left : least;
    }
    return working == NULL ? -1 : (int)least;
}

int main(int argc, char **argv)
{
    char buffer[64 * 1024];
    size_t used = 0;
    bool more = true;
    struct sigaction action;
    if (argc != 2) {
        fprintf(stderr, "usage: %s HOST:PORT < jobs\n", argv[0]);
        return 2;
    }
    if (pipe(signals) != 0 || fcntl(signals[1], F_SETFL, O_NONBLOCK) < 0 ||
        fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK) < 0)
        return 1;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigaction(SIGTERM, &action, NULL);

    lockclient_config *config = lockclient_config_new();
    if (lockclient_config_add_endpoint(config, argv[1]) != LOCKCLIENT_OK ||
        lockclient_open(config, &client) != LOCKCLIENT_OK) {
        fprintf(stderr, "%s\n", lockclient_last_error());
        return 1;
    }
    lockclient_config_free(config);

    while (more || in_flight > 0) {
        bool reads = more && in_flight < MOST_IN_FLIGHT;
        struct pollfd polled[3] = {
            {.fd = lockclient_completion_fd(client), .events = POLLIN},
            {.fd = signals[0], .events = POLLIN},
            {.fd = reads ? STDIN_FILENO : -1, .events = POLLIN},
        };
        if (poll(polled, 3, patience()) < 0 && errno != EINTR)
            return 1;
        if (polled[1].revents != 0)
            more = false;
        if (polled[0].revents != 0)
            take_results();
        if (polled[2].revents != 0) {
            ssize_t count = read(STDIN_FILENO, buffer + used, sizeof buffer - used);
            if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR))
                more = false;
            used += count > 0 ? (size_t)count : 0;
            char *line = buffer;
            for (char *end; (end = memchr(line, '\n', used - (size_t)(line - buffer))) != NULL;) {
                *end = '\0';
                start(line);
                line = end + 1;
            }
            used -= (size_t)(line - buffer);
            memmove(buffer, line, used);
            if (used == sizeof buffer) {
                fprintf(stderr, "a line is too long\n");
                return 1;
            }
        }
        give_back();
    }
    /* The one call that may block, at the very end: until the releases are confirmed. */
    lockclient_status status = lockclient_close(client, 5000);
    printf("closed %s\n", lockclient_status_name(status));
    return status == LOCKCLIENT_OK ? 0 : 1;
}
