//! Every sentence, in both languages.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::tz::TimeZone;

use super::*;
use crate::call::outcome::Outcome;
use crate::config::model::Language::{En, Ru};
use crate::engine::view::{BreakerState, BreakerView, ChangeView, ConnectionView, CriterionView, LinkState, RouteView};
use crate::ids::{ConnectionId, NodeId, QualityKey};
use crate::notify::notice::FailedCall;
use crate::quality::machine::{Change, Progress, Reason, Standing, State};
use crate::quality::pin::{Pin, Pinned};
use crate::quality::sentence::{ASSUMED, ChangeSentence, StateSentence};
use crate::quality::settings::{BadQualityAction, Settings};
use crate::quality::window::{Epoch, Figures as Quality, Sample};
use crate::routing::Route;
use crate::routing::matching::Match;
use crate::routing::rule::{Measure, Value};
use crate::score::{Admin, Figure, Figures, Lethal, Source};
use crate::store::OUTCOMES;
use crate::time::Timestamp;
use crate::xds::dialogue::Fault;

const NOON: Timestamp = Timestamp::from_secs(1_796_036_585);

/// What a Russian text may keep in Latin letters: names, and what the trade itself writes so.
const LATIN: [&str; 9] = ["ASR", "ACD", "PDD", "NER", "SIP", "Q", "CPU", "UTC", "vendor"];

fn berlin() -> TimeZone {
    TimeZone::get("Europe/Berlin").unwrap()
}

fn plain(text: &str) -> String {
    text.replace(JOINER, " ")
}

/// The text, which has to be Russian.
fn russian(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    for word in words {
        assert!(LATIN.contains(&word) || word.len() == 1, "{word:?} in {text:?}");
    }
    plain(text)
}

fn id(name: &str) -> ConnectionId {
    ConnectionId::new(name).unwrap()
}

fn told(words: &str) -> ChangeView {
    let (state, figures) = (State::Good, Quality::default());
    let change = Change { at: NOON, from: state, to: state, reason: Reason::Operator, epoch: Epoch(1), figures };
    ChangeView { key: QualityKey::connection(id("vendor-a")), change, words: words.into(), who: "alice".into() }
}

fn in_russian(words: &str) -> String {
    russian(&change(&told(words), Ru, &berlin()))
}

#[test]
fn a_change_is_said_in_russian_with_the_same_figures() {
    for (english, expected) in [
        (
            "lowered: ASR 35.0 % under 40 % over 20 calls; 9 x 503, 4 x 486",
            "переведено в конец списка: ASR 35,0 % ниже 40 % по 20 вызовам; 9 × 503, 4 × 486",
        ),
        (
            "lowered again: ACD 3.2 s under 5.5 s over 21 calls",
            "снова переведено в конец списка: ACD 3,2 с ниже 5,5 с по 21 вызову",
        ),
        (
            "still lowered: PDD 7.0 s over 6 s over 1 call; 1 x cause 34",
            "по-прежнему в конце списка: PDD 7,0 с выше 6 с по 1 вызову; 1 × Q.850 34",
        ),
        (
            "blocked: ASR 0.0 % under 40 % over 10 calls; 3 x no answer, 2 x caller gave up, 2 x answered for 0 s, \
             1 x no sign of the vendor, 2 others",
            "заблокировано: ASR 0,0 % ниже 40 % по 10 вызовам; 3 × нет ответа, 2 × отбой вызывающего, \
             2 × ответ на 0 с, 1 × поставщик не отозвался, 2 × прочее",
        ),
        ("blocked again: no figures over 10 calls", "снова заблокировано: показателей нет по 10 вызовам"),
        (
            "bad (notify only): ASR 39.96 % under 40 % over 2500 calls",
            "ниже нормы (только уведомление): ASR 39,96 % ниже 40 % по 2500 вызовам",
        ),
        ("bad again: ASR 9.0 % under 40 % over 20 calls", "снова ниже нормы: ASR 9,0 % ниже 40 % по 20 вызовам"),
        ("still bad: ASR 9.0 % under 40 % over 20 calls", "по-прежнему ниже нормы: ASR 9,0 % ниже 40 % по 20 вызовам"),
        (
            "back in its usual place for a retry batch of 10 calls",
            "вернулось на обычное место для проверки по 10 вызовам",
        ),
        ("judged anew by a retry batch of 1 call", "оценивается заново по 1 вызову"),
        (
            "recovered: ASR 55.0 %, ACD 42.3 s, PDD 1.2 s over a batch of 22 calls",
            "снова в норме: ASR 55,0 %, ACD 42,3 с, PDD 1,2 с по 22 вызовам",
        ),
        ("not monitored any more, taken as good", "больше не отслеживается, качество считается нормальным"),
        (
            "reset by an operator: good, with an empty window",
            "сброшено вручную: качество считается нормальным и измеряется заново",
        ),
        ("pinned to its usual place", "вручную закреплено на обычном месте"),
        ("pinned: gets no calls", "вручную заблокировано"),
        (
            "pinned to the end until 2026-11-30T11:03:05.000Z",
            "вручную закреплено в конце списка до 30 ноября 2026 г., 12:03 (UTC+1)",
        ),
        ("pin ended", "ручное управление отменено"),
        ("the time of its pin is over", "срок ручного управления истёк"),
    ] {
        assert_eq!(in_russian(english), expected);
    }
}

