//! What `config/` has for Prometheus and Grafana, held against the figures that there are: every metric, label and value
//! that a rule or a panel asks for is one that the program shows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman::balance::Picture;
use pointsman::engine::view::{LinkState, MapView, RouteView, View};
use pointsman::quality::machine::{Reason, Standing, State};
use pointsman::quality::settings::BadQualityAction;
use promql_parser::label::{MatchOp, Matchers};
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{self, AggregateExpr, BinaryExpr, Call, Expr, LabelModifier, VectorSelector};
use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use crate::client::get;
use crate::picture::{change, key, snapshot};
use crate::stage::{PATIENCE, Stage};

const ALERTS: &str = include_str!("../../config/prometheus/alerts.yml");
const ALERTS_TEST: &str = include_str!("../../config/prometheus/alerts_test.yml");
const PROMETHEUS: &str = include_str!("../../config/prometheus/prometheus.yml");
const DASHBOARD: &str = include_str!("../../config/grafana/pointsman.json");
const DOCUMENTATION: &str = include_str!("../../docs/monitoring.md");

/// Labels that Prometheus adds to all that it reads.
const ADDED: [&str; 2] = ["instance", "job"];
/// Panels that every Grafana has.
const PANELS: [&str; 6] = ["row", "stat", "table", "timeseries", "state-timeline", "bargauge"];
/// Functions over a range of a counter, and over one of a value that goes up and down.
const OF_COUNTERS: [&str; 2] = ["increase", "rate"];
const OF_GAUGES: [&str; 1] = ["changes"];

type Names = BTreeSet<String>;

/// A metric, as a page shows it.
#[derive(Default)]
struct Metric {
    counts: bool,
    /// What each label can be; of those that Prometheus adds, nothing is known.
    labels: BTreeMap<String, Names>,
}

/// The metrics that there are.
struct Known(BTreeMap<String, Metric>);

impl Known {
    /// Those of a program that shows something of everything, and those of Prometheus itself.
    async fn all() -> Self {
        let stage = Stage::set().await;
        stage.publish(complete);
        let now = stage.clock.now();
        let mut good = change("vendor-a", 2, now);
        (good.change.to, good.change.reason) = (State::Good, Reason::Batch);
        for change in [change("vendor-a", 1, now), good] {
            stage.changes.send(Arc::new(change)).unwrap();
        }
        stage.tell_edges(snapshot(1, now));
        stage.router.publish(Picture::default());
        assert_eq!(get(stage.address, "/api/route").await.status, 503);
        let counted = async {
            loop {
                let page = get(stage.address, "/metrics").await.body;
                if page.contains("reason=\"batch\"") {
                    break page;
                }
                tokio::task::yield_now().await;
            }
        };
        let page = tokio::time::timeout(PATIENCE, counted).await.expect("not counted");
        let mut known = Self::of(&page);
        known.0.entry("up".to_owned()).or_default();
        let alerts = known.0.entry("ALERTS".to_owned()).or_default();
        alerts.labels.insert("alertstate".to_owned(), ["pending", "firing"].map(str::to_owned).into());
        alerts.labels.insert("alertname".to_owned(), alerts_by_name().into_keys().collect());
        alerts.labels.extend(["severity", "node", "connection", "map"].map(|label| (label.to_owned(), Names::new())));
        for metric in known.0.values_mut() {
            metric.labels.extend(ADDED.map(|label| (label.to_owned(), Names::new())));
        }
        known
    }

    fn of(page: &str) -> Self {
        let mut known: BTreeMap<String, Metric> = BTreeMap::new();
        let mut kind = "";
        for line in page.lines() {
            if let Some(declared) = line.strip_prefix("# TYPE ") {
                kind = declared.split(' ').nth(1).unwrap();
            } else if !line.starts_with('#') {
                let sample = selector(line.rsplit_once(' ').unwrap().0);
                let metric = known.entry(sample.name.unwrap()).or_default();
                metric.counts = kind != "gauge";
                for label in sample.matchers.matchers {
                    metric.labels.entry(label.name).or_default().insert(label.value);
                }
            }
        }
        Self(known)
    }

