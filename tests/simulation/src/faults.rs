//! What goes wrong, how often, and the means to switch any single fault off again.

use crate::rng::Rng;
use crate::time::{MICRO, MILLI, SECOND, Time};

macro_rules! kinds {
    ($($kind:ident, $text:literal;)*) => {
        /// A kind of fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind {
            $(#[doc = $text] $kind,)*
        }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind,)*];

            /// One English clause.
            pub fn text(self) -> &'static str {
                match self { $(Kind::$kind => $text,)* }
            }
        }
    };
}

kinds! {
    PartialWrite, "a send takes only some of the client's bytes";
    WouldBlock, "a send takes none of the client's bytes";
    ShortRead, "a read gives only some of the bytes that are there";
    ServerPartialWrite, "a send takes only some of the server's bytes";
    ResetAtByte, "a connection breaks after a certain byte";
    ResetNow, "a connection breaks at any moment";
    ServerHalfClose, "the server shuts down its writing side and goes on reading";
    Delay, "a packet is late";
    BlackHole, "a path swallows packets for a while";
    DialRefused, "a connection is refused";
    ServerPause, "a server stands still for a while";
    ServerKill, "a server dies and is started again";
    LeaderMove, "another node becomes leader";
    LeaderNotice, "a server says `L`";
    SpuriousMoved, "a server says `M` out of turn";
    ServerError, "a server says `E` out of turn";
    Garbage, "a server sends what the protocol does not allow";
    WrongAnswer, "a server answers a request that nobody made";
    Stall, "the client's thread is stopped before its turn";
    StallInTurn, "the client's thread is stopped in the middle of its turn";
    Suspend, "the client's machine is suspended";
    LateWake, "a caller wakes late";
    Cancel, "a caller cancels";
    AbandonHold, "a holder never releases";
    OverHold, "a holder releases after its lease";
    Close, "a client is closed";
    Abort, "a client's thread ends";
    DiskFault, "the server's disk fails";
    CleanStop, "a server is stopped and started again";
    ServerStallInTurn, "a server's thread is stopped in the middle of its turn";
    SlowSync, "the server's disk takes its time";
}

const KINDS: usize = Kind::ALL.len();

impl Kind {
    /// The chance at each occasion, at full strength. Faults of the surroundings have an occasion
    /// at every call.
    fn most(self) -> f64 {
        match self {
            Kind::PartialWrite | Kind::ShortRead | Kind::ServerPartialWrite => 0.1,
            Kind::WouldBlock => 0.05,
            Kind::Cancel => 0.1,
            Kind::ResetAtByte => 0.3,
            Kind::DialRefused => 0.2,
            Kind::Delay => 0.02,
            Kind::LateWake => 0.05,
            Kind::SlowSync => 0.3,
            Kind::Stall => 0.01,
            Kind::StallInTurn => 0.004,
            Kind::AbandonHold | Kind::OverHold => 0.01,
            Kind::ResetNow => 0.02,
            Kind::LeaderNotice => 0.01,
            Kind::ServerHalfClose => 0.005,
            Kind::BlackHole | Kind::ServerPause => 0.006,
            Kind::ServerStallInTurn => 0.002,
            Kind::SpuriousMoved | Kind::ServerError | Kind::Garbage | Kind::WrongAnswer => 0.003,
            Kind::LeaderMove | Kind::Suspend => 0.002,
            Kind::ServerKill | Kind::CleanStop | Kind::DiskFault => 0.001,
            Kind::Close | Kind::Abort => 0.0006,
        }
    }

    /// Whether it comes from the surroundings, some time after a call.
    pub(crate) fn is_of_surroundings(self) -> bool {
        use Kind::{
            Abort, BlackHole, CleanStop, Close, DiskFault, Garbage, LeaderMove, LeaderNotice,
            ResetNow, ServerError, ServerHalfClose, ServerKill, ServerPause, SpuriousMoved,
            Suspend, WrongAnswer,
        };
        matches!(
            self,
            ResetNow
                | ServerHalfClose
                | BlackHole
                | ServerPause
                | ServerKill
                | LeaderMove
                | LeaderNotice
                | SpuriousMoved
                | ServerError
                | Garbage
                | WrongAnswer
                | Suspend
                | Close
                | Abort
                | DiskFault
                | CleanStop
        )
    }
}

/// Faults that are left out, to find those that matter.
#[derive(Debug, Clone, Default)]
pub struct Skip {
    /// Kinds left out altogether.
    pub kinds: Vec<Kind>,
    /// Single faults, by kind and number.
    pub single: Vec<(Kind, u32)>,
}

