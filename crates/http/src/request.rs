//! The head of a request, and what it deserves.

use httparse::{EMPTY_HEADER, Error, Status};

/// Most header fields of a request.
const HEADERS_MAX: usize = 64;

/// What is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    RequestTimeout,
    HeadTooLarge,
    InternalError,
    Unavailable,
    VersionNotSupported,
}

impl Code {
    /// Number and words. Source: RFC 9110, 15; RFC 6585.
    pub(crate) fn line(self) -> &'static str {
        match self {
            Code::Ok => "200 OK",
            Code::BadRequest => "400 Bad Request",
            Code::NotFound => "404 Not Found",
            Code::MethodNotAllowed => "405 Method Not Allowed",
            Code::RequestTimeout => "408 Request Timeout",
            Code::HeadTooLarge => "431 Request Header Fields Too Large",
            Code::InternalError => "500 Internal Server Error",
            Code::Unavailable => "503 Service Unavailable",
            Code::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }
}

/// A request whose head is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    /// Length of the head.
    pub(crate) head_bytes: usize,
    pub(crate) code: Code,
    /// The answer has no body.
    pub(crate) is_head: bool,
    /// The connection goes on.
    pub(crate) goes_on: bool,
}

/// Reads a request for the page at `path`; none if its head goes on.
///
/// # Errors
/// What to answer to something that is no request; nothing after it can be read.
pub(crate) fn parse(bytes: &[u8], path: &str) -> Result<Option<Request>, Code> {
    let mut headers = [EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    let head_bytes = match head.parse(bytes) {
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) => return Ok(None),
        Err(Error::TooManyHeaders) => return Err(Code::HeadTooLarge),
        Err(Error::Version) => return Err(Code::VersionNotSupported),
        Err(_) => return Err(Code::BadRequest),
    };
    let (Some(method), Some(target), Some(version)) = (head.method, head.path, head.version) else {
        return Err(Code::BadRequest);
    };
    let all = |name: &'static str| {
        let named = head.headers.iter().filter(move |header| header.name.eq_ignore_ascii_case(name));
        named.map(|header| header.value)
    };
    // Source: RFC 9112, 3.2.
    if version == 1 && all("host").count() != 1 {
        return Err(Code::BadRequest);
    }
    let has_body = all("content-length").any(|len| len != b"0") || all("transfer-encoding").next().is_some();
    let code = match method {
        _ if path_of(target) != path => Code::NotFound,
        "GET" | "HEAD" => Code::Ok,
        _ => Code::MethodNotAllowed,
    };
    // Connections of version 1.0 end after their answer; nobody needs more of them.
    let goes_on = version == 1 && !has_body && !all("connection").any(asks_to_close);
    Ok(Some(Request { head_bytes, code, is_head: method == "HEAD", goes_on }))
}

fn asks_to_close(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"))
}

/// The path of a target, without a query; a proxy sends the whole URI. Source: RFC 9112, 3.2.2.
fn path_of(target: &str) -> &str {
    let target = match target.get(..7) {
        Some(scheme) if scheme.eq_ignore_ascii_case("http://") => {
            let rest = &target[7..];
            rest.find('/').map_or("/", |slash| &rest[slash..])
        }
        _ => target,
    };
    target.split('?').next().unwrap_or(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Result<Code, Code> {
        parse(text.as_bytes(), "/metrics").map(|request| request.expect("a whole head").code)
    }

    #[test]
    fn each_request_gets_its_code() {
        for (request, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Code::Ok)),
            ("HEAD /metrics HTTP/1.1\r\nhost: a\r\n\r\n", Ok(Code::Ok)),
            ("GET /metrics?name=a HTTP/1.0\r\n\r\n", Ok(Code::Ok)),
            ("GET http://a:1/metrics HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Code::Ok)),
            ("GET HTTP://a HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Code::NotFound)),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Code::NotFound)),
            ("GET /metrics/ HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Code::NotFound)),
            ("POST /metrics HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Code::MethodNotAllowed)),
            ("get /metrics HTTP/1.1\r\nHost: a\r\n\r\n", Ok(Code::MethodNotAllowed)),
            ("GET /metrics HTTP/1.1\r\n\r\n", Err(Code::BadRequest)),
            ("GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Err(Code::BadRequest)),
            ("GET /metrics HTTP/2.0\r\n\r\n", Err(Code::VersionNotSupported)),
            ("GET /metrics\r\n\r\n", Err(Code::BadRequest)),
            ("\x16\x03\x01 a TLS hello", Err(Code::BadRequest)),
            ("GET /metrics HTTP/1.1\r\nHost : a\r\n\r\n", Err(Code::BadRequest)),
        ] {
            let found = parse(request.as_bytes(), "/metrics").map(|request| request.map(|found| found.code));
            assert_eq!(found, expected.map(Some), "{request:?}");
        }
        let many = "A: b\r\n".repeat(HEADERS_MAX + 1);
        assert_eq!(code(&format!("GET /metrics HTTP/1.1\r\n{many}\r\n")), Err(Code::HeadTooLarge));
        assert_eq!(parse(b"GET /metrics HTTP/1.1\r\nHost: a\r\n", "/metrics"), Ok(None));
    }

    #[test]
    fn a_connection_goes_on_if_the_next_request_can_be_found() {
        let goes_on = |more: &str| {
            let text = format!("GET /metrics HTTP/1.1\r\nHost: a\r\n{more}\r\nGET");
            let request = parse(text.as_bytes(), "/metrics").unwrap().unwrap();
            assert_eq!(request.head_bytes, text.len() - 3);
            request.goes_on
        };
        assert!(goes_on("") && goes_on("Content-Length: 0\r\n") && goes_on("Connection: keep-alive\r\n"));
        assert!(!goes_on("Connection: Upgrade, Close\r\n"));
        assert!(!goes_on("Content-Length: 3\r\n") && !goes_on("Transfer-Encoding: chunked\r\n"));
    }
}
