/* lockclient: a blocking client for a lease-based lock service.
 *
 * Generated from the library's source, documentation included; changes are made there.
 *
 *   lockclient_config *config = lockclient_config_new();
 *   lockclient *client = NULL;
 *   lockclient_config_add_endpoint(config, "127.0.0.1:7420");
 *   lockclient_status status = lockclient_open(config, &client);
 *   lockclient_config_free(config);
 *
 *   lockclient_grant grant;
 *   status = lockclient_acquire(client, "orders/42", LOCKCLIENT_NUL_TERMINATED,
 *                               5000, LOCKCLIENT_DEFAULT_LEASE_MS, 10000, &grant);
 *   if (status == LOCKCLIENT_OK) {
 *       // the lock is held: hand grant.token to what it protects
 *       lockclient_release(client, "orders/42", LOCKCLIENT_NUL_TERMINATED, grant.token);
 *   } else if (!lockclient_status_is_definite(status)) {
 *       // it is unknown whether the lock is held: do NOT enter the critical section
 *   }
 *   lockclient_close(client, 5000);
 *
 * What holds everywhere, unless a function says otherwise:
 *
 * Threads     Every function may be called from any thread, from many at once. What frees a handle
 *             must be the last call on it, and run alone.
 * Pointers    NULL is LOCKCLIENT_E_INVALID_ARGUMENT. What a function is given it reads during the
 *             call and copies if it needs it later. What it returns as text belongs to the library.
 *             Handles are the caller's to free, each with the one function for it.
 * Results     `out` is written in full on LOCKCLIENT_OK, and zeroed on anything else. It need not be
 *             initialized.
 * Failures    lockclient_last_error has a sentence about this thread's last failed call.
 * Time        Durations are in milliseconds, deadlines on the monotonic clock; changes of the wall
 *             clock have no effect. Any number may be passed: what is out of range is an error.
 * errno       As it was before the call.
 * Signals     No handler is installed, no disposition changed. Writing to a connection that broke
 *             raises no SIGPIPE. The library's threads block every signal that a process can be sent,
 *             but for SIGPROF. Signals do not interrupt blocking calls. No function may be called from a
 *             signal handler.
 * fork        A child cannot use its parent's clients and tickets: every call on them says
 *             LOCKCLIENT_E_FORKED at once, and freeing them is safe. It may open clients of its own.
 * Output      Nothing is ever printed. See lockclient_config_set_log.
 */


#ifndef LOCKCLIENT_H
#define LOCKCLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* For `key_len`: the key ends at its NUL, which does not count. */
#define LOCKCLIENT_NUL_TERMINATED ((size_t)-1)

/* The result of such a function must be looked at: it says whether a lock is held. A program may
 * define it before it includes this file, for example as nothing. */
#ifndef LOCKCLIENT_MUST_USE
#if defined(__GNUC__)
#define LOCKCLIENT_MUST_USE __attribute__((warn_unused_result))
#else
#define LOCKCLIENT_MUST_USE
#endif
#endif


/**
 * Log level: something failed for good.
 */
#define LOCKCLIENT_LOG_ERROR 1

/**
 * Log level: something failed, and the client goes on.
 */
#define LOCKCLIENT_LOG_WARN 2

/**
 * Log level: what an operator may want to know.
 */
#define LOCKCLIENT_LOG_INFO 3

/**
 * Log level: what helps to find a fault.
 */
#define LOCKCLIENT_LOG_DEBUG 4

/**
 * The lease that most programs want, in milliseconds.
 */
#define LOCKCLIENT_DEFAULT_LEASE_MS 30000

/**
 * The version of the C ABI that this header describes. It changes only when a program that was
 * compiled against an older header could no longer work, and then the shared library's name
 * changes with it (`liblockclient.so.1`).
 */
#define LOCKCLIENT_ABI_VERSION 1

/**
 * A client: one background thread that owns every socket, and a handle for it. Opaque; opened by
 * lockclient_open, freed by lockclient_close. Any number of threads may use one at once, and many
 * clients in one process share nothing.
 */
typedef struct lockclient lockclient;

/**
 * The settings of clients. Opaque; made by lockclient_config_new, freed by lockclient_config_free.
 * A client copies them when it is opened.
 */
typedef struct lockclient_config lockclient_config;

/**
 * An acquire in flight. Opaque; started by lockclient_acquire_start, freed by
 * lockclient_ticket_free, whatever became of it. Outlives its client.
 */
typedef struct lockclient_ticket lockclient_ticket;

/**
 * What became of a call: one of the LOCKCLIENT_* numbers below. 0 is success, positive numbers
 * are what became of a request, negative ones what was wrong with the call. Numbers are never
 * reused for another meaning; treat one that you do not know as LOCKCLIENT_INDETERMINATE.
 */
typedef int32_t lockclient_status;

/**
 * A lock that was granted. Plain data: nothing happens when it goes. All zero unless the call
 * returned LOCKCLIENT_OK.
 */
typedef struct {
    /**
     * The fencing token; never 0, and greater with every grant. Pass it to what the lock protects,
     * which refuses a token smaller than the greatest that it has seen: a holder that was paused
     * past its lease is stopped by that, and by nothing else. It is also what releases the lock.
     */
    uint64_t token;
    /**
     * The request's correlation id: for logs, and nothing else.
     */
    uint64_t owner;
    /**
     * What provably remained of the lease when the call returned, in milliseconds: at least 1. A
     * lower bound, whatever the network did. Count it down with CLOCK_BOOTTIME, and take off
     * another 0.1 % for the difference between two machines' clocks.
     */
    uint64_t remaining_ms;
    /**
     * Zero. For later versions.
     */
    uint64_t reserved[5];
} lockclient_grant;

