// lockclient for C++17: RAII over lockclient.h. Header-only.
//
//   lock_client::Config config;
//   config.endpoint("127.0.0.1:7420");
//   lock_client::Result<lock_client::Client> client = lock_client::Client::open(config);
//   if (!client) { log(client.why()); return; }
//
//   using namespace std::chrono_literals;
//   if (auto lock = client->acquire("orders/42", {5s, 10s})) {
//       store(lock->token(), ...);   // the lock is held until `lock` goes
//   } else if (!lock.is_definite()) {
//       // it is unknown whether the lock is held: do NOT enter the critical section
//   }
//
// Nothing here throws, but for std::bad_alloc: what went wrong is a value that cannot be ignored.
// What a status means, what may be called from where, and the units and ranges are lockclient.h's.
#ifndef LOCKCLIENT_HPP
#define LOCKCLIENT_HPP

#include "lockclient.h"

#include <atomic>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <pthread.h>
#include <unistd.h>

namespace lock_client {

class Client;

/// How a call ended, and the sentence about it.
class [[nodiscard]] Status {
public:
    /// The outcome of a call that was just made on this thread.
    static Status of(lockclient_status code)
    {
        return Status(code, code == LOCKCLIENT_OK ? "" : lockclient_last_error());
    }

    Status(lockclient_status code, std::string why) noexcept : code_(code), why_(std::move(why)) {}

    /// One of the LOCKCLIENT_* numbers.
    lockclient_status code() const noexcept { return code_; }
    bool ok() const noexcept { return code_ == LOCKCLIENT_OK; }
    explicit operator bool() const noexcept { return ok(); }
    /// Whether it is certain what became of the request.
    bool is_definite() const noexcept { return lockclient_status_is_definite(code_); }
    /// The code's name, for logs.
    const char *name() const noexcept { return lockclient_status_name(code_); }
    /// One English sentence; empty on success.
    const std::string &why() const noexcept { return why_; }

private:
    lockclient_status code_;
    std::string why_;
};

/// What was asked for, or why not. Test it before it is used; it cannot be ignored.
template <class T> class [[nodiscard]] Result {
public:
    Result(T value) noexcept : value_(std::move(value)), status_(LOCKCLIENT_OK, std::string()) {}
    Result(Status status) noexcept : status_(std::move(status)) {}

    explicit operator bool() const noexcept { return value_.has_value(); }
    bool has_value() const noexcept { return value_.has_value(); }
    lockclient_status code() const noexcept { return status_.code(); }
    bool is_definite() const noexcept { return status_.is_definite(); }
    const char *name() const noexcept { return status_.name(); }
    const std::string &why() const noexcept { return status_.why(); }
    const Status &status() const noexcept { return status_; }

    /// Only if there is a value.
    T &operator*() & noexcept { return checked(); }
    T &&operator*() && noexcept { return std::move(checked()); }
    T *operator->() noexcept { return &checked(); }

private:
    T &checked() noexcept
    {
        assert(value_.has_value());
        return *value_;
    }

    std::optional<T> value_;
    Status status_;
};

/// What an acquire asks for. Fractions of a second are rounded up; what is out of its range is an
/// error, negative durations included.
struct Acquire {
    /// How long to wait, 0 s to 255 s; 0 is one immediate attempt.
    std::chrono::milliseconds wait;
    /// What the work under the lock takes at the worst, 0 s to 250 s, at most the lease.
    std::chrono::milliseconds min_work_budget;
    /// How long the server lets the lock be held, up to 255 s.
    std::chrono::milliseconds lease = std::chrono::milliseconds(LOCKCLIENT_DEFAULT_LEASE_MS);
};

enum class LogLevel : std::int32_t {
    error = LOCKCLIENT_LOG_ERROR,
    warn = LOCKCLIENT_LOG_WARN,
    info = LOCKCLIENT_LOG_INFO,
    debug = LOCKCLIENT_LOG_DEBUG,
};

namespace detail {

/// Milliseconds for C. No negative number is a duration: the call will say so.
inline std::uint64_t ms(std::chrono::milliseconds duration) noexcept
{
    return duration.count() < 0 ? UINT64_MAX : static_cast<std::uint64_t>(duration.count());
}

/// Milliseconds of a limit, which may have passed.
inline std::uint64_t limit_ms(std::chrono::milliseconds limit) noexcept
{
    return limit.count() < 0 ? 0 : static_cast<std::uint64_t>(limit.count());
}

/// An empty view may have no address, which C would take for a missing key.
inline const char *address(std::string_view text) noexcept
{
    return text.data() == nullptr ? "" : text.data();
}

using LogFunction = std::function<void(LogLevel, std::string_view)>;

/// The log functions that somebody still owns, by number: a callback that begins late, or that runs
/// longer than its client lives, never meets a function that is gone.
class LogFunctions {
public:
    /// This process's. Never destroyed: callbacks may run while the program ends. A forked child has
    /// its own: in the one that it came with, a thread that it has not got may hold the mutex.
    static LogFunctions &here()
    {
        LogFunctions *known = current_.load();
        while (known == nullptr || known->process_ != ::getpid()) {
            auto *const made = new LogFunctions(known);
            if (current_.compare_exchange_strong(known, made))
                return *made;
            delete made;
        }
        return *known;
    }

