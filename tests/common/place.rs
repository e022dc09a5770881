//! A place in the file system for a server's socket.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of the test's own, which goes with it. A socket's path has to be short, so it is
/// not where other files of tests are.
#[derive(Debug)]
pub(crate) struct Place {
    directory: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Place {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("lockclient-place-{}-{serial}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("a directory");
        Place { directory }
    }

    /// Where the socket is to be.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.join("lockd.sock")
    }

    /// The same, as an endpoint and as what a server listens on.
    pub(crate) fn endpoint(&self) -> String {
        format!("unix:{}", self.path().to_str().expect("UTF-8"))
    }

    /// A server that listens there and nowhere else.
    pub(crate) fn serve(&self) -> lockd::Server {
        let config = lockd::Config { listen: vec![self.endpoint()], ..lockd::Config::default() };
        lockd::Server::start(config).expect("a server")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
