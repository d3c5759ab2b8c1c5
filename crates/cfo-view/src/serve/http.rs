//! The part of HTTP/1.1 that a page and scripts need: requests and responses with a length, persistent connections.
//!
//! Each connection has a thread, and the number of connections is limited. Every read and write has a deadline, so that a
//! slow or silent client occupies only its own thread, and only for a short time.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 256;
/// Most bytes of a request before its body.
const HEAD: usize = 16 << 10;
const HEADERS: usize = 64;
/// Longest time from the first byte of a request to its last.
const RECEIVING: Duration = Duration::from_secs(10);
/// Longest time between two requests on a connection.
const IDLE: Duration = Duration::from_secs(15);
/// Longest time for a client to accept a response.
const SENDING: Duration = Duration::from_secs(10);

/// A complete request.
#[derive(Debug, Default)]
pub struct HttpRequest {
    pub method: String,
    pub path: String,
    /// The part after the question mark.
    pub query: String,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// The first header with a name, whatever its case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).next()
    }

    /// All headers with a name, whatever its case.
    pub fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        let found = self.headers.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// A response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    pub kind: &'static str,
    pub body: Vec<u8>,
}

impl Response {
    /// A JSON document.
    pub fn json(status: u16, document: &impl serde::Serialize) -> Self {
        let body = serde_json::to_vec(document).unwrap_or_default();
        Self { status, kind: "application/json", body }
    }

    /// Creates an error with a hint.
    pub fn error(status: u16, error: &str, hint: &str) -> Self {
        Self::json(status, &serde_json::json!({ "error": error, "hint": hint }))
    }
}

/// Answers requests.
pub trait Handler: Send + Sync + 'static {
    /// Whether a request is accepted, judged by its headers.
    fn admits(&self, request: &HttpRequest) -> Result<(), Response>;

    /// Most bytes of a body.
    fn body_limit(&self) -> usize;

    /// The response.
    fn answer(&self, request: &HttpRequest) -> Response;
}

/// Answers requests until `stop` is set; one more connection then ends the loop.
pub fn serve(listener: &TcpListener, stop: &AtomicBool, handler: &Arc<impl Handler>) -> io::Result<()> {
    let connections = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // Clients retry failed connections. A lack of file descriptors is temporary.
        let Ok(stream) = stream else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        let Some(slot) = Slot::take(&connections) else {
            let full = Response::error(503, "too many connections", "try again in a moment");
            let _ = stream.set_write_timeout(Some(Duration::from_millis(200)));
            let _ = send(&stream, &full, false);
            continue;
        };
        let handler = Arc::clone(handler);
        // A thread that cannot be started drops its slot.
        let _ = thread::Builder::new().name("connection".into()).spawn(move || {
            let _slot = slot;
            let _ = converse(&stream, &*handler);
        });
    }
    Ok(())
}

/// One of the connections at a time, given back when it is dropped: also by a thread that panics.
struct Slot(Arc<AtomicUsize>);

impl Slot {
    /// `None` if all are taken.
    fn take(connections: &Arc<AtomicUsize>) -> Option<Self> {
        let slot = Self(Arc::clone(connections));
        (connections.fetch_add(1, Ordering::AcqRel) < CONNECTIONS).then_some(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The handler's response; a handler that panics has a defect, which costs this request alone.
fn answered(handler: &impl Handler, request: &HttpRequest) -> Response {
    let answer = AssertUnwindSafe(|| handler.answer(request));
    panic::catch_unwind(answer).unwrap_or_else(|_| {
        let hint = "this is a defect of `cfo`; please report it with the request";
        Response::error(500, "the server failed on this request", hint)
    })
}

/// One request after another on a connection.
fn converse(stream: &TcpStream, handler: &impl Handler) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_write_timeout(Some(SENDING))?;
    let mut buffered = Vec::new();
    loop {
        let (response, keep) = match receive(stream, &mut buffered, handler) {
            Ok(Some(request)) => {
                let keep =
                    !request.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
                (answered(handler, &request), keep)
            }
            Ok(None) => return Ok(()),
            Err(Refusal::Answer(response)) => (response, false),
            Err(Refusal::Gone) => return Ok(()),
        };
        send(stream, &response, keep)?;
        if !keep {
            return linger(stream);
        }
    }
}

/// Why a request is not answered by the handler.
enum Refusal {
    Answer(Response),
    Gone,
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let hint = "send the whole request within ten seconds";
                Self::Answer(Response::error(408, "the request took too long to arrive", hint))
            }
            _ => Self::Gone,
        }
    }
}