/**
 * Counts since the client was opened, and three readings of now (`*_now`). Later versions may add
 * fields at the end.
 */
typedef struct {
    /**
     * Acquires that were granted.
     */
    uint64_t acquired;
    /**
     * Acquires that the server ended: the wait was over.
     */
    uint64_t timed_out;
    /**
     * Acquires that the server refused: at capacity.
     * Also those that were cancelled, or ran out of time, before they were tried again.
     */
    uint64_t busy;
    /**
     * Acquires whose deadline came before a byte was sent.
     */
    uint64_t not_sent;
    /**
     * Acquires that were cancelled before a byte was sent.
     */
    uint64_t cancelled;
    /**
     * Acquires whose outcome is unknown.
     */
    uint64_t indeterminate;
    /**
     * Releases that the server confirmed.
     */
    uint64_t released;
    /**
     * Releases of a token that held nothing (any more).
     */
    uint64_t not_held;
    /**
     * Releases without an answer.
     */
    uint64_t unconfirmed;
    /**
     * Grants that could not be handed over and whose release was enqueued.
     */
    uint64_t compensations;
    /**
     * Grants that could not be handed over when the room for such releases was full.
     */
    uint64_t compensations_dropped;
    /**
     * Grants that came too late for somebody: after their deadline or with too little of their
     * lease left, or for a caller who had cancelled, freed the ticket or closed the client.
     */
    uint64_t late_grants;
    /**
     * Connections that were made.
     */
    uint64_t connects;
    /**
     * Connections that could not be made.
     */
    uint64_t connects_failed;
    /**
     * Connections that ended.
     */
    uint64_t connections_closed;
    /**
     * Acquires that wait unsent.
     */
    uint64_t queued_now;
    /**
     * Acquires that were sent and not answered.
     */
    uint64_t in_flight_now;
    /**
     * Connections that are open.
     */
    uint64_t connections_now;
} lockclient_stats;

/**
 * Acquired, released, done.
 */
#define LOCKCLIENT_OK 0

/**
 * Acquire: definite. The server said that the wait ended without a grant, or, with a wait of 0,
 * that the lock is held. Next: try again later, or give up.
 */
#define LOCKCLIENT_TIMED_OUT 1

/**
 * Acquire: definite. The server is at capacity; nothing waits there for you. Next: back off with
 * jitter before you try again, or see lockclient_config_set_busy_retry; with that, the server said
 * so the last time that it was asked, and the acquire ended before it was asked again, be it by a
 * cancel, a shutdown or its deadline.
 */
#define LOCKCLIENT_BUSY 2

/**
 * Release: the token holds nothing (any more): released before, its lease has ended, or it never
 * was the current one. Next: whatever was done after the lease's end was not protected by it;
 * lockclient_last_error says when an earlier try of this same release may have done the work.
 */
#define LOCKCLIENT_NOT_HELD 3

/**
 * Acquire: definite. The deadline came before a byte was sent; lockclient_last_error says why, as
 * far as it is known. Next: as LOCKCLIENT_TIMED_OUT, and look at the connection. Also the answer
 * of lockclient_wait_ready when no node serves yet.
 */
#define LOCKCLIENT_NOT_SENT 4

/**
 * Acquire: definite. Cancelled, or the client was shut down, before a byte was sent. Next:
 * nothing; the lock is not held.
 */
#define LOCKCLIENT_CANCELLED 5

/**
 * Ticket: there is no result yet. Next: wait for the descriptor, or poll again later.
 */
#define LOCKCLIENT_PENDING 6

/**
 * Unknown. Acquire: the server may have granted the lock, without you having a token for it. Do
 * NOT enter the critical section; the lock, if it was granted, ends with its lease. Next: a new
 * acquire, which waits for that end if need be. Release: it may or may not have been released; do
 * not count on it. Next: release the same token again, or let the lease end.
 */
#define LOCKCLIENT_INDETERMINATE 16

/**
 * A NULL where none is allowed, a setting out of its range, a text that is no endpoint, or a
 * configuration without an endpoint. Next: fix the call.
 */
#define LOCKCLIENT_E_INVALID_ARGUMENT -1

/**
 * The key is empty, longer than 128 bytes, not UTF-8, or has a space, a newline or a carriage
 * return; lockclient_last_error says which. Nothing was sent. Next: fix the key.
 */
#define LOCKCLIENT_E_BAD_KEY -2

/**
 * A wait above 255 s, a lease of 0 or above 255 s, or a work budget above 250 s. Nothing was
 * sent. Next: fix the duration; nothing is ever clamped.
 */
#define LOCKCLIENT_E_UNSUPPORTED_DURATION -3

/**
 * The work budget is more than the lease. Nothing was sent. Next: ask for a longer lease, or do
 * less under the lock.
 */
#define LOCKCLIENT_E_INSUFFICIENT_LEASE -4

/**
 * The client was shut down before the call. Nothing was sent.
 */
#define LOCKCLIENT_E_CLOSED -5

/**
 * No endpoint accepts the secret, or one is required and the client has none. Nothing was sent.
 * Next: fix the secret; the client keeps trying in the background, so it recovers by itself when
 * the servers are what was wrong.
 */
#define LOCKCLIENT_E_AUTH -6

/**
 * This client has used up its 2^64 request numbers, for ever. Nothing was sent. Next: open
 * another client.
 */
#define LOCKCLIENT_E_OWNER_EXHAUSTED -7

/**
 * The handle was made before this process was forked from its parent, and works in the parent
 * alone. In the child nothing was sent. A ticket that was started before the fork is the
 * parent's: what becomes of it is seen there. Next: open a client of the child's own.
 */
#define LOCKCLIENT_E_FORKED -8

