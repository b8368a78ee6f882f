//! The past, as plots.

use minijinja::value::Value;
use serde::Serialize;

use super::Asked;
use super::look::Look;
use crate::api::routes::history::Gathered;
use crate::engine::view::ConnectionView;
use crate::ids::NodeId;
use crate::plot::{Metric, Plot, Size};
use crate::store::Whose;
use crate::store::history::{HistoryError, Series, Span};

/// What a connection or a node did over a span of time.
#[derive(Debug, Default, Serialize)]
pub(super) struct Past {
    span: Span,
    spans: [Span; 4],
    plots: Vec<Plotted>,
    /// Why there are none.
    problem: Option<String>,
}

/// A plot, for both widths; the style sheet shows the one that fits.
#[derive(Debug, Serialize)]
struct Plotted {
    metric: Metric,
    wide: Value,
    narrow: Value,
}

impl Past {
    /// Of a connection, with its thresholds, and the times in which it was not good.
    pub(super) async fn of_connection(asked: &Asked<'_>, connection: &ConnectionView, span: Span) -> Self {
        let gathered = Gathered::of(asked.app, connection, span).await;
        let connection = connection.clone();
        Self::of(asked, span, gathered, move |gathered, look| {
            let subject = connection.key.to_string();
            let plot = |metric| gathered.plot(&subject, metric, &connection, &look.zone);
            Metric::ALL.map(|metric| Plotted::new(&plot(metric), look)).into()
        })
        .await
    }

    /// Of a node: its calls, and how they ended.
    pub(super) async fn of_node(asked: &Asked<'_>, node: &NodeId, span: Span) -> Self {
        let series = asked.app.sources.history.series(&Whose::Node(node.clone()), span, asked.now).await;
        let node = node.clone();
        Self::of(asked, span, series, move |series: &Series, look| {
            let plot = |metric| Plot { metric, ..Plot::plain(node.as_str(), series, &look.zone) };
            [Metric::Attempts, Metric::Outcomes].map(|metric| Plotted::new(&plot(metric), look)).into()
        })
        .await
    }

    async fn of<T: Send + 'static>(
        asked: &Asked<'_>,
        span: Span,
        read: Result<T, HistoryError>,
        draw: impl FnOnce(&T, &Look) -> Vec<Plotted> + Send + 'static,
    ) -> Self {
        let (plots, problem) = match read {
            Ok(read) => {
                let look = asked.look.clone();
                let drawn = asked.app.studio.beside(&asked.app.tasks, move || draw(&read, &look)).await;
                (drawn.unwrap_or_default(), None)
            }
            Err(why) => (Vec::new(), Some(why.to_string())),
        };
        Self { span, spans: Span::ALL, plots, problem }
    }
}

impl Plotted {
    fn new(plot: &Plot<'_>, look: &Look) -> Self {
        let plot = Plot { language: look.language, ..*plot };
        let of = |size| Value::from_safe_string(Plot { size, ..plot }.svg());
        Self { metric: plot.metric, wide: of(Size::Wide), narrow: of(Size::Narrow) }
    }
}
