//! The program over two simulated switches, all in this process.

use std::path::Path;
use std::sync::Arc;

use pointsman::clock::Clock;
use pointsman::config::{Format, Purpose, load_text};
use pointsman::engine::reload::Loader;
use pointsman::engine::run::{self, Running};
use pointsman::engine::view::LinkState;
use pointsman::sim::traffic::Callers;
use pointsman::sim::{Handle, asterisk, freeswitch};
use pointsman::tasks::Tasks;

use super::SOON;
use super::folder::Folder;

/// Two simulated switches and the program over them.
pub(crate) struct Scene {
    pub(crate) nodes: [Handle; 2],
    pub(crate) running: Running,
    pub(crate) folder: Folder,
    /// Where the program listens, without a slash at the end.
    url: String,
    clock: Clock,
    tasks: Tasks,
}

impl Scene {
    /// With this in the configuration besides its nodes, pbx-01 and pbx-02. Both have links when it is set.
    pub(crate) async fn set(more: &str) -> Self {
        let (clock, tasks, folder) = (Clock::system(), Tasks::new(), Folder::new("scene"));
        let freeswitch = freeswitch::Server::start(freeswitch::Options::default(), clock, &tasks).await.unwrap();
        let asterisk = asterisk::Server::start(asterisk::Options::default(), clock, &tasks).await.unwrap();
        let text = format!(
            r#"
control_socket = "{folder}/control"
[storage]
path = "{folder}/state.db"
[http]
listen = "127.0.0.1:0"
[[nodes]]
id = "pbx-01"
kind = "freeswitch"
address = "{}"
password = "ClueCon"
max_calls = 250
[[nodes]]
id = "pbx-02"
kind = "asterisk"
address = "{}"
username = "pointsman"
password = "ClueCon"
max_calls = 250
{more}
"#,
            freeswitch.address(),
            asterisk.address(),
            folder = folder.path().display(),
        );
        let load = move || load_text(Path::new("scene.toml"), &text, Format::Toml, [], Purpose::Connect);
        let config = load().unwrap_or_else(|problems| panic!("{}", problems.render(false))).config;
        let running = run::start_with(Arc::new(config), clock, Some(Loader::new(load))).await.unwrap();
        let mut listening = running.http().unwrap();
        let address = listening.wait_for(|listening| listening.address.is_some()).await.unwrap().address.unwrap();
        let url = format!("http://{address}");
        let scene = Self { nodes: [freeswitch, asterisk], running, folder, url, clock, tasks };
        scene.linked().await;
        scene
    }

    /// Waits until there is a link to each switch.
    pub(crate) async fn linked(&self) {
        let mut views = self.running.view();
        let up = views.wait_for(|view| view.nodes.iter().all(|node| node.link.state == LinkState::Up));
        tokio::time::timeout(SOON, up).await.expect("links in time").unwrap();
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Lets them call until the scene ends, on each switch.
    pub(crate) fn call(&self, callers: &Callers) {
        for node in &self.nodes {
            callers.clone().start(node, self.clock, &self.tasks);
        }
    }
}