/**
 * Too much waits in this client already. Nothing was sent. Next: let some of it finish first.
 */
#define LOCKCLIENT_E_QUEUE_FULL -9

/**
 * The operating system refused a thread, a descriptor or memory, or kept another caller from
 * running for a second while that one had the client's queue, or the client's background thread
 * has ended; lockclient_last_error says which. Nothing was sent. Next: free the resource and try
 * again; after the end of the thread, open another client.
 */
#define LOCKCLIENT_E_SYSTEM -10

/**
 * A blocking call on this client from inside its own log callback. Nothing was sent, and nothing
 * was freed. Next: make the call from another thread.
 */
#define LOCKCLIENT_E_WOULD_DEADLOCK -11

/**
 * The ticket's result was taken before: a grant is handed out once. Next: free the ticket.
 */
#define LOCKCLIENT_E_TAKEN -12

/**
 * A bug in this library; lockclient_last_error says what it knows. The outcome of the request, if there
 * was one, is unknown. Next: treat it as LOCKCLIENT_INDETERMINATE, and report it.
 */
#define LOCKCLIENT_E_PANIC -99

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The name of a status, for logs.
 *
 * Threads: any.
 *
 * @param status  Any number.
 * @return the name as it is written in this header, for example "LOCKCLIENT_BUSY", or
 *         "LOCKCLIENT_?" for a number that is none. Never NULL; static, not to be freed.
 */
const char *lockclient_status_name(lockclient_status status);

/**
 * What a status means, for people. lockclient_last_error says more about one call.
 *
 * Threads: any.
 *
 * @param status  Any number.
 * @return one English sentence, never NULL; static, not to be freed.
 */
const char *lockclient_status_text(lockclient_status status);

/**
 * Whether a status says for certain what became of the request.
 *
 * Threads: any.
 *
 * @param status  Any number.
 * @return false for LOCKCLIENT_INDETERMINATE, LOCKCLIENT_PENDING, LOCKCLIENT_E_PANIC,
 *         LOCKCLIENT_E_FORKED, LOCKCLIENT_E_TAKEN and for numbers that are no status; true for
 *         the others. Where it is false, do not enter the critical section, and do not rely on
 *         the lock being free either.
 */
bool lockclient_status_is_definite(lockclient_status status);

/**
 * Says what went wrong in the calling thread's last failed call, in one English sentence: more
 * than the status alone, for example which rule a key breaks, or which endpoint refused the
 * connection and what the system called it.
 *
 * Every call that returns something else than LOCKCLIENT_OK or LOCKCLIENT_PENDING sets it, and
 * so do the functions that return NULL or -1 on a failure; successful calls leave it as it is, so
 * look at it only after a failure. The text is for people: do not parse it.
 *
 * Threads: each has its own text. In a destructor that runs at a thread's end it may be empty.
 *
 * @return the sentence, UTF-8, never NULL, empty if nothing failed yet. It belongs to the library
 *         and is valid until the next failing call of the same thread, or that thread's end: copy
 *         what is to be kept.
 */
const char *lockclient_last_error(void);

/**
 * Makes a configuration with the defaults and no endpoint; at least one has to be added.
 *
 * Threads: any. A configuration is plain data: it may be made before a fork and used after it, in
 * the parent and in the child.
 *
 * @return the configuration, to be freed with lockclient_config_free, or NULL if there is no
 *         memory.
 */
lockclient_config *lockclient_config_new(void);

/**
 * Frees a configuration. Clients that were opened with it stay as they are. A secret in it is
 * freed, not wiped.
 *
 * Threads: any, but no other call may use the configuration now or later.
 *
 * @param config  A configuration; NULL does nothing.
 */
void lockclient_config_free(lockclient_config *config);

/**
 * Adds a server. Servers are dialled in the order in which they were added, and no other address
 * ever is, whatever a server says about its leader.
 *
 * Threads: any.
 *
 * @param config     A configuration.
 * @param host_port  "host:port", "192.0.2.1:port" or "[2001:db8::1]:port", or "unix:/path" for a
 *                   server on this machine that listens on a socket file; NUL-terminated UTF-8,
 *                   copied. Names are looked up each time that the server is dialled. A path is
 *                   absolute, has at most 107 bytes and is taken as it is: two paths that lead to
 *                   one file are two servers.
 * @retval LOCKCLIENT_OK                  Added.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  A NULL, not an endpoint, added before, or there are 64
 *                                        already.
 */
lockclient_status lockclient_config_add_endpoint(lockclient_config *config, const char *host_port);

/**
 * Sets the secret that servers and clients prove to each other that they know. It keeps strangers
 * out; it does not encrypt. Without one, a server that asks for a proof is a
 * LOCKCLIENT_E_AUTH; with one, a server that does not prove itself is never sent a request.
 *
 * Threads: any.
 *
 * @param config  A configuration.
 * @param secret  The bytes, copied. They may be any; random ones cannot be guessed.
 * @param len     Their number, 16..=256.
 * @retval LOCKCLIENT_OK                  Set.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  A NULL, or `len` is out of its range.
 */
lockclient_status lockclient_config_set_secret(lockclient_config *config,
                                               const uint8_t *secret,
                                               size_t len);

/**
 * Sets the most connections to the serving node. Requests share them, and a connection that has
 * to be closed for one request's sake makes its other requests LOCKCLIENT_INDETERMINATE, so more
 * of them part callers better. They are opened as they are needed.
 *
 * Threads: any.
 *
 * @param config      A configuration.
 * @param per_client  1..=64; 4 if not set.
 * @retval LOCKCLIENT_OK                  Set.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL, or the number is out of its range.
 */
lockclient_status lockclient_config_set_connections(lockclient_config *config, uint32_t per_client);

