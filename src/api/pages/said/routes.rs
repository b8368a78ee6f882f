//! Route maps: which one a call belongs to, and why its routes stand where they stand.

use jiff::tz::TimeZone;

use super::connections::quality;
use super::{either, lower_first};
use crate::api::pages::question::NoAnswer;
use crate::config::model::Language;
use crate::engine::view::RouteView;
use crate::notify::render::speech::number;
use crate::quality::machine::Standing;
use crate::routing::matching::Match;
use crate::routing::picture::NotInMap;
use crate::routing::question::Unanswerable;
use crate::routing::rule::Measure;

/// How the connection of a route is, or what an operator said of it. Times are those of the zone.
pub(in crate::api::pages) fn route_quality(route: &RouteView, language: Language, zone: &TimeZone) -> String {
    quality(&route.quality, language, zone)
}

/// Why a route stands behind `before`, the one before it in its map, where `panic` says that every connection of the map
/// is blocked. Times are those of the zone.
pub(in crate::api::pages) fn route_reason(
    route: &RouteView,
    before: Option<&RouteView>,
    panic: bool,
    language: Language,
    zone: &TimeZone,
) -> String {
    match language {
        Language::En => route.reason.clone(),
        Language::Ru => reason_in_russian(route, before, panic, &lower_first(&route_quality(route, language, zone))),
    }
}

/// The Russian of [`crate::routing::picture`]'s reasons.
fn reason_in_russian(route: &RouteView, before: Option<&RouteView>, panic: bool, quality: &str) -> String {
    if route.place.is_none() {
        return format!("исключено: {quality}");
    }
    if panic {
        return format!("оставлено: все подключения карты заблокированы, а это наименее плохое: {quality}");
    }
    let sum = priority(route);
    match (route.standing, before) {
        (Standing::Last, Some(before)) if before.standing == Standing::Last && before.priority < route.priority => {
            format!("в конце списка: {quality}; среди таких {sum}")
        }
        (Standing::Last, _) => format!("в конце списка: {quality}"),
        (_, Some(before)) if before.priority.total_cmp(&route.priority).is_eq() => {
            format!("{sum}, как у {}, а то записано раньше", before.connection)
        }
        _ => sum,
    }
}

fn priority(route: &RouteView) -> String {
    let written = route.static_priority;
    if route.criteria.is_empty() {
        return format!("приоритет {written}");
    }
    let shown = |value: f64| number(value, Some(2), Language::Ru);
    let added: Vec<String> = route
        .criteria
        .iter()
        .filter(|(_, seen)| seen.penalty > 0.0)
        .map(|(of, seen)| format!("{} ({})", shown(seen.penalty), measure(*of, Language::Ru)))
        .collect();
    let untried = route.criteria.values().all(|seen| seen.estimate.is_none());
    match (added.is_empty(), untried) {
        (true, true) => format!("приоритет {written}; о подключении пока ничего не известно"),
        (true, false) => format!("приоритет {written}, ничего не добавлено"),
        (false, _) => format!("приоритет {written} + {} = {}", added.join(" + "), shown(route.priority)),
    }
}

/// What a criterion of a rule measures; see [`measure_unit`].
pub(in crate::api::pages) fn measure(measure: Measure, language: Language) -> &'static str {
    match measure {
        Measure::SuccessPercent => either(language, "successful calls", "доля успешных вызовов"),
        Measure::AvgDurationSec => either(language, "average duration", "средняя длительность"),
        Measure::SignallingFailurePercent => either(language, "vendor failures", "доля отказов поставщика"),
    }
}

/// The unit of what a criterion measures.
pub(in crate::api::pages) fn measure_unit(measure: Measure, language: Language) -> &'static str {
    match measure {
        Measure::SuccessPercent | Measure::SignallingFailurePercent => "%",
        Measure::AvgDurationSec => either(language, "s", "с"),
    }
}

/// Why a call to this number belongs to its map.
pub(in crate::api::pages) fn why_map(matched: &Match, number: &str, language: Language) -> String {
    match (matched, language) {
        (_, Language::En) => matched.words(number),
        (Match::Named, Language::Ru) => "карта указана явно".to_owned(),
        (Match::Prefix(prefix), Language::Ru) if prefix.is_empty() => {
            format!("ни один префикс номера {number} не обслуживается другой картой: эта — для всех остальных номеров")
        }
        (Match::Prefix(prefix), Language::Ru) => {
            format!("«{prefix}» — самый длинный префикс номера {number} среди обслуживаемых картами")
        }
    }
}

/// Why a question about a call has no answer.
pub(in crate::api::pages) fn no_answer(why: &NoAnswer, language: Language) -> String {
    if language == Language::En {
        return why.to_string();
    }
    match why {
        NoAnswer::Unanswerable(why) => unanswerable_in_russian(why),
        NoAnswer::Assumption(_) => "такого предположить нельзя: выберите состояние из списка".to_owned(),
        NoAnswer::TooMany => "слишком много предположений сразу".to_owned(),
        NoAnswer::Busy(_) => "переменные как раз читает кто-то другой; попробуйте через несколько секунд".to_owned(),
    }
}

fn unanswerable_in_russian(why: &Unanswerable) -> String {
    match why {
        Unanswerable::NotANumber(text) => {
            format!("«{text}» — не номер: нужны цифры, можно с «+» впереди, «*» и «#»")
        }
        Unanswerable::NoSuchMap { name, .. } => format!("карты маршрутов «{name}» нет"),
        Unanswerable::NotServed(number) => format!(
            "номер {number} не обслуживает ни одна карта: он не начинается ни с одного из их префиксов, \
             а карты для всех остальных номеров нет"
        ),
        Unanswerable::NotInMap(NotInMap { map, connection }) => {
            format!("в карте маршрутов {map} нет подключения {connection}")
        }
    }
}
