//! Why a call failed, in words for somebody who has never heard of SIP.
//!
//! The outcome has the last word: operators may decide that a 403 means a wrong number, and then that is what it means
//! here. So each code below names the outcome that its words agree with; where the attempt had another, the outcome's
//! own words are taken.

use crate::call::outcome::Outcome;
use crate::call::outcome::Outcome::{Busy, NoAnswer, NumberInvalid, Rejected, VendorFailed};
use crate::config::model::Language;
use crate::notify::notice::FailedCall;

/// Words in each language.
struct Words {
    en: &'static str,
    ru: &'static str,
}

impl Words {
    fn in_language(&self, language: Language) -> &'static str {
        match language {
            Language::En => self.en,
            Language::Ru => self.ru,
        }
    }
}

/// A code, the outcome that its words agree with, and the words.
type Entry = (u16, Outcome, Words);

const fn entry(code: u16, outcome: Outcome, en: &'static str, ru: &'static str) -> Entry {
    (code, outcome, Words { en, ru })
}

/// SIP statuses.
const SIP: &[Entry] = &[
    entry(400, VendorFailed, "the vendor did not accept the request", "поставщик не принял запрос"),
    entry(401, VendorFailed, "the vendor did not accept our login", "поставщик не принял нашу авторизацию"),
    entry(402, VendorFailed, "the vendor demands payment first", "поставщик требует оплаты"),
    entry(403, VendorFailed, "the vendor refused the call", "поставщик отказал в обслуживании"),
    entry(404, NumberInvalid, "the number does not exist", "номер не существует"),
    entry(405, VendorFailed, "the vendor did not accept the request", "поставщик не принял запрос"),
    entry(406, VendorFailed, "the vendor did not accept the request", "поставщик не принял запрос"),
    entry(407, VendorFailed, "the vendor did not accept our login", "поставщик не принял нашу авторизацию"),
    entry(408, VendorFailed, "no response from the vendor in time", "поставщик не ответил вовремя"),
    entry(410, NumberInvalid, "the number is no longer in use", "номер больше не обслуживается"),
    entry(415, VendorFailed, "no codec in common with the vendor", "нет общего кодека с поставщиком"),
    entry(416, NumberInvalid, "the form of the number is not supported", "формат номера не поддерживается"),
    entry(480, NoAnswer, "the called person could not be reached", "вызываемый абонент недоступен"),
    entry(481, VendorFailed, "the vendor lost track of the call", "поставщик потерял звонок"),
    entry(482, VendorFailed, "the vendor sent the call in a circle", "звонок зациклился у поставщика"),
    entry(483, VendorFailed, "the vendor sent the call in a circle", "звонок зациклился у поставщика"),
    entry(484, NumberInvalid, "the number is incomplete", "номер набран не полностью"),
    entry(485, NumberInvalid, "the number is ambiguous", "номер определён неоднозначно"),
    entry(486, Busy, "the called number was busy", "номер занят"),
    entry(
        487,
        VendorFailed,
        "the vendor ended the call before it rang",
        "поставщик прервал звонок до вызывного сигнала",
    ),
    entry(488, VendorFailed, "no codec in common with the vendor", "нет общего кодека с поставщиком"),
    entry(500, VendorFailed, "a fault inside the vendor's system", "внутренняя ошибка у поставщика"),
    entry(501, VendorFailed, "the vendor cannot do what was asked", "поставщик не поддерживает такой запрос"),
    entry(502, VendorFailed, "a fault in the network behind the vendor", "ошибка в сети за поставщиком"),
    entry(503, VendorFailed, "the vendor was overloaded or out of service", "поставщик перегружен или не работает"),
    entry(
        504,
        VendorFailed,
        "no response from the network behind the vendor",
        "сеть за поставщиком не ответила вовремя",
    ),
    entry(600, Busy, "the called number was busy", "номер занят"),
    entry(603, Rejected, "the called person declined the call", "абонент отклонил звонок"),
    entry(604, NumberInvalid, "the number does not exist", "номер не существует"),
    entry(606, VendorFailed, "no codec in common with the far end", "нет общего кодека с вызываемой стороной"),
    entry(
        607,
        Rejected,
        "the called person declined the call as unwanted",
        "абонент отклонил звонок как нежелательный",
    ),
    entry(608, Rejected, "declined by a call screening service", "звонок отклонён службой фильтрации"),
];

