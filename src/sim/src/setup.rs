//! How the connections of a world are made.

use std::collections::VecDeque;

use r2ccl_core::limits::EAGER_SLOTS;
use r2ccl_core::{EndConfig, Generation, PathId, Routing, Seq};

use crate::bug::Bug;
use crate::check::{Class, Postings};
use crate::connection::{Connection, EndState, PathNics, Side};
use crate::plan::Plan;
use crate::ports::{self, Role};
use crate::random::Random;
use crate::world::{EndId, World};

/// What a connection is made of.
#[derive(Clone, Debug)]
pub struct Line {
    /// Hosts of sender and receiver.
    pub hosts: [usize; 2],
    /// Its paths by id.
    pub paths: Vec<PathNics>,
    /// What each of them is for.
    pub roles: Vec<Role>,
    /// What its users do.
    pub plan: Plan,
    /// Settings of both ends.
    pub config: EndConfig,
}

impl World {
    /// Makes connection `index` between two different hosts of `nics` NICs.
    pub(crate) fn connect(&mut self, index: usize, nics: usize) {
        let mut plan = if self.is_small {
            Plan::small()
        } else {
            Plan::new(index, &mut Random::new(self.seed, 10 + index as u64))
        };
        if self.character.is_long && index == 0 {
            plan.prolong(index, &mut Random::new(self.seed, 20));
        }
        let sender = self.random.index(self.hosts.len());
        let step = 1 + self.random.index(self.hosts.len() - 1);
        let hosts = [sender, (sender + step) % self.hosts.len()];
        let paths = self.wire(hosts, nics);
        let count = paths.len();
        let roles = self.roles(count);
        let config = self.end_config(index);
        self.open(Line {
            hosts,
            paths,
            roles,
            plan,
            config,
        });
    }

    /// Makes a connection.
    pub(crate) fn open(&mut self, line: Line) {
        let Line {
            hosts,
            paths,
            roles,
            plan,
            config,
        } = line;
        let index = self.connections.len();
        let Ok((sender, receiver)) = ports::ends(config, plan.segment_bytes, &roles) else {
            return self.fail(Class::Safety, "the ends refuse their set-up".into());
        };
        self.connections.push(Connection {
            hosts,
            sender,
            receiver,
            paths,
            ends: [EndState::default(), EndState::default()],
            postings: Postings::new(plan.messages.len(), config.is_fence_strict),
            ranks: plan.ranks(),
            plan,
            sending: (0, 0),
            rest_until: 0,
            staging: [None; EAGER_SLOTS],
            starved_since: None,
            receiving: 0,
            receive_rest_until: 0,
            copying: VecDeque::new(),
            deferred: Vec::new(),
            kept: None,
            credited: Seq(0),
            open_receives: VecDeque::new(),
            open_sends: Vec::new(),
            free_buffers: Vec::new(),
            free_sources: Vec::new(),
            received: 0,
            deliveries: Vec::new(),
            sent: 0,
            is_excused: false,
            deserted: None,
            is_starved: false,
        });
        for path in (0..roles.len()).filter(|&path| !roles[path].is_standby) {
            self.connect_path(index, Self::path(path));
        }
        for side in [Side::Sender, Side::Receiver] {
            self.wake_at(
                EndId {
                    connection: index,
                    side,
                },
                0,
            );
        }
    }

    /// Makes both queue pairs of a path that is connected at set-up.
    fn connect_path(&mut self, index: usize, path: PathId) {
        let ends = [Side::Sender, Side::Receiver];
        let [one, two] = ends.map(|side| {
            self.make_qp(
                EndId {
                    connection: index,
                    side,
                },
                path,
                Generation(0),
            )
            .qp
        });
        for (side, qp, peer) in [(Side::Sender, one, two), (Side::Receiver, two, one)] {
            let end = EndId {
                connection: index,
                side,
            };
            self.join(end, qp, peer, self.owners[peer].memory as u64);
        }
    }

    /// In most worlds the first path takes all in health; some paths are connected later.
    fn roles(&mut self, paths: usize) -> Vec<Role> {
        let spread = self.random.percent(40);
        let late = self.random.percent(20) && !self.is_small;
        (0..paths)
            .map(|path| {
                let share = if path == 0 || (spread && path < 4) {
                    1
                } else {
                    0
                };
                let capacity = 1 + self.random.below(3) as u32;
                let is_standby = late && path > 0 && self.random.percent(50);
                Role {
                    share: (share, capacity),
                    is_standby,
                }
            })
            .collect()
    }

    fn end_config(&mut self, index: usize) -> EndConfig {
        let usual = EndConfig::default();
        let no_quarantine = self.bug == Some(Bug::NoQuarantine);
        EndConfig {
            routing: self
                .random
                .pick(&[Routing::Balance, Routing::Balance, Routing::HotRepair]),
            seed: self.seed.wrapping_add(index as u64),
            quarantine_ns: if no_quarantine {
                1
            } else {
                usual.quarantine_ns
            },
            is_fence_strict: self.random.percent(20) && !no_quarantine,
            evictions_max: self.character.evictions_max,
            ..usual
        }
    }
}
