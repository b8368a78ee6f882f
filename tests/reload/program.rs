//! The whole program over simulated switches.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pointsman::engine::reload::Failed;
use pointsman::engine::view::View;
use pointsman::quality::machine::State;
use pointsman::sim::{Behaviour, Call, Route};

use crate::client;
use crate::stage::{FIRST, Program, Stage, connection, is_up};

fn words(changes: &[pointsman::config::diff::Change]) -> Vec<&str> {
    changes.iter().map(|change| change.words.as_str()).collect()
}

fn connects(view: &View) -> Vec<u64> {
    view.nodes.iter().map(|node| node.link.connects).collect()
}

#[tokio::test]
async fn variables_follow_a_reload_and_links_and_states_are_untouched() {
    let stage = Stage::set().await;
    let program = stage.start().await;
    stage.calls(0, "vendor-a", 3, false).await;
    let before = program.sees(|view| connection(view, "vendor-a").is_some_and(|one| one.state == State::Bad)).await;
    stage.variable_becomes("pm_route_intl", Some("vendor-b,vendor-a")).await;
    stage.variable_becomes("pm_route_old", Some("vendor-b")).await;

    stage.edit(&[
        ("id = \"vendor-b\"\n", "id = \"vendor-b\"\n[[connections]]\nid = \"vendor-c\"\n"),
        ("priority = 20 }]", "priority = 20 }, { connection = \"vendor-c\", priority = 15 }]"),
        ("id = \"old\"", "id = \"new\""),
    ]);
    let shown = program.reload(true).await.unwrap();
    let expected = [
        "connection vendor-c added",
        "route map intl: vendor-c added at 15",
        "route map new added",
        "route map old removed",
    ];
    assert_eq!((shown.applied, words(&shown.changes), &*shown.takes_restart), (false, expected.to_vec(), &[][..]));
    assert!(connection(&program.running.view().borrow(), "vendor-c").is_none(), "a dry run changes nothing");

    let done = program.reload(false).await.unwrap();
    assert_eq!((done.applied, words(&done.changes)), (true, expected.to_vec()));
    stage.variable_becomes("pm_route_intl", Some("vendor-c,vendor-b,vendor-a")).await;
    stage.variable_becomes("pm_route_new", Some("vendor-b")).await;
    for gone in ["pm_route_old", "pm_route_old_count", "pm_route_old_1"] {
        stage.variable_becomes(gone, None).await;
    }
    let after = program.sees(|view| connection(view, "vendor-c").is_some() && is_up(view)).await;
    assert_eq!(connects(&after), connects(&before));
    assert_eq!(connection(&after, "vendor-a"), connection(&before, "vendor-a"));

    // A connection that goes takes its variable with it, and an edge that still sends calls over it is told of.
    stage.write(FIRST);
    program.reload(false).await.unwrap();
    stage.variable_becomes("pm_conn_vendor-c", None).await;
    stage.variable_becomes("pm_route_intl", Some("vendor-b,vendor-a")).await;
    program.stop().await;
}

#[tokio::test]
async fn what_went_while_a_switch_was_away_is_cleared_when_it_is_back() {
    use pointsman::sim::Misbehaviour;
    let stage = Stage::set().await;
    let program = stage.start().await;
    stage.variable_becomes("pm_route_old", Some("vendor-b")).await;
    for pbx in &stage.pbxs {
        pbx.misbehave(&Misbehaviour::RefuseConnections);
        pbx.misbehave(&Misbehaviour::Reset);
    }
    program.sees(|view| view.nodes.iter().all(|node| node.link.state != pointsman::engine::view::LinkState::Up)).await;
    stage.edit(&[("id = \"old\"", "id = \"new\"")]);
    program.reload(false).await.unwrap();
    stage.variable_becomes("pm_route_old", Some("vendor-b")).await;
    stage.pbxs.iter().for_each(|pbx| pbx.misbehave(&Misbehaviour::AcceptConnections));
    stage.variable_becomes("pm_route_new", Some("vendor-b")).await;
    stage.variable_becomes("pm_route_old", None).await;
    stage.variable_becomes("pm_route_old_count", None).await;
    program.stop().await;
}

