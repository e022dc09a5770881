//! The disk under the server's state: it fails at any step, and forgets what was not synced.

use crate::rng::Rng;
use lockd::state::Disk;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Clone)]
struct Content {
    bytes: Vec<u8>,
    synced: bool,
}

#[derive(Debug)]
struct Platter {
    /// What a process reads under the state file's name.
    state: Option<Content>,
    /// What is there after a loss of power: the same, less the renames that are not synced.
    durable: Option<Content>,
    /// The new content beside it.
    new: Option<Content>,
    /// The step that fails, counted from now.
    fails_in: Option<u64>,
    /// A step has failed since the server was started.
    failed: bool,
    /// Things that were synced and not counted yet.
    syncs: u64,
    rng: Rng,
}

/// A disk, which outlives the servers that use it.
#[derive(Debug, Clone)]
pub(crate) struct SimulatedDisk(Arc<Mutex<Platter>>);

impl SimulatedDisk {
    pub(crate) fn new(rng: Rng) -> SimulatedDisk {
        SimulatedDisk(Arc::new(Mutex::new(Platter {
            state: None,
            durable: None,
            new: None,
            fails_in: None,
            failed: false,
            syncs: 0,
            rng,
        })))
    }

    fn platter(&self) -> MutexGuard<'_, Platter> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The step after `steps` others fails; `None`: no step does.
    pub(crate) fn fail_in(&self, steps: Option<u64>) {
        self.platter().fails_in = steps;
    }

    /// Whether a step has failed since the server was started.
    pub(crate) fn has_failed(&self) -> bool {
        self.platter().failed
    }

    /// How often something was synced since this was last asked.
    pub(crate) fn take_syncs(&self) -> u64 {
        std::mem::take(&mut self.platter().syncs)
    }

    /// A server is started.
    pub(crate) fn begin(&self) {
        self.platter().failed = false;
    }

    /// The machine loses its power. Of what was not synced any part may be missing.
    pub(crate) fn lose_power(&self) {
        let Platter { state, durable, new, rng, .. } = &mut *self.platter();
        if rng.one_in(2) {
            state.clone_from(durable);
        }
        if let Some(content) = state
            && !content.synced
        {
            content.bytes.truncate(rng.below(content.bytes.len() as u64 + 1) as usize);
        }
        durable.clone_from(state);
        *new = None;
    }

    /// One step, which may fail; one that fails may have had its effect, or a part of it.
    fn step(&self, effect: impl FnOnce(&mut Platter)) -> io::Result<()> {
        let mut platter = self.platter();
        let fails = platter.fails_in == Some(0);
        platter.fails_in = platter.fails_in.and_then(|steps| steps.checked_sub(1));
        if !fails {
            effect(&mut platter);
            return Ok(());
        }
        platter.failed = true;
        if platter.rng.one_in(2) {
            effect(&mut platter);
            let Platter { new, rng, .. } = &mut *platter;
            if let Some(content) = new
                && !content.synced
            {
                content.bytes.truncate(rng.below(content.bytes.len() as u64 + 1) as usize);
            }
        }
        Err(io::Error::other("a fault of the disk"))
    }
}

impl Disk for SimulatedDisk {
    fn read(&mut self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.platter().state.as_ref().map(|content| content.bytes.clone()))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let content = Content { bytes: bytes.to_vec(), synced: false };
        self.step(|platter| platter.new = Some(content))
    }

    fn sync_file(&mut self) -> io::Result<()> {
        self.platter().syncs += 1;
        self.step(|platter| {
            if let Some(content) = &mut platter.new {
                content.synced = true;
            }
        })
    }

    fn rename(&mut self) -> io::Result<()> {
        self.step(|platter| platter.state = platter.new.take())
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        self.platter().syncs += 1;
        self.step(|platter| platter.durable.clone_from(&platter.state))
    }
}
