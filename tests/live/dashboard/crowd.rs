//! A thousand connections.

use std::fmt::Write;
use std::time::Duration;

use pointsman::sim::traffic::Callers;
use pointsman::sim::{Behaviour, Span};

use super::open;
use crate::lab::browser::{Browser, Screen};
use crate::lab::scene::Scene;

const MAPS: usize = 50;
/// Connections of a map.
const OF_MAP: usize = 20;
/// The first maps get calls.
const BUSY: usize = 5;
/// Connections on a page.
const ROWS: usize = 100;

fn config() -> String {
    let mut text = "[quality]\nmonitor_asr = true\nasr_threshold_percent = 40\nstatistics_window = 10\n".to_owned();
    for vendor in 0..MAPS * OF_MAP {
        writeln!(text, "[[connections]]\nid = \"{}\"", name(vendor)).unwrap();
    }
    for map in 0..MAPS {
        writeln!(text, "[[route_maps]]\nid = \"map-{map:02}\"\nprefixes = [\"00{map:02}\"]\nentries = [").unwrap();
        for place in 0..OF_MAP {
            writeln!(text, "{{ connection = \"{}\", priority = {} }},", name(map * OF_MAP + place), place * 10)
                .unwrap();
        }
        text.push_str("]\n");
    }
    text
}

fn name(vendor: usize) -> String {
    format!("wholesale-carrier-{vendor:04}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dashboard_a_thousand_connections_stay_usable() {
    let scene = Scene::set(&config()).await;
    // Whom the busy maps try first fails half of the time, so that the next one gets calls too.
    let quick = |behaviour: Behaviour| {
        let millis = Duration::from_millis;
        behaviour
            .ringing_after(Span::About(millis(50)))
            .answering_after(Span::About(millis(50)))
            .talking(Span::About(millis(500)))
    };
    let behave = |vendor: usize, behaviour: &Behaviour| {
        scene.nodes.iter().for_each(|node| node.set_vendor(&name(vendor), behaviour.clone()));
    };
    for vendor in 0..BUSY * OF_MAP {
        behave(vendor, &quick(if vendor % OF_MAP == 0 { Behaviour::answering(0.8) } else { Behaviour::good() }));
    }
    for map in 0..BUSY {
        let route = format!("map-{map:02}");
        scene.call(&Callers { calls_per_minute: 120.0, ..Callers::of_map(&route, map as u64) });
    }

    let browser = Browser::start();
    let page = browser.page().await;
    open(&page, &scene.url("/")).await;
    let paths = [
        ("/", Some(25)),
        ("/connections", Some(ROWS)),
        ("/connections?page=10", Some(ROWS)),
        ("/connections?q=carrier-07", Some(ROWS)),
        ("/connections?q=0999&state=good", Some(1)),
        ("/changes", None),
    ];
    for (path, rows) in paths {
        page.open(&scene.url(path)).await;
        let loading = page.loading().await;
        println!("{path}: {loading:?}");
        assert!(loading.bytes < 200_000, "{path}: {loading:?}");
        if let Some(rows) = rows {
            assert_eq!(page.eval("document.querySelectorAll('#connections tbody tr').length").await, rows, "{path}");
        }
        page.screen(Screen::Phone).await;
        assert_eq!(page.overflow().await, 0.0, "{path}");
        page.screen(Screen::Desktop).await;
    }

    // Out of a thousand, the one that fails comes to the top by itself.
    page.open(&scene.url("/connections")).await;
    page.eval("window.marker = 'the same page'").await;
    let vendor = 2 * OF_MAP;
    behave(vendor, &quick(Behaviour::refusing(503)));
    page.until(
        "the one that fails on top",
        &format!(
            "document.querySelector('#connections tbody tr[data-state=last] a')?.innerText === '{}'",
            name(vendor)
        ),
    )
    .await;
    let longest = "new Promise(done => {
        let painted = 0, longest = 0;
        const tasks = new PerformanceObserver(list => {
            for (const task of list.getEntries()) longest = Math.max(longest, task.duration);
        });
        tasks.observe({type: 'longtask'});
        new MutationObserver((_, observer) => {
            if (++painted < 5) return;
            observer.disconnect();
            setTimeout(() => { tasks.disconnect(); done(longest); }, 200);
        }).observe(beat, {attributes: true});
    })";
    for _ in 0..2 {
        let millis = page.eval(longest).await.as_f64().unwrap();
        println!("the longest task of 5 pictures, in ms, where any took 50: {millis}");
        assert!(millis < 1_000.0, "{millis} ms");
    }
    assert_eq!(page.eval("window.marker").await, "the same page");
    assert_eq!(page.console().await, [""; 0]);
    assert!(scene.running.stop().await);
}
