//! What a vendor does with the calls it gets.
//!
//! A [`Behaviour`] is a distribution; [`Behaviour::draw`] makes the [`Plan`] of one call of it. Behaviours are data
//! and may be exchanged while calls are up: a call keeps the plan it was born with.

use std::time::Duration;

/// A span of time, drawn anew for every call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Span {
    /// Always the same.
    Exactly(Duration),
    /// Anything from the first to the second, equally likely.
    Between(Duration, Duration),
    /// Exponentially distributed around this mean, as talk times are.
    About(Duration),
}

impl Span {
    /// Always this many milliseconds.
    #[must_use]
    pub const fn millis(millis: u64) -> Self {
        Self::Exactly(Duration::from_millis(millis))
    }

    /// Draws one.
    #[must_use]
    pub fn draw(&self, rng: &mut fastrand::Rng) -> Duration {
        match *self {
            Self::Exactly(span) => span,
            Self::Between(from, to) => from + to.saturating_sub(from).mul_f64(rng.f64()),
            // 1 - f64() is never 0, so the logarithm is finite.
            Self::About(mean) => mean.mul_f64(-(1.0 - rng.f64()).ln()),
        }
    }
}

/// The far end's first sign of life, before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// 180.
    Ringing,
    /// 183 with media.
    EarlyMedia,
    /// None: the final answer is the first that is heard.
    Nothing,
}

/// How a call to a vendor goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is answered.
    Answered,
    /// It is refused with this SIP status, without a sign before.
    Refused(u16),
    /// It rings first and is refused with this SIP status then.
    RefusedAfterSign(u16),
    /// It rings for ever.
    RingsOut,
    /// Nothing is ever heard of it.
    Silent,
    /// Nobody listens at the vendor's address.
    Unreachable,
}

/// How a vendor behaves.
#[derive(Clone, Debug, PartialEq)]
pub struct Behaviour {
    /// What can happen, and how often relative to the others.
    pub fates: Vec<(Fate, f64)>,
    /// The first sign of calls that give one.
    pub sign: Sign,
    /// From the INVITE to the first sign: the PDD.
    pub sign_after: Span,
    /// From the first sign to the answer, or to the refusal after a sign.
    pub final_after: Span,
    /// From the INVITE to a refusal without a sign.
    pub refusal_after: Span,
    /// From the answer to the hangup.
    pub talk: Span,
    /// In what share of the answered calls the far end hangs up first, 0 to 1.
    pub far_end_hangs_up: f64,
}

impl Behaviour {
    /// Rings after 0.3 s, answers 1.2 s later, every time; talks for 2 s. The base of the others.
    #[must_use]
    pub fn good() -> Self {
        Self {
            fates: vec![(Fate::Answered, 1.0)],
            sign: Sign::Ringing,
            sign_after: Span::millis(300),
            final_after: Span::millis(1200),
            refusal_after: Span::millis(100),
            talk: Span::millis(2000),
            far_end_hangs_up: 0.0,
        }
    }

    /// Always ends this way, with the delays of [`Behaviour::good`].
    #[must_use]
    pub fn always(fate: Fate) -> Self {
        Self { fates: vec![(fate, 1.0)], ..Self::good() }
    }

    /// Refuses every call with this SIP status, after 0.1 s.
    #[must_use]
    pub fn refusing(status: u16) -> Self {
        Self::always(Fate::Refused(status))
    }

    /// Answers at once, without a sign before.
    #[must_use]
    pub fn instant() -> Self {
        Self { sign: Sign::Nothing, sign_after: Span::millis(0), final_after: Span::millis(0), ..Self::good() }
    }

    /// Sends 183 with media after 0.4 s and answers 1.5 s later.
    #[must_use]
    pub fn early_media() -> Self {
        Self { sign: Sign::EarlyMedia, sign_after: Span::millis(400), final_after: Span::millis(1500), ..Self::good() }
    }

    /// Answers this share of its calls (0 to 1); of the others a half fail with 503, a quarter is busy, a fifth rings
    /// unanswered, the rest goes to numbers that do not exist.
    #[must_use]
    pub fn answering(share: f64) -> Self {
        let rest = (1.0 - share).max(0.0);
        let fates = vec![
            (Fate::Answered, share),
            (Fate::Refused(503), rest * 0.5),
            (Fate::RefusedAfterSign(486), rest * 0.25),
            (Fate::RingsOut, rest * 0.2),
            (Fate::Refused(404), rest * 0.05),
        ];
        Self { fates, ..Self::good() }
    }

