/* The static library in the program, and the shared one loaded beside it: two copies, which share
 * nothing. argv: the shared library, a server. */
#include "host.h"

#include <dlfcn.h>

#define LOAD(name) __typeof__(name) *name##_ = NULL; *(void **)&name##_ = dlsym(library, #name);   \
    CHECK(name##_ != NULL && name##_ != name)

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    LOAD(lockclient_config_new);
    LOAD(lockclient_config_add_endpoint);
    LOAD(lockclient_config_free);
    LOAD(lockclient_open);
    LOAD(lockclient_acquire);
    LOAD(lockclient_release);
    LOAD(lockclient_close);
    LOAD(lockclient_last_error);

    lockclient *mine = open_ready(argv[2]), *theirs = NULL;
    lockclient_config *config = lockclient_config_new_();
    EXPECT(LOCKCLIENT_OK, lockclient_config_add_endpoint_(config, argv[2]));
    EXPECT(LOCKCLIENT_OK, lockclient_open_(config, &theirs));
    lockclient_config_free_(config);

    for (int i = 0; i < 50; i++) {
        lockclient_grant grant, second;
        EXPECT(LOCKCLIENT_OK, acquire(mine, "two", 10000, &grant));
        EXPECT(LOCKCLIENT_TIMED_OUT,
               lockclient_acquire_(theirs, "two", NUL, 0, 1000, 0, &second));
        EXPECT(LOCKCLIENT_OK, lockclient_release_(theirs, "two", NUL, grant.token));
        EXPECT(LOCKCLIENT_OK,
               lockclient_acquire_(theirs, "two", NUL, 10000, 30000, 0, &second));
        CHECK(second.token > grant.token);
        EXPECT(LOCKCLIENT_OK, lockclient_release(mine, "two", NUL, second.token));
    }
    /* Each has its own last error. */
    EXPECT(LOCKCLIENT_E_BAD_KEY, lockclient_release(mine, "", 0, 1));
    EXPECT(LOCKCLIENT_E_INVALID_ARGUMENT, lockclient_release_(NULL, "k", NUL, 1));
    CHECK(strcmp(lockclient_last_error(), lockclient_last_error_()) != 0);
    EXPECT(LOCKCLIENT_OK, lockclient_close_(theirs, 5000));
    hold(mine, "still_here");
    EXPECT(LOCKCLIENT_OK, lockclient_close(mine, 5000));
    return done();
}
