//! The stored form of compiled code and its signature.
//!
//! ```text
//! "fanfold" 1 | Ed25519 signature (64) | length of head (4, little-endian) | head (JSON) | code
//! ```
//!
//! The signature is over the component's digest, the engine key, and the SHA-256 of everything after the signature:
//! code that was signed for one component or engine is worthless for another. The key is the store's own.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use fanfold_protocol::Digest;
use serde::{Deserialize, Serialize};

use crate::admit::Admitted;

const MAGIC: &[u8; 8] = b"fanfold\x01";
const SIGNATURE_BYTES: usize = 64;

/// What is known of compiled code besides its bytes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Head {
    /// What admission found.
    #[serde(flatten)]
    pub admitted: Admitted,
    /// Bytes of the component as uploaded.
    pub component_bytes: u64,
}

/// Code whose signature was verified.
#[derive(Debug)]
pub(crate) struct Verified {
    /// What else is known.
    pub head: Head,
    /// The code.
    pub code: Bytes,
}

/// Why a stored copy was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Damage {
    #[error("it is cut off or in another format")]
    Format,
    #[error("its signature does not match: it was damaged, or not made here")]
    Signature,
}

/// Signs and verifies compiled code.
pub(crate) struct Sealer {
    signing: SigningKey,
    verifying: VerifyingKey,
}

impl Sealer {
    /// A sealer with the store's key.
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let signing = SigningKey::from_bytes(key);
        Self { verifying: signing.verifying_key(), signing }
    }

    /// The stored form of `code`.
    pub(crate) fn seal(&self, component: Digest, engine: &str, head: &Head, code: &[u8]) -> Bytes {
        // No maps with non-string keys: writing it cannot fail.
        let json = serde_json::to_vec(head).unwrap_or_default();
        let mut sealed = BytesMut::with_capacity(MAGIC.len() + SIGNATURE_BYTES + 4 + json.len() + code.len());
        sealed.put_slice(MAGIC);
        sealed.put_bytes(0, SIGNATURE_BYTES);
        sealed.put_u32_le(json.len() as u32);
        sealed.put_slice(&json);
        sealed.put_slice(code);
        let (front, body) = sealed.split_at_mut(MAGIC.len() + SIGNATURE_BYTES);
        let signature = self.signing.sign(&message(component, engine, body).0);
        front[MAGIC.len()..].copy_from_slice(&signature.to_bytes());
        sealed.freeze()
    }

    /// The code in `sealed`, if it was sealed here for this component and engine and is unchanged.
    pub(crate) fn verify(
        &self,
        component: Digest,
        engine: &str,
        mut sealed: Bytes,
    ) -> Result<Verified, Damage> {
        if sealed.len() < MAGIC.len() + SIGNATURE_BYTES + 4 || !sealed.starts_with(MAGIC) {
            return Err(Damage::Format);
        }
        sealed.advance(MAGIC.len());
        let signature = sealed.split_to(SIGNATURE_BYTES);
        let signature = Signature::from_slice(&signature).map_err(|_| Damage::Signature)?;
        let message = message(component, engine, &sealed);
        self.verifying.verify_strict(&message.0, &signature).map_err(|_| Damage::Signature)?;
        // Signed by us from here on; still nothing below may panic.
        let length = sealed.try_get_u32_le().map_err(|_| Damage::Format)? as usize;
        if sealed.len() < length {
            return Err(Damage::Format);
        }
        let json = sealed.split_to(length);
        let head = serde_json::from_slice(&json).map_err(|_| Damage::Format)?;
        Ok(Verified { head, code: sealed })
    }
}

fn message(component: Digest, engine: &str, body: &[u8]) -> Digest {
    Digest::of_parts(&[&component.0, engine.as_bytes(), &Digest::of(body).0])
}

#[cfg(test)]
mod tests {
    use fanfold_protocol::function::ComponentKind;

    use super::*;

    #[test]
    fn any_flipped_bit_is_noticed() {
        let sealer = Sealer::new(&[7; 32]);
        let admitted =
            Admitted { kind: ComponentKind::Cli, submits: false, imports: vec!["a:b/c".to_owned()] };
        let head = Head { admitted, component_bytes: 12 };
        let component = Digest::of(b"component");
        let sealed = sealer.seal(component, "engine", &head, b"machine code");
        let verified = sealer.verify(component, "engine", sealed.clone()).unwrap();
        assert_eq!((verified.head, &verified.code[..]), (head, &b"machine code"[..]));
        for bit in 0..sealed.len() * 8 {
            let mut flipped = sealed.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(sealer.verify(component, "engine", flipped.into()).is_err(), "bit {bit}");
        }
        for cut in 0..sealed.len() {
            assert!(sealer.verify(component, "engine", sealed.slice(..cut)).is_err(), "cut at {cut}");
        }
        assert_eq!(sealer.verify(component, "other", sealed.clone()).unwrap_err(), Damage::Signature);
        assert_eq!(sealer.verify(Digest::of(b"x"), "engine", sealed.clone()).unwrap_err(), Damage::Signature);
        assert_eq!(Sealer::new(&[8; 32]).verify(component, "engine", sealed).unwrap_err(), Damage::Signature);
    }
}
