// lockclient.hpp against a server. argv: a server, a server that does what the key says, an address
// where nothing listens. Or: a server, and "forks".
#include "lockclient.hpp"

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <dirent.h>
#include <mutex>
#include <poll.h>
#include <set>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <type_traits>
#include <vector>

using namespace lock_client;
using namespace std::chrono_literals;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "%s:%d: %s\n  last error: %s\n", __FILE__, __LINE__, #condition,  \
                         lockclient_last_error());                                                 \
            std::_Exit(1);                                                                         \
        }                                                                                          \
    } while (false)

static_assert(std::is_nothrow_move_constructible_v<Lock> && std::is_nothrow_move_assignable_v<Lock>);
static_assert(!std::is_copy_constructible_v<Lock> && !std::is_copy_assignable_v<Lock>);
static_assert(std::is_nothrow_destructible_v<Lock> && std::is_nothrow_destructible_v<Client>);
static_assert(std::is_nothrow_move_constructible_v<Ticket> && !std::is_copy_constructible_v<Ticket>);
static_assert(std::is_nothrow_move_constructible_v<Result<Lock>>);
static_assert(std::is_copy_constructible_v<Client>);

namespace {

Client open_ready(const std::string &endpoint)
{
    auto client = Client::open(Config().endpoint(endpoint));
    CHECK(client);
    CHECK(client->wait_ready(30s));
    return *std::move(client);
}

bool is_free(const Client &client, std::string_view key)
{
    auto lock = client.acquire(key, {0s, 0s});
    CHECK(lock || lock.code() == LOCKCLIENT_TIMED_OUT);
    return lock.has_value();
}

void locks(const Client &client)
{
    std::uint64_t token = 0;
    {
        auto lock = client.acquire("raii", {10s, 1s});
        CHECK(lock && lock.code() == LOCKCLIENT_OK && lock.is_definite() && lock.why().empty());
        token = lock->token();
        CHECK(token != 0 && lock->owner() != 0 && lock->key() == "raii");
        CHECK(lock->remaining_at_delivery() > 1s && lock->remaining_at_delivery() < 30s);
        auto second = client.acquire("raii", {0s, 1s});
        CHECK(!second && second.code() == LOCKCLIENT_TIMED_OUT && second.is_definite());
        CHECK(!second.why().empty() && second.name() == std::string("LOCKCLIENT_TIMED_OUT"));
    }
    // The destructor gave it back; a move carries it away, once.
    auto lock = client.acquire("raii", {10s, 1s});
    CHECK(lock && lock->token() > token);
    Lock first = *std::move(lock);
    Lock moved = std::move(first);
    CHECK(!first && moved && !is_free(client, "raii"));
    auto other = client.acquire("other", {10s, 1s});
    CHECK(other);
    moved = *std::move(other); // gives back what it held
    CHECK(moved.key() == "other" && is_free(client, "raii") && !is_free(client, "other"));
    Lock &self = moved;
    moved = std::move(self);
    CHECK(moved && !is_free(client, "other"));
    CHECK(moved.release());
    CHECK(!moved && is_free(client, "other"));
    CHECK(moved.release().code() == LOCKCLIENT_NOT_HELD);

    // Detached, it stays held until its token is released.
    auto kept = client.acquire("kept", {10s, 1s});
    CHECK(kept);
    const lockclient_grant grant = kept->detach();
    kept = Status(LOCKCLIENT_OK, "");
    CHECK(!is_free(client, "kept"));
    CHECK(client.release("kept", grant.token));
    CHECK(client.release("kept", grant.token).code() == LOCKCLIENT_NOT_HELD);
}

void refusals(const Client &client)
{
    CHECK(client.acquire("", {0s, 0s}).code() == LOCKCLIENT_E_BAD_KEY);
    CHECK(client.acquire(std::string_view(), {0s, 0s}).code() == LOCKCLIENT_E_BAD_KEY);
    CHECK(client.acquire("a b", {0s, 0s}).why().find("space") != std::string::npos);
    CHECK(client.acquire(std::string(129, 'k'), {0s, 0s}).code() == LOCKCLIENT_E_BAD_KEY);
    CHECK(client.acquire("k", {-1ms, 0s}).code() == LOCKCLIENT_E_UNSUPPORTED_DURATION);
    CHECK(client.acquire("k", {256s, 0s}).code() == LOCKCLIENT_E_UNSUPPORTED_DURATION);
    CHECK(client.acquire("k", {0s, 0s, 0s}).code() == LOCKCLIENT_E_UNSUPPORTED_DURATION);
    CHECK(client.acquire("k", {0s, 2s, 1s}).code() == LOCKCLIENT_E_INSUFFICIENT_LEASE);
    CHECK(client.acquire("k", {std::chrono::milliseconds::max(), 0s}).code() ==
          LOCKCLIENT_E_UNSUPPORTED_DURATION);
    CHECK(client.start("a\nb", {0s, 0s}).code() == LOCKCLIENT_E_BAD_KEY);
    // A view need not end with a NUL.
    const std::string_view text = "views/1234";
    auto lock = client.acquire(text.substr(0, 5), {10s, 1s});
    CHECK(lock && lock->key() == "views" && is_free(client, text) && !is_free(client, "views"));

    CHECK(Client::open(Config()).code() == LOCKCLIENT_E_INVALID_ARGUMENT);
    auto bad = Client::open(Config().endpoint("nonsense").connections(0).endpoint("a:1"));
    CHECK(!bad && bad.code() == LOCKCLIENT_E_INVALID_ARGUMENT);
    CHECK(bad.why().find("nonsense") != std::string::npos);
    CHECK(!Client::open(Config().endpoint("a:1").secret("short")));
    CHECK(!Client::open(Config().endpoint("a:1").response_grace(-1ms)));
}

void unknown(const std::string &scripted)
{
    auto client = open_ready(scripted);
    auto lock = client.acquire("drop/1", {20s, 1s});
    CHECK(!lock && lock.code() == LOCKCLIENT_INDETERMINATE && !lock.is_definite());
    CHECK(client.acquire("busy/1", {20s, 1s}).code() == LOCKCLIENT_BUSY);
}

void tickets(const Client &client, const std::string &nowhere)
{
    auto ticket = client.start("ticket", {10s, 1s});
    CHECK(ticket && ticket->fd() >= 0);
    pollfd poller{ticket->fd(), POLLIN, 0};
    CHECK(poll(&poller, 1, 30000) == 1);
    auto lock = ticket->poll();
    CHECK(lock && *lock && (*lock)->key() == "ticket");
    CHECK(ticket->wait().code() == LOCKCLIENT_E_TAKEN);
    auto waiting = client.start("ticket", {60s, 1s});
    CHECK(waiting && !waiting->poll());
    CHECK((*lock)->release());
    CHECK(waiting->wait());

    auto lonely = Client::open(Config().endpoint(nowhere));
    CHECK(lonely);
    auto unsent = lonely->start("k", {60s, 1s});
    CHECK(unsent && unsent->cancel());
    CHECK(unsent->wait().code() == LOCKCLIENT_CANCELLED);

    // Many, by one descriptor; the tickets still own themselves.
    std::vector<Ticket> many;
    std::set<lockclient_ticket *> left;
    for (int i = 0; i < 100; i++) {
        auto one = client.start("many/" + std::to_string(i), {60s, 1s});
        CHECK(one);
        left.insert(one->native());
        many.push_back(*std::move(one));
    }
    while (!left.empty()) {
        pollfd any{client.completion_fd(), POLLIN, 0};
        CHECK(poll(&any, 1, 30000) == 1);
        while (lockclient_ticket *done = client.next_completed())
            left.erase(done);
    }
}

// Locks and tickets keep their client open; the last of them closes it.
void lifetimes(const std::string &endpoint, const Client &watcher)
{
    std::optional<Lock> last;
    {
        Client client = open_ready(endpoint);
        const Client copy = client;
        auto lock = copy.acquire("lifetime", {10s, 1s});
        CHECK(lock);
        last = *std::move(lock);
    }
    CHECK(!is_free(watcher, "lifetime"));
    last.reset();
    // Closing waited for the release.
    CHECK(is_free(watcher, "lifetime"));
}

void logs(const std::string &endpoint, const std::string &nowhere)
{
    auto lines = std::make_shared<std::atomic<int>>(0);
    {
        Config config;
        config.endpoint(nowhere).endpoint(endpoint).log(
            [lines](LogLevel level, std::string_view text) {
                CHECK(level >= LogLevel::error && level <= LogLevel::debug && !text.empty());
                ++*lines;
#if defined(__cpp_exceptions)
                throw std::runtime_error("costs a line and nothing else");
#endif
            });
        auto client = Client::open(config);
        CHECK(client && client->wait_ready(30s));
        CHECK(client->acquire("logged", {10s, 1s}));
        CHECK(client->shutdown(10s));
        CHECK(client->acquire("logged", {10s, 1s}).code() == LOCKCLIENT_E_CLOSED);
    }
    CHECK(*lines > 0);
    CHECK(lines.use_count() == 1);
}

int running_threads()
{
    int count = 0;
    DIR *const directory = opendir("/proc/self/task");
    CHECK(directory != nullptr);
    while (const dirent *entry = readdir(directory))
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

template <class Condition> void eventually(Condition condition)
{
    const auto limit = std::chrono::steady_clock::now() + 30s;
    while (!condition()) {
        CHECK(std::chrono::steady_clock::now() < limit);
        std::this_thread::sleep_for(1ms);
    }
}

// How many log threads have called back: each client has one.
std::atomic<int> log_threads{0};

void count_this_thread(LogLevel, std::string_view)
{
    static thread_local bool counted = false;
    if (!std::exchange(counted, true))
        ++log_threads;
}

void open_and_close(const Config &config)
{
    auto client = Client::open(config);
    CHECK(client && client->wait_ready(30s));
    // Closing waits for the lines.
}

// A setting that was taken back is gone, for the clients that are opened afterwards.
void no_log(const std::string &endpoint)
{
    log_threads = 0;
    Config config;
    config.endpoint(endpoint).log(nullptr);
    open_and_close(config);
    config.log(count_this_thread);
    auto logged = Client::open(config);
    CHECK(logged && logged->wait_ready(30s));
    config.log(nullptr);
    open_and_close(config);
    logged = Status(LOCKCLIENT_OK, "");
    CHECK(log_threads == 1);
}

// Clients that are opened from one configuration at once each log to its function.
void logs_at_once(const std::string &endpoint)
{
    log_threads = 0;
    Config config;
    config.endpoint(endpoint).log(count_this_thread);
    std::vector<std::thread> all;
    for (int i = 0; i < 8; i++)
        all.emplace_back([&] {
            for (int round = 0; round < 50; round++)
                open_and_close(config);
        });
    for (auto &thread : all)
        thread.join();
    CHECK(log_threads == 8 * 50);
}

// What goes inside the log function: a lock is given back, and the client is closed all the same.
void goes_inside_the_log(const std::string &endpoint, const Client &watcher)
{
    const int threads = running_threads();
    std::optional<Client> client;
    std::optional<Lock> lock;
    std::mutex handing; // which the thread sanitizer understands in a program that it did not build
    std::atomic<bool> ready{false}, gone{false};
    auto kept = std::make_shared<int>(0);
    {
        Config config;
        config.endpoint(endpoint).log([&, kept](LogLevel, std::string_view) {
            eventually([&] { return ready.load(); });
            const std::lock_guard<std::mutex> guard(handing);
            if (gone)
                return;
            CHECK(client->shutdown(1s).code() == LOCKCLIENT_E_WOULD_DEADLOCK);
            CHECK(lock->release().code() == LOCKCLIENT_E_WOULD_DEADLOCK && *lock);
            lock.reset();
            client.reset();
            gone = true;
        });
        auto opened = Client::open(config);
        CHECK(opened);
        auto held = opened->acquire("inside", {30s, 1s});
        CHECK(held);
        const std::lock_guard<std::mutex> guard(handing);
        lock = *std::move(held);
        client = *std::move(opened);
        opened = Status(LOCKCLIENT_OK, "");
    }
    ready = true;
    eventually([&] { return gone.load(); });
    eventually([&] { return running_threads() == threads; });
    CHECK(kept.use_count() == 1);
    CHECK(is_free(watcher, "inside"));
}

// A child drops what it came with while threads that it has not got may be inside the header.
void forks(const std::string &endpoint)
{
    Config config;
    config.endpoint(endpoint).log([](LogLevel, std::string_view) {});
    std::atomic<bool> over{false};
    std::vector<std::thread> all;
    for (int i = 0; i < 2; i++)
        all.emplace_back([&] {
            while (!over) {
                for (int at = 0; at < 1000; at++)
                    detail::LogFunctions::call(nullptr, 1, "");
            }
        });
    for (int round = 0; round < 20; round++) {
        auto client = Client::open(config);
        CHECK(client);
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60);
            client = Status(LOCKCLIENT_OK, "");
            CHECK(Client::open(config));
            std::_Exit(0);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    over = true;
    for (auto &thread : all)
        thread.join();
}

void threads(const Client &client)
{
    std::vector<std::thread> all;
    int inside = 0;
    std::uint64_t greatest = 0;
    for (int i = 0; i < 4; i++)
        all.emplace_back([&] {
            for (int round = 0; round < 25; round++) {
                auto lock = client.acquire("threads", {200s, 1s});
                CHECK(lock && ++inside == 1 && lock->token() > greatest);
                greatest = lock->token();
                --inside;
                CHECK(lock->release());
            }
        });
    for (auto &thread : all)
        thread.join();
    CHECK(client.stats().acquired >= 100);
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 3) {
        CHECK(argv[2] == std::string("forks"));
        forks(argv[1]);
        std::puts("done");
        return 0;
    }
    CHECK(argc == 4);
    {
        const Client client = open_ready(argv[1]);
        locks(client);
        refusals(client);
        tickets(client, argv[3]);
        lifetimes(argv[1], client);
        threads(client);
    }
    unknown(argv[2]);
    logs(argv[1], argv[3]);
    no_log(argv[1]);
    logs_at_once(argv[1]);
    goes_inside_the_log(argv[1], open_ready(argv[1]));
    std::puts("done");
    return 0;
}