/**
 * Sets the time limit of making a connection, the look-up of the server's name included.
 *
 * Threads: any.
 *
 * @param config  A configuration.
 * @param ms      Milliseconds, 10..=60000; 2000 if not set.
 * @retval LOCKCLIENT_OK                  Set.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL, or the time is out of its range.
 */
lockclient_status lockclient_config_set_connect_timeout_ms(lockclient_config *config, uint64_t ms);

/**
 * Sets how long after its deadline, and after the wait that its server was asked for (what was left
 * of the deadline, rounded up to whole seconds), an acquire that was sent may still be answered
 * LOCKCLIENT_TIMED_OUT or LOCKCLIENT_BUSY, before its connection is closed and it ends as
 * LOCKCLIENT_INDETERMINATE. A grant that comes after the deadline is never handed out, whatever
 * this is.
 *
 * Threads: any.
 *
 * @param config  A configuration.
 * @param ms      Milliseconds, 50..=60000; 500 if not set.
 * @retval LOCKCLIENT_OK                  Set.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL, or the time is out of its range.
 */
lockclient_status lockclient_config_set_response_grace_ms(lockclient_config *config, uint64_t ms);

/**
 * Ends every acquire at its deadline exactly, without the response grace and without waiting out
 * the server's whole seconds. An ordinary timeout is then often LOCKCLIENT_INDETERMINATE, and takes
 * the connection's other requests with it.
 *
 * Threads: any.
 *
 * @param config  A configuration.
 * @param on      false if not set.
 * @retval LOCKCLIENT_OK                  Set.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL.
 */
lockclient_status lockclient_config_set_strict_deadline(lockclient_config *config, bool on);

/**
 * Gives a grant back, as LOCKCLIENT_INDETERMINATE, when less than the acquire's
 * `min_work_budget_ms` of its lease provably remains on delivery.
 *
 * Threads: any.
 *
 * @param config  A configuration.
 * @param on      false if not set.
 * @retval LOCKCLIENT_OK                  Set.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL.
 */
lockclient_status lockclient_config_set_enforce_budget(lockclient_config *config, bool on);

/**
 * Retries an acquire that a server refused as busy, with backoff and jitter, inside the same
 * deadline; never one with a wait of 0. What ends it between two tries, be it a cancel or a
 * shutdown, ends it LOCKCLIENT_BUSY, the last answer.
 *
 * Threads: any.
 *
 * @param config  A configuration.
 * @param on      false if not set: LOCKCLIENT_BUSY comes at once.
 * @retval LOCKCLIENT_OK                  Set.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL.
 */
lockclient_status lockclient_config_set_busy_retry(lockclient_config *config, bool on);

/**
 * Whether the server's answers on one connection leave in the order in which they were decided,
 * as the protocol promises. For a server that does not keep that promise set it to false: then
 * only the acquire's own sending proves when its lease began, and `remaining_ms` gets smaller.
 *
 * Threads: any.
 *
 * @param config  A configuration.
 * @param on      true if not set.
 * @retval LOCKCLIENT_OK                  Set.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL.
 */
lockclient_status lockclient_config_set_ordered_answers(lockclient_config *config, bool on);

/**
 * Sets how often an idle connection is asked whether its server still serves.
 *
 * Threads: any.
 *
 * @param config  A configuration.
 * @param ms      Milliseconds, 1000..=3600000; 10000 if not set.
 * @retval LOCKCLIENT_OK                  Set.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL, or the time is out of its range.
 */
lockclient_status lockclient_config_set_idle_probe_ms(lockclient_config *config, uint64_t ms);

/**
 * Sets the most acquires that may wait unsent in the client, and of releases by
 * lockclient_release_start that may be under way. One more is LOCKCLIENT_E_QUEUE_FULL, at once.
 * Releases of grants that could not be handed over have as much room, of their own, and at least
 * for 1024.
 *
 * Threads: any.
 *
 * @param config  A configuration.
 * @param limit   1..=1048576; 65536 if not set.
 * @retval LOCKCLIENT_OK                  Set.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` is NULL, or the number is out of its range.
 */
lockclient_status lockclient_config_set_queue_limit(lockclient_config *config, size_t limit);

/**
 * Sends the log lines of clients that are opened with this configuration to a function. Without
 * this there is no log, and nothing is ever printed.
 *
 * The function runs on a thread of its own, for one line after the other, and with no lock held.
 * It may be slow: then lines are lost, and their number is logged, but no lock operation waits for
 * it. It may call any function of this library, but the blocking ones on its own client answer
 * LOCKCLIENT_E_WOULD_DEADLOCK. It must return: no longjmp, and no C++ exception may leave it. No
 * call of it starts once lockclient_shutdown or lockclient_close has returned; one that was running
 * and did not return within that call's time may still be running, and so may the destructors of
 * what the program keeps for that thread. It is not called in a forked child. With one configuration for several clients it may run for each of them at once.
 *
 * Threads: any; a change does not reach clients that are open already.
 *
 * @param config   A configuration.
 * @param log      The function. `level` is one of LOCKCLIENT_LOG_*, `message` one line of UTF-8
 *                 without a newline, valid during the call.
 * @param user     Handed to the function as it is; may be NULL. It must stay valid as long as the
 *                 function may run.
 * @retval LOCKCLIENT_OK                  Set.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  `config` or `log` is NULL.
 */
lockclient_status lockclient_config_set_log(lockclient_config *config,
                                            void (*log)(void *user,
                                                        int32_t level,
                                                        const char *message),
                                            void *user);

