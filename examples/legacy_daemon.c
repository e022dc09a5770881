/* The classic daemon: forks twice, writes its pid, logs to syslog, reads its configuration again on
 * SIGHUP and ends on SIGTERM. It does a job every second, on one machine of several: whichever has
 * the lock.
 *
 *   legacy_daemon PIDFILE CONFIGURATION [LOGFILE]
 *
 * The configuration has an endpoint on each line. With LOGFILE, log lines go there and not to
 * syslog.
 *
 * The client is opened after the second fork. A child cannot use its parent's client: a daemon that
 * opens one first is told LOCKCLIENT_E_FORKED by every call.
 */
#include "lockclient.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define KEY "legacy/job"
#define JOB_BUDGET_MS 2000

static const char *pid_file, *configuration, *log_file;

__attribute__((format(printf, 2, 3))) static void say(int priority, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (log_file == NULL) {
        syslog(priority, "%s", line);
        return;
    }
    FILE *file = fopen(log_file, "a");
    if (file != NULL) {
        fprintf(file, "%s\n", line);
        fclose(file);
    }
}

/* The client's log lines. Runs on a thread of the client's; syslog may be called from any. */
static void on_log(void *user, int32_t level, const char *message)
{
    static const int priorities[] = {LOG_ERR, LOG_ERR, LOG_WARNING, LOG_INFO, LOG_DEBUG};
    (void)user;
    say(priorities[level >= 0 && level <= 4 ? level : 0], "lockclient: %s", message);
}

/* To the background, away from the terminal and whoever started it. */
static void daemonize(void)
{
    pid_t child = fork();
    if (child < 0)
        exit(1);
    if (child > 0)
        _exit(0);
    if (setsid() < 0)
        exit(1);
    child = fork();
    if (child < 0)
        exit(1);
    if (child > 0)
        _exit(0);
    if (chdir("/") != 0)
        exit(1);
    umask(022);
    int null = open("/dev/null", O_RDWR);
    if (null < 0)
        exit(1);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    if (null > 2)
        close(null);
}

static void write_pid(void)
{
    FILE *file = fopen(pid_file, "w");
    if (file == NULL) {
        say(LOG_ERR, "cannot write %s: %s", pid_file, strerror(errno));
        exit(1);
    }
    fprintf(file, "%ld\n", (long)getpid());
    fclose(file);
}

/* A client as the configuration says; NULL if it cannot be used. */
static lockclient *configured(void)
{
    char line[300];
    lockclient *client = NULL;
    FILE *file = fopen(configuration, "r");
    if (file == NULL) {
        say(LOG_ERR, "cannot read %s: %s", configuration, strerror(errno));
        return NULL;
    }
    lockclient_config *config = lockclient_config_new();
    lockclient_status status = lockclient_config_set_log(config, on_log, NULL);
    while (status == LOCKCLIENT_OK && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (line[0] != '\0')
            status = lockclient_config_add_endpoint(config, line);
    }
    fclose(file);
    if (status == LOCKCLIENT_OK)
        status = lockclient_open(config, &client);
    if (status != LOCKCLIENT_OK)
        say(LOG_ERR, "%s: %s", configuration, lockclient_last_error());
    lockclient_config_free(config);
    return client;
}

/* The job, if this machine gets the lock. Another try comes in a second. */
static void run_job(lockclient *client)
{
    lockclient_grant grant;
    lockclient_status status =
        lockclient_acquire(client, KEY, LOCKCLIENT_NUL_TERMINATED, 0, 10000, JOB_BUDGET_MS, &grant);
    if (status == LOCKCLIENT_TIMED_OUT)
        return; /* another machine does it */
    if (status != LOCKCLIENT_OK) {
        say(LOG_WARNING, "no lock: %s: %s", lockclient_status_name(status),
            lockclient_last_error());
        return;
    }
    /* What the job writes to is handed the token, and refuses a smaller one than it has seen. */
    say(LOG_INFO, "the job runs with token %" PRIu64, grant.token);
    status = lockclient_release(client, KEY, LOCKCLIENT_NUL_TERMINATED, grant.token);
    if (status != LOCKCLIENT_OK)
        say(LOG_WARNING, "not released: %s: %s", lockclient_status_name(status),
            lockclient_last_error());
}

int main(int argc, char **argv)
{
    sigset_t handled;
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: %s PIDFILE CONFIGURATION [LOGFILE]\n", argv[0]);
        return 2;
    }
    pid_file = argv[1];
    configuration = argv[2];
    log_file = argc == 4 ? argv[3] : NULL;

    daemonize();
    openlog("legacy_daemon", LOG_PID, LOG_DAEMON);
    /* Blocked, and taken by sigtimedwait below: no handler, and no race. */
    sigemptyset(&handled);
    sigaddset(&handled, SIGHUP);
    sigaddset(&handled, SIGTERM);
    sigprocmask(SIG_BLOCK, &handled, NULL);

    lockclient *client = configured();
    if (client == NULL)
        return 1;
    write_pid();
    say(LOG_INFO, "started");
    for (;;) {
        const struct timespec second = {1, 0};
        run_job(client);
        int number = sigtimedwait(&handled, NULL, &second);
        if (number == SIGTERM)
            break;
        if (number == SIGHUP) {
            lockclient *fresh = configured();
            if (fresh != NULL) {
                lockclient_close(client, 5000);
                client = fresh;
                say(LOG_INFO, "configured again");
            }
        }
    }
    lockclient_status status = lockclient_close(client, 5000);
    say(LOG_INFO, "ended: %s", lockclient_status_name(status));
    unlink(pid_file);
    return 0;
}
