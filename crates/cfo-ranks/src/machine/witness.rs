//! A process that sees the ranks of a machine end, and says so if nobody else has.
//!
//! A launcher that hears of a rank's death ends the others at once, before any of them can say who died, and it may know processes
//! only. The witness is none of the launcher's: a copy of the machine's first rank that holds nothing but its stderr, a line to every
//! rank, whose other end that rank alone holds, and a handle of its process. It ends with the first of them.
//!
//! Linux closes the files of a process that dies from the last one opened to the first. A line is opened after the files by which a
//! launcher knows a rank, so that lines break in the order in which ranks died, before the launcher has ended others.

use std::fs::OpenOptions;
use std::io::{PipeReader, PipeWriter};
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use super::Machine;

/// Where it lies whether an end of ranks has been explained.
pub(super) const EXPLAINED: usize = 384;
/// Milliseconds that the launcher has to end the other ranks before the witness does.
const GRACE: i32 = 4000;

/// A rank as it is called in messages.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) rank: usize,
    pub(crate) host: String,
    pub(crate) process: u32,
}

impl Life {
    fn obituary(&self) -> String {
        let Self { rank, host, process } = self;
        format!(
            "error: rank {rank} on {host} (process {process}) has ended without a word: killed, crashed or out of memory\n\n\
             hint: the system's log (`dmesg`) says what was killed for want of memory; `--resume` goes on from the latest \
             checkpoint, with any number of ranks\n"
        )
    }
}

impl Machine {
    /// Whether an end of ranks has been explained, or needs no explanation.
    fn explained(&self) -> &AtomicU32 {
        // SAFETY: zeros are one, and it is touched as an atomic alone.
        unsafe { self.memory.at::<AtomicU32>(EXPLAINED, 1).as_ref() }
    }

    /// From now on ranks may end: they are done, or why they are not is being said.
    pub(crate) fn expect_end(&self) {
        self.explained().store(1, Ordering::Release);
    }

    /// Starts the witness of these processes, which writes to an open file; nothing where the system refuses. Returns the witness's
    /// process. This one keeps its own line, the first.
    pub(crate) fn call_witness(&self, lives: &[Life], lines: Lines, to: RawFd) -> Option<i32> {
        let texts: Vec<String> = lives.iter().map(Life::obituary).collect();
        let (ends, mut held): (Vec<PipeReader>, Vec<PipeWriter>) = lines.0.into_iter().unzip();
        let files = Files::open(lives, &ends, to)?;
        // SAFETY: the copy makes system calls only, on memory that is there already: of a process with threads no more is allowed.
        let copy = unsafe { libc::fork() };
        if copy == 0 {
            // SAFETY: as above.
            unsafe { testify(self.explained(), &files, &texts) }
        }
        for file in files.handles.into_iter().chain([files.queue]) {
            // SAFETY: opened for the witness, and used no more.
            unsafe { libc::close(file) };
        }
        // Held for as long as this process lives.
        let _ = held.swap_remove(0).into_raw_fd();
        (copy > 0).then_some(copy)
    }
}

/// A line to every rank, as the first one makes them: the witness's end and the rank's.
#[derive(Debug)]
pub(crate) struct Lines(Vec<(PipeReader, PipeWriter)>);

impl Lines {
    pub(super) fn make(size: usize) -> Option<Self> {
        (0..size).map(|_| std::io::pipe().ok()).collect::<Option<_>>().map(Self)
    }

    /// The numbers of the ranks' ends.
    pub(super) fn places(&self) -> String {
        self.0.iter().map(|(_, end)| format!(" {}", end.as_raw_fd())).collect()
    }

    /// Takes a rank's end of its line, for as long as this process lives.
    pub(super) fn hold(process: &str, file: &str) -> Option<()> {
        let end = OpenOptions::new().write(true).open(format!("/proc/{process}/fd/{file}")).ok()?;
        let _ = end.into_raw_fd();
        Some(())
    }
}

/// What the witness holds.
struct Files {
    /// Where it writes.
    to: RawFd,
    /// Tells which line is broken, in the order in which they broke.
    queue: RawFd,
    /// Its ends of the lines.
    lines: Vec<RawFd>,
    /// Handles of the processes, where the system has such.
    handles: Vec<RawFd>,
}