/// Q.850 causes.
const Q850: &[Entry] = &[
    entry(0, VendorFailed, "no ringing and no answer came", "не было ни вызывного сигнала, ни ответа"),
    entry(1, NumberInvalid, "the number does not exist", "номер не существует"),
    entry(2, VendorFailed, "the vendor has no route to the network", "у поставщика нет маршрута до сети"),
    entry(3, VendorFailed, "the vendor has no route to the number", "у поставщика нет маршрута до номера"),
    entry(16, VendorFailed, "no ringing and no answer came", "не было ни вызывного сигнала, ни ответа"),
    entry(17, Busy, "the called number was busy", "номер занят"),
    entry(18, VendorFailed, "no response from the vendor in time", "поставщик не ответил вовремя"),
    entry(
        20,
        VendorFailed,
        "the called phone is switched off or out of reach",
        "телефон абонента выключен или вне зоны",
    ),
    entry(21, Rejected, "the called person declined the call", "абонент отклонил звонок"),
    entry(22, NumberInvalid, "the number has changed", "номер изменён"),
    entry(27, VendorFailed, "the called line is out of order", "линия абонента неисправна"),
    entry(28, NumberInvalid, "the number is incomplete or malformed", "номер неполный или неверного формата"),
    entry(29, VendorFailed, "the vendor refused a service asked for", "поставщик отказал в услуге"),
    entry(31, VendorFailed, "the vendor gave no reason", "поставщик не указал причину"),
    entry(34, VendorFailed, "the vendor had no free line", "у поставщика нет свободных линий"),
    entry(38, VendorFailed, "the network behind the vendor is out of order", "сеть за поставщиком неисправна"),
    entry(41, VendorFailed, "a temporary fault at the vendor", "временная неисправность у поставщика"),
    entry(42, VendorFailed, "the vendor's switch was overloaded", "перегрузка у поставщика"),
    entry(44, VendorFailed, "the line asked for was not free", "запрошенная линия занята"),
    entry(47, VendorFailed, "the vendor lacked resources", "у поставщика не хватило ресурсов"),
    entry(50, VendorFailed, "the service is not subscribed to", "услуга не подключена"),
    entry(52, VendorFailed, "calls out are barred", "исходящие звонки запрещены"),
    entry(54, VendorFailed, "calls in are barred", "входящие звонки запрещены"),
    entry(57, VendorFailed, "this kind of call is not permitted", "такой вид связи не разрешён"),
    entry(58, VendorFailed, "this kind of call is not available now", "такой вид связи сейчас недоступен"),
    entry(65, VendorFailed, "the vendor does not know this kind of call", "поставщик не поддерживает такой вид связи"),
    entry(79, VendorFailed, "the vendor cannot do what was asked", "поставщик не поддерживает такой запрос"),
    entry(88, VendorFailed, "the called device is not compatible", "устройство абонента несовместимо"),
    entry(102, VendorFailed, "no response from the network in time", "сеть не ответила вовремя"),
    entry(111, VendorFailed, "a protocol error between the networks", "ошибка протокола между сетями"),
    entry(127, VendorFailed, "a fault in another network, reason unknown", "сбой в другой сети, причина неизвестна"),
];

/// What an outcome is called where no code says it better.
fn of_outcome(outcome: Outcome) -> Words {
    let (en, ru) = match outcome {
        Outcome::Answered => ("answered and ended at once", "отвечен и сразу завершён"),
        Outcome::Busy => ("the called number was busy", "номер занят"),
        Outcome::NoAnswer => ("nobody answered", "никто не ответил"),
        Outcome::Rejected => ("the called person declined the call", "абонент отклонил звонок"),
        Outcome::NumberInvalid => ("the number is not valid", "неверный номер"),
        Outcome::VendorFailed => ("the vendor could not complete the call", "поставщик не смог установить соединение"),
        Outcome::CallerGone => ("the caller hung up first", "звонивший положил трубку первым"),
        Outcome::LostRace => ("another line answered first", "ответили по другой линии"),
        Outcome::NotSent => ("the call was not sent", "звонок не был отправлен"),
        Outcome::Lost => ("the end of the call was not seen", "завершение звонка не зафиксировано"),
    };
    Words { en, ru }
}

