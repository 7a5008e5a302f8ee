//! Digests of strings: of their UTF-8, in hexadecimal.

use std::fmt::Write;

use md5::{Digest, Md5};
use sha2::Sha256;

use super::arguments::Kernel;
use super::parameters::{Kind, Parameter};
use super::{Function, Namespace, Returns};

const TEXT: Parameter = Parameter::new("self", Kind::Text);

pub(super) const FUNCTIONS: &[Function] = &[
    Function::new(Namespace::Text, "md5", &[TEXT], Returns::Text, |_| Ok(Kernel::of_text(digest::<Md5>)))
        .summary("Return the MD5 digest of the UTF-8 in hexadecimal. Attackers can make two strings with one digest.")
        .example("fn.lit('abc').str.md5()", "'900150983cd24fb0d6963f7d28e17f72'"),
    Function::new(Namespace::Text, "sha256", &[TEXT], Returns::Text, |_| Ok(Kernel::of_text(digest::<Sha256>)))
        .summary("Return the SHA-256 digest of the UTF-8 in hexadecimal.")
        .example("fn.lit('').str.sha256()", "'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855'"),
];

fn digest<D: Digest>(text: &str, out: &mut String) {
    for byte in D::digest(text.as_bytes()) {
        // Writing to a string never fails.
        let _ = write!(out, "{byte:02x}");
    }
}