/**
 * Opens a client: starts its background thread and begins to connect. Does not wait for a
 * connection: servers that cannot be reached show in lockclient_wait_ready and in the calls.
 *
 * Open it after fork and after daemonizing, not before: a child cannot use its parent's client.
 *
 * Threads: any.
 *
 * @param config  The settings, with at least one endpoint. Copied: it may be freed at once.
 * @param out     Gets the client, to be freed with lockclient_close; NULL on any failure.
 * @retval LOCKCLIENT_OK                  `*out` is a client.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  A NULL, or the configuration has no endpoint.
 * @retval LOCKCLIENT_E_SYSTEM            No thread, descriptor or memory; nothing is left behind.
 */
lockclient_status lockclient_open(const lockclient_config *config, lockclient **out);

/**
 * Blocks until some node serves. For checks at start-up; calls do not need it. Says what the
 * client's background thread knows, and returns at once when that is LOCKCLIENT_OK or
 * LOCKCLIENT_E_AUTH.
 *
 * Threads: any, many at once; not from inside the client's own log callback.
 *
 * @param client      An open client.
 * @param timeout_ms  Milliseconds, any number; 0 only looks.
 * @retval LOCKCLIENT_OK                  A node serves now.
 * @retval LOCKCLIENT_NOT_SENT            None did within the time.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  `client` is NULL.
 * @retval LOCKCLIENT_E_AUTH              No endpoint accepts the secret, or one is required, as of
 *                                        the last attempt at each; the client keeps trying.
 * @retval LOCKCLIENT_E_CLOSED            Shut down, before the call or during it.
 * @retval LOCKCLIENT_E_FORKED            The client is the parent process's.
 * @retval LOCKCLIENT_E_WOULD_DEADLOCK    Called from inside the log callback.
 * @retval LOCKCLIENT_E_SYSTEM            The background thread has ended.
 * @retval LOCKCLIENT_E_PANIC             A bug in this library.
 */
lockclient_status lockclient_wait_ready(lockclient *client, uint64_t timeout_ms);

/**
 * Ends the client without freeing anything: wakes every blocked caller, cancels what was not
 * sent, gives up what was (LOCKCLIENT_INDETERMINATE), waits for the releases that are under way,
 * and closes the connections. Returns by `timeout_ms`, give or take 100 ms, whatever the network
 * does. May be called again, also while another thread is in it.
 *
 * Afterwards new requests are LOCKCLIENT_E_CLOSED. Tickets keep their results, and
 * lockclient_next_completed and lockclient_get_stats still work.
 *
 * Threads: any, while others use the client; not from inside the client's own log callback.
 *
 * @param client      An open client.
 * @param timeout_ms  Milliseconds, any number; with 0 nothing is waited for.
 * @retval LOCKCLIENT_OK                  Ended; every release was answered.
 * @retval LOCKCLIENT_INDETERMINATE       Ended; a release was not confirmed: its lock stays held
 *                                        until its lease ends, at the latest.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  `client` is NULL.
 * @retval LOCKCLIENT_E_FORKED            The client is the parent process's; it is undisturbed.
 * @retval LOCKCLIENT_E_WOULD_DEADLOCK    Called from inside the log callback; nothing has changed.
 * @retval LOCKCLIENT_E_PANIC             A bug in this library.
 */
lockclient_status lockclient_shutdown(lockclient *client, uint64_t timeout_ms);

/**
 * Shuts the client down as lockclient_shutdown does, then frees it. Tickets outlive it and are
 * freed on their own.
 *
 * To end a client that other threads are using: lockclient_shutdown first, which makes their calls
 * return; join them; then this.
 *
 * Threads: any, but alone: no other call may use the client now or later. Not from inside the
 * client's own log callback.
 *
 * @param client      A client. After LOCKCLIENT_E_INVALID_ARGUMENT, LOCKCLIENT_E_WOULD_DEADLOCK and
 *                    LOCKCLIENT_E_PANIC it was not freed; after anything else it is gone.
 * @param timeout_ms  Milliseconds, any number, as in lockclient_shutdown.
 * @retval LOCKCLIENT_OK                  Freed; every release was answered.
 * @retval LOCKCLIENT_INDETERMINATE       Freed; a release was not confirmed: its lock stays held
 *                                        until its lease ends, at the latest.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  `client` is NULL.
 * @retval LOCKCLIENT_E_FORKED            In a forked child: this process's copy was freed; the
 *                                        parent's client is undisturbed.
 * @retval LOCKCLIENT_E_WOULD_DEADLOCK    Called from inside the log callback: nothing was freed.
 * @retval LOCKCLIENT_E_PANIC             A bug in this library: nothing was freed.
 */
lockclient_status lockclient_close(lockclient *client, uint64_t timeout_ms);

/**
 * A descriptor that tells an event loop that tickets of this client have results: readable as
 * long as some ticket with a result was neither fetched with lockclient_next_completed nor freed.
 *
 * One descriptor, however many tickets. Wait for readability, then call
 * lockclient_next_completed until it returns NULL. Do not read it, write it or close it.
 *
 * Threads: any.
 *
 * @param client  A client.
 * @return the descriptor, the same at each call, close-on-exec; the client's own, valid until
 *         lockclient_close. -1 on failure (`client` is NULL, a forked
 *         child, no descriptor left): lockclient_last_error says which.
 */
int lockclient_completion_fd(lockclient *client);

