//! The stage that puts in order again what several threads finish in any order.

#![forbid(unsafe_code)]

use crate::sync::Mutex;

/// Takes numbered items, from 0 on and each number once, and gives them to a sink in the order of their numbers. Nobody
/// waits: the thread that brings the item that is due takes all that follow it along, and a thread that meets another
/// at the sink leaves the item to that one.
pub(crate) struct InOrder<T, S> {
    slots: Box<[Mutex<Option<T>>]>,
    sink: Mutex<Sink<S>>,
}

struct Sink<S> {
    /// The number that is due.
    next: u64,
    sink: S,
}

impl<T, S: FnMut(T)> InOrder<T, S> {
    /// Has room for `room` items: no number may be given out before that of so many items earlier has come out.
    pub(crate) fn new(room: usize, sink: S) -> Self {
        let slots = (0..room.max(1)).map(|_| Mutex::new(None)).collect();
        Self { slots, sink: Mutex::new(Sink { next: 0, sink }) }
    }

    /// Brings an item.
    pub(crate) fn put(&self, number: u64, item: T) {
        self.with_slot(number, |slot| {
            debug_assert!(slot.is_none(), "more are under way than there is room for");
            *slot = Some(item);
        });
        loop {
            let Ok(mut sink) = self.sink.try_lock() else {
                // The thread that has the sink looks once more after leaving.
                return;
            };
            while let Some(item) = self.with_slot(sink.next, Option::take) {
                sink.next += 1;
                (sink.sink)(item);
            }
            let due = sink.next;
            drop(sink);
            // An item that came in between found the sink taken.
            if self.with_slot(due, |slot| slot.is_none()) {
                return;
            }
        }
    }

    fn with_slot<R>(&self, number: u64, work: impl FnOnce(&mut Option<T>) -> R) -> R {
        let slot = &self.slots[(number % self.slots.len() as u64) as usize];
        let mut slot = slot.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        work(&mut slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn items_come_out_in_order() {
        let (out, came) = mpsc::channel();
        let order = InOrder::new(4, move |item: u32| _ = out.send(item));
        for number in [2, 1, 3, 0, 5, 4] {
            order.put(u64::from(number), number);
        }
        assert_eq!(came.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn many_threads_keep_the_order() {
        const ITEMS: u64 = 20_000;
        const ROOM: usize = 8;
        let (out, came) = mpsc::channel();
        // Numbers are given out as there is room, as by a pool of batches.
        let (room, free) = mpsc::sync_channel(ROOM);
        (0..ROOM).for_each(|_| room.send(()).expect("there is room"));
        let order = InOrder::new(ROOM, move |item: u64| {
            out.send(item).expect("somebody listens");
            let _ = room.send(());
        });
        let (numbers, given) = mpsc::channel::<u64>();
        let given = std::sync::Mutex::new(given);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    loop {
                        let next = given.lock().expect("no panic").recv();
                        let Ok(number) = next else { return };
                        order.put(number, number);
                    }
                });
            }
            for number in 0..ITEMS {
                free.recv().expect("items come out");
                numbers.send(number).expect("somebody takes it");
            }
            drop(numbers);
        });
        assert!(came.try_iter().eq(0..ITEMS));
    }
}
