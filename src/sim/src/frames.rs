//! Control frames leave one end and arrive at the other.

use r2ccl_core::limits::WINDOW;
use r2ccl_core::wire::path_frame::PathFrame;
use r2ccl_core::{Answer, EagerReport};

use crate::bug::Bug;
use crate::check::Class;
use crate::world::{EndId, Event, World};

impl World {
    /// A frame leaves an end.
    pub(crate) fn send(&mut self, end: EndId, mut frame: PathFrame) {
        if self.bug == Some(Bug::FramesOnce) {
            if self.said.contains(&(end, frame)) {
                return;
            }
            self.said.push((end, frame));
        }
        if let PathFrame::Answer(answer) = &mut frame {
            self.spoil(answer);
        }
        if let PathFrame::Drained { path, serial } = frame {
            self.check_left(end, path, serial);
        }
        self.counts.frames += 1;
        self.counts.knocks += u64::from(matches!(frame, PathFrame::Knock { .. }));
        let other = EndId {
            connection: end.connection,
            side: end.side.other(),
        };
        let connection = &self.connections[end.connection];
        let (from, to) = (connection.host(end.side), connection.host(other.side));
        let mut times = self.control.travel(from, to, &mut self.random);
        // Frames also travel between the NICs of a path, unless that is lost as well.
        if self.random.percent(30) {
            let path = connection.paths[self.random.index(connection.paths.len())];
            let (source, target) = (path.at(end.side), path.at(other.side));
            let (way, now) = ((source, target), self.queue.now());
            times[1] = times[1].or(self.fabric.travel(way, 256, now, &mut self.random));
        }
        for delay in times.into_iter().flatten() {
            self.queue
                .after(delay, Event::Frame(other, Box::new(frame)));
        }
    }

    /// Deliberate bugs in an answer.
    fn spoil(&self, answer: &mut Answer) {
        match self.bug {
            Some(Bug::AnswerClaimsFence) => answer.is_fenced = true,
            Some(Bug::AnswerForgetsEager) => answer.eager = EagerReport::default(),
            Some(Bug::AnswerClaimsEager) => {
                answer.eager = EagerReport {
                    seen: u64::MAX,
                    matched: u8::MAX,
                };
            }
            Some(Bug::AnswerForgets) => answer.arrived = [0; WINDOW],
            Some(Bug::AnswerClaimsArrival) => {
                for bits in &mut answer.arrived[..usize::from(answer.count)] {
                    // The gaps below the highest segment that has arrived.
                    *bits = u64::MAX.checked_shr(bits.leading_zeros()).unwrap_or(0);
                }
            }
            _ => {}
        }
    }

    /// A frame arrives at an end; a process that stands still finds it later.
    pub(crate) fn deliver(&mut self, end: EndId, frame: &PathFrame) {
        let now = self.queue.now();
        let waits = Event::Frame(end, Box::new(*frame));
        if self.state(end).failed.is_some() || self.is_stuck(end, waits) {
            return;
        }
        if let PathFrame::Knock { path } = frame {
            self.knocked(end, *path);
        }
        if let PathFrame::Goodbye { count } = frame {
            self.connections[end.connection].counted = Some(*count as usize);
        }
        let is_fence = matches!(frame, PathFrame::Fence { .. });
        if is_fence && self.bug == Some(Bug::DeafToFences) {
            return;
        }
        let time = self.time();
        let result = self.connections[end.connection].handle_frame(end.side, time, frame);
        if let Err(text) = result {
            self.fail(Class::Safety, format!("{end:?}: {text}"));
        }
        self.wake_at(end, now);
    }
}