/**
 * Acquires a lock, and blocks until there is an outcome.
 *
 * The deadline is the call's start plus `wait_ms` (5 s for a wait of 0), and nothing extends it:
 * the client's own queue, connecting, failing over to another server and waiting for the answer all
 * count, and a grant that comes later is not handed over. The call returns by then plus 100 ms. For
 * a request that was sent it may take longer to learn that there is none: by the response grace
 * (500 ms unless configured), during which a server may still say that it timed out, and before
 * that by up to a second, since what is left of the deadline is rounded up to whole seconds when it
 * is sent to the server. lockclient_config_set_strict_deadline does without both. A request of
 * which a byte may have been sent is never sent again.
 *
 * Fractions of a second are rounded up to whole seconds, in all three durations; then the ranges
 * are checked. Nothing is clamped, and there is no value for "for ever".
 *
 * Threads: any, many at once; not from inside the client's own log callback.
 *
 * @param client              An open client.
 * @param key                 The lock's name: 1..=128 bytes of UTF-8 without space, newline and
 *                            carriage return. Read during the call alone.
 * @param key_len             Its length in bytes, or LOCKCLIENT_NUL_TERMINATED.
 * @param wait_ms             How long to wait, up to 255000. 0 is one immediate attempt, which has
 *                            5 s to reach a server and is answered at once.
 * @param lease_ms            How long the server lets the lock be held, 1..=255000; then it is
 *                            another's to take. LOCKCLIENT_DEFAULT_LEASE_MS is a good value.
 * @param min_work_budget_ms  How long the work under the lock takes at the worst, the commit or
 *                            the rollback and a pause of the process included; up to 250000, and at
 *                            most the lease. Not sent; it is checked against the lease, and see
 *                            lockclient_config_set_enforce_budget.
 * @param out                 Gets the grant; zeroed on any other outcome.
 * @retval LOCKCLIENT_OK             The lock is held, for at least `out->remaining_ms`. Release it
 *                                   by `out->token`.
 * @retval LOCKCLIENT_TIMED_OUT      It is not: the server said so.
 * @retval LOCKCLIENT_BUSY           It is not: the server is at capacity.
 * @retval LOCKCLIENT_NOT_SENT       It is not: nothing was sent by the deadline.
 * @retval LOCKCLIENT_CANCELLED      It is not: the client was shut down first.
 * @retval LOCKCLIENT_INDETERMINATE  Unknown. Do NOT enter the critical section.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT      A NULL.
 * @retval LOCKCLIENT_E_BAD_KEY               The key cannot be used.
 * @retval LOCKCLIENT_E_UNSUPPORTED_DURATION  A duration is out of its range.
 * @retval LOCKCLIENT_E_INSUFFICIENT_LEASE    The work budget is more than the lease.
 * @retval LOCKCLIENT_E_CLOSED                The client was shut down before the call.
 * @retval LOCKCLIENT_E_AUTH                  No endpoint accepts the secret, or one is required.
 * @retval LOCKCLIENT_E_OWNER_EXHAUSTED       The client has used up its request numbers.
 * @retval LOCKCLIENT_E_FORKED                The client is the parent process's.
 * @retval LOCKCLIENT_E_QUEUE_FULL            Too much waits in the client already.
 * @retval LOCKCLIENT_E_SYSTEM                The background thread has ended.
 * @retval LOCKCLIENT_E_WOULD_DEADLOCK        Called from inside the log callback.
 * @retval LOCKCLIENT_E_PANIC                 A bug in this library: as LOCKCLIENT_INDETERMINATE.
 */
LOCKCLIENT_MUST_USE
lockclient_status lockclient_acquire(lockclient *client,
                                     const char *key,
                                     size_t key_len,
                                     uint64_t wait_ms,
                                     uint64_t lease_ms,
                                     uint64_t min_work_budget_ms,
                                     lockclient_grant *out);

/**
 * Gives a lock back by its token, and blocks until the server has answered, for up to 5 s;
 * reconnects and retries are included.
 *
 * It is safe to repeat. Do it as soon as the protected work is done, and let the resource itself
 * check the token: a lock whose lease has ended may be another's by now.
 *
 * Threads: any, many at once; not from inside the client's own log callback.
 *
 * @param client   An open client; it need not be the one that acquired the lock.
 * @param key      The lock's key, as in lockclient_acquire.
 * @param key_len  Its length in bytes, or LOCKCLIENT_NUL_TERMINATED.
 * @param token    The grant's token, exactly. 0 is never one: LOCKCLIENT_NOT_HELD.
 * @retval LOCKCLIENT_OK                  Released.
 * @retval LOCKCLIENT_NOT_HELD            The token holds nothing (any more).
 * @retval LOCKCLIENT_INDETERMINATE       No answer within 5 s, or the client was shut down: the
 *                                        lease's end is the safety net. Release it again, or wait.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  A NULL.
 * @retval LOCKCLIENT_E_BAD_KEY           The key cannot be used.
 * @retval LOCKCLIENT_E_CLOSED            The client was shut down before the call.
 * @retval LOCKCLIENT_E_AUTH              No endpoint accepts the secret, or one is required.
 * @retval LOCKCLIENT_E_OWNER_EXHAUSTED   The client has used up its request numbers.
 * @retval LOCKCLIENT_E_FORKED            The client is the parent process's: nothing was sent.
 * @retval LOCKCLIENT_E_SYSTEM            The background thread has ended.
 * @retval LOCKCLIENT_E_WOULD_DEADLOCK    Called from inside the log callback.
 * @retval LOCKCLIENT_E_PANIC             A bug in this library; unknown.
 */
lockclient_status lockclient_release(lockclient *client,
                                     const char *key,
                                     size_t key_len,
                                     uint64_t token);

