//! Edges: why a stream of theirs ended.

use crate::config::model::Language;
use crate::notify::render::speech::duration;

/// How reasons begin; what follows is the client's, or the system's.
const BEGINNINGS: [(&str, &str); 17] = [
    ("it went away", "отключился"),
    ("it closed the stream", "закрыл поток"),
    ("its connection broke", "соединение оборвалось"),
    ("it opened no stream", "не открыл потока"),
    ("it did not answer when asked whether it is there", "не ответил на проверку связи"),
    ("it talks nonsense: ", "нарушает протокол: "),
    ("it asks for too much: ", "запрашивает слишком много: "),
    ("it floods: ", "шлёт слишком много: "),
    ("it reads nothing of what it is sent", "не читает того, что ему шлют"),
    ("no HTTP/2: ", "это не HTTP/2: "),
    ("no TLS: ", "это не TLS: "),
    ("too many streams are open", "открыто слишком много потоков"),
    ("this needs a token", "нужен токен"),
    ("this needs a certificate", "нужен сертификат"),
    ("there is no such token", "такого токена нет"),
    ("the authorization is not", "authorization не имеет вида"),
    ("pointsman stops", "pointsman останавливается"),
];

/// How reasons begin that end with a number of seconds.
const TIMES: [(&str, &str); 3] = [
    ("it took nothing for ", "ничего не подтверждал "),
    ("it said nothing for ", "ничего не сказал за "),
    ("no TLS handshake within ", "не начал TLS за "),
];

/// Why a stream ended; a reason that is not known stands for itself.
pub(in crate::api::pages) fn ended(reason: &str, language: Language) -> String {
    if language == Language::En {
        return reason.to_owned();
    }
    let timed = |(english, russian): &(&str, &str)| {
        let secs = reason.strip_prefix(english)?.strip_suffix(" s")?.parse().ok()?;
        Some(format!("{russian}{}", duration(secs, language)))
    };
    let known = |(english, russian): &(&str, &str)| Some(format!("{russian}{}", reason.strip_prefix(english)?));
    let said = TIMES.iter().find_map(timed).or_else(|| BEGINNINGS.iter().find_map(known));
    said.unwrap_or_else(|| reason.to_owned())
}