impl Files {
    fn open(lives: &[Life], ends: &[PipeReader], to: RawFd) -> Option<Self> {
        // SAFETY: takes and returns numbers.
        let queue = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let lines: Vec<RawFd> = ends.iter().map(AsRawFd::as_raw_fd).collect();
        for (index, &line) in lines.iter().enumerate() {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: index as u64 };
            // SAFETY: numbers, and an event that is copied.
            if unsafe { libc::epoll_ctl(queue, libc::EPOLL_CTL_ADD, line, &mut event) } != 0 {
                return None;
            }
        }
        // SAFETY: takes and returns numbers.
        let handle = |life: &Life| unsafe { libc::syscall(libc::SYS_pidfd_open, life.process, 0) as RawFd };
        Some(Self { to, queue, lines, handles: lives.iter().map(handle).collect() })
    }

    /// The number of the process that ends first.
    unsafe fn first_end(&self) -> usize {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: there is room for one event; an interrupted wait is begun again.
        while unsafe { libc::epoll_wait(self.queue, &mut event, 1, -1) } != 1 {}
        event.u64 as usize
    }

    /// Ends the ranks that the launcher leaves alive.
    unsafe fn end_all(&self) {
        let mut patience = GRACE;
        for (&fd, &handle) in self.lines.iter().zip(&self.handles) {
            let mut line = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: the handle is that of a process, whether it still runs or not.
            unsafe {
                if libc::poll(&mut line, 1, patience) == 0 {
                    patience = 0;
                    libc::syscall(libc::SYS_pidfd_send_signal, handle, libc::SIGKILL, 0, 0);
                }
            }
        }
    }

    /// Closes all other files: whoever waits for the end of a rank's files must not wait for the witness.
    unsafe fn close_others(&self) {
        let own = || self.lines.iter().chain(&self.handles).copied().chain([self.to, self.queue]);
        let last = own().fold(self.to, RawFd::max);
        // SAFETY: numbers of files, open or not.
        unsafe {
            for fd in (0..last).filter(|&fd| own().all(|kept| kept != fd)) {
                libc::close(fd);
            }
            libc::syscall(libc::SYS_close_range, last + 1, libc::c_uint::MAX, 0);
        }
    }
}

/// The witness's life.
///
/// # Safety
/// To be called in a copy of the process made for it.
unsafe fn testify(explained: &AtomicU32, files: &Files, texts: &[String]) -> ! {
    // SAFETY: system calls on values of this process.
    unsafe {
        // Neither the terminal nor the launcher ends it with the ranks.
        libc::setsid();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        files.close_others();
        let text = &texts[files.first_end()];
        if explained.swap(1, Ordering::AcqRel) != 0 {
            libc::_exit(0);
        }
        libc::write(files.to, text.as_ptr().cast(), text.len());
        // The launcher waits until nobody holds this.
        libc::close(files.to);
        files.end_all();
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::process::{Child, Command};

    use super::*;

    /// What the witness of three processes says when the second one ends.
    fn said(explained: bool) -> (String, Vec<Child>) {
        let (machine, mut lines, _) = Machine::create(3).unwrap();
        let start = |(_, end): &(PipeReader, PipeWriter)| {
            Command::new("sleep").arg("60").stdin(end.try_clone().unwrap()).spawn().unwrap()
        };
        let mut ranks: Vec<Child> = lines.0.iter().map(start).collect();
        // This process holds the first line; here that is nobody's.
        lines.0.insert(0, std::io::pipe().unwrap());
        let life = |(rank, child): (usize, &Child)| Life { rank, host: "here".into(), process: child.id() };
        let mut lives: Vec<Life> = ranks.iter().enumerate().map(life).collect();
        lives.insert(0, Life { process: u32::MAX, ..lives[0].clone() });
        let (mut reader, writer) = std::io::pipe().unwrap();
        let witness = machine.call_witness(&lives, lines, writer.as_raw_fd()).unwrap();
        drop(writer);
        if explained {
            machine.expect_end();
        }
        ranks[1].kill().unwrap();
        let mut text = String::new();
        // Ends when the witness has closed its end.
        reader.read_to_string(&mut text).unwrap();
        if explained {
            // SAFETY: a child of this process.
            assert_eq!(unsafe { libc::waitpid(witness, std::ptr::null_mut(), 0) }, witness);
        }
        (text, ranks)
    }

    #[test]
    fn the_first_that_dies_is_named_and_the_others_are_ended() {
        let (text, mut ranks) = said(false);
        let name = format!("error: rank 1 on here (process {}) has ended", ranks[1].id());
        assert!(text.starts_with(&name) && text.contains("--resume"), "{text}");
        // By the witness, as there is no launcher.
        ranks.iter_mut().for_each(|rank| assert!(!rank.wait().unwrap().success()));
    }

    #[test]
    fn an_end_that_was_explained_is_not_told() {
        let (text, mut ranks) = said(true);
        assert_eq!(text, "");
        assert!(ranks[0].try_wait().unwrap().is_none(), "the others go on");
        for rank in &mut ranks {
            let _ = rank.kill();
            rank.wait().unwrap();
        }
    }
}
