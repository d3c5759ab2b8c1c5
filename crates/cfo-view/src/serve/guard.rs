//! Access control: requests come from this machine's own pages and programs, or carry the token.

use std::net::SocketAddr;

use super::http::{HttpRequest, Response};

/// Decides which requests are accepted.
pub struct Guard {
    address: SocketAddr,
    token: Option<String>,
}

impl Guard {
    pub fn new(address: SocketAddr, token: Option<String>) -> Self {
        Self { address, token }
    }

    /// Whether a request is accepted.
    ///
    /// A page of another site can make its browser send requests here. With a domain name that resolves to this machine (DNS
    /// rebinding) it could read the answers. It cannot choose the headers `Host` and `Origin`, so these are checked.
    pub fn check(&self, request: &HttpRequest) -> Result<(), Response> {
        let refused = |what: &str| Response::error(403, what, "open the address that `cfo serve` printed");
        let mut hosts = request.headers("host");
        let (Some(host), None) = (hosts.next(), hosts.next()) else {
            return Err(Response::error(
                400,
                "the request has no `Host`, or more than one",
                "send a request of HTTP/1.1 with one `Host`",
            ));
        };
        if self.address.ip().is_loopback() && !self.is_own(host) {
            return Err(refused("the request is for another host name than this server's"));
        }
        if let Some(origin) = request.header("origin") {
            let same = ["http://", "https://"].iter().any(|scheme| origin.strip_prefix(scheme) == Some(host));
            if !same {
                return Err(refused("pages of other origins may not use this server"));
            }
        }
        if request.header("sec-fetch-site").is_some_and(|site| site == "cross-site") && request.path != "/" {
            return Err(refused("pages of other sites may not use this server"));
        }
        match &self.token {
            Some(token) if !self.has_token(request, token) => Err(Response::error(
                401,
                "the token is missing or wrong",
                "add `?token=TOKEN` to the address, or send `Authorization: Bearer TOKEN`",
            )),
            _ => Ok(()),
        }
    }

    /// Whether a host is a loopback name of this machine, with our port.
    fn is_own(&self, host: &str) -> bool {
        let port = self.address.port();
        let names = ["127.0.0.1", "localhost", "[::1]"];
        names.iter().any(|name| host.eq_ignore_ascii_case(&format!("{name}:{port}")))
            || host == self.address.to_string()
            || (port == 80 && names.contains(&host))
    }

    fn has_token(&self, request: &HttpRequest, token: &str) -> bool {
        let header = request.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let query = request.query.split('&').find_map(|pair| pair.strip_prefix("token="));
        header.or(query).is_some_and(|given| same(given.as_bytes(), token.as_bytes()))
    }
}

/// Compares in constant time, so that timing does not reveal how many characters agree.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}