    fn get(&self, name: &str) -> &Metric {
        self.0.get(name).unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// The labels of what a selector finds; some series must be able to fit it.
    fn selected(&self, selector: &VectorSelector, counts: bool) -> Names {
        let name = selector.name.as_deref().unwrap();
        let metric = self.get(name);
        assert_eq!(metric.counts, counts, "{name}: rate and increase are for what counts, and nothing else is");
        for label in &selector.matchers.matchers {
            let values = metric.labels.get(&label.name).unwrap_or_else(|| panic!("{name} has no {}", label.name));
            let fits = values.is_empty() || values.iter().any(|value| label.is_match(value));
            assert!(fits, "{name}: {label} finds nothing among {values:?}");
        }
        metric.labels.keys().cloned().collect()
    }

    /// The labels of what a query comes to.
    fn labels(&self, query: &Expr) -> Names {
        match query {
            Expr::VectorSelector(selector) => self.selected(selector, false),
            Expr::Paren(inner) => self.labels(&inner.expr),
            Expr::Aggregate(aggregate) => self.of_aggregate(aggregate),
            Expr::Binary(binary) => self.of_binary(binary),
            Expr::Call(call) => self.of_call(call),
            Expr::NumberLiteral(_) => Names::new(),
            other => panic!("not expected in a query: {other}"),
        }
    }

    fn of_call(&self, call: &Call) -> Names {
        let name = call.func.name;
        let mut labels = Names::new();
        for argument in &call.args.args {
            labels.extend(match &**argument {
                Expr::MatrixSelector(matrix) => {
                    let counts = OF_COUNTERS.contains(&name);
                    assert!(counts || OF_GAUGES.contains(&name), "{name} of a range");
                    self.selected(&matrix.vs, counts)
                }
                other => self.labels(other),
            });
        }
        match name {
            "absent" => fixed(&call.args.args[0]),
            "histogram_quantile" => {
                assert!(labels.remove("le"), "{name} needs le");
                labels
            }
            _ => labels,
        }
    }

    fn of_aggregate(&self, aggregate: &AggregateExpr) -> Names {
        let inner = self.labels(&aggregate.expr);
        if ["topk", "bottomk"].contains(&aggregate.op.to_string().as_str()) {
            return inner;
        }
        aggregate.modifier.as_ref().map(|modifier| matched(&inner, Some(modifier))).unwrap_or_default()
    }

    fn of_binary(&self, binary: &BinaryExpr) -> Names {
        let (left, right) = (self.labels(&binary.lhs), self.labels(&binary.rhs));
        let is_scalar = |side: &Expr| side.value_type() == ValueType::Scalar;
        let op = binary.op.to_string();
        if is_scalar(&binary.lhs) || is_scalar(&binary.rhs) || op == "or" {
            return &left | &right;
        }
        let modifier = binary.modifier.as_ref().and_then(|modifier| modifier.matching.as_ref());
        let all = &left | &right;
        for label in modifier.iter().flat_map(|modifier| &modifier.labels().labels) {
            assert!(all.contains(label), "no {label} in {binary}");
        }
        let both = [&left, &right].map(|side| kept(side, modifier));
        assert_eq!(both[0], both[1], "the sides of {binary} never meet");
        if op == "and" || op == "unless" { left } else { both[0].clone() }
    }

    /// A query as it stands in a file.
    fn check(&self, query: &str) -> Names {
        self.labels(&parser::parse(query).unwrap_or_else(|error| panic!("{query}: {error}")))
    }
}

/// Labels that an aggregation keeps; those that it names must be there.
fn matched(labels: &Names, modifier: Option<&LabelModifier>) -> Names {
    for label in modifier.iter().flat_map(|modifier| &modifier.labels().labels) {
        assert!(labels.contains(label), "no {label} among {labels:?}");
    }
    kept(labels, modifier)
}

fn kept(labels: &Names, modifier: Option<&LabelModifier>) -> Names {
    let keeps = |label: &&String| match modifier {
        None => true,
        Some(LabelModifier::Include(named)) => named.labels.contains(label),
        Some(LabelModifier::Exclude(named)) => !named.labels.contains(label),
    };
    labels.iter().filter(keeps).cloned().collect()
}

/// The labels that a selector pins to a value.
fn fixed(selector: &Expr) -> Names {
    let Expr::VectorSelector(VectorSelector { matchers: Matchers { matchers, .. }, .. }) = selector else {
        panic!("not a selector: {selector}");
    };
    matchers.iter().filter(|label| label.op == MatchOp::Equal).map(|label| label.name.clone()).collect()
}

fn selector(text: &str) -> VectorSelector {
    match parser::parse(text) {
        Ok(Expr::VectorSelector(selector)) => selector,
        other => panic!("{text}: {other:?}"),
    }
}

/// Gives every metric a value.
fn complete(view: &mut View) {
    let node = &mut view.nodes[0];
    node.link.state = LinkState::Up;
    node.figures.calls_per_sec = Some(1.5);
    node.figures.memory_free = node.figures.load_avg;
    node.variables.last_latency_us = Some(4_000);
    view.connections[0].figures.pdd = Some(1.2);
    view.connections[0].figures.ner = Some(60.0);
    let mut map = MapView::clone(&view.maps[0]);
    map.routes = vec![route()];
    view.maps = vec![Arc::new(map)];
}

fn route() -> RouteView {
    RouteView {
        connection: key("vendor-b", None).connection,
        place: Some(1),
        static_priority: 10,
        criteria: BTreeMap::new(),
        dynamic_priority: 0.0,
        priority: 10.0,
        state: "good".to_owned(),
        quality: String::new(),
        reason: String::new(),
        written: 0,
        standing: Standing::Usual,
        merit: None,
        action: BadQualityAction::MakeLast,
    }
}

fn yaml(text: &str) -> Yaml {
    YamlLoader::load_from_str(text).unwrap().remove(0)
}

fn list<'a>(yaml: &'a Yaml, key: &str) -> &'a [Yaml] {
    yaml[key].as_vec().map(Vec::as_slice).unwrap_or_default()
}

