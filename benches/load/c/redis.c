/* hiredis on Redis: SET key token NX PX ms, and the usual script that deletes the key if it still
 * has the token. A connection for each thread.
 */
#include "load.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static const char SCRIPT[] = "if redis.call('get', KEYS[1]) == ARGV[1] then "
                             "return redis.call('del', KEYS[1]) else return 0 end";
static const char *address;
static char script[41];

struct state {
    redisContext *connection;
    uint64_t token;
};

static redisContext *connect_redis(void)
{
    char host[64];
    int on = 1, port = load_split(address, host, sizeof host);
    redisContext *connection = redisConnect(host, port);
    if (connection == NULL || connection->err)
        load_fail("no Redis at %s", address);
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return connection;
}

static void open_redis(const char *server)
{
    address = server;
    redisContext *connection = connect_redis();
    redisReply *reply = redisCommand(connection, "SCRIPT LOAD %s", SCRIPT);
    if (reply == NULL || reply->type != REDIS_REPLY_STRING || reply->len != sizeof script - 1)
        load_fail("the script was not taken");
    memcpy(script, reply->str, sizeof script - 1);
    freeReplyObject(reply);
    redisFree(connection);
}

static void *join(int thread)
{
    struct state *state = malloc(sizeof *state);
    state->connection = connect_redis();
    state->token = (uint64_t)(thread + 1) << 40;
    return state;
}

static uint64_t acquire(void *state_of_thread, const char *key, size_t length)
{
    struct state *state = state_of_thread;
    char token[24];
    int token_length = snprintf(token, sizeof token, "%016" PRIx64, ++state->token);
    const char *words[] = {"SET", key, token, "NX", "PX", "30000"};
    const size_t lengths[] = {3, length, (size_t)token_length, 2, 2, 5};
    redisReply *reply = redisCommandArgv(state->connection, 6, words, lengths);
    if (reply == NULL || reply->type != REDIS_REPLY_STATUS)
        load_fail("SET was not answered with OK");
    freeReplyObject(reply);
    return state->token;
}

static void release(void *state_of_thread, const char *key, size_t length, uint64_t number)
{
    struct state *state = state_of_thread;
    char token[24];
    int token_length = snprintf(token, sizeof token, "%016" PRIx64, number);
    const char *words[] = {"EVALSHA", script, "1", key, token};
    const size_t lengths[] = {7, sizeof script - 1, 1, length, (size_t)token_length};
    redisReply *reply = redisCommandArgv(state->connection, 5, words, lengths);
    if (reply == NULL || reply->type != REDIS_REPLY_INTEGER || reply->integer != 1)
        load_fail("EVALSHA did not delete the key");
    freeReplyObject(reply);
}

static void leave(void *state_of_thread)
{
    struct state *state = state_of_thread;
    redisFree(state->connection);
    free(state);
}

static void close_redis(void)
{
}

int main(int count, char **arguments)
{
    static const struct contender redis = {open_redis, join, acquire, release, leave, close_redis};
    return load_main(count, arguments, &redis);
}