    /// A number that no other function has.
    static std::uintptr_t number() noexcept { return ++last_; }

    void add(std::uintptr_t number, const std::shared_ptr<LogFunction> &function)
    {
        const std::lock_guard<std::mutex> guard(mutex_);
        forget_the_unowned();
        functions_[number] = function;
    }

    static void call(void *user, std::int32_t level, const char *message) noexcept
    {
        const std::shared_ptr<LogFunction> function =
            here().find(reinterpret_cast<std::uintptr_t>(user));
        if (function == nullptr)
            return;
#if defined(__cpp_exceptions)
        try {
            (*function)(static_cast<LogLevel>(level), message);
        } catch (...) {
            // A line is lost; no exception may reach C.
        }
#else
        (*function)(static_cast<LogLevel>(level), message);
#endif
    }

private:
    explicit LogFunctions(LogFunctions *parent) noexcept : process_(::getpid()), parent_(parent) {}

    std::shared_ptr<LogFunction> find(std::uintptr_t number) noexcept
    {
        const std::lock_guard<std::mutex> guard(mutex_);
        const auto found = functions_.find(number);
        return found == functions_.end() ? nullptr : found->second.lock();
    }

    void forget_the_unowned() noexcept
    {
        for (auto at = functions_.begin(); at != functions_.end();)
            at = at->second.expired() ? functions_.erase(at) : std::next(at);
    }

    inline static std::atomic<LogFunctions *> current_{nullptr};
    inline static std::atomic<std::uintptr_t> last_{0};

    const pid_t process_;
    [[maybe_unused]] LogFunctions *const parent_; // so that it is not taken for lost memory
    std::mutex mutex_;
    std::map<std::uintptr_t, std::weak_ptr<LogFunction>> functions_;
};

/// A log function and its number; neither if there is none.
struct Log {
    std::uintptr_t number = 0;
    std::shared_ptr<LogFunction> function;
};

/// An open client, shared by whatever needs it open. Made before the client is opened, so that
/// nothing that may throw is left to do afterwards.
class Handle {
public:
    explicit Handle(std::chrono::milliseconds patience) noexcept : patience_(patience) {}
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;
    ~Handle()
    {
        // Nobody is left who could be told; what stayed unconfirmed ends with its lease.
        if (client_ != nullptr &&
            lockclient_close(client_, limit_ms(patience_)) == LOCKCLIENT_E_WOULD_DEADLOCK)
            close_elsewhere();
    }

    lockclient_status open(lockclient_config *config, const Log &log)
    {
        if (log.function != nullptr)
            LogFunctions::here().add(log.number, log.function);
        log_ = log;
        return lockclient_open(config, &client_);
    }

