//! Which slot to write next, so that a reader at any moment finds every vendor of the old or of the new order. Pure.
//!
//! Slots are single variables, and no PBX can change several at once. Between two orders there are therefore moments
//! with neither, and the question is only what a call sees then. The rule that [`next`] keeps: what is visible always
//! holds every vendor of the order that is left, or every vendor of the order that is entered. A vendor may be there
//! twice for a moment (the hunt then tries it twice at worst), but never not at all.
//!
//! It looks at nothing but the slots as they are and as they should be, so it goes on rightly from wherever a change of
//! mind, a lost reply or somebody else's hand left them:
//!
//! 1. vendors of the new order that are nowhere yet are added behind the last slot;
//! 2. once all of them are there, slots are overwritten where nothing is lost by it: with what is not needed, or with
//!    what stands elsewhere too;
//! 3. where no slot is like that, the vendors go round in circles (b c a for a b c): one of them is copied behind the
//!    end, which opens its circle;
//! 4. when the front is right, the count is cut, and then the rest is cleared, last slot first.

/// A write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotWrite {
    /// Put a trunk into the slot at this place (from 0).
    Set(usize, String),
    /// Clear the slot at this place.
    Clear(usize),
    /// Set the count.
    Count(usize),
}

/// The next write on the way from `slots` (with `count`, where it is set to a number) to `wanted`; `None` when there is
/// nothing left to do.
#[must_use]
pub fn next(slots: &[Option<String>], count: Option<usize>, wanted: &[String]) -> Option<SlotWrite> {
    // A reader stops at the first slot that is not set; what stands behind it is rubbish.
    let visible: Vec<&str> = slots.iter().map_while(Option::as_deref).collect();
    let missing = |trunk: &String| !visible.contains(&trunk.as_str());
    let end = visible.len();
    if let Some(first_missing) = wanted.iter().find(|trunk| missing(trunk)) {
        let fits_here = wanted.get(end).filter(|trunk| missing(trunk));
        return Some(SlotWrite::Set(end, fits_here.unwrap_or(first_missing).clone()));
    }
    let right = |place: usize| visible.get(place).copied() == wanted.get(place).map(String::as_str);
    let wrong: Vec<usize> = (0..wanted.len()).filter(|place| !right(*place)).collect();
    if let Some(&first) = wrong.first() {
        if count != Some(end) {
            return Some(SlotWrite::Count(end));
        }
        let needed_here = |place: usize| {
            let trunk = visible.get(place).copied().unwrap_or_default();
            let elsewhere = visible.iter().enumerate().any(|(other, same)| other != place && *same == trunk);
            !elsewhere && wanted.iter().any(|wanted| wanted == trunk)
        };
        if let Some(&free) = wrong.iter().find(|place| !needed_here(**place)) {
            return Some(SlotWrite::Set(free, wanted[free].clone()));
        }
        let spare = (wanted.len()..end).find(|place| !needed_here(*place)).unwrap_or(end);
        return Some(SlotWrite::Set(spare, visible[first].to_owned()));
    }
    if count != Some(wanted.len()) {
        return Some(SlotWrite::Count(wanted.len()));
    }
    let last_set = slots.iter().rposition(Option::is_some)?;
    (last_set >= wanted.len()).then_some(SlotWrite::Clear(last_set))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// What a PBX holds.
    #[derive(Clone, Debug, Default)]
    struct Pbx {
        slots: Vec<Option<String>>,
        count: Option<usize>,
    }

    impl Pbx {
        fn write(&mut self, write: SlotWrite) {
            match write {
                SlotWrite::Count(count) => self.count = Some(count),
                SlotWrite::Clear(place) => self.slots[place] = None,
                SlotWrite::Set(place, trunk) => {
                    if place >= self.slots.len() {
                        self.slots.resize(place + 1, None);
                    }
                    self.slots[place] = Some(trunk);
                }
            }
        }

        /// What a reader finds that goes from slot to slot until one is not set.
        fn by_slots(&self) -> BTreeSet<&str> {
            self.slots.iter().map_while(Option::as_deref).collect()
        }

        /// What a reader finds that takes as many slots as the count says.
        fn by_count(&self) -> BTreeSet<&str> {
            self.slots.iter().take(self.count.unwrap_or(0)).flatten().map(String::as_str).collect()
        }

        fn settle(&mut self, wanted: &[String], most: usize) -> usize {
            let mut writes = 0;
            while let Some(write) = next(&self.slots, self.count, wanted) {
                self.write(write);
                writes += 1;
                assert!(writes <= most, "does not come to an end: {self:?} for {wanted:?}");
            }
            writes
        }
    }

    fn trunks(letters: &str) -> Vec<String> {
        letters.chars().map(String::from).collect()
    }

    fn orders() -> impl Strategy<Value = Vec<String>> {
        Just(trunks("abcdefg")).prop_shuffle().prop_flat_map(|all| (0..=all.len()).prop_map(move |n| all[..n].to_vec()))
    }

    #[test]
    fn a_rotation_costs_one_spare_slot() {
        let mut pbx = Pbx::default();
        pbx.settle(&trunks("abc"), 20);
        let mut most = 0;
        while let Some(write) = next(&pbx.slots, pbx.count, &trunks("bca")) {
            pbx.write(write);
            most = most.max(pbx.by_slots().len().max(pbx.slots.iter().flatten().count()));
        }
        assert_eq!(most, 4);
        assert_eq!(pbx.slots.iter().flatten().cloned().collect::<String>(), "bca");
    }

    proptest! {
        #[test]
        fn a_reader_finds_every_vendor_of_the_old_or_of_the_new_order_at_any_moment(old in orders(), new in orders()) {
            let mut pbx = Pbx::default();
            pbx.settle(&old, 100);
            let all = |order: &[String]| order.iter().cloned().collect::<BTreeSet<_>>();
            let (left, entered) = (all(&old), all(&new));
            let mut writes = 0;
            while let Some(write) = next(&pbx.slots, pbx.count, &new) {
                pbx.write(write);
                writes += 1;
                prop_assert!(writes <= 5 * 7 + 5);
                for seen in [pbx.by_slots(), pbx.by_count()] {
                    let seen: BTreeSet<String> = seen.into_iter().map(str::to_owned).collect();
                    prop_assert!(seen.is_superset(&left) || seen.is_superset(&entered), "{:?}", pbx);
                    prop_assert!(seen.iter().all(|trunk| left.contains(trunk) || entered.contains(trunk)));
                }
            }
            prop_assert_eq!(pbx.slots.iter().flatten().cloned().collect::<Vec<_>>(), new.clone());
            prop_assert_eq!(pbx.count, Some(new.len()));
        }

        #[test]
        fn a_change_of_mind_on_the_way_loses_no_vendor_that_all_orders_have(
            steps in proptest::collection::vec((orders(), 0_usize..12), 1..6),
        ) {
            let mut pbx = Pbx::default();
            pbx.settle(&steps[0].0, 100);
            let in_all: BTreeSet<&str> = steps
                .iter()
                .map(|(order, _)| order.iter().map(String::as_str).collect::<BTreeSet<_>>())
                .reduce(|a, b| a.intersection(&b).copied().collect())
                .unwrap();
            for (order, writes) in &steps {
                for _ in 0..*writes {
                    let Some(write) = next(&pbx.slots, pbx.count, order) else { break };
                    pbx.write(write);
                    prop_assert!(pbx.by_slots().is_superset(&in_all), "{:?}", pbx);
                    prop_assert!(pbx.by_count().is_superset(&in_all), "{:?}", pbx);
                }
            }
            pbx.settle(&steps[steps.len() - 1].0, 200);
        }

        #[test]
        fn it_comes_to_an_end_from_any_rubbish(
            rubbish in proptest::collection::vec(proptest::option::of("[a-i]"), 0..12),
            count in proptest::option::of(0_usize..15),
            wanted in orders(),
        ) {
            let mut pbx = Pbx { slots: rubbish, count };
            pbx.settle(&wanted, 100);
            prop_assert_eq!(pbx.slots.iter().flatten().cloned().collect::<Vec<_>>(), wanted);
        }
    }
}