/// The next request, or none if the client is done.
fn receive(
    stream: &TcpStream,
    buffered: &mut Vec<u8>,
    handler: &impl Handler,
) -> Result<Option<HttpRequest>, Refusal> {
    if buffered.is_empty() && !wait(stream, buffered)? {
        return Ok(None);
    }
    let deadline = Instant::now() + RECEIVING;
    let (mut request, length) = loop {
        match head(buffered).map_err(Refusal::Answer)? {
            Some((request, length)) => break (request, length),
            None if buffered.len() > HEAD => {
                let hint = "send fewer or shorter headers";
                return Err(Refusal::Answer(Response::error(431, "the headers are too long", hint)));
            }
            None => more(stream, buffered, deadline)?,
        }
    };
    handler.admits(&request).map_err(Refusal::Answer)?;
    let size = body_size(&request, handler.body_limit()).map_err(Refusal::Answer)?;
    if request.header("expect").is_some() {
        (&*stream).write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    while buffered.len() < length + size {
        more(stream, buffered, deadline)?;
    }
    request.body = buffered[length..length + size].to_vec();
    buffered.drain(..length + size);
    Ok(Some(request))
}

/// Waits for the first bytes of a request; a client that is done sends none.
fn wait(stream: &TcpStream, buffered: &mut Vec<u8>) -> Result<bool, Refusal> {
    match more(stream, buffered, Instant::now() + IDLE) {
        Ok(()) => Ok(true),
        Err(_) => Ok(false),
    }
}

fn more(mut stream: &TcpStream, buffered: &mut Vec<u8>, deadline: Instant) -> Result<(), Refusal> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    stream.set_read_timeout(Some(left))?;
    let mut bytes = [0; 16 << 10];
    match stream.read(&mut bytes) {
        Ok(0) => Err(Refusal::Gone),
        Ok(count) if Instant::now() < deadline => {
            buffered.extend_from_slice(&bytes[..count]);
            Ok(())
        }
        Ok(_) => Err(io::Error::from(ErrorKind::TimedOut).into()),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A request without its body and how many bytes that took, if all of it is there.
fn head(buffered: &[u8]) -> Result<Option<(HttpRequest, usize)>, Response> {
    let malformed = || Response::error(400, "this is not an HTTP request", "send a request of HTTP/1.1");
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    let length = match parsed.parse(buffered) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => {
            return Err(Response::error(431, "there are too many headers", "send fewer"));
        }
        Err(_) => return Err(malformed()),
    };
    let target = parsed.path.ok_or_else(malformed)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| malformed());
    let mut request = HttpRequest {
        method: parsed.method.ok_or_else(malformed)?.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        ..HttpRequest::default()
    };
    for header in parsed.headers.iter() {
        request.headers.push((header.name.to_owned(), text(header.value)?));
    }
    Ok(Some((request, length)))
}

/// Returns the number of bytes after the head of a request.
fn body_size(request: &HttpRequest, limit: usize) -> Result<usize, Response> {
    if request.header("transfer-encoding").is_some() {
        return Err(Response::error(411, "the request has no length", "send `Content-Length`"));
    }
    let mut lengths = request.headers("content-length").map(str::parse::<usize>);
    match (lengths.next(), lengths.next()) {
        (None, _) => Ok(0),
        (Some(Ok(size)), None) if size <= limit => Ok(size),
        (Some(Ok(size)), None) => Err(Response::error(
            413,
            &format!("the request has {size} bytes; at most {limit} are read"),
            "send one initial state and fewer times",
        )),
        _ => Err(Response::error(
            400,
            "the length of the request is not a number",
            "send `Content-Length` once",
        )),
    }
}

fn send(mut stream: &TcpStream, response: &Response, keep: bool) -> io::Result<()> {
    let Response { status, kind, body } = response;
    let connection = if keep { "keep-alive" } else { "close" };
    let head = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nConnection: {connection}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\n\
         Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\r\n",
        reason(*status),
        body.len()
    );
    let mut bytes = head.into_bytes();
    bytes.extend_from_slice(body);
    stream.write_all(&bytes)?;
    stream.flush()
}

/// Reads what is still arriving, for a moment: closing a connection with unread bytes would discard the response.
fn linger(mut stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(std::net::Shutdown::Write)?;
    stream.set_read_timeout(Some(Duration::from_millis(300)))?;
    let (mut bytes, deadline) = ([0; 16 << 10], Instant::now() + Duration::from_secs(1));
    while Instant::now() < deadline && matches!(stream.read(&mut bytes), Ok(count) if count > 0) {}
    Ok(())
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        411 => "Length Required",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Internal Server Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics at every request.
    struct Broken;

    impl Handler for Broken {
        fn admits(&self, _: &HttpRequest) -> Result<(), Response> {
            Ok(())
        }

        fn body_limit(&self) -> usize {
            0
        }

        fn answer(&self, _: &HttpRequest) -> Response {
            panic!("as the test wants")
        }
    }

    #[test]
    fn a_handler_that_panics_answers_and_the_server_goes_on() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || serve(&listener, &AtomicBool::new(false), &Arc::new(Broken)));
        for _ in 0..3 {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        }
    }

    #[test]
    fn a_slot_is_given_back_by_a_thread_that_panics() {
        let connections = Arc::new(AtomicUsize::new(0));
        let slot = Slot::take(&connections).unwrap();
        let ended = thread::spawn(move || {
            let _slot = slot;
            panic!("as the test wants");
        });
        assert!(ended.join().is_err());
        assert_eq!(connections.load(Ordering::Acquire), 0);
        let all: Vec<Slot> = (0..CONNECTIONS).map_while(|_| Slot::take(&connections)).collect();
        assert!(all.len() == CONNECTIONS && Slot::take(&connections).is_none());
        assert_eq!(connections.load(Ordering::Acquire), CONNECTIONS);
    }
}
