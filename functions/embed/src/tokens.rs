//! From texts to tokens: WordPiece as BERT's uncased encoders have it, over a vocabulary of one token a line (`vocab.txt`).
//!
//! A text is cut at spaces and around punctuation and CJK ideographs, made lower case, and loses accents and control characters.
//! Each word then becomes the longest tokens that make it up, from its beginning; those inside of a word begin with `##` in the
//! vocabulary. A word that cannot be made up is `[UNK]`. `[CLS]` comes before all of them and `[SEP]` after.

use std::collections::HashMap;

use fanfold::{Error, Result};
use unicode_normalization::UnicodeNormalization as _;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory as _};

/// Characters of a word; a longer one is unknown.
const WORD_CHARS_MAX: usize = 100;

/// Tokens by their text.
pub struct Vocabulary {
    tokens: HashMap<String, u32>,
    first: u32,
    last: u32,
    unknown: u32,
}

impl Vocabulary {
    /// From the lines of a `vocab.txt`; a token's number is its line's, from 0.
    ///
    /// # Errors
    /// `invalid` without `[CLS]`, `[SEP]` and `[UNK]`.
    pub fn parse(lines: &str) -> Result<Self> {
        let tokens: HashMap<_, _> =
            lines.lines().map(|line| String::from(line.trim_end())).zip(0..).collect();
        let special = |name: &str| {
            tokens.get(name).copied().ok_or_else(|| Error::invalid(format!("the vocabulary has no `{name}`")))
        };
        let (first, last, unknown) = (special("[CLS]")?, special("[SEP]")?, special("[UNK]")?);
        Ok(Self { tokens, first, last, unknown })
    }

    /// A text's tokens, of which there are `most` at most, 2 or more: what does not fit is left out.
    pub fn tokens(&self, text: &str, most: usize) -> Vec<u32> {
        let mut tokens = vec![self.first];
        for word in words(text) {
            self.cut(&word, &mut tokens);
            if tokens.len() >= most {
                break;
            }
        }
        tokens.truncate(most - 1);
        tokens.push(self.last);
        tokens
    }

    /// Appends a word's tokens.
    fn cut(&self, word: &str, tokens: &mut Vec<u32>) {
        let begin = tokens.len();
        let (mut rest, mut inside) = (word, "");
        if word.chars().count() > WORD_CHARS_MAX {
            return tokens.push(self.unknown);
        }
        while !rest.is_empty() {
            let ends = rest.char_indices().map(|(at, char)| at + char.len_utf8()).rev();
            let found = ends
                .into_iter()
                .find_map(|end| Some((end, *self.tokens.get(&format!("{inside}{}", &rest[..end]))?)));
            let Some((end, token)) = found else {
                tokens.truncate(begin);
                return tokens.push(self.unknown);
            };
            tokens.push(token);
            (rest, inside) = (&rest[end..], "##");
        }
    }
}

/// The words of a text.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut end = |word: &mut String| {
        if !word.is_empty() {
            words.push(std::mem::take(word));
        }
    };
    let is_accent = |char: &char| char.general_category() == GeneralCategory::NonspacingMark;
    let plain = text.chars().flat_map(char::to_lowercase).nfd().filter(|char| !is_accent(char));
    for char in plain {
        if matches!(char, '\t' | '\n' | '\r') || char.is_whitespace() && !char.is_control() {
            end(&mut word);
        } else if stands_alone(char) {
            end(&mut word);
            word.push(char);
            end(&mut word);
        } else if char != char::REPLACEMENT_CHARACTER
            && char.general_category_group() != GeneralCategoryGroup::Other
        {
            word.push(char);
        }
    }
    end(&mut word);
    words
}

/// Whether a character is a word by itself.
fn stands_alone(char: char) -> bool {
    let ideograph = matches!(char, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{2a6df}' | '\u{2a700}'..='\u{2ceaf}' | '\u{2f800}'..='\u{2fa1f}');
    char.is_ascii_punctuation()
        || ideograph
        || char.general_category_group() == GeneralCategoryGroup::Punctuation
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##aff\n##able\ncafe\n,\nthe\n##s\n中\ntable\nun1";

    #[test]
    fn texts_become_the_longest_tokens() {
        let vocabulary = Vocabulary::parse(LINES).unwrap();
        for (text, tokens) in [
            ("unaffable", &[2, 4, 5, 6, 3][..]),
            ("The  CAFÉs,the\ttable\n", &[2, 9, 7, 10, 8, 9, 12, 3]),
            ("中the中", &[2, 11, 9, 11, 3]),
            // One part that cannot be made up makes the whole word unknown.
            ("unaffablez the", &[2, 1, 9, 3]),
            ("", &[2, 3]),
            ("\u{0}\u{200d}the\u{fffd}", &[2, 9, 3]),
            ("the-the", &[2, 9, 1, 9, 3]),
            ("the“s\u{3000}TH\u{85}E\u{301}s", &[2, 9, 1, 1, 9, 10, 3]),
        ] {
            assert_eq!(vocabulary.tokens(text, 100), tokens, "{text}");
        }
        assert_eq!(vocabulary.tokens(&"x".repeat(101), 100), [2, 1, 3]);
        assert_eq!(vocabulary.tokens("unaffable the", 4), [2, 4, 5, 3]);
        assert_eq!(vocabulary.tokens("unaffable", 2), [2, 3]);
        assert!(Vocabulary::parse("a\nb").is_err_and(|e| e.message.contains("[CLS]")));
    }
}
