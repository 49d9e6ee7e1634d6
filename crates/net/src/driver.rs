//! The task of the stack: datagrams, sockets and time around the datapath and [`Stack`].

use crate::clock::now;
use crate::datagrams::{Datagrams, IKE_PORT, Incoming, KEEPALIVE, NON_ESP_MARKER, Outgoing};
use crate::device::PacketDevice;
use crate::end::End;
use crate::mailbox::{Job, Mailbox};
use crate::stack::Stack;
use esp::datapath::{Arrival, Datapath};
use esp::gso::Gso;
use esp::plane::{Encapsulation, Path};
use esp::queue::{Coalesce, ReceiveQueue};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Octets of opened packets before the stack takes them.
const QUEUE: usize = 1 << 20;
/// A transport that fails is read again after this time.
const PAUSE: Duration = Duration::from_millis(10);
/// Packets that a device gives before peers have their turn.
const TURN: usize = 64;

/// The time that a transport has to make room. Nothing is received meanwhile.
const SEND_PATIENCE: Duration = Duration::from_millis(20);

/// Takes an IKE message, without the marker that stands before it.
pub type IkeSink = Arc<dyn Fn(IkeDatagram<'_>) + Send + Sync>;

/// An IKE message that has come.
#[derive(Clone, Copy, Debug)]
pub struct IkeDatagram<'d> {
    /// The address at which it arrived.
    pub local: std::net::SocketAddr,
    /// The peer.
    pub remote: std::net::SocketAddr,
    /// The message.
    pub octets: &'d [u8],
}

/// Opens what has come.
pub(crate) struct Inbox {
    datapath: Datapath,
    ike: IkeSink,
    opened: ReceiveQueue,
    device: Option<Arc<dyn PacketDevice>>,
}

impl Inbox {
    pub fn new(datapath: Datapath, ike: IkeSink, device: Option<Arc<dyn PacketDevice>>) -> Self {
        let both = Coalesce { tcp: true, udp: true };
        let opened = ReceiveQueue::new(QUEUE, device.as_ref().map_or(both, |d| d.coalesce()));
        Self { datapath, ike, opened, device }
    }

    /// Takes datagrams: ESP is opened, and IKE is handed on.
    fn take(&mut self, incoming: &Incoming<'_>, stack: &mut Stack) {
        let Incoming { local, remote, tos, .. } = *incoming;
        if local.port() == IKE_PORT {
            let messages = incoming.octets.chunks(incoming.segment_len);
            return messages.for_each(|octets| (self.ike)(IkeDatagram { local, remote, octets }));
        }
        let path = Path { local, remote, encapsulation: Encapsulation::Udp };
        let arrival = Arrival { path, tos, ttl: None };
        let mut rest = incoming.octets;
        while !rest.is_empty() {
            let esp = rest.chunks(incoming.segment_len).take_while(|datagram| is_esp(datagram));
            let (run, tail) = rest.split_at(esp.map(<[u8]>::len).sum());
            let now = stack.outlet.now;
            let (len, opened) = (incoming.segment_len, &mut self.opened);
            self.datapath.decapsulate_run(now, run, len, arrival, opened);
            let other = &tail[..tail.len().min(incoming.segment_len)];
            if let Some(octets) = other.strip_prefix(&NON_ESP_MARKER) {
                (self.ike)(IkeDatagram { local, remote, octets });
            }
            rest = &tail[other.len()..];
            if self.opened.is_full() {
                self.hand_over(stack);
            }
        }
    }

    /// Gives the opened packets to the device, or else to the stack.
    fn hand_over(&mut self, stack: &mut Stack) {
        let device = self.device.as_deref();
        for (packet, gso) in self.opened.packets() {
            deliver(device, stack, packet, gso);
        }
        self.opened.clear();
    }

    /// Gives an ICMP message of the datapath to the sender of the packet that it is about.
    fn answer(&self, stack: &mut Stack, answer: &[u8]) {
        deliver(self.device.as_deref(), stack, answer, Gso::NONE);
    }

    /// Protects packets of the device. Returns `true` if there may be more.
    fn read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8], stack: &mut Stack) -> bool {
        let Some(device) = &self.device else { return false };
        for _ in 0..TURN {
            if stack.outlet.queue.is_full() {
                return true;
            }
            match device.poll_read(cx, buffer) {
                Poll::Pending => return false,
                Poll::Ready(Ok((len, gso))) => {
                    stack.now_is(now());
                    stack.outlet.send(&mut buffer[..len], gso);
                }
                Poll::Ready(Err(error)) => {
                    tracing::warn!(%error, "the device of the packets is gone");
                    self.device = None;
                    return true;
                }
            }
        }
        true
    }
}