/// Why the call failed, with the code: `the called number was busy (486)`.
#[must_use]
pub fn cause(call: &FailedCall, language: Language) -> String {
    words(call.outcome, call.sip_status, call.cause, language)
}

/// Why an attempt that was not answered ended so, with the code that says it: a refusal by SIP, else a Q.850 cause. No
/// line is broken within the code.
pub(crate) fn words(outcome: Outcome, sip_status: Option<u16>, cause: Option<u16>, language: Language) -> String {
    // A status under 300 ends no call, and Q.850 has no 0: it stands for none.
    let refusal = sip_status.filter(|status| *status >= 300);
    let find = |table: &'static [Entry], code: u16| table.iter().find(|(of, ..)| *of == code);
    let entry = match refusal {
        Some(status) => find(SIP, status),
        None => find(Q850, cause.unwrap_or(0)),
    };
    let words = match entry {
        Some((_, agreed, words)) if *agreed == outcome => words.in_language(language),
        _ => of_outcome(outcome).in_language(language),
    };
    let cause = || cause.filter(|cause| *cause != 0).map(|cause| format!("Q.850\u{a0}{cause}"));
    match refusal.map(|status| status.to_string()).or_else(cause) {
        Some(code) => format!("{words} ({code})"),
        None => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::outcome::{CauseTable, EndedBy, Evidence};
    use crate::ids::NodeId;
    use crate::time::Timestamp;

    fn english(outcome: Outcome, sip_status: Option<u16>, cause: Option<u16>) -> String {
        say(outcome, sip_status, cause, Language::En)
    }

    fn say(outcome: Outcome, sip_status: Option<u16>, cause: Option<u16>, language: Language) -> String {
        let node = NodeId::new("pbx-01").unwrap();
        let call = FailedCall { at: Timestamp::from_secs(1), node, number: None, outcome, cause, sip_status };
        super::cause(&call, language)
    }

    #[test]
    fn a_code_is_said_in_words_and_kept_beside_them() {
        assert_eq!(english(Busy, Some(486), Some(17)), "the called number was busy (486)");
        assert_eq!(english(VendorFailed, None, Some(34)), "the vendor had no free line (Q.850\u{a0}34)");
        assert_eq!(say(VendorFailed, None, Some(34), Language::Ru), "у поставщика нет свободных линий (Q.850\u{a0}34)");
        assert_eq!(english(NoAnswer, None, None), "nobody answered");
        assert_eq!(english(VendorFailed, None, Some(0)), "no ringing and no answer came");
    }

    #[test]
    fn the_outcome_wins_over_the_code() {
        assert_eq!(english(NumberInvalid, Some(403), None), "the number is not valid (403)");
        assert_eq!(english(NoAnswer, Some(408), Some(102)), "nobody answered (408)");
        assert_eq!(english(Outcome::CallerGone, None, Some(16)), "the caller hung up first (Q.850\u{a0}16)");
        assert_eq!(english(VendorFailed, Some(599), None), "the vendor could not complete the call (599)");
        assert_eq!(
            english(Busy, Some(200), Some(17)),
            "the called number was busy (Q.850\u{a0}17)",
            "200 refuses nothing"
        );
    }

    /// Words that the shipped cause table never lets anybody read would be words for nobody.
    #[test]
    fn every_entry_agrees_with_the_default_cause_table() {
        let outcome = |sip_status, cause| {
            let evidence = Evidence { ended_by: EndedBy::FarEnd, answered: false, rang: false, sip_status, cause };
            CauseTable::default().outcome(&evidence)
        };
        for (status, expected, _) in SIP {
            assert_eq!(outcome(Some(*status), None), *expected, "{status}");
        }
        for (cause, expected, _) in Q850 {
            assert_eq!(outcome(None, Some(*cause)), *expected, "Q.850 {cause}");
        }
    }

    #[test]
    fn no_code_is_in_a_table_twice_and_each_has_both_languages() {
        for table in [SIP, Q850] {
            assert!(table.is_sorted_by(|a, b| a.0 < b.0));
            for (code, _, words) in table {
                assert!(words.en.is_ascii() && !words.en.is_empty(), "{code}");
                assert!(words.ru.chars().any(|c| ('а'..='я').contains(&c)), "{code}");
            }
        }
    }
}
