//! Short messages from one rank to the others, beside the sums: that it waits, or that it failed and why.

/// Bytes of a notice; longer texts are cut.
pub(crate) const BYTES: usize = 2048;
/// Bytes before the text.
const HEAD: usize = 16;

/// What a rank tells the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RankWord {
    /// It waits for the others in the communication of this number.
    Waits(u64),
    Failed(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) rank: usize,
    pub(crate) word: RankWord,
}

impl Notice {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (number, text) = match &self.word {
            RankWord::Waits(sequence) => (*sequence, ""),
            RankWord::Failed(text) => (u64::MAX, text.as_str()),
        };
        let mut end = text.len().min(BYTES - HEAD);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend((self.rank as u32).to_le_bytes());
        bytes.extend((end as u32).to_le_bytes());
        bytes.extend(number.to_le_bytes());
        bytes.extend(&text.as_bytes()[..end]);
        bytes.resize(BYTES, 0);
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; BYTES]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let number = u64::from(word(8)) | u64::from(word(12)) << 32;
        let length = (word(4) as usize).min(BYTES - HEAD);
        let word_said = match number {
            u64::MAX => RankWord::Failed(String::from_utf8_lossy(&bytes[HEAD..HEAD + length]).into_owned()),
            sequence => RankWord::Waits(sequence),
        };
        Self { rank: word(0) as usize, word: word_said }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_arrive_as_they_were_sent() {
        let there = |word: RankWord| {
            let sent = Notice { rank: 70_000, word };
            let bytes: [u8; BYTES] = sent.to_bytes().try_into().unwrap();
            assert_eq!(Notice::from_bytes(&bytes), sent);
        };
        there(RankWord::Waits(7 << 40));
        there(RankWord::Failed("a file is missing".into()));
        let long = Notice { rank: 1, word: RankWord::Failed("ü".repeat(BYTES)) };
        let RankWord::Failed(cut) = Notice::from_bytes(&long.to_bytes().try_into().unwrap()).word else {
            panic!()
        };
        assert!(cut.len() > BYTES - HEAD - 2 && cut.chars().all(|sign| sign == 'ü'));
    }
}
