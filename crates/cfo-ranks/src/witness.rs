//! A process that detects the end of the ranks of a machine and reports it if nothing else has; and the ranks' pipes to it.
//!
//! A launcher that hears of a rank's death ends the others at once, before any of them can say who died, and it may know processes
//! only. The witness is none of the launcher's: a copy of the machine's first rank that holds nothing but its stderr, a line to every
//! rank, whose other end that rank alone holds, and a handle of its process. It ends with the first of them. A rank whose end needs no
//! explanation, or is being explained, says so on its line before.
//!
//! Linux closes the files of a process that dies from the last one opened to the first. A line is opened after the files by which a
//! launcher knows a rank, so that lines break in the order in which ranks died, before the launcher has ended others.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::io::{PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

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
            "error: rank {rank} on {host} (process {process}) exited without an error message: killed, crashed or out of memory\n\n\
             hint: the system's log (`dmesg`) lists processes that were killed for lack of memory; `--resume` continues from the latest \
             checkpoint, with any number of ranks\n"
        )
    }
}

/// A rank's end of its line to the witness of its machine, open for as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line(RawFd);

impl Line {
    /// Makes lines to so many ranks, of which this is the first, and says where the others find theirs; `None` if the system refuses.
    pub(crate) fn create(size: usize) -> Option<(Self, Lines, String)> {
        let lines: Vec<_> = (0..size).map(|_| std::io::pipe().ok()).collect::<Option<_>>()?;
        let mut place = std::process::id().to_string();
        for (_, end) in &lines {
            place += &format!(" {} {}", end.as_raw_fd(), inode(end)?);
        }
        let own = lines.first()?.1.try_clone().ok()?.into_raw_fd();
        Some((Self(own), Lines(lines), place))
    }

    /// This rank's end of the line that the first rank of the machine has made; `None` if this process cannot see it.
    pub(crate) fn open(place: &str, rank: usize) -> Option<Self> {
        let mut words = place.split(' ');
        let process = words.next()?;
        let (file, number) = (words.nth(2 * rank)?, words.next()?);
        let end = OpenOptions::new().write(true).open(format!("/proc/{process}/fd/{file}")).ok()?;
        // In a container of its own the number may be that of another process, and the file any.
        let found = end.metadata().ok()?;
        let same = found.file_type().is_fifo() && found.ino().to_string() == number;
        same.then(|| Self(end.into_raw_fd()))
    }

    /// From now on ranks may end: they are done, or why they are not is being said.
    pub(crate) fn expect_end(&self) {
        // SAFETY: a byte into a file that stays open. It fails where the witness is gone, which then needs to know nothing.
        unsafe { libc::write(self.0, [1_u8].as_ptr().cast(), 1) };
    }

    /// Starts the witness of these processes, which writes to an open file; nothing where the system refuses. Returns the witness's
    /// process.
    pub(crate) fn call_witness(lives: &[Life], lines: Lines, to: RawFd) -> Option<i32> {
        let texts: Vec<String> = lives.iter().map(Life::obituary).collect();
        let (ends, _others): (Vec<PipeReader>, Vec<PipeWriter>) = lines.0.into_iter().unzip();
        let files = Files::open(lives, &ends, to)?;
        // SAFETY: the copy makes system calls only, on memory that is there already: of a process with threads no more is allowed.
        let copy = unsafe { libc::fork() };
        if copy == 0 {
            // SAFETY: as above.
            unsafe { testify(&files, &texts) }
        }
        for file in files.handles.into_iter().chain([files.queue]) {
            // SAFETY: opened for the witness, and used no more.
            unsafe { libc::close(file) };
        }
        (copy > 0).then_some(copy)
    }
}

/// By which number the system knows a pipe.
fn inode(end: &PipeWriter) -> Option<u64> {
    let file = std::fs::File::from(end.as_fd().try_clone_to_owned().ok()?);
    Some(file.metadata().ok()?.ino())
}

/// A line to every rank, as the first one makes them: the witness's end and the rank's.
#[derive(Debug)]
pub(crate) struct Lines(Vec<(PipeReader, PipeWriter)>);

/// What the witness holds.
struct Files {
    /// Where it writes.
    to: RawFd,
    /// Tells on which line there is a word or an end, in the order in which they came.
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

    /// The number of the process that ends first; `None` if one said before that it would.
    unsafe fn first_end(&self) -> Option<usize> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: there is room for one event; an interrupted wait is begun again.
        while unsafe { libc::epoll_wait(self.queue, &mut event, 1, -1) } != 1 {}
        let spoken = { event.events } & libc::EPOLLIN as u32 != 0;
        (!spoken).then_some(event.u64 as usize)
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
unsafe fn testify(files: &Files, texts: &[String]) -> ! {
    // SAFETY: system calls on values of this process.
    unsafe {
        // Neither the terminal nor the launcher ends it with the ranks.
        libc::setsid();
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        files.close_others();
        let Some(text) = files.first_end().and_then(|index| texts.get(index)) else { libc::_exit(0) };
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
        // The first line is this process's own.
        let (line, lines, _) = Line::create(4).unwrap();
        let start = |(_, end): &(PipeReader, PipeWriter)| {
            Command::new("sleep").arg("60").stdin(end.try_clone().unwrap()).spawn().unwrap()
        };
        let mut ranks: Vec<Child> = lines.0[1..].iter().map(start).collect();
        let life = |(rank, child): (usize, &Child)| Life { rank, host: "here".into(), process: child.id() };
        let mut lives: Vec<Life> = ranks.iter().enumerate().map(life).collect();
        lives.insert(0, Life { process: u32::MAX, ..lives[0].clone() });
        let (mut reader, writer) = std::io::pipe().unwrap();
        let witness = Line::call_witness(&lives, lines, writer.as_raw_fd()).unwrap();
        drop(writer);
        if explained {
            line.expect_end();
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
        let name = format!("error: rank 1 on here (process {}) exited", ranks[1].id());
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

    #[test]
    fn the_line_of_another_job_is_not_taken() {
        let (_, lines, place) = Line::create(2).unwrap();
        assert!(Line::open(&place, 0).is_some() && Line::open(&place, 1).is_some());
        assert!(Line::open(&place, 2).is_none() && Line::open("", 0).is_none());
        let (process, rest) = place.split_once(' ').unwrap();
        let file = rest.split_once(' ').unwrap().0;
        assert!(Line::open(&format!("{process} {file} 7"), 0).is_none(), "another pipe");
        drop(lines);
    }
}
