/* A plugin host: loads the library, uses it, unloads it, again and again. argv: the library, a
 * server. */
#include <dlfcn.h>
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lockclient.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static int threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* A function of the library, by its name and the type that the header gives it. */
#define LOAD(name) __typeof__(name) *name##_ = NULL; *(void **)&name##_ = dlsym(library, #name);   \
    CHECK(name##_ != NULL)

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    for (int i = 0; i < 50; i++) {
        void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL);
        LOAD(lockclient_abi_version);
        LOAD(lockclient_config_new);
        LOAD(lockclient_config_add_endpoint);
        LOAD(lockclient_config_free);
        LOAD(lockclient_open);
        LOAD(lockclient_acquire);
        LOAD(lockclient_release);
        LOAD(lockclient_close);
        LOAD(lockclient_last_error);
        CHECK(lockclient_abi_version_() == LOCKCLIENT_ABI_VERSION);

        lockclient *client = NULL;
        lockclient_grant grant;
        lockclient_config *config = lockclient_config_new_();
        CHECK(lockclient_config_add_endpoint_(config, argv[2]) == LOCKCLIENT_OK);
        CHECK(lockclient_open_(config, &client) == LOCKCLIENT_OK);
        lockclient_config_free_(config);
        CHECK(lockclient_acquire_(client, "dl", LOCKCLIENT_NUL_TERMINATED, 20000, 1000, 0, &grant) ==
              LOCKCLIENT_OK);
        CHECK(lockclient_release_(client, "dl", LOCKCLIENT_NUL_TERMINATED, grant.token) ==
              LOCKCLIENT_OK);
        CHECK(lockclient_release_(client, "dl", LOCKCLIENT_NUL_TERMINATED, 0) ==
              LOCKCLIENT_NOT_HELD);
        CHECK(lockclient_last_error_()[0] != '\0');
        /* Every other time its thread is still running when the library is unloaded. */
        if (i % 2 == 0)
            CHECK(lockclient_close_(client, 10000) == LOCKCLIENT_OK);
        else
            lockclient_close_(client, 0);
        CHECK(dlclose(library) == 0);
    }
    for (int i = 0; threads() != 1 && i < 30000; i++)
        usleep(1000);
    CHECK(threads() == 1);
    printf("done\n");
    return 0;
}