    lockclient *get() const noexcept { return client_; }

private:
    /// Inside the client's own log callback nobody can wait for it to return. Another thread does.
    void close_elsewhere() noexcept
    {
        auto *const moved = new (std::nothrow) Handle(patience_);
        if (moved == nullptr)
            return;
        moved->client_ = client_;
        moved->log_ = std::move(log_);
        const auto close = [](void *handle) -> void * {
            delete static_cast<Handle *>(handle);
            return nullptr;
        };
        pthread_t thread;
        if (pthread_create(&thread, nullptr, close, moved) == 0) {
            static_cast<void>(pthread_detach(thread));
        } else {
            // It stays open: there is not even a thread to close it.
            moved->client_ = nullptr;
            delete moved;
        }
    }

    lockclient *client_ = nullptr;
    Log log_;
    std::chrono::milliseconds patience_;
};

} // namespace detail

/// The settings of clients. Each setter gives the settings back; what is wrong with one of them is
/// said by Client::open.
class Config {
public:
    Config() : config_(lockclient_config_new()), status_(LOCKCLIENT_OK, std::string())
    {
        if (config_ == nullptr)
            status_ = Status(LOCKCLIENT_E_SYSTEM, lockclient_last_error());
    }

    /// "host:port", "[v6]:port" or "unix:/path".
    Config &endpoint(const std::string &host_port)
    {
        return note(lockclient_config_add_endpoint(config_.get(), host_port.c_str()));
    }
    /// 16 to 256 bytes.
    Config &secret(std::string_view bytes)
    {
        const auto *start = reinterpret_cast<const std::uint8_t *>(detail::address(bytes));
        return note(lockclient_config_set_secret(config_.get(), start, bytes.size()));
    }
    Config &connections(std::uint32_t per_client)
    {
        return note(lockclient_config_set_connections(config_.get(), per_client));
    }
    Config &connect_timeout(std::chrono::milliseconds time)
    {
        return note(lockclient_config_set_connect_timeout_ms(config_.get(), detail::ms(time)));
    }
    Config &response_grace(std::chrono::milliseconds time)
    {
        return note(lockclient_config_set_response_grace_ms(config_.get(), detail::ms(time)));
    }
    Config &idle_probe(std::chrono::milliseconds time)
    {
        return note(lockclient_config_set_idle_probe_ms(config_.get(), detail::ms(time)));
    }
    Config &queue_limit(std::size_t limit)
    {
        return note(lockclient_config_set_queue_limit(config_.get(), limit));
    }
    Config &strict_deadline(bool on)
    {
        return note(lockclient_config_set_strict_deadline(config_.get(), on));
    }
    Config &enforce_budget(bool on)
    {
        return note(lockclient_config_set_enforce_budget(config_.get(), on));
    }
    Config &busy_retry(bool on)
    {
        return note(lockclient_config_set_busy_retry(config_.get(), on));
    }
    Config &ordered_answers(bool on)
    {
        return note(lockclient_config_set_ordered_answers(config_.get(), on));
    }
    /// Gets the log lines of clients that are opened after this, on a thread of each client's; an
    /// empty function gets none. The text is valid during the call. A client whose last owner goes
    /// inside its own log function is closed by a thread of its own, as soon as the function has
    /// returned.
    Config &log(std::function<void(LogLevel, std::string_view)> function)
    {
        if (function) {
            log_.function = std::make_shared<detail::LogFunction>(std::move(function));
            log_.number = detail::LogFunctions::number();
        } else if (log_.number == 0) {
            return *this;
        } else {
            log_ = detail::Log(); // C has no way back: no function has the number 0
        }
        return note(lockclient_config_set_log(config_.get(), detail::LogFunctions::call,
                                              reinterpret_cast<void *>(log_.number)));
    }
    /// How long a client that goes waits for its releases; 5 s if not set.
    Config &close_patience(std::chrono::milliseconds time)
    {
        patience_ = time;
        return *this;
    }

private:
    friend class Client;

    struct Free {
        void operator()(lockclient_config *config) const noexcept { lockclient_config_free(config); }
    };

    Config &note(lockclient_status code)
    {
        if (code != LOCKCLIENT_OK && status_.ok())
            status_ = Status::of(code);
        return *this;
    }

