//! Shuffle sharding: deals a flow a few of the queues, so that two flows seldom have the same ones
//! (apiserver `util/shufflesharding`).

/// Bits of a hash that cards are dealt from: of more, the last card would not be dealt evenly.
const MAX_HASH_BITS: f64 = 60.0;
/// The most cards in a deck.
const MAX_DECK: usize = 1 << 26;
/// The most cards in a hand that [`MAX_HASH_BITS`] suffice for.
const MAX_HAND: usize = 15;

/// The sizes of deck and hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dealer {
    deck: usize,
    hand: usize,
}

/// The cards that were dealt.
#[derive(Clone, Copy, Debug)]
pub struct Hand {
    cards: [usize; MAX_HAND],
    len: usize,
}

impl Hand {
    pub fn cards(&self) -> &[usize] {
        self.cards.get(..self.len).unwrap_or_default()
    }
}

impl Dealer {
    /// Returns a dealer; `None` where a hand of the size cannot be dealt evenly.
    pub fn new(deck: usize, hand: usize) -> Option<Self> {
        let is_sound = (1..=deck).contains(&hand)
            && deck <= MAX_DECK
            && hand <= MAX_HAND
            && ((deck as f64).log2() * hand as f64).ceil() <= MAX_HASH_BITS;
        is_sound.then_some(Self { deck, hand })
    }

    /// Deals a hand of different cards below the size of the deck, by the bits of a hash.
    pub fn deal(&self, mut hash: u64) -> Hand {
        let mut dealt = Hand {
            cards: [0; MAX_HAND],
            len: self.hand.min(MAX_HAND),
        };
        // Each is a position among the cards that were left.
        for (at, card) in dealt.cards.iter_mut().take(self.hand).enumerate() {
            let left = (self.deck - at) as u64;
            *card = (hash % left) as usize;
            hash /= left;
        }
        let positions = dealt.cards;
        for at in 0..dealt.len {
            let mut card = positions[at];
            for earlier in positions[..at].iter().rev() {
                card += usize::from(card >= *earlier);
            }
            dealt.cards[at] = card;
        }
        dealt
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn hands_that_need_too_many_bits_are_not_dealt() {
        for (deck, hand, sound) in [
            (0, 0, false),
            (6, 7, false),
            (6, 6, true),
            (128, 6, true),
            (512, 8, false),
            (1 << 26, 2, true),
            ((1 << 26) + 1, 2, false),
            (1, 1, true),
        ] {
            assert_eq!(Dealer::new(deck, hand).is_some(), sound, "{deck} {hand}");
        }
    }

    #[test]
    fn each_hand_of_different_cards_is_dealt_equally_often() {
        let dealer = Dealer::new(6, 3).expect("a dealer");
        let mut hands: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        for hash in 0..6 * 5 * 4 * 7 {
            let hand = dealer.deal(hash);
            let cards: BTreeSet<_> = hand.cards().iter().collect();
            assert_eq!(cards.len(), 3, "{hand:?}");
            assert!(cards.iter().all(|card| **card < 6));
            *hands.entry(hand.cards().to_vec()).or_default() += 1;
        }
        assert_eq!(hands.len(), 6 * 5 * 4);
        assert!(hands.values().all(|count| *count == 7));
    }

    #[test]
    fn the_hand_of_a_hash_is_upstreams() {
        let dealer = Dealer::new(128, 4).expect("a dealer");
        let hand = dealer.deal(0x1234_5678_90ab_cdef);
        assert_eq!(hand.cards(), [111, 105, 90, 59]);
    }
}
