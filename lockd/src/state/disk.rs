//! The few things that are done to the state directory, one by one: a test fails each of them.

use super::record::MAX_RECORD;
use rustix::fs::{FlockOperation, flock};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The steps that replace the state file, in the order in which they are taken.
pub trait Disk: fmt::Debug + Send {
    /// The state file's content; `None` if there is no such file.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&mut self) -> io::Result<Option<Vec<u8>>>;
    /// Writes the new content beside the state file.
    ///
    /// # Errors
    /// It was not written, or not all of it.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Waits until the new content is on the disk.
    ///
    /// # Errors
    /// Nothing is known of what is there.
    fn sync_file(&mut self) -> io::Result<()>;
    /// Puts the new content in the state file's place.
    ///
    /// # Errors
    /// It may have happened all the same.
    fn rename(&mut self) -> io::Result<()>;
    /// Waits until the replacement is on the disk.
    ///
    /// # Errors
    /// Nothing is known of what is there.
    fn sync_directory(&mut self) -> io::Result<()>;
}

/// A directory that this process has for itself.
#[derive(Debug)]
pub(super) struct Directory {
    /// Locked too: the lock file can be removed, and then another server would lock one of its own.
    directory: File,
    path: PathBuf,
    /// Given back for a moment to open the new file: peers can take all other descriptors.
    spare: Option<File>,
    state: PathBuf,
    new: PathBuf,
    written: Option<File>,
    /// Locked for as long as it is open.
    _lock: File,
}

impl Directory {
    /// Takes the directory, and makes it if it does not exist.
    pub(super) fn open(path: &Path) -> io::Result<Directory> {
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                File::open(parent.unwrap_or(Path::new(".")))?.sync_all()?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = options.open(path.join("lock"))?;
        let directory = File::open(path)?;
        for (file, is_directory) in [(&lock, false), (&directory, true)] {
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    let what = "another lockd is using it";
                    return Err(io::Error::new(io::ErrorKind::ResourceBusy, what));
                }
                // Some network file systems lock only what can be written to.
                Err(_) if is_directory => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Directory {
            path: path.into(),
            spare: directory.try_clone().ok(),
            directory,
            state: path.join("state"),
            new: path.join("state.new"),
            written: None,
            _lock: lock,
        })
    }
}

impl Directory {
    /// The path may lead elsewhere by now: another directory was mounted over it or has taken its
    /// place, and with it another server's state.
    fn check_place(&self) -> io::Result<()> {
        let (ours, there) = (self.directory.metadata()?, fs::metadata(&self.path)?);
        if (ours.dev(), ours.ino()) == (there.dev(), there.ino()) {
            return Ok(());
        }
        Err(io::Error::other("another directory has taken its place"))
    }
}

impl Disk for Directory {
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(&self.state) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(MAX_RECORD as u64 + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        self.check_place()?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        self.spare = None;
        let mut file = options.open(&self.new)?;
        while !bytes.is_empty() {
            match file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.written = Some(file);
        Ok(())
    }

    fn sync_file(&mut self) -> io::Result<()> {
        let synced = match self.written.take() {
            Some(file) => file.sync_all(),
            None => Err(io::Error::other("nothing was written")),
        };
        self.spare = self.directory.try_clone().ok();
        synced
    }

    fn rename(&mut self) -> io::Result<()> {
        self.check_place()?;
        fs::rename(&self.new, &self.state)
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        self.directory.sync_all()
    }
}
