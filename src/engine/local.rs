//! The load of this machine, for nodes that run on it.

use std::num::NonZero;

use crate::score::Load;

/// Reads this machine's load.
#[derive(Debug, Default)]
pub(super) struct Machine {
    /// Processor time so far: idle, and in all.
    #[cfg(target_os = "linux")]
    before: Option<(u64, u64)>,
}

/// Processor cores of this machine, where the system tells.
pub(super) fn cores() -> Option<u32> {
    std::thread::available_parallelism().ok().map(NonZero::get).and_then(|cores| u32::try_from(cores).ok())
}

#[cfg(target_os = "linux")]
impl Machine {
    /// The load now; idle CPU is that since the last time, so the first reading has none.
    pub(super) fn read(&mut self) -> Load {
        use procfs::Current;
        let load_avg = procfs::LoadAverage::current().ok().map(|load| f64::from(load.one));
        let memory = procfs::Meminfo::current().ok();
        let memory_free = memory.and_then(|memory| share(memory.mem_available?, memory.mem_total));
        Load { load_avg, idle_cpu: self.idle_cpu(), memory_free }
    }

    fn idle_cpu(&mut self) -> Option<f64> {
        use procfs::CurrentSI;
        let total = procfs::KernelStats::current().ok()?.total;
        let waiting = total.iowait.unwrap_or(0);
        let other = [total.irq, total.softirq, total.steal].into_iter().flatten().sum::<u64>();
        let now = (total.idle, total.user + total.nice + total.system + total.idle + waiting + other);
        let (idle, all) = self.before.replace(now)?;
        share(now.0.saturating_sub(idle), now.1.saturating_sub(all))
    }
}

#[cfg(not(target_os = "linux"))]
impl Machine {
    /// Not known on this system.
    pub(super) fn read(&mut self) -> Load {
        Load::default()
    }
}

/// A share in percent.
#[cfg(target_os = "linux")]
#[expect(clippy::cast_precision_loss, reason = "a percentage")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_load() {
        let mut machine = Machine::default();
        let first = machine.read();
        assert!(first.load_avg.is_some_and(|load| load >= 0.0), "{first:?}");
        assert!(first.memory_free.is_some_and(|free| (0.0..=100.0).contains(&free)), "{first:?}");
        assert_eq!(first.idle_cpu, None, "there is nothing to compare with");
        // Two readings at one instant have nothing between them, and say nothing.
        assert!(machine.read().idle_cpu.is_none_or(|idle| (0.0..=100.0).contains(&idle)));
        assert!(cores().is_some_and(|cores| cores > 0));
    }
}
