//! The job of this process: joined once, because MPI can be initialised once.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::error::{RanksError, Result};
use crate::heartbeat::Heartbeat;
use crate::launcher::Launcher;
use crate::messenger::{Messenger, MessengerOrder};
use crate::mpi::Mpi;
use crate::ranks::{Identity, Ranks};

/// Seconds that a rank may keep the others waiting, unless `CFO_RANKS_TIMEOUT` says otherwise.
const LIMIT: u64 = 300;

static WORLD: OnceLock<Ranks> = OnceLock::new();

/// The job that this process has joined; `None` for a process alone.
pub fn world() -> Option<&'static Ranks> {
    WORLD.get()
}

/// Joins the other processes that a launcher started; `None` if none did, or `CFO_MPI` is `off`.
///
/// `version` is this program's, which must be that of all; `report` tells a user why the job ended.
///
/// # Errors
/// If no MPI library is found, it does not belong to the launcher, or the ranks run different versions.
pub fn join(version: &str, report: fn(&str)) -> Result<Option<&'static Ranks>> {
    let named = named_library();
    let Some(launcher) = launcher(named.as_deref()) else { return Ok(None) };
    let (answer, answered) = channel();
    let (orders, received) = channel();
    let own = Identity { version: version.into(), host: host_name().unwrap_or_else(|| "unknown".into()) };
    let start = move || serve(launcher, named, own, report, (orders, received), &answer);
    let spawned = std::thread::Builder::new().name("ranks".into()).spawn(start);
    spawned.expect("the system gives a thread");
    match answered.recv().expect("the thread answers before it serves") {
        // One process alone needs no MPI.
        Err(RanksError::NoMpi { size: Some(1), .. }) => Ok(None),
        Err(error) => Err(error),
        Ok(ranks) => {
            let ranks = WORLD.get_or_init(|| ranks);
            check_versions(ranks)?;
            Ok(Some(ranks))
        }
    }
}

/// Refuses to work as one of several copies: in a process that a launcher started with others and that has not joined them.
///
/// # Errors
/// If it is one, unless `CFO_MPI` is `off`.
pub fn require_joined() -> Result<()> {
    match launcher(named_library().as_deref()) {
        Some(launcher) if launcher.size != Some(1) && world().is_none() => {
            Err(RanksError::NotJoined { launcher: launcher.name(), size: launcher.size })
        }
        _ => Ok(()),
    }
}

fn named_library() -> Option<PathBuf> {
    std::env::var_os("CFO_MPI").filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// Who started this process, unless the user wants it to work alone.
fn launcher(named: Option<&Path>) -> Option<Launcher> {
    Launcher::detect().filter(|_| named.is_none_or(|name| !name.ends_with("off")))
}

/// The thread: joins, tells who joined, and serves.
fn serve(
    launcher: Launcher,
    named: Option<PathBuf>,
    own: Identity,
    report: fn(&str),
    (orders, received): (Sender<MessengerOrder>, Receiver<MessengerOrder>),
    answer: &Sender<Result<Ranks>>,
) {
    let joined = Mpi::join(launcher, named).and_then(|mpi| {
        let mut messenger = Messenger {
            mpi,
            hosts: Vec::new(),
            limit: limit(),
            report,
            sequence: 0,
            waiting: Default::default(),
            failures: Vec::new(),
            failed: None,
            watched: None,
            heartbeat: Heartbeat::new(),
        };
        let Identity { version, host } = own;
        let all = messenger.gather(format!("{version}\n{host}").as_bytes())?;
        let identities: Vec<Identity> = all.iter().map(|bytes| identity(bytes)).collect();
        messenger.hosts = identities.iter().map(|one| one.host.clone()).collect();
        Ok((messenger, identities))
    });
    match joined {
        Err(error) => drop(answer.send(Err(error))),
        Ok((mut messenger, identities)) => {
            let ranks = Ranks {
                rank: messenger.mpi.rank,
                identities,
                library: messenger.mpi.file.clone(),
                version: messenger.mpi.version(),
                orders,
            };
            let _ = answer.send(Ok(ranks));
            messenger.serve(&received);
        }
    }
}

fn identity(bytes: &[u8]) -> Identity {
    let text = String::from_utf8_lossy(bytes);
    let mut words = text.split('\n');
    let mut word = || words.next().unwrap_or_default().to_owned();
    Identity { version: word(), host: word() }
}

fn check_versions(ranks: &Ranks) -> Result<()> {
    let first = &ranks.identities[0].version;
    match ranks.identities.iter().position(|one| one.version != *first) {
        None => Ok(()),
        Some(rank) => Err(RanksError::Different {
            rank,
            host: ranks.host(rank).into(),
            what: "version",
            found: ranks.identities[rank].version.clone(),
            expected: first.clone(),
        }),
    }
}

fn limit() -> Duration {
    let seconds = std::env::var("CFO_RANKS_TIMEOUT").ok().and_then(|text| text.trim().parse().ok());
    Duration::from_secs(seconds.filter(|&seconds| seconds > 0).unwrap_or(LIMIT))
}

/// Returns the machine's name, if the system tells it.
pub fn host_name() -> Option<String> {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let told = told.or_else(|| std::env::var("HOSTNAME").ok());
    told.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
}