/// What there is to be changed: the picture without its clocks and counters, every variable of the switches, and the rows
/// of the database.
async fn everything(stage: &Stage, program: &Program) -> (String, Vec<BTreeMap<String, String>>, Vec<String>) {
    let view = program.running.view().borrow().clone();
    let maps: Vec<_> = view.maps.iter().map(|map| (**map).clone()).collect();
    let picture = format!("{} {:?} {maps:?} {:?}", view.generation, view.connections, view.changes);
    let variables = stage.pbxs.iter().map(|pbx| {
        let steady = |(name, _): &(String, String)| !name.starts_with("pm_best");
        pbx.variables().into_iter().filter(steady).collect()
    });
    let variables = variables.collect();
    (picture, variables, rows(stage).await)
}

/// The rows that a reload could touch. They are written within 50 ms.
async fn rows(stage: &Stage) -> Vec<String> {
    use sqlx::{Connection, Row};
    tokio::time::sleep(Duration::from_millis(200)).await;
    let url = format!("sqlite://{}?mode=ro", stage.path("pointsman.db").display());
    let mut conn = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let tables = sqlx::query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name");
    let tables = tables.fetch_all(&mut conn).await.unwrap();
    let mut rows = Vec::new();
    for table in tables.iter().map(|row| row.get::<String, _>(0)).filter(|name| !name.starts_with('_')) {
        let columns = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT name FROM pragma_table_info('{table}')")));
        let columns: Vec<String> = columns.fetch_all(&mut conn).await.unwrap().iter().map(|row| row.get(0)).collect();
        let all = columns.iter().map(|name| format!("quote(\"{name}\")")).collect::<Vec<_>>().join(" || ',' || ");
        let read = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT {all} FROM \"{table}\" ORDER BY 1")));
        let found = read.fetch_all(&mut conn).await.unwrap();
        rows.extend(found.iter().map(|row| format!("{table}: {}", row.get::<String, _>(0))));
    }
    rows
}

#[tokio::test]
async fn a_failed_reload_changes_nothing_at_all() {
    let stage = Stage::set().await;
    let program = stage.start().await;
    stage.calls(0, "vendor-a", 3, false).await;
    stage.calls(1, "vendor-b", 1, true).await;
    program
        .sees(|view| {
            let state = |id| connection(view, id).unwrap();
            state("vendor-a").state == State::Bad && state("vendor-b").figures.calls == 1 && is_up(view)
        })
        .await;
    stage.variable_becomes("pm_route_intl", Some("vendor-b,vendor-a")).await;
    let before = everything(&stage, &program).await;
    assert!(before.2.iter().any(|row| row.contains("vendor-a")), "{:?}", before.2);

    stage.edit(&[("[[route_maps]]\nid = \"old\"", "[[route_maps\nid = \"old\"")]);
    assert!(matches!(program.reload(false).await, Err(Failed::Unusable { .. })));
    stage.edit(&[("connection = \"vendor-b\", priority = 20", "connection = \"vendor-x\", priority = 20")]);
    let Err(Failed::Unusable { text, problems }) = program.reload(false).await else { panic!("it was taken") };
    assert!(text.contains("vendor-x") && text.contains("-->") && !text.contains('\u{1b}'), "{text}");
    assert!(problems.iter().any(|problem| problem.contains("vendor-x") && problem.contains("line")), "{problems:?}");

    // Much of this could be taken over, and none of it is.
    let restart = [("id = \"old\"", "id = \"new\""), ("[quality]", "[storage]\nkeep_days = 3\n[quality]")];
    stage.edit(&restart);
    let Err(Failed::TakesRestart(parts)) = program.reload(false).await else { panic!("it was taken") };
    assert_eq!(parts, ["[storage]: keep_days"]);
    let shown = program.reload(true).await.unwrap();
    assert_eq!((shown.takes_restart, shown.changes.len()), (parts, 2));
    std::fs::remove_file(stage.path("pointsman.toml")).unwrap();
    assert!(matches!(program.reload(false).await, Err(Failed::Unusable { .. })));

    assert_eq!(everything(&stage, &program).await, before);
    stage.write(FIRST);
    assert_eq!(program.reload(false).await.unwrap().changes, []);
    program.stop().await;
}

