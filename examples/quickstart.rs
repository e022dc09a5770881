//! A server in this process, and what a client meets there: who holds a lock, with which fencing
//! token, and every way in which an acquire can end without it.
//!
//! `cargo run --example quickstart`

use lockclient::{Acquire, Client, Config, Outcome, Released};
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn Error>> {
    // Room for ten locks, so that "busy" can be shown: it refuses from nine on.
    let server =
        lockd::Server::start(lockd::Config { max_locks: 10, ..lockd::Config::on_free_port() })?;
    println!("a lockd in this process, at {}", server.addr());
    let client = Config::new().endpoint(&server.addr().to_string())?.open()?;

    contend(&client)?;
    time_out(&client)?;
    give_up(&client)?;
    meet_a_full_server(&client)?;
    release_twice(&client)?;

    println!("\nclosed: {:?}", client.shutdown(Duration::from_secs(5))?);
    server.stop()?;
    Ok(())
}

/// Up to `wait` for the lock, for work that takes half a second at the worst.
fn within(wait: Duration) -> Acquire {
    Acquire::new(wait, Duration::from_millis(500))
}

fn contend(client: &Client) -> Result<(), Box<dyn Error>> {
    println!("\nFour threads want the lock \"orders/42\":");
    let start = Instant::now();
    thread::scope(|scope| {
        for name in ["ada", "ben", "cleo", "dan"] {
            scope.spawn(move || match client.acquire("orders/42", &within(Duration::from_secs(20))) {
                Ok(Outcome::Acquired(lock)) => {
                    println!(
                        "  {:4} ms  {name} holds it, token {}, at least {} ms of the lease left",
                        start.elapsed().as_millis(),
                        lock.token(),
                        lock.remaining().as_millis()
                    );
                    let held = Instant::now();
                    // The work; what the lock protects is handed the token.
                    thread::sleep(Duration::from_millis(150));
                    println!(
                        "  {:4} ms  {name} gives it back, having held it for {} ms",
                        start.elapsed().as_millis(),
                        held.elapsed().as_millis()
                    );
                    if !matches!(lock.release(), Ok(Released::Released)) {
                        println!("  {name}: its release was not confirmed");
                    }
                }
                other => println!("  {name}: {other:?}"),
            });
        }
    });
    Ok(())
}

fn time_out(client: &Client) -> Result<(), Box<dyn Error>> {
    println!("\nSomebody else holds \"report\":");
    let lock = client.acquire("report", &within(Duration::ZERO))?.acquired().ok_or("not held")?;
    let start = Instant::now();
    let outcome = client.acquire("report", &within(Duration::ZERO))?;
    println!("  a try at once: {outcome:?}, after {} ms", start.elapsed().as_millis());
    let start = Instant::now();
    let outcome = client.acquire("report", &within(Duration::from_secs(1)))?;
    println!("  a second's wait: {outcome:?}, after {} ms", start.elapsed().as_millis());
    drop(lock); // gives it back without waiting for the answer
    let outcome = client.acquire("report", &within(Duration::ZERO))?;
    println!("  given back, then a try: {}", name(&outcome));
    Ok(())
}

fn give_up(client: &Client) -> Result<(), Box<dyn Error>> {
    println!("\nA ticket waits without a thread, until it is cancelled:");
    let lock = client.acquire("slow", &within(Duration::ZERO))?.acquired().ok_or("not held")?;
    let ticket = client.start("slow", &within(Duration::from_secs(20)))?;
    while client.stats().in_flight_now == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    println!("  after it was sent: {}", ticket.poll()?.map_or("no result yet", |it| name(&it)));
    ticket.cancel();
    match ticket.wait()? {
        Outcome::Indeterminate(why) => {
            println!("  cancelled: the outcome is unknown ({why}), so the work is not begun");
        }
        outcome => println!("  cancelled: {}", name(&outcome)),
    }
    let released = lock.release()?;
    println!("  its holder was not disturbed: {released:?}");
    Ok(())
}

fn meet_a_full_server(client: &Client) -> Result<(), Box<dyn Error>> {
    println!("\nThe server has room for ten locks, and refuses before it is full:");
    let mut held = Vec::new();
    for number in 1..=10 {
        match client.acquire(&format!("many/{number}"), &within(Duration::from_secs(1)))? {
            Outcome::Acquired(lock) => held.push(lock),
            outcome => {
                println!("  lock {number}: {}; nothing waits there for it", name(&outcome));
                break;
            }
        }
    }
    println!("  {} locks are given back by dropping them", held.len());
    Ok(())
}

fn release_twice(client: &Client) -> Result<(), Box<dyn Error>> {
    println!("\nA token releases its lock once:");
    let grant = client
        .acquire("once", &within(Duration::from_secs(5)))?
        .acquired()
        .ok_or("not held")?
        .into_grant();
    println!("  token {}: {:?}", grant.token(), client.release("once", grant.token())?);
    println!("  token {}: {:?}", grant.token(), client.release("once", grant.token())?);
    Ok(())
}

fn name<T>(outcome: &Outcome<T>) -> &'static str {
    match outcome {
        Outcome::Acquired(_) => "acquired",
        Outcome::TimedOut => "timed out",
        Outcome::Busy => "busy",
        Outcome::NotSent(_) => "not sent",
        Outcome::Cancelled => "cancelled",
        Outcome::Indeterminate(_) => "unknown",
    }
}