    std::unique_ptr<lockclient_config, Free> config_;
    Status status_;
    detail::Log log_;
    std::chrono::milliseconds patience_ = std::chrono::seconds(5);
};

/// A lock that is held. Its destructor gives it back without waiting and without throwing. It keeps
/// its client open. The lock ends with its lease, whether or not this object lives: pass token() to
/// what the lock protects.
class [[nodiscard]] Lock {
public:
    Lock(Lock &&other) noexcept = default;
    Lock &operator=(Lock &&other) noexcept
    {
        if (this != &other) {
            give_back();
            client_ = std::move(other.client_);
            key_ = std::move(other.key_);
            grant_ = other.grant_;
        }
        return *this;
    }
    Lock(const Lock &) = delete;
    Lock &operator=(const Lock &) = delete;
    ~Lock() { give_back(); }

    const std::string &key() const noexcept { return key_; }
    /// The fencing token.
    std::uint64_t token() const noexcept { return grant_.token; }
    /// The request's correlation id, for logs.
    std::uint64_t owner() const noexcept { return grant_.owner; }
    /// What provably remained of the lease when the lock was handed over.
    std::chrono::milliseconds remaining_at_delivery() const noexcept
    {
        return std::chrono::milliseconds(grant_.remaining_ms);
    }
    /// Whether this object still has the lock to give back: false once it was moved from, released
    /// or detached.
    explicit operator bool() const noexcept { return client_ != nullptr; }

    /// Gives the lock back and waits for the answer, up to 5 s. After LOCKCLIENT_INDETERMINATE the
    /// token may be released again with Client::release. After LOCKCLIENT_E_WOULD_DEADLOCK, inside
    /// the client's own log function, this object still has the lock to give back.
    Status release()
    {
        if (client_ == nullptr)
            return Status(LOCKCLIENT_NOT_HELD, "this object has no lock to give back");
        const lockclient_status code =
            lockclient_release(client_->get(), key_.data(), key_.size(), grant_.token);
        Status status = Status::of(code); // before the client may go
        if (code != LOCKCLIENT_E_WOULD_DEADLOCK)
            client_ = nullptr;
        return status;
    }

    /// The grant, to be released by its token: the lock stays held.
    lockclient_grant detach() noexcept
    {
        client_ = nullptr;
        return grant_;
    }

private:
    friend class Client;
    friend class Ticket;

    Lock(std::shared_ptr<detail::Handle> client, std::string key, lockclient_grant grant) noexcept
        : client_(std::move(client)), key_(std::move(key)), grant_(grant)
    {
    }

    void give_back() noexcept
    {
        if (client_ == nullptr)
            return;
        // If it is refused, the lease's end is the safety net.
        static_cast<void>(
            lockclient_release_start(client_->get(), key_.data(), key_.size(), grant_.token));
        client_ = nullptr;
    }

    std::shared_ptr<detail::Handle> client_;
    std::string key_;
    lockclient_grant grant_;
};

/// An acquire in flight. Its destructor cancels it, or gives an untaken grant back. It keeps its
/// client open.
class [[nodiscard]] Ticket {
public:
    /// Blocks until the acquire has ended, and takes its result.
    Result<Lock> wait()
    {
        lockclient_grant grant;
        const lockclient_status code = lockclient_ticket_wait(ticket_.get(), &grant);
        return taken(code, grant);
    }
    /// Takes the result if there is one. Never blocks.
    [[nodiscard]] std::optional<Result<Lock>> poll()
    {
        lockclient_grant grant;
        const lockclient_status code = lockclient_ticket_poll(ticket_.get(), &grant);
        if (code == LOCKCLIENT_PENDING)
            return std::nullopt;
        return taken(code, grant);
    }
    /// Gives the acquire up; afterwards there is a result. Never blocks.
    Status cancel() { return Status::of(lockclient_ticket_cancel(ticket_.get())); }
    /// Readable as long as there is a result to take; the ticket's own. -1 on failure.
    int fd() { return lockclient_ticket_fd(ticket_.get()); }
    /// To compare with what Client::next_completed returns, and for what lockclient.h has besides.
    lockclient_ticket *native() const noexcept { return ticket_.get(); }

private:
    friend class Client;

    struct Free {
        void operator()(lockclient_ticket *ticket) const noexcept { lockclient_ticket_free(ticket); }
    };

