//! Access control of the web UI.
//!
//! - Without a token, only this machine has access: the server listens on loopback. The `Host` header must be a
//!   loopback name. Otherwise a foreign page could point its own name at this server and read everything (DNS
//!   rebinding).
//! - With a token, every request must present it, as a bearer token or in a cookie. The first visit with `?token=` sets
//!   that cookie. Browsers send it to no other host name, so the name is not checked. They do send it to all ports of
//!   that name, so its own name contains the port. Two servers on one machine thus do not overwrite each other's
//!   cookie.
//! - Requests that change a job always need a token, even on loopback, because other users of this machine can reach
//!   that too. They must be JSON, and must not come from another origin.

use std::net::IpAddr;

use axum::http::{HeaderMap, Method, StatusCode, header};
use subtle::ConstantTimeEq;

use crate::error::Refusal;

/// Requirements for requests to a server.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    pub(crate) token: Option<String>,
    pub(crate) allows_actions: bool,
    /// Port that the server listens on.
    pub(crate) port: u16,
}

impl Guard {
    /// Accepts a request, or returns the reason for its refusal.
    pub(crate) fn check(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
        match &self.token {
            Some(token) if !self.is_shown(headers, token) => {
                let why = "a token is asked for: open the address that was printed when the server started, or send \
                           the header Authorization: Bearer TOKEN";
                return Err(Refusal::new(StatusCode::UNAUTHORIZED, why));
            }
            None if !text(headers, header::HOST).is_some_and(is_loopback) => {
                let why = "ask for localhost or 127.0.0.1: without a token the server answers to no other name";
                return Err(Refusal::new(StatusCode::FORBIDDEN, why));
            }
            _ => {}
        }
        if matches!(*method, Method::GET | Method::HEAD) { Ok(()) } else { self.check_action(headers) }
    }

    fn check_action(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let refused = |why: &str| Err(Refusal::new(StatusCode::FORBIDDEN, why));
        if !self.allows_actions {
            return refused(
                "the server only shows: allow actions with fn.serve_ui(actions=True) or flownet run --ui-actions",
            );
        }
        if self.token.is_none() {
            return refused("the server has no token, and takes no actions without one");
        }
        let origin = text(headers, header::ORIGIN).and_then(|origin| origin.split_once("://"));
        if headers.contains_key(header::ORIGIN) && origin.map(|(_, host)| host) != text(headers, header::HOST) {
            return refused("the request comes from a page of somebody else");
        }
        if text(headers, header::CONTENT_TYPE).is_none_or(|kind| !kind.starts_with("application/json")) {
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send application/json"));
        }
        Ok(())
    }

    /// Returns true if `shown`, taken from the address, is the token.
    pub(crate) fn is_token(&self, shown: &str) -> bool {
        self.token.as_deref().is_some_and(|token| is_same(token, shown))
    }

    /// Returns the prefix of the token's cookie.
    pub(crate) fn cookie_prefix(&self) -> String {
        format!("flownet_token_{}=", self.port)
    }

    fn is_shown(&self, headers: &HeaderMap, token: &str) -> bool {
        let bearer = text(headers, header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let prefix = self.cookie_prefix();
        let mut cookie = cookies.flat_map(|value| value.split("; ")).filter_map(|pair| pair.strip_prefix(&*prefix));
        bearer.is_some_and(|shown| is_same(token, shown)) || cookie.any(|shown| is_same(token, shown))
    }
}

/// Compares in constant time, so that the time does not reveal how much of a token is right.
fn is_same(token: &str, shown: &str) -> bool {
    token.as_bytes().ct_eq(shown.as_bytes()).into()
}

/// Returns true for a loopback host such as `localhost:8081`, `127.0.0.1`, `[::1]:8081`.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().expect("a value"))).collect()
    }

    fn guard(token: Option<&str>, allows_actions: bool) -> Guard {
        Guard { token: token.map(str::to_owned), allows_actions, port: 81 }
    }

    fn refused(guard: &Guard, method: Method, pairs: &[(header::HeaderName, &str)]) -> Option<u16> {
        guard.check(&method, &headers(pairs)).err().map(|refusal| {
            use axum::response::IntoResponse;
            refusal.into_response().status().as_u16()
        })
    }

    #[test]
    fn without_a_token_only_names_of_loopback_are_answered() {
        let guard = guard(None, false);
        for host in ["localhost:8081", "127.0.0.1", "127.0.0.1:99", "[::1]:8081", "LOCALHOST"] {
            assert_eq!(refused(&guard, Method::GET, &[(header::HOST, host)]), None, "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "10.0.0.1:8081", "", "[::2]:80"] {
            assert_eq!(refused(&guard, Method::GET, &[(header::HOST, host)]), Some(403), "{host}");
        }
        assert_eq!(refused(&guard, Method::GET, &[]), Some(403));
    }

    #[test]
    fn a_token_is_shown_as_a_bearers_or_in_a_cookie_and_wholly() {
        let guard = guard(Some("secret"), false);
        assert_eq!(refused(&guard, Method::GET, &[(header::AUTHORIZATION, "Bearer secret")]), None);
        assert_eq!(refused(&guard, Method::GET, &[(header::COOKIE, "a=b; flownet_token_81=secret")]), None);
        for value in ["Bearer secre", "Bearer secret2", "secret", "Basic secret", "Bearer "] {
            assert_eq!(refused(&guard, Method::GET, &[(header::AUTHORIZATION, value)]), Some(401), "{value}");
        }
        assert_eq!(refused(&guard, Method::GET, &[(header::COOKIE, "xflownet_token_81=secret")]), Some(401));
        let of_another_port = (header::COOKIE, "flownet_token_8=secret; flownet_token_812=secret");
        assert_eq!(refused(&guard, Method::GET, &[of_another_port]), Some(401));
    }

    #[test]
    fn who_changes_something_is_allowed_to_and_comes_from_here() {
        let host = (header::HOST, "localhost:8081");
        let json = (header::CONTENT_TYPE, "application/json");
        let token = (header::AUTHORIZATION, "Bearer secret");
        let shows_only = guard(Some("secret"), false);
        assert_eq!(refused(&shows_only, Method::POST, &[host.clone(), json.clone(), token.clone()]), Some(403));
        let has_no_token = guard(None, true);
        assert_eq!(refused(&has_no_token, Method::POST, &[host.clone(), json.clone()]), Some(403));
        let guard = guard(Some("secret"), true);
        let asked = |more: &[(header::HeaderName, &str)]| {
            refused(&guard, Method::POST, &[&[host.clone(), json.clone(), token.clone()], more].concat())
        };
        assert_eq!(asked(&[]), None);
        assert_eq!(asked(&[(header::ORIGIN, "http://localhost:8081")]), None);
        for origin in ["http://evil.example", "null", "http://localhost:8082", "localhost:8081"] {
            assert_eq!(asked(&[(header::ORIGIN, origin)]), Some(403), "{origin}");
        }
        let text = (header::CONTENT_TYPE, "text/plain");
        assert_eq!(refused(&guard, Method::POST, &[host.clone(), token.clone(), text]), Some(415));
        assert_eq!(refused(&guard, Method::POST, &[host, json]), Some(401));
    }
}
