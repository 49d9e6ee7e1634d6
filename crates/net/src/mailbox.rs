//! The work that handles and the plane have for the task of the stack.

use crate::connection::Connection;
use crate::end::End;
use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Packets of UDP and ICMP that wait to be sent before their senders have to.
const PACKETS: usize = 256;

/// The work that handles and the plane have for the task.
pub(crate) struct Mailbox {
    work: Mutex<Work>,
    bell: Notify,
    room: Notify,
    is_closed: AtomicBool,
    end: Notify,
    released: AtomicBool,
}

#[derive(Default)]
struct Work {
    jobs: Vec<Job>,
    packets: VecDeque<Vec<u8>>,
}

pub(crate) enum Job {
    /// A connection of this end begins.
    Open(Arc<Connection>),
    /// A connection has something to do.
    Look(Arc<Connection>),
}

impl Mailbox {
    pub fn new() -> Self {
        Self {
            work: Mutex::default(),
            bell: Notify::new(),
            room: Notify::new(),
            is_closed: AtomicBool::new(false),
            end: Notify::new(),
            released: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn job(&self, job: Job) {
        let mut work = self.lock();
        // Nobody takes jobs any more, and a job has a connection, which has the mailbox: both would stay for ever.
        if self.is_closed() {
            return;
        }
        work.jobs.push(job);
        drop(work);
        self.bell.notify_one();
    }

    pub fn open(&self, connection: Arc<Connection>) {
        self.job(Job::Open(connection));
    }

    pub fn call(&self, connection: Arc<Connection>) {
        self.job(Job::Look(connection));
    }

    /// Packets that were held for an SA may be sent.
    pub fn release(&self) {
        self.released.store(true, Ordering::Release);
        self.bell.notify_one();
    }

    /// Gives a packet to be sent, once there is room.
    pub async fn send(&self, packet: Vec<u8>) -> Result<(), End> {
        let mut packet = packet;
        loop {
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            if self.is_closed() {
                return Err(End::Stopped);
            }
            match self.put(packet) {
                Ok(()) => return Ok(()),
                Err(refused) => packet = refused,
            }
            room.await;
        }
    }

    /// Gives a packet to be sent, or back if there is no room.
    fn put(&self, packet: Vec<u8>) -> Result<(), Vec<u8>> {
        let mut work = self.lock();
        if work.packets.len() >= PACKETS {
            return Err(packet);
        }
        work.packets.push_back(packet);
        self.bell.notify_one();
        Ok(())
    }

    /// The gateway has stopped.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.bell.notify_one();
        self.end.notify_waiters();
        self.room.notify_waiters();
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Takes the jobs and the packets.
    pub fn take(&self) -> (Vec<Job>, VecDeque<Vec<u8>>) {
        let mut work = self.lock();
        let taken = (std::mem::take(&mut work.jobs), std::mem::take(&mut work.packets));
        drop(work);
        if !taken.1.is_empty() {
            self.room.notify_waiters();
        }
        taken
    }

    /// Returns `true` if held packets may be sent since the last call.
    pub fn take_release(&self) -> bool {
        self.released.swap(false, Ordering::AcqRel)
    }

    /// Waits until there is something for the task.
    pub fn rings(&self) -> Notified<'_> {
        self.bell.notified()
    }

    /// Waits until the gateway has stopped.
    pub async fn closed(&self) {
        let mut end = pin!(self.end.notified());
        end.as_mut().enable();
        if !self.is_closed() {
            end.await;
        }
    }
}
