//! A TCP proxy that misbehaves on command, before PostgreSQL or RabbitMQ.
//!
//! It passes until told otherwise, and changes its ways at run time, for open connections too. It counts, so
//! that a test can wait for a fact ("the COMMIT has gone through, its answer is held") instead of for time.
//! "Up" is client to server, "down" is server to client.
//!
//! It knows nothing of the protocols: a cut falls at a byte, not at a message.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use holdfast_server::dev::ports::Lease;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
};

use crate::wait;

/// What happens to the bytes of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// They pass.
    Pass,
    /// They stay where they are and pass later, when the flow changes.
    Hold,
    /// They are read and thrown away. (The stream is of no use afterwards; cut it.)
    Swallow,
    /// Each piece passes this much later.
    Delay(Duration),
    /// So many more bytes pass, over all connections; then the connection that wants more is reset.
    CutAfter(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rules {
    refuse: bool,
    up: Flow,
    down: Flow,
    /// Where new connections go.
    target: u16,
    /// Raised by each cut: a connection ends when it is no longer the number it was born with.
    epoch: u64,
}

#[derive(Debug, Default)]
struct Counters {
    accepted: AtomicU64,
    open: AtomicU64,
    /// Open connections by the epoch that they were born in.
    born: Mutex<BTreeMap<u64, u64>>,
    up: AtomicU64,
    down: AtomicU64,
    /// Times that a client spoke after its server had, or first.
    turns: AtomicU64,
    /// Bytes that passed since the last change of rules, for [`Flow::CutAfter`].
    spent: [AtomicU64; 2],
}

impl Counters {
    fn born(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.born.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The proxy. Dropping it resets all its connections.
#[derive(Debug)]
pub struct Proxy {
    lease: Lease,
    rules: watch::Sender<Rules>,
    listening: watch::Receiver<bool>,
    counters: Arc<Counters>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A proxy before `127.0.0.1:port`, passing.
    pub async fn before(port: u16) -> Self {
        let lease = Lease::any().expect("a port for the proxy");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, lease.port()));
        let rules = Rules { refuse: false, up: Flow::Pass, down: Flow::Pass, target: port, epoch: 0 };
        let (rules, seen) = watch::channel(rules);
        let (tell, mut listening) = watch::channel(false);
        let counters = Arc::new(Counters::default());
        let task = tokio::spawn(listen(address, seen, tell, counters.clone()));
        listening.wait_for(|on| *on).await.expect("the proxy listens");
        Self { lease, rules, listening, counters, task }
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.lease.port()
    }

    /// Everything passes again, new connections too; what was held goes on.
    pub async fn pass(&self) {
        self.change(|rules| (rules.refuse, rules.up, rules.down) = (false, Flow::Pass, Flow::Pass));
        self.listening.clone().wait_for(|on| *on).await.expect("the proxy listens");
    }

    /// Resets every open connection, and does not wait for it: whoever connects again at once would be waited for, too.
    pub fn reset(&self) {
        self.change(|rules| rules.epoch += 1);
    }

    /// Resets every open connection, and waits until they have ended; new ones are treated as before, and may be there already.
    pub async fn cut(&self) {
        let epoch = self.rules.borrow().epoch;
        self.reset();
        wait::until_equal("the proxy's connections from before", wait::LONG, 0, || async {
            self.counters.born().range(..=epoch).map(|(_, open)| open).sum()
        })
        .await;
    }

    /// Closes the listener: new connections are refused by the kernel, open ones go on.
    pub async fn refuse(&self) {
        self.change(|rules| rules.refuse = true);
        self.listening.clone().wait_for(|on| !*on).await.expect("the proxy stops listening");
    }

    /// The server is away: new connections refused, open ones reset.
    pub async fn away(&self) {
        self.refuse().await;
        self.cut().await;
    }

    /// New connections go to this port; open ones stay where they are, as after a fail-over.
    pub fn lead_to(&self, port: u16) {
        self.change(|rules| rules.target = port);
    }

    /// Nothing moves either way any more, connections stay open.
    pub fn stall(&self) {
        self.flows(Flow::Hold, Flow::Hold);
    }

    /// Requests reach the server, its answers are held back.
    pub fn stall_replies(&self) {
        self.flows(Flow::Pass, Flow::Hold);
    }

    /// Requests reach the server, its answers are lost.
    pub fn swallow_replies(&self) {
        self.flows(Flow::Pass, Flow::Swallow);
    }

    /// Each piece takes this much longer, each way.
    pub fn delay(&self, each_way: Duration) {
        self.flows(Flow::Delay(each_way), Flow::Delay(each_way));
    }

    /// After so many more bytes from the server the connection is reset.
    pub fn cut_after_reply_bytes(&self, bytes: u64) {
        self.flows(Flow::Pass, Flow::CutAfter(bytes));
    }

    /// Any combination.
    pub fn flows(&self, up: Flow, down: Flow) {
        self.change(|rules| (rules.up, rules.down) = (up, down));
    }

    /// Connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.counters.accepted.load(SeqCst)
    }

    /// Connections open now.
    pub fn open(&self) -> u64 {
        self.counters.open.load(SeqCst)
    }

    /// Bytes handed to the server so far.
    pub fn bytes_up(&self) -> u64 {
        self.counters.up.load(SeqCst)
    }

    /// Bytes handed to clients so far.
    pub fn bytes_down(&self) -> u64 {
        self.counters.down.load(SeqCst)
    }

    /// Round trips begun so far, over all connections: times that a client spoke after its server had. What is sent in one go
    /// counts once, however many messages it holds.
    pub fn turns(&self) -> u64 {
        self.counters.turns.load(SeqCst)
    }

    fn change(&self, change: impl FnOnce(&mut Rules)) {
        self.rules.send_modify(|rules| {
            self.counters.spent.iter().for_each(|spent| spent.store(0, SeqCst));
            change(rules);
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.change(|rules| rules.epoch += 1);
        self.task.abort();
    }
}

async fn listen(
    address: SocketAddr,
    mut rules: watch::Receiver<Rules>,
    tell: watch::Sender<bool>,
    counters: Arc<Counters>,
) {
    loop {
        let listener = TcpListener::bind(address).await.expect("bind the proxy's port");
        tell.send_replace(true);
        loop {
            tokio::select! {
                lives = when(&mut rules, |rules| rules.refuse) => {
                    if !lives { return; }
                    break;
                }
                accepted = listener.accept() => {
                    let Ok((client, _)) = accepted else { continue };
                    counters.accepted.fetch_add(1, SeqCst);
                    counters.open.fetch_add(1, SeqCst);
                    let born = *rules.borrow();
                    *counters.born().entry(born.epoch).or_default() += 1;
                    let (rules, counters) = (rules.clone(), counters.clone());
                    tokio::spawn(async move {
                        carry(client, born, rules, &counters).await;
                        counters.open.fetch_sub(1, SeqCst);
                        counters.born().entry(born.epoch).and_modify(|open| *open -= 1);
                    });
                }
            }
        }
        drop(listener);
        tell.send_replace(false);
        if !when(&mut rules, |rules| !rules.refuse).await {
            return;
        }
    }
}

/// Waits until the rules are so; `false` if the proxy is gone. Keeps no lock on the rules.
async fn when(rules: &mut watch::Receiver<Rules>, so: impl FnMut(&Rules) -> bool) -> bool {
    rules.wait_for(so).await.is_ok()
}

/// One connection, until both sides are done or it is cut.
async fn carry(client: TcpStream, born: Rules, mut rules: watch::Receiver<Rules>, counters: &Counters) {
    let Rules { epoch, target, .. } = born;
    let target = SocketAddr::from((Ipv4Addr::LOCALHOST, target));
    let Ok(server) = TcpStream::connect(target).await else {
        let _ = client.set_zero_linger();
        return;
    };
    for side in [&client, &server] {
        let _ = side.set_nodelay(true);
    }
    let (mut client_read, mut client_write) = client.into_split();
    let (mut server_read, mut server_write) = server.into_split();
    let cut = {
        let (up_rules, down_rules) = (rules.clone(), rules.clone());
        let client_spoke = AtomicBool::new(false);
        let both = async {
            let up = pump(&mut client_read, &mut server_write, up_rules, counters, &client_spoke, Way::Up);
            let down =
                pump(&mut server_read, &mut client_write, down_rules, counters, &client_spoke, Way::Down);
            tokio::try_join!(up, down).is_err()
        };
        tokio::select! {
            cut = both => cut,
            _ = when(&mut rules, |rules| rules.epoch != epoch) => true,
        }
    };
    if cut {
        let _ = client_read.as_ref().set_zero_linger();
        let _ = server_read.as_ref().set_zero_linger();
    }
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Up,
    Down,
}

/// Carries one direction to its end; `Err` wants the connection reset.
async fn pump(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    mut rules: watch::Receiver<Rules>,
    counters: &Counters,
    client_spoke: &AtomicBool,
    way: Way,
) -> Result<(), ()> {
    let flow = |rules: &Rules| match way {
        Way::Up => rules.up,
        Way::Down => rules.down,
    };
    let (total, spent) = match way {
        Way::Up => (&counters.up, &counters.spent[0]),
        Way::Down => (&counters.down, &counters.spent[1]),
    };
    let mut buffer = vec![0; 64 * 1024];
    loop {
        if !when(&mut rules, |rules| flow(rules) != Flow::Hold).await {
            return Err(());
        }
        let read = tokio::select! {
            biased;
            // The rules may change while nothing comes: a hold must also hold what comes next.
            _ = when(&mut rules, |rules| flow(rules) == Flow::Hold) => continue,
            read = from.read(&mut buffer) => read.map_err(drop)?,
        };
        if read == 0 {
            return to.shutdown().await.map_err(drop);
        }
        if !when(&mut rules, |rules| flow(rules) != Flow::Hold).await {
            return Err(());
        }
        // A copy: the borrow of a watch channel must not live across an await.
        let flow = flow(&rules.borrow());
        let (bytes, cut) = match flow {
            Flow::Swallow => continue,
            Flow::Pass | Flow::Hold => (&buffer[..read], false),
            Flow::Delay(time) => {
                tokio::time::sleep(time).await;
                (&buffer[..read], false)
            }
            Flow::CutAfter(limit) => {
                let before = spent.fetch_add(read as u64, SeqCst);
                let left = usize::try_from(limit.saturating_sub(before)).unwrap_or(usize::MAX);
                (&buffer[..read.min(left)], left < read)
            }
        };
        match way {
            Way::Up if !client_spoke.swap(true, SeqCst) => drop(counters.turns.fetch_add(1, SeqCst)),
            Way::Up => {}
            Way::Down => client_spoke.store(false, SeqCst),
        }
        to.write_all(bytes).await.map_err(drop)?;
        total.fetch_add(bytes.len() as u64, SeqCst);
        if cut {
            return Err(());
        }
    }
}
