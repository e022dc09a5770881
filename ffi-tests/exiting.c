/* A process that ends with everything in use. argv: a server, how to end. */
#include "host.h"

static lockclient *client;
static atomic_int blocked;
static const char *how;

static void *waits(void *unused)
{
    lockclient_grant grant;
    (void)unused;
    atomic_fetch_add(&blocked, 1);
    for (;;) {
        lockclient_status status = acquire(client, "held", 200000, &grant);
        (void)status;
    }
    return NULL;
}

static void *burns(void *unused)
{
    (void)unused;
    atomic_fetch_add(&blocked, 1);
    for (;;) {
        lockclient_grant grant;
        lockclient_ticket *ticket = NULL;
        if (acquire(client, "burning", 1000, &grant) == LOCKCLIENT_OK)
            lockclient_release_start(client, "burning", NUL, grant.token);
        if (lockclient_acquire_start(client, "burning", NUL, 1000, 1000, 0, &ticket) ==
            LOCKCLIENT_OK)
            lockclient_ticket_free(ticket);
    }
    return NULL;
}

static void *exits(void *unused)
{
    (void)unused;
    done();
    exit(0);
}

static void uses_it(void)
{
    lockclient_grant grant;
    lockclient_status status = acquire(client, "at_exit", 0, &grant);
    if (status == LOCKCLIENT_OK)
        lockclient_release_start(client, "at_exit", NUL, grant.token);
}

static void shuts_it(void)
{
    lockclient_shutdown(client, 100);
}

static void a_log(void *user, int32_t level, const char *message)
{
    (void)user, (void)level, (void)message;
    sleep_ms(1);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    CHECK(argc == 3);
    how = argv[2];
    lockclient_config *config = lockclient_config_new();
    EXPECT(LOCKCLIENT_OK, lockclient_config_add_endpoint(config, argv[1]));
    EXPECT(LOCKCLIENT_OK, lockclient_config_set_log(config, a_log, NULL));
    EXPECT(LOCKCLIENT_OK, lockclient_open(config, &client));
    lockclient_config_free(config);
    EXPECT(LOCKCLIENT_OK, lockclient_wait_ready(client, 30000));
    lockclient_grant grant;
    if (acquire(client, "held", 0, &grant) != LOCKCLIENT_OK)
        CHECK(grant.token == 0); /* an earlier process holds it: as good */
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&thread, NULL, waits, NULL) == 0);
        CHECK(pthread_create(&thread, NULL, burns, NULL) == 0);
    }
    while (atomic_load(&blocked) < 4)
        sleep_ms(1);
    if (strcmp(how, "atexit-use") == 0)
        CHECK(atexit(uses_it) == 0);
    if (strcmp(how, "atexit-shutdown") == 0)
        CHECK(atexit(shuts_it) == 0);
    if (strcmp(how, "thread") == 0) {
        CHECK(pthread_create(&thread, NULL, exits, NULL) == 0);
        for (;;)
            pause();
    }
    return done();
}