#[tokio::test]
async fn reloads_at_one_time_come_one_after_the_other() {
    let stage = Stage::set().await;
    let program = stage.start().await;
    stage.edit(&[("id = \"old\"", "id = \"new\"")]);
    let (first, second) = tokio::join!(program.reload(false), program.reload(false));
    let mut told = [first.unwrap().changes.len(), second.unwrap().changes.len()];
    told.sort_unstable();
    assert_eq!(told, [0, 2], "the second is compared with what the first put in force");
    stage.variable_becomes("pm_route_new", Some("vendor-b")).await;
    program.stop().await;
}

#[tokio::test]
async fn reloads_under_load_lose_no_attempt() {
    let stage = Stage::set().await;
    let program = stage.start().await;
    let long = FIRST.replace("statistics_window = 3", "statistics_window = 1000");
    stage.write(&long);
    program.reload(false).await.unwrap();
    for pbx in &stage.pbxs {
        pbx.set_vendor("vendor-b", Behaviour::instant());
    }
    let done = AtomicBool::new(false);
    let calling = async {
        let mut placed = 0;
        for _ in 0..15 {
            let calls: Vec<_> = (0..10)
                .map(|n| {
                    let talk = Some(Duration::from_millis(5 * n));
                    let call = Call { talk, ..Call::to("00491", Route::Trunks(vec!["vendor-b".to_owned()])) };
                    stage.pbxs[usize::from(n % 2 == 0)].place_call(call)
                })
                .collect();
            placed += calls.len();
            for call in calls {
                call.report().await;
            }
        }
        done.store(true, Ordering::Relaxed);
        placed
    };
    let reloading = async {
        let mut reloads = 0;
        while !done.load(Ordering::Relaxed) {
            let other = long
                .replace("id = \"old\"", "id = \"new\"")
                .replace("id = \"vendor-a\"", "id = \"vendor-a\"\nquality = { retry_batch = 3 }");
            stage.write(if reloads % 2 == 0 { &other } else { &long });
            program.reload(false).await.unwrap();
            reloads += 1;
        }
        reloads
    };
    let (placed, reloads) = tokio::join!(calling, reloading);
    assert!(reloads >= 2, "{reloads}");
    let view = program.sees(|view| connection(view, "vendor-b").is_some_and(|one| one.figures.calls == placed)).await;
    assert_eq!(connection(&view, "vendor-b").unwrap().active_calls, 0);
    assert_eq!(connects(&view), [1, 1]);
    program.stop().await;
}

#[tokio::test]
async fn the_api_reloads_and_says_why_not() {
    let stage = Stage::set().await;
    let program = stage.start().await;
    let mut listening = program.running.http().unwrap();
    let http = listening.wait_for(|now| now.address.is_some()).await.unwrap().address.unwrap();
    let path = "/api/reload-route-maps";
    stage.edit(&[("priority = 20", "priority = 5")]);
    let answer = client::send_json(http, "POST", path, r#"{"dry_run": true}"#).await;
    let expected = serde_json::json!({
        "applied": false,
        "changes": [{"of": "route_map", "id": "intl", "words": "route map intl: vendor-b priority 20 -> 5"}],
        "takes_restart": [],
        "warnings": [],
    });
    assert_eq!((answer.status, answer.json()), (200, expected));
    stage.variable_becomes("pm_route_intl", Some("vendor-a,vendor-b")).await;
    let answer = client::send_json(http, "POST", path, r#"{"why": "cheaper"}"#).await;
    assert_eq!((answer.status, &answer.json()["applied"]), (200, &true.into()));
    stage.variable_becomes("pm_route_intl", Some("vendor-b,vendor-a")).await;

    stage.edit(&[("[quality]", "[log]\nfilter = \"debug\"\n[quality]")]);
    let answer = client::send_json(http, "POST", path, "{}").await;
    assert_eq!(answer.json()["reasons"], serde_json::json!(["[log]: filter"]));
    assert!(answer.problem(422, path).contains("takes a restart: [log]: filter"));
    stage.edit(&[("prefixes = [\"9\"]", "prefixes = [\"00\"]")]);
    let answer = client::send_json(http, "POST", path, "{}").await;
    assert_eq!(answer.json()["reasons"].as_array().map(Vec::len), Some(1));
    answer.problem(422, path);
    let answer = client::send_json(http, "POST", path, r#"{"why": "a\nb"}"#).await;
    answer.problem(422, path);
    program.stop().await;
}
