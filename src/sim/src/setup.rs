//! How the connections of a world are made.

use std::collections::VecDeque;

use r2ccl_core::limits::EAGER_SLOTS;
use r2ccl_core::{EndConfig, Generation, PathId, Routing, Seq};

use crate::bug::Bug;
use crate::check::{Class, Postings};
use crate::connection::{Connection, EndState, PathNics, Side};
use crate::drain::Drains;
use crate::plan::{MESSAGES_MIN, Plan};
use crate::ports::{self, Role};
use crate::queue::{MILLISECOND, Nanos};
use crate::random::Random;
use crate::world::{EndId, Event, World};

/// Messages of a connection that is made later, at least.
const MESSAGES_LATE: usize = 40;
/// Connections of a world at the most.
const CONNECTIONS_MAX: usize = 5;
/// A set-up that fails is tried again after this long.
const SET_UP_STEP: Nanos = 20 * MILLISECOND;

/// First hold-down in a small world.
const SMALL_HOLD_DOWN: Nanos = 5 * MILLISECOND;

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
            let mut random = Random::new(self.seed, 10 + index as u64);
            Plan::new(index, MESSAGES_MIN, &mut random)
        };
        if self.character.is_long && index == 0 {
            plan.prolong(index, &mut Random::new(self.seed, 20));
        }
        let all: Vec<usize> = (0..self.hosts.len()).collect();
        let hosts = self.two_of(&all);
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

    /// A sender and another host to receive.
    fn two_of(&mut self, hosts: &[usize]) -> [usize; 2] {
        let sender = self.random.index(hosts.len());
        let step = 1 + self.random.index(hosts.len() - 1);
        [hosts[sender], hosts[(sender + step) % hosts.len()]]
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
        let time = self.time();
        let Ok((sender, receiver)) = ports::ends(time, config, plan.segment_bytes, &roles) else {
            return self.fail(Class::Safety, "the ends refuse their set-up".into());
        };
        self.connections.push(Connection {
            hosts,
            config,
            sender,
            receiver,
            paths,
            ends: [EndState::default(), EndState::default()],
            postings: Postings::new(plan.messages.len(), &config),
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
            leaving: None,
            counted: None,
            is_starved: false,
            drains: Drains::default(),
        });
        let sender = &mut self.connections[index].ends[Side::Sender as usize];
        let is_served = roles.iter().map(|role| !role.is_standby);
        sender.seen.times.begin(is_served);
        for path in (0..roles.len()).filter(|&path| !roles[path].is_standby) {
            self.connect_path(index, Self::path(path));
        }
        for side in [Side::Sender, Side::Receiver] {
            self.wake_at(
                EndId {
                    connection: index,
                    side,
                },
                time.nanoseconds(),
            );
        }
    }

    /// Makes a connection in the middle of all that goes on. Paths that cannot be connected are
    /// made later; if none can be, all is tried again.
    pub(crate) fn connect_late(&mut self) {
        let index = self.connections.len();
        let alive = |host: &usize| self.hosts[*host].alive && self.hosts[*host].leaving.is_none();
        let alive: Vec<usize> = (0..self.hosts.len()).filter(alive).collect();
        if index >= CONNECTIONS_MAX || alive.len() < 2 || self.is_healed {
            return;
        }
        let hosts = self.two_of(&alive);
        let paths = self.wire(hosts, self.fabric.nics.len() / self.hosts.len());
        let mut roles = self.roles(paths.len());
        for (role, path) in roles.iter_mut().zip(&paths) {
            role.is_standby |= !self.can_connect(path);
        }
        if roles.iter().all(|role| role.is_standby) {
            return self.queue.after(SET_UP_STEP, Event::Connect);
        }
        let mut random = Random::new(self.seed, 10 + index as u64);
        let plan = Plan::new(index, MESSAGES_LATE, &mut random);
        let config = self.end_config(index);
        self.open(Line {
            hosts,
            paths,
            roles,
            plan,
            config,
        });
    }

    /// Whether queue pairs between two NICs can be made and connected now.
    fn can_connect(&self, path: &PathNics) -> bool {
        let (here, there) = (path.sender, path.receiver);
        let mut nics = [here, there].into_iter();
        nics.all(|nic| !self.fabric.nics[nic].hung && !self.fabric.nics[nic].nameless)
            && self.fabric.passes(here, there)
            && self.fabric.passes(there, here)
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
            let port = self.nics.qps[peer].port;
            self.join(end, qp, (peer, port), self.owners[peer].memory as u64);
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
        let usual = self.character.config();
        let no_quarantine = self.bug == Some(Bug::NoQuarantine);
        // Small worlds are many: that a path proves itself for long would be most of their events.
        let hold_down_ns = if self.is_small {
            SMALL_HOLD_DOWN
        } else {
            usual.hold_down_ns
        };
        EndConfig {
            hold_down_ns,
            routing: self
                .random
                .pick(&[Routing::Balance, Routing::Balance, Routing::HotRepair]),
            seed: self.seed.wrapping_add(index as u64),
            quarantine_ns: if no_quarantine {
                1
            } else {
                usual.quarantine_ns
            },
            is_fence_strict: self.random.percent(35) && !no_quarantine,
            ..usual
        }
    }
}