#[test]
fn an_operators_reason_and_what_cannot_be_read_stay_as_they_are() {
    let said = |words: &str, language| plain(&change(&told(words), language, &berlin()));
    assert_eq!(said("pin ended: new rates: ok", Ru), "ручное управление отменено: new rates: ok");
    assert_eq!(
        said("reset by an operator: good, with an empty window: ticket 12", Ru),
        "сброшено вручную: качество считается нормальным и измеряется заново: ticket 12"
    );
    let until = "pinned to the end until 2026-11-30T11:03:05.000Z: rates";
    assert_eq!(said(until, Ru), "вручную закреплено в конце списка до 30 ноября 2026 г., 12:03 (UTC+1): rates");
    assert_eq!(said(until, En), "pinned to the end until 30 November 2026, 12:03 (UTC+1): rates");
    for words in ["good -> bad: ASR 35 % is under 40 %", "lowered: ASR 35.0 % under 40 % over 20 calls"] {
        assert_eq!(said(words, En), words);
    }
    assert_eq!(said("good -> bad: ASR 35 % is under 40 %", Ru), "good -> bad: ASR 35 % is under 40 %");
}

/// Whatever the engine can write of a verdict has a Russian sentence of its own.
#[test]
fn no_change_that_the_engine_tells_of_is_shown_in_english_to_a_russian() {
    let states = [State::Good, State::Bad, State::Retry];
    let reasons = [
        Reason::Asr,
        Reason::Acd,
        Reason::Pdd,
        Reason::RetryInterval,
        Reason::Batch,
        Reason::Unmonitored,
        Reason::Operator,
    ];
    let actions = [BadQualityAction::MakeLast, BadQualityAction::Block, BadQualityAction::NotifyOnly];
    let known = Quality { calls: 20, asr: Some(12.5), acd: Some(3.0), pdd: Some(9.0), ner: None };
    for bad_quality_action in actions {
        let settings = Settings { asr_threshold_percent: Some(40.0), bad_quality_action, ..Settings::default() };
        for (from, to) in states.iter().flat_map(|from| states.iter().map(move |to| (*from, *to))) {
            for (reason, figures) in reasons.iter().flat_map(|reason| [(*reason, known), (*reason, Quality::default())])
            {
                let change = Change { at: NOON, from, to, reason, epoch: Epoch(1), figures };
                let measured: Vec<Sample> = OUTCOMES.into_iter().map(|outcome| failed(outcome, None, None)).collect();
                in_russian(&ChangeSentence::new(&change, &settings, measured.iter(), "").to_string());
            }
        }
    }
}

fn failed(outcome: Outcome, sip_status: Option<u16>, cause: Option<u16>) -> Sample {
    let (epoch, duration_ms, pdd_ms) = (Epoch(1), Some(0), None);
    Sample { epoch, placed_at: NOON, ended_at: NOON, outcome, duration_ms, pdd_ms, cause, sip_status }
}

