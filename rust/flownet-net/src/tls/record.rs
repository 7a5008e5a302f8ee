//! Format of a protected record (RFC 8446, section 5.2), and its possible content.
//!
//! ```text
//! 23 | 3 3 | length u16 (big-endian)     header, authenticated
//! content | its type u8 | zeros          sealed
//! tag 16
//! ```

use rustls::{AlertDescription, ContentType, Error, InvalidMessage, PeerMisbehaved};

/// Returns the header of a record with `length` bytes after it.
pub(super) fn header(length: usize) -> [u8; HEADER_BYTES] {
    debug_assert!(length <= MOST_BEHIND_HEADER, "what is written is in bounds");
    let [high, low] = (length as u16).to_be_bytes();
    [APPLICATION_DATA, VERSION[0], VERSION[1], high, low]
}

/// Returns the number of bytes that follow this header.
pub(super) fn length_behind(header: &[u8; HEADER_BYTES]) -> Result<usize, Error> {
    let [kind, version @ .., high, low] = *header;
    if version != VERSION {
        return Err(InvalidMessage::UnknownProtocolVersion.into());
    }
    // Anyone could have sent an unencrypted alert.
    if kind != APPLICATION_DATA {
        return Err(unexpected(kind));
    }
    match usize::from(u16::from_be_bytes([high, low])) {
        0..=TAG_BYTES => Err(InvalidMessage::MessageTooShort.into()),
        length if length > MOST_BEHIND_HEADER => Err(InvalidMessage::MessageTooLarge.into()),
        length => Ok(length),
    }
}

/// Returns the type of opened content, and its length without the type and the padding zeros.
pub(super) fn inner(opened: &[u8]) -> Result<(u8, usize), Error> {
    let at = opened.iter().rposition(|byte| *byte != 0).ok_or(PeerMisbehaved::IllegalTlsInnerPlaintext)?;
    if at > CONTENT_BYTES { Err(Error::PeerSentOversizedRecord) } else { Ok((opened[at], at)) }
}

/// Content other than data.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum ControlMessage {
    /// Nothing follows.
    Closed,
    /// The next key seals the records that follow. The peer may also request our own next key.
    NextKey { is_ours_asked_for: bool },
    /// A message without effect.
    Nothing,
}

/// Parses content of a type other than data.
pub(super) fn said(kind: u8, content: &[u8]) -> Result<ControlMessage, Error> {
    match (kind, content) {
        (ALERT, [_, CLOSE_NOTIFY]) => Ok(ControlMessage::Closed),
        (ALERT, [_, USER_CANCELED]) => Ok(ControlMessage::Nothing),
        (ALERT, [_, description]) => Err(Error::AlertReceived(AlertDescription::from(*description))),
        (ALERT, _) => Err(InvalidMessage::MessageTooShort.into()),
        // The key changes after this message, so the record must contain nothing else.
        (HANDSHAKE, [KEY_UPDATE, 0, 0, 1, asked @ (0 | 1)]) => {
            Ok(ControlMessage::NextKey { is_ours_asked_for: *asked == 1 })
        }
        (HANDSHAKE, [KEY_UPDATE, ..]) => Err(InvalidMessage::InvalidKeyUpdate.into()),
        (kind, _) => Err(unexpected(kind)),
    }
}

/// Encodes the message that our next records use the next key.
pub(super) fn key_update() -> (u8, [u8; 5]) {
    (HANDSHAKE, [KEY_UPDATE, 0, 0, 1, 0])
}

/// Encodes an alert with the reason for the end.
pub(super) fn alert(description: AlertDescription) -> (u8, [u8; 2]) {
    let level = if description == AlertDescription::CloseNotify { WARNING } else { FATAL };
    (ALERT, [level, description.into()])
}

/// Returns the alert for a peer that sent something wrong, if it should receive one.
pub(crate) fn complaint(error: &Error) -> Option<AlertDescription> {
    match error {
        // The peer has ended the session itself.
        Error::AlertReceived(_) => None,
        Error::DecryptError => Some(AlertDescription::BadRecordMac),
        Error::PeerSentOversizedRecord | Error::InvalidMessage(InvalidMessage::MessageTooLarge) => {
            Some(AlertDescription::RecordOverflow)
        }
        Error::InvalidMessage(InvalidMessage::UnexpectedMessage(_)) | Error::PeerMisbehaved(_) => {
            Some(AlertDescription::UnexpectedMessage)
        }
        Error::InvalidMessage(_) => Some(AlertDescription::DecodeError),
        _ => Some(AlertDescription::InternalError),
    }
}

fn unexpected(kind: u8) -> Error {
    match ContentType::from(kind) {
        ContentType::ChangeCipherSpec => InvalidMessage::UnexpectedMessage("ChangeCipherSpec").into(),
        ContentType::Alert => InvalidMessage::UnexpectedMessage("Alert in the clear").into(),
        ContentType::Handshake => InvalidMessage::UnexpectedMessage("Handshake").into(),
        _ => InvalidMessage::InvalidContentType.into(),
    }
}

/// Most content bytes in one record.
pub(super) const CONTENT_BYTES: usize = 16 * flownet_memory::KIB;
pub(super) const HEADER_BYTES: usize = 5;
pub(super) const TAG_BYTES: usize = 16;
/// A type and a tag.
pub(super) const TRAILER_BYTES: usize = 1 + TAG_BYTES;
/// Bytes of our records besides their content.
pub(super) const OVERHEAD_BYTES: usize = HEADER_BYTES + TRAILER_BYTES;
/// Peers may add padding.
const MOST_BEHIND_HEADER: usize = CONTENT_BYTES + 256;
pub(super) const LARGEST_BYTES: usize = HEADER_BYTES + MOST_BEHIND_HEADER;
pub(super) const APPLICATION_DATA: u8 = 23;
const VERSION: [u8; 2] = [3, 3];
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const KEY_UPDATE: u8 = 24;
const WARNING: u8 = 1;
const FATAL: u8 = 2;
const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;