/**
 * Gives a lock back by its token without waiting: enqueues the release and returns. For event
 * loops and destructors.
 *
 * The release is sent, and sent again after a lost connection, for up to 5 s. Nobody is told how
 * it ended; lockclient_get_stats counts it (`released`, `not_held`, `unconfirmed`), and
 * lockclient_shutdown says whether some stayed unconfirmed. As many may be under way at once as
 * lockclient_config_set_queue_limit says, 65,536 if it was not called.
 *
 * Threads: any, the log callback included. Never blocks.
 *
 * @param client   An open client; it need not be the one that acquired the lock.
 * @param key      The lock's key, as in lockclient_acquire. Copied.
 * @param key_len  Its length in bytes, or LOCKCLIENT_NUL_TERMINATED.
 * @param token    The grant's token, exactly.
 * @retval LOCKCLIENT_OK                  Enqueued.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  A NULL.
 * @retval LOCKCLIENT_E_BAD_KEY           The key cannot be used.
 * @retval LOCKCLIENT_E_CLOSED            The client was shut down before the call: the lease's end
 *                                        is the safety net.
 * @retval LOCKCLIENT_E_FORKED            The client is the parent process's.
 * @retval LOCKCLIENT_E_QUEUE_FULL        Too many are under way: call again later, or use
 *                                        lockclient_release.
 * @retval LOCKCLIENT_E_SYSTEM            The background thread has ended.
 * @retval LOCKCLIENT_E_PANIC             A bug in this library; unknown.
 */
lockclient_status lockclient_release_start(lockclient *client,
                                           const char *key,
                                           size_t key_len,
                                           uint64_t token);

/**
 * Starts an acquire and returns: one thread may have many in flight.
 *
 * Deadline, rounding and limits are those of lockclient_acquire. The result comes to
 * lockclient_ticket_wait, lockclient_ticket_poll, the ticket's descriptor and the client's
 * completion queue. A grant that is not taken by the deadline is given back, and the result is
 * LOCKCLIENT_INDETERMINATE: take results promptly.
 *
 * Threads: any, many at once, the log callback included. Never blocks. If another thread fetches
 * completed tickets, it may get this one before the call has returned.
 *
 * @param client              An open client.
 * @param key                 The lock's key, as in lockclient_acquire. Copied.
 * @param key_len             Its length in bytes, or LOCKCLIENT_NUL_TERMINATED.
 * @param wait_ms             As in lockclient_acquire.
 * @param lease_ms            As in lockclient_acquire.
 * @param min_work_budget_ms  As in lockclient_acquire.
 * @param out                 Gets the ticket, to be freed with lockclient_ticket_free; NULL on any
 *                            failure.
 * @retval LOCKCLIENT_OK                      `*out` is a ticket.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT      A NULL.
 * @retval LOCKCLIENT_E_BAD_KEY               The key cannot be used.
 * @retval LOCKCLIENT_E_UNSUPPORTED_DURATION  A duration is out of its range.
 * @retval LOCKCLIENT_E_INSUFFICIENT_LEASE    The work budget is more than the lease.
 * @retval LOCKCLIENT_E_CLOSED                The client was shut down before the call.
 * @retval LOCKCLIENT_E_FORKED                The client is the parent process's.
 * @retval LOCKCLIENT_E_QUEUE_FULL            Too much waits in the client already.
 * @retval LOCKCLIENT_E_SYSTEM                No memory, or the background thread has ended.
 * @retval LOCKCLIENT_E_PANIC                 A bug in this library.
 */
LOCKCLIENT_MUST_USE
lockclient_status lockclient_acquire_start(lockclient *client,
                                           const char *key,
                                           size_t key_len,
                                           uint64_t wait_ms,
                                           uint64_t lease_ms,
                                           uint64_t min_work_budget_ms,
                                           lockclient_ticket **out);

/**
 * Blocks until the acquire has ended, and takes its result. Returns when lockclient_acquire would.
 *
 * Threads: any; one that waits may be joined by others, but the result is handed out once. Not
 * from inside the client's own log callback.
 *
 * @param ticket  A ticket.
 * @param out     Gets the grant; zeroed on any other outcome.
 * @retval LOCKCLIENT_OK             The lock is held; release it by `out->token`.
 * @retval LOCKCLIENT_TIMED_OUT      It is not: the server said so.
 * @retval LOCKCLIENT_BUSY           It is not: the server is at capacity.
 * @retval LOCKCLIENT_NOT_SENT       It is not: nothing was sent by the deadline.
 * @retval LOCKCLIENT_CANCELLED      It is not: cancelled, or the client was shut down, first.
 * @retval LOCKCLIENT_INDETERMINATE  Unknown. Do NOT enter the critical section.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  A NULL.
 * @retval LOCKCLIENT_E_AUTH              No endpoint accepts the secret, or one is required.
 * @retval LOCKCLIENT_E_OWNER_EXHAUSTED   The client has used up its request numbers.
 * @retval LOCKCLIENT_E_FORKED            The ticket is the parent process's; its result is seen there.
 * @retval LOCKCLIENT_E_SYSTEM            The background thread ended before anything was sent.
 * @retval LOCKCLIENT_E_WOULD_DEADLOCK    Called from inside the log callback.
 * @retval LOCKCLIENT_E_TAKEN             The result was taken before.
 * @retval LOCKCLIENT_E_PANIC             A bug in this library: as LOCKCLIENT_INDETERMINATE.
 */
LOCKCLIENT_MUST_USE
lockclient_status lockclient_ticket_wait(lockclient_ticket *ticket,
                                         lockclient_grant *out);