fn connection(words: &str) -> ConnectionView {
    ConnectionView {
        key: QualityKey::connection(id("vendor-a")),
        customer: None,
        monitored: true,
        state: State::Good,
        since: NOON,
        action: BadQualityAction::MakeLast,
        words: words.to_owned(),
        figures: Quality::default(),
        settings: Settings::default(),
        batch_done: None,
        retry_at: None,
        active_calls: 0,
        unmapped: 0,
        pinned: None,
        calls: Arc::default(),
    }
}

#[test]
fn a_state_is_said_with_how_far_it_is() {
    let progress = Progress { done: 3, of: 10 };
    for (state, expected) in [
        (StateSentence::Unmonitored, "Качество не отслеживается"),
        (StateSentence::TooFew(progress), "Пока недостаточно вызовов (3 из 10)"),
        (StateSentence::Good, "Качество в норме"),
        (StateSentence::Lowered, "Переведено в конец списка из-за плохого качества"),
        (StateSentence::Blocked, "Заблокировано из-за плохого качества"),
        (StateSentence::Bad, "Качество ниже нормы (только уведомление)"),
        (StateSentence::Retry(None), "Проверка пробными вызовами"),
        (StateSentence::Retry(Some(progress)), "Проверка пробными вызовами (3 из 10)"),
    ] {
        let quality = |words: &str, language| super::state(&connection(words), language);
        let english = state.to_string();
        assert_eq!(russian(&quality(&english, Ru)), expected);
        assert_eq!(quality(&english, En), english);
        let assumed = format!("{english}{ASSUMED}");
        assert_eq!(russian(&quality(&assumed, Ru)), format!("{expected} (предположение)"));
        assert_eq!(quality(&assumed, En), assumed);
    }
}

#[test]
fn a_pin_is_said_with_its_end_in_the_readers_zone() {
    let pin = |pin, until, why: &str, language| {
        let pin = Pinned { pin, who: "алиса".into(), why: why.into(), since: NOON, until };
        let said = pinned(&pin, language, &berlin());
        if language == Ru { russian(&said) } else { plain(&said) }
    };
    assert_eq!(pin(Pin::PinGood, None, "", Ru), "вручную закреплено на обычном месте (алиса)");
    assert_eq!(
        pin(Pin::PinLast, Some(NOON), "тарифы", Ru),
        "вручную закреплено в конце списка до 30 ноября 2026 г., 12:03 (UTC+1) (алиса): тарифы"
    );
    assert_eq!(pin(Pin::PinBlock, None, "", Ru), "вручную заблокировано (алиса)");
    assert_eq!(
        pin(Pin::PinLast, Some(NOON), "rates", En),
        "pinned to the end until 30 November 2026, 12:03 (UTC+1) (алиса): rates"
    );
    assert_eq!(pin(Pin::PinBlock, None, "", En), "pinned: gets no calls (алиса)");
}

#[test]
fn an_attempt_is_said_by_what_became_of_it() {
    let said = |sample: &Sample| (plain(&attempt(sample, En)), russian(&attempt(sample, Ru)));
    let pair = |en: &str, ru: &str| (en.to_owned(), ru.to_owned());
    let answered = Sample { duration_ms: Some(1000), ..failed(Outcome::Answered, Some(200), Some(16)) };
    assert_eq!(said(&answered), pair("answered", "отвечено"));
    assert_eq!(
        said(&failed(Outcome::Busy, Some(486), Some(17))),
        pair("the called number was busy (486)", "номер занят (486)")
    );
    assert_eq!(
        said(&failed(Outcome::VendorFailed, None, Some(34))),
        pair("the vendor had no free line (Q.850 34)", "у поставщика нет свободных линий (Q.850 34)")
    );
    let node = NodeId::new("pbx").unwrap();
    let call =
        FailedCall { at: NOON, node, number: None, outcome: Outcome::Busy, cause: Some(17), sip_status: Some(486) };
    assert_eq!(cause(&call, Ru), "номер занят (486)");
    for of in OUTCOMES {
        assert!(outcome(of, En).is_ascii());
        russian(outcome(of, Ru));
    }
}