    Ticket(std::shared_ptr<detail::Handle> client, std::string key, lockclient_ticket *ticket) noexcept
        : client_(std::move(client)), key_(std::move(key)), ticket_(ticket)
    {
    }

    Result<Lock> taken(lockclient_status code, const lockclient_grant &grant)
    {
        if (code != LOCKCLIENT_OK)
            return Status::of(code);
        // A result is taken once, so the key is not needed again.
        return Lock(client_, std::move(key_), grant);
    }

    std::shared_ptr<detail::Handle> client_;
    std::string key_;
    std::unique_ptr<lockclient_ticket, Free> ticket_;
};

/// A client. Copies are the same client; it is closed when the last of them, and of its locks and
/// tickets, goes: that waits for the releases under way, up to Config::close_patience. Any thread
/// may use it, and many at once.
class Client {
public:
    static Result<Client> open(const Config &config)
    {
        if (!config.status_.ok())
            return config.status_;
        auto handle = std::make_shared<detail::Handle>(config.patience_);
        const lockclient_status code = handle->open(config.config_.get(), config.log_);
        if (code != LOCKCLIENT_OK)
            return Status::of(code);
        return Client(std::move(handle));
    }

    /// Blocks until some node serves: LOCKCLIENT_NOT_SENT if none does in time.
    Status wait_ready(std::chrono::milliseconds limit) const
    {
        return Status::of(lockclient_wait_ready(native(), detail::limit_ms(limit)));
    }

    /// Blocks until there is an outcome: a lock, or the status that says why not.
    Result<Lock> acquire(std::string_view key, const Acquire &asked) const
    {
        std::string owned(key); // before there is a grant to lose
        lockclient_grant grant;
        const lockclient_status code =
            lockclient_acquire(native(), detail::address(key), key.size(), detail::ms(asked.wait),
                               detail::ms(asked.lease), detail::ms(asked.min_work_budget), &grant);
        if (code != LOCKCLIENT_OK)
            return Status::of(code);
        return Lock(handle_, std::move(owned), grant);
    }

    /// Starts an acquire and returns.
    Result<Ticket> start(std::string_view key, const Acquire &asked) const
    {
        std::string owned(key);
        lockclient_ticket *ticket = nullptr;
        const lockclient_status code = lockclient_acquire_start(
            native(), detail::address(key), key.size(), detail::ms(asked.wait),
            detail::ms(asked.lease), detail::ms(asked.min_work_budget), &ticket);
        if (code != LOCKCLIENT_OK)
            return Status::of(code);
        return Ticket(handle_, std::move(owned), ticket);
    }

    /// Gives a lock back by its token, and waits for the answer, up to 5 s.
    Status release(std::string_view key, std::uint64_t token) const
    {
        return Status::of(
            lockclient_release(native(), detail::address(key), key.size(), token));
    }
    /// Gives a lock back by its token without waiting.
    Status release_start(std::string_view key, std::uint64_t token) const
    {
        return Status::of(
            lockclient_release_start(native(), detail::address(key), key.size(), token));
    }

    /// Ends the client now, whoever uses it: blocked calls return.
    Status shutdown(std::chrono::milliseconds limit) const
    {
        return Status::of(lockclient_shutdown(native(), detail::limit_ms(limit)));
    }

    /// Counts since the client was opened; all zero in a forked child.
    lockclient_stats stats() const noexcept
    {
        lockclient_stats stats;
        static_cast<void>(lockclient_get_stats(native(), &stats, sizeof stats));
        return stats;
    }

    /// Readable while tickets with a result were not fetched. -1 on failure.
    int completion_fd() const { return lockclient_completion_fd(native()); }
    /// The next ticket that has a result, to be compared with Ticket::native; its Ticket still owns
    /// it. NULL: none now.
    lockclient_ticket *next_completed() const { return lockclient_next_completed(native()); }

    /// For what lockclient.h has besides. Not to be closed.
    lockclient *native() const noexcept { return handle_->get(); }

private:
    explicit Client(std::shared_ptr<detail::Handle> handle) noexcept : handle_(std::move(handle)) {}

    std::shared_ptr<detail::Handle> handle_;
};

} // namespace lock_client

#endif