    /// The same with other talk times.
    #[must_use]
    pub fn talking(self, talk: Span) -> Self {
        Self { talk, ..self }
    }

    /// The same with another delay to the first sign.
    #[must_use]
    pub fn ringing_after(self, sign_after: Span) -> Self {
        Self { sign_after, ..self }
    }

    /// The same with another delay from the first sign to the answer.
    #[must_use]
    pub fn answering_after(self, final_after: Span) -> Self {
        Self { final_after, ..self }
    }

    /// Decides one call.
    #[must_use]
    pub fn draw(&self, rng: &mut fastrand::Rng) -> Plan {
        let fate = self.draw_fate(rng);
        let sign_after = self.sign_after.draw(rng);
        let final_after = sign_after + self.final_after.draw(rng);
        let sign = match self.sign {
            Sign::Ringing => Some((sign_after, FarEnd::Ringing)),
            Sign::EarlyMedia => Some((sign_after, FarEnd::EarlyMedia)),
            Sign::Nothing => None,
        };
        let refused = |status| FarEnd::Refused(status);
        let (sign, last) = match fate {
            Fate::Answered => (sign, Some((final_after, FarEnd::Answered))),
            Fate::RefusedAfterSign(status) => (sign, Some((final_after, refused(status)))),
            Fate::Refused(status) => (None, Some((self.refusal_after.draw(rng), refused(status)))),
            Fate::RingsOut => (sign, None),
            Fate::Silent => (None, None),
            Fate::Unreachable => (None, Some((Duration::ZERO, FarEnd::Unreachable))),
        };
        Plan {
            signals: sign.into_iter().chain(last).collect(),
            talk: self.talk.draw(rng),
            far_end_hangs_up: rng.f64() < self.far_end_hangs_up,
        }
    }

    fn draw_fate(&self, rng: &mut fastrand::Rng) -> Fate {
        let total: f64 = self.fates.iter().map(|(_, weight)| weight).sum();
        let mut left = rng.f64() * total;
        for (fate, weight) in &self.fates {
            left -= weight;
            if left < 0.0 {
                return *fate;
            }
        }
        self.fates.last().map_or(Fate::Silent, |(fate, _)| *fate)
    }
}

/// A signal of the far end about one leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarEnd {
    /// 180.
    Ringing,
    /// 183 with media.
    EarlyMedia,
    /// 200.
    Answered,
    /// A final answer of 300 or above.
    Refused(u16),
    /// The network says that nobody is there.
    Unreachable,
}

/// What will happen to one leg, unless our side ends it before.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The far end's signals, each with its time after the INVITE, in order.
    pub signals: Vec<(Duration, FarEnd)>,
    /// From the answer to the hangup.
    pub talk: Duration,
    /// Who hangs up an answered call.
    pub far_end_hangs_up: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_come_out_as_configured() {
        let mut rng = fastrand::Rng::with_seed(7);
        let vendor = Behaviour::answering(0.4);
        let answered = (0..10_000)
            .filter(|_| vendor.draw(&mut rng).signals.last().is_some_and(|(_, what)| *what == FarEnd::Answered))
            .count();
        assert!((3_800..4_200).contains(&answered), "{answered}");
    }

    #[test]
    fn spans_have_their_mean() {
        let mut rng = fastrand::Rng::with_seed(7);
        let about = Span::About(Duration::from_secs(60));
        let mean = (0..20_000).map(|_| about.draw(&mut rng).as_secs_f64()).sum::<f64>() / 20_000.0;
        assert!((58.0..62.0).contains(&mean), "{mean}");
        let between = Span::Between(Duration::from_secs(2), Duration::from_secs(4));
        for _ in 0..1000 {
            let span = between.draw(&mut rng);
            assert!(span >= Duration::from_secs(2) && span <= Duration::from_secs(4));
        }
    }

    #[test]
    fn signals_are_in_order_and_fit_the_fate() {
        let mut rng = fastrand::Rng::with_seed(7);
        let plan = Behaviour::always(Fate::RefusedAfterSign(486)).draw(&mut rng);
        assert_eq!(
            plan.signals,
            vec![(Duration::from_millis(300), FarEnd::Ringing), (Duration::from_millis(1500), FarEnd::Refused(486)),]
        );
        assert_eq!(Behaviour::always(Fate::Silent).draw(&mut rng).signals, vec![]);
        assert_eq!(Behaviour::instant().draw(&mut rng).signals, vec![(Duration::ZERO, FarEnd::Answered)]);
    }
}