/// Draws the faults of a run. Every kind has a stream of its own, so that leaving one out leaves
/// the draws of the others as they were.
#[derive(Debug)]
pub(crate) struct Faults {
    streams: [Rng; KINDS],
    /// The chance at each occasion, of 2^32.
    chance: [u64; KINDS],
    /// The kinds of the surroundings' that this run has.
    pub(crate) surroundings: Vec<Kind>,
    drawn: [u32; KINDS],
    skip: Skip,
    /// How often each happened.
    pub happened: [u64; KINDS],
    /// Every one that happened, if they are wanted.
    pub trail: Option<Vec<(Kind, u32)>>,
    off: bool,
}

impl Faults {
    /// The mix of a seed: of some runs few kinds or none, of others most; each at its own strength.
    pub(crate) fn new(seed: u64, skip: Skip) -> Faults {
        let mut rng = Rng::new(seed, 1);
        // Of 16.
        let share = [0, 1, 2, 4, 8, 12, 14][rng.below(7) as usize];
        let mut chance = [0; KINDS];
        for kind in Kind::ALL {
            let strength = 1.0 / rng.spread(1, 20) as f64;
            if rng.below(16) < share && !skip.kinds.contains(kind) {
                chance[*kind as usize] = (kind.most() * strength * 4_294_967_296.0) as u64;
            }
        }
        let surroundings = |kind: &&Kind| kind.is_of_surroundings() && chance[**kind as usize] > 0;
        let surroundings = Kind::ALL.iter().filter(surroundings).copied().collect();
        Faults {
            streams: std::array::from_fn(|at| Rng::new(seed, 100 + at as u64)),
            chance,
            surroundings,
            drawn: [0; KINDS],
            skip,
            happened: [0; KINDS],
            trail: None,
            off: false,
        }
    }

    /// No more faults from now on.
    pub(crate) fn end(&mut self) {
        self.off = true;
    }

    /// Whether faults have ended.
    pub(crate) fn are_over(&self) -> bool {
        self.off
    }

    /// Whether a fault of this kind happens at this occasion.
    #[inline]
    pub(crate) fn happens(&mut self, kind: Kind) -> bool {
        let at = kind as usize;
        if self.chance[at] == 0 {
            return false;
        }
        if self.streams[at].next() >> 32 >= self.chance[at] {
            return false;
        }
        self.draw(kind)
    }

    fn draw(&mut self, kind: Kind) -> bool {
        let at = kind as usize;
        let number = self.drawn[at];
        self.drawn[at] += 1;
        if self.off || self.skip.single.contains(&(kind, number)) {
            return false;
        }
        self.happened[at] += 1;
        if let Some(trail) = &mut self.trail {
            trail.push((kind, number));
        }
        true
    }

    /// The last one found nothing that it could happen to.
    pub(crate) fn was_in_vain(&mut self, kind: Kind) {
        self.happened[kind as usize] -= 1;
    }

    /// How long after a call a fault of the surroundings comes.
    pub(crate) fn delay(&mut self, kind: Kind) -> Time {
        self.rng(kind).spread(MICRO, 2 * SECOND)
    }

    /// A draw from the kind's own stream.
    pub(crate) fn rng(&mut self, kind: Kind) -> &mut Rng {
        &mut self.streams[kind as usize]
    }

    /// How long a fault of this kind lasts.
    pub(crate) fn duration(&mut self, kind: Kind) -> Time {
        let (least, most) = match kind {
            Kind::Delay => (MILLI, 3 * SECOND),
            Kind::BlackHole => (100 * MILLI, 15 * SECOND),
            Kind::ServerPause => (10 * MILLI, 8 * SECOND),
            Kind::ServerKill | Kind::CleanStop => (MILLI, 5 * SECOND),
            Kind::LeaderMove => (MILLI, 3 * SECOND),
            Kind::Stall => (100 * MICRO, 8 * SECOND),
            Kind::StallInTurn | Kind::ServerStallInTurn => (10 * MICRO, 4 * SECOND),
            Kind::SlowSync => (MILLI, 4 * SECOND),
            Kind::Suspend => (SECOND, 20 * SECOND),
            Kind::LateWake => (MILLI, 10 * SECOND),
            Kind::Cancel => (MICRO, SECOND),
            Kind::OverHold => (MILLI, 3 * SECOND),
            _ => (MICRO, MILLI),
        };
        self.rng(kind).spread(least, most)
    }
}
