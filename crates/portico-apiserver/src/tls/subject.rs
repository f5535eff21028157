//! A certificate subject with several organisations, one per group.
//!
//! rcgen holds a name's attributes in a map, so it cannot write two organisations. The certificate
//! it made gets a new subject here and is signed again; everything else stays as it was.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{Error, SigningKey};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const UTF8_STRING: u8 = 0x0c;
const BIT_STRING: u8 = 0x03;
/// 2.5.4.10 and 2.5.4.3
const ORGANIZATION: [u8; 3] = [0x55, 0x04, 0x0a];
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
/// Version, serial number, algorithm, issuer and validity stand before the subject.
const FIELDS_BEFORE_SUBJECT: usize = 5;

/// The certificate `der` for another subject, signed by `key`, as PEM.
pub(super) fn with_subject(
    der: &[u8],
    name: &str,
    groups: &[String],
    key: &impl SigningKey,
) -> Result<String, Error> {
    let (signed, algorithm) = parts(der).ok_or(Error::CouldNotParseCertificate)?;
    let renamed =
        replace_subject(signed, &subject(name, groups)).ok_or(Error::CouldNotParseCertificate)?;
    // No unused bits in the last byte of the signature.
    let signature = [vec![0], key.sign(&renamed)?].concat();
    Ok(pem(&element(
        SEQUENCE,
        &[&renamed, algorithm, &element(BIT_STRING, &[&signature])],
    )))
}

fn subject(name: &str, groups: &[String]) -> Vec<u8> {
    let attribute = |id: [u8; 3], text: &str| {
        let pair = element(
            SEQUENCE,
            &[
                &element(OBJECT_ID, &[&id]),
                &element(UTF8_STRING, &[text.as_bytes()]),
            ],
        );
        element(SET, &[&pair])
    };
    let mut names: Vec<Vec<u8>> = groups
        .iter()
        .map(|group| attribute(ORGANIZATION, group))
        .collect();
    names.push(attribute(COMMON_NAME, name));
    element(SEQUENCE, &[&names.concat()])
}

/// The signed part and the algorithm of a certificate, each with its header.
fn parts(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (content, _) = content(der)?;
    let (signed, rest) = first(content)?;
    Some((signed, first(rest)?.0))
}

fn replace_subject(signed: &[u8], subject: &[u8]) -> Option<Vec<u8>> {
    let (inside, _) = content(signed)?;
    let mut rest = inside;
    for _ in 0..FIELDS_BEFORE_SUBJECT {
        rest = first(rest)?.1;
    }
    let before = inside.get(..inside.len() - rest.len())?;
    let (_, after) = first(rest)?;
    Some(element(SEQUENCE, &[before, subject, after]))
}

/// One element with its header, and what follows it.
fn first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, rest) = content(bytes)?;
    bytes.split_at_checked(bytes.len() - rest.len())
}

/// What is inside the first element, and what follows it.
fn content(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&short, body) = bytes.get(1..)?.split_first()?;
    if short < 0x80 {
        return body.split_at_checked(short.into());
    }
    let (length, body) = body.split_at_checked((short & 0x7f).into())?;
    if length.len() > 4 {
        return None;
    }
    body.split_at_checked(
        length
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
    )
}

fn element(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let length: usize = content.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let bytes: Vec<u8> = length
                .to_be_bytes()
                .into_iter()
                .skip_while(|byte| *byte == 0)
                .collect();
            out.push(0x80 | bytes.len() as u8);
            out.extend(bytes);
        }
    }
    out.extend(content.concat());
    out
}

fn pem(der: &[u8]) -> String {
    let mut text = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = STANDARD.encode(der);
    while !rest.is_empty() {
        let tail = rest.split_off(rest.len().min(64));
        text.push_str(&rest);
        text.push('\n');
        rest = tail;
    }
    text + "-----END CERTIFICATE-----\n"
}