fn route(name: &str, priority: i64, values: &[(Measure, Option<f64>, f64)]) -> RouteView {
    let criteria: BTreeMap<Measure, Value> =
        values.iter().map(|(of, estimate, _)| (*of, Value { estimate: *estimate, compensation: 0.0 })).collect();
    let mut route = RouteView::new(&Route { connection: id(name), priority, written: 0 }, Some(&criteria));
    for (of, estimate, penalty) in values {
        route.criteria.insert(*of, CriterionView { estimate: *estimate, compensation: 0.0, penalty: *penalty });
        route.priority += penalty;
    }
    route.place = Some(1);
    route
}

#[test]
fn the_place_of_a_route_is_explained_in_both_languages() {
    let reason = |route: &RouteView, before: Option<&RouteView>, panic| {
        russian(&route_reason(route, before, panic, Ru, &TimeZone::UTC))
    };
    let plain_route = route("vendor-a", 10, &[]);
    assert_eq!(reason(&plain_route, None, false), "приоритет 10");
    let same = route("vendor-b", 10, &[]);
    assert_eq!(reason(&same, Some(&plain_route), false), "приоритет 10, как у vendor-a, а то записано раньше");

    let untried = route("vendor-c", 10, &[(Measure::SuccessPercent, None, 0.0)]);
    assert_eq!(reason(&untried, None, false), "приоритет 10; о подключении пока ничего не известно");
    let best = route("vendor-c", 10, &[(Measure::SuccessPercent, Some(90.0), 0.0)]);
    assert_eq!(reason(&best, None, false), "приоритет 10, ничего не добавлено");
    let worse = route(
        "vendor-d",
        10,
        &[
            (Measure::SuccessPercent, Some(50.0), 8.75),
            (Measure::AvgDurationSec, Some(9.0), 5.0),
            (Measure::SignallingFailurePercent, Some(9.0), 0.125),
        ],
    );
    assert_eq!(
        reason(&worse, Some(&best), false),
        "приоритет 10 + 8,75 (доля успешных вызовов) + 5,00 (средняя длительность) + 0,12 (доля отказов поставщика) \
         = 23,88"
    );

    let words = StateSentence::Lowered.to_string();
    let last = RouteView { standing: Standing::Last, quality: words.clone(), ..route("vendor-e", 10, &[]) };
    let behind = RouteView { standing: Standing::Last, quality: words, ..route("vendor-e", 20, &[]) };
    let lowered = "в конце списка: переведено в конец списка из-за плохого качества";
    assert_eq!(reason(&last, Some(&best), false), lowered);
    assert_eq!(reason(&behind, Some(&last), false), format!("{lowered}; среди таких приоритет 20"));

    let blocked = RouteView {
        place: None,
        standing: Standing::Blocked,
        quality: StateSentence::Blocked.to_string(),
        ..route("vendor-f", 10, &[])
    };
    assert_eq!(reason(&blocked, Some(&last), false), "исключено: заблокировано из-за плохого качества");
    let kept = RouteView { place: Some(1), ..blocked };
    assert_eq!(
        reason(&kept, None, true),
        "оставлено: все подключения карты заблокированы, а это наименее плохое: заблокировано из-за плохого качества"
    );
    let english = RouteView { reason: "priority 10".into(), ..plain_route };
    assert_eq!(route_reason(&english, None, false, En, &TimeZone::UTC), "priority 10");
    assert_eq!(route_quality(&kept, En, &TimeZone::UTC), "Connection blocked due to bad quality");
}

#[test]
fn a_criterion_has_a_name_and_a_unit() {
    for (of, en, ru) in [
        (Measure::SuccessPercent, ("successful calls", "%"), ("доля успешных вызовов", "%")),
        (Measure::AvgDurationSec, ("average duration", "s"), ("средняя длительность", "с")),
        (Measure::SignallingFailurePercent, ("vendor failures", "%"), ("доля отказов поставщика", "%")),
    ] {
        assert_eq!((measure(of, En), measure_unit(of, En)), en);
        assert_eq!((measure(of, Ru), measure_unit(of, Ru)), ru);
    }
}

#[test]
fn the_map_of_a_call_is_explained_in_both_languages() {
    for (matched, en, ru) in [
        (Match::Named, "it was asked for by name", "карта указана явно"),
        (
            Match::Prefix("00".into()),
            "\"00\" is the longest prefix of 0049 that a map serves",
            "«00» — самый длинный префикс номера 0049 среди обслуживаемых картами",
        ),
        (
            Match::Prefix(String::new()),
            "no longer prefix of 0049 is served by another map: this is the map for all other numbers",
            "ни один префикс номера 0049 не обслуживается другой картой: эта — для всех остальных номеров",
        ),
    ] {
        assert_eq!(why_map(&matched, "0049", En), en);
        assert_eq!(russian(&why_map(&matched, "0049", Ru)), ru);
    }
}

