//! Edges: why a stream of theirs ended.

use crate::config::model::Language;
use crate::notify::render::speech::duration;

/// How reasons begin; what follows is the client's, or the system's.
const BEGINNINGS: [(&str, &str); 8] = [
    ("it went away", "отключился"),
    ("it closed the stream", "закрыл поток"),
    ("its connection broke", "соединение оборвалось"),
    ("it opened no stream", "не открыл потока"),
    ("it talks nonsense: ", "нарушает протокол: "),
    ("it asks for too much: ", "запрашивает слишком много: "),
    ("it floods: ", "шлёт слишком много: "),
    ("it reads nothing of what it is sent", "не читает того, что ему шлют"),
];

/// Why a stream ended; a reason that is not known stands for itself.
pub(in crate::api::pages) fn ended(reason: &str, language: Language) -> String {
    if language == Language::En {
        return reason.to_owned();
    }
    let silent = reason.strip_prefix("it took nothing for ").and_then(|rest| rest.strip_suffix(" s")?.parse().ok());
    if let Some(secs) = silent {
        return format!("ничего не подтверждал {}", duration(secs, language));
    }
    let known = |(english, russian): &(&str, &str)| Some(format!("{russian}{}", reason.strip_prefix(english)?));
    BEGINNINGS.iter().find_map(known).unwrap_or_else(|| reason.to_owned())
}
