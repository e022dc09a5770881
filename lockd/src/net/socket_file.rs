//! A listening socket's place in the file system, for one server at a time.
//!
//! A socket that was bound and does not listen yet looks just like one that a killed server left
//! behind, and nothing removes a file only if it is still the one that was looked at. So the place is
//! taken first, with a lock on a file beside the socket.

use rustix::fs::{FlockOperation, OFlags, flock};
use socket2::{SockAddr, Socket};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Keeps a socket's place, and removes the socket's file at the end unless another has taken that.
///
/// The lock's file stays: were it removed, one server could lock the old file and another a new one.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    /// Locked for as long as it is open, which is until after the socket's file was removed.
    _lock: File,
}

impl SocketFile {
    /// Takes the place `path`, where a killed server may have left its socket, and binds `socket`
    /// to it.
    ///
    /// # Errors
    /// `AddrInUse` if another has the place.
    pub(crate) fn bind(socket: &Socket, path: &Path) -> io::Result<SocketFile> {
        if path.as_os_str().is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no path was given"));
        }
        let address = SockAddr::unix(path)?;
        let _lock = lock(path)?;
        if is_abandoned(path) {
            std::fs::remove_file(path)?;
        }
        socket.bind(&address)?;
        Ok(SocketFile { path: path.into(), identity: identity(path)?, _lock })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|identity| identity == self.identity) {
            // A file that stays is found abandoned by the next server.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Locks the file beside the socket `path`, and makes it if it is missing.
fn lock(path: &Path) -> io::Result<File> {
    let mut name = OsString::from(path);
    name.push(".lock");
    let name = PathBuf::from(name);
    let named = |error: io::Error| {
        io::Error::new(error.kind(), format!("lock file {}: {error}", name.display()))
    };
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    // It is nobody's way to another file, and what is no file must not be waited for.
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
    let file = options.open(&name).map_err(named)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let what = io::Error::new(io::ErrorKind::AddrInUse, "another lockd has locked it");
            Err(named(what))
        }
        Err(error) => Err(named(error.into())),
    }
}

/// Whether `path` is a socket that nobody listens on.
fn is_abandoned(path: &Path) -> bool {
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    let refused = UnixStream::connect(path)
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    is_socket && refused
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Listener;
    use socket2::{Domain, Type};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::sync::Barrier;

    fn bind(path: &Path) -> io::Result<Vec<Listener>> {
        Listener::bind(&format!("unix:{}", path.display()))
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        (dir, path)
    }

    /// A socket that is bound and not listened on.
    fn bound(path: &Path) -> Socket {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
        socket.bind(&SockAddr::unix(path).unwrap()).unwrap();
        socket
    }

    #[test]
    fn an_abandoned_socket_is_replaced_and_one_in_use_is_not() {
        let (dir, path) = place();
        drop(bound(&path));
        assert!(path.exists(), "nobody removed it");
        let first = bind(&path).unwrap();
        let error = bind(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let text = error.to_string();
        assert!(text.contains("socket.lock") && text.contains("another lockd"), "{text}");
        UnixStream::connect(&path).expect("the first listens still");
        drop(first);
        assert!(!path.exists());
        let lock = std::fs::metadata(dir.path().join("socket.lock")).expect("it stays");
        assert_eq!(lock.permissions().mode() & 0o777, 0o600);
        bind(&path).expect("nobody has the lock any more");
    }

    #[test]
    fn a_socket_of_a_program_that_takes_no_lock_is_in_use_too() {
        let (_dir, path) = place();
        let _other = UnixListener::bind(&path).unwrap();
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        UnixStream::connect(&path).expect("it listens still");
    }

    #[test]
    fn what_took_the_sockets_place_is_not_removed() {
        let (_dir, path) = place();
        let first = bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
    }

    #[test]
    fn a_server_that_does_not_listen_yet_has_its_place() {
        let (_dir, path) = place();
        let first = bind(&path).unwrap();
        // As it is between binding and listening.
        std::fs::remove_file(&path).unwrap();
        let _starting = bound(&path);
        let before = identity(&path).unwrap();
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(identity(&path).unwrap(), before, "its socket is left alone");
        drop(first);
    }

    #[test]
    fn of_many_that_start_at_once_one_listens_and_can_be_reached() {
        for _ in 0..50 {
            let (_dir, path) = place();
            drop(bound(&path));
            let barrier = Barrier::new(8);
            let start = || {
                barrier.wait();
                bind(&path).ok()
            };
            let listening: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(start)).collect();
                threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(listening.len(), 1);
            let _peer = UnixStream::connect(&path).expect("it is there");
            listening[0][0].accept().expect("its connection");
        }
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let (_dir, path) = place();
        std::fs::write(&path, "data").unwrap();
        bind(&path).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
    }

    #[test]
    fn no_path_is_an_error_and_leaves_nothing() {
        assert_eq!(bind(Path::new("")).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(!Path::new(".lock").exists());
    }
}
