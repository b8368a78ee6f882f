//! The OpenAPI document.

use std::path::Path;

use serde_json::Value;

use crate::client::get;
use crate::stage::Stage;

/// Set, the checked-in document is written anew.
const REGENERATE: &str = "POINTSMAN_WRITE_OPENAPI";

#[test]
fn the_checked_in_document_is_the_one_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.json");
    let document = serde_json::to_string_pretty(&pointsman::api::document()).unwrap() + "\n";
    if std::env::var_os(REGENERATE).is_some() {
        std::fs::write(&path, &document).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(known == document, "docs/openapi.json is of another version; set {REGENERATE}=1 and run this test again");
}

#[tokio::test]
async fn the_server_answers_the_document() {
    let stage = Stage::set().await;
    let answer = get(stage.address, "/api/openapi.json").await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.json(), pointsman::api::document());
}

#[test]
fn every_operation_is_told_completely() {
    let document = pointsman::api::document();
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let of = format!("{method} {path}");
            assert!(!operation["summary"].as_str().unwrap_or_default().is_empty(), "{of} has no summary");
            let responses = operation["responses"].as_object().unwrap();
            for (status, response) in responses {
                let content = response["content"].as_object();
                match status.as_str() {
                    "204" | "304" => assert!(content.is_none(), "{of} {status}"),
                    status if status.starts_with('2') => assert!(content.is_some(), "{of} {status}"),
                    _ => {
                        let schema = &response["content"]["application/problem+json"]["schema"]["$ref"];
                        assert_eq!(schema, "#/components/schemas/Problem", "{of} {status}");
                    }
                }
            }
            assert_eq!(responses.contains_key("401"), !["/healthz", "/readyz"].contains(&path.as_str()), "{of}");
            let in_path = path.matches('{').count();
            let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
            assert_eq!(parameters.iter().filter(|parameter| parameter["in"] == "path").count(), in_path, "{of}");
        }
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn look(value: &Value, document: &Value) {
        if let Some(reference) = value["$ref"].as_str() {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
        }
        match value {
            Value::Array(values) => values.iter().for_each(|value| look(value, document)),
            Value::Object(values) => values.values().for_each(|value| look(value, document)),
            _ => {}
        }
    }
    let document = pointsman::api::document();
    look(&document, &document);
}