/**
 * Takes the result if there is one. Never blocks.
 *
 * Threads: any, the log callback included; the result is handed out once.
 *
 * @param ticket  A ticket.
 * @param out     Gets the grant; zeroed on any other outcome.
 * @retval LOCKCLIENT_PENDING        There is no result yet.
 * @retval LOCKCLIENT_OK             The lock is held; release it by `out->token`.
 * @retval LOCKCLIENT_TIMED_OUT      It is not: the server said so.
 * @retval LOCKCLIENT_BUSY           It is not: the server is at capacity.
 * @retval LOCKCLIENT_NOT_SENT       It is not: nothing was sent by the deadline.
 * @retval LOCKCLIENT_CANCELLED      It is not: cancelled, or the client was shut down, first.
 * @retval LOCKCLIENT_INDETERMINATE  Unknown. Do NOT enter the critical section.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  A NULL.
 * @retval LOCKCLIENT_E_AUTH              No endpoint accepts the secret, or one is required.
 * @retval LOCKCLIENT_E_OWNER_EXHAUSTED   The client has used up its request numbers.
 * @retval LOCKCLIENT_E_FORKED            The ticket is the parent process's; its result is seen there.
 * @retval LOCKCLIENT_E_SYSTEM            The background thread ended before anything was sent.
 * @retval LOCKCLIENT_E_TAKEN             The result was taken before.
 * @retval LOCKCLIENT_E_PANIC             A bug in this library: as LOCKCLIENT_INDETERMINATE.
 */
LOCKCLIENT_MUST_USE
lockclient_status lockclient_ticket_poll(lockclient_ticket *ticket,
                                         lockclient_grant *out);

/**
 * A descriptor of the ticket's own for poll, epoll and the like: readable once there is a result,
 * and as long as it was not taken. Do not read it, write it or close it. Programs with many
 * tickets use lockclient_completion_fd instead, which needs one descriptor for all.
 *
 * Threads: any.
 *
 * @param ticket  A ticket.
 * @return the descriptor, the same at each call, close-on-exec; the ticket's own, valid until the
 *         ticket is freed. -1 on failure (`ticket` is NULL, a forked child, no descriptor left):
 *         lockclient_last_error says which.
 */
int lockclient_ticket_fd(lockclient_ticket *ticket);

/**
 * Gives the acquire up. Afterwards there is a result, to be taken as any other: what was not sent
 * is LOCKCLIENT_CANCELLED; what may have been sent is LOCKCLIENT_INDETERMINATE, and its connection
 * is closed; a timeout or a refusal that had come already stands, also of one that waits to be
 * tried again; a grant that had come and was not taken is given back, LOCKCLIENT_INDETERMINATE.
 * Cancelling again, or after the result was taken, changes nothing.
 *
 * Threads: any, also while another waits for the ticket, and the log callback. Never blocks.
 *
 * @param ticket  A ticket.
 * @retval LOCKCLIENT_OK                  The result is decided now.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  `ticket` is NULL.
 * @retval LOCKCLIENT_E_FORKED            The ticket is the parent process's; it goes on there.
 * @retval LOCKCLIENT_E_PANIC             A bug in this library.
 */
lockclient_status lockclient_ticket_cancel(lockclient_ticket *ticket);

/**
 * Attaches a pointer of the program's own to a ticket; NULL at first. The library never looks at
 * what it points to.
 *
 * Threads: any.
 *
 * @param ticket  A ticket; NULL does nothing.
 * @param user    Any pointer.
 */
void lockclient_ticket_set_user(lockclient_ticket *ticket, void *user);

/**
 * The pointer that lockclient_ticket_set_user attached.
 *
 * Threads: any.
 *
 * @param ticket  A ticket.
 * @return the pointer; NULL if none was attached, or if `ticket` is NULL.
 */
void *lockclient_ticket_user(const lockclient_ticket *ticket);

/**
 * Frees a ticket. An acquire without a result is cancelled as lockclient_ticket_cancel does, and a
 * grant that was not taken is given back by its token. Never blocks. In a forked child it frees
 * this process's copy and nothing else happens.
 *
 * Threads: any, but alone: no other call may use the ticket now or later, and no other thread may
 * be about to fetch it from lockclient_next_completed.
 *
 * @param ticket  A ticket; NULL does nothing.
 */
void lockclient_ticket_free(lockclient_ticket *ticket);

/**
 * Fetches a ticket that has a result: each ticket once, in the order in which they got it. Its
 * result is still to be taken, with lockclient_ticket_poll, and the ticket still to be freed.
 * Never blocks. Tickets whose results were taken before are fetched as well; tickets that were
 * freed are not.
 *
 * Threads: any. While one stands still inside this call (a debugger has stopped it, or a signal
 * handler of the program's), the others may get NULL; no ticket is lost over it.
 *
 * @param client  A client, shut down or not.
 * @return a ticket that lockclient_acquire_start gave out, or NULL: none now, `client` is NULL, or
 *         a forked child.
 */
lockclient_ticket *lockclient_next_completed(lockclient *client);

/**
 * Reads the client's counts. The background thread keeps them, so the last call's may be missing
 * for a moment. Works after lockclient_shutdown too.
 *
 * Threads: any, the log callback included. Never blocks.
 *
 * @param client    A client.
 * @param out       Gets the counts; zeroed on any failure.
 * @param out_size  sizeof(lockclient_stats): at most so many bytes are filled, and the rest of them
 *                  zeroed, so that programs compiled against another version's header work.
 * @retval LOCKCLIENT_OK                  Filled.
 * @retval LOCKCLIENT_E_INVALID_ARGUMENT  A NULL.
 * @retval LOCKCLIENT_E_FORKED            The client is the parent process's.
 * @retval LOCKCLIENT_E_PANIC             A bug in this library.
 */
lockclient_status lockclient_get_stats(lockclient *client, lockclient_stats *out, size_t out_size);

/**
 * The version of the ABI of the library that is loaded. Programs that load it with dlopen compare
 * it with LOCKCLIENT_ABI_VERSION before they call anything else.
 *
 * Threads: any.
 *
 * @return 1.
 */
uint32_t lockclient_abi_version(void);

/**
 * The version of the library that is loaded, for logs.
 *
 * Threads: any.
 *
 * @return a text like "0.1.0", never NULL; static, not to be freed.
 */
const char *lockclient_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* LOCKCLIENT_H */
