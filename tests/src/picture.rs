//! A picture to try functions with.

/// A grey PNG, stored without compression: enough to be decoded.
pub fn png(width: u32, height: u32) -> Vec<u8> {
    let mut raw = Vec::new();
    for y in 0..height {
        raw.push(0);
        raw.extend((0..width).map(|x| (x ^ y) as u8));
    }
    let mut zlib = vec![0x78, 0x01];
    for (n, part) in raw.chunks(0xffff).enumerate() {
        let last = (n + 1) * 0xffff >= raw.len();
        zlib.push(u8::from(last));
        zlib.extend((part.len() as u16).to_le_bytes());
        zlib.extend((!(part.len() as u16)).to_le_bytes());
        zlib.extend(part);
    }
    let (mut a, mut b) = (1u32, 0u32);
    for byte in &raw {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    zlib.extend((b << 16 | a).to_be_bytes());
    file(width, height, zlib)
}

/// A black PNG in few bytes, however large the picture: what takes a function down that has no room for it.
pub fn black(width: u32, height: u32) -> Vec<u8> {
    /// As many bytes again as one repetition says, which takes these bits in the fixed code of deflate.
    const REPEAT: u64 = 258;
    const REPETITION: [u8; 13] = [1, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0];
    const ZERO: [u8; 8] = [0, 0, 1, 1, 0, 0, 0, 0];
    let bytes = u64::from(height) * (u64::from(width) + 1);
    // One block, the last, in the fixed code; a zero and its repetitions, single zeros for the rest, and the end.
    let mut bits = vec![1, 1, 0];
    bits.extend(ZERO);
    (0..(bytes - 1) / REPEAT).for_each(|_| bits.extend(REPETITION));
    (0..(bytes - 1) % REPEAT).for_each(|_| bits.extend(ZERO));
    bits.extend([0; 7]);
    let mut zlib = vec![0x78, 0x01];
    zlib.extend(bits.chunks(8).map(|bits| bits.iter().enumerate().map(|(n, bit)| bit << n).sum::<u8>()));
    zlib.extend((((bytes % 65521) as u32) << 16 | 1).to_be_bytes());
    file(width, height, zlib)
}

/// A grey PNG of compressed rows.
fn file(width: u32, height: u32, rows: Vec<u8>) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut head = Vec::new();
    head.extend(width.to_be_bytes());
    head.extend(height.to_be_bytes());
    head.extend([8, 0, 0, 0, 0]);
    for (kind, data) in [(b"IHDR", head), (b"IDAT", rows), (b"IEND", Vec::new())] {
        file.extend((data.len() as u32).to_be_bytes());
        let mut chunk = kind.to_vec();
        chunk.extend(&data);
        file.extend(&chunk);
        file.extend(crc32(&chunk).to_be_bytes());
    }
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}