fn text<'a>(yaml: &'a Yaml, key: &str) -> &'a str {
    yaml[key].as_str().unwrap_or_else(|| panic!("no {key} in {yaml:?}"))
}

/// The rules, by their names.
fn alerts_by_name() -> BTreeMap<String, Yaml> {
    let file = yaml(ALERTS);
    let rules: Vec<Yaml> = list(&file, "groups").iter().flat_map(|group| list(group, "rules")).cloned().collect();
    let count = rules.len();
    let named: BTreeMap<_, _> = rules.into_iter().map(|rule| (text(&rule, "alert").to_owned(), rule)).collect();
    assert_eq!(named.len(), count, "two have one name");
    named
}

/// Names that follow `mark` in a template.
fn names_after<'a>(template: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    template.split(mark).skip(1).map(move |rest| rest.split(is_end).next().unwrap())
}

#[tokio::test]
async fn every_metric_can_be_checked() {
    let stage = Stage::set().await;
    let declared: Names = {
        stage.changes.send(Arc::new(change("vendor-a", 3, stage.clock.now()))).unwrap();
        get(stage.address, "/healthz").await;
        let page = get(stage.address, "/metrics").await.body;
        page.lines().filter_map(|line| Some(line.strip_prefix("# TYPE ")?.split(' ').next()?.to_owned())).collect()
    };
    let known = Known::all().await;
    let histogram = |name: &String| known.0.contains_key(&format!("{name}_bucket"));
    let unknown: Vec<_> = declared.iter().filter(|name| !known.0.contains_key(*name) && !histogram(name)).collect();
    assert!(unknown.is_empty(), "no sample: {unknown:?}");
}

#[tokio::test]
async fn alerts_ask_for_what_there_is_and_say_what_to_do() {
    let known = Known::all().await;
    for (name, rule) in alerts_by_name() {
        assert!(name.starts_with("Pointsman"), "{name}");
        let labels = known.check(text(&rule, "expr"));
        let severity = text(&rule["labels"], "severity");
        assert!(["critical", "warning", "info"].contains(&severity), "{name}: {severity}");
        for words in ["summary", "description"].map(|key| text(&rule["annotations"], key)) {
            for label in names_after(words, "$labels.") {
                assert!(labels.contains(label), "{name}: no {label} among {labels:?}");
            }
        }
        let row = format!("| `{name}` | {severity} | {} | ", text(&rule, "for"));
        assert!(DOCUMENTATION.contains(&row), "docs/monitoring.md has no {row}");
    }
    let documented: Names = DOCUMENTATION
        .lines()
        .filter_map(|line| Some(line.strip_prefix("| `Pointsman")?.split('`').next()?.to_owned()))
        .collect();
    assert_eq!(documented.len(), alerts_by_name().len());
}

