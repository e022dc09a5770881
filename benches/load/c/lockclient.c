/* lockclient through its C interface: one client for all threads, with the default settings. */
#include "load.h"
#include "lockclient.h"

static lockclient *client;

static void check(lockclient_status status, const char *what)
{
    if (status != LOCKCLIENT_OK)
        load_fail("%s: %s: %s", what, lockclient_status_name(status), lockclient_last_error());
}

static void open_client(const char *server)
{
    lockclient_config *config = lockclient_config_new();
    check(lockclient_config_add_endpoint(config, server), server);
    check(lockclient_open(config, &client), "open");
    lockclient_config_free(config);
    check(lockclient_wait_ready(client, 10000), "no server");
}

static void *join(int thread)
{
    (void)thread;
    return 0;
}

static uint64_t acquire(void *state, const char *key, size_t length)
{
    (void)state;
    lockclient_grant grant;
    check(lockclient_acquire(client, key, length, 60000, LOCKCLIENT_DEFAULT_LEASE_MS, 10000,
                             &grant),
          "acquire");
    return grant.token;
}

static void release(void *state, const char *key, size_t length, uint64_t token)
{
    (void)state;
    check(lockclient_release(client, key, length, token), "release");
}

static void leave(void *state)
{
    (void)state;
}

static void close_client(void)
{
    check(lockclient_close(client, 5000), "close");
}

int main(int count, char **arguments)
{
    static const struct contender lockclient = {open_client, join,  acquire,
                                                release,     leave, close_client};
    return load_main(count, arguments, &lockclient);
}
