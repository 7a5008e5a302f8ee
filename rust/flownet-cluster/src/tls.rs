//! Implements the setting `tls`: encryption of connections between processes, and its certificates.

use std::{fmt, net::IpAddr, path::PathBuf};

use flownet_net::{Certificates, Credentials, Secret};
use serde::{Deserialize, Serialize};

use crate::settings::SettingsError;

/// Connections between processes that are encrypted. Default: [`Auto`](Self::Auto).
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "String", into = "String")]
pub enum Tls {
    /// Connections of jobs whose processes listen on addresses that other machines reach, with certificates made for
    /// the job. On loopback, none.
    #[default]
    Auto,
    /// None.
    Off,
    /// All, with certificates made for the job.
    On,
    /// All, with the certificates in this folder of the submitting process: `tls.crt`, `tls.key`, `ca.crt`. The other
    /// processes receive them from it.
    Folder(PathBuf),
}

impl Tls {
    /// Parses the user's text: `auto`, `off`, `on`, or the path of a folder.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        match text {
            "auto" => Self::Auto,
            "off" => Self::Off,
            "on" => Self::On,
            folder => Self::Folder(folder.into()),
        }
    }

    /// Returns the certificates of processes that listen on `host`, if their connections are encrypted.
    ///
    /// # Errors
    /// [`SettingsError::Tls`] if no certificates could be made, or if those in the folder cannot be used.
    pub fn certificates(&self, host: IpAddr) -> Result<Option<Certificates>, SettingsError> {
        match self {
            Self::Auto if host.is_loopback() => Ok(None),
            Self::Off => Ok(None),
            Self::Auto | Self::On => Ok(Some(Certificates::generate()?)),
            Self::Folder(folder) => Ok(Some(Certificates::from_folder(folder)?)),
        }
    }

    /// Returns the credentials of processes that know `secret` and listen on `host`.
    ///
    /// # Errors
    /// Those of [`certificates`](Self::certificates).
    pub fn credentials(&self, secret: Secret, host: IpAddr) -> Result<Credentials, SettingsError> {
        match self.certificates(host)? {
            None => Ok(secret.into()),
            Some(certificates) => Ok(Credentials::with_tls(secret, certificates)?),
        }
    }

    /// Whether the workers of a pool satisfy a job with this setting. `pool` is the setting of the pool; `has_tls` is
    /// whether its connections are encrypted.
    pub(crate) fn is_met_by(&self, pool: &Self, has_tls: bool) -> bool {
        match self {
            Self::Auto => true,
            Self::Off => !has_tls,
            Self::On => has_tls,
            Self::Folder(_) => self == pool,
        }
    }
}

impl From<String> for Tls {
    fn from(text: String) -> Self {
        Self::from_text(&text)
    }
}

impl From<Tls> for String {
    fn from(tls: Tls) -> Self {
        tls.to_string()
    }
}

/// Writes the text that users write.
impl fmt::Display for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::On => f.write_str("on"),
            Self::Folder(folder) => folder.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    fn has_tls(setting: &str, host: IpAddr) -> bool {
        let secret = Secret::from_bytes([1; Secret::BYTES]);
        Tls::from_text(setting).credentials(secret, host).expect("credentials").has_tls()
    }

    #[test]
    fn by_default_what_other_machines_reach_is_encrypted_and_loopback_is_not() {
        assert_eq!(Tls::default(), Tls::from_text("auto"));
        for (setting, on_loopback, elsewhere) in [("auto", false, true), ("off", false, false), ("on", true, true)] {
            for loopback in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
                assert_eq!(has_tls(setting, loopback), on_loopback, "{setting}");
            }
            assert_eq!(has_tls(setting, ELSEWHERE), elsewhere, "{setting}");
            assert_eq!(has_tls(setting, Ipv4Addr::UNSPECIFIED.into()), elsewhere, "{setting}");
        }
    }

    #[test]
    fn a_folder_without_certificates_is_named() {
        let error = Tls::from_text("/nonexistent").certificates(ELSEWHERE).expect_err("no such folder");
        assert!(error.to_string().starts_with("tls: cannot read /nonexistent/tls.crt: "), "{error}");
    }

    #[test]
    fn a_pool_is_held_to_what_the_job_asks_for() {
        let (folder, other) = (Tls::from_text("/a"), Tls::from_text("/b"));
        assert!(Tls::Auto.is_met_by(&Tls::Off, false) && Tls::Auto.is_met_by(&Tls::On, true));
        assert!(Tls::On.is_met_by(&Tls::Auto, true) && !Tls::On.is_met_by(&Tls::Auto, false));
        assert!(Tls::Off.is_met_by(&Tls::Auto, false) && !Tls::Off.is_met_by(&Tls::Auto, true));
        assert!(
            folder.is_met_by(&folder, true) && !folder.is_met_by(&other, true) && !folder.is_met_by(&Tls::On, true)
        );
    }
}
