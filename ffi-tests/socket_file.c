/* A server on this machine, through a socket file. argv: its endpoint, "unix:/path", and one of a
 * file that is missing. */
#include "check.h"

static void endpoints(const char *endpoint)
{
    char longest[5 + 107 + 1] = "unix:/", too_long[5 + 108 + 1] = "unix:/";
    memset(longest + 6, 'x', sizeof longest - 7);
    memset(too_long + 6, 'x', sizeof too_long - 7);
    lockclient_config *config = lockclient_config_new();
    CHECK(config != NULL);
    EXPECT(LOCKCLIENT_OK, lockclient_config_add_endpoint(config, endpoint));
    EXPECT(LOCKCLIENT_E_INVALID_ARGUMENT, lockclient_config_add_endpoint(config, endpoint));
    EXPECT(LOCKCLIENT_OK, lockclient_config_add_endpoint(config, longest));
    EXPECT(LOCKCLIENT_E_INVALID_ARGUMENT, lockclient_config_add_endpoint(config, too_long));
    CHECK(strstr(lockclient_last_error(), "107 bytes") != NULL);
    lockclient_config_free(config);
}

static void a_lock(const char *endpoint)
{
    lockclient *client = open_ready(endpoint);
    lockclient_grant grant = garbage();
    uint64_t token = hold(client, "k");
    EXPECT(LOCKCLIENT_TIMED_OUT, acquire(client, "k", 0, &grant));
    ZEROED(grant);
    EXPECT(LOCKCLIENT_OK, lockclient_release(client, "k", NUL, token));
    EXPECT(LOCKCLIENT_NOT_HELD, lockclient_release(client, "k", NUL, token));
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 5000));
}

static void a_missing_file(const char *endpoint)
{
    lockclient *client = open_client(endpoint);
    lockclient_grant grant = garbage();
    EXPECT(LOCKCLIENT_NOT_SENT, acquire(client, "k", 1000, &grant));
    ZEROED(grant);
    CHECK(strstr(lockclient_last_error(), endpoint) != NULL);
    CHECK(strstr(lockclient_last_error(), "No such file") != NULL);
    EXPECT(LOCKCLIENT_OK, lockclient_close(client, 1000));
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    endpoints(argv[1]);
    a_lock(argv[1]);
    a_missing_file(argv[2]);
    return done();
}