#[test]
fn what_rules_a_node_out_is_said_in_both_languages() {
    for (why, en, ru) in [
        (Lethal::LinkDown, "no link", "нет связи"),
        (Lethal::NotReady, "the PBX takes no calls", "АТС не принимает вызовы"),
        (Lethal::Stale { silent_sec: 74.6 }, "no sign of life for 75 s", "нет признаков жизни 1 мин 15 с"),
        (Lethal::Full, "full", "занят полностью"),
        (Lethal::Cpu { idle: 3.04 }, "idle CPU 3.0 %", "свободно CPU: 3,0 %"),
        (Lethal::Failures { rate: 60.0 }, "60.0 % of calls failed", "неуспешных вызовов: 60,0 %"),
        (Lethal::Breaker, "its breaker is open", "предохранитель разомкнут"),
        (Lethal::Draining, "draining", "выводится из работы"),
        (Lethal::Disabled, "out of service", "выведен из работы"),
    ] {
        assert_eq!(lethal(&why, En), en);
        assert_eq!(russian(&lethal(&why, Ru)), ru);
    }
}

#[test]
fn the_parts_of_a_node_are_named_in_both_languages() {
    for (state, en, ru) in [
        (LinkState::Connecting, "connecting", "подключается"),
        (LinkState::Synchronising, "reading calls", "читает список вызовов"),
        (LinkState::Up, "up", "на связи"),
        (LinkState::Waiting, "down", "нет связи"),
        (LinkState::Refused, "refused", "доступ отклонён"),
    ] {
        assert_eq!((link_state(state, En), link_state(state, Ru)), (en, ru));
    }
    for (state, failures, en, ru) in [
        (BreakerState::Closed, 0, "closed", "замкнут"),
        (BreakerState::Closed, 1, "closed, 1 failure in a row", "замкнут, 1 сбой подряд"),
        (BreakerState::Open, 5, "open, 5 failures in a row", "разомкнут, 5 сбоев подряд"),
        (
            BreakerState::HalfOpen,
            22,
            "half open: one trial at a time, 22 failures in a row",
            "пропускает по одной пробе, 22 сбоя подряд",
        ),
    ] {
        let view = BreakerView { state, failures, trial_at: None };
        assert_eq!((plain(&breaker(&view, En)), russian(&breaker(&view, Ru))), (en.to_owned(), ru.to_owned()));
    }
    for (of, en, ru) in [
        (Admin::Enabled, "enabled", "в работе"),
        (Admin::Draining, "draining", "выводится из работы"),
        (Admin::Disabled, "disabled", "выведен из работы"),
    ] {
        assert_eq!((admin(of, En), admin(of, Ru)), (en, ru));
    }
    for (of, en, ru) in [
        (Source::Pushed, "pushed by an agent", "прислано агентом"),
        (Source::Pbx, "told by the PBX", "сообщила АТС"),
        (Source::Local, "read on this machine", "измерено на этой машине"),
    ] {
        assert_eq!((source(of, En), source(of, Ru)), (en, ru));
    }
}

