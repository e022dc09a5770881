/* The log callback. argv: a server, an address where nothing listens. */
#include "check.h"

struct log {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    lockclient *client;
    pthread_t thread;
    int lines;
    int refused;
    bool hold;
    bool armed;
};

#define LOG_INITIALIZER {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER}

static lockclient *open_logging(const char *first, const char *second,
                                void (*log)(void *, int32_t, const char *), void *user)
{
    lockclient_config *config = lockclient_config_new();
    lockclient *client = NULL;
    EXPECT(LOCKCLIENT_OK, lockclient_config_add_endpoint(config, first));
    EXPECT(LOCKCLIENT_OK, lockclient_config_add_endpoint(config, second));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_log(config, log, user));
    EXPECT(LOCKCLIENT_OK, lockclient_open(config, &client));
    lockclient_config_free(config);
    return client;
}

static void line(void *user, int32_t level, const char *message)
{
    struct log *log = user;
    CHECK(level >= LOCKCLIENT_LOG_ERROR && level <= LOCKCLIENT_LOG_DEBUG);
    CHECK(strlen(message) > 0 && strchr(message, '\n') == NULL);
    pthread_mutex_lock(&log->mutex);
    if (log->lines++ == 0)
        log->thread = pthread_self();
    CHECK(pthread_equal(log->thread, pthread_self()));
    while (!log->armed)
        pthread_cond_wait(&log->changed, &log->mutex);
    lockclient *client = log->client;
    pthread_cond_broadcast(&log->changed);
    pthread_mutex_unlock(&log->mutex);
    if (client == NULL)
        return;

    /* What blocks is refused here, and changes nothing; the rest works. */
    lockclient_grant grant = garbage();
    lockclient_ticket *ticket = NULL;
    EXPECT(LOCKCLIENT_E_WOULD_DEADLOCK, acquire(client, "k", 1000, &grant));
    ZEROED(grant);
    EXPECT(LOCKCLIENT_E_WOULD_DEADLOCK, lockclient_release(client, "k", NUL, 1));
    EXPECT(LOCKCLIENT_E_WOULD_DEADLOCK, lockclient_wait_ready(client, 1000));
    EXPECT(LOCKCLIENT_E_WOULD_DEADLOCK, lockclient_shutdown(client, 1000));
    EXPECT(LOCKCLIENT_E_WOULD_DEADLOCK, lockclient_close(client, 1000));
    EXPECT(LOCKCLIENT_OK, lockclient_acquire_start(client, "k", NUL, 0, 1000, 0, &ticket));
    EXPECT(LOCKCLIENT_E_WOULD_DEADLOCK, lockclient_ticket_wait(ticket, &grant));
    EXPECT(LOCKCLIENT_OK, lockclient_ticket_cancel(ticket));
    lockclient_ticket_free(ticket);
    EXPECT(LOCKCLIENT_OK, lockclient_release_start(client, "k", NUL, 1));
    stats_of(client);

    pthread_mutex_lock(&log->mutex);
    log->refused++;
    pthread_cond_broadcast(&log->changed);
    pthread_mutex_unlock(&log->mutex);
}

static void refuses_to_block(const char *endpoint, const char *nowhere)
{
    struct log log = LOG_INITIALIZER;
    lockclient *client = open_logging(nowhere, endpoint, line, &log);
    pthread_mutex_lock(&log.mutex);
    log.client = client;
    log.armed = true;
    pthread_cond_broadcast(&log.changed);
    while (log.refused == 0)
        pthread_cond_wait(&log.changed, &log.mutex);
    log.client = NULL;
    pthread_mutex_unlock(&log.mutex);

    /* Still alive after what was refused, and silent after its end. */
    hold(client, "another");
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 10000));
    pthread_mutex_lock(&log.mutex);
    int lines = log.lines;
    pthread_mutex_unlock(&log.mutex);
    sleep_ms(200);
    pthread_mutex_lock(&log.mutex);
    SAME(lines, log.lines);
    pthread_mutex_unlock(&log.mutex);
}

static void stuck(void *user, int32_t level, const char *message)
{
    struct log *log = user;
    (void)level, (void)message;
    pthread_mutex_lock(&log->mutex);
    log->lines++;
    pthread_cond_broadcast(&log->changed);
    while (log->hold)
        pthread_cond_wait(&log->changed, &log->mutex);
    pthread_mutex_unlock(&log->mutex);
}

/* A callback that does not return costs lines, not locks. */
static void a_stuck_callback(const char *endpoint, const char *nowhere)
{
    static struct log log = LOG_INITIALIZER; /* outlives a callback that returns late */
    log.hold = true;
    lockclient *client = open_logging(nowhere, endpoint, stuck, &log);
    pthread_mutex_lock(&log.mutex);
    while (log.lines == 0)
        pthread_cond_wait(&log.changed, &log.mutex);
    pthread_mutex_unlock(&log.mutex);

    for (int i = 0; i < 2000; i++) {
        uint64_t token = hold(client, "stuck");
        EXPECT(LOCKCLIENT_OK, lockclient_release(client, "stuck", NUL, token));
    }
    /* Closing returns in its own time as well. */
    uint64_t start = now_ms();
    lockclient_shutdown(client, 200);
    CHECK(now_ms() - start < 10000);
    pthread_mutex_lock(&log.mutex);
    SAME(1, log.lines);
    log.hold = false;
    pthread_cond_broadcast(&log.changed);
    pthread_mutex_unlock(&log.mutex);
    lockclient_close(client, 10000);
    sleep_ms(100);
    pthread_mutex_lock(&log.mutex);
    SAME(1, log.lines); /* none starts after the end, also of those that waited */
    pthread_mutex_unlock(&log.mutex);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    refuses_to_block(argv[1], argv[2]);
    a_stuck_callback(argv[1], argv[2]);
    return done();
}