/// promtool runs these tests; here is that none is missing, and that they play series that there are.
#[tokio::test]
async fn every_alert_is_tested_firing_and_not_firing() {
    let known = Known::all().await;
    let mut seen: BTreeSet<(String, bool)> = BTreeSet::new();
    for test in list(&yaml(ALERTS_TEST), "tests") {
        for series in list(test, "input_series").iter().map(|series| selector(text(series, "series"))) {
            let labels = &known.get(series.name.as_deref().unwrap()).labels;
            let named: Names = series.matchers.matchers.iter().map(|label| label.name.clone()).collect();
            let there: Names = labels.keys().cloned().collect();
            assert!(named.is_subset(&there), "{series} has a label too many");
            // Of those that Prometheus adds a test needs none.
            let missing: Vec<_> = there.difference(&named).filter(|label| !ADDED.contains(&label.as_str())).collect();
            assert!(missing.is_empty(), "{series} lacks {missing:?}");
        }
        for case in list(test, "promql_expr_test") {
            for label in selector(text(case, "expr")).matchers.matchers.into_iter().filter(|l| l.name == "alertname") {
                seen.insert((label.value, !list(case, "exp_samples").is_empty()));
            }
        }
    }
    let wanted = alerts_by_name().into_keys().flat_map(|name| [(name.clone(), true), (name, false)]).collect();
    assert_eq!(seen, wanted);
}

#[test]
fn the_example_of_prometheus_reads_the_rules_and_names_the_job_that_they_know() {
    let file = yaml(PROMETHEUS);
    assert_eq!(list(&file, "rule_files"), [Yaml::String("alerts.yml".to_owned())]);
    let [job] = list(&file, "scrape_configs") else { panic!("one job") };
    let known = format!("up{{job=\"{}\"}}", text(job, "job_name"));
    assert!(text(&alerts_by_name()["PointsmanNotScraped"], "expr").contains(&known));
}

fn array<'a>(json: &'a Value, pointer: &str) -> &'a [Value] {
    json.pointer(pointer).and_then(Value::as_array).unwrap_or_else(|| panic!("no {pointer}"))
}

/// A query of the dashboard as Prometheus gets it, with every variable at "All".
fn filled(query: &str, variables: &Names) -> String {
    let builtin = [("__rate_interval", "1m"), ("__range", "6h")];
    let mut filled = query.to_owned();
    for name in names_after(query, "$") {
        let of_grafana = builtin.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        let value = of_grafana.or(variables.contains(name).then_some(".*")).unwrap_or_else(|| panic!("no ${name}"));
        filled = filled.replacen(&format!("${name}"), value, 1);
    }
    filled
}

#[tokio::test]
async fn the_dashboard_asks_for_what_there_is() {
    let known = Known::all().await;
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let list = array(&dashboard, "/templating/list");
    let variables: Names = list.iter().map(|variable| variable["name"].as_str().unwrap().to_owned()).collect();
    for query in list.iter().filter_map(|variable| variable.pointer("/query/query")?.as_str()) {
        let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')).unwrap();
        let (of, label) = inside.rsplit_once(", ").unwrap();
        assert!(known.check(&filled(of, &variables)).contains(label), "{query}");
    }
    let panels = array(&dashboard, "/panels").iter().filter(|panel| panel["type"] != "row");
    let targets = panels.flat_map(|panel| array(panel, "/targets")).map(|target| (target, "legendFormat"));
    let notes = array(&dashboard, "/annotations/list").iter().map(|note| (note, "titleFormat"));
    for (query, template) in targets.chain(notes) {
        let labels = known.check(&filled(query["expr"].as_str().unwrap(), &variables));
        for label in names_after(query[template].as_str().unwrap_or_default(), "{{") {
            assert!(labels.contains(label), "{query}: no {label} among {labels:?}");
        }
    }
}

/// What an import would not say: a panel over another, one that needs a plugin, one without a unit or its datasource.
#[test]
fn the_dashboard_is_laid_out_whole() {
    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    assert!(dashboard["schemaVersion"].as_u64().unwrap() >= 39);
    assert!(dashboard.get("id").is_none() && dashboard.get("__inputs").is_none());
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in array(&dashboard, "/panels") {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}");
        let kind = panel["type"].as_str().unwrap();
        assert!(PANELS.contains(&kind), "{title}: {kind}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + w <= 24, "{title}");
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(place), "{title} lies over another");
        }
        if kind != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
            assert!(panel.pointer("/fieldConfig/defaults/unit").is_some(), "{title} has no unit");
        }
    }
}
