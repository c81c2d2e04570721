//! The subscriber: takes events that the level allows and hands them out as lines.

use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::allowance;
use super::logger::Log;

/// Formats events and gives them to a [`Log`].
pub struct LogLayer(pub &'static Log);

impl LogLayer {
    fn takes(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.0.level()
    }
}

impl<S: Subscriber> Layer<S> for LogLayer {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        match self.takes(metadata) {
            true => Interest::always(),
            false => Interest::never(),
        }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.takes(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.0.level())
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if let Some(suppressed) = allowance::admit(event.metadata()) {
            self.0.write(event, suppressed);
        }
    }
}