#[test]
fn every_term_of_a_score_has_a_name_and_the_figures_it_is_made_of() {
    let figure = |value| Some(Figure { value, source: Source::Pbx, at: NOON });
    let figures = Figures {
        active_calls: 42,
        max_calls: Some(250),
        load_avg: figure(0.85),
        cores: Some(4),
        idle_cpu: figure(35.0),
        memory_free: figure(40.25),
        failure_rate: Some(0.5),
        calls_per_sec: Some(5.25),
        max_calls_per_sec: Some(20.0),
        rtt_ms: Some(1.26),
    };
    for (name, en, ru) in [
        ("call_score", ("room for calls", "42 of 250"), ("запас по вызовам", "42 из 250")),
        ("calls_headroom", ("room for calls", "42 of 250"), ("запас по вызовам", "42 из 250")),
        ("load_score", ("load average", "0.85, 4 cores"), ("средняя нагрузка", "0,85, 4 ядра")),
        ("idle_score", ("idle CPU", "35.0 %"), ("свободный CPU", "35,0 %")),
        ("fail_score", ("failed calls", "0.5 %"), ("неуспешные вызовы", "0,5 %")),
        (
            "rate_headroom",
            ("room for new calls", "5.2 of 20 a second"),
            ("запас по новым вызовам", "5,2 из 20 в секунду"),
        ),
        ("latency", ("reply time", "1.3 ms"), ("время отклика", "1,3 мс")),
        ("memory", ("free memory", "40.2 %"), ("свободная память", "40,2 %")),
    ] {
        assert_eq!((term(name, En), plain(&term_figure(name, &figures, En)).as_str()), en);
        assert_eq!((term(name, Ru), russian(&term_figure(name, &figures, Ru)).as_str()), ru);
    }
    let none = Figures { active_calls: 1, ..Figures::default() };
    assert_eq!(plain(&term_figure("call_score", &none, En)), "1 call, no limit");
    assert_eq!(plain(&term_figure("call_score", &none, Ru)), "1 вызов, предела нет");
    for name in ["load_score", "idle_score", "fail_score", "rate_headroom", "latency", "memory", "of_tomorrow"] {
        assert_eq!(
            (term_figure(name, &none, En).as_str(), term_figure(name, &none, Ru).as_str()),
            ("unknown", "неизвестно")
        );
    }
    assert_eq!(term("of_tomorrow", Ru), "of_tomorrow");
}

#[test]
fn why_a_question_has_no_answer_is_said_in_both_languages() {
    use crate::api::pages::question::NoAnswer;
    use crate::dialplan::readback::Busy;
    use crate::routing::picture::{NotInMap, assumption};
    use crate::routing::question::Unanswerable;

    let unmapped = NotInMap { map: crate::ids::MapId::new("m").unwrap(), connection: "vendor-a".to_owned() };
    for (why, ru) in [
        (Unanswerable::NotANumber("x".into()).into(), "«x» — не номер: нужны цифры, можно с «+» впереди, «*» и «#»"),
        (
            Unanswerable::NotServed("112".into()).into(),
            "номер 112 не обслуживает ни одна карта: он не начинается ни с одного из их префиксов, \
             а карты для всех остальных номеров нет",
        ),
        (Unanswerable::NoSuchMap { name: "m".into(), known: vec![] }.into(), "карты маршрутов «m» нет"),
        (Unanswerable::NotInMap(unmapped).into(), "в карте маршрутов m нет подключения vendor-a"),
        (assumption("vendor-a").unwrap_err().into(), "такого предположить нельзя: выберите состояние из списка"),
        (NoAnswer::TooMany, "слишком много предположений сразу"),
        (Busy.into(), "переменные как раз читает кто-то другой; попробуйте через несколько секунд"),
    ] {
        assert_eq!(no_answer(&why, En), why.to_string());
        assert_eq!(russian(&no_answer(&why, Ru)), ru);
    }
}

#[test]
fn why_a_stream_ended_is_said_in_russian_and_what_others_said_stays() {
    let detail = || "of 9 bytes".to_owned();
    for (fault, expected) in [
        (Fault::Nonsense(detail()), "нарушает протокол: of 9 bytes"),
        (Fault::TooMuch(detail()), "запрашивает слишком много: of 9 bytes"),
        (Fault::Flood(detail()), "шлёт слишком много: of 9 bytes"),
        (Fault::Silent(30), "ничего не подтверждал 30 с"),
        (Fault::Full, "не читает того, что ему шлют"),
    ] {
        assert_eq!(plain(&ended(&fault.to_string(), Ru)), expected);
        assert_eq!(ended(&fault.to_string(), En), fault.to_string());
    }
    assert_eq!(ended("it went away", Ru), "отключился");
    assert_eq!(ended("no TLS: of 9 bytes", Ru), "это не TLS: of 9 bytes");
    assert_eq!(plain(&ended("it said nothing for 10 s", Ru)), "ничего не сказал за 10 с");
    assert_eq!(ended("its moon is in the seventh house", Ru), "its moon is in the seventh house");
}