fn deliver(device: Option<&dyn PacketDevice>, stack: &mut Stack, packet: &[u8], gso: Gso) {
    let Some(device) = device else { return stack.take(packet, gso) };
    if let Err(error) = device.write(packet, gso) {
        tracing::debug!(%error, "the device has not taken a packet");
    }
}

fn is_esp(datagram: &[u8]) -> bool {
    !datagram.starts_with(&NON_ESP_MARKER) && datagram != KEEPALIVE
}

/// The task of the stack.
pub(crate) struct Driver {
    pub stack: Stack,
    pub inbox: Inbox,
    pub datagrams: Arc<dyn Datagrams>,
    pub mailbox: Arc<Mailbox>,
    /// Room for a packet of the device.
    pub packet: Vec<u8>,
}

impl Driver {
    pub async fn run(mut self) {
        let mut resumes = None;
        while !self.mailbox.is_closed() {
            self.stack.now_is(now());
            self.work();
            self.stack.send();
            for answer in self.inbox.datapath.take_answers() {
                self.inbox.answer(&mut self.stack, &answer);
            }
            self.flush().await;
            resumes = self.wait(resumes).await;
            if self.stack.is_busy() {
                // Applications, which may share the thread, have their turn.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Does what handles have asked for.
    fn work(&mut self) {
        let (jobs, packets) = self.mailbox.take();
        jobs.into_iter().for_each(|job| self.stack.work(job));
        for mut packet in packets {
            self.stack.outlet.send(&mut packet, Gso::NONE);
        }
        if self.mailbox.take_release() {
            let outlet = &mut self.stack.outlet;
            self.inbox.datapath.flush_held(outlet.now, &mut outlet.queue);
        }
    }

    /// Sends what is sealed. A transport without room makes it wait.
    async fn flush(&mut self) {
        let queue = &self.stack.outlet.queue;
        for run in queue.runs() {
            let outgoing = Outgoing {
                local: run.path.local,
                remote: run.path.remote,
                octets: queue.octets(run),
                segment_len: run.segment_len,
                tos: run.tos,
            };
            if let Err(error) = send(&*self.datagrams, &outgoing).await {
                tracing::debug!(%error, remote = %outgoing.remote, "ESP not sent");
            }
        }
        self.stack.outlet.queue.clear();
    }

    /// Waits until something has come, is to be done, or is due, and takes what has come. After a failure of the
    /// transport it is not read before the returned time.
    async fn wait(&mut self, resumes: Option<Instant>) -> Option<Instant> {
        let Self { stack, inbox, datagrams, mailbox, packet } = self;
        let wakes_at = [stack.wakes_at(), resumes].into_iter().flatten().min();
        let mut sleep = pin!(sleep_until(wakes_at));
        let mut bell = pin!(mailbox.rings());
        let mut failed = resumes.filter(|at| *at > now());
        std::future::poll_fn(|cx| {
            let mut ready = stack.is_busy();
            ready |= bell.as_mut().poll(cx).is_ready();
            ready |= sleep.as_mut().poll(cx).is_ready();
            ready |= inbox.read(cx, packet, stack);
            ready |= !stack.outlet.queue.is_empty();
            if failed.is_some() {
                return if ready { Poll::Ready(()) } else { Poll::Pending };
            }
            let mut first = true;
            let received = datagrams.poll_receive(cx, &mut |incoming| {
                if std::mem::take(&mut first) {
                    stack.now_is(now());
                }
                inbox.take(&incoming, stack);
            });
            match received {
                Poll::Ready(Ok(())) => ready = true,
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "receiving");
                    failed = Some(now() + PAUSE);
                    ready = true;
                }
                Poll::Pending => {}
            }
            if ready { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        inbox.hand_over(stack);
        failed
    }
}

/// The task ends with the plane, with the runtime, or by a panic. Nobody waits for it after that.
impl Drop for Driver {
    fn drop(&mut self) {
        self.mailbox.close();
        self.stack.stop();
        // Jobs of the last moment have nobody to do them.
        let (jobs, _) = self.mailbox.take();
        for job in jobs {
            let (Job::Open(connection) | Job::Look(connection)) = job;
            let mut inner = connection.lock();
            inner.end.get_or_insert(End::Stopped);
            inner.socket().abort();
        }
    }
}

/// Sends datagrams. If the transport has no room for them within the time, they are lost.
async fn send(datagrams: &dyn Datagrams, outgoing: &Outgoing<'_>) -> io::Result<()> {
    let mut gives_up = None;
    loop {
        match datagrams.try_send(outgoing) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let at = *gives_up.get_or_insert_with(|| now() + SEND_PATIENCE);
                let writable = std::future::poll_fn(|cx| datagrams.poll_writable(cx));
                if tokio::time::timeout_at(at.into(), writable).await.is_err() {
                    return Err(error);
                }
            }
            outcome => return outcome,
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
