//! Nodes: their links, their breakers, what their scores are made of and why they get no calls.

use super::{calls, either, form, percent};
use crate::config::model::Language;
use crate::engine::view::{BreakerState, BreakerView, LinkState};
use crate::notify::render::speech::{JOINER, duration, number};
use crate::score::{Admin, Figure, Figures, Lethal, Source};

/// What a link is doing.
pub(in crate::api::pages) fn link_state(state: LinkState, language: Language) -> &'static str {
    match state {
        LinkState::Connecting => either(language, "connecting", "подключается"),
        LinkState::Synchronising => either(language, "reading calls", "читает список вызовов"),
        LinkState::Up => either(language, "up", "на связи"),
        LinkState::Waiting => either(language, "down", "нет связи"),
        LinkState::Refused => either(language, "refused", "доступ отклонён"),
    }
}

/// What a circuit breaker does, and after how many failures.
pub(in crate::api::pages) fn breaker(breaker: &BreakerView, language: Language) -> String {
    let state = match breaker.state {
        BreakerState::Closed => either(language, "closed", "замкнут"),
        BreakerState::Open => either(language, "open", "разомкнут"),
        BreakerState::HalfOpen => either(language, "half open: one trial at a time", "пропускает по одной пробе"),
    };
    if breaker.failures == 0 {
        return state.to_owned();
    }
    let count = breaker.failures;
    let noun = form(u64::from(count), language, ["failure", "failures"], ["сбой", "сбоя", "сбоев"]);
    format!("{state}, {count}{JOINER}{noun} {}", either(language, "in a row", "подряд"))
}

/// What the operator wants of a node.
pub(in crate::api::pages) fn admin(admin: Admin, language: Language) -> &'static str {
    match admin {
        Admin::Enabled => either(language, "enabled", "в работе"),
        Admin::Draining => either(language, "draining", "выводится из работы"),
        Admin::Disabled => either(language, "disabled", "выведен из работы"),
    }
}

/// Where a figure comes from.
pub(in crate::api::pages) fn source(source: Source, language: Language) -> &'static str {
    match source {
        Source::Pushed => either(language, "pushed by an agent", "прислано агентом"),
        Source::Pbx => either(language, "told by the PBX", "сообщила АТС"),
        Source::Local => either(language, "read on this machine", "измерено на этой машине"),
    }
}

/// Why a node gets no calls.
pub(in crate::api::pages) fn lethal(lethal: &Lethal, language: Language) -> String {
    if language == Language::En {
        return lethal.to_string();
    }
    match lethal {
        Lethal::LinkDown => "нет связи".to_owned(),
        Lethal::NotReady => "АТС не принимает вызовы".to_owned(),
        Lethal::Stale { silent_sec } => format!("нет признаков жизни {}", duration(seconds(*silent_sec), language)),
        Lethal::Full => "занят полностью".to_owned(),
        Lethal::Cpu { idle } => format!("свободно CPU: {}", percent(*idle, language)),
        Lethal::Failures { rate } => format!("неуспешных вызовов: {}", percent(*rate, language)),
        Lethal::Breaker => "предохранитель разомкнут".to_owned(),
        Lethal::Draining => "выводится из работы".to_owned(),
        Lethal::Disabled => "выведен из работы".to_owned(),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; a time since is not negative")]
fn seconds(value: f64) -> u64 {
    value.round() as u64
}

/// What a term of a score is about, by its name in the configuration; a name that is not known stands for itself.
pub(in crate::api::pages) fn term(name: &str, language: Language) -> &str {
    match name {
        "call_score" | "calls_headroom" => either(language, "room for calls", "запас по вызовам"),
        "load_score" => either(language, "load average", "средняя нагрузка"),
        "idle_score" => either(language, "idle CPU", "свободный CPU"),
        "fail_score" => either(language, "failed calls", "неуспешные вызовы"),
        "rate_headroom" => either(language, "room for new calls", "запас по новым вызовам"),
        "latency" => either(language, "reply time", "время отклика"),
        "memory" => either(language, "free memory", "свободная память"),
        _ => name,
    }
}

/// The figures that a term of a score is made of, with their units.
pub(in crate::api::pages) fn term_figure(name: &str, figures: &Figures, language: Language) -> String {
    let known = match name {
        "call_score" | "calls_headroom" => Some(room_for_calls(figures, language)),
        "load_score" => figures.load_avg.map(|load| load_average(load, figures.cores, language)),
        "idle_score" => figures.idle_cpu.map(|idle| percent(idle.value, language)),
        "fail_score" => figures.failure_rate.map(|rate| percent(rate, language)),
        "rate_headroom" => figures.calls_per_sec.map(|rate| call_rate(rate, figures.max_calls_per_sec, language)),
        "latency" => figures
            .rtt_ms
            .map(|rtt| format!("{}{JOINER}{}", number(rtt, Some(1), language), either(language, "ms", "мс"))),
        "memory" => figures.memory_free.map(|free| percent(free.value, language)),
        _ => None,
    };
    known.unwrap_or_else(|| either(language, "unknown", "неизвестно").to_owned())
}

fn room_for_calls(figures: &Figures, language: Language) -> String {
    let active = figures.active_calls;
    match figures.max_calls {
        Some(most) => format!("{active} {} {most}", either(language, "of", "из")),
        None => format!("{}, {}", calls(active, language), either(language, "no limit", "предела нет")),
    }
}

fn load_average(load: Figure, cores: Option<u32>, language: Language) -> String {
    let load = number(load.value, Some(2), language);
    let Some(cores) = cores else { return load };
    let noun = form(u64::from(cores), language, ["core", "cores"], ["ядро", "ядра", "ядер"]);
    format!("{load}, {cores}{JOINER}{noun}")
}

fn call_rate(rate: f64, most: Option<f64>, language: Language) -> String {
    let rate = number(rate, Some(1), language);
    let of = either(language, "of", "из");
    let most = most.map(|most| format!(" {of} {}", number(most, None, language))).unwrap_or_default();
    format!("{rate}{most} {}", either(language, "a second", "в секунду"))
}
